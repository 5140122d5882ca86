"""Ahead-of-time compilation: a specialisation becomes the code of an architecture, without a GPU.

What is compiled stays in memory for the life of the process; Triton's own cache on disk serves the
next one. The compiler writes to file descriptors behind Python's back, so they are caught here.
"""

from __future__ import annotations

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

from convref.errors import ConvrefError, message, shorten

from ..hopper.precompiled import Precompiled
from .specialise import Specialisation

ARCHS = ("sm_90", "sm_80", "gfx942")  # what the kernels are held to; others compile too
# Triton 3.10 will round a product before it is added, unless told; 3.9 warns of that.
OPTIONS = {"enable_fp_fusion": True}


class CompileError(RuntimeError):
    """The compiler refused a kernel; `log` is all that it said."""

    def __init__(self, text: str, log: str = "") -> None:
        super().__init__(text, log)
        self.log = log

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Compiled:
    """The code of a kernel for an architecture.

    Parameters
    ----------
    specialisation : Specialisation
    arch : str
    name : str
        The kernel's symbol in the binary.
    asm : mapping of str to str or bytes
        Every stage by its ending: ttir, ttgir, llir, ptx, cubin; for AMD amdgcn, hsaco.
    metadata : mapping of str to Any
        What the compiler says: shared, num_warps, global_scratch_size ...
    seconds : float
        What it took.
    from_disk : bool
        Whether Triton's cache on disk had it, so that `seconds` says little.
    """

    specialisation: Specialisation
    arch: str
    name: str
    asm: Mapping[str, Any]
    metadata: Mapping[str, Any]
    seconds: float
    from_disk: bool

    @property
    def binary(self) -> bytes:
        """Return the cubin, or for AMD the hsaco."""
        code: bytes = self.asm["cubin" if "cubin" in self.asm else "hsaco"]
        return code


def target(arch: str) -> GPUTarget:
    """Return Triton's target of "sm_90", "gfx942" and their like.

    >>> target("sm_90")
    GPUTarget(backend='cuda', arch=90, warp_size=32)
    """
    if found := re.fullmatch(r"sm_(\d{2,3})a?", arch):
        return GPUTarget("cuda", int(found[1]), 32)
    if re.fullmatch(r"gfx9\w\w", arch):
        return GPUTarget("hip", arch, 64)
    raise ConvrefError(
        message("arch", f"is {shorten(repr(arch))}, needs {', '.join(ARCHS)} or one like them")
    )


_cache: dict[tuple[Any, ...], Compiled] = {}
_lock = threading.Lock()  # descriptors 1 and 2 are one for all threads


def compile(specialisation: Specialisation, arch: str) -> Compiled:
    """Return `specialisation` compiled for `arch`, from memory if it has been before.

    Raises
    ------
    CompileError
        If the compiler refuses it; the message is its first complaint.
    ConvrefError
        If there is no such architecture.
    """
    key = (specialisation.key, arch)
    if key not in _cache:
        goal = target(arch)
        with _lock:
            _cache[key] = _compile(specialisation, arch, goal)
    return _cache[key]


def known(specialisation: Specialisation, arch: str) -> bool:
    """Return whether `compile` would find it in memory."""
    return (specialisation.key, arch) in _cache


def _compile(specialisation: Specialisation, arch: str, goal: GPUTarget) -> Compiled:
    kernel = specialisation.kernel
    if isinstance(kernel, Precompiled):
        return _assemble(specialisation, kernel, arch)
    source = _language(kernel)(
        kernel,
        dict(specialisation.signature),
        dict(specialisation.constants),
        dict(specialisation.attributes),
    )
    hits: list[bool] = []
    options = {**OPTIONS, **specialisation.options}
    start = time.perf_counter()
    with triton.knobs.compilation.scope(), _caught() as said:
        triton.knobs.compilation.listener = lambda **told: hits.append(told["cache_hit"])
        try:
            made = triton.compile(source, target=goal, options=options)
        except Exception as error:  # whatever a pass, the assembler or the front end raises
            refused = error
        else:
            refused = None
    if refused is not None:
        raise _refusal(f"{kernel.__name__} for {arch}", refused, said.getvalue()) from refused
    print(said.getvalue(), end="", file=sys.stderr)
    seconds = time.perf_counter() - start
    metadata = made.metadata._asdict()
    return Compiled(specialisation, arch, made.name, dict(made.asm), metadata, seconds, any(hits))


def _assemble(specialisation: Specialisation, kernel: Precompiled, arch: str) -> Compiled:
    """Return the code of a kernel that was compiled elsewhere."""
    start = time.perf_counter()
    try:
        asm = {"ptx": kernel.ptx, "cubin": kernel.cubin(arch)}
    except subprocess.CalledProcessError as refused:
        raise _refusal(f"{kernel.name} for {arch}", refused, refused.stderr) from refused
    seconds = time.perf_counter() - start
    return Compiled(specialisation, arch, kernel.name, asm, kernel.metadata, seconds, False)


