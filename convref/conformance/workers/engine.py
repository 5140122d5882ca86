"""The parent process: sends chunks to workers, and continues after their crashes and hangs."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ...backends import PLAIN, Arm
from ...case import parse
from ...errors import ConvrefError, invalid, missing_extra, printable, shorten
from ..examine import PASSED_OVER, WITH_THREADS, Finding
from .device import MEMORY
from .worker import BATCH, ChunkReport, Task, WriteAhead, count_key, main

try:
    import psutil
except ImportError as error:
    raise missing_extra("check", error) from None

POLL_SECONDS = 0.1
# Modules of backends that survive a fork. PyTorch's forward mode imports the other one where it
# decomposes an op, which takes each worker seconds, and again after each crash.
FORK_SAFE: dict[str, tuple[str, ...]] = {
    "numpy": ("convref.backends.numpy",),
    "loops": ("convref.backends.loops",),
    "torch": ("convref.backends.torch", "torch._dynamo"),
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Shares of a processor. A process that gets less than BUSY may be one of many on a busy machine,
# and is given PATIENCE time limits; one that gets less than IDLE waits for something.
BUSY, IDLE, PATIENCE = 0.5, 0.02, 2


@dataclass(frozen=True)
class Limits:
    """The limits of one example, and of importing a framework on a busy machine."""

    seconds: float = 30.0  # of wall time
    memory: int = MEMORY["cpu"]  # bytes, resident
    load: float = 120.0  # seconds


@dataclass
class Tally:
    """Counts and findings of a campaign."""

    # keyed (op, pass, dtype, verdict, tier)
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)  # in the order they came
    chunks: set[int] = field(default_factory=set)  # chunks that are complete
    fingerprint: dict[str, str] = field(default_factory=dict)
    # examples by the name of the arm that ran them
    arms: Counter[str] = field(default_factory=Counter)

    @property
    def examples(self) -> int:
        """Return how many examples were judged or refused."""
        return sum(self.counts.values())

    @property
    def judged(self) -> int:
        """Return how many of the examples were judged, neither unsupported nor known bugs."""
        return self.examples - sum(map(self.count, PASSED_OVER))

    def count(self, verdict: str) -> int:
        """Return how many examples had this verdict."""
        return sum(n for key, n in self.counts.items() if key[3] == verdict)

    def add(
        self, counts: Counter[tuple[str, ...]], findings: list[Finding], arm: str = "plain"
    ) -> None:
        """Add the report of a worker."""
        self.counts.update(counts)
        self.findings.extend(findings)
        self.arms[arm] += counts.total()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let a process that starts now compute with one thread, unless the user has set it.

    Workers share the processors; thread pools that spin against each other are 10 times slower.
    """
    missing = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


