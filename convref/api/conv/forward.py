"""Convolution, which is cross-correlation, of rank 1 to 3."""

from __future__ import annotations

from typing import Any

from ._problems import Settings, forward


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 1d convolution of `input` (N, C, W) with `weight` (K, C/G, S); see `conv2d`.

    Examples
    --------
    >>> conv1d(np.arange(4.).reshape(1, 1, 4), np.ones((1, 1, 2)))
    array([[[1., 3., 5.]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, False, 0, layout, weight_layout, math, flip
    )
    return forward(1, (input, weight, bias), settings, backend)


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 2d convolution (cross-correlation) of `input` with `weight`, plus `bias`.

    y[n,k,p,q] = sum over c,r,s of x^[n, c, p*stride + r*dilation, ...] w[k,c,r,s] + b[k], where
    x^ is the padded input.

    Parameters
    ----------
    input : (N, C, H, W) array, or (C, H, W)
        NumPy array or torch tensor, any strides.
    weight : (K, C/G, R, S) array
        Same kind, dtype and device as `input`.
    bias : (K,) array, optional
    stride, dilation : int or (int, int)
        In elements, at least 1; dilation 1 is dense.
    padding : int, (int, int), ((lo, hi), (lo, hi)) or str
        In elements; negative values crop. Words: "valid", "same" (stride 1, the odd zero at the
        end), "same_upper", "same_lower" (any stride), "half", "full".
    groups : int
        Divides C and K.
    layout : {"NCHW", "NHWC"}
        Axis order of input and output; NHWC expects the weight as HWIO.
    weight_layout : str, optional
        Axis order of the weight, the letters OIHW in any order.
    math : {"ieee", "tf32", "tf32x3"}
        What may be done to float32 products.
    flip : bool
        True convolution: the filter is flipped.
    backend : str
        A name, "package.module:object", or "auto".

    Returns
    -------
    (N, K, P, Q) array
        Same kind, dtype and device as `input`.

    Raises
    ------
    ConvrefError
        If an argument is wrong; the text names it, what it is and what it needs.
    UnsupportedError
        If the named backend cannot do this call; with its reason.

    Notes
    -----
    Formulas C.1 to C.3 and every edge rule: docs/conv.md. Argument names and order are those of
    ``torch.nn.functional.conv2d``.

    Examples
    --------
    >>> image, weight = np.arange(9.).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
    >>> conv2d(image, weight)
    array([[[[ 8., 12.],
             [20., 24.]]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, False, 0, layout, weight_layout, math, flip
    )
    return forward(2, (input, weight, bias), settings, backend)


def conv3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCDHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 3d convolution of `input` (N, C, D, H, W) with (K, C/G, T, R, S); see `conv2d`.

    Examples
    --------
    >>> conv3d(np.ones((1, 1, 2, 2, 2)), np.ones((1, 1, 2, 2, 2)))
    array([[[[[8.]]]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, False, 0, layout, weight_layout, math, flip
    )
    return forward(3, (input, weight, bias), settings, backend)
