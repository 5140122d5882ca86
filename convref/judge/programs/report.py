"""The verdicts on the results of a program, and what explains them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from ...errors import invalid
from ..numerics import Numerics
from ..verdicts import Verdict, element
from .pair import Pair, Tensor, store
from .trace import Trace

_OTHERS = (
    Numerics(stages=1),
    Numerics(stages=9),
    Numerics("mma32"),
    Numerics(tf32x3=True),
    Numerics(tf32=True),
    Numerics("mma32", tf32=True),
)
_WORST_FIRST = ("wrong", "undecided", "vacuous", "pass")


@dataclass(frozen=True)
class Program:
    """A reference and its arguments."""

    reference: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    numerics: Numerics

    def traced(self, **options: Any) -> tuple[Trace, dict[str, tuple[Tensor, Pair]]]:
        """Run the reference; return its tensors by name, each with its pair."""
        trace = Trace(options.pop("numerics", self.numerics), **options)
        found = trace.run(self.reference, self.args, self.kwargs)
        return trace, {name: (t, trace.shadows.unrounded(t)) for name, t in tensors(found).items()}


def tensors(results: Any, where: str = "the reference") -> dict[str, Tensor]:
    """Return the tensors among results by name, as "output[0]"; anything else is refused."""
    flat, _ = tree_flatten_with_path(results)
    named = {f"output{keystr(path)}": leaf for path, leaf in flat if leaf is not None}
    for name, leaf in named.items():
        if not isinstance(leaf, torch.Tensor):
            what = f"{name} of {where} is a {type(leaf).__name__}, needs a tensor"
            raise invalid("assert_close", what)
    return named


@dataclass(frozen=True)
class Report:
    """The verdicts on the results of a candidate.

    Attributes
    ----------
    verdicts : dict of str to Verdict
        By output: "output", "output[0]".
    """

    program: Program
    actual: Any
    verdicts: dict[str, Verdict]

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict."""
        return min(self.verdicts.values(), key=lambda v: _WORST_FIRST.index(v.kind))

    def __bool__(self) -> bool:
        return all(v.kind not in ("wrong", "undecided") for v in self.verdicts.values())

    def __str__(self) -> str:
        return "\n".join(_line(name, verdict) for name, verdict in self.verdicts.items())

    @cached_property
    def contributions(self) -> dict[str, float]:
        """Return the share of the bound, at the first wrong element, by operation."""
        name, verdict = next(
            ((n, v) for n, v in self.verdicts.items() if v.index), ("", self.verdict)
        )
        trace, _ = self.program.traced()
        found = {}
        for label in trace.labels if name else ():
            _, named = self.program.traced(rounding=label)
            tensor, pair = named[name]
            error = store(pair, tensor.dtype, self.program.numerics).error
            found[label] = 0.0 if error is None else float(error[verdict.index])
        total = sum(found.values())
        ordered = sorted(found.items(), key=lambda item: -item[1])
        return {label: error / total for label, error in ordered if error} if total else {}

    def explanation(self) -> str:
        """Return what makes up the bound, and which arithmetic would allow the error."""
        lines = [str(self)]
        if parts := list(self.contributions.items())[:3]:
            shares = ", ".join(
                f"{share:.0%} of the bound is the rounding of {label}" for label, share in parts
            )
            lines.append(f"  {shares}")
        for numerics in _OTHERS:
            if judged(Program(**(vars(self.program) | {"numerics": numerics})), self.actual):
                lines.append(f"  it passes with arithmetic={_call(numerics)}")
                break
        return "\n".join(lines)


def _call(numerics: Numerics) -> str:
    flags = {name: getattr(numerics, name) for name in ("tf32", "tf32x3", "stages")}
    text = "".join(f", {name}={value}" for name, value in flags.items() if value)
    return f"Numerics({numerics.model!r}{text})"


def _line(name: str, verdict: Verdict) -> str:
    text = f"{verdict.kind}: {verdict.reason}" if verdict.reason else f"{verdict.kind}: {name}"
    if verdict.tier == "proven":
        text += f"; largest error {verdict.worst:.3g} of its bound"
    if verdict.undecided:
        text += f"; {verdict.undecided:.2%} undecided"
    return text


def judged(program: Program, actual: Any) -> Report:
    """Return the report on what a candidate returned."""
    trace, wanted = program.traced()
    _check_written(trace, program)
    got = tensors(actual, "the candidate")
    if not wanted:
        raise invalid("assert_close", "the reference returns no tensor")
    if list(got) != list(wanted):
        what = f"got {', '.join(got) or 'nothing'}, needs {', '.join(wanted)}"
        return Report(program, actual, {"output": Verdict("wrong", "form", reason=what)})
    return Report(
        program,
        actual,
        {name: verdict(name, got[name], *wanted[name], program.numerics) for name in wanted},
    )


def _check_written(trace: Trace, program: Program) -> None:
    arguments = {
        t.untyped_storage()._cdata
        for t in tree_leaves((program.args, program.kwargs))
        if isinstance(t, torch.Tensor)
    }
    if any(t.untyped_storage()._cdata in arguments for t, _ in trace.written):
        what = "the reference writes to its arguments; let it copy them first"
        raise invalid("assert_close", what)


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
    certain = torch.ones_like(got, dtype=torch.bool) if pair.error is None else pair.error == 0
    right = value.to(got.dtype)
    same = (got == right) | (got.isnan() & right.isnan())
    error = (got.to(torch.float64) - value).abs()
    fine = torch.where(certain | ~value.isfinite(), same, error <= limit) | limit.isinf()
    worst = torch.where(fine & (certain | limit.isinf() | same), 0.0, error / limit)
    facts = {
        "outputs": got.numel(),
        "worst": float(worst.nan_to_num(nan=torch.inf).max()),
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


def _passed(value: Tensor, limit: Tensor, certain: Tensor, undecided: float) -> str:
    """Return how a result passes: not at all if it has no bound or zeros would pass too."""
    if undecided == 1:
        return "undecided"
    zeros_pass = torch.where(certain, value == 0, value.abs() <= limit)
    return "vacuous" if bool(zeros_pass.all()) else "pass"
