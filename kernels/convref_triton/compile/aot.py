"""Ahead-of-time compilation of specializations for an architecture, without a GPU.

Results are cached in memory, and by Triton on disk. The compiler's C++ writes to file descriptors
directly, so that its output is captured there.
"""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import cache

from convref.errors import UnsupportedError, invalid, message, shorten

from ..hopper.precompiled import Precompiled
from .specialize import Specialization

ARCHS = ("sm_90", "sm_80", "gfx942")  # that the kernels are tested for; others compile too
# Triton 3.10 disables fusion by default; 3.9 warns of that.
OPTIONS = {"enable_fp_fusion": True}


class CompileError(RuntimeError):
    """The compiler refused a kernel; `log` is its whole output."""

    def __init__(self, text: str, log: str = "") -> None:
        super().__init__(text, log)
        self.log = log

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Compiled:
    specialization: Specialization
    arch: str
    name: str  # the kernel's symbol in the binary
    # Every stage by its suffix: ttir, ttgir, llir, ptx, cubin; for AMD amdgcn, hsaco.
    asm: Mapping[str, Any]
    metadata: Mapping[str, Any]  # the compiler's: shared, num_warps, global_scratch_size ...
    seconds: float  # compile time
    # Whether it came from Triton's cache on disk, so that `seconds` is not compile time.
    from_disk: bool

    @property
    def binary(self) -> bytes:
        """Return the cubin, or for AMD the hsaco."""
        return self.asm["cubin" if "cubin" in self.asm else "hsaco"]


def target(arch: str) -> GPUTarget:
    """Return Triton's target of "sm_90", "gfx942" and their like.

    >>> target("sm_90")
    GPUTarget(backend='cuda', arch=90, warp_size=32)
    """
    if found := re.fullmatch(r"sm_(\d{2,3})a?", arch):
        return GPUTarget("cuda", int(found[1]), 32)
    if re.fullmatch(r"gfx9\w\w", arch):
        return GPUTarget("hip", arch, 64)
    raise invalid("arch", f"is {shorten(repr(arch))}, needs {', '.join(ARCHS)} or one like them")


_cache: dict[tuple[Any, ...], Compiled] = {}
_lock = threading.Lock()  # threads share file descriptors 1 and 2


def compile(specialization: Specialization, arch: str) -> Compiled:
    """Return `specialization` compiled for `arch`, from memory if it has been before.

    Raise CompileError with the compiler's first complaint if it refuses, ConvrefError if there is
    no such architecture.
    """
    return _cached(specialization, arch, True)


def compile_or_refuse(specialization: Specialization, arch: str) -> Compiled:
    """Return `compile` for a command, whose user named an architecture: UnsupportedError."""
    try:
        return compile(specialization, arch)
    except CompileError as error:
        raise UnsupportedError(str(error)) from None


def compile_ptx(specialization: Specialization, arch: str) -> Compiled:
    """Return `compile` without its binary, which takes the assembler a fifth of the time."""
    if is_cached(specialization, arch):
        return compile(specialization, arch)
    return _cached(specialization, arch, False)


def _cached(specialization: Specialization, arch: str, assembled: bool) -> Compiled:
    key = (specialization.key, arch, *(() if assembled else ("ptx",)))
    if key not in _cache:
        goal = target(arch)
        with _lock:
            _cache[key] = _compile(specialization, arch, goal, assembled)
    return _cache[key]


def is_cached(specialization: Specialization, arch: str) -> bool:
    return (specialization.key, arch) in _cache


def _compile(
    specialization: Specialization, arch: str, goal: GPUTarget, assembled: bool
) -> Compiled:
    kernel = specialization.kernel
    if isinstance(kernel, Precompiled):
        return _assemble(specialization, kernel, arch, assembled)
    source = _language(kernel)(
        kernel,
        dict(specialization.signature),
        dict(specialization.constants),
        dict(specialization.attributes),
    )
    hits: list[bool] = []
    options = {**OPTIONS, **specialization.options}
    start = time.perf_counter()
    how = contextlib.nullcontext() if assembled else _to_ptx()
    with triton.knobs.compilation.scope(), how, _capture_output() as printed:
        triton.knobs.compilation.listener = lambda **event: hits.append(event["cache_hit"])
        try:
            made = triton.compile(source, target=goal, options=options)
        except Exception as error:  # of a pass, the assembler or the front end
            refused = error
        else:
            refused = None
    if refused is not None:
        raise _refusal(f"{kernel.__name__} for {arch}", refused, printed.getvalue()) from refused
    print(printed.getvalue(), end="", file=sys.stderr)
    seconds = time.perf_counter() - start
    metadata, asm = made.metadata._asdict(), dict(made.asm)
    if not assembled:
        asm["ptx"] = asm["ptx"].decode()  # read as bytes, as binaries are
    return Compiled(specialization, arch, made.name, asm, metadata, seconds, any(hits))


def _to_ptx() -> contextlib.AbstractContextManager[None]:
    from convref_ptx.triton.compiler import stop_at_ptx  # Triton may have no compiler for NVIDIA

    return stop_at_ptx()


