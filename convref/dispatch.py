"""The one door: `run` a call on a backend, `plan` it ahead, `explain` the choice."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from .arrays import Facts, facts
from .backends import Backend
from .case import Call
from .errors import ConvrefError, MissingExtraError, UnsupportedError, message, shorten

GROUP = "convref.backends"

# What ships with convref is found without an installation too.
SHIPPED = {
    "numpy": "convref.backends.numpy:backend",
    "loops": "convref.backends.loops:backend",
    "torch": "convref.backends.torch:backend",
    "jax": "convref.backends.jax:backend",
    "onnxruntime": "convref.backends.onnxruntime:backend",
}

# Candidates of backend="auto" in order of preference, by kind of array and device.
AUTO: dict[tuple[str, str], tuple[str, ...]] = {
    ("numpy", "cpu"): ("numpy",),
    ("torch", "cpu"): ("torch", "numpy"),
    ("torch", "cuda"): ("triton", "torch"),
}


@dataclass(frozen=True)
class Candidate:
    """One backend that was considered, and why it was chosen, passed over or refused."""

    name: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class Plan:
    """A call with the backend that will compute it.

    Parameters
    ----------
    call : Call
    backend : Backend
    candidates : tuple of Candidate
        Everything that was considered, in order.
    """

    call: Call
    backend: Backend
    candidates: tuple[Candidate, ...]

    def bound(self) -> Callable[..., tuple[Any, ...]]:
        """Return the function of the operands that computes the call, all else settled."""
        bind = getattr(self.backend, "bind", None)
        return bind(self.call) if bind else partial(self.backend.run, self.call)

    def __str__(self) -> str:
        rows = (
            f"  {'*' if item.chosen else ' '} {item.name}: {item.reason}"
            for item in self.candidates
        )
        return "\n".join((str(self.call), *rows))


@cache
def names() -> dict[str, str]:
    """Return the registered backends as name -> "module:attribute"."""
    from importlib.metadata import entry_points  # a third of what importing convref would cost

    found = {point.name: point.value for point in entry_points(group=GROUP)}
    return {**SHIPPED, **found}


@cache
def load(name: str) -> Backend:
    """Return the backend called `name`, or the object at "package.module:attribute".

    Raises
    ------
    ConvrefError
        If there is no such backend, or the object is none.
    MissingExtraError
        If its framework is not installed; the text names the pip command.

    Examples
    --------
    >>> load("numpy").name
    'numpy'
    """
    known = names()
    target = known.get(name, name)
    module, colon, attribute = target.partition(":")
    if not colon:
        listed = ", ".join(sorted(known))
        raise ConvrefError(
            message(
                "backend", f"{shorten(repr(name))} is unknown, needs {listed} or pkg.mod:object"
            )
        )
    try:
        backend = importlib.import_module(module)
        for part in attribute.split("."):
            backend = getattr(backend, part)
    except MissingExtraError:
        raise
    except Exception as error:  # whatever a stranger's module raises
        raise ConvrefError(
            message("backend", f"{shorten(name)} does not load: {shorten(error)}")
        ) from error
    if isinstance(backend, type) or not isinstance(backend, Backend):
        raise ConvrefError(
            message(
                "backend",
                f"{shorten(name)} is a {type(backend).__name__}, "
                "needs an object with name, supports, run, numerics, fingerprint",
            )
        )
    return backend


def plan(call: Call, backend: str = "auto", kind: str = "numpy") -> Plan:
    """Return the Plan of `call`: which backend computes it, and why; and let that one prepare.

    What compiles does so here rather than in the first `run`, which under the capture of a CUDA
    graph it could not.

    Parameters
    ----------
    call : Call
    backend : str
        A name, "package.module:object", or "auto".
    kind : str
        Kind of array that the operands are, "numpy" or "torch"; matters to "auto" only.

    Returns
    -------
    Plan

    Raises
    ------
    UnsupportedError
        If the named backend (or every candidate of "auto") cannot do the call; with reasons.

    Examples
    --------
    >>> from convref.case import parse
    >>> print(plan(parse("conv.fprop:n1c1k1_i3_f3").call))
    conv.fprop:n1c1k1_i3_f3
      * numpy: computes NumPy arrays exactly
    """
    made = choose(call, backend, kind)
    if prepare := getattr(made.backend, "prepare", None):
        prepare(call)
    return made


def choose(call: Call, backend: str = "auto", kind: str = "numpy") -> Plan:
    """Return the Plan of `call`, as `plan` does, and let nobody prepare anything."""
    if not isinstance(call, Call):
        what = f"call is a {type(call).__name__}, needs a Call, as parse(line).call is"
        raise ConvrefError(message("plan", what))
    if not isinstance(backend, str):
        what = f"backend is {shorten(repr(backend))}, needs a name"
        raise ConvrefError(message(f"{call.op}.{call.pass_}", what))
    return _plan(call, backend, kind)


@lru_cache(maxsize=4096)
def _plan(call: Call, backend: str, kind: str) -> Plan:
    wanted: tuple[str, ...] = (backend,)
    if backend == "auto":
        wanted = tuple(n for n in AUTO.get((kind, call.specs[0].device), ()) if n in names())
    candidates: list[Candidate] = []
    chosen: Backend | None = None
    for name in wanted:
        try:
            found = load(name)
            reason = found.supports(call)
            if reason is None and backend == "auto":
                reason = _known_bug(found, call) or _passed_over(found, call)
        except MissingExtraError as error:
            if backend != "auto":
                raise
            found, reason = None, str(error)
        take = reason is None and chosen is None
        why = reason or _why(backend, kind, name)
        candidates.append(Candidate(name, take, why if take or reason else "next in order"))
        chosen = found if take else chosen
    if chosen is None:
        where = f"{call.op}.{call.pass_}"
        nothing = f"no backend for {kind} on {call.specs[0].device}"
        reasons = "; ".join(f"{c.name}: {c.reason}" for c in candidates) or nothing
        raise UnsupportedError(message(where, reasons, call))
    return Plan(call, chosen, tuple(candidates))


def _passed_over(backend: Backend, call: Call) -> str | None:
    """Return why a backend itself leaves a call to the next one, if it has an opinion."""
    opinion = getattr(backend, "passed_over", None)
    return opinion(call) if opinion else None


def _known_bug(backend: Backend, call: Call) -> str | None:
    """Return why "auto" passes a backend over that could do the call, or None."""
    from . import knownbugs  # only "auto" pays for reading the file, once

    if not knownbugs.regions(backend.name, raw=False):
        return None
    region = knownbugs.known(call, backend.name, backend.fingerprint())
    return None if region is None else f"known bug {region.id}: {region.note}"


def _why(backend: str, kind: str, name: str) -> str:
    if backend != "auto":
        return "named by the caller"
    if name == "numpy":
        return "computes NumPy arrays exactly" if kind == "numpy" else "the oracle takes the rest"
    return f"computes {kind} tensors where they lie"


def run(call: Call, *operands: Any, backend: str = "auto") -> tuple[Any, ...]:
    """Return the results of `call` by role, None where masked off.

    Parameters
    ----------
    call : Call
    *operands : array or None
        One per role of the pass, in the axis order of the formulas (N, C, spatial).
    backend : str
        As in `plan`.

    Raises
    ------
    ConvrefError
        If an operand's presence, shape or dtype disagrees with the call.
    UnsupportedError
        If no backend takes the call.

    Examples
    --------
    >>> import numpy as np
    >>> from convref.case import parse
    >>> call = parse("conv.bgrad:n2c1k1_i3_f1:dt=f64").call
    >>> run(call, np.ones((2, 1, 3)), np.ones((2, 1, 3)), np.ones((1, 1, 1)))
    (None, None, array([6.]))
    """
    if not isinstance(call, Call):
        choose(call, backend, "numpy")  # raises
    where = f"{call.op}.{call.pass_}"
    if len(operands) != len(call.roles):
        raise ConvrefError(
            message(where, f"got {len(operands)} operands, needs {len(call.roles)}", call)
        )
    found = [_checked(where, call, role, a) for role, a in zip(call.roles, operands)]
    kinds = {fact.kind for fact in found if fact is not None}
    if len(kinds) > 1:
        raise ConvrefError(message(where, f"operands are {' and '.join(sorted(kinds))}, needs one"))
    return choose(call, backend, kinds.pop()).backend.run(call, *operands)


def _checked(where: str, call: Call, role: str, operand: Any) -> Facts | None:
    """Check one operand against the call; return its facts, None where it is absent."""
    if (operand is not None) != call.is_present(role):
        state, needs = ("None", "an array") if operand is None else ("an array", "None")
        raise ConvrefError(message(where, f"{role} is {state}, needs {needs}", call))
    if operand is None:
        return None
    found = facts(where, role, operand)
    for name, got, need in (
        ("shape", found.shape, call.problem.shape(role)),
        ("dtype", found.dtype, call.spec(role).dtype),
    ):
        if got != need:
            raise ConvrefError(message(where, f"{role} has {name} {got}, needs {need}", call))
    return found


def explain(call: Call, backend: str = "auto", kind: str = "numpy") -> str:
    """Return, as text, each candidate for `call`, the verdict on it and the reason.

    Examples
    --------
    >>> from convref.case import parse
    >>> print(explain(parse("conv.fprop:n1c1k1_i3_f3").call, kind="abacus"))
    conv.fprop: no backend for abacus on cpu (conv.fprop:n1c1k1_i3_f3)
    """
    try:
        made = choose(call, backend, kind)
    except UnsupportedError as error:
        return str(error)
    describe = getattr(made.backend, "describe", None)
    return f"{made}\n    {describe(call)}" if describe else str(made)
