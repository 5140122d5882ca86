"""The mean and the variance of channels, or of groups of channels of each image.

mean[c], M2[c]  = mean and sum of squares about it over n and i of x[n, c, i],  var = M2 / m

Each lane of a split updates (mean, M2) by its values in turn (Welford); lanes, then splits are
merged in a fixed order (Chan). So results repeat bit for bit, and no difference of large sums is
taken. For group norm, the splits of all channels of a group are merged.
"""

import triton
import triton.language as tl

from convref.case import Call

from ..common.geometry import Tensor
from ..plan.builder import NEW, Builder, slot, slots
from ..plan.launch import Buffer, Launch
from ..plan.tile import Tile
from .sweep import RUNTIME, View, at_step, portion, splits_of, sweep_launch, tile_of

NUMBERS = ["splits", "channels", "count", "eps", "share", "unbiased"]
GROUP_NUMBERS = ["pieces", "channels", "width", "count", "eps"]
# Splits and channels that one program merges at a time. With many splits, a turn for every 16 of
# them would each wait for its loads.
FEW, MANY = Tile(16, 64, 1, 4, 1), Tile(128, 16, 1, 8, 1)
LANES = Tile(1, 256, 1, 4, 1)  # splits of channels of a group that one program merges at a time
PARTS = Tensor("parts", (1,), (1,), "f32")


@triton.jit
def merged(mean, m2, count, mean_2, m2_2, count_2):
    total = count + count_2
    share = tl.where(total > 0, count_2 / total, 0.0)
    apart = mean_2 - mean
    return mean + apart * share, m2 + m2_2 + apart * apart * count * share, total


