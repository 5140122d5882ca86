"""Sweeps over images, from which every norm is built.

Tensors of one shape are viewed, or copied, as (images, channels, pixels) with one stride each. A
step is BM pixels of one image and BN channels, and a program does some consecutive steps.
"""

from math import prod
from typing import Any, NamedTuple

import triton
import triton.language as tl

from convref.case import Call
from convref.ops import GroupNormProblem

from ..common import images
from ..common.geometry import LIMIT, Tensor, merge
from ..plan.archs import PER_SM, SMS
from ..plan.builder import Builder, dense, is_channels_last, slots, vector
from ..plan.launch import Launch
from ..plan.tile import Tile

RUNTIME = ["L", "C", "per", "steps", "total", "pieces", "groups", "width"]
RUNTIME += ["x_n", "x_l", "x_c", "v_n", "v_l", "v_c"]
# Pixels and channels of a step, where channels are contiguous and where pixels are.
LAST = (Tile(32, 64, 1, 4, 1), Tile(64, 32, 1, 4, 1), Tile(128, 16, 1, 4, 1))
FIRST = (Tile(1024, 1, 1, 4, 1), Tile(256, 4, 1, 4, 1), Tile(64, 16, 1, 4, 1))
SPLIT_STEPS = 4  # of a split at least


@triton.jit
def at_step(s, per, l_step, n_step, VEC: tl.constexpr, BM: tl.constexpr):
    """Return the first pixel of step s, and its offset."""
    n = s // per
    first = (s - n * per) * BM
    return first, n.to(tl.int64) * n_step * VEC[0] + first.to(tl.int64) * l_step


@triton.jit
def portion(steps, total, pieces):
    """Return (image, first step, end) of a program, which has one of the `pieces` of `total` steps.

    All images count as one where they share their statistics.
    """
    image = tl.program_id(0) // pieces
    begin = image * total + (tl.program_id(0) - image * pieces) * steps
    return image, begin, tl.minimum(begin + steps, (image + 1) * total)


