"""Convolution of rank 1 to 3, its transposed form and their derivatives, as PyTorch calls them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any, NamedTuple

from ..arrays import facts
from ..case import SPATIAL
from ..errors import invalid, shorten
from ..ops import RANKS, Sizes, integer, integers, items
from .arguments import axes_of, flag, form_of, padding_of, per_axis
from .definition import LOW, Definition, Fields, Image
from .generate import names
from .generate.docs import entries, sections
from .generate.passes import PassFunction
from .run import Axes


def convolved(
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
        raise invalid(where, f"groups is {groups}, needs at least 1")
    strides, dilations = per_axis(where, rank, stride=stride, dilation=dilation)
    geometry = {"input": input.space, "filter": weight[2:]}
    geometry |= {"stride": strides, "dilation": dilations}
    needs = weight[0] if transposed else weight[1] * groups
    if input.c != needs:
        has = f"C={needs}" if transposed else f"C/G={weight[1]}, groups={groups}"
        raise invalid(where, f"input has C={input.c}, needs {needs}: weight has {has}")
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
    """The definition of conv, whose weight has its own axis order."""

    def axes(self, where: str, rank: int, layout: Any, given: dict[str, Any]) -> Axes:
        """Return the axis orders of images and of the weight; OIHW goes with NCHW."""
        data, space = axes_of(where, rank, layout), SPATIAL[rank].upper()
        logical = ("IO" if flag(where, "transposed", given["transposed"]) else "OI") + space
        default = logical if data[1] == 1 else space + logical[1::-1]
        weights = default if given["weight_layout"] is None else given["weight_layout"]
        if not isinstance(weights, str) or sorted(weights) != sorted(logical):
            what = f"weight_layout is {shorten(repr(weights))}, needs the letters of {logical!r}"
            raise invalid(where, f"{what} in any order")
        return {"x": data, "y": data, "w": tuple(weights.index(a) for a in logical)}

    def pair(
        self, where: str, primals: Any, tangents: Any, names: tuple[str, ...]
    ) -> tuple[Any, ...]:
        """Return primals and then tangents; the bias may be missing, an absent tangent stays."""
        triples = []
        for name, given in (("primals", primals), ("tangents", tangents)):
            if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
                needs = "needs a tuple (input, weight[, bias])"
                raise invalid(where, f"{name} {form_of(given)}, {needs}")
            triples.append((*given, None)[:3])
        if triples[0][2] is None and triples[1][2] is not None:
            raise invalid(where, "bias tangent is given, needs a bias")
        return *triples[0], *triples[1]


CONV = _Convolution(convolved, op="conv", layer="Conv", autocast=LOW)


def rank_of(where: str, weight: Any) -> int:
    """Return the rank of a convolution with this weight."""
    if weight is None:
        raise invalid(where, "weight is None, needs an array")
    axes = len(facts(where, "weight", weight).shape)
    if axes - 2 not in RANKS:
        raise invalid(where, f"weight has {axes} axes, needs 3 to 5 (1 to 3 in space)")
    return axes - 2


def _check_bias_sizes(where: str, bias_sizes: Any, k: int) -> None:
    if bias_sizes is None:
        return
    sizes = items(bias_sizes)
    sizes = [bias_sizes] if sizes is None else sizes
    got = tuple(integer(where, "bias_sizes", size) for size in sizes)
    if got != (k,):
        raise invalid(where, f"bias_sizes is {shorten(got)}, needs ({k},)")


# Parts of signatures: the settings, in the derivatives and in ATen's operators; options.
_GEOMETRY = "stride=1, padding=0, dilation=1, transposed=False, output_padding=0, groups=1"
_ATEN = "stride, padding, dilation, transposed, output_padding, groups"
_OPTIONS = "layout='NCHW', weight_layout=None, math='ieee', flip=False, backend='auto'"


class _Function(NamedTuple):
    """A public function; "Nd" in its name is the rank, and its docstring is that of rank 2."""

    name: str
    pass_: str
    signature: str
    text: str


_FUNCTIONS: tuple[_Function, ...] = (
    _Function(
        "convNd",
        "fprop",
        f"input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, {_OPTIONS}",
        """
        Return the 2d convolution (cross-correlation) of `input` with `weight`, plus `bias`.

        y[n,k,p] = sum over c,r of x^[n, c, p*stride + r*dilation] w[k,c,r] + b[k], where x^ is the
        padded input; p and r have an index for each spatial axis.

        Parameters
        ----------
        input : (N, C, H, W) array, or (C, H, W)
            NumPy array, torch tensor (any strides) or JAX array.
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
        transposed : bool
            Whether the forward pass was `conv_transpose2d`.
        output_padding : int or (int, int)
            Extra output of a transposed convolution at the high end, in [0, max(stride, dilation)).
        layout : {"NCHW", "NHWC"}
            Axis order of input and output; NHWC expects the weight as HWIO, transposed as HWOI.
        weight_layout : str, optional
            Axis order of the weight, the letters OIHW in any order.
        math : {"ieee", "tf32", "tf32x3"}
            What may be done to float32 products.
        flip : bool
            True convolution: the filter is flipped.

        Returns
        -------
        (N, K, P, Q) array
            Same kind, dtype and device as `input`.

        Notes
        -----
        Formulas C.1 to C.3 and every edge rule: docs/conv.md. Argument names and order are those of
        ``torch.nn.functional.conv2d``.

        >>> conv1d(np.arange(4.).reshape(1, 1, 4), np.ones((1, 1, 2)))
        array([[[1., 3., 5.]]])

        >>> image, weight = np.arange(9.).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
        >>> conv2d(image, weight)
        array([[[[ 8., 12.],
                 [20., 24.]]]])

        >>> conv3d(np.ones((1, 1, 2, 2, 2)), np.ones((1, 1, 2, 2, 2)))
        array([[[[[8.]]]]])
        """,
    ),
    _Function(
        "conv_transposeNd",
        "fprop",
        "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, "
        f"*, {_OPTIONS}",
        """
        Return the 2d transposed convolution: the adjoint of `conv2d` in its input, plus `bias`.

        Parameters
        ----------
        weight : (C, K/G, R, S) array
            Same kind, dtype and device as `input`.
        padding : int, (int, int), ((lo, hi), (lo, hi)) or "valid"
            As in `conv2d`: how much less there is of the output.

        Returns
        -------
        (N, K, P, Q) array
            Along an axis of D elements and a filter of T,
            (D - 1) * stride + (T - 1) * dilation + 1 + output_padding - lo - hi.

        >>> conv_transpose1d(np.ones((1, 1, 2)), np.array([[[1., 10.]]]), stride=2)
        array([[[ 1., 10.,  1., 10.]]])

        >>> one, weight = np.ones((1, 1, 1, 1)), np.ones((1, 1, 2, 2))
        >>> conv_transpose2d(one, weight, output_padding=1, stride=2)
        array([[[[1., 1., 0.],
                 [1., 1., 0.],
                 [0., 0., 0.]]]])

        >>> conv_transpose3d(np.ones((1, 1, 1, 1, 1)), np.ones((1, 1, 1, 1, 2)), padding=(0, 0, -1))
        array([[[[[0., 1., 1., 0.]]]]])
        """,
    ),
    _Function(
        "convNd_backward",
        "backward",
        f"grad_output, input, weight, bias_sizes=None, *, {_GEOMETRY}, "
        f"output_mask=(True, True, True), {_OPTIONS}",
        """
        Return (grad_input, grad_weight, grad_bias) of `conv2d` or `conv_transpose2d`.

        dx[n,c,o_r] += sum_k dy[n,k,p] conj(w[k,c,r]);
        dw[k,c,r] = sum_n,p conj(x^[n,c,o_r]) dy[n,k,p]; db[k] = sum_n,p dy[n,k,p].

        Parameters
        ----------
        grad_output : (N, K, P, Q) array
            Cotangent of the output; every size is checked.
        input : (N, C, H, W) array
            Input of the forward pass.
        weight : (K, C/G, R, S) array, or (C, K/G, R, S) when transposed
        bias_sizes : (int,), optional
            Must be (K,) where given. None does not switch the bias off; the mask does.
        output_mask : (bool, bool, bool)
            Which of the three results to compute; the others are None.

        Returns
        -------
        tuple of 3 (array or None)
            Shapes of `input`, `weight` and (K,).

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
        """,
    ),
    _Function(
        "convNd_jvp",
        "jvp",
        f"primals, tangents, *, {_GEOMETRY}, {_OPTIONS}",
        """
        Return (output, output tangent): the forward-mode derivative of `conv2d`.

        y_dot = conv(x_dot, w) + conv(x, w_dot) + b_dot.

        Parameters
        ----------
        primals : (input, weight) or (input, weight, bias)
            As in `conv2d`, or `conv_transpose2d` with ``transposed=True``.
        tangents : (input, weight) or (input, weight, bias)
            Shaped like the primals; None is a zero tangent and costs nothing.

        Returns
        -------
        tuple of 2 arrays
            Each (N, K, P, Q).

        >>> x, w = np.ones((1, 1, 2)), np.ones((1, 1, 1))
        >>> conv1d_jvp((x, w), (None, 5 * w))
        (array([[[1., 1.]]]), array([[[5., 5.]]]))

        >>> x, w = np.full((1, 1, 1, 1), 2.), np.full((1, 1, 1, 1), 3.)
        >>> conv2d_jvp((x, w), (w, None))
        (array([[[[6.]]]]), array([[[[9.]]]]))

        >>> one = np.ones((1, 1, 1, 1, 1))
        >>> [float(y.sum()) for y in conv3d_jvp((one, 2 * one), (one, one))]
        [2.0, 3.0]
        """,
    ),
    _Function(
        "convNd_double_backward",
        "double_backward",
        "grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight, *, "
        f"{_GEOMETRY}, output_mask=(True, True, True), {_OPTIONS}",
        """
        Return the gradients of grad_output, input and weight through `conv2d_backward`.

        The first three arguments may be None, but not all of them.

        >>> one = np.ones((1, 1, 1))
        >>> conv1d_double_backward(one, None, None, 2 * one, 3 * one, 5 * one)
        (array([[[5.]]]), array([[[0.]]]), array([[[2.]]]))
        """,
    ),
    _Function(
        "convolution",
        "fprop",
        f"input, weight, bias, {_ATEN}, *, flip=False, backend='auto'",
        """
        Return the convolution of any rank; arguments in the order of ``aten::convolution``.

        The rank is read off `input`, which must have its N axis.

        >>> x, w = np.arange(3.).reshape(1, 1, 3), np.ones((1, 1, 2))
        >>> convolution(x, w, None, [1], [0], [1], False, [0], 1)
        array([[[1., 3.]]])
        """,
    ),
    _Function(
        "convolution_backward",
        "backward",
        f"grad_output, input, weight, bias_sizes, {_ATEN}, output_mask, *, flip=False, "
        "backend='auto'",
        """
        Return the three gradients; arguments in the order of ``aten::convolution_backward``.

        >>> x, w, dy = np.ones((1, 1, 3)), np.ones((1, 1, 2)), np.ones((1, 1, 2))
        >>> convolution_backward(dy, x, w, [1], [1], [0], [1], False, [0], 1, [True, False, False])
        (array([[[1., 2., 1.]]]), None, None)
        """,
    ),
    _Function(
        "convolution_double_backward",
        "double_backward",
        "grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, weight, input, "
        f"{_ATEN}, output_mask, *, flip=False, backend='auto'",
        """
        Return the gradients of grad_output, input and weight through the backward pass.

        Arguments are in the order of ``aten::_convolution_double_backward`` (weight before input);
        the first three may be None.

        >>> one = np.ones((1, 1, 1))
        >>> convolution_double_backward(
        ...     one, None, None, 2 * one, 3 * one, 5 * one, 1, 0, 1, False, 0, 1, (True, True, True)
        ... )
        (array([[[3.]]]), array([[[0.]]]), array([[[2.]]]))
        """,
    ),
)


_TRANSPOSED = {
    "backward": """
        Return (grad_input, grad_weight, grad_bias) of `conv_transpose2d`.

        >>> dy, x, w = np.ones((1, 1, 3)), np.array([[[1., 2.]]]), np.array([[[1., 10.]]])
        >>> conv_transpose1d_backward(dy, x, w)
        (array([[[11., 11.]]]), array([[[3., 3.]]]), array([3.]))
        """,
    "jvp": """
        Return (output, output tangent): the forward-mode derivative of `conv_transpose2d`.

        >>> x, w = np.array([[[1., 2.]]]), np.array([[[1., 10.]]])
        >>> conv_transpose1d_jvp((x, w), (3 * x, None))[1]
        array([[[ 3., 36., 60.]]])
        """,
    "double_backward": """
        Return the gradients of grad_output, input and weight through `conv_transpose2d_backward`.

        >>> one = np.ones((1, 1, 1))
        >>> conv_transpose1d_double_backward(one, None, None, 2 * one, 3 * one, 5 * one)
        (array([[[5.]]]), array([[[0.]]]), array([[[2.]]]))
        """,
}
_FUNCTIONS += tuple(
    _Function(
        f"conv_transposeNd_{row.pass_}",
        row.pass_,
        row.signature.replace("transposed=False, ", ""),
        _TRANSPOSED[row.pass_],
    )
    for row in _FUNCTIONS
    if row.name.startswith("convNd_")
)


# Parameters that a docstring does not describe: as in `conv2d`, else as in its backward pass.
_KNOWN = entries(sections(_FUNCTIONS[2].text)["Parameters"])
_KNOWN |= entries(sections(_FUNCTIONS[0].text)["Parameters"])
_ANY_RANK = _KNOWN | entries(
    cleandoc("""
    grad_output : (N, K, *output) array
        Cotangent of the output; every size is checked.
    input : (N, C, *spatial) array
        NumPy array, torch tensor (any strides) or JAX array.
    weight : (K, C/G, *filter) array, or (C, K/G, *filter) when transposed
    bias : (K,) array or None
    stride, dilation, output_padding : int or tuple of int
        In elements; dilation 1 is dense.
    padding : int, tuple of int, (lo, hi) pairs or str
        As in `conv2d`.
    """)
)


def _public_function(row: _Function, rank: int) -> Callable[..., Any]:
    form = row.signature.replace("NCHW", f"NC{RANKS[rank]}") if rank else row.signature
    fixed = {"transposed": True} if "transpose" in row.name else {}
    known = _KNOWN if rank else _ANY_RANK
    return PassFunction(CONV, rank, row.pass_).with_signature(
        row.name, form, row.text, known=known, **fixed
    )


FUNCTIONS = names(
    _public_function(row, rank)
    for row in _FUNCTIONS
    for rank in (RANKS if "Nd" in row.name else (0,))
)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
