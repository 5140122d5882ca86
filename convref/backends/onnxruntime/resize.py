"""ONNX's Resize as ONNX Runtime's CPU provider computes it, its positions in float32."""

from math import floor
from typing import Any

import numpy as np
from onnx import helper

from ...case import Call
from ...ops import ResizeAxis
from ...oracle import position_error

UNIT = 2.0**-24  # in which positions are rounded


def unsupported(call: Call) -> str | None:
    """Return why the node or its kernel does not support this call."""
    problem: Any = call.problem
    if problem.mode == "area":
        return "ONNX has no mode area"
    if problem.mode != "nearest" and problem.rank != 2:
        return "the CPU provider supports this mode only for 2d images"
    if problem.mode == "nearest" and problem.near == "float32":
        return "ONNX has no near=float32"
    if problem.antialias and problem.coord != "half_pixel":
        return "the adapter supports antialias only with half_pixel"
    if problem.antialias and problem.exclude and problem.mode == "linear":
        return "exclude_outside exists only for mode cubic"
    if problem.scale and problem.output != _scaled(problem):
        return "ONNX computes another output size from this scale"
    if problem.scale and problem.roi:
        return "ONNX has no scale together with roi"
    if any(map(_may_leave_image, problem.axes)):
        return "positions in float32 may round beyond the image"
    return None


def _scaled(problem: Any) -> tuple[int, ...]:
    scales = map(np.float32, problem.scale)
    return tuple(floor(size * scale) for size, scale in zip(problem.input, scales, strict=True))


def _may_leave_image(axis: ResizeAxis) -> bool:
    """Return whether rounding a position of a frame may move it beyond the image."""
    if axis.coord != "tf_crop_and_resize":
        return False
    positions = [(axis.position(p), position_error(axis, p, UNIT)) for p in range(axis.out)]
    parts = *(x.denominator for x, _ in positions), *axis.step.as_integer_ratio()
    if all(map(_is_power, map(abs, parts))):  # it divides by the inverse of the step
        return False
    return any(abs(x - end) <= off for x, off in positions for end in (0, axis.size - 1))


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def graph(call: Call) -> tuple[list[Any], dict[str, Any]]:
    """Return the node and its constants."""
    problem: Any = call.problem
    frame = problem.roi or ((0.0, 1.0),) * problem.rank
    constants = {
        "roi": np.array([0, 0, *(a for a, _ in frame), 1, 1, *(b for _, b in frame)], np.float32)
    }
    if problem.scale:
        constants["scales"] = np.array([1, 1, *problem.scale], np.float32)
    else:
        constants["sizes"] = np.array(problem.shape("y"), np.int64)
    node = helper.make_node(
        "Resize",
        ["x", "roi", *(name if name in constants else "" for name in ("scales", "sizes"))],
        ["_y"],
        mode=problem.mode,
        coordinate_transformation_mode=problem.coord,
        nearest_mode=problem.near if problem.mode == "nearest" else "floor",
        cubic_coeff_a=problem.a,
        exclude_outside=int(problem.exclude and problem.mode == "cubic"),
        antialias=int(problem.antialias),
        extrapolation_value=problem.extrapolation,
    )
    return [node], constants