@triton.jit
def tile_of(
    L, C, x_l, x_c, UNIT: tl.constexpr, VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    i, c = tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    L, C = L * VEC[1], C * VEC[2]
    return i, c, L, C, 1 if UNIT[0] else x_l * VEC[0], 1 if UNIT[1] else x_c * VEC[0]


class View(NamedTuple):
    """Tensors of one shape as (images, channels, pixels)."""

    n: int
    c: int
    l: int
    # Strides of (n, l, c) by role, counted in vectors where they are not the 1 of `unit`.
    steps: dict[str, tuple[int, ...]]
    # Whether pixels are contiguous in all tensors, and whether channels are.
    unit: tuple[bool, bool]
    vec: tuple[int, int, int]  # elements of a vector, and vectors of pixels and of channels
    # Images with statistics of their own; groups of each and channels of a group.
    sections: int = 1
    groups: int = 1
    width: int = 1


def view_of(
    builder: Builder, operands: list[Tensor], results: list[Tensor]
) -> tuple[View, list[Tensor]]:
    """Return tensors of one shape as a View, with copies of operands that do not fit it.

    Results are dense, in the order of axes of the first operand.
    """
    first, tensors = operands[0], [*operands, *results]
    apart = len({is_channels_last(tensor) for tensor in tensors}) > 1
    if merge(*tensors) is None or apart or any(map(_far, tensors)):
        order = images.order_like(first)
        tensors = [*(builder.copied(tensor, order) for tensor in operands), *results]
    found = merge(*tensors)
    assert found is not None  # dense tensors are one axis of pixels
    n, rank, pixels, strides = found
    problem = builder.call.problem
    count, length = (1, n) if rank == 0 else (n, pixels[2])
    sections = (1, 1, 1)
    if isinstance(problem, GroupNormProblem):
        count, length = first.shape[0], prod(first.shape[2:])
        sections = (count, problem.groups, first.shape[1] // problem.groups)
    steps = {
        tensor.role: (tensor.steps[0] if count > 1 else 0, strides[2 * k + 1], tensor.steps[1])
        for k, tensor in enumerate(tensors)
    }
    return _in_vectors(first.dtype, count, first.shape[1], length, steps, sections), tensors


def _in_vectors(
    dtype: str,
    n: int,
    c: int,
    length: int,
    steps: dict[str, tuple[int, ...]],
    sections: tuple[int, int, int],
) -> View:
    """Return the View of strides (n, l, c) by role, counted in vectors."""
    unit = tuple(all(s[axis] == 1 for s in steps.values()) for axis in (1, 2))
    unit = (unit[0] and (c == 1 or not unit[1]), unit[1] and c > 1)
    apart = [v for s in steps.values() for v, one in zip(s, (False, *unit)) if not one]
    vec = vector(dtype, *apart)
    steps = {
        role: tuple(v if one else v // vec for v, one in zip(s, (False, *unit)))
        for role, s in steps.items()
    }
    long = vector(dtype, length) if unit[0] else 1
    return View(n, c, length, steps, unit, (vec, long, vector(dtype, c)), *sections)


def _far(tensor: Tensor) -> bool:
    """Return whether a tile may span 2**31 elements; images of one pixel are pixels of a tile."""
    n, c, *spatial = map(abs, tensor.steps)
    rows = (*LAST, *FIRST)
    bm, bn = max(tile.bm for tile in rows), max(tile.bn for tile in rows)
    return max(bm * min(filter(None, spatial), default=n), bn * c) >= LIMIT


def vector_of(builder: Builder, role: str) -> Tensor | None:
    """Return an operand of one element a channel or a group, contiguous."""
    found = builder.tensors.get(role)
    order = tuple(range(len(found.shape))) if found else ()
    if found is None or found.strides == dense(found.shape, order) or prod(found.shape) < 2:
        return found
    return builder.copied(found, order)


def _steps(view: View, tile: Tile) -> tuple[int, int]:
    """Return the steps of one image, at least 1, and of all that share statistics."""
    per = max(-(-view.l // tile.bm), 1)
    return per, per if view.sections == view.n else per * view.n


def steps_of(view: View, tile: Tile) -> int:
    """Return the steps that share statistics."""
    return _steps(view, tile)[1]


def splits_of(view: View, tile: Tile) -> int:
    """Return the number of splits of a sum: as many as fill a GPU, none of them empty."""
    _, count = _steps(view, tile)
    wanted = max(SMS * PER_SM // (-(-view.c // tile.bn) * max(view.sections, 1)), 1)
    splits = max(min(wanted, count // SPLIT_STEPS), 1)
    return -(-count // -(-count // splits)) if count else 1


def programs_of(view: View, tile: Tile) -> int:
    """Return the number of programs that write a result: of four steps each if there are many."""
    _, count = _steps(view, tile)
    enough = 2 * SMS * PER_SM
    steps = max(min(count * view.sections * -(-view.c // tile.bn) // enough, 4), 1)
    return -(-count // steps)


def sweep_launch(
    kernel: Any,
    view: View,
    operands: dict[str, Tensor | None],  # by the kernel's names; None for those that are absent
    tile: Tile,  # pixels and channels of a step
    splits: int,  # parts into which the steps are cut
    along: tuple[Tensor, ...] = (),  # whose strides are x's, v's and y's
    call: Call | None = None,  # of a kernel that takes eps and the count
    **constants: Any,
) -> Launch:
    """Return the launch of a kernel that sweeps images, with more `constants`."""
    per, count = _steps(view, tile)
    numbers: dict[str, float] = {
        "L": view.l // view.vec[1],
        "C": view.c // view.vec[2],
        "per": per,
        "steps": -(-count // splits),
        "total": count,
        "pieces": splits,
        "groups": view.groups,
        "width": view.width,
    }
    tensors = along or (operands["x"],)
    for letter, tensor in zip("xvy", (*tensors, tensors[-1], tensors[-1])):
        steps = view.steps[tensor.role]
        numbers |= {f"{letter}_{axis}": step for axis, step in zip("nlc", steps)}
    if call is not None:
        numbers |= {"eps": call.problem.eps, "count": float(call.problem.count)}
        sums = operands.get("sums")
        numbers["apart"] = sums.shape[1] if sums else 0
    names = set(kernel.arg_names)
    given, absent = slots({name: t for name, t in operands.items() if name in names})
    constants |= {"UNIT": view.unit, "VEC": view.vec, "BM": tile.bm, "BN": tile.bn}
    return Launch(
        kernel,
        (splits * view.sections, -(-view.c // tile.bn), 1),
        given | {name: value for name, value in numbers.items() if name in names},
        absent | constants,
        tile.warps,
        tile.stages,
    )
