"""The gradients of both forms of convolution, of rank 1 to 3."""

from __future__ import annotations

from typing import Any

from ._problems import Settings, backward


def conv1d_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    output_mask: Any = (True, True, True),
    layout: str = "NCW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `conv1d`; see `conv2d_backward`.

    Examples
    --------
    >>> conv1d_backward(np.ones((1, 1, 2)), np.arange(3.).reshape(1, 1, 3), np.ones((1, 1, 2)))
    (array([[[1., 2., 1.]]]), array([[[1., 3.]]]), array([2.]))
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    arrays = grad_output, input, weight
    return backward(1, arrays, bias_sizes, settings, output_mask, backend)


def conv2d_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    output_mask: Any = (True, True, True),
    layout: str = "NCHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `conv2d` or `conv_transpose2d`.

    dx[n,c,o_r] += sum_k dy[n,k,p] conj(w[k,c,r]); dw[k,c,r] = sum_n,p conj(x^[n,c,o_r]) dy[n,k,p];
    db[k] = sum_n,p dy[n,k,p].

    Parameters
    ----------
    grad_output : (N, K, P, Q) array
        Cotangent of the output; every size is checked.
    input : (N, C, H, W) array
        Input of the forward pass.
    weight : (K, C/G, R, S) array, or (C, K/G, R, S) when transposed
    bias_sizes : (int,), optional
        Must be (K,) where given. None does not switch the bias off; the mask does.
    stride, padding, dilation, groups, layout, weight_layout, math, flip, backend
        As in `conv2d`.
    transposed : bool
        Whether the forward pass was `conv_transpose2d`.
    output_padding : int or (int, int)
        As in `conv_transpose2d`.
    output_mask : (bool, bool, bool)
        Which of the three results to compute; the others are None.

    Returns
    -------
    tuple of 3 (array or None)
        Shapes of `input`, `weight` and (K,).

    Raises
    ------
    ConvrefError
        If an argument is wrong; the text names it, what it is and what it needs.
    UnsupportedError
        If the named backend cannot do this call; with its reason.

    Examples
    --------
    >>> dy, x, w = np.ones((1, 1, 2, 2)), np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2))
    >>> dx, dw, db = conv2d_backward(dy, x, w, output_mask=(False, True, True))
    >>> dx, dw, db
    (None, array([[[[4., 4.],
             [4., 4.]]]]), array([4.]))
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    arrays = grad_output, input, weight
    return backward(2, arrays, bias_sizes, settings, output_mask, backend)


def conv3d_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    output_mask: Any = (True, True, True),
    layout: str = "NCDHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `conv3d`; see `conv2d_backward`.

    Examples
    --------
    >>> one = np.ones((1, 1, 1, 1, 1))
    >>> [float(g.sum()) for g in conv3d_backward(one, 2 * one, 3 * one)]
    [3.0, 2.0, 1.0]
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    arrays = grad_output, input, weight
    return backward(3, arrays, bias_sizes, settings, output_mask, backend)
