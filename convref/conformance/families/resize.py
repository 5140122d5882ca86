"""Resizes drawn from windows: three of four with a rule of PyTorch, the others any rule of ONNX."""

from math import floor, prod
from typing import Any

from ...ops import Problem, ResizeProblem
from ...ops.resize import NEAR
from ...ops.resize_axis import COORDINATES, MODES
from .tape import Tape
from .windows import Draft, image_sizes, output_sizes

# What PyTorch calls linear, nearest, nearest-exact, area; nearest of JAX and of ONNX; what PyTorch
# calls bicubic, and both with antialias.
COMMON: tuple[dict[str, Any], ...] = (
    {},
    {"coord": "align_corners"},
    {"mode": "nearest", "coord": "asymmetric"},
    {"mode": "nearest"},
    {"mode": "area"},
    {"mode": "nearest", "near": "round_prefer_ceil"},
    {"mode": "nearest", "coord": "asymmetric", "near": "floor"},
    {"mode": "cubic"},
    {"mode": "cubic", "coord": "align_corners"},
    {"antialias": True, "exclude": True},
    {"mode": "cubic", "antialias": True, "exclude": True, "a": -0.5},
)
EVERY_RANK = 7  # the first 7 exist in every library and rank; the others in 2D only
SCALES = (2.0, 0.5, 1.5, 3.0, 2.5, 0.7, 1.2, 0.3, 1.0, 4.0)
FRAMES = ((0.0, 1.0), (0.25, 0.75), (-0.5, 1.0), (0.0, 1.25), (1.0, 0.0))


def _resize(tape: Tape, op: str, draft: Draft, max_elements: int) -> Problem:
    image = image_sizes(op, draft)
    rank = len(image["input"])
    output = output_sizes(tape, image, max_elements)
    scale: tuple[float, ...] = ()
    if given := tape.decide(lambda: _given_scales(tape, rank), scale):
        scaled = tuple(max(1, floor(i * s)) for i, s in zip(image["input"], given))
        if max(1, image["n"] * image["c"]) * prod(scaled) <= max_elements:
            output, scale = scaled, given
    common = COMMON if rank == 2 else COMMON[:EVERY_RANK]
    rule = tape.often(tuple(range(len(common))))
    fields = tape.decide(
        lambda: _any_rule(tape, rank) if tape.chance(25) else common[rule], common[rule]
    )
    return ResizeProblem(**image, output=output, scale=scale, **fields)


def _given_scales(tape: Tape, rank: int) -> tuple[float, ...]:
    if not tape.chance(30):
        return ()
    if tape.base != "wild" and tape.chance(60):
        return (tape.choose(SCALES),) * rank
    return tuple(tape.choose(SCALES) for _ in range(rank))


def _any_rule(tape: Tape, rank: int) -> dict[str, Any]:
    mode, coord, near = tape.choose(MODES), tape.choose(tuple(COORDINATES)), tape.choose(NEAR)
    if mode == "nearest" and near == "float32":
        coord = "half_pixel"
    smooth = mode in ("linear", "cubic")
    cropped = coord == "tf_crop_and_resize"
    roi = tuple(tape.choose(FRAMES) for _ in range(rank)) if cropped else ()
    return {
        "mode": mode,
        "coord": coord,
        "near": near,
        "antialias": tape.chance(40) and smooth,
        "exclude": tape.chance(40),
        "a": tape.choose((-0.75, -0.5, -1.0)),
        "roi": roi,
        "extrapolation": tape.choose((0.0, -2.0, 10.0, 0.5)) if cropped else 0.0,
    }


DRAW = {"resize": _resize}