def _language(kernel: Any) -> type[ASTSource]:
    """Return what reads a kernel's source: Triton's front end or Gluon's."""
    if not kernel.is_gluon():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


@contextlib.contextmanager
def _caught() -> Iterator[io.StringIO]:
    """Collect what is written to stdout and stderr, by C++ too."""
    said = io.StringIO()
    with tempfile.TemporaryFile() as file, contextlib.redirect_stdout(io.StringIO()) as printed:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said.write(printed.getvalue() + file.read().decode(errors="replace"))


# What in a compiler's output says what is wrong, most telling first.
COMPLAINTS = (
    r"\berror\s*: (?!Internal|Failures have been)(.+)",
    r"(Assertion .+)",
    r"(LLVM ERROR.+)",
    r"Pipeline failed while executing \[`(\w+)`",
)


def _refusal(where: str, error: Exception, log: str) -> CompileError:
    """Return the few lines out of a compiler's text, which may run to megabytes of IR."""
    text = f"{log}\n{error}".strip()
    told = [found[1].strip() for found in (re.search(p, text) for p in COMPLAINTS) if found]
    told = told or [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
    what = "; ".join(told) or type(error).__name__
    return CompileError(message(where, shorten(what, 400)), text)


def compile_all(
    specialisations: Iterable[Specialisation], arch: str, jobs: int | None = None
) -> list[Compiled | CompileError]:
    """Return every specialisation compiled for `arch`, or the error it met, in the given order.

    Parameters
    ----------
    specialisations : iterable of Specialisation
    arch : str
    jobs : int, optional
        Worker processes; by default one per processor. A script that calls this needs the usual
        ``if __name__ == "__main__"``.
    """
    wanted = list(specialisations)
    target(arch)
    missing = {s.key: s for s in wanted if not known(s, arch)}
    results: dict[Any, Compiled | CompileError] = {
        s.key: _cache[s.key, arch] for s in wanted if known(s, arch)
    }
    jobs = min(jobs or len(os.sched_getaffinity(0)), max(len(missing), 1))
    # Pools live in threads: an interrupt meets this one, and the lifeline is cut before it waits.
    with ThreadPoolExecutor(jobs) as threads, _lifeline() as life:
        every = threads.submit(_in_workers, list(missing.values()), arch, jobs, life)
        fresh = dict(zip(missing, every.result()))
        died = [key for key, result in fresh.items() if result is None]
        # One may have taken the others with it: each alone.
        alone = threads.map(lambda key: _in_workers([missing[key]], arch, 1, life)[0], died)
        fresh |= zip(died, alone)
    for key, result in fresh.items():
        if result is None:
            where = f"{missing[key].kernel.__name__} for {arch}"
            result = CompileError(message(where, "the compiler ended its process"))
        if isinstance(result, Compiled):
            _cache[key, arch] = result
        results[key] = result
    return [results[s.key] for s in wanted]


def _in_workers(
    specialisations: list[Specialisation], arch: str, jobs: int, life: Connection
) -> list[Compiled | CompileError | None]:
    """Return a result for each, None where the worker process died."""
    if not specialisations:
        return []
    with ProcessPoolExecutor(jobs, get_context("spawn"), _live_on, (life,)) as pool:
        futures = [_handed_in(pool, specialisation, arch) for specialisation in specialisations]
        return [_outcome(future) for future in futures]


@contextlib.contextmanager
def _lifeline() -> Iterator[Connection]:
    """Give what workers hold on to: they end with this block, or with this process."""
    theirs, ours = get_context("spawn").Pipe(duplex=False)
    with theirs, ours:
        yield theirs


def _live_on(life: Connection) -> None:
    """Let this process, and the assembler that it runs, end with the lifeline alone."""
    os.setpgrp()  # an interrupt at the terminal is for the one who waits
    # A pool that lost one worker ends the others, which must not leave their assemblers behind.
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_hang_on, args=(life,), daemon=True).start()


def _hang_on(life: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        life.recv_bytes()
    _end()


def _end(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


def _handed_in(
    pool: ProcessPoolExecutor, specialisation: Specialisation, arch: str
) -> Future[Compiled | CompileError] | None:
    """Return what a worker will find, None where one died while others were still handed in."""
    try:
        return pool.submit(_try, specialisation, arch)
    except BrokenProcessPool:
        return None


def _outcome(future: Future[Compiled | CompileError] | None) -> Compiled | CompileError | None:
    try:
        return future and future.result()
    except BrokenProcessPool:
        return None


def _try(specialisation: Specialisation, arch: str) -> Compiled | CompileError:
    try:
        return compile(specialisation, arch)
    except CompileError as error:
        return error
