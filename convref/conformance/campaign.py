"""A campaign: chunks until the time or the examples are used up, then shrinking, one record.

Each event is appended to a log at once, so that an interrupted campaign can be resumed, merged and
replayed.
"""

import contextlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..backends import PLAIN
from ..errors import invalid, shorten
from ..knownbugs import Region
from .causes import Failure, root_causes
from .examine import HARMLESS, Finding
from .generate import Axes, arm_of
from .log import MALFORMED, Log, Part, add_report, read_log
from .workers.engine import PATIENCE, Engine, Limits, Tally, available_jobs
from .workers.worker import ChunkReport, Task

SHRINKING = 1 / 2  # of `seconds`: what shrinking takes after them at most


@dataclass(frozen=True)
class Settings:
    """The options of a campaign."""

    backend: str  # as `convref.dispatch.load` takes it
    axes: Axes = field(default_factory=Axes)
    # when to stop drawing, whichever comes first; without `examples`, shrinking takes at most half
    # of `seconds` more
    seconds: float | None = None
    examples: int | None = None
    jobs: int = 0  # worker processes; 0 is one per processor, one on a GPU
    shard: tuple[int, int] = (0, 1)  # run chunks i, i + n, i + 2n ... of shard (i, n)
    log: Path | None = None  # JSON lines; an existing log of the same campaign is resumed
    lines: tuple[str, ...] = ()  # replay these lines instead of generating
    limits: Limits = field(default_factory=Limits)
    shrinks: bool = True  # whether failures are shrunk
    known: tuple[Region, ...] = ()  # known bugs, whose cases are not run
    retest: bool = False  # run their cases after all, to see which are fixed
    ray: str = ""  # address of a cluster of Ray that runs the chunks; shrinking stays here
    gpus: float = 0.0  # what a chunk needs there of a GPU


@dataclass
class Outcome:
    """The outcome of a campaign."""

    settings: Settings
    tally: Tally
    failures: list[Failure] = field(default_factory=list)
    elapsed: float = 0.0
    stopped: str = ""
    log_error: str = ""

    def retested(self) -> dict[str, tuple[int, int]]:
        """Return, per known bug that was retested, how many cases failed and how many passed."""
        found: dict[str, tuple[int, int]] = {}
        ids = {region.id for region in self.settings.known}
        for (*_, verdict, tier), n in self.tally.counts.items():
            if tier in ids:
                failed, passed = found.get(tier, (0, 0))
                bad = verdict != "pass"
                found[tier] = (failed + n * bad, passed + n * (not bad))
        return found

    @property
    def good(self) -> bool:
        """Return whether examples ran, and none was worse than a refusal."""
        return bool(self.tally.examples) and not _failing(self.tally)


Watch = Callable[[Outcome, str], None]


def run(settings: Settings, watch: Watch = lambda outcome, note: None) -> Outcome:
    """Run a campaign and return its outcome; Ctrl-C ends it early with the outcome so far.

    `watch` is called with the outcome so far and a note, a few times a second.
    """
    if settings.ray:
        from .workers.fleet import connect

        connect(settings.ray)
    outcome, began = Outcome(settings, Tally()), time.monotonic()
    one = settings.axes.device != "cpu"  # one process at a time is what a GPU runs
    jobs = settings.jobs or (1 if one else available_jobs())
    with contextlib.closing(Log(settings.log)) as log:
        _resume(settings, outcome.tally)
        log.write("start", **_identity(settings))
        with Engine(settings.backend, jobs=jobs, limits=settings.limits) as engine:
            try:
                ready = _run_chunks(settings, engine, outcome, log, watch, began)
                if settings.shrinks:
                    _report_failures(engine, outcome, log, watch, ready)
            except KeyboardInterrupt:
                goes_on = "; the same command goes on from the log" if settings.log else ""
                outcome.stopped = f"interrupted{goes_on}"
            outcome.tally.fingerprint = engine.fingerprint
            outcome.elapsed = time.monotonic() - began
            log.write("end", elapsed=outcome.elapsed, fingerprint=engine.fingerprint)
    outcome.log_error = log.error
    return outcome


def _identity(settings: Settings) -> dict[str, Any]:
    return {
        "backend": settings.backend,
        "axes": asdict(settings.axes),
        "shard": list(settings.shard),
    }


