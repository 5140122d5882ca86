"""Known bugs: regions of calls that a released library computes wrongly, read from a text file.

A line of the file is

    ID | BACKEND | TERM, TERM, ... | LINK | NOTE

BACKEND is a backend's name; ``NAME.raw`` is the backend as the court calls it, without convref's
own edge rules. A TERM is ``FIELD OP LITERAL`` with OP out of ``= != < <= > >= in``; a call is in
the region if all of them hold. Nothing is evaluated.

    op pass dt math dev     texts, as in the line; dev is cpu where the line has none
    rank size cg kg         numbers; size is that of the input in elements, cg and kg are channels
    cg16 kg16               per group, cg16 and kg16 what blocks of 16 leave of them
    n c k g t mode red ...  any field with one value, by its key in the line; "" or 0 where an op
                            does not have it
    i s d f o op lo hi ...  one number per axis, written any.s, all.s, w.s, h.s or d.s; room is how
                            far the image, without padding, is larger than the dilated filter
    want.dx given.b_dot     whether a result is requested, or an operand is present: 0 or 1
    order.x expand.x        text: axes from outermost to innermost or "plain"; axes of stride 0
    step.x off.x            numbers: the largest step, the offset; any.x is any operand
    fill                    text; a call has no data, so no region with a fill contains a call
    fp.NAME                 text: an entry of the backend's fingerprint, "" if it has none

All ``any.`` terms of a line must hold on one and the same axis.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import prod
from pathlib import Path
from typing import Any

from .backends.registry import load
from .case import Call, Case, Spec
from .errors import invalid, shorten
from .ops import FAMILY

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
_TERM = re.compile(r"([a-z0-9_.]{1,40})\s*(!=|<=|>=|=|<|>|\bin\b)\s*([A-Za-z0-9_.+ -]{0,160})")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINK = re.compile(r"https://[A-Za-z0-9./#_-]{1,200}|-")

# Texts and numbers of a call by name, with their type.
_CALL: dict[str, tuple[type, Callable[[Call], Any]]] = {
    "op": (str, lambda call: call.op),
    "pass": (str, lambda call: call.pass_),
    "dt": (str, lambda call: call.dtype),
    "math": (str, lambda call: call.math),
    "dev": (str, lambda call: call.specs[0].device),
    "rank": (int, lambda call: call.problem.rank),
    "size": (int, lambda call: prod(call.problem.shape("x"))),
    "cg": (int, lambda call: _per_group(call, "c")),
    "kg": (int, lambda call: _per_group(call, "k")),
    "cg16": (int, lambda call: _per_group(call, "c") % 16),
    "kg16": (int, lambda call: _per_group(call, "k") % 16),
}
# The properties of an operand's memory that a scope names, with their types.
_MEMORY: dict[str, tuple[type, Callable[[Spec], Any]]] = {
    "order": (str, lambda spec: spec.order or "plain"),
    "expand": (str, lambda spec: spec.expand),
    "step": (int, lambda spec: max((k for _, k in spec.step), default=1)),
    "off": (int, lambda spec: spec.offset),
}
_KIND = ("op", "pass", "dt")  # what campaigns draw few of
_KINDS: dict[str, type] = {"integer": int, "flag": int, "float": float, "word": str}  # by codec
# The fields with one value that some op has, by their key in the line.
_FIELDS: dict[str, type] = {
    key: _KINDS[field.codec]
    for family in FAMILY.values()
    for key, field in family.line_fields().items()
    if field.codec in _KINDS
}
_SIZES = ("i", "f", "s", "d", "op")  # per axis, as in the line
_GEOMETRY = ("lo", "hi", "span", "mirror_lo", "mirror_hi", "empty_windows", "empty_taps")


def _per_group(call: Call, letter: str) -> int:
    channels: int = call.problem.line_value(letter) or 0
    return channels // call.problem.groups


def _size(key: str, call: Call, a: int) -> int:
    """Return a size of the line on one axis; 0 where an op does not have it."""
    sizes = call.problem.line_value(key)
    return 0 if sizes is None else sizes[a]


def _geometry(name: str, call: Call, a: int) -> int:
    """Return a property of a sliding window; 0 where an op has none."""
    axes = call.problem.axes  # none where an op slides no window
    return getattr(axes[a], name, 0) if axes else 0


def _output(call: Call, a: int) -> int:
    sizes = getattr(call.problem, "output", call.problem.input)  # an activation keeps its size
    return int(sizes[a])


def _ratio(call: Call, a: int) -> int:
    whole, rest = divmod(_output(call, a), max(1, call.problem.input[a]))
    return 0 if rest else whole


def _rescaled(call: Call, a: int) -> int:
    scale = call.problem.line_value("scale")
    return int(bool(scale) and scale[a] != _output(call, a) / call.problem.input[a])


_AXIS: dict[str, Callable[[Call, int], Any]] = {
    **{name: partial(_size, name) for name in _SIZES},
    **{name: partial(_geometry, name) for name in _GEOMETRY},
    "o": _output,
    "room": lambda call, a: call.problem.input[a] - _geometry("span", call, a),
    # how many outputs an input has, 0 if not a whole number; and whether a scale says otherwise
    "ratio": _ratio,
    "rescaled": _rescaled,
}
_LETTERS = ("d", "h", "w")
_SCOPES = ("any", "all", *_LETTERS)


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
    """A known bug and the calls that it affects."""

    id: str
    backend: str  # name of the backend
    raw: bool  # whether convref's edge rules avoid the bug, so that only the court meets it
    terms: tuple[Term, ...]  # all must hold
    link: str
    note: str

    def contains(self, item: Call | Case, facts: Facts | None = None) -> bool:
        """Return whether a call or case is in the region.

        Without the backend's fingerprint, a region with an ``fp.`` term contains nothing.
        """
        call = item.call if isinstance(item, Case) else item
        plain, moving = self._parts
        if not all(_holds(term, item, call, facts) for term in plain):
            return False
        return not moving or any(
            all(term.holds(_AXIS[term.field](call, a)) for term in moving)
            for a in range(call.problem.rank)
        )

    def may_contain(self, call: Call) -> bool:
        """Return whether some call of the op, the pass and the dtype of `call` may be in it."""
        known = (term for term in self.terms if not term.scope and term.field in _KIND)
        return all(term.holds(_CALL[term.field][1](call)) for term in known)

    @cached_property
    def _parts(self) -> tuple[list[Term], list[Term]]:
        """The terms by themselves, and those that must hold on one axis together."""
        moving = [term for term in self.terms if term.scope == "any" and term.field in _AXIS]
        return [term for term in self.terms if term not in moving], moving


def _holds(term: Term, item: Call | Case, call: Call, facts: Facts | None) -> bool:
    if term.scope not in _SCOPES:
        return any(map(term.holds, _values(term, item, call, facts)))
    axes, letters = range(call.problem.rank), _LETTERS[3 - call.problem.rank :]
    found = [a for a in axes if term.scope in ("all", letters[a])]
    return bool(found) and all(term.holds(_AXIS[term.field](call, a)) for a in found)


def _values(term: Term, item: Call | Case, call: Call, facts: Facts | None) -> list[Any]:
    """Return the values of a field, one of which must satisfy the term; none if it is unknown."""
    scope, name = term.scope, term.field
    if scope == "want":
        return [int(name in call.wanted)]
    if scope == "given" or scope in _MEMORY:  # costly, and most terms are others
        given = zip(call.roles, call.specs)
        present = {role: spec for role, spec in given if call.is_present(role)}
        if scope == "given":
            return [int(name in present)]
        return [_MEMORY[scope][1](spec) for r, spec in present.items() if name in (r, "any")]
    if scope == "fp":
        return [] if facts is None else [facts.get(name, "")]
    if name == "fill":
        return [item.fill] if isinstance(item, Case) else []
    if name in _CALL:
        return [_CALL[name][1](call)]
    value = call.problem.line_value(name)
    return [_FIELDS[name]() if value is None else value]


def parse_regions(text: str, source: str = "known bugs") -> tuple[Region, ...]:
    """Return the regions of a file's text; blank lines and those that begin with # are left out.

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
            raise invalid(where, f"id {region.id} occurs twice, needs to be unique")
        found[region.id] = region
    return tuple(found.values())


