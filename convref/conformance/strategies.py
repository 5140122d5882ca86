"""Hypothesis strategies for problems, calls and cases; also for your own ``@given`` tests.

Constraint first: the smaller side of the windows is drawn, the larger one derived, and what is
too big is made smaller, so that every draw is valid. An example is one draw, a tape of bytes:
each byte decides one thing, and 0 is always the plainest choice, so that shrinking simplifies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from math import ceil, prod
from typing import Any, TypeVar

from hypothesis import strategies as st

from ..case import FILLS, Call, Case, Spec, axis_letters, channels_last
from ..dtypes import CODES
from ..errors import ConvrefError, message, shorten
from ..ops import (
    FAMILY,
    INDICES,
    MASK_NAMES,
    SIGNATURE,
    STATISTICS,
    ConvProblem,
    Problem,
    Signature,
    passes,
)
from . import families
from .fills import available

T = TypeVar("T")

# Around SIMD and tile widths, where implementations change path; a repeated entry is more likely.
CHANNELS = (1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9) * 3 + (15, 16, 17, 31, 32, 33, 8, 16, 64, 0)
GROUPS = (1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 7, 8, 16, 17)
BATCHES = (1, 2, 1, 3, 2, 1, 2) * 4 + (4, 5, 7, 0)
WINDOWS = (1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17)
TAPS = (1, 2, 3, 1, 2, 3, 4, 5, 3, 7, 2, 6)
STRIDES = (1, 1, 1, 2, 1, 2, 3, 4, 5)
DILATIONS = (1, 1, 1, 1, 2, 1, 2, 3, 4)
SLACK = (0, 0, 1, 2, 3, 4)
DTYPES = ("f32", "bf16", "f16", "f64")
TAPE = 64  # bytes; the longest case of convolution reads 57
LONG_TAPE = 96  # for ops that have more operands, and more to choose


class _Tape:
    """Decisions read off bytes, one after another."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def choose(self, options: Sequence[T]) -> T:
        """Return one of up to 256 options, the first for byte 0."""
        return options[next(self._bytes) * len(options) >> 8]

    def chance(self, percent: int) -> bool:
        """Return True that often; False for byte 0."""
        return next(self._bytes) * 100 >> 8 >= 100 - percent

    def word(self, size: int) -> int:
        """Return an integer of `size` bytes."""
        return int.from_bytes(next(self._bytes) for _ in range(size))


@dataclass
class _Axis:
    """What is drawn for one spatial axis; `small` is the side that counts windows."""

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
        return self.dilation * (self.taps - 1) + 1

    def convolution_input(self) -> int:
        """Return the least input that gives `small` windows or, where padding rules, more."""
        slack = min(self.extra, self.stride - 1)
        size = (self.small - 1) * self.stride + self.span + slack - self.lo - self.hi
        return max(self.least, size)

    def transposed_input(self) -> int:
        """Return `small`, or the least input whose output is not cropped away."""
        needs = 1 - self.span - self.output_padding() + self.lo + self.hi
        return max(self.small, ceil(needs / self.stride) + 1)

    def output_padding(self) -> int:
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
class _Draft:
    """A problem while it may still be too big."""

    op: str
    n: int
    c: int  # per group
    k: int
    groups: int
    transposed: bool
    axes: list[_Axis] = field(default_factory=list)

    def too_big(self, max_elements: int, max_macs: int) -> bool:
        sides = [axis.sizes(self.transposed) for axis in self.axes]
        big, small = prod(b for b, _ in sides), prod(s for _, s in sides)
        taps = prod(axis.taps for axis in self.axes)
        if self.op != "conv":
            return self.n * self.c * max(big, taps * small) > max_elements
        c, k = (self.k, self.c) if self.transposed else (self.c, self.k)  # of big, of small
        arrays = (self.n * c * self.groups * big, self.n * k * self.groups * small)
        weights = c * k * self.groups * taps
        return max(*arrays, weights) > max_elements or self.n * weights * small > max_macs

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


