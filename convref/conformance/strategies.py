"""Hypothesis strategies for problems, calls and cases; also for your own ``@given`` tests.

An example is one draw, a tape of bytes that `convref.conformance.families` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from math import prod
from typing import Any, TypeVar

from hypothesis import strategies as st

from ..case import FILLS, Call, Case, Spec, axis_letters, channels_last
from ..dtypes import CODES, short_name
from ..errors import invalid, needs_one, shorten
from ..ops import (
    FAMILY,
    MASK_NAMES,
    OPS,
    OWN_TYPE,
    SIGNATURE,
    STATISTICS,
    Problem,
    Signature,
    mask_names,
    passes,
)
from . import families
from .families.tape import Tape
from .families.windows import SizeLimits, draft
from .fills import available

T = TypeVar("T")

DTYPES = ("f32", "bf16", "f16", "f64")
MIXTURE = ("int", "int", "int", "normal", *FILLS)  # of fills
TAPE = 72  # bytes; the longest case of convolution reads 60
LONG_TAPE = 104  # for ops that have more operands, and more to choose
LARGE_ELEMENTS, LARGE_MACS = 140_000, 500_000  # limits of a large example
FAR = 2**31  # elements between the first and the last of an operand that is stored far apart

_MEMORY = ("plain",) * 7 + ("channels last",) * 2 + ("each its own",) * 6 + ("one",) * 2


def _specs(tape: Tape, problem: Problem, roles: Sequence[str], dtype: str) -> list[Spec]:
    """Return the memory of the operands; one of them is stored far apart in its kind of draw."""
    letters, memory = [axis_letters(problem, role) for role in roles], tape.choose(_MEMORY)
    other = tape.pick(range(len(roles))) if memory == "one" or tape.base == "far" else None
    if memory == "channels last":
        specs = [Spec(dtype, channels_last(text)) for text in letters]
    elif memory == "plain":
        specs = [Spec(dtype) for _ in letters]
    else:
        drawn = [_spec(tape, text, dtype, memory == "one") for text in letters]
        specs = [s if other in (None, i) else Spec(dtype) for i, s in enumerate(drawn)]
    if other is not None and tape.base == "far":
        specs[other] = _far(problem.shape(roles[other]), letters[other], dtype)
    return specs


def _far(shape: Sequence[int], letters: str, dtype: str) -> Spec:
    """Return the memory of an operand whose last element is `FAR` elements from its first."""
    long = next((i for i, size in enumerate(shape) if size > 1), None)
    if long is None or 0 in shape:
        return Spec(dtype)
    stride = prod(shape[long + 1 :])
    return Spec(dtype, step=((letters[long], -(-FAR // (stride * (shape[long] - 1)))),))


def _spec(tape: Tape, letters: str, dtype: str, alone: bool) -> Spec:
    """Return the memory of one operand: half of them contiguous, or one feature if it is alone."""
    kind, which, order = tape.word(1), tape.word(1), tape.word(1)
    if kind < 128 and not alone:
        return Spec(dtype)
    axis, orders = letters[which % len(letters)], _orders(letters)
    drawn = orders[order * len(orders) >> 8]
    step: tuple[tuple[str, int], ...] = ((axis, (2, 3, -1, -2)[which >> 6]),)
    if alone:
        features = (Spec(dtype, drawn), Spec(dtype, step=step), Spec(dtype, expand=axis))
        return (*features, Spec(dtype, offset=(1, 3)[which % 2]))[kind % 4]
    if kind % 16 == 1 and len(letters) > 1:
        step = (*step, (letters[(which + 1) % len(letters)], 2))
    expand = axis if kind % 8 == 2 else ""
    return Spec(dtype, drawn, step if kind % 4 == 1 else (), expand, (0, 0, 1, 3)[which % 4])


@cache
def _orders(letters: str) -> list[str]:
    """Return memory orders: as it is, channels last (often), then every other."""
    others = ["".join(order) for order in permutations(letters)]
    return [letters] + [channels_last(letters)] * (len(others) // 2 + 1) + others


def _mask(tape: Tape, fixed: tuple[bool, ...] | None, row: Signature) -> tuple[bool, ...]:
    drawn = tape.choose((7, 7, 7, 7, 7, 7, 1, 2, 3, 4, 5, 6))  # all, then bits; never none
    results = len(row.results)
    if fixed or not row.maskable:
        return fixed or ()
    if not drawn % 2**results:
        drawn = 2**results - 1
    return tuple(bool(drawn >> bit & 1) for bit in range(results))


def _problem(tape: Tape, op: str, limits: SizeLimits) -> Problem:
    if tape.base == "large":
        limits = replace(limits, max_elements=LARGE_ELEMENTS, max_macs=LARGE_MACS)
    return families.draw(tape, op, draft(tape, op, limits), limits.max_elements)


def _call(tape: Tape, options: _Options) -> Call:
    (op, pass_, fixed), dtypes = tape.pick(options.table), options.dtypes
    problem = _problem(tape, op, options.limits)
    mask = _mask(tape, fixed, SIGNATURE[op, pass_])
    # silu has no integers, and an integer convolution has nothing else
    had = [code for code in dtypes if problem.refuses(code, pass_) is None]
    dtype = tape.pick(had or [code for code in CODES if problem.refuses(code, pass_) is None])
    tangents = tape.choose(_TANGENTS)
    problem = problem.for_dtype(dtype, pass_)
    possible = problem.tangents(pass_)
    if tangents is not None:
        tangents = "".join(t for t in tangents if t in possible) if possible else None
    roles = SIGNATURE[op, pass_].operands
    specs = _specs(tape, problem, roles, dtype) if options.memory else [Spec(dtype)] * len(roles)
    given = (*OWN_TYPE, *STATISTICS)  # an expanded axis would change their values
    own = [replace(s, expand="") if role in given else s for role, s in zip(roles, specs)]
    return Call(op, pass_, problem, mask, tangents, tuple(own), tape.pick(options.maths))


def _known_words(what: str, words: Iterable[str], known: Collection[str]) -> None:
    for word in words:
        if word not in known:
            raise invalid(
                "strategies", f"{what} is {shorten(word, 40)!r}, {needs_one(word, known)}"
            )


_Pass = tuple[str, str, tuple[bool, ...] | None]
_TANGENTS = (None, None, None, None, None, None, "x", "w", "b", "xw", "xb", "wb", "")


@dataclass(frozen=True)
class _Options:
    table: Sequence[_Pass]
    dtypes: Sequence[str]
    memory: bool
    maths: Sequence[str]
    limits: SizeLimits


def _table(ops: Sequence[str], wanted: Sequence[str] | None, dtypes: Sequence[str]) -> list[_Pass]:
    _known_words("op", ops, FAMILY)
    _known_words("dtype", dtypes, CODES)
    _known_words("pass", wanted or (), (*dict.fromkeys(p for _, p in SIGNATURE), *MASK_NAMES))
    known: dict[tuple[str, str], _Pass] = {(op, p): (op, p, None) for op in ops for p in passes(op)}
    for op in ops:
        masks = mask_names(op).items() if "k" in FAMILY[op].HEAD else ()
        known |= {(op, name): (op, "backward", bits) for name, bits in masks}
    names = wanted if wanted is not None else [p for _, p in known if p not in MASK_NAMES]
    table = [row for (_, name), row in known.items() if name in names]
    if not table:
        need = ", ".join(sorted({name for _, name in known}))
        raise invalid("strategies", f"pass is {','.join(names)}, needs some of {need}")
    return table


class Built(st.SearchStrategy[T]):
    """Draws a tape and builds from it; unlike with ``map``, failures show the built value."""

    def __init__(self, build: Callable[[Tape], T], size: int = TAPE, large: bool = False) -> None:
        super().__init__()
        self.build, self.size, self.large = build, size, large
        self.tapes = st.binary(min_size=size, max_size=size)

    def do_draw(self, data: Any) -> T:
        """Return what is built from a tape that Hypothesis draws."""
        return self.of(data.draw(self.tapes))

    def of(self, tape: bytes) -> T:
        """Return what is built from a tape of `size` bytes."""
        return self.build(Tape(tape, self.large))


def _tape_for(table: Sequence[_Pass]) -> int:
    """Return how many bytes a case may need: three for the memory of each operand."""
    operands = [
        len(SIGNATURE[op, pass_].operands) for op, pass_, _ in table if "k" not in FAMILY[op].HEAD
    ]
    return LONG_TAPE if max(operands, default=0) > 4 else TAPE


def problems(op: str = "conv", **limits: Any) -> st.SearchStrategy[Problem]:
    """Return a strategy for valid problems of `op`.

    Ranks, groups, channels, batch and every number of every axis are independent of each other.

    Parameters
    ----------
    op : str
        A key of `convref.ops.OPS`.
    **limits
        Fields of `convref.conformance.families.windows.SizeLimits`:

        - max_elements = 4000, max_macs = 50000: no array has more elements, and no pass more
          multiply-adds, padding included;
        - max_rank = 3: 1 to 3;
        - transposed = None: only transposed convolutions, or none; by default 3 of 10;
        - large = False: whether a few examples are larger: more than 100,000 elements, more than
          65,535 images or channels, operands of which the last element is 2**31 from the first;
        - flip, negative_padding, empty = True: whether flipped filters, cropping and arrays without
          elements may occur.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10, database=None)
    ... @given(problems(max_rank=2, transposed=True))
    ... def check(problem):
    ...     assert problem.transposed and min(problem.output) >= 1
    >>> check()
    """
    allowed = SizeLimits(**limits)
    return Built(lambda tape: _problem(tape, op, allowed), large=allowed.large)


def calls(
    ops: Sequence[str] = ("conv",),
    passes: Sequence[str] | None = None,
    *,
    dtypes: Sequence[str] = DTYPES,
    memory: bool = True,
    maths: Sequence[str] = ("ieee",),
    **limits: Any,
) -> st.SearchStrategy[Call]:
    """Return a strategy for calls: a problem with pass, mask, tangents, dtype and memory.

    Parameters
    ----------
    ops : sequence of str
        Each op is as likely as it has passes.
    passes : sequence of str, optional
        "fprop", "backward", "jvp", "double_backward", or "dgrad", "wgrad", "bgrad"; default all
        of the first four. A repeated name is as likely as one.
    dtypes, maths : sequence of str
        Names of `convref.dtypes.short_name` and of `convref.case.MATHS`; repeat one to draw it more
        often.
    memory : bool
        Whether operands may be permuted, strided, expanded or offset views.
    **limits
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
    dtypes = tuple(map(short_name, dtypes))
    table = _table(ops, passes, dtypes)
    options = _Options(table, dtypes, memory, tuple(maths), SizeLimits(**limits))
    return Built(lambda tape: _call(tape, options), _tape_for(table), options.limits.large)


