"""The index arithmetic of the oracle: padding, its adjoint, and the positions each tap reads."""

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..ops import AdaptiveAxis, Axis, Sizes

Array = np.ndarray[Any, Any]
Results = tuple[Array | None, ...]

BLOCK = 512  # windows; a map of 28 x 28 goes alone, maps of 7 x 7 go ten at a time
COLUMNS = 3 * 2**19  # elements of windows that are multiplied at once, 12 MiB in float64


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


@lru_cache(maxsize=64)
def padded_sizes(axes: tuple[Axis, ...]) -> Sizes:
    """Return the spatial sizes after padding."""
    return tuple(max(0, axis.big + axis.lo + axis.hi) for axis in axes)


@lru_cache(maxsize=64)
def _overlap(axes: tuple[Axis, ...]) -> tuple[Any, Any]:
    """Return the index of the real positions in the padded array, and in the array itself."""
    inner, outer = [], []
    for axis in axes:
        first, last = max(0, -axis.lo), min(axis.big, axis.big + axis.hi)
        last = max(first, last)
        outer.append(slice(first, last))
        inner.append(slice(first + axis.lo, last + axis.lo))
    return (..., *inner), (..., *outer)


def windows(padded: Array, axes: tuple[Axis, ...]) -> Array:
    """Return (*lead, *padded) as a view (*lead, *filter, *small): what each tap reads."""
    lead = padded.ndim - len(axes)
    pairs = [*zip(padded.strides[lead:], axes)]
    steps = [stride * axis.dilation for stride, axis in pairs]
    steps += [stride * axis.stride for stride, axis in pairs]
    sizes = [axis.taps for axis in axes] + [axis.small for axis in axes]
    shape, strides = (*padded.shape[:lead], *sizes), (*padded.strides[:lead], *steps)
    if padded.flags.c_contiguous and padded.size and not padded.dtype.hasobject:
        return np.ndarray(shape, padded.dtype, padded, 0, strides)  # as below, in a fifth of it
    return as_strided(padded, shape, strides)


def add_to_windows(written: Array, values: Array, rank: int) -> None:
    """Add values (*lead, *filter, *small) tap by tap: the windows of one tap do not overlap."""
    lead: tuple[Any, ...] = (slice(None),) * (written.ndim - 2 * rank)
    for tap in product(*map(range, written.shape[len(lead) : -rank])):
        written[(*lead, *tap)] += values[(*lead, *tap)]


def blocks(n: int, axes: tuple[Axis, ...]) -> list[slice]:
    """Return one or more slices of the batch with about BLOCK windows each, the first the largest.

    A sum reads its operands once per tap: a few images stay cached, a whole batch would not.
    """
    step = max(1, BLOCK // max(1, prod(axis.small for axis in axes)))
    return [slice(first, min(n, first + step)) for first in range(0, max(1, n), step)]


Part = tuple[slice, ...]


def parts(planes: int, axes: tuple[Axis, ...], dtype: Any) -> tuple[tuple[Part, ...], Array]:
    """Return parts of a filter whose taps are summed together, and memory for their columns.

    With few channels, the matrix product of one tap is thin: that of several taps is several times
    faster, while their columns stay cached.
    """
    taken, size = _split_taps(planes, axes, COLUMNS)
    return taken, np.empty(size, dtype)


@lru_cache(maxsize=64)
def _split_taps(planes: int, axes: tuple[Axis, ...], most: int) -> tuple[tuple[Part, ...], int]:
    tap = planes * prod(axis.small for axis in axes)
    rest, steps = most // max(1, tap), list[int]()
    for axis in reversed(axes):
        steps.insert(0, max(1, min(axis.taps, rest)))
        rest //= axis.taps
    cuts = (
        [slice(i, i + step) for i in range(0, axis.taps, step)] for axis, step in zip(axes, steps)
    )
    return tuple(product(*cuts)), tap * prod(steps)


def columns(read: Array, lead: int, axes: tuple[Axis, ...], scratch: Array) -> Array:
    """Return (*lead, C, *filter, ...) as (*lead, C * taps, ...), all axes after those made one.

    A copy, where one is needed, is written to the front of `scratch`: fresh memory for every part
    would cost more than the copy itself, as each of its pages is a page fault.
    """
    last = lead + 1 + len(axes)
    shape = (*read.shape[:lead], prod(read.shape[lead:last]), prod(read.shape[last:]))
    if not read.flags.c_contiguous:
        copy = scratch[: read.size].reshape(read.shape)
        copy[...] = read
        read = copy
    return read.reshape(shape)


Window = Axis | AdaptiveAxis
Reads = tuple[tuple[Any, Any], ...]


@lru_cache(maxsize=64)
def reads(axis: Window) -> Reads:
    """Return, for each tap of one axis, the windows whose tap exists and the positions it reads.

    Unlike those of `windows`, these are positions of the array: padding is not read.
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
