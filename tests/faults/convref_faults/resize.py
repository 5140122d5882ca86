"""Wrong resizes: positions rounded elsewhere, kernels cut or not stretched, edges forgotten."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from convref.case import Call
from convref.conformance.mutations import Array, Operands, Results, Wrong, on_problem
from convref.dtypes import rounded
from convref.ops import ResizeAxis
from convref.ops.resize_axis import Entries, Row, columns, entries, reads, rows, table_entries
from convref.oracle.resize import weighted

from .base import Fault, writing
from .base import reading as changing

Rows = Callable[[ResizeAxis], tuple[Row, ...]]


ResizeFault = partial(Fault, ops=("resize",))
PixelFault = partial(Fault, ops=("pixel_shuffle", "pixel_unshuffle"))


def reading(table: Rows) -> Wrong:
    """Return a kernel whose outputs read what `table` lists; backward is its adjoint."""

    @cache
    def forward(axis: ResizeAxis) -> Entries:
        return table_entries(table(axis), axis.size)

    def backward(axis: ResizeAxis) -> Entries:
        return forward(axis).transposed()

    def wrong(call: Call, operands: Operands) -> Results:
        (operand,) = operands
        assert operand is not None
        found = weighted(
            operand.astype(np.float64),
            call.problem.axes,
            backward if call.pass_ == "backward" else forward,
        )
        return (rounded(found, call.dtype),)

    return wrong


def solving(**changes: Any) -> Wrong:
    """Return a kernel that solves the problem with other fields."""
    return on_problem(lambda problem: replace(problem, **changes))


@cache
def _dropped_edges(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return rows without the elements beyond the image."""
    return tuple(tuple((j, w) for j, w in row if 0 <= j < axis.size) for row in reads(axis))