def _region(where: str, line: str) -> Region:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) != 5:
        needs = "needs 5: ID | BACKEND | TERMS | LINK | NOTE"
        raise invalid(where, f"has {len(parts)} columns, {needs}")
    name, backend, terms, link, note = parts
    if not _ID.fullmatch(name):
        needs = "needs up to 64 letters, digits and ._-"
        raise invalid(where, f"id is {shorten(repr(name), 60)}, {needs}")
    if not _LINK.fullmatch(link):
        raise invalid(where, f"link is {shorten(repr(link), 60)}, needs https://... or -")
    raw = backend.endswith(".raw")
    return Region(name, backend.removesuffix(".raw"), raw, _terms(where, terms), link, note)


def _terms(where: str, terms: str) -> tuple[Term, ...]:
    texts = [term.strip() for term in terms.split(",")]
    if not 1 <= len(texts) <= MAX_TERMS:
        raise invalid(where, f"has {len(texts)} terms, needs 1 to {MAX_TERMS}")
    return tuple(_term(where, term) for term in texts)


def _term(where: str, text: str) -> Term:
    match = _TERM.fullmatch(text)
    if match is None:
        raise invalid(where, f"{shorten(repr(text), 60)} is not a term, needs FIELD OP LITERAL")
    name, compare, literal = match[1], match[2], match[3].strip()
    scope, _, last = name.rpartition(".")
    kind = _kind(scope, last)
    if kind is None:
        raise invalid(where, f"{shorten(name, 40)} is not a field, needs one such as op or any.s")
    words = literal.split() if compare == "in" else [literal]
    try:
        values = [kind(word) for word in words]
    except ValueError:
        raise invalid(where, f"{shorten(literal, 40)} is not a number for {name}") from None
    return Term(scope, last, compare, tuple(values) if compare == "in" else values[0])


