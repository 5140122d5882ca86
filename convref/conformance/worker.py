"""The worker process: takes tasks from a pipe, writes each line ahead of running it.

Whatever happens to this process, the parent knows from the write-ahead file which example was
running, and from the pipe which ones were finished.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from ..backends import Backend
from ..case import Case
from ..dispatch import load
from ..errors import ConvrefError, shorten
from ..knownbugs import Region
from ..line import parse
from .examine import Finding, examine
from .generate import Axes, chunk_cases
from .reject import trial

RECORD = 4096  # bytes of the write-ahead file; longer than any line
REPORT_SECONDS = 0.2
REPEAT_EVERY = 16  # every so many generated examples are run twice; given lines always are
MUTATE_EVERY = 32  # every so many are asked whether they notice a wrong kernel at all
REJECT_EVERY = 64  # after every so many the backend gets an input that it must refuse


@dataclass(frozen=True)
class Task:
    """Work for a worker: a chunk of generated cases, or given lines.

    Parameters
    ----------
    axes : Axes or None
        What to generate.
    chunk : int
        Number of the chunk; it seeds the generation.
    lines : tuple of str
        Lines to run instead of a chunk.
    start : int
        Examples before this one were reported already.
    skip : frozenset of int
        Examples that must not run (again).
    known : tuple of Region
        Known bugs: cases in them are counted under the bug and not run ...
    retest : bool
        ... or run, to see which bugs are still there.
    """

    axes: Axes | None = None
    chunk: int = 0
    lines: tuple[str, ...] = ()
    start: int = 0
    skip: frozenset[int] = frozenset()
    known: tuple[Region, ...] = ()
    retest: bool = False


@dataclass
class Report:
    """What a worker says of the examples [start, stop) of a task."""

    start: int
    stop: int
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    done: bool = False
    fingerprint: dict[str, str] | None = None
    error: str = ""


class InternalError(Exception):
    """A fault of convref itself, never of the backend."""


class WriteAhead:
    """A file of one record: the example that runs now. Survives the death of its writer."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, index: int, line: str, note: str = "") -> None:
        """Record that example `index` is about to run; a note says what was made wrong in it."""
        os.pwrite(self.fd, f"{index} {line} {note}".encode().ljust(RECORD), 0)

    def read(self) -> tuple[int, str]:
        """Return the last recorded example, or (-1, "")."""
        index, line, _ = self._fields()
        return (int(index), line) if index else (-1, "")

    def note(self) -> str:
        """Return what was made wrong in the last recorded example; empty if it is valid."""
        return self._fields()[2]

    def _fields(self) -> tuple[str, str, str]:
        text = os.pread(self.fd, RECORD, 0).decode(errors="replace").strip()
        index, _, rest = text.partition(" ")
        line, _, note = rest.partition(" ")
        return index, line, note

    def clear(self) -> None:
        """Forget the record."""
        os.pwrite(self.fd, b" " * RECORD, 0)


def main(pipe: Connection, wal_path: str, output_path: str, name: str) -> None:
    """Serve tasks until the pipe closes. Standard output and error go to a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    sink = os.open(output_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    wal = WriteAhead(wal_path)
    try:
        backend = load(name)
        backend = getattr(backend, "raw", backend)  # the court calls the library as it is
        pipe.send(Report(0, 0, fingerprint=dict(backend.fingerprint())))
    except (ConvrefError, ImportError) as error:
        pipe.send(Report(0, 0, error=str(error)))
        return
    try:
        while True:
            _serve(pipe, wal, backend, pipe.recv())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        sys.exit(0)  # the parent is gone
    except InternalError as error:
        pipe.send(Report(0, 0, error=f"convref's own error, please report it: {error}"))


def _serve(pipe: Connection, wal: WriteAhead, backend: Backend, task: Task) -> None:
    cases = list(map(parse, task.lines)) if task.axes is None else _cases(task)
    report, sent = Report(task.start, task.start), time.monotonic()
    for index in range(task.start, len(cases)):
        if index not in task.skip:
            case = cases[index]
            wal.write(index, str(case))
            try:
                finding = _known(case, backend, task) or _guarded(
                    case, backend, index, wal, task.axes is None
                )
            except Exception as error:  # ours: the backend's own are verdicts
                where = "".join(traceback.format_tb(error.__traceback__)[-1:])
                raise InternalError(f"{error!r} on {case}\n{where}") from error
            report.counts[(*_cell(case), finding.verdict, finding.tier)] += 1
            if finding.verdict not in ("pass", "unsupported", "known"):
                report.findings.append(finding)
        report.stop = index + 1
        if time.monotonic() - sent > REPORT_SECONDS:
            pipe.send(report)
            report, sent = Report(index + 1, index + 1), time.monotonic()
    report.done, report.stop = True, max(report.stop, len(cases))
    wal.clear()
    pipe.send(report)


def _known(case: Case, backend: Backend, task: Task) -> Finding | None:
    """Return the finding of a case in a known region, or None where there is none."""
    facts = backend.fingerprint() if task.known else {}
    bug = next((region.id for region in task.known if region.contains(case, facts)), None)
    if bug is None:
        return None
    if not task.retest:
        return Finding(str(case), "known", bug)
    found = examine(case, backend)
    return Finding(str(case), "pass" if found.verdict == "pass" else "known", bug)


def _cases(task: Task) -> list[Case]:
    assert task.axes is not None
    return chunk_cases(task.axes, task.chunk)


def _cell(case: Case) -> tuple[str, str, str]:
    return case.call.op, case.call.pass_, case.call.dtype


def _guarded(case: Case, backend: Backend, index: int, wal: WriteAhead, given: bool) -> Finding:
    """Examine a case; an exit that a backend asks for counts as a crash."""
    repeat = given or index % REPEAT_EVERY == 0
    mutate = not given and index % MUTATE_EVERY == MUTATE_EVERY - 1
    note = ""
    try:
        finding = examine(case, backend, repeat=repeat, mutate=mutate)
        if finding.verdict == "pass" and not given and index % REJECT_EVERY == REJECT_EVERY // 2:

            def announce(what: str) -> None:
                nonlocal note
                note = f"{what}: "
                wal.write(index, str(case), what)

            finding = trial(case, backend, announce) or finding
        return finding
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        return Finding(str(case), "crash", reason=shorten(f"{note}raised {error!r}"))
