"""The worker process: takes tasks from a pipe, writes each line ahead of running it.

If this process dies, the write-ahead file holds the example that was running, and the pipe has
delivered those that were finished.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from multiprocessing.connection import Connection
from typing import Any, cast

from ...backends import PLAIN, Arm, Backend
from ...backends.protocol import versions
from ...case import Call, Case, parse
from ...dispatch import load
from ...errors import ConvrefError, ProtocolError, one_line
from ...knownbugs import Region
from ..examine import PASSED_OVER, Finding, examine
from ..generate import Axes, chunk_cases
from ..laws import examine_laws
from ..operands import operands
from ..reject import examine_rejection
from ..surroundings import with_surroundings
from .device import OnDevice

RECORD = 4096  # bytes of the write-ahead file; longer than any line
REPORT_SECONDS = 0.2
REPEAT_EVERY = 16  # one generated example in 16 is run twice; given lines always are
MUTATE_EVERY = 32  # one generated example in 32 is checked with mutations
BATCH = "batch"  # note of the write-ahead record while several examples run
REJECT_EVERY = 64  # after one example in 64 the backend gets an input that it must refuse


@dataclass(frozen=True)
class Task:
    """Work for a worker: a chunk of generated cases, or given lines."""

    axes: Axes | None = None  # what to generate
    chunk: int = 0  # number of the chunk; it seeds the generation
    lines: tuple[str, ...] = ()  # lines to run instead of a chunk
    start: int = 0  # examples before this one were reported already
    skip: frozenset[int] = frozenset()  # examples that must not run (again)
    known: tuple[Region, ...] = ()  # known bugs: their cases are counted under the bug and not run
    retest: bool = False  # run those cases too, to find out which bugs are still there
    arm: Arm = PLAIN  # how the library is run
    batched: bool = True  # whether several examples may be computed by one call, if the backend can
    laws: bool = False  # whether `convref.conformance.laws` are checked instead of results
    fresh: bool = False  # whether it needs a process that has not yet called the backend
    invalid: str = ""  # the error that is made in the operands of the lines: "dy has smaller n"

    def cases(self) -> list[Case]:
        """Return all cases of the chunk, or of the lines."""
        return chunk_cases(self.axes, self.chunk) if self.axes else list(map(parse, self.lines))

    def known_bug(self, case: Case, facts: dict[str, str]) -> str | None:
        """Return the id of the known bug whose region contains the case, or None."""
        call = case.call
        kind = call.op, call.pass_, call.dtype
        if kind not in self._of_kind:
            self._of_kind[kind] = [region for region in self.known if region.may_contain(call)]
        return next((r.id for r in self._of_kind[kind] if r.contains(case, facts)), None)

    @cached_property
    def _of_kind(self) -> dict[tuple[str, ...], list[Region]]:
        """The known bugs that may be met by op, pass and dtype, filled as those occur."""
        return {}


@dataclass
class ChunkReport:
    """The report of a worker on the examples [start, stop) of a task, or that it is ready."""

    start: int
    stop: int
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    done: bool = False
    ready: bool = False
    fingerprint: dict[str, str] = field(default_factory=dict)
    arms: tuple[Arm, ...] = ()
    error: str = ""


class InternalError(Exception):
    """An error of convref, not of the backend."""


class WriteAhead:
    """A file of one record, the example that runs now, which outlives its writer."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, index: int, line: str, note: str = "") -> None:
        """Record that example `index` is about to run; a note describes an operand made invalid."""
        os.pwrite(self.fd, f"{index} {line} {note}".encode().ljust(RECORD), 0)

    def read(self) -> tuple[int, str, str]:
        """Return the last recorded example and its note, or (-1, "", "")."""
        text = os.pread(self.fd, RECORD, 0).decode(errors="replace").strip()
        index, _, rest = text.partition(" ")
        line, _, note = rest.partition(" ")
        return int(index or -1), line, note

    def clear(self) -> None:
        """Forget the record."""
        os.pwrite(self.fd, b" " * RECORD, 0)


