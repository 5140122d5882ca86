"""From a function's name, or OP.PASS, and its arguments to the calls that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from inspect import signature
from typing import Any

from ..arrays import facts
from ..case import argument
from ..errors import hint, invalid, needs_one, shorten
from ..ops import BASE_ROLE, RANKS, SIGNATURE, passes
from . import __all__ as NAMES
from . import function as public
from .conv import CONV, rank_of
from .run import CallTrace, ResultMark, Traced

# The function of OP.PASS, where it is not OP_PASS or OP{rank}d_PASS.
_CALLED = {
    "batch_norm.fprop": "batch_norm_statistics",
    "instance_norm.fprop": "instance_norm_statistics",
    "unfold.backward": "fold",
    "fold.backward": "unfold",
}
_OP = {"interpolate": "resize"}  # an op with functions of two names
_FIXED: dict[str, dict[str, Any]] = {
    "batch_norm": {"training": True},
    "batch_norm_eval": {"training": False},
}
_EVERY_RESULT = {"return_indices": True, "return_statistics": True}


@dataclass(frozen=True)
class Recorded:
    """The calls that a function makes, and a Mark, or None, for each result that it returns."""

    calls: Sequence[Traced]
    results: tuple[ResultMark | None, ...]


def record(
    name: Any, operands: Sequence[Any], arguments: dict[str, Any], where: str = "case_of"
) -> Recorded:
    """Return the calls that the function `name`, or the pass OP.PASS, makes.

    A public function, or its name, takes `operands` as its first arguments, OP.PASS by role.
    """
    called = getattr(name, "__name__", "")
    name = called if called in NAMES and name is public(called) else name
    stem, _, pass_ = str(name).partition(".")
    op = _OP.get(stem, stem)
    if (op, pass_) in SIGNATURE:
        take = _conv if op == "conv" else _by_role
        return take(stem, op, pass_, operands, dict(arguments))
    if not isinstance(name, str) or name not in NAMES:
        raise invalid(where, _unknown(name, op))
    return _traced(name, public(name), tuple(operands), arguments)


def _unknown(name: Any, op: str) -> str:
    """Return the message on an unknown name, with similar names."""
    if known := tuple(passes(op)):
        meant = hint(str(name).partition(".")[2], known)
        listed = ", ".join(f"{op}.{pass_}" for pass_ in known)
        return f"name is {shorten(name)}, needs one of {listed}{meant}"
    names = [*NAMES, *(f"{op}.{pass_}" for op, pass_ in SIGNATURE)]
    like = get_close_matches(shorten(name), names) or ["conv2d"]
    return f"name is {shorten(name)}, needs a function or OP.PASS: {', '.join(like)}, conv.fprop"


def _traced(
    name: str, function: Callable[..., Any], operands: tuple[Any, ...], arguments: dict[str, Any]
) -> Recorded:
    """Return the calls of a function; an error names arguments that it does not take."""
    trace, form = CallTrace(), signature(function)
    accepted = [parameter for parameter in form.parameters if parameter != "backend"]
    _accept(name, arguments, accepted)
    try:
        bound = form.bind(*operands, **arguments)
    except TypeError as error:
        raise invalid(name, f"{error}, needs ({', '.join(accepted)})") from None
    results = function(*bound.args, **bound.kwargs, backend=trace)
    return Recorded(trace.calls, results if isinstance(results, tuple) else (results,))


def _accept(name: str, arguments: Iterable[str], accepted: Sequence[str]) -> None:
    for given in arguments:
        if given not in accepted:
            wanted = needs_one(given, accepted) if accepted else "needs none"
            raise invalid(name, f"argument {shorten(given)} is unknown, {wanted}")


def _padded(name: str, operands: Sequence[Any], roles: Sequence[str]) -> tuple[Any, ...]:
    """Return an operand for each role, None for those missing at the end of the list."""
    if len(operands) > len(roles):
        raise invalid(name, f"got {len(operands)} operands, needs {len(roles)}: {', '.join(roles)}")
    return (*operands, *(None,) * (len(roles) - len(operands)))


def _conv(
    stem: str, op: str, pass_: str, operands: Sequence[Any], arguments: dict[str, Any]
) -> Recorded:
    """Return the calls of a pass of convolution, which takes all settings in every pass."""
    form, name, trace = SIGNATURE[op, pass_], f"{stem}.{pass_}", CallTrace()
    arrays = _padded(name, operands, form.operands)
    mask = ("output_mask",) if form.maskable else ()
    defaults = {p.name: p.default for p in CONV.parameters if p.name in CONV.settings}
    _accept(name, arguments, [*(n for n in defaults if n != "bias_sizes"), "layout", *mask])
    bits = arguments.pop("output_mask", (True, True, True)) if mask else ()
    layout = arguments.pop("layout", None)
    settings = tuple({**defaults, **arguments}.values())
    rank = rank_of(name, arrays[form.operands.index("w")])
    return Recorded(
        trace.calls, CONV.compute(pass_, arrays, settings, layout, trace, mask=bits, rank=rank)
    )


def _by_role(
    stem: str, op: str, pass_: str, operands: Sequence[Any], arguments: dict[str, Any]
) -> Recorded:
    """Return the calls of a pass; its function takes operands by role, returns every result."""
    name = f"{stem}.{pass_}"
    arrays = _padded(name, operands, SIGNATURE[op, pass_].operands)
    source = _source(op, pass_)
    function = _function(stem, name, source[1], arrays)
    parameters = signature(function).parameters
    given = _arguments(SIGNATURE[source].operands, arrays, "primals" in parameters)
    fixed = {**_FIXED.get(stem, {}), **_EVERY_RESULT}
    fixed = {name: value for name, value in fixed.items() if name in parameters}
    free = [p for p in parameters if p not in (*given, *fixed, "backend")]
    _accept(name, arguments, free)
    found = _traced(name, function, (), {**given, **fixed, **arguments})
    return found if source == (op, pass_) else _renamed(found, op, pass_)


def _source(op: str, pass_: str) -> tuple[str, str]:
    """Return the op and pass whose function computes it: the forward one if the op is linear."""
    if op in ("unfold", "fold") and pass_ == "backward":
        return _CALLED[f"{op}.{pass_}"], "fprop"
    bases = tuple(BASE_ROLE[role] for role in SIGNATURE[op, pass_].operands)
    return op, "fprop" if bases == SIGNATURE[op, "fprop"].operands else pass_


def _function(stem: str, name: str, pass_: str, arrays: Sequence[Any]) -> Callable[..., Any]:
    """Return the public function of a pass, for the rank that the first operand has."""
    if name in _CALLED:
        return public(_CALLED[name])
    op, suffix = stem.removesuffix("_eval"), "" if pass_ == "fprop" else f"_{pass_}"
    if op + suffix in NAMES:
        return public(op + suffix)
    axes = 0 if arrays[0] is None else len(facts(name, "operand 1", arrays[0]).shape)
    rank = min(max(axes - 2, min(RANKS)), max(RANKS))
    return public(f"{op}{rank}d{suffix}")


def _arguments(roles: Sequence[str], arrays: Sequence[Any], pairs: bool) -> dict[str, Any]:
    """Return operands by the names of a function's parameters; tangents and primals as tuples."""
    given = dict(zip(roles, arrays, strict=True))
    if not pairs:
        return {argument(role): array for role, array in given.items()}
    dots = [role for role in roles if role.endswith("_dot")]
    tangents = tuple(given.pop(role) for role in dots)
    primals = tuple(given.pop(BASE_ROLE[role]) for role in dots)
    rest = {argument(role): array for role, array in given.items()}
    return {"primals": primals, "tangents": tangents, **rest}


def _renamed(found: Recorded, op: str, pass_: str) -> Recorded:
    """Return a forward call as the pass that computes the same from operands of other names."""
    (traced,) = found.calls
    call = traced.prepared.call
    names = dict(zip(call.signature.results, SIGNATURE[op, pass_].results, strict=True))
    for mark in found.results:
        assert mark is not None
        mark.place = 0, names[mark.place[1]]
    prepared = replace(traced.prepared, call=replace(call, op=op, pass_=pass_))
    return Recorded([replace(traced, prepared=prepared)], found.results)
