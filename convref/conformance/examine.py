"""Examine one case: make operands, run the backend, judge its results and its writes."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, to_numpy
from ..backends import Backend
from ..backends.protocol import arithmetic, refusal
from ..case import Call, Case
from ..errors import ConvrefError, ProtocolError, a_kind, one_line, shorten
from ..judge import Numerics, Reference, Verdict, judge, reference
from .mutations import mutations
from .operands import operands
from .surroundings import Guards, at_once, buffer, make_earlier_calls, on_pages

# Verdict -> meaning. Worst last: the order of the final table.
VERDICTS = {
    "pass": "the result is correct: exactly, or within the proven bound",
    "unsupported": "the backend refused the case",
    "known": "the case was not run: it is in the region of a known bug",
    "vacuous": "the result is correct, but on this data a wrong formula would pass too",
    "suspect": "the error is larger than random rounding explains, on new data too, "
    "but within the proven bound",
    "nondeterministic": "a second run gave other bits",
    "changed-input": "the backend wrote to an operand or to memory around it, "
    "or returned an operand as a result",
    "wrote-outside": "the backend wrote outside its output, "
    "or into results that it had returned earlier",
    "rejects-valid": "the backend raised an error on a valid case that it supports",
    "accepts-invalid": "the backend returned a result for operands that do not match the call",
    "wrong": "the declared arithmetic cannot give this result",
    "hang": "the worker process had to be killed",
    "crash": "the worker process died; the reason names the signal",
}
RANK = {verdict: i for i, verdict in enumerate(VERDICTS)}
PASSED_OVER = ("unsupported", "known")  # not judged
HARMLESS = ("pass", "unsupported", "known", "vacuous")
ZERO_MEAN = ("normal",)
THREADS = 3  # not a divisor of many extents
WITH_THREADS = f"with {THREADS} threads"
FRESH_SEEDS = 5  # on most of which a suspect case has to be suspect again


@dataclass(frozen=True)
class Finding:
    """The verdict on one example."""

    line: str  # the case; ``convref run LINE`` repeats it
    verdict: str  # one of `VERDICTS`
    tier: str = ""  # "exact", "proven", "statistical" or "form", as in `convref.judge.Verdict`
    reason: str = ""  # one sentence; empty for a pass
    role: str = ""  # the result at fault
    index: tuple[int, ...] = ()  # its first wrong element
    worst: float = 0.0  # largest error as a fraction of its bound
    arm: str = "plain"  # how the library was run, see `convref.backends.Arm`

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as JSON takes it."""
        return asdict(self)


def examine(
    case: Case,
    backend: Backend,
    *,
    repeat: bool = False,
    mutate: bool = False,
    announce: Callable[[str], None] = lambda note: None,
    excluded: Callable[[Case], str | None] = lambda case: None,
) -> Finding:
    """Return the Finding of one example; a crash of the backend is a crash of this process.

    With `repeat`, run twice and compare the bits; run with more threads, if the backend can, and
    judge. With `mutate`, judge mutations of the oracle too: if all pass, the verdict is "vacuous".
    `announce` is called with `WITH_THREADS` before more threads compute, and with an empty text
    after. `excluded` returns why a call around the case must not run, such as a known bug, or None.

    >>> from convref.dispatch import load
    >>> from convref.case import parse
    >>> examine(parse("conv.fprop:n1c2k3_i4x4_f3x3_p1"), load("numpy")).verdict
    'pass'
    """
    call, line = case.call, str(case)
    try:
        reason = refusal(backend, call)
        if reason is not None:
            return Finding(line, "unsupported", reason=shorten(reason))
        numerics = arithmetic(backend, call)
    except ProtocolError:
        raise
    except Exception as error:
        return _error_finding(line, error)
    try:
        given = operands(case)
    except ConvrefError as error:  # a shrunk size may leave no operands to draw
        return Finding(line, "unsupported", reason=shorten(str(error)))
    before = _contents(given)
    guards = Guards() if hasattr(backend, "run_into") and call.dtype != "obj" else None
    compute = backend.run if guards is None else partial(guards.run, backend)
    earlier = list(make_earlier_calls(case, given, backend, compute, excluded))
    if "pages" in case.around and not _changed(call, given, before):
        given = on_pages(given)
        before = _contents(given)
    try:
        look = partial(_changed, call, given, before)
        runs = _runs(backend, partial(_results, compute, call, given), look, repeat, announce)
    except Exception as error:
        return _error_finding(line, error)
    if runs.changed:
        return Finding(line, "changed-input", reason=f"{runs.changed} or memory around it changed")
    if guards is not None and (outside := guards.violation()):
        return Finding(line, "wrote-outside", reason=outside)
    if any(result.tobytes() != contents for result, contents in earlier):
        return Finding(line, "wrote-outside", reason="a result of an earlier call changed")
    if isinstance(runs.once, str):
        return Finding(line, "wrong", "form", runs.once)
    if case.around and (reason := _returned_operand(call, given, runs.once)):
        return Finding(line, "changed-input", reason=reason)
    finding = _judged(case, backend, given, runs, numerics, mutate)
    if finding.verdict == "pass" and "threads" in case.around:
        return _at_once(case, given, runs, numerics, partial(_results, compute)) or finding
    return finding


