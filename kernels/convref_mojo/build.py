"""The shared library: the variant for this CPU, where it is stored, and how it is compiled.

The file is named after the hash of its sources, so that a stale one is never loaded. It is searched
for in `prebuilt` (a wheel may contain it), then in the user's cache, and compiled into the latter.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from convref.errors import UnsupportedError, message, pip_command

PACKAGE = Path(__file__).resolve().parent
SOURCES = PACKAGE / "cpu"
ENTRY = "library.mojo"
COMPILER = "mojo-compiler"
TIMEOUT_S = 300  # of a build, which takes about 10 s


class Variant(NamedTuple):
    """Code for CPUs that have `flags`, compiled for `target` (an LLVM CPU name, or the host)."""

    name: str
    target: str
    flags: frozenset[str]


_V3 = frozenset(("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"))
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

# Best first; the last row serves all other machines.
VARIANTS = (
    Variant("x86-64-v4", "x86-64-v4", _V4),
    Variant("x86-64-v3", "x86-64-v3", _V3),
    Variant("host", "", frozenset()),
)


@cache
def cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


@cache
def variant_of(flags: frozenset[str] | None = None) -> Variant:
    """Return the best variant for a CPU with `flags`, by default this one.

    >>> variant_of(frozenset()).name
    'host'
    """
    have = cpu_flags() if flags is None else flags
    return next(variant for variant in VARIANTS if variant.flags <= have)


def hash_of(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.mojo")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


@cache
def source_hash() -> str:
    return hash_of(SOURCES)


@cache
def compiler() -> tuple[Path, str] | None:
    """Return the path and version of the compiler that pip installed, None if there is none."""
    path = Path(sysconfig.get_path("scripts")) / "mojo"
    try:
        version = importlib.metadata.version(COMPILER)
    except importlib.metadata.PackageNotFoundError:
        return None
    return (path, version) if path.exists() else None


def prebuilt(variant: Variant, folder: Path = PACKAGE / "prebuilt") -> Path:
    system = f"{sys.platform}-{platform.machine()}"
    return folder / f"{system}-{variant.name}-{source_hash()}.so"


def cached_file(ready: Path, reason: str | None, name: str, make: Callable[[Path], None]) -> Path:
    """Return the path of a compiled file: `ready`, or `name` in the user's cache.

    `make` writes the latter if it is absent, in one process at a time. Raise UnsupportedError if
    there is neither, and a `reason` why it cannot be made.
    """
    if ready.exists():
        return ready
    if reason is not None:
        raise UnsupportedError(message("mojo", reason))
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(root) / "convref" / "mojo" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock(path.with_suffix(".lock")):
            if not path.exists():  # another process may have made it while this one waited
                make(path)
    return path


@cache
def why_missing(variant: Variant | None = None) -> str | None:
    variant = variant or variant_of()
    if prebuilt(variant).exists() or compiler() is not None:
        return None
    return (
        f"no library for {variant.name} came with convref_mojo and there is no compiler to build "
        f"one: {pip_command('mojo')}"
    )


def library(variant: Variant | None = None) -> Path:
    variant = variant or variant_of()
    _, version = compiler() or (None, "")
    name = f"{variant.name}-mojo{version}-{source_hash()}.so"
    return cached_file(
        prebuilt(variant), why_missing(variant), name, lambda path: compile_to(path, variant)
    )


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; deleting the file would let a second process in."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_compiler(path: Path, words: list[str], result: Callable[[str, Path], bytes | None]) -> None:
    """Write the compiler's output to `path`, whole or not at all.

    In `words` of the command line, "OUT" is replaced by a temporary file. `result` returns the
    bytes of the file from the compiler's output and the temporary file, or None. Raise
    UnsupportedError if the compiler is absent, does not start, runs too long or fails.
    """
    driver, _ = compiler() or (None, "")
    if driver is None:
        raise UnsupportedError(message("mojo", why_missing() or "there is no compiler"))
    private = {"MODULAR_CRASH_REPORTING_ENABLED": "false", "MODULAR_TELEMETRY_ENABLED": "false"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": TIMEOUT_S}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        out = Path(folder) / path.name
        command = [str(driver), *(str(out) if word == "OUT" else word for word in words)]
        try:
            done = subprocess.run(command, env={**os.environ, **private}, **options)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnsupportedError(message("mojo", f"the compiler did not run: {error}")) from None
        made = None if done.returncode else result(done.stdout, out)
        if made is None:
            output = (done.stderr or done.stdout).strip()[-1500:]
            raise UnsupportedError(message("mojo", f"the compiler failed: {output}"))
        out.write_bytes(made)
        os.replace(out, path)


def compile_to(path: Path, variant: Variant) -> None:
    target = ["--target-cpu", variant.target] if variant.target else []
    words = ["build", "--emit", "shared-lib", *target, "-o", "OUT", str(SOURCES / ENTRY)]
    run_compiler(
        path, words, lambda _, out: without_paths(out.read_bytes()) if out.exists() else None
    )


def without_paths(binary: bytes) -> bytes:
    """Return a library without the path of the compiler's own libraries, which it does not need."""
    return re.sub(rb"(?<=\0)/[^\0]*/modular/lib(?=\0)", lambda m: b"\0" * len(m[0]), binary)


def main(words: list[str], reason: str | None, make: Callable[[Path], list[Path]]) -> int:
    """Make files in the folder that `words` name, by default `prebuilt`, for a wheel."""
    if reason is not None:
        print(reason)
        return 1
    folder = Path(words[0]) if words else PACKAGE / "prebuilt"
    folder.mkdir(parents=True, exist_ok=True)
    for path in make(folder):
        print(path)
    return 0


def build_variants(folder: Path) -> list[Path]:
    x86 = platform.machine() in ("x86_64", "AMD64")
    variants = [variant for variant in VARIANTS if bool(variant.target) == x86]
    for variant in variants:
        compile_to(prebuilt(variant, folder), variant)
    return [prebuilt(variant, folder) for variant in variants]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], None if compiler() else why_missing(), build_variants))
