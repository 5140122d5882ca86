"""The index arithmetic of the oracle: padding, its adjoint, and the positions each tap reads."""

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..ops import AdaptiveAxis, Axis, Sizes

Array = np.ndarray[Any, Any]
Results = tuple[Array | None, ...]

BLOCK = 512  # windows; a map of 28 x 28 goes alone, maps of 7 x 7 go ten at a time


def pad(big: Array, axes: tuple[Axis, ...], zeros: Array | None = None) -> Array:
    """Return `big` with each spatial axis zero-padded by (lo, hi); negative entries crop.

    The zeros take part in products, so that 0 * inf is NaN at the border. Where `zeros` is given,
    the result is a view of its front; its border stays zero for the next use.
    """
    inner, outer = _overlap(axes)
    if all(axis.lo <= 0 and axis.hi <= 0 for axis in axes):
        return big[outer]
    shape = big.shape[: -len(axes)] + padded_sizes(axes)
    padded = np.zeros(shape, big.dtype) if zeros is None else zeros[: len(big)]
    padded[inner] = big[outer]
    return padded


def unpad(padded: Array, axes: tuple[Axis, ...]) -> Array:
    """Return the adjoint of `pad`: the border dropped, cropped positions zero."""
    inner, outer = _overlap(axes)
    if all(axis.lo >= 0 and axis.hi >= 0 for axis in axes):
        return padded[inner]
    big = np.zeros(padded.shape[: -len(axes)] + tuple(axis.big for axis in axes), padded.dtype)
    big[outer] = padded[inner]
    return big


def padded_sizes(axes: tuple[Axis, ...]) -> Sizes:
    """Return the spatial sizes after padding."""
    return tuple(max(0, axis.big + axis.lo + axis.hi) for axis in axes)


def _overlap(axes: tuple[Axis, ...]) -> tuple[Any, Any]:
    """Return the index of the real positions in the padded array, and in the array itself."""
    inner, outer = [], []
    for axis in axes:
        first, last = max(0, -axis.lo), min(axis.big, axis.big + axis.hi)
        last = max(first, last)
        outer.append(slice(first, last))
        inner.append(slice(first + axis.lo, last + axis.lo))
    return (..., *inner), (..., *outer)


@lru_cache(maxsize=4)  # the sums of one problem follow each other
def taps(axes: tuple[Axis, ...]) -> tuple[tuple[Any, Any], ...]:
    """Return, for each tap r, its index in a filter and that of o_r = p*stride + r*dilation."""
    found = []
    for r in product(*(range(axis.taps) for axis in axes)):
        starts = (tap * axis.dilation for tap, axis in zip(r, axes))
        reads = (
            slice(start, start + (axis.small - 1) * axis.stride + 1, axis.stride)
            for start, axis in zip(starts, axes)
        )
        found.append(((..., *r), (..., *reads)))
    return tuple(found)


def blocks(n: int, axes: tuple[Axis, ...]) -> list[slice]:
    """Return one or more slices of the batch with about BLOCK windows each, the first the largest.

    A sum reads its operands once per tap: a few images stay cached, a whole batch would not.
    """
    step = max(1, BLOCK // max(1, prod(axis.small for axis in axes)))
    return [slice(first, min(n, first + step)) for first in range(0, max(1, n), step)]


def flattened(windows: Array, lead: int, scratch: Array) -> Array:
    """Return `windows` with all axes after the first `lead` made one.

    A copy, where one is needed, is written to the front of `scratch`: fresh memory for every tap
    would cost more than the copy itself, as each of its pages is a page fault.
    """
    copy = scratch[: windows.size].reshape(windows.shape)
    if windows.strides[lead:] != copy.strides[lead:]:
        copy[...] = windows
        windows = copy
    return windows.reshape(*windows.shape[:lead], prod(windows.shape[lead:]))


Window = Axis | AdaptiveAxis
Reads = tuple[tuple[Any, Any], ...]


@lru_cache(maxsize=64)
def reads(axis: Window) -> Reads:
    """Return, for each tap of one axis, the windows whose tap exists and the positions it reads.

    Unlike those of `taps`, these are positions of the array: padding is not read.
    """
    if isinstance(axis, AdaptiveAxis):
        return _adaptive_reads(axis)
    found = []
    for r in range(axis.taps):
        windows = axis.windows_at(r)
        start = windows.start * axis.stride + r * axis.dilation - axis.lo
        stop = start + (len(windows) - 1) * axis.stride + 1
        if windows:
            found.append((slice(windows.start, windows.stop), slice(start, stop, axis.stride)))
    return tuple(found)


def _adaptive_reads(axis: AdaptiveAxis) -> Reads:
    p = np.arange(axis.small)
    start, stop = axis.bounds(p)
    by_tap = ((p[start + r < stop], (start + r)[start + r < stop]) for r in range(axis.taps))
    return tuple((_sliced(windows), _sliced(at)) for windows, at in by_tap if len(windows))


def _sliced(index: Array) -> Any:
    """Return the slice that is equal to an index, if there is one: views are not copied.

    One element that is read again and again is a slice of length 1, which broadcasts.

    >>> _sliced(np.array([1, 3, 5])), _sliced(np.array([2, 2])), _sliced(np.array([0, 1, 3]))
    (slice(1, 6, 2), slice(2, 3, 1), array([0, 1, 3]))
    """
    first, last = int(index[0]), int(index[-1])
    step = int(index[1]) - first if len(index) > 1 else 0
    if step < 0 or not (index == first + step * np.arange(len(index))).all():
        return index
    return slice(first, last + 1, max(step, 1))


def first_reads(axis: Window) -> Array:
    """Return the first position that each window reads (small,); -1 where there is none."""
    first, positions = np.full(axis.small, -1), np.arange(axis.big)
    for windows, at in reversed(reads(axis)):
        first[windows] = positions[at]
    return first


def at_axis(axis: int, index: Any) -> Any:
    """Return the index that applies `index` to `axis`, a negative number, and takes the rest."""
    return (..., index, *(slice(None),) * (-1 - axis))


def _resized(array: Array, axis: int, size: int) -> Sizes:
    shape = list(array.shape)
    shape[axis] = size
    return tuple(shape)


def gather_sums(x: Array, axes: tuple[Window, ...]) -> Array:
    """Return the sum of each window (*lead, *small), one axis after the other."""
    for axis, window in zip(range(-len(axes), 0), axes):
        sums = np.zeros(_resized(x, axis, window.small), x.dtype)
        for windows, positions in reads(window):
            sums[at_axis(axis, windows)] += x[at_axis(axis, positions)]
        x = sums
    return x


def scatter_sums(y: Array, axes: tuple[Window, ...]) -> Array:
    """Return, for each position, the sum over the windows that read it: `gather_sums` adjoint."""
    for axis, window in zip(range(-len(axes), 0), axes):
        if isinstance(window, AdaptiveAxis):  # the windows that read a position are adaptive
            y = gather_sums(np.moveaxis(y, axis, -1), (AdaptiveAxis(window.small, window.big),))
            y = np.moveaxis(y, -1, axis)
            continue
        sums = np.zeros(_resized(y, axis, window.big), y.dtype)
        for windows, positions in reads(window):
            sums[at_axis(axis, positions)] += y[at_axis(axis, windows)]
        y = sums
    return y
