"""The tensors of a launch as allocations; tensors that share memory are one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .maps import TensorMap
from .memory import Allocation, Pointer
from .numbers import Array

PAGE = 4096


class Address(NamedTuple):
    """A pointer argument, until it is known which tensors share its memory."""

    address: int


class Descriptor(NamedTuple):
    """A tensor map argument."""

    address: int
    width: int  # bytes of an element
    geometry: tuple[Any, ...]  # as `TensorMap` takes it: shape, strides, box, swizzle


class Operands:
    """The tensors of a launch: what they cover, or with "storage" all memory behind them."""

    def __init__(self, bounds: str = "tensor") -> None:
        self._bounds = bounds
        self._spans: list[tuple[int, int, str]] = []

    def add(self, value: Any, name: str) -> Address | None:
        """Return the pointer of a tensor, or of what has a `data_ptr`, None for a null pointer.

        What is no tensor, such as a view with negative strides, names the tensor that it views
        `base` or `_base`.
        """
        if value is None:
            return None
        owner = value
        while not isinstance(owner, torch.Tensor | None):
            owner = getattr(owner, "base", getattr(owner, "_base", None))
        if owner is not None and owner.numel():
            low, storage = owner.data_ptr(), owner.untyped_storage()
            last = sum(s * (n - 1) for n, s in zip(owner.shape, owner.stride()))
            high = low + owner.element_size() * (1 + last)
            if self._bounds == "storage":
                low, high = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
            shape = ", ".join(map(str, owner.shape))
            kind = str(owner.dtype).removeprefix("torch.")
            described = f"{name} {kind}({shape})"
            self._spans.append((low, high, described))
        start = int(value.data_ptr())
        return Address(start) if start else None

    def arguments(self, given: Sequence[Any]) -> list[Any]:
        """Return the arguments of a launch, with pointers into allocations."""
        made = [
            (low, Allocation(_memory(low, high), True, skew=low % PAGE, name=" and ".join(names)))
            for low, high, names in self._merged()
        ]

        def found(address: int) -> tuple[int, Allocation]:
            near = [pair for pair in made if pair[0] <= address]
            return max(near, key=lambda pair: pair[0]) if near else (address, Allocation(_NONE))

        def argument(value: Any) -> Any:
            if isinstance(value, Address):
                low, allocation = found(value.address)
                return Pointer(allocation, value.address - low)
            if isinstance(value, Descriptor):
                low, allocation = found(value.address)
                offset = value.address - low
                return TensorMap(allocation, *value.geometry, offset=offset, width=value.width)
            return value

        return [argument(value) for value in given]

    def _merged(self) -> list[tuple[int, int, list[str]]]:
        merged: list[tuple[int, int, list[str]]] = []
        for low, high, name in sorted(self._spans):
            if merged and low < merged[-1][1]:
                start, end, names = merged[-1]
                merged[-1] = start, max(end, high), [*dict.fromkeys([*names, name])]
            else:
                merged.append((low, high, [name]))
        return merged


_NONE: Array = np.zeros(0, np.uint8)


def _memory(low: int, high: int) -> Array:
    return np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)
