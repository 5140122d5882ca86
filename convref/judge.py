"""The judge: is a result right, given only what the backend declares about its arithmetic?

No tolerance is typed anywhere. Per output element, with n additions on its path, S the formula on
absolute values and ref the unrounded reference, a backend declares a `Numerics`, and

1. exact: integer data whose partial sums all fit the accumulator must come out exactly;
2. proven: an error above B + u_out (|ref| + B) + eta_out / 2 is wrong in any summation order;
3. suspect: an error that random rounding reaches with probability below 1e-9.

Proofs: docs/judge.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log, log1p, sqrt
from typing import Any

import numpy as np

from . import dtypes, oracle
from ._nonfinite import Kinds, kinds
from .case import Call
from .errors import ConvrefError, message
from .problem import INDICES, TERMS

Array = np.ndarray[Any, Any]

# Unit roundoff of one addition: to nearest in binary32 or binary64, or the truncating
# tensor-core sum, which also loses up to one more unit per 16 products and per split.
UNITS = {
    "rn32": 2.0**-24,
    "rn64": 2.0**-53,
    "rn80": dtypes.number("f80").u,
    "mma32": 2.0**-22,
    "exact": 0.0,
}
_ACCUMULATOR = {"rn32": "f32", "rn64": "f64", "rn80": "f80", "mma32": "f32", "exact": "i64"}
_UNDECLARED = {"f64": "rn64", "c128": "rn64", "f80": "rn80", "c160": "rn80"}  # else rn32
TF32_UNIT = 2.0**-10  # one operand cut to 10 bits, truncation allowed
TF32_ETA = 2.0**-136  # and a subnormal one to a multiple of this
FALSE_ALARM = 1e-9  # probability with which tier 3 may suspect a correct result


@dataclass(frozen=True)
class Numerics:
    """What a backend declares about the arithmetic of one call.

    Parameters
    ----------
    model : str
        "rn32", "rn64" (round to nearest), "mma32" (truncating tensor-core sums), "exact"
        (integers) or "undeclared", which can never be proven wrong outside exact data.
    tf32 : bool
        Operands are cut to 10 mantissa bits.
    tf32x3 : bool
        Operands are split in two such parts, of whose products the smallest is left out.
    stages : int
        How often a value on the path is rounded to the output type before the last rounding;
        at least half of all values that are so rounded on the way to one result.
    splits : int
        Partial sums that are added at the end (mma32 only).
    ftz : bool
        Subnormal operands and results may be flushed to zero.
    growth : float
        Factor by which intermediates exceed S (3-multiplication complex products: 4).
    normwise : float
        For Winograd and FFT: error relative to the largest S of the tensor; 0 is componentwise.
    positions : float, optional
        Unit roundoff of the arithmetic that finds where a resize samples; by default the model's.
    weights : float
        Unit roundoff of the type to which its weights are rounded besides; 0 for none.
    strict_nonfinite : bool
        Non-finite operands behind absent taps never leak as NaN.

    Examples
    --------
    >>> 2**-14 < Numerics("rn32").gamma(1 << 10) < 2**-14 * (1 + 2**-14)
    True
    """

    model: str = "rn32"
    tf32: bool = False
    tf32x3: bool = False
    stages: int = 0
    splits: int = 1
    ftz: bool = False
    growth: float = 1.0
    normwise: float = 0.0
    strict_nonfinite: bool = False
    positions: float | None = None
    weights: float = 0.0

    def __post_init__(self) -> None:
        if self.model not in (*UNITS, "undeclared"):
            known = ", ".join((*UNITS, "undeclared"))
            raise ConvrefError(
                message("numerics", f"model is {self.model!r}, needs one of {known}")
            )

    @property
    def accumulator(self) -> str | None:
        """Return the type that holds the partial sums, or None if undeclared."""
        return _ACCUMULATOR.get(self.model)

    @property
    def cut(self) -> float:
        """Return what cutting the operands does to a product, as a fraction of it."""
        v = TF32_UNIT
        if self.tf32x3:
            return 3 * v**2 + v**4
        return 2 * v + v**2 if self.tf32 else 0.0

    def gamma(self, n: int) -> float:
        """Return (1 + u)**n - 1, the relative error of n roundings in any order."""
        if self.tf32x3:
            n = 3 * n + n // 128 + 1  # three products for one, of which two are small
        if self.model == "mma32":
            n = n + n // 16 + self.splits
        return _gamma(n, UNITS[self.model])


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one call.

    Parameters
    ----------
    kind : str
        "pass", "wrong" or "suspect".
    tier : str
        "exact", "proven", "statistical", or "form" (shape, type or presence of a result).
    role : str
        The result at fault, else the last one judged.
    reason : str
        One sentence; empty for a pass.
    index : tuple of int
        Position of the first element at fault.
    got, want, error, bound : float
        That element, the reference there, their distance and what it may be.
    faults, outputs : int
        Elements at fault, and elements judged.
    worst : float
        Largest error as a fraction of its bound, over the call.
    """

    kind: str
    tier: str
    role: str = ""
    reason: str = ""
    index: tuple[int, ...] = ()
    got: Any = None
    want: Any = None
    error: float = 0.0
    bound: float = 0.0
    faults: int = 0
    outputs: int = 0
    worst: float = 0.0

    def __bool__(self) -> bool:
        return self.kind == "pass"


