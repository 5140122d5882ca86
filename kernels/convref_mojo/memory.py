"""How arrays lie in memory, as the structs have it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .structures import Source, Word

Array = np.ndarray[Any, Any]
Strides = tuple[int, ...]
LAYOUTS = 4096  # shapes and strides that are remembered


def strides_of(array: Array) -> Strides:
    """Return the strides in elements, those of axes with one position zero."""
    return _elements(array.shape, array.strides, array.itemsize)


@lru_cache(LAYOUTS)
def _elements(shape: tuple[int, ...], strides: Strides, size: int) -> Strides:
    return tuple(0 if n == 1 else s // size for n, s in zip(shape, strides))


def spatial(strides: Strides) -> Strides:
    """Return the strides of z, y and x; axes that the rank lacks have one position."""
    return (0,) * (5 - len(strides)) + strides[2:]


def channel(strides: Strides, channels: int) -> int:
    """Return the stride of the channels, 1 where it does not matter."""
    return 1 if channels == 1 else strides[1]


def table(values: Sequence[int]) -> tuple[int, Any]:
    """Return the address of a table of words, and its memory."""
    memory = (Word * max(1, len(values)))(*values)
    return ctypes.addressof(memory), memory


def source(array: Array) -> Source:
    """Return an array (N, C, *space) with its address."""
    return Source(array.ctypes.data, *_lying(array.shape, array.strides, array.itemsize))


@lru_cache(LAYOUTS)
def _lying(shape: tuple[int, ...], strides: Strides, size: int) -> Strides:
    """Return the strides n, c, z, y and x."""
    found = _elements(shape, strides, size)
    return found[0], channel(found, shape[1]), *spatial(found)
