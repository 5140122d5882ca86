"""What the marks of speed measure: functions that yield the name of a value, and the value.

Each has an argument `seconds`, the time that a rate or a network takes.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from convref.case import Case, parse
from convref.conformance import campaign
from convref.conformance.generate import Axes
from convref.conformance.operands import operands
from convref.dispatch import load
from convref.errors import invalid
from convref.ops import ops_of

from ..records import Record
from ..suites import network, suite
from .cpu import Cpu
from .measure import Stop, Work, geometric_mean, measure

Measured = Iterator[tuple[str, float]]
Measure = Callable[[float], Measured]

ROOT = Path(__file__).resolve().parents[3]
SEEDS = 10
MANY = 100_000  # examples over which the rate of the court is constant
VERDICT = r": [1-9][\d,]* examples?, .*(right|wrong|\d [a-z])"  # a line of `convref check`
# Calls so small that most of their time is what a call costs.
SMALLEST = (
    "conv.fprop:n1c4k4_i6x6_f3x3_p1",
    "conv.wgrad:n1c4k4_i6x6_f3x3_p1",
    "max_pool.fprop:n1c4_i6x6_f2",
    "batch_norm.fprop:n1c4_i6x6",
    "batch_norm.backward:n1c4_i6x6",
)


def _campaign_progress(settings: campaign.Settings) -> list[tuple[float, int]]:
    """Run a campaign; return its seconds and examples at each report, unsupported ones left out."""
    seen: list[tuple[float, int]] = []

    def watch(outcome: campaign.Outcome, note: str) -> None:
        if judged := outcome.tally.judged:
            seen.append((outcome.elapsed, judged))

    campaign.run(settings, watch)
    if not seen or seen[0] == seen[-1]:
        raise invalid("bench", f"{settings.backend} judged too few examples to have a rate")
    return seen


def _rate(seen: Sequence[tuple[float, int]]) -> float:
    (start, before), (end, after) = seen[0], seen[-1]
    return (after - before) / (end - start)


def court(backend: str, ops: Sequence[str] = ("conv",), dtypes: tuple[str, ...] = ()) -> Measure:
    """Return what measures how many examples two workers judge in a second, once they run."""

    def measure(seconds: float) -> Measured:
        named = load(backend)
        size, data = getattr(named, "chunk", Axes().size), getattr(named, "data", 1)
        axes = Axes(ops=ops_of(ops), dtypes=dtypes, size=size, data=data)
        settings = campaign.Settings(backend, axes, 3 * seconds, jobs=2, shrinks=False)
        yield backend, _rate(_campaign_progress(settings))

    return measure


def flatness(seconds: float) -> Measured:
    """Yield the rate of the last tenth of many examples over that of the first tenth."""
    axes = Axes(ops=("conv",))
    settings = campaign.Settings("numpy", axes, examples=MANY, jobs=2, shrinks=False)
    seen = _campaign_progress(settings)
    first = [one for one in seen if one[1] <= seen[-1][1] / 10]
    last = [one for one in seen if one[1] >= seen[-1][1] * 9 / 10]
    yield f"{MANY:,} examples", _rate(last) / _rate(first)


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


def converted(compiler: str) -> Measure:
    def measure(seconds: float) -> Measured:
        from . import converted

        for name in converted.NETWORKS:
            for mode in converted.MODES:
                row = converted.row(name, mode, 64, 2, seconds, compiler)
                yield f"{name}, {mode}", float(row[3])

    return measure


def call_cost(name: str) -> Measure:
    def measure(seconds: float) -> Measured:
        from . import call_cost

        for grad in (False, True):
            if sides := call_cost.works(grad).get(name):
                best = cpu_times(sides, call_cost.STOP)
                yield name, 1e3 * (best[call_cost.OURS] - best[call_cost.THEIRS])

    return measure


def backend_cost(backend: str) -> Measure:
    """Return what measures how many us the smallest calls of a backend take the processor."""

    def measure(seconds: float) -> Measured:
        from . import call_cost

        one = load(backend)
        for line in SMALLEST:
            call = parse(line).call
            work = partial(one.run, call, *operands(Case(call, fill="normal")))
            yield line, 1e3 * cpu_times({line: work}, call_cost.STOP)[line]

    return measure


def cpu_times(sides: dict[str, Work], stop: Stop) -> dict[str, float]:
    device = Cpu(0.0, time.thread_time)
    return {name: timing.low_ms for name, timing in measure(sides, device, stop).items()}


def layers(
    backend: str,
    keys: str,
    threads: int,
    *,
    networks: Sequence[str] = ("resnet50",),
    ops: Sequence[str] = ("conv",),
    batch: int = 1,
    stem: bool = False,
) -> Measure:
    """Return what compares layers of networks with torch, by network, op and pass.

    `stem` is the first convolution alone. On one thread times are of the processor.
    """

    def measure(seconds: float) -> Measured:
        for name in networks:
            chosen = suite.load(name, ops_of(ops))
            place = network.place_of("cpu", threads)
            arms = network.rows(
                chosen[:1] if stem else chosen, (backend, "torch"), place, keys=[keys], batch=batch
            )
            yield from ratios(f"{backend}, {name}", backend, [*arms])

    return measure


def ratios(what: str, backend: str, rows: Sequence[Record]) -> Measured:
    """Yield the geometric mean of each op and pass, layers weighted; each layer has to be timed."""
    groups: dict[str, list[Record]] = {}
    for row in rows:
        if row["what"] != "point":
            raise invalid("bench", f"{row['arm']} is {row['what']}: {row['why']}", row["line"])
        if row["arm"] == backend:
            groups.setdefault(row["line"].partition(":")[0], []).append(row)
    for where, mine in groups.items():
        values, times = ([row[name] for row in mine] for name in ("ratio", "times"))
        yield f"{what}, {where}", geometric_mean(values, times)


def activations(seconds: float) -> Measured:
    from . import oracle_speed

    for op in ("gelu", "hardswish", "sigmoid"):
        rows = [
            row
            for image in oracle_speed.IMAGES
            for row in oracle_speed.point(op, f"{image}:dt=f64")
        ]
        yield op, oracle_speed.mean(rows, "torch")


def make(target: str, until: str = "") -> Measure:
    """Return what measures the seconds of a target of the Makefile, installing left out.

    With `until`, a regular expression, only those until a line of its output matches.
    """

    def measure(seconds: float) -> Measured:
        if not (ROOT / "Makefile").exists():
            raise invalid("bench", f"make {target} needs the repository")
        subprocess.run(["make", "-s", f".venv/.installed-{target}"], cwd=ROOT, check=True)
        began = time.monotonic()
        yield target, _end_time(["make", "-s", target], until) - began

    return measure


def _end_time(command: list[str], until: str) -> float:
    """Return when a command printed a line that matches `until`, else when it ended well."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, text=True, process_group=0) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if until and re.search(until, line):
                found = time.monotonic()
                os.killpg(running.pid, signal.SIGTERM)  # a background job ignores SIGINT
                running.stdout.read()
                return found
    if running.returncode or until:
        raise invalid("bench", f"{' '.join(command)}: status {running.returncode}, no {until!r}")
    return time.monotonic()
