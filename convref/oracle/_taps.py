"""The elements around a position on each axis, and their weights: what all sampling ops share.

Along one axis, a position x reads the elements j next to it with the weight K(x - j):

    bilinear   K(t) = max(0, 1 - |t|)
    bicubic    K(t) = ((5 |t| - 9) |t|^2 / 4 + 1,  |t| <= 1
                      -3 (((|t| - 5) |t| + 8) |t| - 4) / 4,  |t| <= 2         (Keys, a = -3/4)
    nearest    K(t) = 1 for the nearest element, with ties to the even index

and the weight of an element is the product over axes. At a kink, K' is the derivative to the right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ._windows import Array

ORDERS = 3  # the kernel and its first two derivatives


class Taps(NamedTuple):
    """What each position reads along one axis, one row per tap.

    `element` is within the image; where `inside` is false, the tap reads 0 instead. `weights` are
    those of the kernel and of its derivatives in the position.
    """

    element: Array  # (taps, B, L)
    inside: Array  # (taps, B, L)
    weights: tuple[Array, ...]  # ORDERS of (taps, B, L)

    def scaled(self, slope: Any) -> Taps:
        """Return the taps with derivatives by a coordinate of which positions have this slope."""
        return self._replace(weights=tuple(w * slope**k for k, w in enumerate(self.weights)))


class Sampler:
    """Sums over the taps of a position: images (B, C, *space) to samples (B, C, L), and back.

    Parameters
    ----------
    axes : sequence of Taps
        One per spatial axis.
    space : tuple of int
    """

    def __init__(self, axes: Sequence[Taps], space: tuple[int, ...]) -> None:
        self.axes, self.space = axes, space

    def gather(self, x: Array, *orders: int) -> Array:
        """Return each sample of x, differentiated `orders` times by its position on each axis."""
        batch, channels = x.shape[:2]
        flat = x.reshape(batch, channels, prod(self.space))
        total = np.zeros((batch, channels, *self.axes[0].element.shape[2:]), x.dtype)
        lead = np.arange(batch)[:, None, None], np.arange(channels)[:, None]
        for (index, inside), weight in zip(self.reads, self.weights(orders)):
            total = total + weight * np.where(inside, flat[(*lead, index)], 0)
        return total

    def scatter(self, dy: Array, *orders: int) -> Array:
        """Return the image to which each sample is added with its weights: gather's adjoint."""
        batch, channels = dy.shape[:2]
        sums = np.zeros((batch, channels, prod(self.space)), dy.dtype)
        lead = np.arange(batch)[:, None, None], np.arange(channels)[:, None]
        for (index, inside), weight in zip(self.reads, self.weights(orders)):
            np.add.at(sums, (*lead, index), np.where(inside, weight * dy, 0))
        return sums.reshape(batch, channels, *self.space)

    @cached_property
    def reads(self) -> list[tuple[Array, Array]]:
        """Return flat index and inside (B, 1, L) of every combination of the axes' taps."""
        found = []
        for each in product(*(range(len(axis.element)) for axis in self.axes)):
            index: Any = 0
            inside: Any = True
            for axis, size, tap in zip(self.axes, self.space, each, strict=True):
                index = index * size + axis.element[tap]
                inside = inside & axis.inside[tap]
            found.append((index[:, None], inside[:, None]))
        return found

    def weights(self, orders: Sequence[int]) -> Iterator[Array]:
        """Yield the weight (B, 1, L) of every combination, differentiated `orders` times."""
        rows = (axis.weights[order] for axis, order in zip(self.axes, orders, strict=True))
        for each in product(*rows):
            yield prod(each[1:], start=each[0])[:, None]


class Separable(Sampler):
    """The same for positions that are a product of those of each axis: images to (B, C, *outputs).

    The taps of an axis are (taps, B, outputs).
    """

    def gather(self, x: Array, *orders: int) -> Array:
        for number, (axis, order) in enumerate(zip(self.axes, orders, strict=True), 2):
            total: Any = np.zeros(
                (*x.shape[:number], axis.element.shape[2], *x.shape[number + 1 :]), x.dtype
            )
            for element, inside, weight in self._along(axis, order, number, x.ndim):
                values = np.where(inside, np.take_along_axis(x, element, number), 0)
                total = total + weight * values
            x = total
        return x

    def scatter(self, dy: Array, *orders: int) -> Array:
        for number, (axis, order) in enumerate(zip(self.axes, orders, strict=True), 2):
            shape = (*dy.shape[:number], self.space[number - 2], *dy.shape[number + 1 :])
            sums = np.zeros(shape, dy.dtype)
            at = list(np.ogrid[tuple(map(slice, dy.shape))])
            for element, inside, weight in self._along(axis, order, number, dy.ndim):
                at[number] = element
                np.add.at(sums, tuple(at), np.where(inside, weight * dy, 0))
            dy = sums
        return dy

    def _along(self, axis: Taps, order: int, number: int, ndim: int) -> list[tuple[Array, ...]]:
        """Return element, inside and weight of each tap, with the axes of images."""
        others = tuple(a for a in range(1, ndim) if a != number)
        every = zip(axis.element, axis.inside, axis.weights[order], strict=True)
        return [tuple(np.expand_dims(a, others) for a in each) for each in every]


