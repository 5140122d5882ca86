"""The shared library: the variant for this CPU, where it is stored, and how it is compiled.

The file is named after the hash of its sources, so that a stale one is never loaded. It is searched
for in `prebuilt` (a wheel may contain it), then in the user's cache, and compiled into the latter.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from convref.errors import UnsupportedError, message

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
    """Return the CPU flags in /proc/cpuinfo."""
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
    """Return the hash of the names and contents of the .mojo files of a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.mojo")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


@cache
def source_hash() -> str:
    """Return the hash of the sources of the library."""
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
    """Return the path of the library that a wheel may contain."""
    system = f"{sys.platform}-{platform.machine()}"
    return folder / f"{system}-{variant.name}-{source_hash()}.so"


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """Return the path of a file in the user's cache; `make` writes it where there is none."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(root) / "convref" / "mojo" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock(path.with_suffix(".lock")):
            if not path.exists():  # another process may have made it while this one waited
                make(path)
    return path


@cache
def missing(variant: Variant | None = None) -> str | None:
    """Return None if a library exists or can be built, else the reason why not."""
    variant = variant or variant_of()
    if prebuilt(variant).exists() or compiler() is not None:
        return None
    return (
        f"no library for {variant.name} came with convref_mojo and there is no compiler to build "
        "one: pip install 'convref[mojo]'"
    )


def library(variant: Variant | None = None) -> Path:
    """Return the path of the library; it is built first where there is none.

    Raises
    ------
    UnsupportedError
        If there is none and no compiler.
    """
    variant = variant or variant_of()
    ready = prebuilt(variant)
    if ready.exists():
        return ready
    found = compiler()
    if found is None:
        raise UnsupportedError(message("mojo", missing(variant) or ""))
    driver, version = found
    name = f"{variant.name}-mojo{version}-{source_hash()}.so"
    return cached(name, lambda path: compile_to(path, variant, driver))


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; deleting the file would let a second process in."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def command(out: Path, variant: Variant, driver: Path) -> list[str]:
    """Return the command line that compiles the library."""
    target = ["--target-cpu", variant.target] if variant.target else []
    words = ("build", "--emit", "shared-lib", *target, "-o", str(out), str(SOURCES / ENTRY))
    return [str(driver), *words]


def run_compiler(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the compiler without telemetry and crash reports.

    Raises
    ------
    UnsupportedError
        If it does not start, or runs too long.
    """
    private = {"MODULAR_CRASH_REPORTING_ENABLED": "false", "MODULAR_TELEMETRY_ENABLED": "false"}
    env = {**os.environ, **private}
    try:
        return subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(message("mojo", f"the compiler did not run: {error}")) from None


def compiler_error(output: str) -> UnsupportedError:
    """Return the error of a compiler that failed with this output."""
    return UnsupportedError(message("mojo", f"the compiler failed: {output.strip()[-1500:]}"))


def compile_to(path: Path, variant: Variant, driver: Path) -> None:
    """Compile the sources and move the result to `path`, whole or not at all.

    Raises
    ------
    UnsupportedError
        If the compiler fails; the message ends with its output.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        out = Path(folder) / path.name
        done = run_compiler(command(out, variant, driver))
        if done.returncode or not out.exists():
            raise compiler_error(done.stderr or done.stdout)
        out.write_bytes(without_paths(out.read_bytes()))
        out.chmod(0o755)
        os.replace(out, path)


def without_paths(binary: bytes) -> bytes:
    """Return a library without the path of the compiler's own libraries, which it does not need."""
    return re.sub(rb"(?<=\0)/[^\0]*/modular/lib(?=\0)", lambda m: b"\0" * len(m[0]), binary)


def main(words: list[str]) -> int:
    """Build every variant for this kind of machine into `prebuilt`, for a wheel."""
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
