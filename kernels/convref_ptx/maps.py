"""Tensor maps: which elements of a buffer the copy engine moves, and how it scatters them.

After the PTX manual, "Tensors": tiled mode, im2col mode, swizzling modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .memory import Buffer
from .numbers import Array
from .program import CHUNK, refuse

BITS = {3: 16, 4: 8, 5: 5}  # of an offset, and of a corner with its sign, by the tensor's axes


def scattered(address: Array, span: Any) -> Array:
    """Return where 16 bytes of lines of `span` bytes lie among the banks.

    Their place in a line is changed by the number of the 128 bytes they lie in.
    """
    return address ^ ((address >> 7) & (span // CHUNK - 1)) << 4


@dataclass(frozen=True)
class TensorMap:
    """How the copy engine sees a buffer, as `convref_driver.encode` is told.

    Parameters
    ----------
    buffer : Buffer
        Its array has the type of the elements.
    shape, strides, box : tuple of int
        In elements, one to five of each; the last stride is 1.
    swizzle : int
        0 none, 1, 2, 3 for spans of 32, 64, 128 bytes.
    every : tuple of int
        How far apart the elements of a box are along each axis; empty for side by side.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    every: tuple[int, ...] = ()

    def position(self, text: str, start: list[int], aside: list[int]) -> list[Array]:
        """Return where the elements of a copy lie along each axis."""
        grid = np.indices(self.box).reshape(len(self.box), -1)
        steps = self.every or (1,) * len(start)
        return [at + n * step for at, n, step in zip(start, grid, steps)]


@dataclass(frozen=True)
class Im2colMap(TensorMap):
    """A tensor map (n, spatial axes, channels) of which pixels are read one after the other.

    Parameters
    ----------
    box : tuple of 2 int
        Pixels and channels of a copy.
    every : tuple of int
        How far apart the pixels are along each axis; empty for side by side.
    lower, upper : tuple of int
        Of each spatial axis: where pixels begin, and how far beyond the tensor they end.
    """

    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    def position(self, text: str, start: list[int], aside: list[int]) -> list[Array]:
        """Return where the elements of pixels lie, each axis moved `aside` of the bounding box."""
        bits = BITS.get(len(start), 0)
        many = len(aside) != len(start) - 2 or max(aside) >> bits
        refuse(many, text, f"needs {len(start) - 2} offsets of {bits} bits")
        far = [c for c in (*self.lower, *self.upper) if not -1 <= c >> bits - 1 <= 0]
        refuse(far, text, f"a corner of the bounding box needs more than {bits} bits")
        n, *pixels = self._walked(text, start)
        rows = [n, *(at + offset for at, offset in zip(pixels, aside))]
        channels = start[-1] + np.tile(np.arange(self.box[1]), self.box[0])
        return [*(np.repeat(at, self.box[1]) for at in rows), channels]

    def _walked(self, text: str, start: list[int]) -> list[Array]:
        """Return (n, spatial axes) of pixels, the last axis first, within the bounding box."""
        rest: Array = np.arange(self.box[0])
        every, found = self.every or (1,) * len(self.shape), list[Array]()
        for axis in range(len(self.lower), 0, -1):
            low, step = self.lower[axis - 1], every[axis]
            count = -(-(self.shape[axis] + self.upper[axis - 1] - low) // step)
            first, beside = divmod(start[axis] - low, step)
            outside = beside or not 0 <= first < count
            refuse(outside, text, "does not begin at a pixel of the bounding box")
            rest, at = np.divmod(first + rest, count)
            found.insert(0, low + at * step)
        return [start[0] + rest, *found]