def cases(
    ops: Sequence[str] = ("conv",),
    passes: Sequence[str] | None = None,
    *,
    dtypes: Sequence[str] = DTYPES,
    fills: Sequence[str] = MIXTURE,
    **options: Any,
) -> Built[Case]:
    """Return a strategy for cases: a call with fill and seed, all that an experiment needs.

    Parameters
    ----------
    ops, passes, dtypes
        As in `calls`.
    fills : sequence of str
        Names from `convref.case.FILLS`; those that a dtype does not have are left out for it.
    **options
        The other arguments of `calls`, and those of `problems`.

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
    dtypes = tuple(map(short_name, dtypes))
    drawn = calls(ops, passes, dtypes=dtypes, **options)
    assert isinstance(drawn, Built)
    _known_words("fill", fills, FILLS)
    for dtype in dtypes:
        if not any(available(fill, dtype) for fill in fills):
            raise invalid("strategies", f"{dtype} has none of the fills {fills}")

    fills = tuple(fills)

    def build(tape: Tape) -> Case:
        call = drawn.build(tape)
        fill = tape.choose if OPS[call.op].multiplies else tape.pick
        return Case(call, fill(suitable_fills(call, fills)), tape.word(2))

    return Built(build, drawn.size, drawn.large)


def suitable_fills(call: Call, fills: tuple[str, ...]) -> list[str]:
    """Return those of some fills that the type of a call has and that suit its op."""
    return _fills_of(call.op, call.dtype, fills)


@cache
def _fills_of(op: str, dtype: str, fills: tuple[str, ...]) -> list[str]:
    possible = [fill for fill in fills if available(fill, dtype)] or ["int"]
    return [fill for fill in possible if fill not in OPS[op].unsuitable_fills] or possible
