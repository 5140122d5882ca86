"""What users call: arrays in, arrays of the same kind, dtype and device out.

Each function builds a Call once, keeps it under the raw shapes, strides and arguments, and hands
the arrays to the backend that `convref.dispatch` planned for it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from . import dispatch
from ._arguments import Prepared, Settings, prepare, window_problem
from .arrays import facts, to_numpy
from .case import Call, Case, Spec
from .errors import ConvrefError, message, shorten
from .judge import Numerics, judge
from .problem import SIGNATURE, WindowProblem, integer, integers, items

MAX_PLANS = 4096
_plans: OrderedDict[Any, tuple[Prepared, dispatch.Plan]] = OrderedDict()


def _facts_key(array: Any) -> Any:
    """Return what a plan may depend on; cheap, since it is built at every call."""
    if array is None:
        return None
    stride = array.stride() if callable(getattr(array, "stride", None)) else array.strides
    return type(array), array.shape, stride, array.dtype, getattr(array, "device", None)


def _run(
    pass_: str,
    rank: int,
    arrays: tuple[Any, ...],
    settings: Settings,
    backend: str,
    mask: Any = (),
    bias_sizes: Any = None,
) -> tuple[Any, ...]:
    """Look the call up by raw facts, or prepare and plan it; then compute it."""
    try:
        given = repr((*settings, mask, bias_sizes))  # as text 1, 1.0 and True are not equal
        key = (pass_, rank, *map(_facts_key, arrays), given, backend)
        found = _plans.get(key)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # an operand is no plain array
        key, found = None, None
    if found is None:
        found = _plan(pass_, rank, arrays, settings, backend, mask, bias_sizes)
        if key is not None and found[1].call.dtype != "obj":  # objects are looked at every time
            _plans[key] = found
            if len(_plans) > MAX_PLANS:
                _plans.popitem(last=False)
    prepared, plan = found
    if prepared.identity:
        return plan.backend.run(plan.call, *arrays)
    call = plan.call
    operands = (prepared.operand(r, a) for r, a in zip(call.roles, arrays))
    results = plan.backend.run(call, *operands)
    return tuple(prepared.result(r, a) for r, a in zip(call.signature.results, results))


def _plan(
    pass_: str,
    rank: int,
    arrays: tuple[Any, ...],
    settings: Settings,
    backend: str,
    mask: Any,
    bias_sizes: Any,
) -> tuple[Prepared, dispatch.Plan]:
    prepared = prepare(pass_, rank, arrays, settings, mask)
    if bias_sizes is not None:
        _check_bias_sizes(prepared.call, bias_sizes)
    kind = facts("", "", next(a for a in arrays if a is not None)).kind
    return prepared, dispatch.plan(prepared.call, backend, kind)


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


def _windows(op: str, array: Any, problem: WindowProblem, backend: str) -> Any:
    where = f"{op}.fprop"
    found = facts(where, "input", array)
    call = Call(op, "fprop", problem, specs=(Spec(found.dtype, device=found.device),))
    return dispatch.run(call, array, backend=backend)[0]


def unfold(
    input: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
    *,
    backend: str = "numpy",
) -> Any:
    """Return the windows of `input` as columns (im2col); argument order as in torch.

    Parameters
    ----------
    input : (N, C, *spatial) array
        1 to 3 spatial axes.
    kernel_size, dilation, stride : int or tuple of int
    padding : int, tuple of int, (lo, hi) pairs or str
        As in `conv2d`.

    Returns
    -------
    (N, C * prod(kernel_size), prod(output)) array

    Examples
    --------
    >>> unfold(np.arange(4.).reshape(1, 1, 4), 2)
    array([[[0., 1., 2.],
            [1., 2., 3.]]])
    """
    shape = facts("unfold", "input", input).shape
    if len(shape) not in (3, 4, 5):
        raise ConvrefError(message("unfold", f"input has {len(shape)} axes, needs 3 to 5"))
    problem = window_problem("unfold", shape, kernel_size, dilation, padding, stride)
    return _windows("unfold", input, problem, backend)


def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
    *,
    backend: str = "numpy",
) -> Any:
    """Return the image whose windows are added up from columns (col2im), the adjoint of `unfold`.

    Parameters
    ----------
    input : (N, C * prod(kernel_size), L) array
    output_size : tuple of int
        Spatial sizes of the image, one per axis; a single int means two equal axes.
    kernel_size, dilation, padding, stride
        As in `unfold`.

    Returns
    -------
    (N, C, *output_size) array

    Examples
    --------
    >>> fold(np.ones((1, 2, 3)), (4,), 2)
    array([[[1., 2., 2., 1.]]])
    """
    shape = facts("fold", "input", input).shape
    if len(shape) != 3:
        raise ConvrefError(message("fold", f"input has {len(shape)} axes, needs 3"))
    listed = items(output_size)
    rank = 2 if listed is None else len(listed)
    if rank not in (1, 2, 3):
        raise ConvrefError(message("fold", f"output_size has {rank} entries, needs 1 to 3"))
    sizes = integers("fold", "output_size", output_size, rank)
    taps = 1
    for size in integers("fold", "kernel_size", kernel_size, rank):
        taps *= max(1, size)
    if shape[1] % taps:
        raise ConvrefError(
            message("fold", f"input has {shape[1]} rows, needs a multiple of {taps}")
        )
    image = (shape[0], shape[1] // taps, *sizes)
    problem = window_problem("fold", image, kernel_size, dilation, padding, stride)
    if shape[2] != problem.shape("cols")[2]:
        raise ConvrefError(
            message("fold", f"input has {shape[2]} columns, needs {problem.shape('cols')[2]}")
        )
    return _windows("fold", input, problem, backend)


def _named(name: str, operands: tuple[Any, ...], arguments: dict[str, Any]) -> Prepared:
    """Return the prepared call of "conv.PASS" on `operands`; short lists are padded with None."""
    op, _, pass_ = str(name).partition(".")
    if (op, pass_) not in SIGNATURE or op != "conv":
        known = ", ".join(f"{o}.{p}" for o, p in SIGNATURE if o == "conv")
        raise ConvrefError(message("case_of", f"name is {shorten(name)}, needs one of {known}"))
    roles = SIGNATURE[op, pass_].operands
    if len(operands) > len(roles):
        raise ConvrefError(
            message(name, f"got {len(operands)} operands, needs {len(roles)}: {', '.join(roles)}")
        )
    operands = (*operands, *(None,) * (len(roles) - len(operands)))
    maskable = SIGNATURE[op, pass_].maskable
    accepted = (*Settings._fields, *(("output_mask",) if maskable else ()))
    for argument in arguments:
        if argument not in accepted:
            text = f"argument {shorten(argument)} is unknown, needs one of {', '.join(accepted)}"
            raise ConvrefError(message(name, text))
    mask = arguments.pop("output_mask", (True, True, True))
    return prepare(pass_, 0, operands, Settings(**arguments), mask if maskable else ())


def case_of(name: str, *operands: Any, **arguments: Any) -> Case:
    """Return the Case of a call: the line that repeats it, on generated data.

    Parameters
    ----------
    name : str
        "conv.fprop", "conv.backward", "conv.jvp" or "conv.double_backward".
    *operands : array or None
        In the order of `convref.problem.SIGNATURE`.
    **arguments
        stride, padding, dilation, groups, transposed, output_padding, output_mask, layout,
        weight_layout, math, flip.

    Examples
    --------
    >>> dy, x, w = np.ones((1, 2, 3, 3)), np.ones((1, 1, 5, 5)), np.ones((2, 1, 3, 3))
    >>> print(case_of("conv.backward", dy, x, w))
    conv.backward:n1c1k2_i5x5_f3x3:dt=f64
    """
    return Case(_named(name, operands, arguments).call)


def assert_correct(
    got: Any,
    name: str,
    operands: tuple[Any, ...],
    *,
    accuracy: Numerics | str = "undeclared",
    **arguments: Any,
) -> None:
    """Raise AssertionError unless `got` is right by the judge: the oracle in your own tests.

    Parameters
    ----------
    got : array or tuple of (array or None)
        What your kernel returned, in the order of `convref.problem.SIGNATURE`.
    name : str
        As in `case_of`.
    operands : tuple of (array or None)
        What it was given.
    accuracy : Numerics or str
        Its declared arithmetic; a str is the model's name. Undeclared arithmetic is held to
        round-to-nearest sums in float32 (float64 for float64).
    **arguments
        As in `case_of`.

    Raises
    ------
    AssertionError
        If the result is wrong or suspect; the text has the line, the element and the bound.

    Examples
    --------
    >>> x, w = np.ones((1, 1, 3)), np.ones((1, 1, 2))
    >>> assert_correct(np.full((1, 1, 2), 2.), "conv.fprop", (x, w), accuracy="rn64")
    """
    if not isinstance(operands, (tuple, list)):
        what = f"operands is a {type(operands).__name__}, needs a tuple of arrays"
        raise ConvrefError(message("assert_correct", what))
    if not isinstance(accuracy, (Numerics, str)):
        what = f"accuracy is {shorten(repr(accuracy))}, needs a Numerics or the name of a model"
        raise ConvrefError(message("assert_correct", what))
    prepared = _named(name, operands, arguments)
    call = prepared.call
    given = got if isinstance(got, (tuple, list)) else (got,)
    roles = call.signature.results
    if len(given) != len(roles):
        raise AssertionError(f"got {len(given)} results, needs {len(roles)}: {', '.join(roles)}")
    for role, array in zip(roles, given):
        if array is not None:
            facts(name, f"result {role}", array)
    operands = (*operands, *(None,) * (len(call.roles) - len(operands)))
    inputs = [
        None if a is None else to_numpy(prepared.operand(r, a))
        for r, a in zip(call.roles, operands)
    ]
    results = [
        None if a is None else to_numpy(_as_formula(prepared, r, a)) for r, a in zip(roles, given)
    ]
    numerics = Numerics(accuracy) if isinstance(accuracy, str) else accuracy
    verdict = judge(call, inputs, results, numerics)
    if not verdict:
        raise AssertionError(f"{verdict.kind}: {verdict.reason}\n  {call}")


def _as_formula(prepared: Prepared, role: str, array: Any) -> Any:
    """Return the user's result as a formula has it; a wrong rank is left for the judge to name."""
    expected = len(prepared.call.problem.shape(role))
    missing = prepared.unbatched and role in ("y", "y_dot", "dx", "dy", "ddy")
    return prepared.operand(role, array) if array.ndim == expected - missing else array