@dataclass(frozen=True)
class Reference:
    """Everything the judge needs about one call: values, absolute sums and non-finite kinds."""

    call: Call
    operands: tuple[Array | None, ...]
    values: tuple[Array | None, ...]
    sums: tuple[Array | None, ...]
    integral: bool
    largest: float
    kinds: dict[str, Kinds]


def reference(call: Call, operands: Sequence[Array | None]) -> Reference:
    """Return the reference of `call` on `operands`, in the oracle's wider type.

    Parameters
    ----------
    call : Call
    operands : sequence of (ndarray or None)
        By role, as the backend was given them.

    Returns
    -------
    Reference
    """
    wide, raw = dtypes.accumulator(call.dtype), tuple(operands)
    roles, whole = call.signature.results, _is_exact_type(call.dtype)
    kind = [TERMS[call.op, call.pass_, role].kind for role in roles]
    nothing: tuple[Array | None, ...] = (None,) * len(roles)
    exact = nothing
    if whole or "copy" in kind:
        exact = oracle.evaluate(call, *raw, out=wide if whole else None)
    if whole or set(kind) == {"copy"}:
        return Reference(call, raw, exact, nothing, True, 0.0, {})
    cleaned, found = raw, {}
    if not all(a is None or np.isfinite(_real_wide(a, wide)).all() for a in raw):
        found = kinds(call, raw)
        chosen = oracle.choosers(call) if "formula" not in kind else call.roles
        cleaned = tuple(
            a if a is None or role in chosen else _finite_part(a, wide)
            for role, a in zip(call.roles, raw)
        )
    values = oracle.evaluate(call, *cleaned, out=wide)
    sums = oracle.magnitudes(call, *cleaned)
    data = [
        _finite_part(a, wide)
        for role, a in zip(call.roles, cleaned)
        if a is not None and role not in INDICES
    ]
    largest = max((float(np.abs(a).max()) for a in data if a.size), default=0.0)
    values = tuple(e if k == "copy" else v for k, e, v in zip(kind, exact, values))
    sums = tuple(None if k == "copy" else s for k, s in zip(kind, sums))
    return Reference(call, raw, values, sums, all(map(_is_integral, data)), largest, found)


def _is_exact_type(code: str) -> bool:
    return code == "obj" or code in dtypes.INTEGERS


def _is_integral(array: Array) -> bool:
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    return all(bool((np.rint(part) == part).all()) for part in map(_at_least_single, parts))


