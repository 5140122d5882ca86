"""Convolution of rank 1 to 3, its transposed form and their derivatives, as PyTorch calls them."""

from __future__ import annotations

from typing import Any

from ..arrays import facts
from ..case import SPATIAL
from ..errors import ConvrefError, message, shorten
from ..ops import RANKS, Sizes, integer, integers, items
from . import views
from .arguments import axes_of, flag, padding_of, per_axis
from .definition import LOW, Definition, Fields, Image
from .generate import examples, ranked
from .prepare import Axes


def _conv(
    input: Image,
    weight: Sizes,
    bias: Sizes | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    transposed: Any = False,
    output_padding: Any = 0,
    weight_layout: Any = None,
    math: Any = "ieee",
    flip: Any = False,
    bias_sizes: Any = None,
) -> Fields:
    """Return the geometry of a convolution, transposed or not."""
    where, rank = input.where, len(input.space)
    transposed, groups = flag(where, "transposed", transposed), integer(where, "groups", groups)
    if groups < 1:
        raise ConvrefError(message(where, f"groups is {groups}, needs at least 1"))
    strides, dilations = per_axis(where, rank, stride=stride, dilation=dilation)
    geometry = {"input": input.space, "filter": weight[2:]}
    geometry |= {"stride": strides, "dilation": dilations}
    needs = weight[0] if transposed else weight[1] * groups
    if input.c != needs:
        has = f"C={needs}" if transposed else f"C/G={weight[1]}, groups={groups}"
        what = f"input has C={input.c}, needs {needs}: weight has {has}"
        raise ConvrefError(message(where, what))
    _check_bias_sizes(where, bias_sizes, weight[1] * groups if transposed else weight[0])
    return {
        "stride": strides,
        "padding": padding_of(where, padding, transposed=transposed, **geometry),
        "dilation": dilations,
        "groups": groups,
        "transposed": transposed,
        "output_padding": integers(where, "output_padding", output_padding, rank),
        "flip": flag(where, "flip", flip),
        "math": math,
    }


class _Convolution(Definition):
    """The definition of conv, whose weight has axes of its own to arrange."""

    def axes(self, where: str, rank: int, layout: Any, given: dict[str, Any]) -> Axes:
        """Return the axis orders of images and of the weight; OIHW goes with NCHW."""
        data, space = axes_of(where, rank, layout), SPATIAL[rank].upper()
        logical = ("IO" if flag(where, "transposed", given["transposed"]) else "OI") + space
        default = logical if data[1] == 1 else space + logical[1::-1]
        weights = default if given["weight_layout"] is None else given["weight_layout"]
        if not isinstance(weights, str) or sorted(weights) != sorted(logical):
            what = f"weight_layout is {shorten(repr(weights))}, needs the letters of {logical!r}"
            raise ConvrefError(message(where, f"{what} in any order"))
        return {"x": data, "y": data, "w": tuple(weights.index(a) for a in logical)}


CONV = _Convolution(_conv, (), "conv", (), views.images, True, "Conv", LOW)


def rank_of(where: str, weight: Any) -> int:
    """Return the rank of a convolution with this weight."""
    if weight is None:
        raise ConvrefError(message(where, "weight is None, needs an array"))
    axes = len(facts(where, "weight", weight).shape)
    if axes - 2 not in RANKS:
        what = f"weight has {axes} axes, needs 3 to 5 (1 to 3 in space)"
        raise ConvrefError(message(where, what))
    return axes - 2


def _check_bias_sizes(where: str, bias_sizes: Any, k: int) -> None:
    if bias_sizes is None:
        return
    sizes = items(bias_sizes)
    sizes = [bias_sizes] if sizes is None else sizes
    got = tuple(integer(where, "bias_sizes", size) for size in sizes)
    if got != (k,):
        raise ConvrefError(message(where, f"bias_sizes is {shorten(got)}, needs ({k},)"))


