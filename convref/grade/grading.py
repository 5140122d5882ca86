"""A grade: what a solution computes, at several sizes and on data that it cannot predict."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..arrays import why_no_device
from ..errors import ConvrefError, UnsupportedError, invalid, shorten
from ..judge import Numerics
from ..judge.programs import Power, Program, for_program, judge_results, judged_mutants
from .backendbench import BackendBench
from .definitions import Definition
from .gpumode import GpuMode
from .huggingface import HuggingFace
from .kernelbench import KernelBench
from .problem import TEST, BenchmarkProblem, Trial, wrong_form
from .session import EndedError, Limits, Session
from .sizes import Sizes

FORMATS: dict[str, type[BenchmarkProblem]] = {
    "kernelbench": KernelBench,
    "gpumode": GpuMode,
    "backendbench": BackendBench,
    "sol-execbench": Definition,
    "flashinfer-bench": Definition,
    "huggingface": HuggingFace,
}
WORST_FIRST = ("hang", "crash", "raises", "wrong", "undecided", "vacuous", "pass")
_FAILS = WORST_FIRST[: WORST_FIRST.index("undecided")]


@dataclass(frozen=True)
class Draw:
    """The verdict on one kind of data at some sizes.

    `worst` is the largest error as a share of its bound, `undecided` the share without a bound.
    """

    sizes: Sizes
    data: str
    verdict: str
    reason: str = ""
    worst: float = 0.0
    undecided: float = 0.0


@dataclass(frozen=True)
class Grade:
    """The grade of a solution.

    Attributes
    ----------
    draws : list of Draw
        Up to the first that fails.
    isolation : tuple of str
        What the process of the solution could not do, and what this platform could not prevent.
    triton : str
        How Triton kernels ran on a CPU, "as PTX" or "in Triton's interpreter"; else empty.
    seed : int
        With it the same data are drawn again.
    numerics : Numerics
        The arithmetic that the solution may use.
    """

    format: str
    problem: str
    solution: str
    seed: int
    draws: list[Draw] = field(default_factory=list)
    isolation: tuple[str, ...] = ()
    triton: str = ""
    numerics: Numerics = field(default_factory=Numerics, repr=False)
    trials: list[tuple[Trial, Any]] = field(default_factory=list, repr=False)

    @property
    def verdict(self) -> str:
        """Return "pass" if no draw fails and one shows something, else the worst."""
        found = {draw.verdict for draw in self.draws}
        failed = next((kind for kind in _FAILS if kind in found), "")
        if failed or "pass" in found:
            return failed or "pass"
        return next((kind for kind in WORST_FIRST if kind in found), "undecided")

    @property
    def reason(self) -> str:
        """Return why it fails; empty if it does not."""
        draw = next((d for d in self.draws if d.verdict == self.verdict and d.reason), None)
        return f"on {draw.data} data: {draw.reason}" if draw else ""

    @property
    def undecided(self) -> float:
        """Return the share of the elements of all draws that have no bound."""
        return sum(draw.undecided for draw in self.draws) / max(1, len(self.draws))

    @cached_property
    def power(self) -> Power:
        """Return which mutations of the reference would pass on all of the data."""
        known: dict[str, None] = {}
        caught: set[str] = set()
        for trial, data in self.trials:
            traced = Program(trial.reference, tuple(data), {}, self.numerics).traced
            for mutant in judged_mutants(traced, caught):
                known[mutant.name] = None
                caught |= set() if mutant.passes else {mutant.name}
            if caught >= known.keys():
                break
        return Power(len(known), tuple(name for name in known if name not in caught))

    @property
    def score(self) -> float:
        """Return a reward from 0 to 1: 0 unless it passes, else what was decided, by its power."""
        if self.verdict != "pass":
            return 0.0
        power = self.power
        return (1 - self.undecided) * (power.tried - len(power.missed)) / max(1, power.tried)

    def facts(self) -> dict[str, Any]:
        """Return the grade as JSON has it."""
        names = (
            "format",
            "problem",
            "solution",
            "seed",
            "triton",
            "verdict",
            "reason",
            "undecided",
            "score",
        )
        found = {name: getattr(self, name) for name in names}
        if self.verdict == "pass":
            found["power"] = self.power._asdict()
        isolation = list(self.isolation)
        return found | {"isolation": isolation, "draws": [asdict(draw) for draw in self.draws]}

    def __str__(self) -> str:
        draws, sizes = len(self.draws), len({str(draw.sizes) for draw in self.draws})
        text = f"{self.verdict}: {self.solution} of {self.problem}, {draws} draw{'s' * (draws > 1)}"
        text += f" at {sizes} size{'s' * (sizes > 1)}"
        if self.undecided:
            text += f", {self.undecided:.1%} undecided"
        if self.reason:
            text += f"\n  {self.reason}"
        if self.triton:
            text += f"\n  Triton kernels ran {self.triton}"
        return text if self.verdict != "pass" else f"{text}\n  {self.power}; score {self.score:.3f}"


def grade(
    format: str,
    problem: str | Path,
    solution: str | Path,
    *,
    arithmetic: Numerics | str = "rn32",
    backward: bool = False,
    full: bool = False,
    packed: bool = False,
    draws: int = 1,
    seed: int | None = None,
    device: str = "cpu",
    limits: Limits | None = None,
) -> Grade:
    """Return the grade of a solution of a benchmark's problem.

    Parameters
    ----------
    format : str
        Of the benchmark: a key of `FORMATS`.
    problem, solution : path
        Their files; a solution may be a folder. The problem is run in this process, the solution
        in one of its own.
    arithmetic : Numerics or str
        As in `assert_close`.
    backward : bool
        Whether gradients are judged too.
    full : bool
        Whether the sizes of the problem are used, not smaller ones; of each of its tests.
    packed : bool
        Whether the weights of modules are those that constructors draw with the same seed, for
        solutions that pack them in `__init__`; inputs alone are then of all kinds.
    draws : int
        How many times each kind of data is drawn.
    seed : int, optional
        Of the data; by default they cannot be predicted.
    device : str
        Where the solution computes.
    limits : Limits, optional

    Returns
    -------
    Grade
    """
    _check_device(device)
    posed = load(format, problem)
    numerics = Numerics(arithmetic) if isinstance(arithmetic, str) else arithmetic
    seed = secrets.randbits(31) if seed is None else seed
    answer = posed.solution(Path(solution))
    found = Grade(format, posed.name, Path(solution).name, seed, numerics=numerics)
    with Session(answer, device, limits or Limits()) as session:
        try:
            session.start()
            for sizes, trial in trials(posed, seed, full):
                trial.request.update(answer.request | ({"packed": True} if packed else {}))
                for draw in _draws(trial, sizes, session, numerics, draws, backward, found):
                    found.draws.append(draw)
                    if draw.verdict == "wrong":
                        raise EndedError("wrong", draw.reason)
        except EndedError as error:
            if error.kind != "wrong":
                found.draws.append(Draw({}, "any", error.kind, str(error)))
    return replace(found, isolation=session.isolation, triton=session.triton)


def _check_device(device: str) -> None:
    """Refuse a device that is not there, for which no solution is to blame."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise invalid("grade", f"device is {shorten(device)!r}, needs cpu, cuda or like") from None
    if reason := why_no_device(kind):
        raise UnsupportedError(f"grade: device is {device}, and {reason}")


