"""The PTX of the GPU kernels: where it is stored, and how it is compiled without a GPU.

Like the library, the file is named after the hash of its sources and searched for in `prebuilt`,
then in the user's cache. The compiler needs the package max-core.
"""

import importlib.metadata
import lzma
import sys
from functools import cache
from pathlib import Path

from convref.errors import pip_command

from . import build

SOURCES = build.PACKAGE / "gpu"
COMPILER = "max-core"
ARCHES = ("sm_80", "sm_90a")
MARK = "//// "  # starts the line before each kernel: architecture and name


@cache
def source_hash() -> str:
    return build.hash_of(SOURCES)


@cache
def version() -> str | None:
    """Return the version of the package that has the code generator, None if it is absent."""
    try:
        return importlib.metadata.version(COMPILER)
    except importlib.metadata.PackageNotFoundError:
        return None


def prebuilt(folder: Path = build.PACKAGE / "prebuilt") -> Path:
    return folder / f"{source_hash()}.ptx.xz"


@cache
def why_missing() -> str | None:
    if prebuilt().exists() or (version() is not None and build.compiler() is not None):
        return None
    return (
        "no PTX came with convref_mojo and there is no compiler to make it: "
        f"{pip_command('mojo-gpu')}"
    )


def library() -> Path:
    return build.cached_file(
        prebuilt(), why_missing(), f"max{version()}-{source_hash()}.ptx.xz", emit_to
    )


def emit_to(path: Path) -> None:
    def compressed(text: str, _: Path) -> bytes | None:
        return lzma.compress(text.encode()) if MARK in text else None

    build.run_compiler(path, ["run", str(SOURCES / "emit.mojo")], compressed)


@cache
def texts() -> dict[tuple[str, str], str]:
    whole = lzma.decompress(library().read_bytes()).decode()
    found = {}
    for part in whole.split(MARK)[1:]:
        head, _, text = part.partition("\n")
        arch, name = head.split()
        found[arch, name] = text
    return found


def emit_all(folder: Path) -> list[Path]:
    emit_to(prebuilt(folder))
    return [prebuilt(folder)]


if __name__ == "__main__":
    sys.exit(build.main(sys.argv[1:], why_missing(), emit_all))