class Worker:
    """One worker process with its pipe and its write-ahead file."""

    def __init__(self, name: str, method: str, folder: Path, number: int) -> None:
        self.name, self.method = name, method
        self.environment: tuple[tuple[str, str], ...] = ()
        self.output = folder / f"output-{number}"
        self.wal_path = str(folder / f"ahead-{number}")
        self.wal = WriteAhead(self.wal_path)
        self.process: Any = None
        self.pipe: Connection | None = None
        self.ready = False
        self.task: Task | None = None
        self.next = 0
        self.used = False  # whether the process has been given a task
        self.running, self.since, self.spent = -1, time.monotonic(), 0.0
        self.longest = 0.0  # seconds of an example that ended by itself
        self.start()

    def start(self) -> None:
        """Start the process; it sends its fingerprint when the backend is loaded."""
        context: Any = multiprocessing.get_context(self.method)
        self.pipe, theirs = context.Pipe()
        self.wal.clear()
        self.output.write_bytes(b"")
        arguments = (theirs, self.wal_path, str(self.output), self.name, self.environment)
        self.process = context.Process(target=main, args=arguments, daemon=True)
        with _one_thread():
            self.process.start()
        theirs.close()
        self.ready, self.used = False, False
        self.running, self.since = -1, time.monotonic()

    def send_task(self, task: Task) -> None:
        """Send a task; one for another environment waits for a new process to be ready."""
        assert self.pipe is not None
        self.task, self.next = task, task.start
        if task.arm.environment != self.environment or (task.fresh and self.used):
            self.environment = task.arm.environment
            self.stop()
            self.start()
            return
        self.used = True
        self.running, self.since = -1, time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(task)

    def stop(self) -> None:
        """Kill the process, and those that its backend started."""
        if self.process is not None:
            with contextlib.suppress(OSError):  # it has no group before it runs
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.join()
            self.process = None
        if self.pipe is not None:
            self.pipe.close()

    def overrun(self, limits: Limits) -> str:
        """Return why the process must end now, or an empty text."""
        index = self.wal.read()[0]
        if index != self.running:
            ended = time.monotonic() - self.since if self.running >= 0 else 0.0
            self.longest = max(self.longest, ended)
            self.running, self.since, self.spent = index, time.monotonic(), self._processor_time()
        elapsed = time.monotonic() - self.since
        if self.task is not None and self.running >= 0 and elapsed > limits.seconds:
            used = (self._processor_time() - self.spent) / limits.seconds
            if not IDLE < used < BUSY or elapsed > PATIENCE * limits.seconds:
                return f"no answer in {limits.seconds:g} s"
        if not self.ready and elapsed > limits.load:
            return f"it did not load in {limits.load:g} s"
        with contextlib.suppress(psutil.Error):
            used = psutil.Process(self.process.pid).memory_info().rss
            if used > limits.memory:
                return f"resident memory is {used >> 20} MiB, limit {limits.memory >> 20} MiB"
        return ""

    def _processor_time(self) -> float:
        with contextlib.suppress(psutil.Error):
            used = psutil.Process(self.process.pid).cpu_times()
            return float(used.user + used.system)
        return 0.0

    def exit_reason(self) -> str:
        """Return how the process ended, with the last of its output."""
        self.process.join(5)
        code = self.process.exitcode
        how = f"exit status {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        tail = self.output.read_bytes()[-300:].decode(errors="backslashreplace")
        words = printable(tail)
        return f"{how}; it wrote: {shorten(words, 160)}" if words else how


