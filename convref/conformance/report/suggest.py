"""Lines for a backend's `refusals`, made from the calls that it raises errors on."""

import re
from collections.abc import Iterator, Sequence

from ...case import Call, parse
from ...errors import ConvrefError, shorten
from ...knownbugs import refusals
from ..causes import Failure

_SIZES = {"stride": "s", "dilation": "d", "filter": "f", "input": "i", "output_padding": "op"}
_NEED = re.compile(r"([a-z_.]+)(?:\[(\d)\])?(?:\.(lo|hi))? (.+)")


def suggestions(failures: Sequence[Failure]) -> list[str]:
    """Return a line of `convref.knownbugs.refusals` for each repeated kind of rejects-valid.

    >>> found = Failure("conv.jvp:n1c1k1_i1_f1_s2", "rejects-valid", "ValueError: s", seen=2)
    >>> suggestions([found])
    ['op = conv, pass = jvp | ValueError: s']
    """
    chosen = [f for f in failures if f.verdict == "rejects-valid" and f.seen > 1]
    return list(dict.fromkeys(_line(failure) for failure in chosen))


def _line(failure: Failure) -> str:
    call = parse(failure.line).call
    places = {call.pass_, *(where.partition(".")[2].partition(" ")[0] for where in failure.also)}
    passes = {p for p in places if p in ("fprop", "backward", "jvp", "double_backward")}
    word = f"pass = {call.pass_}" if len(passes) == 1 else f"pass in {' '.join(sorted(passes))}"
    always = [f"op = {call.op}", word]
    reason = shorten(failure.reason.replace("|", "/"), 100)
    terms = [term for need in failure.needs for term in _terms(call, need)]
    kept = [term for term in dict.fromkeys(terms) if _holds(", ".join([*always, term]), call)]
    whole = ", ".join([*always, *kept])
    return f"{whole if _holds(whole, call) else ', '.join(always)} | {reason}"


def _holds(terms: str, call: Call) -> bool:
    """Return whether a line of refusals is well-formed and contains a call."""
    try:
        return refusals(f"{terms} | .")(call) is not None
    except ConvrefError:
        return False


def _terms(call: Call, need: str) -> Iterator[str]:
    """Yield what a need of a failure may be as a term; not all are fields of the call."""
    match = _NEED.fullmatch(need)
    if match is None:
        return
    name, _, edge, value = match.groups()
    if name == "dtype":
        yield f"dt {value}"
    elif name.startswith("mem."):
        role, spec = name.removeprefix("mem."), call.spec(name.removeprefix("mem."))
        yield from (f"order.{role} != plain" for _ in filter(None, [spec.order]))
        yield from (f"expand.{role} != " for _ in filter(None, [spec.expand]))
        yield from (f"step.{role} >= 2" for _ in filter(None, [spec.step]))
    elif edge:
        yield f"any.{edge} {'< 0' if '-' in value else '> 0'}"
    elif name in _SIZES:
        yield f"any.{_SIZES[name]} {value}"
    else:
        keys = {field.name: key for key, field in call.problem.line_fields().items()}
        yield f"{keys.get(name, name)} {value}"
