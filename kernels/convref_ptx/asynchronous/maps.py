"""Tensor maps: the elements of an allocation that the copy engine moves, and their swizzle.

After the PTX manual, "Tensors": tiled mode, im2col mode, swizzling modes; what a map may hold after
the CUDA driver's manual, "Tensor Map Object Management".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.program import CHUNK, refuse
from ..memory.allocations import Allocation

BITS = {3: 16, 4: 8, 5: 5}  # of an offset, and of a corner with its sign, by the tensor's axes

EXTENT, PIXELS = 256, 1024  # most elements of a box along an axis, and pixels of an im2col copy
STEP = 8  # largest element stride
FAR = 1 << 40  # bytes, above every stride


def startable(first: int) -> bool:
    """Return whether a tiled copy may start so many bytes into the innermost axis.

    On an H200 loads from -14, -8, -4, -2, 2, 4, 8, 14, 120 and 136 on were illegal instructions,
    of lines of 16, 32 and 128 bytes; those from -32, -16, 0, 16, 80 and 144 on were right.
    """
    return first % CHUNK == 0


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

    @property
    def steps(self) -> tuple[int, ...]:
        """The distances of the elements of a box along each axis."""
        return self.every or (1,) * len(self.shape)

    def check(self, text: str) -> None:
        """Raise a Fault if the driver would refuse to make this map."""
        for wrong, why in (*self._wrong_tensor(), *self._wrong_box()):
            refuse(wrong, text, why)

    def _wrong_tensor(self) -> Iterator[tuple[bool, str]]:
        """Yield what may be wrong with the tensor, and whether it is."""
        start = (self.allocation.skew + self.offset) % CHUNK
        yield start != 0, f"the tensor starts {start} bytes after a multiple of {CHUNK}"
        yield self.strides[-1] != 1, f"an innermost stride of {self.strides[-1]} elements"
        for far in (self.itemsize * stride for stride in self.strides[:-1]):
            yield far % CHUNK != 0, f"a stride of {far} bytes, needs a multiple of {CHUNK}"
            yield not 0 <= far < FAR, f"a stride of {far} bytes, needs one below {FAR}"
        for step in self.steps:
            yield not 1 <= step <= STEP, f"an element stride of {step}, needs 1 to {STEP}"
        yield (
            self.steps[-1] != 1,
            f"an innermost element stride of {self.steps[-1]}, which is ignored",
        )

    def _wrong_box(self) -> Iterator[tuple[bool, str]]:
        for n, step in zip(self.box, self.steps):
            extent = (n - 1) * step + 1
            yield not 1 <= extent <= EXTENT, f"a box of {extent} elements, needs 1 to {EXTENT}"
        yield from self._wrong_line()

    def _wrong_line(self) -> Iterator[tuple[bool, str]]:
        line, span = self.box[-1] * self.itemsize, CHUNK << self.swizzle
        yield line % CHUNK != 0, f"lines of {line} bytes, needs a multiple of {CHUNK}"
        wide = self.swizzle > 0 and line > span
        yield wide, f"lines of {line} bytes, which do not fit into a swizzle of {span}"

    def position(self, text: str, start: list[int], offsets: list[int]) -> list[Array]:
        """Return the position of each element of a copy along each axis."""
        first = start[-1] * self.itemsize
        refuse(not startable(first), text, f"starts {first} bytes into the innermost axis")
        grid = np.indices(self.box).reshape(len(self.box), -1)
        return [at + n * step for at, n, step in zip(start, grid, self.steps)]


@dataclass(frozen=True)
class Im2colMap(TensorMap):
    """An im2col tensor map (n, spatial axes, channels), whose pixels are read in order.

    Its `box` are the pixels and channels of a copy, `every` the strides of the pixels.
    """

    # Of each spatial axis: the corners of the bounding box of the pixels, relative to the tensor.
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    def _wrong_box(self) -> Iterator[tuple[bool, str]]:
        pixels, channels = self.box
        yield not 1 <= pixels <= PIXELS, f"{pixels} pixels, needs 1 to {PIXELS}"
        yield not 1 <= channels <= EXTENT, f"{channels} channels, needs 1 to {EXTENT}"
        bits = BITS.get(len(self.shape), 0)
        yield bits == 0, f"{len(self.shape)} axes, needs 3 to 5"
        far = [c for c in (*self.lower, *self.upper) if not -1 <= c >> max(bits, 1) - 1 <= 0]
        yield far != [], f"a corner of the bounding box needs more than {bits} bits"
        yield from self._wrong_line()

    def position(self, text: str, start: list[int], offsets: list[int]) -> list[Array]:
        """Return the position of each element along each axis, `offsets` from the bounding box."""
        bits = BITS.get(len(start), 0)
        many = len(offsets) != len(start) - 2 or max(offsets) >> bits
        refuse(many, text, f"needs {len(start) - 2} offsets of {bits} bits")
        n, *pixels = self._pixels(text, start)
        rows = [n, *(at + offset for at, offset in zip(pixels, offsets))]
        channels = start[-1] + np.tile(np.arange(self.box[1]), self.box[0])
        return [*(np.repeat(at, self.box[1]) for at in rows), channels]

    def _pixels(self, text: str, start: list[int]) -> list[Array]:
        """Return the positions (n, spatial axes) of consecutive pixels of the bounding box."""
        rest: Array = np.arange(self.box[0])
        every, found = self.steps, list[Array]()
        for axis in range(len(self.lower), 0, -1):
            low, step = self.lower[axis - 1], every[axis]
            count = -(-(self.shape[axis] + self.upper[axis - 1] - low) // step)
            first, remainder = divmod(start[axis] - low, step)
            outside = remainder or not 0 <= first < count
            refuse(outside, text, "does not start at a pixel of the bounding box")
            rest, at = np.divmod(first + rest, count)
            found.insert(0, low + at * step)
        return [start[0] + rest, *found]
