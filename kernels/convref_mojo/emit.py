"""The PTX of the GPU kernels: where it lies, and how it is made without a GPU.

Like the library it is named after the hash of its sources and looked for beside this file, then in
the user's cache. It is made by the compiler that max-core brings along.
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
MARK = "//// "  # begins the lines between kernels: architecture and name


@cache
def source_hash() -> str:
    """Return what the sources of the GPU kernels hash to."""
    return build.hash_of(SOURCES)


@cache
def version() -> str | None:
    """Return the version of the package that has the code generator, None if it is absent."""
    try:
        return importlib.metadata.version(COMPILER)
    except importlib.metadata.PackageNotFoundError:
        return None


def prebuilt(folder: Path = build.PACKAGE / "prebuilt") -> Path:
    """Return where the PTX that came with the package would lie."""
    return folder / f"{source_hash()}.ptx.xz"


@cache
def missing() -> str | None:
    """Return None if the PTX is there or can be made, else the reason why not."""
    if prebuilt().exists() or (version() is not None and build.compiler() is not None):
        return None
    return (
        "no PTX came with convref_mojo and there is no compiler to make it: "
        "pip install 'convref[mojo-gpu]'"
    )


def library() -> Path:
    """Return the path of the PTX of all kernels, made if need be.

    Raises
    ------
    UnsupportedError
        If there is none and none can be made.
    """
    if prebuilt().exists():
        return prebuilt()
    if (reason := missing()) is not None:
        raise UnsupportedError(message("mojo", reason))
    path = build.cache_folder() / f"max{version()}-{source_hash()}.ptx.xz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with build.lock(path.with_suffix(".lock")):
            if not path.exists():  # another process may have made it while this one waited
                emit_to(path)
    return path


def emit_to(path: Path) -> None:
    """Make the PTX and move it to `path`, whole or not at all.

    Raises
    ------
    UnsupportedError
        If the compiler fails; the text ends with what it said last.
    """
    found = build.compiler()
    if found is None:
        raise UnsupportedError(message("mojo", missing() or ""))
    done = build.ran([str(found[0]), "run", str(SOURCES / "emit.mojo")])
    if done.returncode or MARK not in done.stdout:
        raise UnsupportedError(
            message("mojo", f"the compiler failed: {done.stderr.strip()[-1500:]}")
        )
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
    """Make the PTX into `prebuilt`, for a wheel or a machine without a compiler."""
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