@triton.jit
def moments(
    x, i, known, L, per, x_n, x_l, x_c, begin, end,
    VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Return (mean, M2, count) of BN channels over some steps.

    Values are taken relative to the first one of their channel, so that means of lanes are not
    rounded to the distance of numbers as large as the channel's mean.
    """
    known = known[None, :]
    x += tl.program_id(1).to(tl.int64) * BN * x_c
    row = (tl.arange(0, BN) * x_c)[None, :]
    tile = (i * x_l)[:, None] + row
    _, far = at_step(begin, per, x_l, x_n, VEC, BM)
    base = tl.load(x + far + row, known & (begin < end), other=0.0).to(tl.float32)
    mean, m2 = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    whole = tl.zeros((), tl.int32)  # steps in which every lane had a value
    short = i < (L - (per - 1) * BM)  # lanes that have one in an image's last step too
    for s in range(begin, end):
        first, far = at_step(s, per, x_l, x_n, VEC, BM)
        on = (first + i < L)[:, None] & known
        value = tl.load(x + far + tile, on, other=0.0).to(tl.float32) - base
        whole += (first + BM <= L).to(tl.int32)
        share = tl.where(short, 1.0 / (s - begin + 1), 1.0 / tl.maximum(whole, 1))
        off = tl.where(on, value - mean, 0.0)
        mean += off * share[:, None]
        m2 += tl.where(on, off * (value - mean), 0.0)
    count = tl.where(short, tl.maximum(end - begin, 0), whole).to(tl.float32)
    count = count[:, None] + tl.zeros((BM, BN), tl.float32)
    mean, m2, count = tl.reduce((mean, m2, count), 0, merged)
    return mean + tl.reshape(base, (BN,)), m2, count


@triton.jit(do_not_specialize=RUNTIME)
def norm_moments_kernel(
    x, parts, L, C, per, steps, total, pieces, groups, width, x_n, x_l, x_c, v_n, v_l, v_c,
    UNIT: tl.constexpr, VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Store (mean, M2, count) of BN channels over a split: parts (splits, 3, C)."""
    i, c, L, C, x_l, x_c = tile_of(L, C, x_l, x_c, UNIT, VEC, BM, BN)
    _, begin, end = portion(steps, total, pieces)
    mean, m2, count = moments(x, i, c < C, L, per, x_n, x_l, x_c, begin, end, VEC, BM, BN)
    to = parts + (tl.program_id(0) * 3) * C + c
    tl.store(to, mean, c < C)
    tl.store(to + C, m2, c < C)
    tl.store(to + 2 * C, count, c < C)


@triton.jit
def settle(
    m, m2, c, known, mean, rstd, rmean, rvar, new_mean, new_var, count, eps, share, unbiased
):
    """Store the statistics of channels and the running ones; return rstd."""
    var = m2 / count
    tl.store(mean + c, m, known)
    one = tl.full(var.shape, 1.0, tl.float32)
    r = tl.div_rn(one, tl.sqrt_rn(var + eps))
    tl.store(rstd + c, r, known)
    old = tl.load(rmean + c, known, other=0.0).to(tl.float32)
    tl.store(new_mean + c, (1.0 - share) * old + share * m, known)
    old = tl.load(rvar + c, known, other=0.0).to(tl.float32)
    tl.store(new_var + c, (1.0 - share) * old + share * (var * unbiased), known)
    return r


@triton.jit(do_not_specialize=NUMBERS)
def norm_settle_kernel(
    parts, mean, rstd, rmean, rvar, new_mean, new_var, splits, channels, count, eps, share,
    unbiased, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Merge the splits of BN channels into mean and rstd, and update running statistics."""
    c, z = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BM)
    known = c < channels
    m, m2, n = (tl.zeros((BM, BN), tl.float32),) * 3
    for first in range(0, splits, BM):
        on = (first + z < splits)[:, None] & known[None, :]
        at = parts + ((first + z) * 3 * channels)[:, None] + c[None, :]
        new = tl.load(at, on, other=0.0)
        new_2 = tl.load(at + channels, on, other=0.0)
        new_n = tl.load(at + 2 * channels, on, other=0.0)
        m, m2, n = merged(m, m2, n, new, new_2, new_n)
    m, m2, n = tl.reduce((m, m2, n), 0, merged)
    settle(m, m2, c, known, mean, rstd, rmean, rvar, new_mean, new_var, count, eps, share, unbiased)


@triton.jit
def entry(e, pieces, channels, width, ROWS: tl.constexpr):
    """Return the offset in parts of the e-th split of this program's channels, and its channel."""
    groups = channels // width
    image, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    c = group * width + e % width
    row = (image * pieces + e // width).to(tl.int64)
    return row * ROWS * channels + c, c


@triton.jit(do_not_specialize=GROUP_NUMBERS)
def group_norm_settle_kernel(
    parts, mean, rstd, pieces, channels, width, count, eps, BN: tl.constexpr
):
    """Merge the splits of all channels of a group into its mean and rstd."""
    m, m2, n = (tl.zeros((BN,), tl.float32),) * 3
    for first in range(0, pieces * width, BN):
        e = first + tl.arange(0, BN)
        on = e < pieces * width
        at, _ = entry(e, pieces, channels, width, 3)
        new = tl.load(parts + at, on, other=0.0)
        new_2 = tl.load(parts + at + channels, on, other=0.0)
        new_n = tl.load(parts + at + 2 * channels, on, other=0.0)
        m, m2, n = merged(m, m2, n, new, new_2, new_n)
    m, m2, n = tl.reduce((m, m2, n), 0, merged)
    tl.store(mean + tl.program_id(0), m)
    tl.store(rstd + tl.program_id(0), tl.div_rn(1.0, tl.sqrt_rn(m2 / count + eps)))


@triton.jit
def load_statistics(mean, rstd, c, known, eps, GIVEN: tl.constexpr):
    """Return (mean, rstd) of channels as rows; of GIVEN statistics, rstd is the variance."""
    m = tl.load(mean + c, known, other=0.0).to(tl.float32)
    r = tl.load(rstd + c, known, other=0.0).to(tl.float32)
    if GIVEN:
        r = tl.div_rn(tl.full(r.shape, 1.0, tl.float32), tl.sqrt_rn(r + eps))
    return m[None, :], r[None, :]


def new_vector(builder: Builder, role: str) -> Tensor:
    """Return a result of one element a channel; its name differs from any operand's."""
    shape, dtype = builder.call.problem.shape(role), builder.call.dtype_of(role)
    name = f"{role}{NEW}" if role in builder.tensors else role
    return builder.new(name, shape, tuple(range(len(shape))), dtype)


def merging(splits: int) -> Tile:
    return FEW if splits <= FEW.bm else MANY


def add_parts(builder: Builder, rows: int) -> None:
    """Allocate the workspace of partial results, `rows` of one element a channel."""
    c = builder.call.problem.c
    builder.buffers[PARTS.role] = Buffer((rows, c), (c, 1), "f32")


def add_statistics(
    builder: Builder,
    view: View,
    x: Tensor,
    running: tuple[Tensor | None, Tensor | None],
    made: dict[str, Tensor],
    tile: Tile,
) -> None:
    """Add the launches that compute the statistics of x, and update running ones if there are."""
    splits = splits_of(view, tile)
    add_parts(builder, 3 * splits * view.sections)
    builder.steps.append(
        sweep_launch(norm_moments_kernel, view, {"x": x, "parts": PARTS}, tile, splits)
    )
    tensors = {"parts": PARTS, "mean": made["mean"], "rstd": made["rstd"]}
    if running[0] is None:
        merges = group_launch(group_norm_settle_kernel, builder.call, view, tensors, splits)
    else:
        tensors |= {"rmean": running[0], "rvar": running[1]}
        tensors |= {"new_mean": made["rmean"], "new_var": made["rvar"]}
        merges = _settle_launch(builder.call, view, tensors, splits)
    builder.steps.append(merges)


def group_launch(
    kernel: triton.JITFunction,
    call: Call,
    view: View,
    tensors: dict[str, Tensor | None],
    splits: int,
) -> Launch:
    """Return the launch of a kernel whose programs merge one group of one image each."""
    count, eps = float(call.problem.count), call.problem.eps
    numbers = dict(zip(GROUP_NUMBERS, (splits, view.c, view.width, count, eps)))
    given, absent = slots(tensors)
    grid = view.sections * (view.c // view.width), 1, 1
    constants = absent | {"BN": LANES.bn}
    return Launch(kernel, grid, given | numbers, constants, LANES.warps, LANES.stages)


def running_numbers(call: Call) -> dict[str, float]:
    """Return what `settle` takes besides tensors, by its names."""
    problem = call.problem
    unbiased = problem.count / (problem.count - 1)
    values = (float(problem.count), problem.eps, problem.momentum, unbiased)
    return dict(zip(NUMBERS[2:], values))


def _settle_launch(
    call: Call, view: View, tensors: dict[str, Tensor | None], splits: int
) -> Launch:
    values, tile = (splits, view.c, *running_numbers(call).values()), merging(splits)
    return Launch(
        norm_settle_kernel,
        (-(-view.c // tile.bn), 1, 1),
        {name: slot(tensor) for name, tensor in tensors.items()} | dict(zip(NUMBERS, values)),
        {"BM": tile.bm, "BN": tile.bn},
        tile.warps,
        tile.stages,
    )
