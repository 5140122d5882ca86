"""Kernels that another version of Triton has compiled: their PTX and the metadata for launches.

A file has the kernels of one module, and digests of the sources that they were compiled from. The
ptxas of any Triton assembles them; nothing else of Triton is used.
"""

import ast
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1]
GPU_NAME = {"sm_90": "sm_90a"}  # wgmma and setmaxnreg are not in the portable sm_90


def assembler(arch: str) -> str:
    """Return the path of the ptxas that Triton uses for an architecture, empty without one."""
    try:
        from triton.backends.nvidia.compiler import get_ptxas
    except ImportError:  # a Triton built for AMD alone
        return ""
    return get_ptxas(int(arch.removeprefix("sm_").rstrip("a"))).path


@cache
def assembler_version(path: str) -> str:
    """Return the version of a ptxas, such as "12.8.93"."""
    if not path:
        return "none"
    printed = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", printed)
    return found[1] if found else "unknown"


def installed_assembler(least: tuple[int, int]) -> str | None:
    """Return the path of a ptxas of CUDA `least` or later, None if none is installed.

    Those of pip's nvidia-cuda-nvcc, of CUDA_HOME and of PATH are looked at, in this order.
    """
    found = (Path(folder, "nvidia", "cu13", "bin", "ptxas") for folder in sys.path)
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "ptxas")
    for path in (*found, home, Path(shutil.which("ptxas") or "")):
        if path.is_file():
            release = re.match(r"(\d+)\.(\d+)", assembler_version(str(path)))
            if release and tuple(map(int, release.groups())) >= least:
                return str(path)
    return None


@dataclass(frozen=True, eq=False)
class Precompiled:
    """A compiled kernel, used in place of a `triton.runtime.JITFunction`."""

    name: str  # its symbol
    constants: Mapping[str, Any]  # compile-time constants
    signature: Mapping[str, str]  # triton's type of each parameter, in order
    metadata: Mapping[str, Any]  # of the compiler: shared, num_warps, tensordesc_meta ..
    ptx: str
    params: tuple[Any, ...] = ()  # none has a default

    @property
    def __name__(self) -> str:
        return self.name

    def cubin(self, arch: str) -> bytes:
        """Return the machine code; raise CalledProcessError if the assembler refuses the PTX."""
        with tempfile.TemporaryDirectory() as folder:
            text, code = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            text.write_text(self.ptx, "utf-8")
            gpu = f"--gpu-name={GPU_NAME.get(arch, arch)}"
            command = [assembler(arch), gpu, str(text), "-o", str(code)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            return code.read_bytes()


class File(NamedTuple):
    """The kernels of a module, the Triton that compiled them, and the digests of its sources."""

    kernels: tuple[Precompiled, ...] = ()
    triton: str = ""
    sources: Mapping[str, str] = {}

    @property
    def digest(self) -> str:
        return sha256("".join(kernel.ptx for kernel in self.kernels).encode()).hexdigest()[:12]


def source_digest(module: str) -> str:
    """Return twelve digits that change with the device code of a module: "common.index".

    Comments, docstrings and host functions do not change it.
    """
    path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    kept = []
    for node in ast.parse(path.read_text("utf-8")).body:
        device = isinstance(node, ast.FunctionDef) and bool(node.decorator_list)
        if device or isinstance(node, ast.ClassDef):
            node.body = node.body[ast.get_docstring(node) is not None :]
        if device or isinstance(node, ast.ClassDef | ast.Assign):
            kept.append(ast.unparse(node))
    return sha256("\n".join(kept).encode()).hexdigest()[:12]


def path(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.json.xz")


def save(name: str, file: File) -> Path:
    """Write a file of kernels, atomically."""
    fields = file._asdict() | {"kernels": [asdict(kernel) for kernel in file.kernels]}
    new = path(name).with_suffix(".new")
    new.write_bytes(lzma.compress(json.dumps(fields).encode(), preset=lzma.PRESET_EXTREME))
    os.replace(new, path(name))
    return path(name)


@cache
def load(name: str) -> File:
    if not path(name).exists():
        return File()
    fields = json.loads(lzma.decompress(path(name).read_bytes()))
    fields["kernels"] = tuple(Precompiled(**kernel) for kernel in fields["kernels"])
    return File(**fields)


def strip(ptx: str) -> str:
    lines = (line.strip() for line in re.sub(r"//[^\n]*", "", ptx).splitlines())
    return "\n".join(line for line in lines if line)