def _at_least_single(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _real_wide(array: Array, wide: str) -> Array:
    return array.astype(dtypes.numpy_dtype(wide), copy=False)


def _finite_part(array: Array, wide: str) -> Array:
    array = _real_wide(array, wide)
    return np.where(np.isfinite(array), array, array.dtype.type(0))


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
        The roles of the results that are judged; by default all that the mask wants.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> from convref.line import parse
    >>> call = parse("conv.fprop:n1c1k1_i3_f1:bias=0").call
    >>> x, w = np.ones((1, 1, 3), np.float32), np.ones((1, 1, 1), np.float32)
    >>> judge(call, (x, w, None), (x,), Numerics("rn32")).kind
    'pass'
    >>> judge(call, (x, w, None), (x + 1,), Numerics("rn32")).reason
    'y[0, 0, 0] is 2.0, exactly 1.0 is right (3 of 3 elements differ)'
    """
    ref = reference(call, operands) if ref is None else ref
    roles = call.signature.results
    if len(results) != len(roles):
        return Verdict("wrong", "form", reason=f"got {len(results)} results, needs {len(roles)}")
    verdict = Verdict("pass", "form")
    worst = 0.0
    for i, role in enumerate(roles):
        if only is not None and role not in only:
            continue
        fault = _form(call, role, results[i])
        if fault:
            return Verdict("wrong", "form", role, fault)
        got = results[i]
        if got is None:
            continue
        found = _judge_one(ref, i, role, got, numerics, zero_mean)
        worst = max(worst, found.worst)
        if found.kind == "wrong" or verdict.kind == "pass":
            verdict = found
        if verdict.kind == "wrong":
            return verdict
    return verdict if not verdict else Verdict("pass", verdict.tier, verdict.role, worst=worst)


def _form(call: Call, role: str, got: Array | None) -> str:
    """Return what is wrong with presence, shape or type of a result, or an empty text."""
    wanted = role in call.wanted
    if got is None or not wanted:
        if (got is not None) == wanted:
            return ""
        return f"{role} is {'absent' if got is None else 'present'}, the mask says otherwise"
    if tuple(got.shape) != call.problem.shape(role):
        return f"{role} has shape {tuple(got.shape)}, needs {call.problem.shape(role)}"
    needs = dtypes.numpy_dtype(call.dtype_of(role))
    if got.dtype != needs:
        return f"{role} has dtype {got.dtype}, needs {needs}"
    return ""


def _judge_one(
    ref: Reference, i: int, role: str, got: Array, numerics: Numerics, zero_mean: bool
) -> Verdict:
    call, value = ref.call, ref.values[i]
    assert value is not None
    if got.size == 0:
        return Verdict("pass", "exact", role)
    sums, row = ref.sums[i], TERMS[call.op, call.pass_, role]
    if sums is None:
        right = dtypes.rounded(value, call.dtype_of(role))
        return _exact(role, got, right, signed=row.kind == "copy" and row.signed and role == "y")
    found = ref.kinds.get(role)
    if found is not None:
        fault = found.fault(got, numerics.strict_nonfinite)
        if fault is not None:
            at, want = fault
            where = ", ".join(map(str, at))
            reason = f"{role}[{where}] is {got[at]}, needs {want}"
            return Verdict("wrong", "proven", role, reason, at, got[at], want, np.inf, 0.0, 1)
    judged = np.ones(got.shape, bool) if found is None else found.judged(got)
    if row.kind == "formula":
        judged = judged & np.isfinite(sums)
    elif ref.integral and found is None and _is_exact(ref, sums, numerics):
        return _exact(role, got, dtypes.rounded(value, call.dtype))
    return _bounded(ref, role, got, value, sums, judged, numerics, zero_mean)


def _is_exact(ref: Reference, sums: Array, numerics: Numerics) -> bool:
    """Return whether every partial sum is representable wherever it may be rounded."""
    code = ref.call.dtype
    holder = numerics.accumulator
    if holder is None or numerics.stages or numerics.weights:
        holder = code
    if numerics.normwise or ((numerics.tf32 or numerics.tf32x3) and ref.largest > 2**11):
        return False
    if not ref.call.problem.is_exact(code):
        return False
    limit = 2.0 ** min(dtypes.number(holder).digits, dtypes.number(dtypes.accumulator(code)).digits)
    return float(sums.max()) * numerics.growth * ref.call.problem.grain <= limit


def _exact(role: str, got: Array, want: Array, signed: bool = False) -> Verdict:
    """Tier 1; `signed` where the sign of a zero counts too: in copies of operands."""
    with np.errstate(invalid="ignore"):  # memory that was never written may hold signalling NaN
        same = (got == want) | ((got != got) & (want != want))
    if signed and want.dtype.kind not in "iuOc":
        same = same & ((np.signbit(got) == np.signbit(want)) | (got != got))
    if bool(np.all(same)):
        return Verdict("pass", "exact", role, outputs=got.size)
    wrong = ~np.asarray(same, bool)
    at = tuple(int(j) for j in np.argwhere(wrong)[0])
    where = ", ".join(map(str, at))
    faults = int(wrong.sum())
    reason = (
        f"{role}[{where}] is {got[at]}, exactly {want[at]} is right "
        f"({faults} of {got.size} elements differ)"
    )
    error = abs(got[at].item() - want[at].item()) if got.dtype != object else 1.0
    return Verdict(
        "wrong", "exact", role, reason, at, got[at], want[at], error, 0.0, faults, got.size, np.inf
    )


def bound(
    call: Call,
    role: str,
    value: Array,
    sums: Array,
    numerics: Numerics,
    largest: float = 1.0,
    moved: Array | float = 0.0,
) -> Array:
    """Return, per element, how far a correct result may lie from the reference `value`.

    Parameters
    ----------
    call : Call
    role : str
        The result that is judged.
    value, sums : ndarray
        The reference, and the formula on absolute values.
    numerics : Numerics
    largest : float
        Largest operand in absolute value.
    moved : ndarray, optional
        How far the result may move with the positions that it samples.

    Returns
    -------
    ndarray of float64
        In the units of the result; derivation in docs/judge.md.
    """
    n = call.products(role)
    part = 2 if call.dtype in dtypes.COMPLEX else 1  # real products per product
    out = dtypes.number(call.dtype_of(role))
    own = dtypes.number(dtypes.accumulator(call.dtype))
    sums = sums * numerics.growth * (1 + 2 * _gamma(part * n + 8, 2.0**-53))  # S has an error too
    holder = numerics.accumulator or "f32"
    acc = dtypes.number(holder)
    tiny = max(acc.tiny, out.tiny) * max(1.0, largest) if numerics.ftz else acc.eta
    error: Array = numerics.gamma(part * n) * sums + part * n * tiny
    if numerics.normwise:
        error = error + numerics.normwise * sums.max()
    error = error + _gamma(part * n, own.u) * sums + part * n * own.eta + moved
    if cut := numerics.cut:
        error = error + cut * sums + part * n * TF32_ETA * max(1.0, largest)
    last = out.tiny if numerics.ftz else out.eta
    if numerics.stages:
        error = error + _gamma(numerics.stages, out.u) * (sums + error) + numerics.stages * last
    if call.dtype_of(role) == holder:  # the last addition was the last rounding
        return error
    total: Array = error + out.u * (np.abs(value) + error) + last / (1 if numerics.ftz else 2)
    return total * sqrt(part)


def _gamma(n: int, u: float) -> float:
    return expm1(n * log1p(u))


def _bounded(
    ref: Reference,
    role: str,
    got: Array,
    value: Array,
    sums: Array,
    judged: Array,
    numerics: Numerics,
    zero_mean: bool,
) -> Verdict:
    """Tiers 2 and 3: the proven bound, then the statistical one."""
    call = ref.call
    undeclared = numerics.model == "undeclared"
    model = Numerics(_UNDECLARED.get(call.dtype, "rn32")) if undeclared else numerics
    with np.errstate(all="ignore"):
        moved = _moved(ref, model)
        limit = bound(call, role, value, sums, model, ref.largest, moved)
        error = np.abs(got.astype(value.dtype) - value)
        fine = (error <= limit) | np.isinf(limit) | ~judged
        fine = fine | _overflows(call, role, got, value, sums, limit, model)
        ratio = np.where(judged & np.isfinite(error), error / limit, 0.0)
    worst = float(ratio.max())
    if not fine.all():
        kind = "suspect" if undeclared else "wrong"
        return _fault(kind, "proven", role, got, value, error, limit, ~fine, worst)
    if zero_mean and model.model.startswith("rn") and not model.stages and not model.normwise:
        likely = _likely(call, role, value, sums, model) + moved
        odd = (error > likely) & judged & np.isfinite(error)
        if odd.any():
            return _fault("suspect", "statistical", role, got, value, error, likely, odd, worst)
    return Verdict("pass", "proven", role, outputs=got.size, worst=worst)


def _moved(ref: Reference, model: Numerics) -> Array | float:
    """Return how far rounded positions may move the result."""
    if (ref.call.op, ref.call.pass_) not in oracle.DISPLACEMENTS:
        return 0.0
    wide = dtypes.accumulator(ref.call.dtype)
    finite = (None if a is None else _finite_part(a, wide) for a in ref.operands)
    unit = UNITS[model.model] if model.positions is None else model.positions
    return oracle.displacements(ref.call, *finite, unit=unit, kept=model.weights)


def _fault(
    kind: str,
    tier: str,
    role: str,
    got: Array,
    value: Array,
    error: Array,
    limit: Array,
    wrong: Array,
    worst: float,
) -> Verdict:
    at = tuple(int(j) for j in np.argwhere(wrong)[0])
    where = ", ".join(map(str, at))
    faults = int(wrong.sum())
    reason = (
        f"{role}[{where}] is {got[at]}, {value[at]} is right; off by {float(error[at]):.3g}, "
        f"at most {float(limit[at]):.3g} is explained ({faults} of {got.size} elements)"
    )
    return Verdict(
        kind,
        tier,
        role,
        reason,
        at,
        got[at],
        value[at],
        float(error[at]),
        float(limit[at]),
        faults,
        got.size,
        worst,
    )


def _overflows(
    call: Call,
    role: str,
    got: Array,
    value: Array,
    sums: Array,
    limit: Array,
    model: Numerics,
) -> Array:
    """Return where an infinity or NaN is explained by overflow, at the end or on the way."""
    out = dtypes.number(call.dtype_of(role))
    if call.dtype in dtypes.COMPLEX:
        right_sign: Any = ~np.isfinite(got)
    else:
        wide = got.astype(value.dtype)
        right_sign = np.isinf(wide) & (np.signbit(wide) == np.signbit(value))
    result: Array = right_sign & (np.abs(value) + limit >= out.huge * (1 - out.u))
    held = dtypes.number(call.dtype if model.stages else (model.accumulator or "f32")).huge
    return result | (~np.isfinite(got) & (sums * model.growth + limit >= held * (1 - out.u)))


def _likely(call: Call, role: str, value: Array, sums: Array, model: Numerics) -> Array:
    n = max(1, call.products(role))
    spread = sqrt(2 * log(2 * max(1, value.size) * n / FALSE_ALARM))
    out = dtypes.number(call.dtype_of(role))
    part = 2 if call.dtype in dtypes.COMPLEX else 1
    sums = sums * model.growth
    floor: Any = n * dtypes.number(model.accumulator or "f32").eta + out.eta
    own = dtypes.number(dtypes.accumulator(call.dtype))
    floor = floor + _gamma(part * n, own.u) * sums
    floor = floor + model.cut * sums
    result: Array = spread * sqrt(part * n) * UNITS[model.model] * sums + out.u * np.abs(value)
    return result * sqrt(part) + floor
