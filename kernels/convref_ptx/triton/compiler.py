"""Triton's compiler for NVIDIA up to PTX, without its assembler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend


class Compiler(CUDABackend):
    """Triton's compiler for NVIDIA up to PTX, without ptxas."""

    def __init__(self, target: GPUTarget) -> None:
        super().__init__(target)
        self.binary_ext = "ptx"

    def add_stages(self, stages: dict[str, Any], options: Any, language: Any) -> None:
        super().add_stages(stages, options, language)
        del stages["cubin"]

    def hash(self) -> str:
        return f"convref_ptx-{self.target.arch}"


@contextmanager
def stop_at_ptx() -> Iterator[None]:
    """Let Triton compile for NVIDIA up to PTX: what it returns as the binary is the PTX."""
    nvidia = replace(backends["nvidia"], compiler=Compiler)
    with mock.patch.dict(backends, nvidia=nvidia):
        yield
