"""Wrong samples: weights, slopes and coordinates exchanged, edges forgotten, filters reversed."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from convref.case import Call
from convref.conformance.mutations import Array, on_problem
from convref.ops import GROUPS, Problem
from convref.oracle import _taps, deform, sample
from convref.oracle._taps import KERNELS

from .base import Fault, with_functions

SampleFault = partial(Fault, ops=GROUPS["sample"])
_padded, _outer = _taps.padded, _taps._outer
_by_bin, _offset_positions = sample.by_bin, deform.offset_positions
_weight = deform._Layout.weight


def _grid(passes: tuple[str, ...] = (), **fields: Any) -> Callable[[Call], bool]:
    return lambda call: (
        call.op == "grid_sample"
        and (not passes or call.pass_ in passes)
        and all(getattr(call.problem, name) == value for name, value in fields.items())
    )


def _exchanged(x: Array) -> tuple[Array, tuple[Array, ...]]:
    low, weights = KERNELS["bilinear"](x)
    return low, tuple(w[::-1] for w in weights)


def _without_turn(x: Array, *rule: Any) -> tuple[Array, Array]:
    found, slope = _padded(x, *rule)
    return found, abs(slope)


def _slope_of_clipped(x: Array, *rule: Any) -> tuple[Array, Array]:
    return _padded(x, *rule)[0], _taps.reflected(x, *rule)[1]


def _in_order_of_axes(coordinates: list[Array], problem: Problem) -> Array:
    return np.stack(coordinates, -1).reshape(problem.shape("grid"))


def _negated(offset: Array, problem: Problem, axis: int) -> Array:
    return _offset_positions(-offset, problem, axis)


ROWS = (
    SampleFault(
        "bilinear_weights_exchanged",
        "the weight of the near element for the far one",
        "grid_sample.backward:n1c1_i1x1_o1x1:mask=10",
        _grid(mode="bilinear"),
        with_functions(_taps, KERNELS={**KERNELS, "bilinear": _exchanged}),
    ),
    SampleFault(
        "reflection_without_turn",
        "a reflected position moves against its coordinate",
        "grid_sample.jvp:n1c1_i1x2_o1x1:pad=reflection:seed=737",
        _grid(("backward", "jvp", "double_backward"), padding_mode="reflection"),
        with_functions(_taps, padded=_without_turn),
    ),
    SampleFault(
        "gradient_of_clipped_positions",
        "positions beyond the border have the slope of those inside",
        "grid_sample.jvp:n1c1_i1x1_o1x1:pad=border:fill=ones",
        _grid(("backward", "jvp", "double_backward"), padding_mode="border"),
        with_functions(_taps, padded=_slope_of_clipped),
    ),
    SampleFault(
        "outer_cubic_without_second_derivative",
        "second derivatives of the two inner elements alone",
        "grid_sample.double_backward:n1c1_i2x1_o1x1:mode=bicubic:mask=001:fill=ones",
        _grid(("double_backward",), mode="bicubic"),
        with_functions(_taps, _outer=lambda t: (*_outer(t)[:2], 0 * t)),
    ),
    SampleFault(
        "gradient_by_position",
        "the derivative by the position for that by the coordinate",
        "grid_sample.backward:n1c1_i1x1_o1x1:mask=01:fill=ones",
        _grid(("backward", "jvp", "double_backward")),
        with_functions(sample, grid_scale=lambda problem, axis: Fraction(1)),
    ),
    SampleFault(
        "coordinates_in_order_of_axes",
        "the gradient of (x, y) written as (y, x)",
        "grid_sample.backward:n1c1_i1x1_o1x1:mask=01",
        _grid(("backward", "double_backward")),
        with_functions(sample, _as_grid=_in_order_of_axes),
    ),
    SampleFault(
        "corners_never_aligned",
        "align_corners ignored",
        "grid_sample.backward:n1c1_i1x1_o1x1:align=1:mask=10:fill=ones",
        _grid(align_corners=True),
        on_problem(lambda problem: replace(problem, align_corners=False)),
    ),
    SampleFault(
        "offsets_negated",
        "taps moved against their offsets",
        "deform_conv.backward:n1c1_i1x2_f1x1:mask=01000:fill=ones",
        lambda call: call.op == "deform_conv",
        with_functions(deform, offset_positions=_negated),
    ),
    SampleFault(
        "filters_reversed",
        "the gradient of the last filter for the first",
        "deform_conv.backward:n1c1_i1x1_f1x1:ko=2:mask=00100:seed=11",
        lambda call: call.op == "deform_conv" and call.pass_ in ("backward", "double_backward"),
        with_functions(deform._Layout, weight=lambda *operands: _weight(*operands)[::-1]),
    ),
    SampleFault(
        "bins_of_other_boxes",
        "the bins of the last box for those of the first",
        "roi_align.jvp:n1c1_i1x1_o1x1:boxes=2:fill=ones:seed=1",
        lambda call: call.op == "roi_align",
        with_functions(sample, by_bin=lambda found, out: _by_bin(found, out)[:, ::-1]),
    ),
)