class Engine:
    """Runs tasks on `jobs` worker processes of one backend.

    They are started by the method "forkserver" (restarts in milliseconds), or by "spawn" where a
    library needs it.
    """

    def __init__(
        self, name: str, *, jobs: int = 1, limits: Limits | None = None, method: str = "forkserver"
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        self.ends = math.inf  # when `run` ends what still runs
        self.fingerprint: dict[str, str] = {}
        self.fingerprints: dict[str, dict[str, str]] = {}
        self.arms: tuple[Arm, ...] = ()
        self._folder = tempfile.TemporaryDirectory(prefix="convref-")
        folder = Path(self._folder.name)
        if method == "forkserver":
            preload((name,))
        self.workers = [Worker(name, method, folder, i) for i in range(jobs)]

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers and remove their files."""
        for worker in self.workers:
            worker.stop()
        self._folder.cleanup()

    def arm(self, name: str) -> Arm:
        """Return the arm of the backend that has this name; known once a worker is ready."""
        found = {arm.name: arm for arm in (PLAIN, *self.arms)}
        if name not in found:
            what = f"{shorten(self.name)} has no arm {shorten(name, 40)}"
            raise invalid("check", f"{what}, needs {', '.join(found)}")
        return found[name]

    def start(self) -> None:
        """Wait until a worker is ready, so that the arms and the fingerprint are known."""
        while not any(worker.ready for worker in self.workers):
            self._listen(lambda task, report: None)

    def run(
        self,
        tasks: Iterator[Task],
        receive: Callable[[Task, ChunkReport], None],
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run every task; `receive` gets each report, crashes and hangs included."""
        idle = True
        while not stop():
            if time.monotonic() > self.ends:
                self.drop()
                return
            for worker in self.workers:
                if worker.ready and worker.task is None and (task := next(tasks, None)) is not None:
                    worker.send_task(task)
            idle = all(w.ready and w.task is None for w in self.workers)
            if idle:
                return
            self._listen(receive)

    def settle(
        self, receive: Callable[[Task, ChunkReport], None], watch: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until each worker has reported its current task, so that a hang is still found."""
        begun = [(w, w.task.start, w.task.skip) for w in self.workers if w.ready and w.task]
        while any(w.task and (w.task.start, w.task.skip) == (i, skip) for w, i, skip in begun):
            if time.monotonic() > self.ends:
                return
            watch()
            self._listen(receive)

    def drop(self) -> None:
        """Start a new process for each task that is not done; the task is forgotten."""
        for worker in self.workers:
            if worker.task is not None:
                worker.task = None
                worker.stop()
                worker.start()

    @contextlib.contextmanager
    def until(self, ends: float, seconds: float = math.inf) -> Iterator[None]:
        """Within the block, end what runs after `ends`, and examples that take `seconds`."""
        kept = self.ends, self.limits
        self.ends = min(ends, self.ends)
        self.limits = replace(self.limits, seconds=min(seconds, self.limits.seconds))
        try:
            yield
        finally:
            self.ends, self.limits = kept

    @property
    def longest(self) -> float:
        """Return the seconds of the slowest example that has ended by itself."""
        return max(worker.longest for worker in self.workers)

    def _listen(self, receive: Callable[[Task, ChunkReport], None]) -> None:
        """Wait a moment for the workers, take their reports, and end those that exceed a limit."""
        readable = wait([w.pipe for w in self.workers if w.pipe is not None], POLL_SECONDS)
        for worker in self.workers:
            if worker.pipe in readable:
                self._take_report(worker, receive)
            elif reason := worker.overrun(self.limits):
                self._end(worker, "hang" if "answer" in reason else "crash", reason, receive)

    def _take_report(self, worker: Worker, receive: Callable[[Task, ChunkReport], None]) -> None:
        assert worker.pipe is not None
        try:
            report: ChunkReport = worker.pipe.recv()
        except (EOFError, OSError):
            self._end(worker, "crash", worker.exit_reason(), receive)
            return
        if report.error:
            raise ConvrefError(report.error)
        if report.ready:
            worker.ready = True
            if not worker.environment:
                self.fingerprint, self.arms = report.fingerprint, report.arms
            if worker.task is not None:
                worker.send_task(worker.task)  # restarted for its environment, or after a crash
            return
        task = worker.task
        assert task is not None
        if report.fingerprint:
            self.fingerprints[task.arm.name] = report.fingerprint
        worker.next = report.stop
        worker.task = None if report.done else replace(task, start=report.stop)
        receive(task, report)

    def _end(
        self,
        worker: Worker,
        verdict: str,
        reason: str,
        receive: Callable[[Task, ChunkReport], None],
    ) -> None:
        """Record the example at fault, then continue after it in a new process."""
        index, line, note = worker.wal.read()
        task = worker.task
        worker.stop()
        if not worker.ready:
            raise ConvrefError(f"backend: {shorten(self.name)} does not start: {reason}")
        if task is not None and index < 0:
            raise ConvrefError(f"backend: {shorten(self.name)} exited between examples: {reason}")
        if task is not None and note == BATCH:
            worker.task = replace(task, batched=False)  # one by one, to find the example at fault
        elif task is not None:
            tier = ""
            if note == WITH_THREADS:
                reason = f"{reason}, {note}"
            elif note:  # the line is valid, its operands were not
                reason, tier = f"{note}: {reason}", "form"
            findings = [Finding(line, verdict, tier, reason, arm=task.arm.name)]
            facts = self.fingerprints.get(task.arm.name, self.fingerprint)
            if task.retest and (bug := task.known_bug(parse(line), facts)) is not None:
                verdict, tier, findings = "known", bug, []
            counts = Counter([count_key(parse(line), verdict, tier)])
            report = ChunkReport(index, index, counts, findings)
            worker.task = replace(task, skip=task.skip | {index})
            receive(task, report)
        worker.start()


def preload(names: Sequence[str]) -> None:
    """Make the fork server import, before its first fork, the modules of the backends `names`.

    Only frameworks that are known to survive a fork; any other is imported by each worker.
    """
    modules = [module for name in names for module in FORK_SAFE.get(name, ())]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["convref.conformance.workers.worker", *modules])


def available_jobs() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