def _error_finding(line: str, error: Exception) -> Finding:
    """Return the finding for an exception that a third-party backend raised."""
    return Finding(line, "rejects-valid", reason=one_line(error))


Results = tuple[Any, ...] | str  # arrays by role, or the error in their form


class Runs(NamedTuple):
    """The results of a first run, of a second, and of one with several threads if there are any.

    `changed` names an operand that it wrote to: a second run may undo what the first did.
    """

    once: Results
    again: Results
    threaded: Results | None
    changed: str


def _runs(
    backend: Any,
    compute: Callable[[], Results],
    look: Callable[[], str],
    repeat: bool,
    announce: Callable[[str], None],
) -> Runs:
    once = compute()
    changed = look()
    again = compute() if repeat else once
    announce(WITH_THREADS if repeat else "")
    threaded = None
    if repeat and hasattr(backend, "threads"):
        with backend.threads(THREADS):
            threaded = compute()
    announce("")
    return Runs(once, again, threaded, changed or (look() if repeat else ""))


def _at_once(
    case: Case,
    given: tuple[Array | None, ...],
    runs: Runs,
    numerics: Numerics,
    compute: Callable[..., Results],
) -> Finding | None:
    """Return the finding of two threads that call at the same time, None for a pass."""
    mine, other, others = at_once(case, given, compute)
    for judged, arrays, found in ((case, given, mine), (other, operands(other), others)):
        alone = runs.once if judged is case else compute(case.call, arrays)
        ref = None
        for results in found:
            if isinstance(results, Exception):
                reason = one_line(results)
            elif isinstance(results, str) or isinstance(alone, str):
                reason = results if isinstance(results, str) else ""
            elif _same_bits(results, alone):
                reason = ""
            else:
                ref = ref or reference(case.call, arrays)
                reason = _why_wrong(results, ref, numerics)
            if reason:
                reason = shorten(f"right alone; with a call on another thread {reason}", 300)
                return Finding(str(case), "wrong", "form", reason)
    return None


def _judged(
    case: Case,
    backend: Backend,
    given: tuple[Array | None, ...],
    runs: Runs,
    numerics: Numerics,
    mutate: bool,
) -> Finding:
    """Return the verdict of the judge, and of a pass whether it is repeatable and not vacuous."""
    call, line = case.call, str(case)
    ref = reference(call, given, checked=True)
    assert not isinstance(runs.once, str)
    zero_mean = case.fill in ZERO_MEAN
    verdict = judge(call, given, runs.once, numerics, zero_mean=zero_mean, ref=ref)
    if verdict.kind == "suspect" and not _persists(case, backend, numerics):
        verdict = replace(verdict, kind="pass")
    if verdict and (role := _overwritten(ref, runs)):
        reason = f"{role} of a second run shares memory with the result of the first"
        return Finding(line, "wrote-outside", reason=reason)
    if verdict and (reason := _unsteady(runs, ref, numerics)):
        return Finding(line, "nondeterministic", reason=reason)
    if verdict and mutate and _is_vacuous(ref, numerics):
        return Finding(line, "vacuous", reason="on this data no mutation of the oracle would fail")
    return _finding(line, verdict)