@cache
def _wrapped_edges(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return rows in which elements beyond one end are read at the other."""
    return tuple(tuple((j % axis.size, w) for j, w in row) for row in reads(axis))


@cache
def _not_normalised(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return rows of weights that were not divided by their sum, but by the stretch."""
    found = []
    for p, row in enumerate(reads(axis)):
        x = axis.position(p)
        pairs = [(j, axis.kernel((j - x) / axis.stretch) / axis.stretch) for j, _ in row]
        found.append(tuple((j, w) for j, w in pairs if w and 0 <= j < axis.size))
    return tuple(found)


@cache
def _cut_support(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return rows of a stretched kernel that ends where the plain one would."""
    found = []
    for p, row in enumerate(rows(axis)):
        kept = [(i, w) for i, w in row if abs(i - axis.position(p)) <= axis.radius]
        total = sum((w for _, w in kept), Fraction(0))
        found.append(tuple((i, w / total) for i, w in kept) if total else row)
    return tuple(found)


@cache
def _strided_area(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return rows of windows of in // out elements, one after another."""
    width = max(1, axis.size // axis.out)
    starts = (min(p * width, axis.size - width) for p in range(axis.out))
    return tuple(tuple((s + k, Fraction(1, width)) for k in range(width)) for s in starts)


@cache
def _to_the_first(axis: ResizeAxis) -> tuple[Row, ...]:
    """Return rows with the whole weight on the first neighbour."""
    return tuple(((row[0][0], Fraction(1)),) if row else () for row in rows(axis))


def _depth_first(x: Array, call: Call, role: str) -> Array:
    """Return the channels of an input that has them in the order (r, r, C)."""
    order = np.arange(x.shape[1]).reshape(call.problem.factor**2, -1)
    return x[:, order.T.ravel()]


def _columns_first(y: Array, call: Call, role: str) -> Array:
    """Return the channels of an output in the order (C, columns, rows)."""
    r = call.problem.factor
    order = np.arange(y.shape[1]).reshape(-1, r, r)
    return y[:, order.swapaxes(1, 2).ravel()]


def _turned_scales(call: Call, operands: Operands) -> Results:
    problem = call.problem
    axes = tuple(
        axis._replace(scale=scale)
        for axis, scale in zip(problem.axes, reversed(problem.scale), strict=True)
    )
    (operand,) = operands
    assert operand is not None
    table = columns if call.pass_ == "backward" else entries
    return (rounded(weighted(operand.astype(np.float64), axes, table), call.dtype),)


def _mode(*modes: str) -> Callable[[Call], bool]:
    return lambda call: call.problem.mode in modes


def _reads_at_edge(call: Call) -> bool:
    """Return whether a kernel may reach beyond the image and is read at its edge there."""
    problem = call.problem
    smooth = problem.mode in ("linear", "cubic") and not (problem.antialias or problem.exclude)
    return smooth and problem.coord == "half_pixel"


def _shrinks(call: Call) -> bool:
    return call.problem.antialias and any(axis.step > 1 for axis in call.problem.axes)


ROWS = (
    ResizeFault(
        "half_pixel_forgotten",
        "positions p / scale where (p + 1/2) / scale - 1/2 was asked for",
        "resize.fprop:n1c1_i2_o1:fill=ramp",
        lambda call: _mode("linear", "cubic")(call) and call.problem.coord == "half_pixel",
        solving(coord="asymmetric"),
    ),
    ResizeFault(
        "corners_of_one",
        "align_corners divides by out - 1, and takes the middle where that is 0",
        "resize.fprop:n1c1_i2_o1:coord=align_corners:fill=ramp",
        lambda call: call.problem.coord == "align_corners" and 1 in call.problem.output,
        solving(coord="tf_crop_and_resize"),
    ),
    ResizeFault(
        "antialias_ignored",
        "onnxruntime#25264: the kernel is not stretched where the image shrinks",
        "resize.fprop:n1c1_i3_o1:aa=1",
        _shrinks,
        solving(antialias=False),
    ),
    ResizeFault(
        "antialias_support_cut",
        "the stretched kernel ends at the radius of the plain one",
        "resize.fprop:n1c1_i4_o1:aa=1",
        _shrinks,
        reading(_cut_support),
    ),
    ResizeFault(
        "antialias_not_normalised",
        "weights of a stretched kernel divided by the stretch instead of by their sum",
        "resize.fprop:n1c1_i2_o1:aa=1:xo=1:fill=ones",
        _shrinks,
        reading(_not_normalised),
    ),
    ResizeFault(
        "clamp_missing",
        "iree#24264: a neighbour beyond the image is not clamped to its edge",
        "resize.fprop:n1c1_i1_o2:fill=ones",
        _reads_at_edge,
        reading(_dropped_edges),
    ),
    ResizeFault(
        "last_neighbour_wraps",
        "the neighbour after the last is the first",
        "resize.fprop:n1c1_i2_o4:fill=ramp",
        _reads_at_edge,
        reading(_wrapped_edges),
    ),
    ResizeFault(
        "cubic_of_another_library",
        "the cubic kernel with a = -1/2 where -3/4 was asked for",
        "resize.jvp:n1c1_i4_o1:mode=cubic",
        lambda call: call.problem.mode == "cubic" and call.problem.a != -0.5,
        solving(a=-0.5),
    ),
    ResizeFault(
        "area_as_strided_mean",
        "torch-mojo-backend: windows of in // out elements, which leave a rest",
        "resize.jvp:n1c1_i11_o2:mode=area",
        _mode("area"),
        reading(_strided_area),
    ),
    ResizeFault(
        "backward_to_one_neighbour",
        "the cotangent goes to the first neighbour alone, as if mode were nearest",
        "resize.backward:n1c1_i2_o1:fill=ones",
        lambda call: _mode("linear", "area")(call) and call.pass_ == "backward",
        reading(_to_the_first),
    ),
    ResizeFault(
        "scales_swapped",
        "the scale of the rows taken for the columns, and the other way round",
        "resize.fprop:n1c1_i1x2_o1x1:scale=1x0.5:fill=ramp",
        lambda call: len(set(call.problem.scale)) > 1,
        _turned_scales,
    ),
    ResizeFault(
        "scale_recomputed",
        "ncnn#6836: the ratio of the rounded sizes where a scale was given",
        "resize.jvp:n1c1_i2_o1:scale=2.5",
        lambda call: bool(call.problem.scale),
        solving(scale=()),
    ),
    ResizeFault(
        "halves_rounded_up",
        "round_prefer_floor takes the upper of two neighbours as near",
        "resize.jvp:n1c1_i6_o1:mode=nearest:near=round_prefer_floor",
        lambda call: _mode("nearest")(call) and call.problem.near == "round_prefer_floor",
        solving(near="round_prefer_ceil"),
    ),
    ResizeFault(
        "symmetry_forgotten",
        "half_pixel_symmetric without its shift",
        "resize.fprop:n1c1_i3_o2:coord=half_pixel_symmetric:scale=0.7:fill=ramp",
        lambda call: (
            call.problem.coord == "half_pixel_symmetric" and _mode("linear", "cubic")(call)
        ),
        solving(coord="half_pixel"),
    ),
)
OTHERS = (
    PixelFault(
        "pixel_shuffle_depth_first",
        "DepthToSpace with mode DCR, the default of ONNX, where CRD was asked for",
        "pixel_shuffle.fprop:n1c8_i1x1:fill=ramp",
        lambda call: call.op == "pixel_shuffle" and call.pass_ == "fprop",
        changing("x", _depth_first),
    ),
    PixelFault(
        "pixel_unshuffle_columns_first",
        "the columns of a block before its rows",
        "pixel_unshuffle.fprop:n1c1_i2x2:fill=ramp",
        lambda call: call.op == "pixel_unshuffle" and call.pass_ == "fprop",
        writing("y", _columns_first),
        ops=("pixel_unshuffle",),
    ),
)
