"""The windows of a pool: the positions of each, by axis, on the host and on the device."""

from math import prod
from typing import Any, NamedTuple

import triton
import triton.language as tl

from convref.case import Call
from convref.ops import AdaptiveAxis, AdaptivePoolProblem, AvgPoolProblem

from ..common.geometry import Three
from ..common.images import UNROLLED, three
from ..common.index import quotient
from ..common.windows import MAGIC

SIZES = "M O P Q D H W C end_d end_h end_w lo_d lo_h lo_w"
COUNTS = "least_d least_h least_w most_d most_h most_w size_d size_h size_w"
LOOP = "taps taps_d taps_h taps_w scale"
OTHER = "d_magic d_shift h_magic h_shift w_magic w_shift"
STEPS = "x_n x_d x_h x_w x_c v_n v_d v_h v_w v_c y_n y_d y_h y_w y_c"
RUNTIME = f"{SIZES} {COUNTS} {LOOP} {MAGIC} {OTHER} {STEPS}".split()


@triton.jit
def first_read(p, other, lo, magic, shift, STRIDE: tl.constexpr, ADAPTIVE: tl.constexpr):
    """Return the first position of window p; of an adaptive one, floor(p * other / own)."""
    if ADAPTIVE:
        return quotient(p * other, magic, shift)
    else:
        return p * STRIDE - lo


@triton.jit
def last_read(p, own, other, end, magic, shift, ADAPTIVE: tl.constexpr):
    """Return the position that ends window p, ceil((p + 1) * other / own), or all windows."""
    if ADAPTIVE:
        return quotient((p + 1) * other + own - 1, magic, shift)
    else:
        return p * 0 + end


@triton.jit
def counted(
    p, own, other, lo, least, most, taps, magic, shift,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, ADAPTIVE: tl.constexpr,
):  # fmt: skip
    """Return how many taps of window p its divisor counts along an axis."""
    first = first_read(p, other, lo, magic, shift, STRIDE, ADAPTIVE)
    if ADAPTIVE:
        return last_read(p, own, other, 0, magic, shift, True) - first
    else:
        low = tl.cdiv(tl.maximum(least - first, 0), DILATION)
        high = tl.minimum(tl.cdiv(tl.maximum(most - first, 0), DILATION), taps)
        return high - low


@triton.jit
def shares(
    place, own, other, lo, least, most, taps, magic,
    STRIDE: tl.constexpr, DILATION: tl.constexpr, ADAPTIVE: tl.constexpr,
):  # fmt: skip
    """Return 1 / D of the windows `place`, rounded to nearest; an empty one divides by 1."""
    count = tl.full(place[2].shape, 1.0, tl.float32)
    for a in tl.static_range(3):
        along = counted(
            place[a], own[a], other[a], lo[a], least[a], most[a], taps[a],
            magic[2 * a], magic[2 * a + 1], STRIDE[a], DILATION[a], ADAPTIVE,
        )  # fmt: skip
        count *= tl.maximum(along, 1).to(tl.float32)
    return tl.div_rn(tl.full(count.shape, 1.0, tl.float32), count)


class Form(NamedTuple):
    """The windows of a pool, along (d, h, w)."""

    # Positions, windows, taps of a window; `end` is where a crop ends the positions.
    big: Three
    small: Three
    size: Three
    stride: Three
    dilation: Three
    lo: Three
    end: Three
    # From where to where taps count for a divisor.
    least: Three
    most: Three
    adaptive: bool  # whether windows divide the positions into a given number of parts
    scale: float  # 1 / D if all windows have the same divisor, else 0


def form(call: Call) -> Form:
    """Return the windows of a pool; small adaptive ones of one size are plain windows."""
    problem = call.problem
    big, small = three(problem.input), three(problem.output)
    ones, none = (1, 1, 1), (0, 0, 0)
    scale = _scale(problem)
    if isinstance(problem, AdaptivePoolProblem):
        size = three(axis.taps for axis in problem.axes)
        even = all(i % o == 0 for i, o in zip(big, small)) and prod(size) <= UNROLLED
        stride = size if even else ones
        return Form(big, small, size, stride, ones, none, big, none, big, not even, scale)
    lo = three((lo for lo, _ in problem.padding), 0)
    ends = three(size + hi for size, (_, hi) in zip(problem.input, problem.padding))
    end = tuple(map(min, big, ends))
    counts_padding = isinstance(problem, AvgPoolProblem) and problem.include_pad
    least, most = (tuple(-v for v in lo), ends) if counts_padding else (none, end)
    given = problem.filter, problem.stride, problem.dilation
    return Form(big, small, *map(three, given), lo, end, least, most, False, scale)


def _scale(problem: Any) -> float:
    if getattr(problem, "divisor", 0):
        return 1 / problem.divisor
    counts = getattr(problem, "counts", ())  # a maximum has none
    return 0.0 if any(len(set(c)) > 1 for c in counts) else 1 / prod(max(c[0], 1) for c in counts)


def reach_of(shape: Form) -> Three:
    """Return how many windows may read one position, along each axis."""
    if shape.adaptive:
        axes = (AdaptiveAxis(o, i) for i, o in zip(shape.big, shape.small))
        return three(1 if axis.small % axis.big == 0 else axis.taps for axis in axes)
    return three(
        (taps - 1) * dilation // stride + 1
        for taps, dilation, stride in zip(shape.size, shape.dilation, shape.stride)
    )
