"""From what a user says, a function's name or OP.PASS with its arguments, to the traced calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from inspect import signature
from typing import Any

from ..arrays import facts
from ..errors import ConvrefError, message, shorten
from ..ops import BASE_ROLE, RANKS, SIGNATURE, passes
from ._arguments import ARGUMENT
from ._run import compute
from ._trace import Mark, Trace, Traced
from .conv._problems import Settings, prepare_conv

# What OP.PASS calls, where that is not OP_PASS or OP{rank}d_PASS.
_CALLED = {
    "batch_norm.fprop": "batch_norm_statistics",
    "unfold.backward": "fold",
    "fold.backward": "unfold",
}
_OP = {"interpolate": "resize"}  # an op that functions of two names compute
_FIXED: dict[str, dict[str, Any]] = {
    "batch_norm": {"training": True},
    "batch_norm_eval": {"training": False},
}
_EVERY_RESULT = {"return_indices": True, "return_statistics": True}


@dataclass(frozen=True)
class Spoken:
    """The calls that are made, and a mark, or None, for each result that the user is given."""

    calls: Sequence[Traced]
    results: tuple[Mark | None, ...]


def spoken(name: Any, operands: Sequence[Any], arguments: dict[str, Any]) -> Spoken:
    """Return what the function called `name`, or the pass OP.PASS, would do with its arguments.

    Parameters
    ----------
    name : str
        A public function, which takes `operands` as its first arguments; or OP.PASS, which takes
        the operands by role.
    operands : sequence
    arguments : dict
        By the names of the function's parameters.
    """
    from .. import api  # which imports this module

    stem, _, pass_ = str(name).partition(".")
    op = _OP.get(stem, stem)
    if (op, pass_) in SIGNATURE:
        take = _conv if op == "conv" else _by_role
        return take(stem, op, pass_, operands, dict(arguments))
    if not isinstance(name, str) or name not in _functions(api.__all__):
        raise ConvrefError(message("case_of", _unknown(name, op, api.__all__)))
    return _traced(name, getattr(api, name), tuple(operands), arguments)


def _functions(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in ("case_of", "assert_correct")]


def _unknown(name: Any, op: str, functions: Iterable[str]) -> str:
    """Return what is wrong with a name, and what may have been meant."""
    if known := tuple(passes(op)):
        return f"name is {shorten(name)}, needs one of {', '.join(f'{op}.{p}' for p in known)}"
    names = [*_functions(functions), *(f"{op}.{pass_}" for op, pass_ in SIGNATURE)]
    like = get_close_matches(shorten(name), names) or ["conv2d"]
    return f"name is {shorten(name)}, needs a function or OP.PASS: {', '.join(like)}, conv.fprop"


def _traced(
    name: str, function: Callable[..., Any], operands: tuple[Any, ...], arguments: dict[str, Any]
) -> Spoken:
    """Return what a function would do; arguments that do not fit it are named."""
    trace, form = Trace(), signature(function)
    accepted = [parameter for parameter in form.parameters if parameter != "backend"]
    _accept(name, arguments, accepted)
    try:
        bound = form.bind(*operands, **arguments)
    except TypeError as error:
        what = f"{error}, needs ({', '.join(accepted)})"
        raise ConvrefError(message(name, what)) from None
    results = function(*bound.args, **bound.kwargs, backend=trace)
    return Spoken(trace.calls, results if isinstance(results, tuple) else (results,))


def _accept(name: str, arguments: Iterable[str], accepted: Sequence[str]) -> None:
    for argument in arguments:
        if argument not in accepted:
            needs = f"needs one of {', '.join(accepted)}" if accepted else "needs none"
            what = f"argument {shorten(argument)} is unknown, {needs}"
            raise ConvrefError(message(name, what))


def _padded(name: str, operands: Sequence[Any], roles: Sequence[str]) -> tuple[Any, ...]:
    """Return an operand for each role, None for those that a short list leaves out."""
    if len(operands) > len(roles):
        what = f"got {len(operands)} operands, needs {len(roles)}: {', '.join(roles)}"
        raise ConvrefError(message(name, what))
    return (*operands, *(None,) * (len(roles) - len(operands)))


def _conv(
    stem: str, op: str, pass_: str, operands: Sequence[Any], arguments: dict[str, Any]
) -> Spoken:
    """Return what a pass of convolution would do; in every pass it has all of the settings."""
    form, name, trace = SIGNATURE[op, pass_], f"{stem}.{pass_}", Trace()
    arrays = _padded(name, operands, form.operands)
    mask = ("output_mask",) if form.maskable else ()
    _accept(name, arguments, (*Settings._fields, *mask))
    bits = arguments.pop("output_mask", (True, True, True)) if mask else ()
    given = (pass_, 0, Settings(**arguments), bits, None)
    return Spoken(trace.calls, compute(prepare_conv, arrays, given, trace))


def _by_role(
    stem: str, op: str, pass_: str, operands: Sequence[Any], arguments: dict[str, Any]
) -> Spoken:
    """Return what a pass would do: its function is given operands by role, returns every result."""
    name = f"{stem}.{pass_}"
    arrays = _padded(name, operands, SIGNATURE[op, pass_].operands)
    source = _source(op, pass_)
    function = _function(stem, name, source[1], arrays)
    parameters = signature(function).parameters
    given = _arguments(SIGNATURE[source].operands, arrays, "primals" in parameters)
    fixed = {
        argument: value
        for argument, value in {**_FIXED.get(stem, {}), **_EVERY_RESULT}.items()
        if argument in parameters
    }
    free = [p for p in parameters if p not in (*given, *fixed, "backend")]
    _accept(name, arguments, free)
    found = _traced(name, function, (), {**given, **fixed, **arguments})
    return found if source == (op, pass_) else _renamed(found, op, pass_)


def _source(op: str, pass_: str) -> tuple[str, str]:
    """Return whose function computes a pass: that of the forward one where the op is linear."""
    if op in ("unfold", "fold") and pass_ == "backward":
        return _CALLED[f"{op}.{pass_}"], "fprop"
    bases = tuple(BASE_ROLE[role] for role in SIGNATURE[op, pass_].operands)
    return op, "fprop" if bases == SIGNATURE[op, "fprop"].operands else pass_


def _function(stem: str, name: str, pass_: str, arrays: Sequence[Any]) -> Callable[..., Any]:
    """Return the public function of a pass, for the rank that the first operand has."""
    from .. import api

    if name in _CALLED:
        return getattr(api, _CALLED[name])
    op, suffix = stem.removesuffix("_eval"), "" if pass_ == "fprop" else f"_{pass_}"
    if hasattr(api, op + suffix):
        return getattr(api, op + suffix)
    axes = 0 if arrays[0] is None else len(facts(name, "operand 1", arrays[0]).shape)
    rank = min(max(axes - 2, min(RANKS)), max(RANKS))
    return getattr(api, f"{op}{rank}d{suffix}")


def _arguments(roles: Sequence[str], arrays: Sequence[Any], pairs: bool) -> dict[str, Any]:
    """Return operands by the names of a function's parameters; tangents beside their primals."""
    given = dict(zip(roles, arrays, strict=True))
    if not pairs:
        return {ARGUMENT[role]: array for role, array in given.items()}
    dots = [role for role in roles if role.endswith("_dot")]
    tangents = tuple(given.pop(role) for role in dots)
    primals = tuple(given.pop(BASE_ROLE[role]) for role in dots)
    rest = {ARGUMENT[role]: array for role, array in given.items()}
    return {"primals": primals, "tangents": tangents, **rest}


def _renamed(found: Spoken, op: str, pass_: str) -> Spoken:
    """Return a forward call as the pass that computes the same from operands of other names."""
    (traced,) = found.calls
    call = traced.prepared.call
    names = dict(zip(call.signature.results, SIGNATURE[op, pass_].results, strict=True))
    for mark in found.results:
        assert mark is not None
        mark.place = 0, names[mark.place[1]]
    prepared = replace(traced.prepared, call=replace(call, op=op, pass_=pass_))
    return Spoken([replace(traced, prepared=prepared)], found.results)