def _overwritten(ref: Reference, runs: Runs) -> str:
    """Return the result that a second run overwrites, or an empty text.

    A view of an operand is not the backend's memory, and a read-only result stays as it is.
    """
    if runs.again is runs.once or isinstance(runs.again, str):
        return ""
    given = [operand for operand in ref.operands if operand is not None]
    for role, a, b in zip(ref.call.signature.results, runs.once, runs.again):
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.flags.writeable:
            operand = any(np.may_share_memory(a, x) for x in given)
            if not operand and np.shares_memory(a, b):
                return role
    return ""


def _unsteady(runs: Runs, ref: Reference, numerics: Numerics) -> str:
    """Return how a later run differs from the first, which was right; empty if none does."""
    if not isinstance(runs.again, str) and not _same_bits(runs.once, runs.again):
        return "two runs differ in their bits"
    if runs.threaded is not None and (reason := _why_wrong(runs.threaded, ref, numerics)):
        return f"right with one thread; {WITH_THREADS} {reason}"
    return ""


def _is_vacuous(ref: Reference, numerics: Numerics) -> bool:
    """Return whether the judge would pass every mutation of the oracle that the call allows.

    Where all results are empty there is no value to mutate: the case checks shapes, and counts.
    """
    call, given = ref.call, ref.operands
    if not any(value is not None and value.size for value in ref.values):
        return False
    for wrong in mutations(call):
        with np.errstate(all="ignore"):
            results = wrong(call, given)
        if not judge(call, given, results, numerics, ref=ref):
            return False
    return True


def _finding(line: str, verdict: Verdict) -> Finding:
    return Finding(
        line,
        verdict.kind,
        verdict.tier,
        verdict.reason,
        verdict.role,
        verdict.index,
        float(verdict.worst),
    )


def _returned_operand(call: Call, given: tuple[Array | None, ...], results: Any) -> str:
    """Return which result is an operand: writing to it would change both. Empty if none is."""
    for role, result in zip(call.signature.results, results):
        if isinstance(result, np.ndarray) and result.flags.writeable:
            for name, array in zip(call.roles, given):
                if array is not None and np.may_share_memory(result, array):
                    return f"{role} shares memory with {name}"
    return ""


def _contents(given: tuple[Array | None, ...]) -> list[bytes | None]:
    return [None if a is None else buffer(a).tobytes() for a in given]


def _changed(call: Call, given: tuple[Array | None, ...], before: list[bytes | None]) -> str:
    """Return the operand whose memory has changed, or an empty text."""
    for role, array, old in zip(call.roles, given, before):
        if array is not None and buffer(array).tobytes() != old:
            return role
    return ""


def _why_wrong(results: Results, ref: Reference, numerics: Numerics) -> str:
    """Return why results are wrong in every order of summation; empty if they are not."""
    if isinstance(results, str):
        return results
    verdict = judge(ref.call, ref.operands, results, numerics, ref=ref)
    return verdict.reason if verdict.kind == "wrong" else ""


def _results(compute: Callable[..., Any], call: Call, given: tuple[Any, ...]) -> Results:
    """Return the backend's results as NumPy arrays, or the error in their form."""
    results = compute(call, *given)
    if not isinstance(results, (tuple, list)):
        return f"run returned {a_kind(results)}, needs a tuple of results by role"
    try:
        return tuple(None if r is None else to_numpy(r) for r in results)
    except Exception as error:  # an object that is not an array
        kinds = ", ".join(type(r).__name__ for r in results)
        return shorten(f"results are ({kinds}), needs arrays: {shorten(error)}", 200)


def _same_bits(first: Results, second: Results) -> bool:
    return all(
        (a is None and b is None)
        or (a is not None and b is not None and a.tobytes() == b.tobytes())
        for a, b in zip(first, second)
    )


def _persists(case: Case, backend: Backend, numerics: Numerics) -> bool:
    """Return whether most fresh seeds are suspect too: chance does not repeat, bias does."""
    count = 0
    for step in range(1, FRESH_SEEDS + 1):
        fresh = replace(case, seed=(case.seed + 7919 * step) % 2**63)
        given = operands(fresh)
        results = _results(backend.run, case.call, given)
        if isinstance(results, str):
            return True
        count += not judge(case.call, given, results, numerics, zero_mean=True)
    return count > FRESH_SEEDS // 2
