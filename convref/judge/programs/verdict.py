"""The verdict on one tensor, given its pair."""

import torch

from ..numerics import Numerics
from ..verdicts import Verdict, element
from .pair import Pair, Tensor, store


def verdict(name: str, got: Tensor, like: Tensor, pair: Pair, numerics: Numerics) -> Verdict:
    """Return the verdict on one result."""
    for what in ("shape", "dtype", "device"):
        is_, needs = getattr(got, what), getattr(like, what)
        if is_ != needs:
            is_, needs = (tuple(v) if what == "shape" else v for v in (is_, needs))
            return Verdict("wrong", "form", name, f"{name} has {what} {is_}, needs {needs}")
    if not got.numel():
        return Verdict("pass", "exact", name)
    return _compared(name, got.detach(), pair, numerics)


def _compared(name: str, got: Tensor, pair: Pair, numerics: Numerics) -> Verdict:
    value, limit = pair.wide, store(pair, got.dtype, numerics).slack
    limit = torch.as_tensor(limit, dtype=torch.float64).expand(value.shape)
    error = (got.to(torch.float64) - value).abs_()
    share = error / limit
    if _is_plain(pair, limit) and (worst := float(share.max())) <= 1:
        kind = "pass" if float(value.abs().sub_(limit).max()) > 0 else "vacuous"
        return Verdict(kind, "proven", name, outputs=got.numel(), worst=worst)
    certain = torch.ones_like(got, dtype=torch.bool) if pair.error is None else pair.error == 0
    right = value.to(got.dtype)
    same = (got == right) | (got.isnan() & right.isnan())
    fine = torch.where(certain | ~value.isfinite(), same, error <= limit) | limit.isinf()
    share = torch.where(fine & (certain | limit.isinf() | ~value.isfinite()), 0.0, share)
    facts = {
        "outputs": got.numel(),
        "worst": float(share.nan_to_num(nan=torch.inf).max()),
        "undecided": float((limit.isinf() & ~certain).to(torch.float64).mean()),
    }
    tier = "exact" if bool(certain.all()) else "proven"
    if bool(fine.all()):
        return Verdict(_passed(value, limit, certain, facts["undecided"]), tier, name, **facts)
    faults = int((~fine).sum())
    at = tuple(int(i) for i in (~fine).nonzero()[0])
    is_certain = bool(certain[at])
    needs = f"exactly {right[at].item()}" if is_certain else f"{value[at].item()}"
    numbers = f"error {float(error[at]):.3g}, bound {0.0 if is_certain else float(limit[at]):.3g}"
    reason = f"{element(name, at)} is {got[at].item()}, needs {needs}; {numbers}"
    reason += f" ({faults} of {got.numel()} elements)"
    return Verdict(
        "wrong",
        tier,
        name,
        reason,
        at,
        got[at].item(),
        value[at].item(),
        float(error[at]),
        float(limit[at]),
        faults,
        **facts,
    )


def _is_plain(pair: Pair, limit: Tensor) -> bool:
    """Return whether every element has an error, and a bound."""
    return pair.error is not None and float(pair.error.min()) > 0 and float(limit.max()) < torch.inf


def _passed(value: Tensor, limit: Tensor, certain: Tensor, undecided: float) -> str:
    """Return how a result passes: not at all if it has no bound or zeros would pass too."""
    if undecided == 1:
        return "undecided"
    zeros_pass = torch.where(certain, value == 0, value.abs() <= limit)
    return "vacuous" if bool(zeros_pass.all()) else "pass"
