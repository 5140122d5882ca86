"""Convolution of rank 1 to 3, its transposed form and their derivatives, as PyTorch calls them."""

from __future__ import annotations

from typing import Any

from ..arrays import facts
from ..case import Call
from ..errors import ConvrefError, message, shorten
from ..problem import integer, items
from ._arguments import Prepared, Settings, prepare
from ._run import compute


def _run(
    pass_: str,
    rank: int,
    arrays: tuple[Any, ...],
    settings: Settings,
    backend: str,
    mask: Any = (),
    bias_sizes: Any = None,
) -> tuple[Any, ...]:
    return compute(prepare_conv, arrays, (pass_, rank, settings, mask, bias_sizes), backend)


def prepare_conv(
    arrays: tuple[Any, ...], pass_: str, rank: int, settings: Settings, mask: Any, bias_sizes: Any
) -> Prepared:
    """Return the prepared call of a convolution; what `compute` keeps under the raw arguments."""
    found = prepare(pass_, rank, arrays, settings, mask)
    if bias_sizes is not None:
        _check_bias_sizes(found.call, bias_sizes)
    return found


def _conv(rank: int, arrays: tuple[Any, ...], settings: Settings, backend: str) -> Any:
    return _run("fprop", rank, arrays, settings, backend)[0]


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
    return _conv(1, (input, weight, bias), settings, backend)


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
    return _conv(2, (input, weight, bias), settings, backend)


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
    return _conv(3, (input, weight, bias), settings, backend)


