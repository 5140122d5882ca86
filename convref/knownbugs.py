"""Known bugs: regions of calls that a released library computes wrongly, read from a text file.

A line of the file is

    ID | BACKEND | TERM, TERM, ... | LINK | NOTE

BACKEND is a backend's name; with ``.raw`` behind it only the court's view of it is meant, which
convref's own edge rules do not protect. A TERM is ``FIELD OP LITERAL`` with OP out of
``= != < <= > >= in``; a call lies in the region if all of them hold. Nothing is evaluated.

    op pass dt math mode coord near red     texts, as in the line; "" where an op has none
    rank t flip bias g n c k cg kg      numbers; cg and kg are channels in a group
    aa xo ceil cip div      numbers: switches of a resize, and of pools; 0 where there are none
    size                    number: elements of the image
    dim                     number: the axis of a softmax; -1 where there is none
    i s d f o op lo hi ...  one number per axis, asked as any.s, all.s, w.s, h.s or d.s
    want.dx given.b_dot     whether a result is asked for, or an operand is there: 0 or 1
    order.x expand.x        text: axes from outermost to innermost or "plain"; axes of stride 0
    step.x off.x            numbers: the largest step, the offset; any.x stands for every operand
    fill                    text; a call has no data, so it is in no region that asks for it
    fp.NAME                 text: an entry of the backend's fingerprint, "" if it has none

All ``any.`` terms of a line must hold on one and the same axis.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from .case import Call, Case
from .errors import ConvrefError, message, shorten
from .ops import Axis, ConvProblem

FILE = Path(__file__).with_name("known_bugs.txt")
MAX_BYTES, MAX_LINES, MAX_TERMS = 1 << 20, 10_000, 32

Facts = Mapping[str, str]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, options: value in options,
}
_TERM = re.compile(r"([a-z0-9_.]{1,40})\s*(!=|<=|>=|=|<|>|\bin\b)\s*([A-Za-z0-9_.+ -]{0,80})")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINK = re.compile(r"https://[A-Za-z0-9./#_-]{1,200}|-")

_TEXTS: dict[str, Callable[[Call], str]] = {
    "op": lambda call: call.op,
    "pass": lambda call: call.pass_,
    "dt": lambda call: call.dtype,
    "math": lambda call: call.math,
    "mode": lambda call: getattr(call.problem, "mode", ""),
    "coord": lambda call: getattr(call.problem, "coord", ""),
    "near": lambda call: getattr(call.problem, "near", ""),
    "red": lambda call: getattr(call.problem, "reduction", ""),
}
_NUMBERS: dict[str, Callable[[Call], int]] = {
    "rank": lambda call: call.problem.rank,
    "n": lambda call: call.problem.n,
    "c": lambda call: call.problem.c,
    "k": lambda call: getattr(call.problem, "k", 0),
    "g": lambda call: _groups(call),
    "cg": lambda call: call.problem.c // _groups(call),
    "kg": lambda call: getattr(call.problem, "k", 0) // _groups(call),
    "t": lambda call: int(getattr(call.problem, "transposed", False)),
    "flip": lambda call: int(getattr(call.problem, "flip", False)),
    "bias": lambda call: int(getattr(call.problem, "bias", False)),
    "aa": lambda call: int(getattr(call.problem, "antialias", False)),
    "xo": lambda call: int(getattr(call.problem, "exclude", False)),
    "ceil": lambda call: int(getattr(call.problem, "ceil", False)),
    "cip": lambda call: int(getattr(call.problem, "include_pad", False)),
    "div": lambda call: getattr(call.problem, "divisor", 0),
    "size": lambda call: prod(call.problem.shape("x")),
    "dim": lambda call: getattr(call.problem, "dim", -1),
}
# One number per axis: sizes as in the line, and what follows from them.
_AXIS: dict[str, Callable[[Call, int, Axis], int]] = {
    "i": lambda call, a, axis: call.problem.input[a],
    "o": lambda call, a, axis: call.problem.output[a],
    "f": lambda call, a, axis: axis.taps,
    "s": lambda call, a, axis: axis.stride,
    "d": lambda call, a, axis: axis.dilation,
    "lo": lambda call, a, axis: axis.lo,
    "hi": lambda call, a, axis: axis.hi,
    "op": lambda call, a, axis: getattr(call.problem, "output_padding", (0, 0, 0))[a],
    "span": lambda call, a, axis: _span(axis),
    # padding of the scatter written as a gather; negative where padding exceeds the filter
    "mirror_lo": lambda call, a, axis: _span(axis) - 1 - axis.lo,
    "mirror_hi": lambda call, a, axis: _mirror_hi(axis),
    # windows, or taps of some window, that lie wholly in padding
    "empty_windows": lambda call, a, axis: axis.small - len(_reading(axis)),
    "empty_taps": lambda call, a, axis: axis.small * axis.taps - axis.real_taps,
    # how many outputs an input has, 0 if not a whole number; and whether a scale says otherwise
    "ratio": lambda call, a, axis: _ratio(call, a),
    "rescaled": lambda call, a, axis: int(_rescaled(call, a)),
}
_LETTERS = ("d", "h", "w")
_SCOPES = ("any", "all", *_LETTERS)


def _groups(call: Call) -> int:
    return call.problem.groups if isinstance(call.problem, ConvProblem) else 1


def _ratio(call: Call, a: int) -> int:
    whole, rest = divmod(call.problem.output[a], max(1, call.problem.input[a]))
    return 0 if rest else whole


def _rescaled(call: Call, a: int) -> bool:
    scale = getattr(call.problem, "scale", ())
    return bool(scale) and scale[a] != call.problem.output[a] / call.problem.input[a]


def _span(axis: Axis) -> int:
    return axis.dilation * (axis.taps - 1) + 1


def _mirror_hi(axis: Axis) -> int:
    """Return the high padding of the gather that scatters: what is left of the big side."""
    return axis.big + axis.lo - (axis.small - 1) * axis.stride - 1


def _reading(axis: Axis) -> set[int]:
    """Return the windows that read at least one position that exists."""
    return {p for r in range(axis.taps) for p in axis.windows_at(r)}


@dataclass(frozen=True)
class Term:
    """One ``FIELD OP LITERAL``; `scope` is the part before the dot, or empty."""

    scope: str
    field: str
    compare: str
    literal: Any

    def holds(self, value: Any) -> bool:
        """Return whether a value of the field satisfies the term."""
        return bool(_COMPARE[self.compare](value, self.literal))


@dataclass(frozen=True)
class Region:
    """A known bug: where it is, and what is known of it.

    Parameters
    ----------
    id : str
    backend : str
        Name of the backend.
    raw : bool
        Whether convref's own edge rules keep users out of it, so that only the court sees it.
    terms : tuple of Term
        All must hold.
    link, note : str
    """

    id: str
    backend: str
    raw: bool
    terms: tuple[Term, ...]
    link: str
    note: str

    def contains(self, item: Call | Case, facts: Facts | None = None) -> bool:
        """Return whether a call or case lies in the region.

        Parameters
        ----------
        item : Call or Case
        facts : mapping, optional
            The backend's fingerprint; without it no region that asks for one contains anything.
        """
        call = item.call if isinstance(item, Case) else item
        plain = [term for term in self.terms if term.scope != "any" or term.field not in _AXIS]
        if not all(_plain_holds(term, item, call, facts) for term in plain):
            return False
        moving = [term for term in self.terms if term not in plain]
        return not moving or any(
            all(term.holds(_AXIS[term.field](call, a, axis)) for term in moving)
            for a, axis in enumerate(call.problem.axes)
        )


def _plain_holds(term: Term, item: Call | Case, call: Call, facts: Facts | None) -> bool:
    name = term.field
    if term.scope in ("want", "given", "order", "expand", "step", "off"):
        return any(term.holds(v) for v in _memory(term.scope, name, call))
    if term.scope == "fp":
        return facts is not None and term.holds(facts.get(name, ""))
    if term.scope:
        axes = list(enumerate(call.problem.axes))
        if term.scope != "all":
            letters = _LETTERS[3 - call.problem.rank :]
            axes = [pair for pair, letter in zip(axes, letters) if letter == term.scope]
        return bool(axes) and all(term.holds(_AXIS[name](call, a, axis)) for a, axis in axes)
    if name == "fill":
        return isinstance(item, Case) and term.holds(item.fill)
    return term.holds(_TEXTS[name](call) if name in _TEXTS else _NUMBERS[name](call))


def _memory(what: str, role: str, call: Call) -> Iterator[Any]:
    """Yield the values of a field of one operand or result, or of every operand."""
    if what in ("want", "given"):
        there = call.wanted if what == "want" else tuple(filter(call.is_present, call.roles))
        yield int(role in there)
        return
    for name, spec in zip(call.roles, call.specs):
        if role in (name, "any") and call.is_present(name):
            yield {
                "order": spec.order or "plain",
                "expand": spec.expand,
                "step": max((k for _, k in spec.step), default=1),
                "off": spec.offset,
            }[what]


def parse_regions(text: str, source: str = "known bugs") -> tuple[Region, ...]:
    """Return the regions of a file's text; blank lines and those that begin with # are left out.

    Raises
    ------
    ConvrefError
        Naming the line that is malformed.

    Examples
    --------
    >>> region, = parse_regions("b1 | torch | dt = f32, any.s >= 2 | - | strided")
    >>> from convref.case import parse
    >>> region.contains(parse("conv.fprop:n1c1k1_i3x3_f1_s1x2")), region.id
    (True, 'b1')
    """
    found: dict[str, Region] = {}
    for number, line in _rows(source, text):
        where = f"{source}, line {number}"
        region = _region(where, line)
        if region.id in found:
            raise ConvrefError(message(where, f"id {region.id} is there twice, needs to be unique"))
        found[region.id] = region
    return tuple(found.values())


def _region(where: str, line: str) -> Region:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) != 5:
        needs = "needs 5: ID | BACKEND | TERMS | LINK | NOTE"
        raise ConvrefError(message(where, f"has {len(parts)} columns, {needs}"))
    name, backend, terms, link, note = parts
    for what, pattern, value in (("id", _ID, name), ("link", _LINK, link)):
        if not pattern.fullmatch(value):
            raise ConvrefError(message(where, f"{what} is {shorten(repr(value), 60)}"))
    raw = backend.endswith(".raw")
    return Region(name, backend.removesuffix(".raw"), raw, _terms(where, terms), link, note)


def _terms(where: str, terms: str) -> tuple[Term, ...]:
    texts = [term.strip() for term in terms.split(",")]
    if not 1 <= len(texts) <= MAX_TERMS:
        raise ConvrefError(message(where, f"has {len(texts)} terms, needs 1 to {MAX_TERMS}"))
    return tuple(_term(where, term) for term in texts)


def _term(where: str, text: str) -> Term:
    match = _TERM.fullmatch(text)
    if match is None:
        raise ConvrefError(
            message(where, f"{shorten(repr(text), 60)} is no term, needs FIELD OP LITERAL")
        )
    name, compare, literal = match[1], match[2], match[3].strip()
    scope, _, last = name.rpartition(".")
    kind = _kind(scope, last)
    if kind is None:
        raise ConvrefError(message(where, f"{shorten(name, 40)} is no field"))
    words = literal.split() if compare == "in" else [literal]
    try:
        values = [kind(word) for word in words]
    except ValueError:
        raise ConvrefError(
            message(where, f"{shorten(literal, 40)} is no number for {name}")
        ) from None
    return Term(scope, last, compare, tuple(values) if compare == "in" else values[0])


def _kind(scope: str, name: str) -> type | None:
    """Return the type of a field's values, or None if there is no such field."""
    by_scope: dict[str, type] = {"want": int, "given": int, "step": int, "off": int}
    by_scope |= {"order": str, "expand": str, "fp": str}
    if scope in by_scope:
        return by_scope[scope]
    if scope:
        return int if scope in _SCOPES and name in _AXIS else None
    if name in _TEXTS or name == "fill":
        return str
    return int if name in _NUMBERS else None


