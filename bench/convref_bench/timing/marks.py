"""The marks of speed on a CPU, measured one after the other: a regression is a row that misses.

The machine has to be quiet. Every row is a ratio measured side by side, or a rate of this machine
(two processors, as the marks of the court were set on).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from convref.conformance import campaign
from convref.conformance.generate import Axes
from convref.dispatch import load
from convref.errors import ConvrefError, invalid, needs_one, shorten

from ..suites import network, suite
from . import cpu
from .measure import Stop, geometric_mean

SEEDS = 10
LAYER = Stop(samples=8, noise=0.02, timeout_s=2.2, turn=4)
Measured = Iterator[tuple[str, float]]  # what was measured, and its value


@dataclass(frozen=True)
class Mark:
    """What has to hold of each value that `measure` yields within some seconds a value."""

    unit: str
    measure: Callable[[float], Measured]
    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool | None:
        """Return whether a value reaches the mark; None where there is none."""
        if self.least is not None:
            return value >= self.least
        return None if self.most is None else value <= self.most

    def __str__(self) -> str:
        if self.least is not None:
            return f">= {self.least:g}"
        return "-" if self.most is None else f"<= {self.most:g}"


def court(backend: str) -> Callable[[float], Measured]:
    """Return what measures how many convolutions two workers examine in a second."""

    def measure(seconds: float) -> Measured:
        seen: list[tuple[float, int]] = []

        def watch(outcome: campaign.Outcome, note: str) -> None:
            if outcome.tally.examples:
                seen.append((outcome.elapsed, outcome.tally.examples))

        axes = Axes(ops=("conv",), size=getattr(load(backend), "chunk", Axes().size))
        settings = campaign.Settings(backend, axes, 3 * seconds, jobs=2, shrinks=False)
        campaign.run(settings, watch)
        (start, before), (end, after) = seen[0], seen[-1]  # without the start of the workers
        yield backend, (after - before) / (end - start)

    return measure


def first_finding(seconds: float) -> Measured:
    """Yield after how many seconds torch, known bugs included, has its first finding."""

    def stop(outcome: campaign.Outcome, note: str) -> None:
        if outcome.tally.findings:
            raise KeyboardInterrupt

    took = []
    for seed in range(SEEDS):
        axes = Axes(seed, ("conv",))
        settings = campaign.Settings("torch", axes, 6 * seconds, jobs=2, shrinks=False)
        took.append(campaign.run(settings, stop).elapsed)
    yield f"median of {SEEDS} seeds", median(took)


def converted(seconds: float) -> Measured:
    from . import converted

    for name in converted.NETWORKS:
        for mode in converted.MODES:
            row = converted.row(name, mode, 64, 2, seconds, "")
            yield f"{name}, {mode}", float(row[3])


def call_cost(name: str) -> Callable[[float], Measured]:
    def measure(seconds: float) -> Measured:
        from . import call_cost

        for grad in (False, True):
            if sides := call_cost.works(grad).get(name):
                best = cpu_times(sides, call_cost.STOP)
                yield name, 1e3 * (best[call_cost.OURS] - best[call_cost.THEIRS])

    return measure


def cpu_times(sides: dict[str, Callable[[], object]], stop: Stop) -> dict[str, float]:
    from .measure import measure

    return {name: timing.low_ms for name, timing in measure(sides, cpu.Cpu(0.0), stop).items()}


def resnet(backend: str, dtype: str, stem: bool | None) -> Callable[[float], Measured]:
    """Return what compares ResNet-50's layers with torch: its stem, the others or all, by pass."""

    def measure(seconds: float) -> Measured:
        chosen = [
            layer
            for layer in suite.load("resnet50")
            if stem is None or (layer.name == "conv1") == stem
        ]
        place = cpu.CpuPlace(LAYER)
        rows = [*network.rows(chosen, (backend, "torch"), place, suite.CONV, [dtype], 4)]
        for pass_ in suite.CONV:
            mine = [r for r in rows if r["line"].startswith(f"conv.{pass_}:") and "ratio" in r]
            if mine:
                ratios, times = ([row[name] for row in mine] for name in ("ratio", "times"))
                yield f"{backend} {pass_}", geometric_mean(ratios, times)

    return measure


def activations(seconds: float) -> Measured:
    from . import oracle_speed

    for op in ("gelu", "hardswish", "sigmoid"):
        rows = [*oracle_speed.point(op, "n1c256_i56x56:dt=f64")]
        yield op, oracle_speed.mean(rows, "torch")


MARKS: dict[str, Mark] = {
    "court": Mark("examples a second", court("numpy"), least=2000),
    "court-torch": Mark("examples a second", court("torch"), least=900),
    "court-triton": Mark("examples a second", court("triton"), least=60),
    "court-ptx": Mark("examples a second", court("convref_triton.emulated:backend")),
    "first-finding": Mark("s", first_finding, most=15),
    "converted": Mark("of torch.nn", converted, least=0.98),
    "call-recorded": Mark("us more than torch", call_cost("conv2d, recorded"), most=5),
    "call-backward": Mark("us more than torch", call_cost("conv2d, forward and backward"), most=15),
    "oracle-stem": Mark("of torch", resnet("numpy", "dt=f64", True), least=1.0),
    "oracle-activations": Mark("times torch's time", activations, most=2.0),
    "mojo": Mark("of oneDNN", resnet("mojo", "", None), least=1.0),
    "mojo-bf16": Mark("of oneDNN", resnet("mojo", "dt=bf16", None), least=0.9),
    "mojo-stem": Mark("of oneDNN", resnet("mojo", "", True), least=0.7),
}


def rows(names: tuple[str, ...], seconds: float) -> Iterator[tuple[list[str], bool]]:
    """Yield a row of the table and whether its mark is missed, for each value."""
    for name in names:
        mark = MARKS[name]
        try:
            for what, value in mark.measure(seconds):
                holds = mark.holds(value)
                word = "-" if holds is None else "yes" if holds else "no"
                yield [name, what, f"{value:.3g}", mark.unit, str(mark), word], holds is False
        except (ConvrefError, ImportError) as error:
            yield [name, shorten(str(error)), "-", mark.unit, str(mark), "not measured"], False


def main(*names: str, seconds: float = 10.0, threads: int = 2) -> int:
    """Measure every mark, or those that are named; the status is 1 where one is missed.

    --seconds is the time that a rate or a network takes; all marks take about half an hour.
    """
    from convref.cli.output import print_table

    if unknown := sorted({*names} - {*MARKS}):
        raise invalid("bench", f"mark is {unknown[0]!r}, {needs_one(unknown[0], MARKS)}")
    found = []
    with cpu.threads(threads):
        for row, missed in rows(names or tuple(MARKS), seconds):
            print(*row, sep="  ", flush=True)
            found.append((row, missed))
    heads = ["mark", "of", "value", "unit", "needed", "reached"]
    print_table(heads, [row for row, _ in found], "marks of speed on this CPU")
    return int(any(missed for _, missed in found))
