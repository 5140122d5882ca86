"""Constant memory, and the local memory of each thread: no races."""

from __future__ import annotations

import numpy as np

from ..arithmetic.numbers import Array, Undefined
from ..decode.program import CONSTANT, LOCAL, refuse
from .cells import bytes_of


class ConstantMemory:
    """The constants of a program."""

    def __init__(self, content: bytes) -> None:
        self.bytes = np.frombuffer(content, np.uint8)

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Undefined]:
        offset = address - CONSTANT
        outside = (offset < 0) | (offset > len(self.bytes) - size)
        refuse(outside, text, "outside of constant memory")
        refuse(offset % size, text, f"an address is not a multiple of {size}")
        return self.bytes[offset[:, None] + np.arange(size)], None


class LocalMemory:
    """The memory of each thread alone: bytes (thread, byte) and which of them are undefined."""

    def __init__(self, count: int, size: int) -> None:
        self.bytes = np.full((count, size), 0xFF, np.uint8)
        self.undefined = self.bytes.copy()

    def _places(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Array]:
        offset = address - LOCAL
        outside = (offset < 0) | (offset > self.bytes.shape[1] - size)
        refuse(outside, text, "outside of local memory")
        refuse(offset % size, text, f"an address is not a multiple of {size}")
        return lanes[:, None], offset[:, None] + np.arange(size)

    def load(self, text: str, address: Array, size: int, lanes: Array) -> tuple[Array, Undefined]:
        at = self._places(text, address, size, lanes)
        undefined = self.undefined[at]
        return self.bytes[at], undefined if undefined.any() else None

    def store(
        self, text: str, address: Array, value: Array, undefined: Array, lanes: Array
    ) -> None:
        at = self._places(text, address, bytes_of(value).shape[1], lanes)
        self.bytes[at], self.undefined[at] = bytes_of(value), bytes_of(undefined)