def refusals(text: str, source: str = "refusals") -> Callable[[Call], str | None]:
    """Return what says why a backend cannot do a call: the ``supports`` of a table.

    Parameters
    ----------
    text : str
        A line for each reason, ``TERM, TERM | REASON``, with the terms of known bugs; the first
        line that contains a call counts.
    source : str
        Where the text is from, for messages.

    Raises
    ------
    ConvrefError
        Naming the line that is malformed.

    Examples
    --------
    >>> supports = refusals("op = conv, flip = 1 | flips no filter")
    >>> from convref.case import parse
    >>> supports(parse("conv.fprop:n1c1k1_i3_f2:flip=1").call)
    'flips no filter'
    >>> supports(parse("conv.fprop:n1c1k1_i3_f2").call) is None
    True
    """
    rows = [_refusal(f"{source}, line {i}", line) for i, line in _rows(source, text)]
    return lambda call: next((row.note for row in rows if row.contains(call)), None)


def _refusal(where: str, line: str) -> Region:
    terms, bar, reason = line.partition("|")
    if not bar or not reason.strip():
        raise ConvrefError(message(where, "has no reason, needs TERMS | REASON"))
    found = _terms(where, terms)
    if any(term.field == "fill" or term.scope == "fp" for term in found):
        raise ConvrefError(message(where, "asks for data or versions, needs terms of a call"))
    return Region("", "", False, found, "-", reason.strip())


