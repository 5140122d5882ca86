"""ATen's convolution, with the padding that ATen lacks and the edge rules around it."""

import warnings
from collections.abc import Callable
from functools import partial
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...case import Call


def stages(call: Call) -> int:
    """Return the most roundings of 16-bit values before the last rounding.

    Without oneDNN a scatter rounds its columns and then each tap it adds; a filter gradient
    rounds the sum after each sample; a JVP rounds both of its terms; a bias is added last.
    """
    problem = call.conv
    scattered = 1 + prod(axis.windows_per_position for axis in problem.axes)
    y, dx = (scattered, 0) if problem.transposed else (0, scattered)
    by_role = {
        "y": y + 1,
        "dx": dx,
        "dw": problem.n,
        "db": 0,
        "y_dot": 2 * y + 3,
        "ddy": 2 * y + 3,
    }
    return max((by_role[role] for role in call.wanted), default=0)


def _empty_results(call: Call, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the results where every sum of products is empty: zeros, and the bias or its sum."""
    given = dict(zip(call.roles, tensors))
    template = next(t for t in tensors if t is not None)

    def result(role: str) -> Tensor:
        if role == "db" and (dy := given["dy"]) is not None:
            return dy.sum(dim=(0, *range(2, dy.ndim)))
        zeros = template.new_zeros(call.problem.shape(role))
        added = given.get({"y": "b", "y_dot": "b_dot", "ddy": "ddb"}.get(role, ""))
        return zeros if added is None else zeros + added.reshape(-1, *(1,) * call.problem.rank)

    return call.results(result)


Convert = Callable[[Tensor], Tensor]


class Geometry:
    """A call's geometry for ATen: symmetric padding as its argument, any other by F.pad outside.

    `enter` and `leave` convert an input and its cotangent, `output` and `cotangent` the output and
    its: the padded side is the input, or the output when transposed.
    """

    def __init__(self, call: Call) -> None:
        problem = call.conv
        symmetric = all(lo == hi >= 0 for lo, hi in problem.padding)
        padding = [lo if symmetric else 0 for lo, _ in problem.padding]
        extra = list(problem.output_padding) if symmetric else [0] * problem.rank
        edges = [
            (lo, hi - extra) for (lo, hi), extra in zip(problem.padding, problem.output_padding)
        ]
        self.outside = [] if symmetric else [size for edge in reversed(edges) for size in edge]
        self.flips = tuple(range(2, 2 + problem.rank)) if problem.flip else ()
        self.transposed = problem.transposed
        stride, dilation = list(problem.stride), list(problem.dilation)
        # stride ... groups in ATen's order
        self.arguments = stride, padding, dilation, problem.transposed, extra, problem.groups
        wide = partial(padded, edges=self.outside)
        narrow = partial(padded, edges=[-size for size in self.outside])
        self.enter: Convert
        self.leave: Convert
        self.output: Convert
        self.cotangent: Convert
        self.enter, self.leave = (_identity, _identity) if self.transposed else (wide, narrow)
        self.output, self.cotangent = (narrow, wide) if self.transposed else (_identity, _identity)

    def filter(self, w: Tensor) -> Tensor:
        """Return the filter of a cross-correlation; its own inverse."""
        return torch.flip(w, self.flips) if self.flips else w


def _identity(tensor: Tensor) -> Tensor:
    return tensor


def padded(big: Tensor, edges: list[int], value: int = 0) -> Tensor:
    """Return `big` padded, then cropped: F.pad itself crops first and may run out of elements."""
    around = [max(0, size) for size in edges]
    grown = F.pad(big, around, value=value) if any(around) else big
    return F.pad(grown, [min(0, size) for size in edges]) if any(e < 0 for e in edges) else grown


def _convolution(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    extra: list[int],
    groups: int,
) -> Tensor:
    """Return aten::convolution, or for complex numbers the function that torch has above it."""
    if not x.is_complex():
        return torch.convolution(x, w, b, stride, padding, dilation, transposed, extra, groups)
    rank = x.ndim - 2
    if transposed:
        scatter = getattr(F, f"conv_transpose{rank}d")
        return scatter(x, w, b, stride, padding, extra, groups, dilation)
    return getattr(F, f"conv{rank}d")(x, w, b, stride, padding, dilation, groups)


def _forward(geometry: Geometry, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    x, w, arguments = geometry.enter(x), geometry.filter(w), geometry.arguments
    if not (geometry.transposed and geometry.outside):
        return _convolution(x, w, b, *arguments)
    y = geometry.output(_convolution(x, w, None, *arguments))
    return y if b is None else y + b.reshape(-1, *(1,) * (y.ndim - 2))  # outside padding has bias


def _fprop(call: Call, x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor | None, ...]:
    return (_forward(Geometry(call), x, w, b),)


def _backward(call: Call, dy: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
    geometry, mask = Geometry(call), call.mask
    dx, dw, db = torch.ops.aten.convolution_backward(
        geometry.cotangent(dy),
        geometry.enter(x),
        geometry.filter(w),
        [call.conv.k],
        *geometry.arguments,
        [*mask[:2], False],
    )
    if mask[2]:
        db = dy.sum(dim=(0, *range(2, dy.ndim)))
    return (
        geometry.leave(dx) if mask[0] else None,
        geometry.filter(dw) if mask[1] else None,
        db if mask[2] else None,
    )


def _jvp(call: Call, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    geometry = Geometry(call)
    x, w, b, x_dot, w_dot, b_dot = tensors
    assert x is not None
    assert w is not None
    y = _forward(geometry, x, w, b)
    terms = []
    if x_dot is not None:
        terms.append(_forward(geometry, x_dot, w, None))
    if w_dot is not None:
        terms.append(_forward(geometry, x, w_dot, None))
    if b_dot is not None:
        terms.append(torch.zeros_like(y) + b_dot.reshape(-1, *(1,) * call.conv.rank))
    return y, sum(terms[1:], terms[0]) if terms else torch.zeros_like(y)


def _forward_ad(call: Call, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return (y, y_dot) by PyTorch's own forward mode, which the court judges."""
    geometry, primals, tangents = Geometry(call), tensors[:3], tensors[3:]
    carried = [i for i, tangent in enumerate(tangents) if tangent is not None]

    def forward(*moved: Tensor) -> Tensor:
        given = list(primals)
        for i, tensor in zip(carried, moved):
            given[i] = tensor
        x, w, b = given
        assert x is not None
        assert w is not None
        return _forward(geometry, x, w, b)

    if not carried:
        return _jvp(call, *tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch scripts its own rules
        y, y_dot = torch.func.jvp(
            forward, tuple(primals[i] for i in carried), tuple(tangents[i] for i in carried)
        )
    return y, y_dot


def _double_backward(call: Call, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    geometry, mask = Geometry(call), call.mask
    ddx, ddw, ddb, dy, x, w = tensors
    assert dy is not None
    assert x is not None
    assert w is not None
    ddy, dx, dw = torch.ops.aten._convolution_double_backward(
        None if ddx is None else geometry.enter(ddx),
        None if ddw is None else geometry.filter(ddw),
        None if geometry.outside else ddb,  # outside padding has bias too
        geometry.cotangent(dy),
        geometry.filter(w),
        geometry.enter(x),
        *geometry.arguments,
        list(mask),
    )
    zeros = torch.zeros_like
    if mask[0]:
        ddy = zeros(dy) if ddy is None else geometry.output(ddy)
        if ddb is not None and geometry.outside:
            ddy = ddy + ddb.reshape(-1, *(1,) * (dy.ndim - 2))
    return (
        ddy if mask[0] else None,
        (zeros(x) if dx is None else geometry.leave(dx)) if mask[1] else None,
        (zeros(w) if dw is None else geometry.filter(dw)) if mask[2] else None,
    )


PASSES: dict[str, Callable[..., tuple[Tensor | None, ...]]] = {
    "fprop": _fprop,
    "backward": _backward,
    "jvp": _jvp,
    "double_backward": _double_backward,
}
RAW = {**PASSES, "jvp": _forward_ad}


def run(call: Call, rules: bool, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the results of a convolution, with convref's edge rules or as ATen has them."""
    problem = call.conv
    filled = problem.n and problem.c and problem.k and prod(problem.input)
    if rules and not filled:
        return _empty_results(call, *tensors)
    return (PASSES if rules else RAW)[call.pass_](call, *tensors)