def _kind(scope: str, name: str) -> type | None:
    """Return the type of a field's values, or None if there is no such field."""
    if scope in ("want", "given"):
        return int
    if scope in _MEMORY:
        return _MEMORY[scope][0]
    if scope == "fp" or (not scope and name == "fill"):
        return str
    if scope:
        return int if scope in _SCOPES and name in _AXIS else None
    return _CALL[name][0] if name in _CALL else _FIELDS.get(name)


def refusals(text: str, source: str = "refusals") -> Callable[[Call], str | None]:
    """Return a ``supports`` method made from a table of reasons.

    Parameters
    ----------
    text : str
        One line per reason, ``TERM, TERM | REASON``, with the terms of known bugs; the first line
        that contains a call gives the reason.
    source : str
        Where the text is from, for messages.

    Raises
    ------
    ConvrefError
        Naming the line that is malformed.

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
        raise invalid(where, "has no reason, needs TERMS | REASON")
    found = _terms(where, terms)
    if any(term.field == "fill" or term.scope == "fp" for term in found):
        raise invalid(where, "has a term on data or versions, needs terms of a call")
    return Region("", "", False, found, "-", reason.strip())


def _rows(source: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither blank nor comments, with their numbers."""
    lines = text.splitlines()
    if len(text) > MAX_BYTES or len(lines) > MAX_LINES:
        raise invalid(source, f"has more than {MAX_BYTES >> 20} MiB of text")
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


@cache
def shipped_regions() -> tuple[Region, ...]:
    """Return the regions that come with convref."""
    return parse_regions(FILE.read_text("utf-8"), FILE.name)


def regions(backend: str, *, raw: bool = True) -> tuple[Region, ...]:
    """Return the shipped regions of a backend; those of its raw form too unless `raw` is False."""
    return tuple(r for r in shipped_regions() if r.backend == backend and (raw or not r.raw))


def regions_of(name: str, more: tuple[Region, ...] = ()) -> tuple[Region, ...]:
    """Return the regions of a backend as the court calls it: the shipped ones and a user's own.

    A region may have the name that `convref.dispatch.load` takes, or the backend's own.

    >>> {region.backend for region in regions_of("convref.backends.loops:backend")}
    set()
    """
    own = load(name).name
    return tuple(region for region in (*shipped_regions(), *more) if region.backend in (name, own))


def region_of(
    item: Call | Case, backend: str, facts: Facts | None = None, *, raw: bool = False
) -> Region | None:
    """Return the first shipped region of `backend` that contains a call or case, or None.

    The facts are the backend's fingerprint. `raw`: the library is called as it is, as the court
    does.

    >>> from convref.case import parse
    >>> region_of(parse("conv.fprop:n1c8k1_i20_f3_p-5,1"), "jax").id
    'xla-48713'
    >>> region_of(parse("conv.fprop:n1c8k1_i20_f3"), "jax") is None
    True
    """
    mine = regions(backend, raw=raw)
    return next((region for region in mine if region.contains(item, facts)), None)