def load(format: str, problem: str | Path) -> BenchmarkProblem:
    """Return a problem of a benchmark."""
    of_format = class_of(format)
    if not Path(problem).is_file():
        raise invalid("grade", f"{problem} is no file")
    with _code_of(problem):
        return of_format(Path(problem))  # type: ignore[call-arg]


def class_of(format: str) -> type[BenchmarkProblem]:
    """Return the class of the problems of a format."""
    if format not in FORMATS:
        raise invalid("grade", f"format is {shorten(format, 40)}, needs {', '.join(FORMATS)}")
    return FORMATS[format]


def trials(posed: BenchmarkProblem, seed: int, full: bool = False) -> Iterator[tuple[Sizes, Trial]]:
    """Yield a problem at each of its sizes, or each of its tests at its own."""
    with _code_of(posed.name):
        all_ = posed.sizes()
        if full:
            tests = dict.fromkeys(sizes.get(TEST) for sizes in all_)
            all_ = iter([{} if test is None else {TEST: test} for test in tests])
        for number, sizes in enumerate(all_):
            yield sizes, posed.trial(sizes, seed + number)


@contextlib.contextmanager
def _code_of(problem: object) -> Iterator[None]:
    """Make one sentence of what the code of a problem raises."""
    try:
        yield
    except (ConvrefError, UnsupportedError):
        raise
    except Exception as error:  # of any kind
        what = f"{type(error).__name__}: {shorten(error, 200)}"
        raise invalid("grade", f"{problem} raises {what}") from error


