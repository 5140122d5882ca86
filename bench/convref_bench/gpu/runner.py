"""`make gpu`: steps as subprocesses, each with its own time limit, resumed where they stopped.

The parent imports no framework: only a child can hang or crash. A child appends its own records, so
its measurements before a crash are kept.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from .. import options, records

SECONDS = 540.0  # default of GPU_SECONDS
RESERVE_S = 8.0  # kept back to end a child and to copy results
SLACK = 20  # a step checks the time between lines: one may take this part of the limit
PARTIAL = 3  # exit status of a step that ran out of time and can continue
ABSENT = 4  # exit status of a step that has nothing to do here; its last line is the reason
LOST = 5  # exit status of a step that lost the device; the next launch skips the arm
RELAUNCHES = 8  # of such a step in one run
ATTEMPTS = 2  # runs in which a step may fail before it is no longer run


def our_backends() -> tuple[str, ...]:
    from convref import dispatch

    found = dispatch.names().items()
    return tuple(sorted(name for name, target in found if target.startswith("convref_")))


def kernels() -> str:
    return "" if our_backends() else "no kernel backend is registered"


ALL = ("convref", "kernels", "bench", "tests")
BASELINE = ("bench",)  # of steps that are valid when our kernels change


@dataclass(frozen=True)
class Step:
    """One entry of the programme; its child is ``python -m convref_bench step NAME``."""

    name: str
    limit_s: float  # wall time after which it is killed
    absent: Callable[[], str] | None = None  # returns why it cannot run here, empty if it can
    sources: tuple[str, ...] = ALL  # folders of Python files on which its results depend
    vital: bool = False  # the run ends if it fails
    first: bool = False  # continues before the others, however often it had a turn


# First whether the kernels are correct, then how fast they are, then the rest.
STEPS = (
    Step("versions", 60, vital=True, first=True),
    Step("canary", 60, kernels, first=True),
    Step("properties", 200, kernels, first=True),
    Step("marked", 450, kernels, first=True),
    Step("peaks", 60, sources=BASELINE, first=True),
    Step("anchors", 120, kernels, first=True),
    Step("tuner", 300, kernels),
    Step("suites", 150, kernels),
    Step("fused", 90),
    Step("truncation", 60, sources=BASELINE),
    Step("cudnn", 90, sources=BASELINE),
    Step("others", 90),
    Step("training", 120),
    Step("cudnn-rest", 120, sources=BASELINE),
    Step("names", 60),
)

Launch = Callable[[Step, float, Path, Path, str], tuple[int | None, str]]


def launch(step: Step, limit_s: float, out: Path, log: Path, key: str) -> tuple[int | None, str]:
    """Run a step; return its exit status (None: killed at the limit) and its last line."""
    command = [sys.executable, "-m", "convref_bench", "step", step.name]
    own_s = max(1.0, limit_s - max(5.0, limit_s / SLACK))
    command += ["--out", str(out), "--seconds", f"{own_s:.0f}", "--key", key]
    return launch_command(command, limit_s, log)


def launch_command(
    command: list[str], limit_s: float, log: Path, cwd: Path | None = None
) -> tuple[int | None, str]:
    """Run a command in a process group of its own, its output appended to `log`."""
    with log.open("ab") as stream:
        start = stream.tell()
        child = subprocess.Popen(
            command, cwd=cwd, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status: int | None = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(RESERVE_S)  # the driver may delay the end of a process
            status = None
    with log.open("rb") as text:
        text.seek(start)
        lines = text.read()[-4000:].decode(errors="replace").strip().splitlines()
    return status, lines[-1] if lines else ""


class Runner:
    """Runs the steps once within a budget of wall time, and prints the status of each.

    Files ``gpu.jsonl`` and ``gpu.log`` grow in `folder` and are copied to `copy_to` after each
    step. `key` returns what the results of a step depend on: a step done under another key is done
    again. Rehearsals replace `launch` and `now`.
    """

    def __init__(
        self,
        folder: Path,
        seconds: float = SECONDS,
        steps: tuple[Step, ...] = STEPS,
        launch: Launch = launch,
        now: Callable[[], float] = time.monotonic,
        copy_to: Path | None = None,
        say: Callable[[str], None] = print,
        key: Callable[[Step], str] = lambda step: "",
    ) -> None:
        self.key = key
        self.out, self.log = folder / "gpu.jsonl", folder / "gpu.log"
        self.steps, self.launch, self.now, self.say = steps, launch, now, say
        self.copy_to, self.end = copy_to, now() + seconds
        folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> dict[str, str]:
        """Return the status of each step: done, before, absent, partial, failed, timeout, ..."""
        found: dict[str, str] = {}
        broken = records.read(self.out)[1]
        if broken:
            self.say(f"  {self.out.name}: lines {broken} are not JSON and are left out")
        for step in self._order():
            found[step.name] = self._status(step)
            self.say(f"  {step.name:<12} {found[step.name]}")
            self._copy()
            if step.vital and found[step.name] in ("failed", "timeout"):
                break
        return found

    def _history(self, step: Step) -> list[str]:
        mine = {"what": "step", "step": step.name, "key": self.key(step)}
        return [row["status"] for row in records.read(self.out)[0] if mine.items() <= row.items()]

    def _record(self, step: Step, status: str, **more: object) -> None:
        row = {"what": "step", "step": step.name, "status": status, "key": self.key(step)}
        records.append(self.out, {**row, **more})

    def _order(self) -> list[Step]:
        """Return the steps: those stopped in earlier runs after others, those that failed last."""

        def place(step: Step) -> tuple[bool, int]:
            history = self._history(step)
            failed = bool({"failed", "timeout"} & set(history)) and not step.vital
            return failed, 0 if step.first else history.count("partial")

        return sorted(self.steps, key=place)

    def _status(self, step: Step) -> str:
        history = self._history(step)
        if "done" in history:
            return "before"
        failures = sum(status in ("failed", "timeout") for status in history)
        if failures >= ATTEMPTS and not step.vital:
            return "given up"
        if step.absent and (reason := step.absent()):
            self._record(step, "absent", why=reason)
            return f"absent: {reason}"
        left = self.end - self.now() - RESERVE_S
        if left < 1:
            return "no time left"
        return self._launched(step, min(step.limit_s, left), cut=left < step.limit_s)

    def _launched(self, step: Step, limit_s: float, cut: bool) -> str:
        start = self.now()
        for _ in range(RELAUNCHES):
            left = limit_s - (self.now() - start)
            code, tail = self.launch(step, left, self.out, self.log, self.key(step))
            if code != LOST or self.now() - start > limit_s - RESERVE_S:
                break
            self.say(f"  {step.name:<12} continues without the arm that lost the device: {tail}")
        names = {0: "done", PARTIAL: "partial", ABSENT: "absent"}
        names |= {None: "partial" if cut else "timeout"}
        status = names.get(code, "failed")
        took = round(self.now() - start, 1)
        if status == "absent":
            self._record(step, status, why=tail[:500])
            return f"absent: {tail}"
        bad = status in ("failed", "timeout")
        more = {"why": f"exit {code}: {tail}"[:500]} if bad else {}
        if bad:
            self.say(f"  {tail}")
        self._record(step, status, took_s=took, **more)
        return status

    def _copy(self) -> None:
        if self.copy_to is not None:
            self.copy_to.mkdir(parents=True, exist_ok=True)
            for path in (self.out, self.log):
                if path.exists():
                    shutil.copy2(path, self.copy_to)


@cache
def card() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "no nvidia-smi"
    return (found.strip().splitlines() or ["no card"])[0]


@cache
def digest(folders: tuple[str, ...]) -> str:
    found, root = hashlib.sha256(), Path(__file__).resolve().parents[3]
    for folder in folders:
        for path in sorted(root.joinpath(folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:12]


def identity(step: Step) -> str:
    return f"{card()} | {digest(step.sources)}"


def card_of(key: str) -> str:
    return key.rpartition(" | ")[0]


def select_steps(names: str) -> tuple[Step, ...]:
    """Return the steps of a list of names with commas and the vital ones, or all steps."""
    wanted = (
        options.parse_choices(names, tuple(step.name for step in STEPS), "step") if names else []
    )
    return tuple(step for step in STEPS if not names or step.vital or step.name in wanted)


def main(
    *, out: Path = records.RESULTS / "gpu", seconds: float | None = None, steps: str | None = None
) -> int:
    """Run the steps of `make gpu`, or continue them; exit status 1 if a step failed.

    --seconds is by default $GPU_SECONDS, else 540; --steps is by default $GPU_STEPS, else all.
    The files of --out are copied to $OUT, if that is set.
    """
    if seconds is None:
        seconds = float(os.environ.get("GPU_SECONDS", SECONDS))
    names = os.environ.get("GPU_STEPS", "") if steps is None else steps
    copy_to = os.environ.get("OUT")
    runner = Runner(
        out,
        seconds,
        select_steps(names),
        copy_to=Path(copy_to) if copy_to else None,
        say=partial(print, flush=True),
        key=identity,
    )
    print(f"{runner.out}: {seconds:.0f} s", flush=True)
    found = runner.run()
    return int(any(status in ("failed", "timeout", "given up") for status in found.values()))
