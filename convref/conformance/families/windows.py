"""The draft of a problem: windows drawn from a tape of bytes, made smaller until they fit.

The smaller side of the windows is drawn and the larger one derived, so that every draw is valid.
"""

from dataclasses import dataclass, field, replace
from math import ceil, prod
from typing import Any

from ...ops import FAMILY, Problem
from .layers import Layer, layer
from .tape import Tape

# Around SIMD and tile widths, where implementations change path; a repeated entry is more likely
# where everything is unusual.
CHANNELS = (
    *(1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9) * 6,
    *(15, 16, 17, 31, 32, 33, 8, 16, 64, 0) * 2,
    *(10, 12, 20, 24, 48, 63, 65, 96, 127, 128, 129, 256, 257, 513, 1025),
)
GROUPS = (*(1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 7, 8, 16, 17) * 3, 5, 6, 9, 31, 32, 33, 64, 65, 129)
BATCHES = (*(1, 2, 1, 3, 2, 1, 2) * 7, 4, 5, 7, 0, 8, 9, 16, 17, 31, 32, 33, 64, 65, 128, 257, 1025)
WINDOWS = (
    *(1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17) * 6,
    *(10, 11, 12, 14, 18, 20, 24, 28, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257),
    *(511, 513, 1023, 1024, 1025, 2047, 2049, 3001),
)
TAPS = (*(1, 2, 3, 1, 2, 3, 4, 5, 3, 7, 2, 6) * 10, 8, 9, 10, 11, 13, 15, 16, 17, 21, 31, 33, 65)
STRIDES = (*(1, 1, 1, 2, 1, 2, 3, 4, 5) * 10, 6, 7, 8, 9, 12, 16, 17, 32)
DILATIONS = (*(1, 1, 1, 1, 2, 1, 2, 3, 4) * 10, 5, 6, 7, 8, 9, 12, 16, 18, 33)
SLACK = (0, 0, 1, 2, 3, 4)


@dataclass
class DraftAxis:
    """The draw of one spatial axis; `small` is the number of windows."""

    small: int
    taps: int
    stride: int
    dilation: int
    lo: int
    hi: int
    extra: int  # output padding, or input that no window reaches
    least: int  # smallest input: 0 only sometimes, as all windows are then wholly in padding

    @property
    def span(self) -> int:
        """Return how many positions a window extends over."""
        return self.dilation * (self.taps - 1) + 1

    def convolution_input(self) -> int:
        """Return the least input that gives at least `small` windows."""
        slack = min(self.extra, self.stride - 1)
        size = (self.small - 1) * self.stride + self.span + slack - self.lo - self.hi
        return max(self.least, size)

    def transposed_input(self) -> int:
        """Return `small`, or the least input whose output is not cropped away."""
        needs = 1 - self.span - self.output_padding() + self.lo + self.hi
        return max(self.small, ceil(needs / self.stride) + 1)

    def output_padding(self) -> int:
        """Return the output padding of a transposed convolution, as large as is allowed."""
        return min(self.extra, max(self.stride, self.dilation) - 1)

    def sizes(self, transposed: bool) -> tuple[int, int]:
        """Return the larger and the smaller side of the windows."""
        if not transposed:
            big = self.convolution_input()
            return big, (big + self.lo + self.hi - self.span) // self.stride + 1
        small = self.transposed_input()
        big = (small - 1) * self.stride + self.span + self.output_padding() - self.lo - self.hi
        return big, small