def _draws(
    trial: Trial,
    sizes: Sizes,
    session: Session,
    numerics: Numerics,
    draws: int,
    backward: bool,
    found: Grade,
) -> Iterator[Draw]:
    seed = found.seed + len(found.draws)
    for kind, data in kinds_of_data(trial, draws, seed):
        inputs, named = data
        with _code_of(found.problem):
            request = trial.request_of(inputs, named)
        if request.get("packed") and "init" not in request:
            raise invalid("grade", "packed needs a solution that is a module")
        if backward and request.get("outputs"):
            raise invalid("grade", "backward needs a solution that returns its results")
        found.trials.append((trial, data))
        yield _judged(trial.reference, data, session.call(request), numerics, sizes, kind)
        if backward:
            with _code_of(found.problem):
                cotangents = _cotangents(trial.reference(inputs, named), seed)
            gradient = _gradient(trial.reference, cotangents)
            try:
                actual = session.call(request | {"cotangents": cotangents})
            except EndedError as error:
                raise EndedError(error.kind, f"backward: {error}") from None
            yield _judged(gradient, data, actual, numerics, sizes, f"{kind}, backward")


def kinds_of_data(trial: Trial, draws: int, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield data by kind, without those outside of the domain of the reference."""
    is_packed = trial.request.get("packed", False)
    given = (trial.inputs, {} if is_packed else trial.named)
    for kind, data in for_program(given, draws, seed):
        data = (data[0], trial.named) if is_packed else data
        if not kind.startswith("specials") and (kind == "given" or _is_finite(trial, data)):
            yield kind, data


def _is_finite(trial: Trial, data: Any) -> bool:
    try:
        with torch.no_grad():
            return all(bool(t.isfinite().all()) for t in _floats(trial.reference(*data)))
    except Exception:  # of any kind: the reference refuses these data
        return False


def _judged(
    reference: Any, data: Any, actual: Any, numerics: Numerics, sizes: Sizes, kind: str
) -> Draw:
    if reason := wrong_form(actual):
        return Draw(sizes, kind, "wrong", reason)
    report = judge_results(Program(reference, tuple(data), {}, numerics), actual)
    found = report.verdict
    undecided = max(v.undecided for v in report.verdicts.values())
    worst = min(found.worst, sys.float_info.max)  # JSON has no infinity
    return Draw(sizes, kind, found.kind, found.reason, worst, undecided)


def _floats(tree: Any) -> list[Any]:
    leaves = tree_leaves(tree)
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]


def _cotangents(results: Any, seed: int) -> list[Any]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, generator=random).to(t.dtype) for t in _floats(results)]


def _gradient(reference: Any, cotangents: list[Any]) -> Any:
    """Return the function of the gradients by all inputs and parameters."""

    def gradient(inputs: list[Any], named: dict[str, Any]) -> Any:
        inputs, named = torch.utils._pytree.tree_map(_differentiable, (inputs, named))
        results = _floats(reference(inputs, named))
        leaves = [*_floats(inputs), *_floats(named)]
        return torch.autograd.grad(results, leaves, cotangents, allow_unused=True)

    return gradient


def _differentiable(leaf: Any) -> Any:
    floats = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.detach().requires_grad_() if floats else leaf
