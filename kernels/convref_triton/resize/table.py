"""Resizing by a table: the positions and the weights that each result reads, from the host.

y[n, c, p]  = sum over the taps of p along each axis of weight[p, tap] x[n, c, position[p, tap]]

The adjoint is the same kernel with the table of the transposed matrix: which outputs read a
position. A tap that a result lacks has the weight 0 and is not read.
"""

from math import prod

import numpy as np
import triton
import triton.language as tl

from convref.case import Call
from convref.ops import ResizeAxis
from convref.ops.resize_axis import columns, entries
from convref.oracle.resize import rounded

from ..common import images
from ..common.geometry import Tensor
from ..common.images import in_elements, lanes, offsets
from ..common.index import divisors
from ..common.windows import MAGIC
from ..plan.builder import Builder, slot, vector
from ..plan.launch import Launch
from ..plan.tile import Tile

STEPS = "x_n x_d x_h x_w x_c y_n y_d y_h y_w y_c"
RUNTIME = f"M O P Q C taps_d taps_h taps_w from_h from_w {MAGIC} {STEPS}".split()


@triton.jit
def along_w(base, lists, here, weight, q, line, x_steps, acc):
    """Return `acc` and the taps along w, which begin at `here` and are multiplied by `weight`."""
    positions, weights, real, known = lists
    begin, results, taps = line
    for w in range(taps):
        at = begin + w * results + q
        there = here + tl.load(positions + at, real, other=0) * x_steps[3]
        share = weight * tl.load(weights + at, real, other=0.0)
        inside = (share != 0)[:, None] & known  # 0 * inf is NaN
        value = tl.load(base + there[:, None], inside, other=0.0).to(tl.float32)
        acc += value * share[:, None]
    return acc


@triton.jit
def along_h(base, lists, here, weight, place, plane, line, x_steps, acc):
    positions, weights, real, _ = lists
    begin, results, taps = plane
    for h in range(taps):
        at = begin + h * results + place[1]
        there = here + tl.load(positions + at, real, other=0) * x_steps[2]
        share = weight * tl.load(weights + at, real, other=0.0)
        acc = along_w(base, lists, there, share, place[2], line, x_steps, acc)
    return acc


@triton.jit(do_not_specialize=RUNTIME)
def resize_table_kernel(
    x, positions, weights, y, M, O, P, Q, C, taps_d, taps_h, taps_w, from_h, from_w,
    o_magic, o_shift, p_magic, p_shift, q_magic, q_shift,
    x_n, x_d, x_h, x_w, x_c, y_n, y_d, y_h, y_w, y_c, RANK: tl.constexpr,
    UNIT: tl.constexpr, VEC: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute BM results of BN channels; tap t of result p is entry t * results + p of its axis."""
    image_x, image_y = x_n.to(tl.int64) * VEC[0], y_n.to(tl.int64) * VEC[1]
    x_steps = in_elements(x_n, x_d, x_h, x_w, x_c, UNIT[0], VEC[0], WIDE)
    y_steps = in_elements(y_n, y_d, y_h, y_w, y_c, UNIT[1], VEC[1], WIDE)
    magic = (o_magic, o_shift, p_magic, p_shift, q_magic, q_shift)
    c, n, place, top, real, known = lanes(M, (O, P, Q), magic, C * VEC[2], RANK, BM, BN)
    base = x + top * image_x + offsets(c, n, (n * 0, n * 0, n * 0), x_steps)
    lists = (positions, weights, real, known)
    whole = tl.full((BM,), 1.0, tl.float32)
    line, plane = (from_w, Q, taps_w), (from_h, P, taps_h)
    acc = tl.zeros((BM, BN), tl.float32)
    if RANK == 1:
        acc = along_w(base, lists, n * 0, whole, place[2], line, x_steps, acc)
    elif RANK == 2:
        acc = along_h(base, lists, n * 0, whole, place, plane, line, x_steps, acc)
    else:
        for d in range(taps_d):
            at = d * O + place[0]
            here = tl.load(positions + at, real, other=0) * x_steps[1]  # (BM,)
            weight = tl.load(weights + at, real, other=0.0)
            acc = along_h(base, lists, here, weight, place, plane, line, x_steps, acc)
    to = y + top * image_y + offsets(c, n, place, y_steps)
    tl.store(to, acc.to(y.dtype.element_ty), real[:, None] & known)


def tabulated(axis: ResizeAxis, back: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and weights (taps, results) of an axis, at least one tap."""
    listed = (columns if back else entries)(axis)
    rank = listed.rank
    shape = 1 + int(rank.max(initial=0)), listed.outputs
    positions, weights = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    positions[rank, listed.output] = listed.position
    weights[rank, listed.output] = rounded(listed, np.dtype(np.float32))
    return positions, weights


def table_launch(builder: Builder, call: Call, source: Tensor, made: Tensor, tile: Tile) -> Launch:
    problem, back = call.problem, call.pass_ == "backward"
    own = images.three(problem.input if back else problem.output)
    none = np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    axes = [none] * (3 - problem.rank) + [tabulated(axis, back) for axis in problem.axes]
    positions, weights = (np.concatenate([a[i].ravel() for a in axes]) for i in (0, 1))
    (x_vec, x_steps), (y_vec, y_steps) = (images.moves(t, call.dtype) for t in (source, made))
    vec = x_vec, y_vec, vector(call.dtype, problem.c)
    rows = problem.n * prod(own)
    begins = np.cumsum([a[0].size for a in axes]).tolist()
    numbers = (rows, *own, problem.c // vec[2], *(len(a[0]) for a in axes), *begins[:2])
    numbers += (*divisors(own), *x_steps, *y_steps)
    tables = builder.table("positions", positions, "i32"), builder.table("weights", weights, "f32")
    return Launch(
        resize_table_kernel,
        (-(-rows // tile.bm) * -(-problem.c // tile.bn), 1, 1),
        {"x": slot(source), **dict(zip(("positions", "weights"), tables)), "y": slot(made)}
        | dict(zip(RUNTIME, numbers)),
        {
            "RANK": problem.rank,
            "UNIT": (x_steps[-1] == 1, y_steps[-1] == 1),
            "VEC": vec,
            "WIDE": images.is_wide((source, made), tile.bm, prod(own)),
            "BM": tile.bm,
            "BN": tile.bn,
        },
        tile.warps,
        tile.stages,
    )