def _assemble(
    specialization: Specialization, kernel: Precompiled, arch: str, assembled: bool
) -> Compiled:
    start = time.perf_counter()
    try:
        asm = {"ptx": kernel.ptx, **({"cubin": kernel.cubin(arch)} if assembled else {})}
    except subprocess.CalledProcessError as refused:
        raise _refusal(f"{kernel.name} for {arch}", refused, refused.stderr) from refused
    seconds = time.perf_counter() - start
    return Compiled(specialization, arch, kernel.name, asm, kernel.metadata, seconds, False)


def _language(kernel: Any) -> type[ASTSource]:
    if not kernel.is_gluon():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


@contextlib.contextmanager
def _capture_output() -> Iterator[io.StringIO]:
    """Collect the output to stdout and stderr, that of C++ too."""
    text = io.StringIO()
    with tempfile.TemporaryFile() as file, contextlib.redirect_stdout(io.StringIO()) as printed:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            text.write(printed.getvalue() + file.read().decode(errors="replace"))


# Patterns of error messages in a compiler's output, most specific first.
COMPLAINTS = (
    r"\berror\s*: (?!Internal|Failures have been)(.+)",
    r"(Assertion .+)",
    r"(LLVM ERROR.+)",
    r"ptxas fatal\s*: (?!Ptx assembly aborted)(.+)",
    r"Pipeline failed while executing \[`(\w+)`",
)


def _refusal(where: str, error: Exception, log: str) -> CompileError:
    """Return an error with the relevant lines of the output, which may be megabytes of IR."""
    text = f"{log}\n{error}".strip()
    lines = [found[1].strip() for found in (re.search(p, text) for p in COMPLAINTS) if found]
    lines = lines or [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
    what = "; ".join(lines) or type(error).__name__
    return CompileError(message(where, shorten(what, 400)), text)


def compile_all(
    specializations: Iterable[Specialization], arch: str, jobs: int | None = None
) -> list[Compiled | CompileError]:
    """Return every specialization compiled for `arch`, or its error, in the given order.

    There are `jobs` worker processes, by default one per processor. A script that calls this needs
    the usual ``if __name__ == "__main__"``.
    """
    wanted = list(specializations)
    target(arch)
    missing = {s.key: s for s in wanted if not is_cached(s, arch)}
    results: dict[Any, Compiled | CompileError] = {
        s.key: _cache[s.key, arch] for s in wanted if is_cached(s, arch)
    }
    jobs = min(jobs or len(os.sched_getaffinity(0)), max(len(missing), 1))
    # Pools are in threads: an interrupt is raised here, which closes the lifeline first.
    with _folder() as folder, ThreadPoolExecutor(jobs) as threads, _lifeline() as life:
        place = life, folder, cache.triton_key()
        every = threads.submit(_in_workers, list(missing.values()), arch, jobs, place)
        fresh = dict(zip(missing, every.result()))
        crashed = [key for key, result in fresh.items() if result is None]
        # One crash fails all tasks of its pool: retry each alone.
        alone = threads.map(lambda key: _in_workers([missing[key]], arch, 1, place)[0], crashed)
        fresh |= zip(crashed, alone)
    for key, result in fresh.items():
        if result is None:
            where = f"{missing[key].kernel.__name__} for {arch}"
            result = CompileError(message(where, "the compiler ended its process"))
        if isinstance(result, Compiled):
            _cache[key, arch] = result
        results[key] = result
    return [results[s.key] for s in wanted]


def _in_workers(
    specializations: list[Specialization],
    arch: str,
    jobs: int,
    place: tuple[Connection, str, str],
) -> list[Compiled | CompileError | None]:
    if not specializations:
        return []
    with ProcessPoolExecutor(jobs, get_context("spawn"), _follow, place) as pool:
        futures: list[Future[Compiled | CompileError]] = []
        with contextlib.suppress(BrokenProcessPool):
            for specialization in specializations:
                futures.append(pool.submit(_compile_or_error, specialization, arch))
        missing = [None] * (len(specializations) - len(futures))
        return [*map(_outcome, futures), *missing]


@contextlib.contextmanager
def _lifeline() -> Iterator[Connection]:
    """Yield a pipe whose end of file ends the workers, with this block or this process."""
    theirs, ours = get_context("spawn").Pipe(duplex=False)
    with theirs, ours:
        yield theirs


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for what Triton writes for an assembler, which a killed worker leaves."""
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


def _follow(life: Connection, folder: str, key: str) -> None:
    """Make this process, and the assembler that it runs, end with the lifeline."""
    tempfile.tempdir = folder
    cache.triton_key = lambda: key  # a hash of Triton's files, which takes 0.6 s
    os.setpgrp()  # an interrupt at the terminal goes to the parent only
    # A pool that lost a worker terminates the others; their assemblers must end, too.
    signal.signal(signal.SIGTERM, _kill_group)
    threading.Thread(target=_wait_for_end, args=(life,), daemon=True).start()


def _wait_for_end(life: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        life.recv_bytes()
    _kill_group()


def _kill_group(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


def _outcome(future: Future[Compiled | CompileError]) -> Compiled | CompileError | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None


def _compile_or_error(specialization: Specialization, arch: str) -> Compiled | CompileError:
    try:
        return compile(specialization, arch)
    except CompileError as error:
        return error