def conv_transpose1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 1d transposed convolution with `weight` (C, K/G, S); see `conv_transpose2d`.

    Examples
    --------
    >>> conv_transpose1d(np.ones((1, 1, 2)), np.array([[[1., 10.]]]), stride=2)
    array([[[ 1., 10.,  1., 10.]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, True, output_padding, layout, weight_layout, math, flip
    )
    return _conv(1, (input, weight, bias), settings, backend)


def conv_transpose2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 2d transposed convolution: the adjoint of `conv2d` in its input, plus `bias`.

    Parameters
    ----------
    input : (N, C, H, W) array, or (C, H, W)
    weight : (C, K/G, R, S) array
        HWOI with layout="NHWC".
    bias : (K,) array, optional
    stride, dilation, padding, groups, layout, weight_layout, math, flip, backend
        As in `conv2d`; of the padding words only "valid".
    output_padding : int or (int, int)
        Extra output at the high end, in [0, max(stride, dilation)).

    Returns
    -------
    (N, K, P, Q) array
        P = (H - 1) * stride + (R - 1) * dilation + 1 + output_padding - lo - hi.

    Raises
    ------
    ConvrefError
        If an argument is wrong; the text names it, what it is and what it needs.
    UnsupportedError
        If the named backend cannot do this call; with its reason.

    Examples
    --------
    >>> conv_transpose2d(np.ones((1, 1, 1, 1)), np.ones((1, 1, 2, 2)), output_padding=1, stride=2)
    array([[[[1., 1., 0.],
             [1., 1., 0.],
             [0., 0., 0.]]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, True, output_padding, layout, weight_layout, math, flip
    )
    return _conv(2, (input, weight, bias), settings, backend)


def conv_transpose3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCDHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 3d transposed convolution with `weight` (C, K/G, T, R, S); see `conv_transpose2d`.

    Examples
    --------
    >>> conv_transpose3d(np.ones((1, 1, 1, 1, 1)), np.ones((1, 1, 1, 1, 2)), padding=(0, 0, -1))
    array([[[[[0., 1., 1., 0.]]]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, True, output_padding, layout, weight_layout, math, flip
    )
    return _conv(3, (input, weight, bias), settings, backend)


def _backward(
    rank: int,
    arrays: tuple[Any, ...],
    bias_sizes: Any,
    settings: Settings,
    mask: Any,
    backend: str,
) -> tuple[Any, ...]:
    return _run("backward", rank, arrays, settings, backend, mask, bias_sizes)


def _check_bias_sizes(call: Call, bias_sizes: Any) -> None:
    sizes = items(bias_sizes)
    sizes = [bias_sizes] if sizes is None else sizes
    got = tuple(integer("conv.backward", "bias_sizes", size) for size in sizes)
    if got != (call.conv.k,):
        what = f"bias_sizes is {shorten(got)}, needs ({call.conv.k},)"
        raise ConvrefError(message("conv.backward", what, call))


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
    return _backward(1, arrays, bias_sizes, settings, output_mask, backend)


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
    return _backward(2, arrays, bias_sizes, settings, output_mask, backend)


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
    return _backward(3, arrays, bias_sizes, settings, output_mask, backend)


def _jvp(
    rank: int, primals: Any, tangents: Any, settings: Settings, backend: str
) -> tuple[Any, ...]:
    triples = []
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
            raise ConvrefError(message("conv.jvp", f"{name} needs a tuple (input, weight[, bias])"))
        triples.append((*given, None)[:3])
    return _run("jvp", rank, (*triples[0], *triples[1]), settings, backend)


def conv1d_jvp(
    primals: Any,
    tangents: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    layout: str = "NCW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `conv1d`; see `conv2d_jvp`.

    Examples
    --------
    >>> x, w = np.ones((1, 1, 2)), np.ones((1, 1, 1))
    >>> conv1d_jvp((x, w), (None, 5 * w))
    (array([[[1., 1.]]]), array([[[5., 5.]]]))
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    return _jvp(1, primals, tangents, settings, backend)


def conv2d_jvp(
    primals: Any,
    tangents: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    layout: str = "NCHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent): the forward-mode derivative of `conv2d`.

    y_dot = conv(x_dot, w) + conv(x, w_dot) + b_dot.

    Parameters
    ----------
    primals : (input, weight) or (input, weight, bias)
        As in `conv2d`, or `conv_transpose2d` with ``transposed=True``.
    tangents : (input, weight) or (input, weight, bias)
        Shaped like the primals; None is a zero tangent and costs nothing.
    stride, padding, dilation, transposed, output_padding, groups, layout, weight_layout, math, \
    flip, backend
        As in `conv2d_backward`.

    Returns
    -------
    tuple of 2 arrays
        Each (N, K, P, Q).

    Raises
    ------
    ConvrefError
        If an argument is wrong; the text names it, what it is and what it needs.
    UnsupportedError
        If the named backend cannot do this call; with its reason.

    Examples
    --------
    >>> x, w = np.full((1, 1, 1, 1), 2.), np.full((1, 1, 1, 1), 3.)
    >>> conv2d_jvp((x, w), (w, None))
    (array([[[[6.]]]]), array([[[[9.]]]]))
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    return _jvp(2, primals, tangents, settings, backend)


def conv3d_jvp(
    primals: Any,
    tangents: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    layout: str = "NCDHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `conv3d`; see `conv2d_jvp`.

    Examples
    --------
    >>> one = np.ones((1, 1, 1, 1, 1))
    >>> [float(y.sum()) for y in conv3d_jvp((one, 2 * one), (one, one))]
    [2.0, 3.0]
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    return _jvp(3, primals, tangents, settings, backend)


def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *,
    backend: str = "auto",
) -> Any:
    """Return the convolution of any rank; arguments in the order of ``aten::convolution``.

    The rank is read off `input`, which must have its N axis.

    Examples
    --------
    >>> x, w = np.arange(3.).reshape(1, 1, 3), np.ones((1, 1, 2))
    >>> convolution(x, w, None, [1], [0], [1], False, [0], 1)
    array([[[1., 3.]]])
    """
    settings = _aten(stride, padding, dilation, transposed, output_padding, groups)
    return _conv(_rank("conv.fprop", input), (input, weight, bias), settings, backend)


def convolution_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the three gradients; arguments in the order of ``aten::convolution_backward``.

    Examples
    --------
    >>> x, w, dy = np.ones((1, 1, 3)), np.ones((1, 1, 2)), np.ones((1, 1, 2))
    >>> convolution_backward(dy, x, w, [1], [1], [0], [1], False, [0], 1, [True, False, False])
    (array([[[1., 2., 1.]]]), None, None)
    """
    settings = _aten(stride, padding, dilation, transposed, output_padding, groups)
    rank, arrays = _rank("conv.backward", input), (grad_output, input, weight)
    return _backward(rank, arrays, bias_sizes, settings, output_mask, backend)


def convolution_double_backward(
    grad_grad_input: Any,
    grad_grad_weight: Any,
    grad_grad_bias: Any,
    grad_output: Any,
    weight: Any,
    input: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output, input and weight through the backward pass.

    Arguments stand in the order of ``aten::_convolution_double_backward`` (weight before input);
    the first three may be None.

    Examples
    --------
    >>> one = np.ones((1, 1, 1))
    >>> convolution_double_backward(
    ...     one, None, None, 2 * one, 3 * one, 5 * one, 1, 0, 1, False, 0, 1, (True, True, True)
    ... )
    (array([[[3.]]]), array([[[0.]]]), array([[[2.]]]))
    """
    settings = _aten(stride, padding, dilation, transposed, output_padding, groups)
    arrays = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    rank = _rank("conv.double_backward", input)
    return _run("double_backward", rank, arrays, settings, backend, output_mask)


def _aten(
    stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> Settings:
    return Settings(stride, padding, dilation, groups, transposed, output_padding)


def _rank(where: str, input: Any) -> int:
    axes = len(facts(where, "input", input).shape)
    if axes not in (3, 4, 5):
        raise ConvrefError(
            message(where, f"input has {axes} axes, needs 3 to 5 (N is not missing)")
        )
    return axes - 2
