"""The PTX of the GPU kernels: where it is stored, and how it is compiled without a GPU.

Like the library, the file is named after the hash of its sources and searched for in `prebuilt`,
then in the user's cache. The compiler needs the package max-core.
"""

from __future__ import annotations

import importlib.metadata
import lzma
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

from convref.errors import UnsupportedError, message

from . import build

SOURCES = build.PACKAGE / "gpu"
COMPILER = "max-core"
ARCHES = ("sm_80", "sm_90a")
MARK = "//// "  # starts the line before each kernel: architecture and name


@cache
def source_hash() -> str:
    """Return the hash of the sources of the GPU kernels."""
    return build.hash_of(SOURCES)


@cache
def version() -> str | None:
    """Return the version of the package that has the code generator, None if it is absent."""
    try:
        return importlib.metadata.version(COMPILER)
    except importlib.metadata.PackageNotFoundError:
        return None


def prebuilt(folder: Path = build.PACKAGE / "prebuilt") -> Path:
    """Return the path of the PTX that a wheel may contain."""
    return folder / f"{source_hash()}.ptx.xz"


@cache
def missing() -> str | None:
    """Return None if the PTX exists or can be compiled, else the reason why not."""
    if prebuilt().exists() or (version() is not None and build.compiler() is not None):
        return None
    return (
        "no PTX came with convref_mojo and there is no compiler to make it: "
        "pip install 'convref[mojo-gpu]'"
    )


def library() -> Path:
    """Return the path of the PTX of all kernels; it is compiled first where there is none.

    Raises
    ------
    UnsupportedError
        If there is none and no compiler.
    """
    if prebuilt().exists():
        return prebuilt()
    if (reason := missing()) is not None:
        raise UnsupportedError(message("mojo", reason))
    return build.cached(f"max{version()}-{source_hash()}.ptx.xz", emit_to)


def emit_to(path: Path) -> None:
    """Compile the PTX and move it to `path`, whole or not at all.

    Raises
    ------
    UnsupportedError
        If the compiler fails; the message ends with its output.
    """
    found = build.compiler()
    if found is None:
        raise UnsupportedError(message("mojo", missing() or ""))
    done = build.run_compiler([str(found[0]), "run", str(SOURCES / "emit.mojo")])
    if done.returncode or MARK not in done.stdout:
        raise build.compiler_error(done.stderr)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        out = Path(folder) / path.name
        out.write_bytes(lzma.compress(done.stdout.encode()))
        os.replace(out, path)


@cache
def texts() -> dict[tuple[str, str], str]:
    """Return the PTX of each (architecture, kernel)."""
    whole = lzma.decompress(library().read_bytes()).decode()
    found = {}
    for part in whole.split(MARK)[1:]:
        head, _, text = part.partition("\n")
        arch, name = head.split()
        found[arch, name] = text
    return found


def main(words: list[str]) -> int:
    """Compile the PTX into `prebuilt`, for a wheel or a machine without a compiler."""
    if (reason := missing()) is not None:
        print(reason)
        return 1
    folder = Path(words[0]) if words else build.PACKAGE / "prebuilt"
    folder.mkdir(parents=True, exist_ok=True)
    emit_to(prebuilt(folder))
    print(prebuilt(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
