"""Kernels that another Triton has compiled: their PTX, and what it takes to launch them.

A file has the kernels of one module, with digests of what they were made of. The assembler that
comes with any Triton makes machine code of them; nothing else of Triton is needed.
"""

from __future__ import annotations

import ast
import json
import lzma
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
FEATURES = {"sm_90": "sm_90a"}  # what the assembler is told: warp groups are of that very card


def assembler(arch: str) -> str:
    """Return the path of the ptxas that Triton assembles for an architecture of NVIDIA with."""
    from triton.backends.nvidia.compiler import get_ptxas

    path: str = get_ptxas(int(arch.removeprefix("sm_").rstrip("a"))).path
    return path


@dataclass(frozen=True, eq=False)
class Carried:
    """A compiled kernel, in the place of a `triton.runtime.JITFunction`.

    Parameters
    ----------
    name : str
        Its symbol.
    constants : mapping of str to Any
        What was compiled in.
    signature : mapping of str to str
        Triton's type of each parameter, in order.
    metadata : mapping of str to Any
        What the compiler said: shared, num_warps, tensordesc_meta ...
    ptx : str
    """

    name: str
    constants: Mapping[str, Any]
    signature: Mapping[str, str]
    metadata: Mapping[str, Any]
    ptx: str
    params: tuple[Any, ...] = ()  # none has a default

    @property
    def __name__(self) -> str:
        return self.name

    def cubin(self, arch: str) -> bytes:
        """Return the machine code.

        Raises
        ------
        subprocess.CalledProcessError
            If the assembler refuses the PTX; its `stderr` says why.
        """
        with tempfile.TemporaryDirectory() as folder:
            text, code = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            text.write_text(self.ptx, "utf-8")
            goal = f"--gpu-name={FEATURES.get(arch, arch)}"
            words = [assembler(arch), goal, str(text), "-o", str(code)]
            subprocess.run(words, check=True, capture_output=True, text=True)
            return code.read_bytes()


class File(NamedTuple):
    """The kernels of a module, the version of Triton that made them, and digests of sources."""

    kernels: tuple[Carried, ...] = ()
    triton: str = ""
    made_of: Mapping[str, str] = {}

    @property
    def digest(self) -> str:
        """Return twelve digits that change with any kernel."""
        return sha256("".join(kernel.ptx for kernel in self.kernels).encode()).hexdigest()[:12]


def digest(module: str) -> str:
    """Return twelve digits that change with the kernels of a module, and with no comment."""
    found, tree = [], ast.parse((FOLDER / f"{module}.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            node.body = node.body[ast.get_docstring(node) is not None :]
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Assign):
            found.append(ast.unparse(node))
    return sha256("\n".join(found).encode()).hexdigest()[:12]


def path(module: str) -> Path:
    """Return where the kernels of a module lie."""
    return FOLDER / f"{module}.json.xz"


def keep(module: str, file: File) -> Path:
    """Write the kernels of a module, whole or not at all."""
    told = file._asdict() | {"kernels": [asdict(kernel) for kernel in file.kernels]}
    new = path(module).with_suffix(".new")
    new.write_bytes(lzma.compress(json.dumps(told).encode(), preset=lzma.PRESET_EXTREME))
    os.replace(new, path(module))
    return path(module)


@cache
def kept(module: str) -> File:
    """Return the kernels of a module, none where there is no file."""
    if not path(module).exists():
        return File()
    told = json.loads(lzma.decompress(path(module).read_bytes()))
    kernels = tuple(Carried(**kernel) for kernel in told["kernels"])
    return File(kernels, told["triton"], told["made_of"])


def bare(ptx: str) -> str:
    """Return PTX without what only people read."""
    lines = (line.strip() for line in re.sub(r"//[^\n]*", "", ptx).splitlines())
    return "\n".join(line for line in lines if line)
