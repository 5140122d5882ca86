"""The verdicts on the results of a program, and what explains them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from ...errors import ConvrefError, UnsupportedError, a_kind, invalid, one_line
from ..numerics import Numerics
from ..verdicts import Verdict
from .pair import Pair, Tensor, store
from .pieces import Later
from .power import Power, power
from .trace import Trace
from .verdict import verdict

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
        trace, found = self.run(**options)
        return trace, {name: (t, trace.shadows.unrounded(t)) for name, t in found.items()}

    def run(self, **options: Any) -> tuple[Trace, dict[str, Tensor]]:
        """Run the reference; return its tensors by name."""
        trace = Trace(options.pop("numerics", self.numerics), **options)
        try:
            found = trace.run(self.reference, self.args, self.kwargs)
        except (ConvrefError, UnsupportedError):
            raise
        except Exception as error:  # of any kind: PyTorch raises AssertionError without a GPU
            devices = {str(t.device) for t in tree_leaves(self.args) if hasattr(t, "device")}
            what = f"the reference raises {one_line(error)}"
            what += f" (devices of args: {', '.join(sorted(devices)) or 'none'})"
            raise invalid("assert_close", what) from error
        named = tensors(found)
        for name, t in named.items():
            if t.layout != torch.strided:
                what = f"{name} of the reference has layout {t.layout}, needs torch.strided"
                raise UnsupportedError(f"assert_close: {what}")
        return trace, named


def tensors(results: Any, where: str = "the reference") -> dict[str, Tensor]:
    """Return the tensors among results by name, as "output[0]"; anything else is refused."""
    flat, _ = tree_flatten_with_path(results)
    named = {f"output{keystr(path)}": leaf for path, leaf in flat if leaf is not None}
    for name, leaf in named.items():
        if not isinstance(leaf, torch.Tensor):
            what = f"{name} of {where} is {a_kind(leaf)}, needs a tensor"
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

    @cached_property
    def power(self) -> Power:
        """Return which mutations of the reference pass on this data."""
        return power(self.program.traced)

    def explanation(self) -> str:
        """Return what makes up the bound, and which arithmetic would allow the error."""
        lines = [str(self)]
        if parts := list(self.contributions.items())[:3]:
            shares = ", ".join(
                f"{share:.0%} of the bound is the rounding of {label}" for label, share in parts
            )
            lines.append(f"  {shares}")
        for numerics in _OTHERS:
            if judge_results(Program(**(vars(self.program) | {"numerics": numerics})), self.actual):
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


def judge_results(program: Program, actual: Any) -> Report:
    """Return the report on what a candidate returned."""
    trace, results = program.run()
    wanted = {name: (t, trace.shadows.output_pair(t)) for name, t in results.items()}
    _check_written(trace, program)
    got = tensors(actual, "the candidate")
    if not wanted:
        raise invalid("assert_close", "the reference returns no tensor")
    if got.keys() != wanted.keys():
        what = f"got {', '.join(got) or 'nothing'}, needs {', '.join(wanted)}"
        return Report(program, actual, {"output": Verdict("wrong", "form", reason=what)})
    found = {name: verdict(name, got[name], *wanted[name], program.numerics) for name in wanted}
    if any(v.kind == "wrong" for v in found.values()):
        _check_repeated(program, wanted)
    return Report(program, actual, found)


def _check_repeated(program: Program, wanted: dict[str, tuple[Tensor, Pair | Later]]) -> None:
    """Raise if the reference has other results in a second run."""
    _, again = program.traced()
    for name, (like, pair) in wanted.items():
        second = again[name][1].value.to(like.dtype) if name in again else like[:0]
        if verdict(name, second, like, pair, program.numerics).kind == "wrong":
            what = f"the reference returns another {name} in a second run; it reads state that"
            raise invalid("assert_close", f"{what} changes: give that as an argument")


def _check_written(trace: Trace, program: Program) -> None:
    arguments = {
        t.untyped_storage()._cdata
        for t in tree_leaves((program.args, program.kwargs))
        if isinstance(t, torch.Tensor)
    }
    if any(t.untyped_storage()._cdata in arguments for t, _ in trace.written):
        what = "the reference writes to its arguments; let it copy them first"
        raise invalid("assert_close", what)
