"""Strides of arrays in elements, as the kernels take them."""

from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Strides = tuple[int, ...]
LAYOUTS = 4096  # shapes and strides in the cache


def strides_of(array: Array) -> Strides:
    """Return the strides in elements, zero along axes of one element."""
    return elements(array.shape, array.strides, array.itemsize)


@lru_cache(LAYOUTS)
def elements(shape: tuple[int, ...], strides: Strides, size: int) -> Strides:
    return tuple(0 if n == 1 else s // size for n, s in zip(shape, strides))


def spatial(strides: Strides) -> Strides:
    """Return the strides of z, y and x, zero along axes that the rank does not have."""
    return (0,) * (5 - len(strides)) + strides[2:]


def channel(strides: Strides, channels: int) -> int:
    """Return the channel stride, 1 for a single channel: such an array counts as channels-last."""
    return 1 if channels == 1 else strides[1]