@dataclass
class Draft:
    """A problem while it may still be too big."""

    filtered: bool  # a filter joins c channels to k; else each channel is by itself
    n: int
    c: int  # per group
    k: int
    groups: int
    transposed: bool
    axes: list[DraftAxis] = field(default_factory=list)
    bias: bool = True
    flip: bool = False

    def too_big(self, max_elements: int, max_macs: int) -> bool:
        """Return whether an array, or the products of a pass, exceed the limits.

        A size of 0 counts as 1: an op that does not take it takes that instead.
        """
        n, c, k = max(1, self.n), max(1, self.c), max(1, self.k)
        sides = [axis.sizes(self.transposed) for axis in self.axes]
        big, small = prod(max(1, b) for b, _ in sides), prod(max(1, s) for _, s in sides)
        taps = prod(axis.taps for axis in self.axes)
        if not self.filtered:
            return n * c * max(big, taps * small) > max_elements
        if self.transposed:
            c, k = k, c  # of big, of small
        arrays = (n * c * self.groups * big, n * k * self.groups * small)
        weights = c * k * self.groups * taps
        return max(*arrays, weights) > max_elements or n * weights * small > max_macs

    def halve(self, turn: int) -> None:
        """Make one thing smaller; channels, which choose the code path, only every ninth time."""
        axis = self.axes[(turn + turn // 9) % len(self.axes)]
        step = turn % 9
        if step == 8:
            self.c, self.k = self.c - self.c // 2, self.k - self.k // 2
        elif step == 7:
            self.groups = max(1, self.groups // 2)
        elif step % 3 == 2:
            self.n = min(self.n, 1)
            axis.taps = max(1, axis.taps // 2)
        elif axis.small > 1:
            axis.small //= 2
        else:
            axis.lo, axis.hi, axis.extra = int(axis.lo / 2), int(axis.hi / 2), axis.extra // 2


def _axis(tape: Tape, negative: bool, least: int, plain: Layer, small: int) -> DraftAxis:
    small, taps = tape.choose(WINDOWS, small), tape.choose(TAPS, plain.taps)
    stride, dilation = tape.choose(STRIDES, plain.stride), tape.choose(DILATIONS, plain.dilation)
    steps_over = tape.base == "wild" and tape.chance(10)  # no window begins on an image of 1
    if steps_over:
        stride = dilation = max(stride, 2)
    span = dilation * (taps - 1) + 1
    below = (-1, -2, -3, -5) if negative else ()
    beyond = (span - 1, span, span + 1, span + stride)  # windows wholly in padding
    around = ((small - 1) * stride + span - 1) // 2  # nearly all of it: an image of 1 or 2
    choices = (*(0,) * 10, *(1, span // 2) * 4, 2, 2, *beyond, *below, around)
    lo = tape.choose(choices, plain.padding)
    if steps_over:
        lo = around + (around % stride == 0)
    same = (1, 2, -lo, span) * 5 if lo < 0 else (lo,) * 20  # a crop here, padding there
    hi = tape.choose((*same, *choices), lo)
    return DraftAxis(small, taps, stride, dilation, lo, hi, tape.choose(SLACK), least)


@dataclass(frozen=True)
class SizeLimits:
    """The limits of a draw; see `convref.conformance.strategies.problems`."""

    max_elements: int = 4_000
    max_macs: int = 50_000
    max_rank: int = 3
    transposed: bool | None = None
    large: bool = False
    flip: bool = True
    negative_padding: bool = True
    empty: bool = True


def draft(tape: Tape, op: str, limits: SizeLimits) -> Draft:
    """Return sizes for a problem of `op` within the limits."""
    filtered = "k" in FAMILY[op].HEAD
    known = [rank for rank in (2, 2, 1, 2, 1, 3) if rank in FAMILY[op].HAS_RANKS]
    rank = tape.pick([rank for rank in known if rank <= limits.max_rank] or known[:1])
    plain = layer(tape, rank, filtered)
    groups, k = tape.choose(GROUPS, plain.groups), tape.choose(CHANNELS, plain.k)
    c, n = tape.choose(CHANNELS, plain.c), tape.choose(BATCHES, plain.n)
    transposed = limits.transposed
    if transposed is None:
        transposed = plain.transposed or tape.chance(30)
    if not filtered:
        groups, k = 1, 1
    transposed = transposed and "t" in FAMILY[op].KEYS
    found = Draft(filtered, n, c, k, groups, transposed)
    least = 0 if limits.empty and tape.chance(10) else 1
    negative = limits.negative_padding
    if tape.base != "wild" and rank > 1 and tape.pick((True, False)):  # as networks have them
        last = _axis(tape, negative, least, plain, plain.windows[-1])
        sizes = plain.windows if last.small == plain.windows[-1] else (last.small,) * rank
        found.axes = [replace(last, small=size) for size in sizes]
    else:
        found.axes = [_axis(tape, negative, least, plain, size) for size in plain.windows]
    if not limits.empty:
        found.n, found.c, found.k = max(n, 1), max(c, 1), max(k, 1)
    turn = tape.word(1)
    while found.too_big(limits.max_elements, limits.max_macs):
        found.halve(turn)
        turn += 1
    found.bias, found.flip = not tape.chance(25), limits.flip and tape.chance(10)
    return found


def window_sizes(draft: Draft) -> dict[str, Any]:
    """Return the fields of a WindowProblem."""
    axes, transposed = draft.axes, draft.transposed
    return {
        "n": draft.n,
        "c": draft.c * draft.groups,
        "input": tuple(axis.sizes(transposed)[transposed] for axis in axes),
        "filter": tuple(axis.taps for axis in axes),
        "stride": tuple(axis.stride for axis in axes),
        "padding": tuple((axis.lo, axis.hi) for axis in axes),
        "dilation": tuple(axis.dilation for axis in axes),
    }


def image_sizes(op: str, draft: Draft) -> dict[str, Any]:
    """Return n, c and input, as large as the op needs them."""
    sizes, family = window_sizes(draft), FAMILY[op]
    small = dict(family.SIZES)["input"]
    return {
        **{name: max(least, sizes[name]) for name, least in family.LEAST.items()},
        "input": tuple(max(small, size) for size in sizes["input"]),
    }


def output_sizes(tape: Tape, image: dict[str, Any], max_elements: int) -> tuple[int, ...]:
    """Return output sizes: about the input's or twice that, one, or any number up to three times.

    Where not everything is unusual, half of the time all axes have the same ratio.
    """
    sizes = image["input"]
    if tape.base != "wild" and tape.pick((True, False)):
        first = _output(tape, sizes[0])
        found = [max(1, size * first // max(1, sizes[0])) for size in sizes]
    else:
        found = [_output(tape, size) for size in sizes]
    while max(1, image["n"] * image["c"]) * prod(found) > max_elements and max(found) > 1:
        found[found.index(max(found))] //= 2
    return tuple(found)


def _output(tape: Tape, size: int) -> int:
    half = max(1, size // 2)
    about = (size, 1, half, size // 2 + 1, max(1, size - 1), size + 1, 2 * size)
    plain = tape.pick((2 * size, size, half, 7, 1) if tape.base == "usual" else (size, 1))
    return tape.decide(
        lambda: 1 + tape.word(2) % (3 * size + 1) if tape.pick((0, 1)) else tape.pick(about), plain
    )


def draw_field(tape: Tape, op: str, name: str) -> Any:
    """Return a value of one field, drawn from its `Field.draws`."""
    (field,) = (field for field in FAMILY[op].KEYS.values() if field.name == name)
    return tape.choose(field.draws)


def all_drawn(tape: Tape, op: str, *but: str) -> dict[str, Any]:
    """Return a value of each field that has draws, in the order of the line, except those given."""
    fields = FAMILY[op].KEYS.values()
    return {f.name: tape.choose(f.draws) for f in fields if f.draws and f.name not in but}


def image_problem(tape: Tape, op: str, draft: Draft, max_elements: int, **fields: Any) -> Problem:
    """Return a problem of an op on images; fields that are not given are drawn."""
    fields |= all_drawn(tape, op, *fields)
    sizes = FAMILY[op].admissible(image_sizes(op, draft), fields)
    room = max_elements // max(1, sizes["c"] * prod(sizes["input"]))
    return FAMILY[op](**{**sizes, "n": min(sizes["n"], max(2, room))}, **fields)