def main(
    pipe: Connection,
    wal_path: str,
    output_path: str,
    name: str,
    environment: tuple[tuple[str, str], ...] = (),
) -> None:
    """Serve tasks until the pipe closes. Standard output and error go to a file."""
    _end_with_parent()
    sink = os.open(output_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.environ.update(environment)
    wal = WriteAhead(wal_path)
    try:
        backend = load(name)
        arms = tuple(getattr(backend, "arms", ()))
        made_of = versions(raw(backend))
        gc.freeze()  # what a framework made stays: collections need not look at it again
        pipe.send(ChunkReport(0, 0, ready=True, fingerprint=made_of, arms=arms))
        while True:
            task = pipe.recv()
            _serve(pipe, wal, raw(load(task.arm.backend or name)), task)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        sys.exit(0)  # the parent is gone
    except (ConvrefError, ImportError) as error:
        pipe.send(ChunkReport(0, 0, error=str(error)))
    except InternalError as error:
        pipe.send(ChunkReport(0, 0, error=f"convref's own error, please report it: {error}"))


def _end_with_parent() -> None:
    """End only as the parent decides, with all that is started here, or at once if it dies.

    A backend that hangs reads no pipe, so Linux has to tell: it sends SIGKILL to this group of
    processes when the pipe to the parent closes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setsid()  # `Worker.stop` ends the group
    parent = multiprocessing.parent_process()
    assert parent is not None
    if sys.platform.startswith("linux"):
        import fcntl

        with contextlib.suppress(OSError):  # some sandboxes have no such signals
            fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, -os.getpid())
            fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
            flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
            fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if not parent.is_alive():  # it ended before that
        os._exit(1)


def raw(backend: Backend) -> Backend:
    """Return the library itself, without the checks that an adapter adds."""
    return getattr(backend, "raw", backend)


def _serve(pipe: Connection, wal: WriteAhead, backend: Backend, task: Task) -> None:
    cases = task.cases()
    if any(case.call.specs[0].device != "cpu" for case in cases):
        backend = OnDevice(backend)
    if task.axes is not None and not task.laws:
        cases = [with_surroundings(case, i, backend) for i, case in enumerate(cases)]
    report, sent = ChunkReport(task.start, task.start), time.monotonic()
    ahead: dict[int, tuple[Any, ...]] = {}
    for index in range(task.start, len(cases)):
        if index not in task.skip:
            case = cases[index]
            if index % getattr(backend, "batch", 1) == 0 or index == task.start:
                ahead = _run_batch(backend, cases, index, task, wal)
            wal.write(index, str(case))
            try:
                finding = _by_laws(case, backend, task) if task.laws else None
                finding = finding or _known_bug_finding(case, backend, task)
                finding = finding or _from_batch(case, backend, index, ahead)
                finding = finding or _examine_guarded(case, backend, index, wal, task)
            except ProtocolError:
                raise
            except Exception as error:  # those of the backend are verdicts
                where = "".join(traceback.format_tb(error.__traceback__)[-1:])
                raise InternalError(f"{one_line(error)} on {case}\n{where}") from error
            report.counts[count_key(case, finding.verdict, finding.tier)] += 1
            if finding.verdict not in ("pass", *PASSED_OVER):
                report.findings.append(replace(finding, arm=task.arm.name))
        report.stop = index + 1
        if time.monotonic() - sent > REPORT_SECONDS:
            pipe.send(report)
            report, sent = ChunkReport(index + 1, index + 1), time.monotonic()
    report.done, report.stop = True, max(report.stop, len(cases))
    report.fingerprint = versions(backend)
    wal.clear()
    pipe.send(report)


class _Computed:
    """A backend that returns results computed before."""

    def __init__(self, backend: Backend, results: tuple[Any, ...]) -> None:
        self.supports, self.numerics = backend.supports, backend.numerics
        self.results = results

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results."""
        return self.results


def _run_batch(
    backend: Any, cases: list[Case], start: int, task: Task, wal: WriteAhead
) -> dict[int, tuple[Any, ...]]:
    """Return the results of the batch from `start` on, by number, where the backend can."""
    if task.axes is None or task.laws or not task.batched or not hasattr(backend, "run_many"):
        return {}
    stop = start - start % backend.batch + backend.batch
    facts = backend.fingerprint()
    chosen = {
        i: case
        for i, case in list(enumerate(cases))[start:stop]
        if i % REPEAT_EVERY  # those are examined alone
        and i % MUTATE_EVERY != MUTATE_EVERY - 1
        and i not in task.skip
        and not case.around
        and not task.known_bug(case, facts)
        and _accepts(backend, case.call)
    }
    wal.write(start, str(cases[start]), BATCH)
    try:
        given = [operands(case) for case in chosen.values()]
        results = backend.run_many([case.call for case in chosen.values()], given)
    except Exception:  # each is run alone then
        return {}
    return dict(zip(chosen, results))


def _accepts(backend: Backend, call: Call) -> bool:
    """Return whether a batch may hold the call; what `supports` raises is found with it alone."""
    try:
        return backend.supports(call) is None
    except Exception:
        return False


def _from_batch(
    case: Case, backend: Backend, index: int, ahead: dict[int, tuple[Any, ...]]
) -> Finding | None:
    """Return the finding of a case that passes in its batch; all others are run alone."""
    if index not in ahead:
        return None
    finding = examine(case, cast("Backend", _Computed(backend, ahead[index])))
    return finding if finding.verdict == "pass" else None


def _by_laws(case: Case, backend: Backend, task: Task) -> Finding:
    """Check the laws; a backend that exits the process counts as a crash."""
    try:
        return examine_laws(case, backend, partial(_excluded, backend, task))
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        return Finding(str(case), "crash", reason=f"raised {one_line(error)}")


def _excluded(backend: Backend, task: Task, case: Case) -> str | None:
    """Return the known bug for which a further call must not run, or None."""
    return None if task.retest else task.known_bug(case, backend.fingerprint())


def _known_bug_finding(case: Case, backend: Backend, task: Task) -> Finding | None:
    """Return the finding of a case in a known region, or None where there is none."""
    bug = task.known_bug(case, backend.fingerprint() if task.known else {})
    if bug is None:
        return None
    if not task.retest:
        return Finding(str(case), "known", bug)
    found = examine(case, backend)
    return Finding(str(case), "pass" if found.verdict == "pass" else "known", bug)


def count_key(case: Case, verdict: str, tier: str) -> tuple[str, ...]:
    """Return the key by which examples are counted."""
    return case.call.op, case.call.pass_, case.call.dtype, verdict, tier


def _examine_guarded(
    case: Case, backend: Backend, index: int, wal: WriteAhead, task: Task
) -> Finding:
    """Examine a case; a backend that exits the process counts as a crash."""
    given = task.axes is None
    repeat = given or index % REPEAT_EVERY == 0
    mutate = not given and index % MUTATE_EVERY == MUTATE_EVERY - 1
    note = ""

    def announce(what: str) -> None:
        nonlocal note
        note = f"{what}: " if what else ""
        wal.write(index, str(case), what)

    try:
        notes: dict[str, Any] = {"announce": announce} if repeat else {}
        if case.around:
            notes["excluded"] = partial(_excluded, backend, task)
        finding = examine(case, backend, repeat=repeat, mutate=mutate, **notes)
        rejects = not given and index % REJECT_EVERY == REJECT_EVERY // 2
        if finding.verdict == "pass" and (rejects or task.invalid):
            finding = examine_rejection(case, backend, announce, task.invalid) or finding
        return finding
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        return Finding(str(case), "crash", reason=f"{note}raised {one_line(error)}")
