"""Dispatch: `run` a call on a backend, `plan` it ahead, `explain` the choice."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

from . import knownbugs
from .arrays import facts, is_followed
from .backends import Backend
from .backends.protocol import refusal, run_checked
from .backends.registry import load, names
from .case import Call, argument, check_count, check_objects, check_operand, check_positions, memory
from .errors import MissingExtraError, UnsupportedError, a_kind, invalid, message, shorten

__all__ = ["AUTO", "Candidate", "Plan", "choose", "explain", "load", "names", "plan", "run"]

# Candidates of backend="auto" in order of preference, by kind of array and device.
AUTO: dict[tuple[str, str], tuple[str, ...]] = {
    ("numpy", "cpu"): ("numpy",),
    ("torch", "cpu"): ("torch", "numpy"),
    ("torch", "cuda"): ("triton", "torch"),
    ("jax", "cpu"): ("jax", "numpy"),
}
# The package that computes on arrays whose library records derivatives, by kind of array.
RECORDERS = {kind: f"convref.integrations.{kind}" for kind in ("jax", "torch")}


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
    kind : str
        Kind of array that the operands are.
    requested : str
        The backend that the caller asked for.
    """

    call: Call
    backend: Backend
    candidates: tuple[Candidate, ...]
    kind: str = "numpy"
    requested: str = "auto"

    def run(self, *operands: Any) -> tuple[Any, ...]:
        """Return the results; positions and classes among the operands are checked."""
        self._check_memory()
        if self.call.dtype == "obj":
            check_objects(self.call, operands)
        self._check_positions(operands)
        if is_followed(self.kind, operands):
            return self._run_recorded(*operands)
        return run_checked(self.backend, self.call, self.kind, operands)

    def _run_recorded(self, *operands: Any) -> tuple[Any, ...]:
        """Return the results, which the integration of the arrays' library computes."""
        integration = importlib.import_module(RECORDERS[self.kind])
        return integration.run_recorded(self.requested, self.call, *operands)

    def bound(self) -> Callable[..., tuple[Any, ...]]:
        """Return the function of the operands that computes the call, with everything else decided.

        Derivatives take the positions that the forward pass checked or returned.
        """
        self._check_memory()
        bind = getattr(self.backend, "bind", None)
        compute = bind(self.call) if bind else partial(self.backend.run, self.call)
        if self.call.pass_ != "fprop" or not self._positions:
            return compute

        def checked(*operands: Any) -> tuple[Any, ...]:
            self._check_positions(operands)
            return compute(*operands)

        return checked

    @cached_property
    def _positions(self) -> tuple[tuple[int, str], ...]:
        of = self.call.problem.positions
        return tuple((i, role) for i, role in enumerate(self.call.roles) if of(role))

    def _check_positions(self, operands: tuple[Any, ...]) -> None:
        for i, role in self._positions:
            check_positions(self.call, role, operands[i])

    @cached_property
    def _lacks_memory(self) -> str:
        """Why the results cannot fit on the CPU, or an empty text."""
        if self.call.specs[0].device != "cpu":
            return ""
        least, most = self.call.least_memory(self.backend.name == "numpy"), memory.available()
        gib = f"{least / 2**30:,.1f} GiB, this machine has {most / 2**30:,.1f} GiB"
        return f"results need at least {gib}" if least > most else ""

    def _check_memory(self) -> None:
        if self._lacks_memory:
            raise invalid(self.call.where, self._lacks_memory, self.call)

    def __str__(self) -> str:
        rows = (
            f"  {'*' if item.chosen else ' '} {item.name}: {item.reason}"
            for item in self.candidates
        )
        return "\n".join((str(self.call), *rows))