def _rows(source: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, with their numbers."""
    lines = text.splitlines()
    if len(text) > MAX_BYTES or len(lines) > MAX_LINES:
        raise ConvrefError(message(source, f"has more than {MAX_BYTES >> 20} MiB of text"))
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


@cache
def shipped() -> tuple[Region, ...]:
    """Return the regions that come with convref."""
    return parse_regions(FILE.read_text("utf-8"), FILE.name)


def regions(backend: str, *, raw: bool = True) -> tuple[Region, ...]:
    """Return the shipped regions of a backend; those of its raw form too unless `raw` is False."""
    return tuple(r for r in shipped() if r.backend == backend and (raw or not r.raw))


def of(name: str, more: tuple[Region, ...] = ()) -> tuple[Region, ...]:
    """Return the regions of a backend as the court calls it: the shipped ones and a user's own.

    Parameters
    ----------
    name : str
        As `convref.dispatch.load` takes it; a region may name the backend so, or by its own name.
    more : tuple of Region
        From a file of the user's.

    Examples
    --------
    >>> {region.backend for region in of("convref.backends.loops:backend")}
    set()
    """
    from .dispatch import load  # which imports this module

    own = load(name).name
    return tuple(region for region in (*shipped(), *more) if region.backend in (name, own))


def known(
    item: Call | Case, backend: str, facts: Facts | None = None, *, raw: bool = False
) -> Region | None:
    """Return the first shipped region of `backend` that contains a call or case, or None.

    Parameters
    ----------
    item : Call or Case
    backend : str
        Name of the backend.
    facts : mapping, optional
        Its fingerprint.
    raw : bool
        Whether the library is called as it is, as the court does.

    Examples
    --------
    >>> from convref.case import parse
    >>> known(parse("conv.fprop:n1c8k1_i20_f3_p-5,1"), "jax").id
    'xla-48713'
    >>> known(parse("conv.fprop:n1c8k1_i20_f3"), "jax") is None
    True
    """
    mine = regions(backend, raw=raw)
    return next((region for region in mine if region.contains(item, facts)), None)