def taps(x: Array, size: int, mode: str, padding: str = "zeros", align: bool = False) -> Taps:
    """Return the taps of positions x (B, L) along an axis of `size` elements.

    Examples
    --------
    >>> found = taps(np.array([[0.25]]), 2, "bilinear")
    >>> found.element.ravel(), found.weights[0].ravel()
    (array([0, 1]), array([0.75, 0.25]))
    """
    slope = np.ones_like(x)
    if mode != "bicubic":
        x, slope = padded(x, size, padding, align)
    first, weights = KERNELS[mode](x)
    places = first + np.arange(len(weights[0])).reshape(-1, 1, 1)
    if mode == "bicubic":
        places, _ = padded(places, size, padding, align)
    inside = (places >= 0) & (places < size)
    index = np.where(inside, places, 0).astype(np.int64)
    return Taps(index, inside, weights).scaled(slope)


def padded(x: Array, size: int, padding: str, align: bool) -> tuple[Array, Array]:
    """Return the positions that a padding mode maps x to, and their derivatives in x.

    "border" clips to the image. "reflection" reflects about the centres of the outer elements, or
    unless `align` about their outer edges, and then clips. Both map NaN to 0, as PyTorch does.
    """
    x, slope = reflected(x, size, padding, align)
    if padding == "zeros":
        return x, slope
    last = size - 1
    slope = np.where((x <= 0) | (x >= last), 0, slope)
    x = np.where(x > 0, x, 0)
    return np.where(x < last, x, last), slope


def reflected(x: Array, size: int, padding: str, align: bool) -> tuple[Array, Array]:
    """Return the positions before a padding mode clips them, and their derivatives in x."""
    if padding != "reflection":
        return x, np.ones_like(x)
    return _reflected(x, 0 if align else -1, size - 1 if align else size)


def _reflected(x: Array, twice_low: int, span: int) -> tuple[Array, Array]:
    """Return x reflected into an interval of length `span`, and the derivative."""
    if not span:
        return 0 * x, 0 * x
    away = (2 * x - twice_low) / 2
    slope = np.where(away < 0, -1, 1)
    flips = np.floor(abs(away) / span)
    rest = abs(away) - flips * span
    odd = flips % 2 == 1
    found = (2 * np.where(odd, span - rest, rest) + twice_low) / 2
    return found, np.where(odd, -slope, slope).astype(x.dtype)


def _nearest(x: Array) -> tuple[Array, tuple[Array, ...]]:
    low = np.floor(x)
    twice = 2 * (x - low)
    up = (twice > 1) | ((twice == 1) & (low % 2 == 1))
    one = np.ones_like(x)[None]
    return low + up, (one, 0 * one, 0 * one)


def _bilinear(x: Array) -> tuple[Array, tuple[Array, ...]]:
    low = np.floor(x)
    t, one = x - low, np.ones_like(x)
    return low, (np.stack([1 - t, t]), np.stack([-one, one]), np.stack([0 * one, 0 * one]))


def _bicubic(x: Array) -> tuple[Array, tuple[Array, ...]]:
    low = np.floor(x)
    f = x - low
    left, right = [_outer(f + 1), _inner(f)], [_inner(1 - f), _outer(2 - f)]
    value, slope, bend = zip(*left, *right)
    signed = [*slope[:2], *(-s for s in slope[2:])]  # |t| falls where the element is to the right
    return low - 1, (np.stack(value), np.stack(signed), np.stack(bend))


def _inner(t: Array) -> tuple[Array, Array, Array]:
    return (5 * t - 9) * t * t / 4 + 1, (15 * t - 18) * t / 4, (30 * t - 18) / 4


def _outer(t: Array) -> tuple[Array, Array, Array]:
    value = -3 * (((t - 5) * t + 8) * t - 4) / 4
    return value, -3 * ((3 * t - 10) * t + 8) / 4, -3 * (6 * t - 10) / 4


# Positions -> the first tap, and the weights of each tap by order.
KERNELS: dict[str, Callable[[Array], tuple[Array, tuple[Array, ...]]]] = {
    "nearest": _nearest,
    "bilinear": _bilinear,
    "bicubic": _bicubic,
}
