"""Formulas on large arrays: in blocks that stay in a cache, and without branches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._windows import Array

BLOCK = 1 << 14  # elements that stay in a cache while several steps go over them
GROUP = 1 << 18  # the same, where a step costs more to begin: groups of channels
_BITS: dict[int, type[np.signedinteger[Any]]] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def _bits_of(v: Array) -> type[np.signedinteger[Any]] | None:
    """Return the integers as wide as the elements of v, or None: objects and wide floats."""
    return None if v.dtype == object else _BITS.get(v.dtype.itemsize)


def zero_where(where: Array, v: Array) -> Array:
    """Return 0 where `where` holds, else v, bit for bit.

    `np.where` branches at every element; on random signs, half of the branches are mispredicted.

    >>> zero_where(np.array([True, False]), np.array([np.inf, -0.0]))
    array([ 0., -0.])
    """
    if (bits := _bits_of(v)) is None:
        return np.where(where, 0, v).astype(v.dtype, copy=False)
    kept = where.astype(bits)
    kept -= 1  # all ones where v stays
    kept &= v.view(bits)
    return kept.view(v.dtype)


def select(where: Array, a: Any, b: Array) -> Array:
    """Return a where `where` holds, else b, bit for bit; a is an array or a number like b's.

    >>> select(np.array([True, False]), np.float64(3), np.array([np.nan, -0.0]))
    array([ 3., -0.])
    """
    if (bits := _bits_of(b)) is None:
        return np.where(where, a, b)
    taken = where.astype(bits)
    np.negative(taken, out=taken)  # all ones where a is taken
    taken &= a.view(bits) ^ b.view(bits)
    taken ^= b.view(bits)
    return taken.view(b.dtype)


def in_blocks(function: Callable[..., Array], *arrays: Array) -> Array:
    """Return function(*arrays) of one shape, a block of elements at a time."""
    first = arrays[0]
    if first.size <= BLOCK:
        return function(*arrays)
    flat = [a.reshape(-1) for a in arrays]
    result = np.empty(first.size, first.dtype)
    for start in range(0, first.size, BLOCK):
        part = slice(start, start + BLOCK)
        result[part] = function(*(a[part] for a in flat))
    return result.reshape(first.shape)


def in_groups(
    function: Callable[..., Sequence[Array | None]], *images: Array | None
) -> Sequence[Array | None]:
    """Return function(*images), which never adds across axis 1, about GROUP elements at a time.

    >>> in_groups(lambda x: (x.sum(axis=0, keepdims=True),), np.ones((2, 200_000)))[0].sum().item()
    400000.0
    """
    image = images[0]
    assert image is not None
    groups = image.shape[1]
    step = max(1, GROUP * groups // max(1, image.size))
    if step >= groups:
        return function(*images)
    wholes: list[Array | None] = []
    for start in range(0, groups, step):
        part = slice(start, start + step)
        found = function(*(None if a is None else a[:, part] for a in images))
        wholes = wholes or [_widened(f, groups, step) for f in found]
        for whole, f in zip(wholes, found, strict=True):
            if whole is not None and f is not None:
                first = start * (whole.shape[1] // groups)
                whole[:, first : first + f.shape[1]] = f
    return wholes


def _widened(part: Array | None, groups: int, step: int) -> Array | None:
    """Return an empty array for all groups, given the result `part` of `step` groups."""
    if part is None:
        return None
    return np.empty((part.shape[0], part.shape[1] // step * groups, *part.shape[2:]), part.dtype)