@examples(
    """
    >>> conv1d(np.arange(4.).reshape(1, 1, 4), np.ones((1, 1, 2)))
    array([[[1., 3., 5.]]])

    >>> image, weight = np.arange(9.).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
    >>> conv2d(image, weight)
    array([[[[ 8., 12.],
             [20., 24.]]]])

    >>> conv3d(np.ones((1, 1, 2, 2, 2)), np.ones((1, 1, 2, 2, 2)))
    array([[[[[8.]]]]])
    """
)
def _convNd(
    rank: int,
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

    y[n,k,p] = sum over c,r of x^[n, c, p*stride + r*dilation] w[k,c,r] + b[k], where x^ is the
    padded input; p and r have an index for each spatial axis.

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

    Notes
    -----
    Formulas C.1 to C.3 and every edge rule: docs/conv.md. Argument names and order are those of
    ``torch.nn.functional.conv2d``.
    """
    settings = stride, padding, dilation, groups, False, 0, weight_layout, math, flip, None
    return CONV.compute("fprop", (input, weight, bias), settings, layout, backend, rank=rank)[0]


@examples(
    """
    >>> conv_transpose1d(np.ones((1, 1, 2)), np.array([[[1., 10.]]]), stride=2)
    array([[[ 1., 10.,  1., 10.]]])

    >>> conv_transpose2d(np.ones((1, 1, 1, 1)), np.ones((1, 1, 2, 2)), output_padding=1, stride=2)
    array([[[[1., 1., 0.],
             [1., 1., 0.],
             [0., 0., 0.]]]])

    >>> conv_transpose3d(np.ones((1, 1, 1, 1, 1)), np.ones((1, 1, 1, 1, 2)), padding=(0, 0, -1))
    array([[[[[0., 1., 1., 0.]]]]])
    """
)
def _conv_transposeNd(
    rank: int,
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
        Along an axis of D elements and a filter of T,
        (D - 1) * stride + (T - 1) * dilation + 1 + output_padding - lo - hi.
    """
    geometry = stride, padding, dilation, groups, True, output_padding
    settings = *geometry, weight_layout, math, flip, None
    return CONV.compute("fprop", (input, weight, bias), settings, layout, backend, rank=rank)[0]


@examples(
    """
    >>> conv1d_backward(np.ones((1, 1, 2)), np.arange(3.).reshape(1, 1, 3), np.ones((1, 1, 2)))
    (array([[[1., 2., 1.]]]), array([[[1., 3.]]]), array([2.]))

    >>> dy, x, w = np.ones((1, 1, 2, 2)), np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2))
    >>> dx, dw, db = conv2d_backward(dy, x, w, output_mask=(False, True, True))
    >>> dx, dw, db
    (None, array([[[[4., 4.],
             [4., 4.]]]]), array([4.]))

    >>> one = np.ones((1, 1, 1, 1, 1))
    >>> [float(g.sum()) for g in conv3d_backward(one, 2 * one, 3 * one)]
    [3.0, 2.0, 1.0]
    """
)
def _convNd_backward(
    rank: int,
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
    """
    geometry = stride, padding, dilation, groups, transposed, output_padding
    settings, mask = (*geometry, weight_layout, math, flip, bias_sizes), output_mask
    arrays = grad_output, input, weight
    return CONV.compute("backward", arrays, settings, layout, backend, mask=mask, rank=rank)


@examples(
    """
    >>> x, w = np.ones((1, 1, 2)), np.ones((1, 1, 1))
    >>> conv1d_jvp((x, w), (None, 5 * w))
    (array([[[1., 1.]]]), array([[[5., 5.]]]))

    >>> x, w = np.full((1, 1, 1, 1), 2.), np.full((1, 1, 1, 1), 3.)
    >>> conv2d_jvp((x, w), (w, None))
    (array([[[[6.]]]]), array([[[[9.]]]]))

    >>> one = np.ones((1, 1, 1, 1, 1))
    >>> [float(y.sum()) for y in conv3d_jvp((one, 2 * one), (one, one))]
    [2.0, 3.0]
    """
)
def _convNd_jvp(
    rank: int,
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
    """
    triples = []
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
            raise ConvrefError(message("conv.jvp", f"{name} needs a tuple (input, weight[, bias])"))
        triples.append((*given, None)[:3])
    if triples[0][2] is None and triples[1][2] is not None:
        raise ConvrefError(message("conv.jvp", "bias tangent is given, needs a bias"))
    geometry = stride, padding, dilation, groups, transposed, output_padding
    settings = *geometry, weight_layout, math, flip, None
    arrays = *triples[0], *triples[1]
    return CONV.compute("jvp", arrays, settings, layout, backend, rank=rank)


FUNCTIONS = ranked(_convNd, _conv_transposeNd, _convNd_backward, _convNd_jvp)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
