"""Global memory of which a part is undefined before a launch, such as that of torch.empty."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic.numbers import Array, Undefined
from ..decode.program import refuse
from ..memory.allocations import BASE
from ..memory.global_memory import GlobalMemory


class PartlyDefined(GlobalMemory):
    """Global memory some of whose bytes are undefined before the launch."""

    def __init__(self, allocations: Any, *more: Any) -> None:
        super().__init__(allocations, *more)
        self.undefined = np.zeros(len(self.bytes), np.uint8)
        self._spans = []
        for allocation, start in self.allocations.items():
            if allocation.undefined is not None:
                end = start + len(allocation.undefined)
                self.undefined[start:end] = allocation.undefined
                self._spans.append((start, end))

    def _undefined(self, address: Array, size: int) -> Undefined:
        low, high = int(address.min()) - BASE, int(address.max()) - BASE
        if not any(start <= high and low < end for start, end in self._spans):
            return None
        mask = self.undefined.reshape(-1, size)[(address.astype(np.int64) - BASE) // size]
        return mask if mask.any() else None

    def load(
        self, text: str, address: Array, size: int, lanes: Array, strong: bool = False
    ) -> tuple[Array, Undefined]:
        """Return the bytes (access, size) at addresses, and a mask of undefined ones."""
        found, raced = super().load(text, address, size, lanes, strong)
        undefined = self._undefined(address, size) if len(address) else None
        if undefined is None:
            return found, raced
        self.unwritten = text
        return found, undefined if raced is None else undefined | raced

    def store(
        self, text: str, address: Array, value: Array, lanes: Array, strong: bool = False
    ) -> None:
        super().store(text, address, value, lanes, strong)
        size = value.nbytes // len(value)
        lines = self.undefined.view(f"V{size}")  # faster than rows
        lines[(address.astype(np.int64) - BASE) // size] = np.zeros(1, lines.dtype)

    def update(self, text: str, address: Array, size: int, lanes: Array) -> Array:
        place = super().update(text, address, size, lanes)
        if (undefined := self._undefined(address, size)) is not None:
            refuse(undefined.any(1), text, "updates memory that was not written")
        return place

    def apply_writes(self, cells: Array, values: Array) -> None:
        super().apply_writes(cells, values)
        self.undefined.reshape(-1, self.grain)[cells] = 0

    def write_back(self) -> None:
        super().write_back()
        for allocation, start in self.allocations.items():
            if allocation.undefined is not None:
                allocation.undefined[...] = self.undefined[start:][: len(allocation.undefined)]
