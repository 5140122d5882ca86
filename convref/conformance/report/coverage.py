"""How much of its space the court draws: classes of fields, and the pairs and triples of them."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np

from ...case import FILLS, Case, Spec, axis_letters, channels_last
from ...dtypes import CODES
from ...ops import FAMILY, OPS, SIGNATURE, Problem, passes
from ..fills import available
from ..generate import Axes, chunk_cases
from ..operands import SPARSE
from ..strategies import DTYPES, cases

# The least number of each class; the last one has no end.
SIZES = (0, 1, 2, 3, 8, 9, 16, 17, 32, 33, 64, 65, 129, 1_025, 65_536)
STEPS = {"filter": (1, 2, 3, 4, 8), "stride": (1, 2, 3, 4, 8), "dilation": (1, 2, 3, 6)}
RATIOS = (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(3))
PADDINGS = ("none", "equal", "unequal", "beyond the window", "negative")
GROUPS = ("1", "depthwise", "other")
MEMORIES = ("plain", "channels last", "order", "step", "expand", "offset", "several", "far")
AXES = {-1: "w", -2: "h"}  # of three axes, the first has no classes
HEADER = f"{'op':<20}{'examples':>9}  {'classes':<22}{'pairs':<26}{'triples':<32}classes at zero"
NONE = "-"  # of an axis that a problem of lower rank does not have


class CoverageRow(NamedTuple):
    """The classes of one field, and which of them a case has."""

    words: tuple[str, ...]
    of: Callable[[Case], str]


class Coverage(NamedTuple):
    """Which classes some cases of an op have."""

    op: str
    examples: int
    missed: tuple[str, ...]  # classes that no case has
    # (met, all) for sets of classes of 1, 2 and 3 fields; not all of them are possible
    sets: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        one, two, three = (f"{met:,} of {every:,} ({met / every:.1%})" for met, every in self.sets)
        missed = ", ".join(self.missed) or "none"
        return f"{self.op:<20}{self.examples:>9,}  {one:<22}{two:<26}{three:<32}{missed}"


def coverage_of(op: str, examples: int, seed: int = 0) -> Coverage:
    """Return the coverage of the first examples of a campaign of one op.

    >>> found = coverage_of("relu", 200)
    >>> found.examples, found.sets[1][0] < found.sets[1][1]
    (200, True)
    """
    axes = Axes(seed, (op,), large=True)
    chunks = range(-(-examples // axes.size))
    found = [case for number in chunks for case in chunk_cases(axes, number)]
    return coverage(op, found[:examples])


def coverage(op: str, given: Sequence[Case]) -> Coverage:
    """Return which classes of the fields of `op` the given cases have."""
    rows = dict(_rows(op))
    table = [[row.words.index(row.of(case)) for case in given] for row in rows.values()]
    codes, counts = np.array(table), [len(row.words) for row in rows.values()]
    missed = tuple(
        f"{name} {word}"
        for (name, row), found in zip(rows.items(), codes)
        for word, count in zip(row.words, np.bincount(found, minlength=len(row.words)))
        if not count
    )
    sets = tuple(_count_covered(codes, counts, size) for size in (1, 2, 3))
    return Coverage(op, len(given), missed, sets)


def _count_covered(codes: Any, counts: Sequence[int], size: int) -> tuple[int, int]:
    """Return how many sets of classes of `size` fields the cases have, and of how many."""
    met = every = 0
    for chosen in combinations(range(len(counts)), size):
        lengths = tuple(counts[field] for field in chosen)
        code = np.ravel_multi_index(tuple(codes[field] for field in chosen), lengths)
        met += int(np.count_nonzero(np.bincount(code)))
        every += int(np.prod(lengths))
    return met, every


def _rows(op: str) -> Iterator[tuple[str, CoverageRow]]:
    family, types, unsuitable = FAMILY[op], _types(op), OPS[op].unsuitable_fills
    fills = (fill for fill in FILLS if any(available(fill, code) for code in types))
    yield "pass", CoverageRow(tuple(passes(op)), lambda case: case.call.pass_)
    yield "dtype", CoverageRow(types, lambda case: case.call.dtype)
    yield (
        "fill",
        CoverageRow(
            tuple(fill for fill in fills if fill not in unsuitable), lambda case: case.fill
        ),
    )
    yield "memory", CoverageRow(MEMORIES, _memory)
    if any(SIGNATURE[op, pass_].maskable for pass_ in passes(op)):
        yield (
            "mask",
            CoverageRow(("some", "all"), lambda case: "all" if all(case.call.mask) else "some"),
        )
    yield (
        "rank",
        CoverageRow(tuple(map(str, family.HAS_RANKS)), lambda case: str(case.call.problem.rank)),
    )
    for name in family.HEAD.values():
        yield name, CoverageRow(GROUPS, _groups) if name == "groups" else _of_head(family, name)
    for axis, letter in AXES.items():
        if max(family.HAS_RANKS) + axis < 0:
            continue
        for name, (words, of) in _of_axis(family).items():
            missing = (NONE,) if min(family.HAS_RANKS) + axis < 0 else ()
            yield (
                f"{name}.{letter}",
                CoverageRow((*words, *missing), partial(_class_on_axis, of, axis)),
            )
    default = {field.name: field.default for field in fields(family)}
    for field in family.KEYS.values():
        of_key = partial(_key, field.name, default[field.name])
        words = (field.draws or field.words) if field.codec == "word" else field.words
        yield field.name, CoverageRow(tuple(dict.fromkeys(words)) or ("default", "other"), of_key)


def _types(op: str) -> tuple[str, ...]:
    """Return the types that are drawn: of the default ones those that the op has, else its own."""
    plain = cases([op])
    problem = plain.of(bytes(plain.size)).call.problem
    had = [c for c in CODES if any(problem.refuses(c, pass_) is None for pass_ in passes(op))]
    return tuple(c for c in had if c in DTYPES) or tuple(had)


def _words(bounds: Sequence[Any]) -> tuple[str, ...]:
    """Return the name of each class of numbers, given the least of each."""
    return tuple(f"{a}" if b == a + 1 else f"{a}.." for a, b in pairwise((*bounds, 10**9)))


def _class(bounds: Sequence[Any], value: Any) -> str:
    return _words(bounds)[bisect_right(bounds, value) - 1]


def _of_head(family: type[Problem], name: str) -> CoverageRow:
    least = family.LEAST.get(name, 0)
    bounds = SIZES[SIZES.index(least) :]

    def of(case: Case) -> str:
        problem = case.call.problem
        return _class(bounds, getattr(problem, name) // (1 if name == "n" else problem.groups))

    return CoverageRow(_words(bounds), of)


OfAxis = Callable[[Problem, int], str]


def _of_axis(family: type[Problem]) -> dict[str, tuple[tuple[str, ...], OfAxis]]:
    """Return the classes of the fields that have a value per axis."""
    found: dict[str, tuple[tuple[str, ...], OfAxis]] = {}
    for name, least in family.SIZES:
        bounds = STEPS.get(name, SIZES[SIZES.index(least) :])
        found[name] = (_words(bounds), partial(_size, name, bounds))
    if "p" in family.PARTS:
        found["padding"] = (PADDINGS, _padding)
    if "output" in found:
        found["ratio"] = (_words(RATIOS), _ratio)
    return found


def _class_on_axis(of: OfAxis, axis: int, case: Case) -> str:
    problem = case.call.problem
    return of(problem, axis) if problem.rank + axis >= 0 else NONE


def _size(name: str, bounds: Sequence[int], problem: Problem, axis: int) -> str:
    return _class(bounds, getattr(problem, name)[axis])


def _padding(problem: Problem, axis: int) -> str:
    lo, hi = problem.padding[axis]
    if min(lo, hi) < 0:
        return "negative"
    if max(lo, hi) > problem.dilation[axis] * (problem.filter[axis] - 1):
        return "beyond the window"
    return "unequal" if lo != hi else "equal" if lo else "none"


def _ratio(problem: Problem, axis: int) -> str:
    return _class(RATIOS, Fraction(problem.output[axis], max(1, problem.input[axis])))


def _groups(case: Case) -> str:
    problem = case.call.problem
    return "1" if problem.groups == 1 else "depthwise" if problem.groups == problem.c else "other"


def _key(name: str, default: Any, case: Case) -> str:
    call = case.call
    value = getattr(call.problem, name)
    if isinstance(value, str):
        return value
    if default is None:  # it may depend on the type
        unset: dict[str, Any] = {name: None}
        plain = replace(call.problem, **unset)
        default = getattr(plain.for_pass(call.pass_, call.dtype), name)
    usual = not any(value) if isinstance(value, tuple) and not default else value == default
    return "default" if usual else "other"


def _memory(case: Case) -> str:
    call = case.call
    letters = (axis_letters(call.problem, role) for role in call.roles)
    kinds = set(map(_view, call.specs, letters)) - {""}
    return kinds.pop() if len(kinds) == 1 else "several" if kinds else "plain"


def _view(spec: Spec, letters: str) -> str:
    if any(k > SPARSE // 2**12 for _, k in spec.step):
        return "far"
    views = [name for name in ("step", "expand", "offset") if getattr(spec, name)]
    if spec.order:
        views.append("channels last" if spec.order == channels_last(letters) else "order")
    return views[0] if len(views) == 1 else "several" if views else ""
