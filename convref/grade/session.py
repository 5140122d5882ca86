"""The process of a solution, as the grader sees it: bytes in, bytes out, within limits."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import invalid, missing_extra, shorten
from .isolation import PROCESSES
from .problem import Solution
from .wire import WireError, pack, unpack

try:
    import psutil
except ImportError as error:
    raise missing_extra("check", error) from None

_ANSWER = 256 << 20  # bytes of an answer
_POLL_SECONDS = 0.05
_KEPT = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LANG", "SYSTEMROOT")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_FOLDERS = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")


@dataclass(frozen=True)
class Limits:
    """The limits of a solution: seconds to load and for a call, bytes of memory and of files."""

    start: float = 120.0
    seconds: float = 30.0
    memory: int = 8 << 30
    files: int = 256 << 20


class EndedError(Exception):
    """A solution has failed; the text says how, and `kind` is "raises", "crash" or "hang"."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Session:
    """A solution in a process of its own.

    Parameters
    ----------
    solution : Solution
        Copies of its files are run.
    device : str
    limits : Limits

    Attributes
    ----------
    isolation : tuple of str
        What the process cannot do, and what it could on this platform.
    triton : str
        How Triton kernels run on a CPU, "as PTX" or "in Triton's interpreter"; else empty.
    """

    def __init__(self, solution: Solution, device: str, limits: Limits) -> None:
        self.limits = limits
        self._folder = tempfile.mkdtemp(prefix="convref-grade-")
        try:
            for name, data in solution.files.items():
                path = Path(self._folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        except OSError as error:  # a file and a folder of one name, a name that is too long
            shutil.rmtree(self._folder)
            raise invalid("grade", f"the solution's files cannot be written: {error}") from None
        self._channel, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        command = [sys.executable, "-P", "-m", "convref.grade.serve"]
        command += [str(theirs.fileno()), self._folder, solution.main, solution.entry, device]
        command += ["triton"] if solution.uses_triton else []
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(),),
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        theirs.close()
        self._channel.setblocking(False)
        self.isolation: tuple[str, ...] = ()
        self.triton = ""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Wait until the solution is loaded."""
        ends = time.monotonic() + self.limits.start
        self.isolation = tuple(map(str, self._answer(ends, "isolation")))
        self.triton = str(self._answer(ends, "triton"))
        self._answer(ends, "ready")

    def call(self, request: dict[str, Any]) -> Any:
        """Return what the solution computes; raise EndedError if it does not."""
        ends = time.monotonic() + self.limits.seconds
        data = pack(request)
        self._send(len(data).to_bytes(8, "little") + data, ends)
        return self._answer(ends, "output")

    def close(self) -> None:
        """End the process and all that it started, and remove its files."""
        started = _descendants(self._process.pid)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for each in started:
            with contextlib.suppress(psutil.Error):
                each.kill()
        self._process.wait()
        self._channel.close()
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        found = {name: os.environ[name] for name in _KEPT if name in os.environ}
        found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        found["PYTHONDONTWRITEBYTECODE"] = "1"
        return found | {**dict.fromkeys(_FOLDERS, self._folder), **dict.fromkeys(_THREADS, "1")}

    def _answer(self, ends: float, key: str) -> Any:
        size = int.from_bytes(self._read(8, ends), "little")
        if size > _ANSWER:
            raise EndedError("crash", f"its answer has {size} bytes, limit {_ANSWER}")
        try:
            answer = unpack(self._read(size, ends))
        except WireError as error:
            raise EndedError("crash", f"its answer {error}") from None
        if not isinstance(answer, dict) or key not in answer:
            said = answer.get("error", "") if isinstance(answer, dict) else ""
            words = " ".join(str(said).split())  # one line: it cannot look like another grade
            raise EndedError("raises", shorten(words or "no answer of the grader's form", 300))
        return answer[key]

    def _send(self, data: bytes, ends: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(selectors.EVENT_WRITE, ends)
            try:
                view = view[self._channel.send(view) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._ended_error() from None

    def _read(self, size: int, ends: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait(selectors.EVENT_READ, ends)
            try:
                part = self._channel.recv(min(1 << 20, size - len(data)))
            except BlockingIOError:
                continue
            except OSError:
                part = b""
            if not part:
                raise self._ended_error()
            data += part
        return bytes(data)

    def _wait(self, event: int, ends: float) -> None:
        """Wait until the socket is ready; raise once a limit is exceeded."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, event)
            while True:
                if time.monotonic() > ends:
                    raise EndedError("hang", "no answer within its time")
                if reason := self._excess():
                    raise EndedError("crash", reason)
                if selector.select(_POLL_SECONDS):
                    return

    def _excess(self) -> str:
        """Return which limit is exceeded, or an empty text."""
        processes = _descendants(self._process.pid)
        if len(processes) > PROCESSES:
            return f"it started {len(processes)} processes, limit {PROCESSES}"
        used = 0
        for each in processes:
            with contextlib.suppress(psutil.Error):
                used += each.memory_info().rss
        if used > self.limits.memory:
            return f"it uses {used >> 20} MiB of memory, limit {self.limits.memory >> 20}"
        written = _size(self._folder) + os.fstat(self._output.fileno()).st_size
        if written > self.limits.files:
            return f"it wrote {written >> 20} MiB of files, limit {self.limits.files >> 20}"
        return ""

    def _ended_error(self) -> EndedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._output.seek(max(0, os.fstat(self._output.fileno()).st_size - 300))
        words = " ".join(self._output.read().decode(errors="backslashreplace").split())
        said = f"; it wrote: {shorten(words, 160)}" if words else ""
        return EndedError("crash", f"its process ended: {self._process.poll()}{said}")


def _descendants(number: int) -> list[Any]:
    try:
        process = psutil.Process(number)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _size(folder: str) -> int:
    """Return the bytes of the files of a folder, in which others write."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total
