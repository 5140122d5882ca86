"""Tensor maps: the elements of an allocation that the copy engine moves, and their swizzle.

After the PTX manual, "Tensors": tiled mode, im2col mode, swizzling modes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.program import CHUNK, refuse
from ..memory.spaces import Allocation

BITS = {3: 16, 4: 8, 5: 5}  # of an offset, and of a corner with its sign, by the tensor's axes


def swizzled(address: Array, span: Any) -> Array:
    """Return swizzled addresses for lines of `span` bytes.

    The index of 16 bytes in a line is combined by XOR with the index of their 128 bytes.
    """
    return address ^ ((address >> 7) & (span // CHUNK - 1)) << 4


@dataclass(frozen=True)
class TensorMap:
    """A tensor map, with the arguments of `convref_driver.encode`."""

    allocation: Allocation  # its array has the element type
    shape: tuple[int, ...]  # in elements, as strides and box; one to five of each
    strides: tuple[int, ...]  # the last one is 1
    box: tuple[int, ...]
    swizzle: int = 0  # 0 none, 1, 2, 3 for spans of 32, 64, 128 bytes
    every: tuple[int, ...] = ()  # element strides of a box along each axis; empty for 1
    # Of a tensor in an allocation of another type: bytes to its first element, and of an element.
    offset: int = field(default=0, kw_only=True)
    width: int = field(default=0, kw_only=True)

    @property
    def itemsize(self) -> int:
        return self.width or self.allocation.array.itemsize

    def position(self, text: str, start: list[int], offsets: list[int]) -> list[Array]:
        """Return the position of each element of a copy along each axis."""
        grid = np.indices(self.box).reshape(len(self.box), -1)
        steps = self.every or (1,) * len(start)
        return [at + n * step for at, n, step in zip(start, grid, steps)]


@dataclass(frozen=True)
class Im2colMap(TensorMap):
    """An im2col tensor map (n, spatial axes, channels), whose pixels are read in order.

    Its `box` are the pixels and channels of a copy, `every` the strides of the pixels.
    """

    # Of each spatial axis: the corners of the bounding box of the pixels, relative to the tensor.
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    def position(self, text: str, start: list[int], offsets: list[int]) -> list[Array]:
        """Return the position of each element along each axis, `offsets` from the bounding box."""
        bits = BITS.get(len(start), 0)
        many = len(offsets) != len(start) - 2 or max(offsets) >> bits
        refuse(many, text, f"needs {len(start) - 2} offsets of {bits} bits")
        far = [c for c in (*self.lower, *self.upper) if not -1 <= c >> bits - 1 <= 0]
        refuse(far, text, f"a corner of the bounding box needs more than {bits} bits")
        n, *pixels = self._pixels(text, start)
        rows = [n, *(at + offset for at, offset in zip(pixels, offsets))]
        channels = start[-1] + np.tile(np.arange(self.box[1]), self.box[0])
        return [*(np.repeat(at, self.box[1]) for at in rows), channels]

    def _pixels(self, text: str, start: list[int]) -> list[Array]:
        """Return the positions (n, spatial axes) of consecutive pixels of the bounding box."""
        rest: Array = np.arange(self.box[0])
        every, found = self.every or (1,) * len(self.shape), list[Array]()
        for axis in range(len(self.lower), 0, -1):
            low, step = self.lower[axis - 1], every[axis]
            count = -(-(self.shape[axis] + self.upper[axis - 1] - low) // step)
            first, remainder = divmod(start[axis] - low, step)
            outside = remainder or not 0 <= first < count
            refuse(outside, text, "does not start at a pixel of the bounding box")
            rest, at = np.divmod(first + rest, count)
            found.insert(0, low + at * step)
        return [start[0] + rest, *found]
