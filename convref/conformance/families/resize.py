"""Resizes drawn from windows: mostly as libraries have them, sometimes as ONNX might ask."""

from __future__ import annotations

from dataclasses import replace
from math import floor, prod
from typing import Any

from ...ops import Problem, ResizeProblem
from ...ops.resize import NEAR
from ...ops.sampling import COORDINATES, MODES
from .pool import _image, _outputs

# What PyTorch calls linear, nearest, nearest-exact, area, bicubic, and both with antialias.
COMMON: tuple[dict[str, Any], ...] = (
    {},
    {"coord": "align_corners"},
    {"mode": "nearest", "coord": "asymmetric"},
    {"mode": "nearest"},
    {"mode": "area"},
    {"mode": "cubic"},
    {"mode": "cubic", "coord": "align_corners"},
    {"antialias": True, "exclude": True},
    {"mode": "cubic", "antialias": True, "exclude": True, "a": -0.5},
)
FLAT = 5  # of these have every rank in every library; the rest is of images
SCALES = (2.0, 0.5, 1.5, 3.0, 2.5, 0.7, 1.2, 0.3, 1.0, 4.0)
FRAMES = ((0.0, 1.0), (0.25, 0.75), (-0.5, 1.0), (0.0, 1.25), (1.0, 0.0))


def _resize(tape: Any, sizes: dict[str, Any], max_elements: int) -> Problem:
    image = _image(sizes)
    rank = len(image["input"])
    output, scale = _outputs(tape, image, max_elements), ()
    given = tuple(tape.choose(SCALES) for _ in range(rank))
    if tape.chance(30):
        scaled = tuple(max(1, floor(i * s)) for i, s in zip(image["input"], given))
        if max(1, image["n"] * image["c"]) * prod(scaled) <= max_elements:
            output, scale = scaled, given
    common = COMMON if rank == 2 else COMMON[:FLAT]
    rule = tape.choose(common) if not tape.chance(25) else _unusual(tape, rank)
    return ResizeProblem(**image, output=output, scale=scale, **rule)


def _unusual(tape: Any, rank: int) -> dict[str, Any]:
    """Return any rule that is one."""
    mode, coord, near = tape.choose(MODES), tape.choose(tuple(COORDINATES)), tape.choose(NEAR)
    if mode == "nearest" and near == "float32":
        coord = "half_pixel"
    smooth = mode in ("linear", "cubic")
    roi = tuple(tape.choose(FRAMES) for _ in range(rank)) if coord == "tf_crop_and_resize" else ()
    return {
        "mode": mode,
        "coord": coord,
        "near": near,
        "antialias": tape.chance(40) and smooth,
        "exclude": tape.chance(40),
        "a": tape.choose((-0.75, -0.5, -1.0)),
        "roi": roi,
    }


def _copying(problem: ResizeProblem, dtype: str) -> Problem:
    """Return the problem in mode nearest, the one that integers have."""
    near = problem.near if problem.near != "float32" else "floor"
    return replace(problem, mode="nearest", near=near, antialias=False)


FINISH = {"resize": _resize}
FITTED = {"resize": _copying}
