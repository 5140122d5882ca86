"""The shared library: which variant this CPU takes, where it lies, and how it is compiled.

A library is named after the hash of its sources, so that a stale one is never loaded. It is looked
for beside this file (a wheel may carry it), then in the user's cache, and compiled into the latter.
"""

from __future__ import annotations

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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from convref.errors import UnsupportedError, message

PACKAGE = Path(__file__).resolve().parent
SOURCES = PACKAGE / "cpu"
ENTRY = "library.mojo"
COMPILER = "mojo-compiler"
SECONDS = 300  # what a build may take; it takes about 10


class Variant(NamedTuple):
    """Code for CPUs that have `flags`, compiled for `target` (an LLVM CPU name, or the host)."""

    name: str
    target: str
    flags: frozenset[str]


_V3 = frozenset(("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"))
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

# The best first; the last row is for machines that we have no row for.
VARIANTS = (
    Variant("x86-64-v4", "x86-64-v4", _V4),
    Variant("x86-64-v3", "x86-64-v3", _V3),
    Variant("host", "", frozenset()),
)


@cache
def cpu_flags() -> frozenset[str]:
    """Return the instruction sets that the kernel of this machine lists."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


@cache
def chosen(flags: frozenset[str] | None = None) -> Variant:
    """Return the best variant for a CPU with `flags`, by default this one.

    >>> chosen(frozenset()).name
    'host'
    """
    have = cpu_flags() if flags is None else flags
    return next(variant for variant in VARIANTS if variant.flags <= have)


def hash_of(folder: Path) -> str:
    """Return what names and contents of the .mojo files in a folder hash to."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.mojo")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


@cache
def source_hash() -> str:
    """Return what the sources of the library hash to."""
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
    """Return where a library that came with the package would lie."""
    system = f"{sys.platform}-{platform.machine()}"
    return folder / f"{system}-{variant.name}-{source_hash()}.so"


def cached(variant: Variant, version: str) -> Path:
    """Return where the library built by a version of the compiler lies, or will."""
    return cache_folder() / f"{variant.name}-mojo{version}-{source_hash()}.so"


def cache_folder() -> Path:
    """Return the user's folder for what was built here."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "convref" / "mojo"


@cache
def missing(variant: Variant | None = None) -> str | None:
    """Return None if a library is there or can be built, else the reason why not."""
    variant = variant or chosen()
    if prebuilt(variant).exists() or compiler() is not None:
        return None
    return (
        f"no library for {variant.name} came with convref_mojo and there is no compiler to build "
        "one: pip install 'convref[mojo]'"
    )


def library(variant: Variant | None = None) -> Path:
    """Return the path of the library, built if need be.

    Raises
    ------
    UnsupportedError
        If there is none and none can be built.
    """
    variant = variant or chosen()
    ready = prebuilt(variant)
    if ready.exists():
        return ready
    found = compiler()
    if found is None:
        raise UnsupportedError(message("mojo", missing(variant) or ""))
    path = cached(variant, found[1])
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock(path.with_suffix(".lock")):
            if not path.exists():  # another process may have built it while this one waited
                compile_to(path, variant, found[0])
    return path


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which stays: deleting it would let two in."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def command(out: Path, variant: Variant, driver: Path) -> list[str]:
    """Return the words that compile the library."""
    target = ["--target-cpu", variant.target] if variant.target else []
    return [
        str(driver),
        "build",
        "--emit",
        "shared-lib",
        *target,
        "-o",
        str(out),
        str(SOURCES / ENTRY),
    ]


def ran(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the compiler; it reports nothing to anybody.

    Raises
    ------
    UnsupportedError
        If it does not start, or does not end.
    """
    quiet = {"MODULAR_CRASH_REPORTING_ENABLED": "false", "MODULAR_TELEMETRY_ENABLED": "false"}
    env = {**os.environ, **quiet}
    try:
        return subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(message("mojo", f"the compiler did not run: {error}")) from None


def compile_to(path: Path, variant: Variant, driver: Path) -> None:
    """Compile the sources and move the result to `path`, whole or not at all.

    Raises
    ------
    UnsupportedError
        If the compiler fails; the text ends with what it said last.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        out = Path(folder) / path.name
        done = ran(command(out, variant, driver))
        if done.returncode or not out.exists():
            said = (done.stderr or done.stdout).strip()[-1500:]
            raise UnsupportedError(message("mojo", f"the compiler failed: {said}"))
        out.write_bytes(without_paths(out.read_bytes()))
        out.chmod(0o755)
        os.replace(out, path)


def without_paths(binary: bytes) -> bytes:
    """Return a library without the search path of the compiler's own libraries: it needs none."""
    return re.sub(rb"(?<=\0)/[^\0]*/modular/lib(?=\0)", lambda m: b"\0" * len(m[0]), binary)


def main(words: list[str]) -> int:
    """Build every variant of this kind of machine into `prebuilt`, for a wheel to carry."""
    found = compiler()
    if found is None:
        print(missing())
        return 1
    folder = Path(words[0]) if words else PACKAGE / "prebuilt"
    folder.mkdir(parents=True, exist_ok=True)
    x86 = platform.machine() in ("x86_64", "AMD64")
    for variant in VARIANTS:
        if bool(variant.target) == x86:
            compile_to(prebuilt(variant, folder), variant, found[0])
            print(prebuilt(variant, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
