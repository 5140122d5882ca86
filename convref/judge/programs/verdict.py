"""The verdict on one tensor, given its pair."""

from typing import Any, NamedTuple

import torch

from ..numerics import Numerics
from ..verdicts import Verdict, element
from .pair import Pair, Tensor, store
from .pieces import Box, Later, by_part, evaluated

_LEAST = 2.0**-1000  # less than any error of float64 numbers of ordinary size


def verdict(
    name: str, got: Tensor, like: Tensor, pair: Pair | Later, numerics: Numerics
) -> Verdict:
    """Return the verdict on one result."""
    for what in ("shape", "dtype", "device", "layout"):
        is_, needs = getattr(got, what), getattr(like, what)
        if is_ != needs:
            is_, needs = (tuple(v) if what == "shape" else v for v in (is_, needs))
            return Verdict("wrong", "form", name, f"{name} has {what} {is_}, needs {needs}")
    if not got.numel():
        return Verdict("pass", "exact", name)
    got = got.detach()
    if got.is_complex():  # which only copies of the arguments are
        got, pair = _as_real(got), evaluated(pair).map(_as_real)
    return _compared(name, got, pair, numerics)


def _as_real(t: Tensor) -> Tensor:
    return torch.view_as_real(t.resolve_conj())


class _Part(NamedTuple):
    """What is found in a part of a result."""

    is_certain: bool
    zeros_pass: bool
    worst: float = 0.0  # error as a share of the bound
    undecided: int = 0
    faults: int = 0
    first: Any = None  # the first fault: index, is certain, rounded, value, error, bound


def _compared(name: str, got: Tensor, pair: Pair | Later, numerics: Numerics) -> Verdict:
    found: list[_Part] = []
    for box, part in by_part(pair, tuple(got.shape)):
        vacuous = not found or found[-1].zeros_pass
        found.append(_part(got[box], part, numerics, vacuous))
        if found[-1].faults and not any(p.faults for p in found[:-1]):
            first = _fault(name, got, box, found[-1])
    undecided = sum(p.undecided for p in found) / got.numel()
    worst = max(p.worst for p in found)
    tier = "exact" if all(p.is_certain for p in found) else "proven"
    facts: dict[str, Any] = {"outputs": got.numel(), "worst": worst, "undecided": undecided}
    if faults := sum(p.faults for p in found):
        facts |= first
        facts["reason"] += f" ({faults} of {got.numel()} elements)"
        return Verdict("wrong", tier, name, faults=faults, **facts)
    kind = "vacuous" if all(p.zeros_pass for p in found) else "pass"
    kind = "undecided" if undecided == 1 else kind
    return Verdict(kind, tier, name, **facts)


def _part(got: Tensor, pair: Pair, numerics: Numerics, vacuous: bool) -> _Part:
    """Compare a part; `vacuous` says whether zeros pass so far."""
    if pair.error is None and torch.equal(got, pair.value.to(got.dtype)) and pair.stored:
        return _Part(True, vacuous and not bool(got.any()))
    if pair.error is None and not got.is_floating_point():
        return _of_integers(got, pair.value.to(got.dtype))
    pair = store(pair, got.dtype, numerics)
    value = pair.wide
    limit = torch.as_tensor(pair.slack, dtype=torch.float64).expand(value.shape)
    # An exact element has the bound 0: its error is 0 or many times the bound.
    share = _distance(got, value).div_(limit.clamp(min=_LEAST))
    worst, largest = float(share.amax()), float(limit.amax())
    if largest < torch.inf and worst <= 1:
        vacuous = vacuous and not float(value.abs().sub_(limit).amax()) > 0
        return _Part(largest == 0, vacuous, worst)
    error = _distance(got, value)
    share = error / limit
    certain = torch.ones_like(got, dtype=torch.bool) if pair.error is None else pair.error == 0
    right = value.to(got.dtype)
    same = (got == right) | (got.isnan() & right.isnan())
    fine = torch.where(certain | ~value.isfinite(), same, error <= limit) | limit.isinf()
    share = torch.where(fine & (certain | limit.isinf() | ~value.isfinite()), 0.0, share)
    zeros_pass = torch.where(certain, value == 0, value.abs() <= limit) & vacuous
    part = _Part(
        bool(certain.all()),
        bool(zeros_pass.all()),
        float(share.nan_to_num(nan=torch.inf).max()),
        int((limit.isinf() & ~certain).sum()),
    )
    if bool(fine.all()):
        return part
    at = tuple(int(i) for i in (~fine).nonzero()[0])
    first = at, *(t[at].item() for t in (certain, right, value, error, limit))
    return part._replace(faults=int((~fine).sum()), first=first)


def _of_integers(got: Tensor, right: Tensor) -> _Part:
    """Return what is found in integers that differ; float64 cannot tell large ones apart."""
    faults = got != right
    at = tuple(int(i) for i in faults.nonzero()[0])
    error = abs(int(got[at]) - int(right[at]))
    first = at, True, right[at].item(), right[at].item(), error, 0.0
    return _Part(True, False, torch.inf, 0, int(faults.sum()), first)


def _distance(got: Tensor, value: Tensor) -> Tensor:
    return got.to(torch.float64, copy=True).sub_(value).abs_()


def _fault(name: str, got: Tensor, box: Box, part: _Part) -> dict[str, Any]:
    """Return what a verdict says about a fault."""
    at, is_certain, right, value, error, limit = part.first
    starts = [s.start for s in box] + [0] * (len(at) - len(box))
    index = tuple(i + start for i, start in zip(at, starts))
    needs, bound = (f"exactly {right}", 0.0) if is_certain else (f"{value}", limit)
    reason = f"{element(name, index)} is {got[index].item()}, needs {needs}; "
    reason += f"error {error:.3g}, bound {bound:.3g}"
    numbers = {"got": got[index].item(), "want": value, "error": error, "bound": limit}
    return {"index": index, "reason": reason, **numbers}
