"""The judge: is a result right, given only what the backend declares about its arithmetic?

No tolerance is typed anywhere. Per output element, with n additions on its path, S the formula on
absolute values and ref the unrounded reference, a backend declares a `Numerics`, and

1. exact: integer data whose partial sums all fit the accumulator must come out exactly;
2. proven: an error above B + u_out (|ref| + B) + eta_out / 2 is wrong in any summation order;
3. suspect: an error that random rounding reaches with probability below 1e-9.

`form` checks presence, shapes and types first. `exact`, `proven` and `likely` are the tiers;
`nonfinite` checks which outputs are NaN or infinite. Proofs: docs/judge.md.
"""

from collections.abc import Sequence
from functools import partial
from types import NoneType

from ..arrays import Array
from ..case import Call
from ..errors import a_kind, invalid, shorten
from ..ops import items
from . import exact, form, likely, nonfinite, proven, ties
from .numerics import TF32_UNIT, UNITS, Numerics
from .proven import bound
from .references import Exhibit, Reference, reference
from .verdicts import Verdict

__all__ = [
    "TF32_UNIT",
    "UNITS",
    "Numerics",
    "Reference",
    "Verdict",
    "bound",
    "judge",
    "reference",
]


def judge(
    call: Call,
    operands: Sequence[Array | None],
    results: Sequence[Array | None],
    numerics: Numerics,
    *,
    zero_mean: bool = False,
    ref: Reference | None = None,
    only: Sequence[str] | None = None,
) -> Verdict:
    """Return the verdict on `results` of `call`.

    Parameters
    ----------
    call : Call
    operands : sequence of (ndarray or None)
        By role, as the backend was given them.
    results : sequence of (ndarray or None)
        By role, as the backend returned them.
    numerics : Numerics
        The model that the backend declares for this call.
    zero_mean : bool
        Whether the data are random with mean zero; only then does tier 3 apply.
    ref : Reference, optional
        What `reference` returned for the same call and operands.
    only : sequence of str, optional
        The roles of the results that are judged; by default all that the mask selects.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> from convref.case import parse
    >>> call = parse("conv.fprop:n1c1k1_i3_f1:bias=0").call
    >>> x, w = np.ones((1, 1, 3), np.float32), np.ones((1, 1, 1), np.float32)
    >>> judge(call, (x, w, None), (x,), Numerics("rn32")).kind
    'pass'
    >>> judge(call, (x, w, None), (x + 1,), Numerics("rn32")).reason
    'y[0, 0, 0] is 2.0, needs exactly 1.0 (3 of 3 elements differ)'
    """
    _check_types(numerics, zero_mean, ref)
    ref = reference(call, operands) if ref is None else ref
    roles = call.signature.results
    _check(results, only, roles)
    if len(results) != len(roles):
        return Verdict("wrong", "form", reason=f"got {len(results)} results, needs {len(roles)}")
    judged = partial(_of_all, results, numerics, zero_mean, only)
    verdict = judged(ref)
    if verdict.kind == "wrong" and verdict.tier != "form":
        return ties.best_verdict(ref, numerics, verdict, judged)
    return verdict


def _of_all(
    results: Sequence[Array | None],
    numerics: Numerics,
    zero_mean: bool,
    only: Sequence[str] | None,
    ref: Reference,
) -> Verdict:
    """Return the verdict on all results against a reference."""
    call, roles = ref.call, ref.call.signature.results
    found = []
    for role, got in zip(roles, results):
        if only is not None and role not in only:
            continue
        if fault := form.fault(call, role, got):
            return Verdict("wrong", "form", role, fault)
        if got is not None:
            found.append(_verdict(Exhibit(ref, role, got), numerics, zero_mean))
            if found[-1].kind == "wrong":
                return found[-1]
    return _summed_up(found)


def _check_types(numerics: object, zero_mean: object, ref: object) -> None:
    what = None
    if not isinstance(numerics, Numerics):
        what = f"numerics is {shorten(repr(numerics))}, needs a Numerics"
    elif not isinstance(zero_mean, bool):
        what = f"zero_mean is {shorten(repr(zero_mean))}, needs a bool"
    elif not isinstance(ref, (Reference, NoneType)):
        what = f"ref is {a_kind(ref)}, needs a Reference"
    if what is not None:
        raise invalid("judge", what)


def _check(results: object, only: Sequence[str] | None, roles: tuple[str, ...]) -> None:
    if not isinstance(results, Sequence):
        what = f"results is {a_kind(results)}, needs one array per role of {roles}"
        raise invalid("judge", what)
    listed = () if only is None else items(only)
    unknown = [r for r in listed or () if not isinstance(r, str) or r not in roles]
    if listed is None or unknown:
        got = f"is {shorten(repr(only))}" if listed is None else f"has {shorten(unknown[0])}"
        raise invalid("judge", f"only {got}, needs some of {', '.join(roles)}")


def _verdict(it: Exhibit, numerics: Numerics, zero_mean: bool) -> Verdict:
    """Return the verdict of the first tier that can judge this result."""
    if it.got.size == 0:
        return Verdict("pass", "exact", it.role)
    if exact.applies(it, numerics):
        return exact.verdict(it)
    fault = nonfinite.fault(it, numerics.strict_nonfinite)
    if fault is not None:
        return fault
    distance = proven.measured(it, numerics)
    verdict = proven.verdict(it, distance, numerics)
    if verdict and zero_mean and likely.applies(distance.model):
        suspicion = likely.suspicion(it, distance)
        verdict = verdict if suspicion is None else suspicion
    return verdict


def _summed_up(found: Sequence[Verdict]) -> Verdict:
    """Return the first suspicion, or else one pass for all results that were judged."""
    suspicions = [verdict for verdict in found if not verdict]
    if suspicions or not found:
        return suspicions[0] if suspicions else Verdict("pass", "form")
    worst = max(0.0, *(verdict.worst for verdict in found))  # 0.0 first: max keeps it over NaN
    return Verdict("pass", found[-1].tier, found[-1].role, worst=worst)