def _resume(settings: Settings, tally: Tally) -> None:
    if settings.log is None or not settings.log.is_file():  # a device or a pipe
        return
    identity = json.loads(json.dumps(_identity(settings)))
    parts: dict[int, Part] = {}
    cut_off: list[Finding] = []
    ours = not settings.log.stat().st_size
    for event in read_log(settings.log):
        if event.get("event") == "start":
            ours = True
            if {k: event.get(k) for k in identity} != identity:
                what = f"{settings.log} belongs to another campaign, needs a new file"
                raise invalid("log", what)
            cut_off += _findings_cut_off(parts)
            parts = {number: part for number, part in parts.items() if part.done}
        elif event.get("event") == "report":
            try:
                add_report(parts, event)
            except MALFORMED as error:
                what = f"{settings.log} has a malformed report: {shorten(repr(error))}"
                raise invalid("log", what) from None
    if not ours:
        raise invalid("log", f"{settings.log} is not a log of convref check, needs a new file")
    for number, part in parts.items():
        if part.done:
            tally.add(part.counts, part.findings, part.arm)
            tally.chunks.add(number)
    tally.findings += cut_off + _findings_cut_off(parts)


def _findings_cut_off(parts: dict[int, Part]) -> list[Finding]:
    """Return the findings of chunks that run again: a random failure may not occur again."""
    return [finding for part in parts.values() if not part.done for finding in part.findings]


def _run_chunks(
    settings: Settings, engine: Engine, outcome: Outcome, log: Log, watch: Watch, began: float
) -> float:
    """Run chunks until the time or the examples are used up; return when the workers were ready."""
    engine.start()
    ready = time.monotonic()  # starting the workers of a busy machine takes none of the time
    tally = outcome.tally

    def receive(task: Task, report: ChunkReport) -> None:
        tally.add(report.counts, report.findings, task.arm.name)
        if report.done and not settings.lines:
            tally.chunks.add(task.chunk)
        part = Part(report.counts, report.findings, report.done, task.arm.name)
        log.write("report", **part.event(task.chunk))
        outcome.elapsed = time.monotonic() - began
        watch(outcome, "")

    def stop() -> bool:
        watch(outcome, "")
        return settings.seconds is not None and time.monotonic() - ready > settings.seconds

    tasks = _tasks(settings, engine, tally)
    if settings.ray:
        from .workers import fleet

        fleet.run(engine, tasks, receive, stop, settings.gpus)
        return ready
    engine.run(tasks, receive, stop)
    with engine.until(_deadline(settings, ready)):
        engine.settle(receive, lambda: watch(outcome, "waiting for what has begun"))
    engine.drop()
    return ready


def _deadline(settings: Settings, ready: float) -> float:
    """Return when a campaign ends, shrinking included: a hang at the end of the time is found."""
    if settings.seconds is None or settings.examples is not None:
        return math.inf
    hang = PATIENCE * settings.limits.seconds
    return ready + settings.seconds + max(SHRINKING * settings.seconds, hang)


def _failing(tally: Tally) -> bool:
    return any(key[3] not in HARMLESS for key in tally.counts)


def _tasks(settings: Settings, engine: Engine, tally: Tally) -> Iterator[Task]:
    """Yield the given lines for each chosen arm, else the chunks that the log does not have."""
    task = partial(Task, known=settings.known, retest=settings.retest, laws=settings.axes.laws)
    chosen = tuple(map(engine.arm, settings.axes.arms))
    if settings.lines:
        yield from (task(None, 0, settings.lines, arm=arm) for arm in chosen or (PLAIN,))
        return
    # the arms of a backend are ways to compute on the CPU, unless one is named
    arms = engine.arms if settings.axes.device == "cpu" else chosen
    started = tally.examples
    for chunk in itertools.count(*settings.shard):
        if settings.examples is not None and started >= settings.examples:
            return
        if chunk not in tally.chunks:
            started += settings.axes.size
            yield task(settings.axes, chunk, arm=arm_of(settings.axes, chunk, arms))


def _report_failures(
    engine: Engine, outcome: Outcome, log: Log, watch: Watch, ready: float
) -> None:
    settings, findings = outcome.settings, outcome.tally.findings
    rest = _deadline(settings, ready) - time.monotonic()
    note = partial(watch, outcome)
    for failure in root_causes(engine, findings, settings.known, note, settings.axes.laws, rest):
        outcome.failures.append(failure)
        log.write("failure", **asdict(failure))