def _axis(tape: _Tape, negative: bool, least: int) -> _Axis:
    small, taps = tape.choose(WINDOWS), tape.choose(TAPS)
    stride, dilation = tape.choose(STRIDES), tape.choose(DILATIONS)
    steps_over = tape.chance(10)  # all windows miss an image of 1: none begins on it
    if steps_over:
        stride = dilation = max(stride, 2)
    span = dilation * (taps - 1) + 1
    below = (-1, -2, -3, -5) if negative else ()
    beyond = (span - 1, span, span + 1, span + stride)  # windows wholly in padding
    around = ((small - 1) * stride + span - 1) // 2  # nearly all of it: an image of 1 or 2
    choices = (*(0,) * 10, *(1, span // 2) * 4, 2, 2, *beyond, *below, around)
    lo = tape.choose(choices)
    if steps_over:
        lo = around + (around % stride == 0)
    same = (1, 2, -lo, span) * 5 if lo < 0 else (lo,) * 20  # what is cropped may grow there
    hi = tape.choose((*same, *choices))
    return _Axis(small, taps, stride, dilation, lo, hi, tape.choose(SLACK), least)


@dataclass(frozen=True)
class _Limits:
    """What the keywords of the strategies allow."""

    max_elements: int
    max_macs: int
    max_rank: int
    transposed: bool | None
    flip: bool
    negative: bool
    empty: bool


def _draft(tape: _Tape, op: str, limits: _Limits) -> _Draft:
    rank = tape.choose([rank for rank in (2, 2, 1, 2, 1, 3) if rank <= limits.max_rank])
    groups, k, c, n = map(tape.choose, (GROUPS, CHANNELS, CHANNELS, BATCHES))
    transposed = tape.chance(30) if limits.transposed is None else limits.transposed
    if op != "conv":
        groups, k, transposed = 1, 1, False
    draft = _Draft(op, n, c, k, groups, transposed)
    least = 0 if tape.chance(10) and limits.empty else 1
    draft.axes = [_axis(tape, limits.negative, least) for _ in range(3)][:rank]
    if not limits.empty:
        draft.n, draft.c, draft.k = max(n, 1), max(c, 1), max(k, 1)
    turn = tape.word(1)
    while draft.too_big(limits.max_elements, limits.max_macs):
        draft.halve(turn)
        turn += 1
    return draft


def _problem(tape: _Tape, op: str, limits: _Limits) -> Problem:
    draft = _draft(tape, op, limits)
    bias, flip = not tape.chance(25), limits.flip and tape.chance(10)
    axes, transposed = draft.axes, draft.transposed
    sizes = [axis.sizes(transposed)[transposed] for axis in axes]
    shared: dict[str, Any] = {
        "n": draft.n,
        "c": draft.c * draft.groups,
        "input": tuple(sizes),
        "filter": tuple(axis.taps for axis in axes),
        "stride": tuple(axis.stride for axis in axes),
        "padding": tuple((axis.lo, axis.hi) for axis in axes),
        "dilation": tuple(axis.dilation for axis in axes),
    }
    if op != "conv":
        return families.finish(tape, op, shared, limits.max_elements)
    return ConvProblem(
        **shared,
        k=draft.k * draft.groups,
        groups=draft.groups,
        transposed=transposed,
        output_padding=tuple(axis.output_padding() for axis in axes) if transposed else (0,),
        flip=flip,
        bias=bias,
    )


_MEMORY = ("plain",) * 7 + ("channels last",) * 2 + ("each its own",) * 7


def _spec(tape: _Tape, letters: str, dtype: str, memory: str) -> Spec:
    """Return the memory of one operand: half of the unruly ones contiguous, others anything."""
    kind, which, order = tape.word(1), tape.word(1), tape.word(1)
    if memory == "channels last":
        return Spec(dtype, channels_last(letters))
    if memory == "plain" or kind < 128:
        return Spec(dtype)
    axis = letters[which % len(letters)]
    step = ((axis, 2 + which // 128),) if kind % 4 == 1 else ()
    expand = axis if kind % 8 == 2 else ""
    orders = _orders(letters)
    return Spec(
        dtype,
        orders[order * len(orders) >> 8],
        step,
        expand,
        offset=(0, 0, 1, 3)[which % 4],
    )


def _orders(letters: str, _seen: dict[str, list[str]] = {}) -> list[str]:  # noqa: B006
    """Return memory orders: as it is, channels last (often), then every other."""
    if letters not in _seen:
        others = ["".join(order) for order in permutations(letters)]
        _seen[letters] = [letters] + [channels_last(letters)] * (len(others) // 2 + 1) + others
    return _seen[letters]


def _mask(tape: _Tape, fixed: tuple[bool, ...] | None, row: Signature) -> tuple[bool, ...]:
    drawn = tape.choose((7, 7, 7, 7, 7, 7, 1, 2, 3, 4, 5, 6))  # all, then bits; never none
    results = len(row.results)
    if fixed or not row.maskable:
        return fixed or ()
    if not drawn % 2**results:
        drawn = 2**results - 1
    return tuple(bool(drawn >> bit & 1) for bit in range(results))


def _call(tape: _Tape, table: Sequence[_Pass], dtypes: Sequence[str], options: _Options) -> Call:
    op, pass_, fixed = tape.choose(table)
    problem = _problem(tape, op, options.limits)
    mask = _mask(tape, fixed, SIGNATURE[op, pass_])
    had = [dtype for dtype in dtypes if problem.refuses(dtype) is None]  # silu has no integers
    dtype = tape.choose(had or dtypes)
    memory, tangents = tape.choose(_MEMORY), tape.choose(_TANGENTS)
    problem = families.fitted(problem, dtype)
    if op != "conv" or pass_ not in ("jvp", "double_backward"):
        tangents = None
    elif tangents and isinstance(problem, ConvProblem) and not problem.bias:
        tangents = tangents.replace("b", "")
    memory = memory if options.memory else "plain"
    roles = SIGNATURE[op, pass_].operands
    specs = tuple(_spec(tape, axis_letters(problem, role), dtype, memory) for role in roles)
    given = (*INDICES, *STATISTICS)  # which an expanded axis would make others than they are
    specs = tuple(
        replace(spec, expand="") if role in given else spec for role, spec in zip(roles, specs)
    )
    return Call(op, pass_, problem, mask, tangents, specs, tape.choose(options.maths))


def _known_words(what: str, words: Iterable[str], known: Collection[str]) -> None:
    for word in words:
        if word not in known:
            need = f"needs one of {', '.join(known)}"
            raise ConvrefError(message("strategies", f"{what} is {shorten(word, 40)!r}, {need}"))


_Pass = tuple[str, str, tuple[bool, ...] | None]
_TANGENTS = (None, None, None, None, None, None, "x", "w", "b", "xw", "xb", "wb", "")


@dataclass(frozen=True)
class _Options:
    limits: _Limits
    memory: bool
    maths: Sequence[str]


def _table(ops: Sequence[str], wanted: Sequence[str] | None, dtypes: Sequence[str]) -> list[_Pass]:
    """Return (op, pass, fixed mask) of every pass that is asked for."""
    _known_words("op", ops, FAMILY)
    _known_words("dtype", dtypes, CODES)
    _known_words("pass", wanted or (), (*dict.fromkeys(p for _, p in SIGNATURE), *MASK_NAMES))
    known: dict[tuple[str, str], _Pass] = {(op, p): (op, p, None) for op in ops for p in passes(op)}
    if "conv" in ops:
        known |= {("conv", name): ("conv", "backward", bits) for name, bits in MASK_NAMES.items()}
    names = wanted if wanted is not None else [p for _, p in known if p not in MASK_NAMES]
    table = [row for (_, name), row in known.items() if name in names]
    if not table:
        need = ", ".join(sorted({name for _, name in known}))
        raise ConvrefError(
            message("strategies", f"no pass in {tuple(names)}, needs some of {need}")
        )
    return table


class _Built(st.SearchStrategy[T]):
    """Draws a tape and builds from it; unlike ``map``, failures show what was built."""

    def __init__(self, build: Callable[[_Tape], T], size: int = TAPE) -> None:
        super().__init__()
        self.build = build
        self.tapes = st.binary(min_size=size, max_size=size)

    def do_draw(self, data: Any) -> T:
        return self.build(_Tape(data.draw(self.tapes)))


def _tape_for(table: Sequence[_Pass]) -> int:
    """Return how many bytes a case may need: three for the memory of each operand."""
    others = [len(SIGNATURE[op, pass_].operands) for op, pass_, _ in table if op != "conv"]
    return LONG_TAPE if max(others, default=0) > 4 else TAPE


def problems(
    op: str = "conv",
    *,
    max_elements: int = 4_000,
    max_macs: int = 50_000,
    max_rank: int = 3,
    transposed: bool | None = None,
    flip: bool = True,
    negative_padding: bool = True,
    empty: bool = True,
) -> st.SearchStrategy[Problem]:
    """Return a strategy for valid problems of `op`.

    Ranks, groups, channels, batch and every number of every axis are independent of each other.

    Parameters
    ----------
    op : str
        "conv", "unfold" or "fold".
    max_elements, max_macs : int
        No array has more elements, and no pass more multiply-adds, padding included.
    max_rank : int
        1 to 3.
    transposed : bool, optional
        Only transposed convolutions, or none; by default 3 of 10.
    flip, negative_padding, empty : bool
        Whether flipped filters, cropping and arrays without elements may occur.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10, database=None)
    ... @given(problems(max_rank=2, transposed=True))
    ... def check(problem):
    ...     assert problem.transposed and min(problem.output) >= 1
    >>> check()
    """
    limits = _Limits(max_elements, max_macs, max_rank, transposed, flip, negative_padding, empty)
    return _Built(lambda tape: _problem(tape, op, limits))


def calls(
    ops: Sequence[str] = ("conv",),
    passes: Sequence[str] | None = None,
    *,
    dtypes: Sequence[str] = DTYPES,
    memory: bool = True,
    maths: Sequence[str] = ("ieee",),
    max_elements: int = 4_000,
    max_macs: int = 50_000,
    max_rank: int = 3,
    transposed: bool | None = None,
    flip: bool = True,
    negative_padding: bool = True,
    empty: bool = True,
) -> st.SearchStrategy[Call]:
    """Return a strategy for calls: a problem with pass, mask, tangents, dtype and memory.

    Parameters
    ----------
    ops : sequence of str
        Families, each as likely as it has passes.
    passes : sequence of str, optional
        "fprop", "backward", "jvp", "double_backward", or "dgrad", "wgrad", "bgrad"; default all
        of the first four. A repeated name is as likely as one.
    dtypes, maths : sequence of str
        Short names, see `convref.dtypes.CODES` and `convref.case.MATHS`; repeat one to see it more
        often.
    memory : bool
        Whether operands may lie in another order, or be strided, expanded or offset views.
    max_elements, max_macs, max_rank, transposed, flip, negative_padding, empty
        As in `problems`.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10, database=None)
    ... @given(calls(passes=["wgrad"], dtypes=["bf16"]))
    ... def check(call):
    ...     assert call.wanted == ("dw",) and call.dtype == "bf16"
    >>> check()
    """
    limits = _Limits(max_elements, max_macs, max_rank, transposed, flip, negative_padding, empty)
    options, table = _Options(limits, memory, tuple(maths)), _table(ops, passes, dtypes)
    return _Built(lambda tape: _call(tape, table, tuple(dtypes), options), _tape_for(table))


def cases(
    ops: Sequence[str] = ("conv",),
    passes: Sequence[str] | None = None,
    *,
    dtypes: Sequence[str] = DTYPES,
    fills: Sequence[str] = ("int", "int", "int", "normal", *FILLS),
    memory: bool = True,
    maths: Sequence[str] = ("ieee",),
    max_elements: int = 4_000,
    max_macs: int = 50_000,
    max_rank: int = 3,
    transposed: bool | None = None,
    flip: bool = True,
    negative_padding: bool = True,
    empty: bool = True,
) -> st.SearchStrategy[Case]:
    """Return a strategy for cases: a call with fill and seed, all that an experiment needs.

    Parameters
    ----------
    fills : sequence of str
        Names from `convref.case.FILLS`; those that a dtype does not have are left out for it.
    ops, passes, dtypes, memory, maths
        As in `calls`.
    max_elements, max_macs, max_rank, transposed, flip, negative_padding, empty
        As in `problems`.

    Raises
    ------
    ConvrefError
        If nothing is left: no such pass, or a dtype without any of the fills.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from convref.case import parse
    >>> @settings(max_examples=10, database=None)
    ... @given(cases(fills=["int", "nan"], max_elements=500))
    ... def check(case):
    ...     assert parse(str(case)) == case
    >>> check()
    """
    limits = _Limits(max_elements, max_macs, max_rank, transposed, flip, negative_padding, empty)
    options, table = _Options(limits, memory, tuple(maths)), _table(ops, passes, dtypes)
    _known_words("fill", fills, FILLS)
    possible = {dtype: [f for f in fills if available(f, dtype)] for dtype in dtypes}
    for dtype, names in possible.items():
        if not names:
            raise ConvrefError(message("strategies", f"{dtype} has none of the fills {fills}"))

    def build(tape: _Tape) -> Case:
        call = _call(tape, table, tuple(dtypes), options)
        unfit = families.UNFIT.get(call.op, ())
        fitting = [fill for fill in possible[call.dtype] if fill not in unfit]
        return Case(call, tape.choose(fitting or possible[call.dtype]), tape.word(2))

    return _Built(build, _tape_for(table))
