"""A campaign: chunks until the time or the examples are used up, then shrinking, one record.

Everything that happens is appended to a log of JSON lines at once, so that a campaign that was
stopped, by whatever, can be resumed, merged and replayed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..case import Case
from ..errors import ConvrefError, message, shorten
from ..knownbugs import Region
from ..line import parse
from .engine import Engine, Limits, Tally, available_jobs
from .examine import HARMLESS, VERDICTS, Finding
from .generate import Axes
from .shrink import Shrunk, shrink, weight
from .worker import Report, Task

SHRINK_SECONDS = 30.0  # for one failure
PER_KIND = 3  # failures of one verdict, pass and result that are shrunk


@dataclass(frozen=True)
class Settings:
    """What a campaign is asked to do.

    Parameters
    ----------
    backend : str
        As `convref.dispatch.load` takes it.
    axes : Axes
    seconds, examples : float, int, optional
        When to stop drawing; whichever comes first.
    jobs : int
        Worker processes; 0 is one per processor.
    shard : (int, int)
        Run chunks i, i + n, i + 2n ... of shard (i, n).
    log : Path, optional
        JSON lines; an existing log of the same campaign is resumed.
    lines : tuple of str
        Replay these lines instead of generating.
    limits : Limits
    shrinks : bool
        Whether failures are shrunk.
    known : tuple of Region
        Known bugs, which are not looked for.
    retest : bool
        Run what lies in them after all, to see which are mended.
    """

    backend: str
    axes: Axes = field(default_factory=Axes)
    seconds: float | None = None
    examples: int | None = None
    jobs: int = 0
    shard: tuple[int, int] = (0, 1)
    log: Path | None = None
    lines: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    shrinks: bool = True
    known: tuple[Region, ...] = ()
    retest: bool = False


@dataclass(frozen=True)
class Failure:
    """One bug: a shrunk case, what it shows, and how many findings it stands for."""

    line: str
    verdict: str
    reason: str
    needs: tuple[str, ...] = ()
    independent: tuple[str, ...] = ()
    seen: int = 0
    first: str = ""


@dataclass
class Outcome:
    """What a campaign found."""

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
        """Return whether nothing worse than a refusal was seen."""
        return all(key[3] in HARMLESS for key in self.tally.counts)


Watch = Callable[[Outcome, str], None]


class Log:
    """Appends JSON lines; a full disk costs the log, never the campaign."""

    def __init__(self, path: Path | None) -> None:
        self.file: Any = None
        self.error = ""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("a", encoding="utf-8")

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        if self.file is None:
            return
        try:
            self.file.write(json.dumps({"event": event, **fields}) + "\n")
            self.file.flush()
        except OSError as error:
            self.error = f"the log ended early: {error.strerror}"
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            with contextlib.suppress(OSError):  # what is still buffered may not fit either
                self.file.close()
        self.file = None


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a log; a torn or foreign line is skipped, since a kill can tear one."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                event = json.loads(text)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                yield event


def run(settings: Settings, watch: Watch = lambda outcome, note: None) -> Outcome:
    """Run a campaign and return its outcome; Ctrl-C ends it early with what it has.

    Parameters
    ----------
    settings : Settings
    watch : callable
        Called with the outcome so far and a note, a few times a second.

    Raises
    ------
    ConvrefError
        If the backend does not load, or the log belongs to another campaign.
    """
    outcome = Outcome(settings, Tally())
    _resume(settings, outcome.tally)
    log, began = Log(settings.log), time.monotonic()
    log.write("start", **_identity(settings))
    with Engine(
        settings.backend, jobs=settings.jobs or available_jobs(), limits=settings.limits
    ) as engine:
        try:
            _draw(settings, engine, outcome, log, watch, began)
            outcome.tally.fingerprint = engine.fingerprint
            if settings.shrinks:
                _shrink_all(engine, outcome, log, watch)
        except KeyboardInterrupt:
            outcome.stopped = "interrupted; the same command goes on from the log"
        outcome.tally.fingerprint = engine.fingerprint
    outcome.elapsed = time.monotonic() - began
    log.write("end", elapsed=outcome.elapsed, fingerprint=outcome.tally.fingerprint)
    log.close()
    outcome.log_error = log.error
    return outcome


def _identity(settings: Settings) -> dict[str, Any]:
    return {
        "backend": settings.backend,
        "axes": asdict(settings.axes),
        "shard": list(settings.shard),
    }


def _resume(settings: Settings, tally: Tally) -> None:
    """Take complete chunks and all findings from an existing log."""
    if settings.log is None or not settings.log.exists():
        return
    mine = json.loads(json.dumps(_identity(settings)))
    partial: dict[int, tuple[Counter[tuple[str, ...]], list[Finding]]] = {}
    for event in read_log(settings.log):
        if event["event"] == "start" and {k: event.get(k) for k in mine} != mine:
            raise ConvrefError(
                message("log", f"{settings.log} belongs to another campaign, needs a new file")
            )
        if event["event"] == "report":
            counts = Counter({tuple(key): int(n) for key, n in event["counts"]})
            findings = [_finding(f) for f in event["findings"]]
            held = partial.setdefault(int(event["chunk"]), (Counter(), []))
            held[0].update(counts)
            held[1].extend(findings)
            if event["done"]:
                tally.add(*partial.pop(int(event["chunk"])))
                tally.chunks.add(int(event["chunk"]))
        if event["event"] == "start":
            partial.clear()  # a chunk that was cut off is run again, whole


def _finding(fields: dict[str, Any]) -> Finding:
    names = ("line", "verdict", "tier", "reason", "role")
    texts = {name: str(fields.get(name, "")) for name in names}
    parse(texts["line"])  # a foreign log can hold anything
    return Finding(**texts, index=tuple(fields.get("index", ())), worst=fields.get("worst", 0.0))


def _draw(
    settings: Settings, engine: Engine, outcome: Outcome, log: Log, watch: Watch, began: float
) -> None:
    """Run chunks until time or examples are used up."""
    tally, given = outcome.tally, settings.lines
    limit = settings.examples

    def tasks() -> Iterator[Task]:
        if given:
            yield Task(lines=given, known=settings.known, retest=settings.retest)
            return
        first, step = settings.shard
        started = tally.examples
        for chunk in itertools.count(first, step):
            if limit is not None and started >= limit:
                return
            if chunk not in tally.chunks:
                started += settings.axes.size
                yield Task(settings.axes, chunk, known=settings.known, retest=settings.retest)

    def receive(task: Task, report: Report) -> None:
        tally.add(report.counts, report.findings)
        if report.done and not given:
            tally.chunks.add(task.chunk)
        log.write(
            "report",
            chunk=task.chunk,
            counts=[[list(key), n] for key, n in report.counts.items()],
            findings=[finding.as_dict() for finding in report.findings],
            done=report.done,
        )
        outcome.elapsed = time.monotonic() - began
        watch(outcome, "")

    def stop() -> bool:
        watch(outcome, "")
        return settings.seconds is not None and time.monotonic() - began > settings.seconds

    engine.run(tasks(), receive, stop)
    for worker in engine.workers:  # what was cut off by the clock is not wanted any more
        if worker.task is not None:
            worker.task = None
            worker.stop()
            worker.start()


def _shrink_all(engine: Engine, outcome: Outcome, log: Log, watch: Watch) -> None:
    """Shrink a few failures of each kind, merge those of one cause, and put the worst first."""
    kinds: dict[tuple[str, ...], list[Finding]] = {}
    for finding in outcome.tally.findings:
        if finding.verdict not in HARMLESS:
            kinds.setdefault(_kind(finding), []).append(finding)
    merged: dict[tuple[str, ...], Failure] = {}
    for kind, findings in kinds.items():
        findings.sort(key=lambda f: weight(parse(f.line)))
        spread, seen = max(1, len(findings) // PER_KIND), len(findings)
        for finding in findings[::spread][:PER_KIND]:
            watch(outcome, f"shrinking {shorten(finding.line, 70)}")
            if finding.verdict == "accepts-invalid" or _died_of_nonsense(finding):
                key, failure = kind, Failure(finding.line, finding.verdict, finding.reason)
            else:
                found, reason = _shrunk(engine, finding, outcome.settings.known)
                key = cause(finding.verdict, found)
                line, needs, free = str(found.case), found.needs, found.independent
                failure = Failure(line, finding.verdict, reason, needs, free, first=finding.line)
            merged.setdefault(key, failure)
            merged[key] = replace(merged[key], seen=merged[key].seen + seen)
            seen = 0
    outcome.failures += sorted(
        merged.values(), key=lambda f: (-VERDICTS.index(f.verdict), -f.seen, f.line)
    )
    for failure in outcome.failures:
        log.write("failure", **asdict(failure))


def _died_of_nonsense(finding: Finding) -> bool:
    """Return whether invalid operands killed the backend: its line alone is a valid call."""
    return finding.verdict in ("crash", "hang") and finding.tier == "form"


def _kind(finding: Finding) -> tuple[str, ...]:
    """Return what findings must share to be worth shrinking only a few of them."""
    case = parse(finding.line)
    how = finding.role
    if finding.verdict == "accepts-invalid" or _died_of_nonsense(finding):
        role, *_, what = finding.reason.partition(":")[0].split()
        return finding.verdict, case.call.op, role, "space" if what in "dhw" else what
    if finding.verdict in ("rejects-valid", "crash"):
        how = "".join(c for c in finding.reason.split(";")[0] if not c.isdigit())[:60]
    if finding.verdict == "wrong":
        narrow = case.call.dtype if case.call.dtype in ("f16", "bf16") else ""
        special = case.fill if case.fill in ("nan", "inf", "subnormal") else ""
        how += f" {finding.tier} {narrow} {special}"
    return finding.verdict, case.call.op, case.call.pass_, how


def cause(verdict: str, shrunk: Shrunk) -> tuple[str, ...]:
    """Return what makes two shrunk failures one bug: the verdict, and the features both need.

    Sizes do not count, nor on which axis or operand a feature sits.
    """
    call, problem = shrunk.case.call, shrunk.case.call.problem
    named = {need.partition(" ")[0].partition("[")[0] for need in shrunk.needs}
    features = named & {"stride", "dilation", "groups", "transposed", "dtype", "fill"}
    features |= {f"{letter}=0" for letter in "nck" if getattr(problem, letter, 1) == 0}
    if any(size == 0 for size in problem.input):
        features.add("input=0")
    edges = [edge for pair in problem.padding for edge in pair]
    if "padding" in named:
        features.add("negative padding" if min(edges) < 0 else "padding")
    for need in named:
        if need.startswith("mem."):
            spec = call.spec(need.removeprefix("mem."))
            views = {"expand": spec.expand, "step": spec.step, "order": spec.order}
            features |= {f"mem.{name}" for name, used in views.items() if used}
    for empty in ("k=0", "c=0", "input=0", "n=0"):
        if empty in features:
            return (empty,)
    if "fill" in features and shrunk.case.fill in ("nan", "inf"):
        return (verdict, call.dtype, "non-finite")
    where = (call.pass_, call.dtype) if verdict == "wrong" else ()
    special = (shrunk.case.fill,) if "fill" in features else ()
    return (verdict, *where, *special, *sorted(features))


def _shrunk(engine: Engine, finding: Finding, known: tuple[Region, ...]) -> tuple[Shrunk, str]:
    """Return the shrunk case of a finding and the reason that the smallest one gives.

    A smaller case that lies in a known bug fails for that reason, and does not count.
    """
    ends = time.monotonic() + SHRINK_SECONDS
    reasons: dict[str, str] = {finding.line: finding.reason}

    def fails(cases: list[Case]) -> list[bool]:
        if time.monotonic() > ends:
            return [False] * len(cases)
        facts = engine.fingerprint
        new = [c for c in cases if not any(region.contains(c, facts) for region in known)]
        found = {f.line: f for f in run_lines(engine, [str(c) for c in new])}
        same = [str(c) in found and found[str(c)].verdict == finding.verdict for c in cases]
        reasons.update({f.line: f.reason for f in found.values()})
        return same

    shrunk = shrink(parse(finding.line), fails)
    return shrunk, reasons.get(str(shrunk.case), finding.reason)


def run_lines(engine: Engine, lines: list[str]) -> list[Finding]:
    """Return the findings of some lines, passes left out, through crashes and hangs."""
    lines = [str(parse(line)) for line in lines]  # a bad one is told here, not by a worker's death
    findings: list[Finding] = []
    share = -(-len(lines) // len(engine.workers)) if lines else 1
    parts = [tuple(lines[i : i + share]) for i in range(0, len(lines), share)]
    engine.run(
        (Task(lines=part) for part in parts), lambda task, report: findings.extend(report.findings)
    )
    return findings
