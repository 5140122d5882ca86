"""ATen's upsampling as `torch.nn.functional.interpolate` calls it, derivatives by autograd."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ... import dtypes
from ...case import Call, memory
from ...ops.resize_axis import entries
from .autograd import Results, derive

OPS = ("resize",)
_LINEAR = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}
_NEAREST = {"asymmetric": "upsample_nearest{}d", "half_pixel": "_upsample_nearest_exact{}d"}
_ANTIALIAS = {"linear": "_upsample_bilinear2d_aa", "cubic": "_upsample_bicubic2d_aa"}
_A = {False: -0.75, True: -0.5}  # the cubic, without and with antialias


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why ATen has no kernel for the call."""
    problem: Any = call.problem
    known = dtypes.REAL[2:] if problem.antialias else dtypes.REAL
    whole = problem.mode == "nearest" or (problem.rank == 2 and problem.mode != "area")
    if call.dtype not in known and not (call.pass_ == "fprop" and call.dtype == "u8" and whole):
        return f"ATen has no {problem.mode} kernel of {call.pass_} for {call.dtype}"
    reason = _MODES[problem.mode](problem)
    if not reason and not rules and not problem.c:
        return "ATen has no kernel for images with 0 channels"
    if reason or not rules:
        return reason
    if problem.antialias and problem.coord == "align_corners":
        return "ATen's antialias does not support align_corners correctly"
    if _ignores_scale(call):
        return "ATen ignores a scale if the ratio of the sizes is 1, or 2 in mode nearest"
    fits = call.least_memory(oracle=False) <= memory.available()  # else the table does not either
    if problem.mode == "nearest" and fits and _rounds_across(problem):
        return "ATen's kernels round nearest positions differently"
    kernel_of_bytes = call.dtype == "u8" and problem.mode != "nearest"
    if (problem.antialias or kernel_of_bytes) and problem.output[1] == 1:
        return "ATen's antialias, which also computes uint8, is wrong for an output of one column"
    return None


def _ignores_scale(call: Call) -> bool:
    """Return whether some of ATen's kernels of this pass ignore the given scale."""
    problem: Any = call.problem
    rows = zip(problem.scale, problem.input, problem.output)
    given = {out / size for scale, size, out in rows if scale != out / size}
    return not given.isdisjoint(_ignored(call, problem, call.pass_ == "backward"))


def _ignored(call: Call, problem: Any, backward: bool) -> tuple[int, ...]:
    """Return the ratios of sizes that kernels take for the scale of an axis."""
    if problem.mode == "nearest":  # nearest-exact has half_pixel; forward of rank 1 one kernel
        always = problem.coord == "half_pixel" or (problem.rank == 1 and not backward)
        return () if always else (1, 2)
    if problem.antialias:
        return () if backward else (1,)
    if problem.mode == "cubic" and call.dtype != "u8":
        return (1,) if backward and problem.input == problem.output else ()
    return (1,)


def _rounds_across(problem: Any) -> bool:
    """Return whether positions in float32 round to other elements than exact ones."""
    near = "floor" if problem.coord == "asymmetric" else "round_prefer_ceil"
    exact = (axis._replace(near=near) for axis in problem.axes)
    pairs = (map(entries, axes) for axes in zip(problem.axes, exact))
    return any((own.position != rounded.position).any() for own, rounded in pairs)


def _nearest(problem: Any) -> str | None:
    return (
        None if problem.near == "float32" else "ATen supports mode nearest only with near=float32"
    )


def _smooth(problem: Any) -> str | None:
    if problem.coord not in ("half_pixel", "align_corners"):
        return f"ATen does not support coord={problem.coord}"
    if problem.antialias != problem.exclude:
        return "ATen supports exclude only together with antialias"
    if problem.antialias and problem.rank != 2:
        return "ATen supports antialias only in rank 2"
    if problem.mode == "cubic" and problem.rank != 2:
        return "ATen supports mode cubic only in rank 2"
    if problem.mode == "cubic" and problem.a != _A[problem.antialias]:
        return f"ATen supports mode cubic only with a = {_A[problem.antialias]}"
    return None


_MODES = {"nearest": _nearest, "area": lambda problem: None, "linear": _smooth, "cubic": _smooth}


def run(call: Call, rules: bool, *tensors: Tensor) -> Results:
    """Return the results by role."""
    problem = call.problem
    if rules and not problem.n * problem.c:
        return (tensors[0].new_zeros(problem.shape(call.wanted[0])),)
    if rules:
        tensors = tuple(t.contiguous() for t in tensors)
    return derive(call, lambda x: forward(problem, x), *tensors)


def stages(call: Call) -> int:
    """Return the most roundings of 16-bit values before the last rounding.

    A scatter rounds each product and each addition; so does a mean, along each axis.
    """
    scattered = call.pass_ == "backward" or call.problem.mode == "area"
    return call.problem.products("dx") + 1 if scattered else 0


def weights(call: Call) -> float:
    """Return the unit roundoff of the weights, which ATen stores in the type of the data."""
    return dtypes.number(call.dtype).u if call.dtype in dtypes.SIXTEEN else 0.0


def forward(problem: Any, x: Tensor) -> Tensor:
    """Return the resized image, as torch computes it."""
    if problem.mode == "area":
        return getattr(F, f"adaptive_avg_pool{problem.rank}d")(x, list(problem.output))
    name, arguments = kernel(problem)
    return getattr(torch.ops.aten, name).default(x, list(problem.output), *arguments)


def kernel(problem: Any) -> tuple[str, tuple[Any, ...]]:
    """Return the name of ATen's kernel and its arguments after the sizes."""
    scales = problem.scale or (None,) * problem.rank
    if problem.mode == "nearest":
        return _NEAREST[problem.coord].format(problem.rank), scales
    if problem.antialias:
        name = _ANTIALIAS[problem.mode]
    else:
        name = "upsample_bicubic2d" if problem.mode == "cubic" else _LINEAR[problem.rank]
    return name, (problem.coord == "align_corners", *scales)