def plan(call: Call, backend: str = "auto", kind: str = "numpy", *, unproven: bool = False) -> Plan:
    """Return the Plan of `call`: which backend computes it, and why; and prepare that backend.

    Kernels are compiled here rather than in the first `run`, which may be under the capture of a
    CUDA graph, where nothing can be compiled.

    Parameters
    ----------
    call : Call
    backend : str
        A name, "package.module:object", or "auto".
    kind : str
        Kind of array that the operands are, "numpy" or "torch"; matters to "auto" only.
    unproven : bool
        Whether the backend may use kernels that no device has run; "auto" never does.

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
    made = choose(call, with_unproven(call, backend) if unproven else backend, kind)
    if prepare := getattr(made.backend, "prepare", None):
        prepare(call)
    return made


def choose(call: Call, backend: str = "auto", kind: str = "numpy") -> Plan:
    """Return the Plan of `call`, as `plan` does, without preparing the backend."""
    if not isinstance(call, Call):
        what = f"call is {a_kind(call)}, needs a Call, as parse(line).call is"
        raise invalid("plan", what)
    check_name(call.where, backend)
    if not isinstance(kind, str):
        what = f"kind is {shorten(repr(kind))}, needs the name of a kind of array"
        raise invalid(call.where, what)
    found = _plan(call, backend, kind)
    same = found.call is call or repr(found.call) == repr(call)  # 0.0 equals -0.0
    return found if same else replace(found, call=call)


def check_name(where: str, backend: Any) -> None:
    """Raise unless `backend` is a string."""
    if not isinstance(backend, str):
        raise invalid(where, f"backend is {shorten(repr(backend))}, needs a name")


def with_unproven(call: Call, backend: str) -> str:
    """Return the name of a backend's variant that may use kernels that no device has run."""
    found = "" if backend == "auto" else getattr(load(backend), "with_unproven", "")
    if not found:
        what = f"{shorten(repr(backend))} has no unproven kernels, needs a backend that has some"
        raise invalid(call.where, what, call)
    return found


@lru_cache(maxsize=4096)
def _plan(call: Call, backend: str, kind: str) -> Plan:
    wanted: tuple[str, ...] = (backend,)
    if backend == "auto":
        wanted = tuple(n for n in AUTO.get((kind, call.specs[0].device), ()) if n in names())
    candidates: list[Candidate] = []
    chosen: Backend | None = None
    slower: list[tuple[int, Backend]] = []  # passed over for their speed alone, by position
    for name in wanted:
        try:
            found = load(name)
            reason = refusal(found, call)
            if reason is None and backend == "auto":
                reason = _known_bug(found, call)
                if reason is None and (reason := _passed_over(found, call)):
                    slower.append((len(candidates), found))
        except MissingExtraError as error:
            if backend != "auto":
                raise
            found, reason = None, str(error)
        take = reason is None and chosen is None
        why = reason or _reason_to_choose(backend, kind, name)
        candidates.append(
            Candidate(name, take, why if take or reason else "lower in the order of preference")
        )
        chosen = found if take else chosen
    if chosen is None and slower:
        (place, chosen), *_ = slower
        why = f"no other backend computes it; {candidates[place].reason}"
        candidates[place] = replace(candidates[place], chosen=True, reason=why)
    if chosen is None:
        nothing = f"no backend for {kind} on {call.specs[0].device}"
        reasons = "; ".join(f"{c.name}: {c.reason}" for c in candidates) or nothing
        raise UnsupportedError(message(call.where, reasons, call))
    return Plan(call, chosen, tuple(candidates), kind, backend)


def _passed_over(backend: Backend, call: Call) -> str | None:
    reason = getattr(backend, "passed_over", None)
    return reason(call) if reason else None


def _known_bug(backend: Backend, call: Call) -> str | None:
    """Return why "auto" passes a backend over that could do the call, or None."""
    if not knownbugs.regions(backend.name, raw=False):
        return None
    region = knownbugs.region_of(call, backend.name, backend.fingerprint())
    return None if region is None else f"known bug {region.id}: {region.note}"


def _reason_to_choose(backend: str, kind: str, name: str) -> str:
    if backend != "auto":
        return "selected by the caller"
    if name == "numpy":
        return (
            "computes NumPy arrays exactly" if kind == "numpy" else "the oracle computes any call"
        )
    return f"computes {kind} tensors directly"


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
        If an operand's presence, sizes, dtype, kind or device disagree with the call.
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
    where = call.where
    check_count(call, operands)
    found = [
        None if a is None else facts(where, argument(r), a) for r, a in zip(call.roles, operands)
    ]
    like = next((fact for fact in found if fact is not None), None)
    for role, fact in zip(call.roles, found):
        check_operand(call, role, fact, like)
    assert like is not None  # no call is without operands
    return choose(call, backend, like.kind).run(*operands)


def explain(
    call: Call, backend: str = "auto", kind: str = "numpy", *, unproven: bool = False
) -> str:
    """Return, as text, each candidate for `call`, the verdict on it and the reason.

    The parameters are those of `plan`.

    Examples
    --------
    >>> from convref.case import parse
    >>> print(explain(parse("conv.fprop:n1c1k1_i3_f3").call, kind="abacus"))
    conv.fprop: no backend for abacus on cpu (conv.fprop:n1c1k1_i3_f3)
    """
    try:
        made = choose(call, with_unproven(call, backend) if unproven else backend, kind)
    except UnsupportedError as error:
        return str(error)
    describe = getattr(made.backend, "describe", None)
    return f"{made}\n    {describe(call)}" if describe else str(made)
