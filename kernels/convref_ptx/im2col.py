"""Loads of rows of pixels: tensor maps im2col, whose copies cross lines and images.

After the PTX manual, "Tensors: Im2col mode": bounding box, traversal stride, offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .copies import Load, TensorMap, boxed, told
from .memory import Array
from .operations import operation
from .program import Fault, Instruction

if TYPE_CHECKING:
    from .machine import Machine

BITS = {3: 16, 4: 8, 5: 5}  # of an offset, and of a corner with its sign, by the tensor's axes


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


def _walked(i: Instruction, known: Im2colMap, start: list[int]) -> list[Array]:
    """Return (n, spatial axes) of the pixels of a copy, the last axis first, within the box."""
    rest: Array = np.arange(known.box[0])
    every, found = known.every or (1,) * len(known.shape), list[Array]()
    for axis in range(len(known.lower), 0, -1):
        low, step = known.lower[axis - 1], every[axis]
        count = -(-(known.shape[axis] + known.upper[axis - 1] - low) // step)
        first, aside = divmod(start[axis] - low, step)
        if aside or not 0 <= first < count:
            raise Fault(f"{i.text}: does not begin at a pixel of the bounding box")
        rest, at = np.divmod(first + rest, count)
        found.insert(0, low + at * step)
    return [start[0] + rest, *found]


@operation(
    r"cp\.async\.bulk\.tensor\.([3-5])d\.shared::(?:cluster|cta)\.global\.im2col"
    r"\.mbarrier::complete_tx::bytes"
)
def _load_pixels(m: Machine, i: Instruction, lanes: Array, rank: str) -> None:
    to, tensor, barrier, aside = i.operands
    for lane in lanes[:, None]:
        known, start = told(m, i, lane, int(rank), tensor, Im2colMap)
        offsets = [int(m.read(i, word, "u16", lane)[0]) for word in aside][::-1]
        bits = BITS[int(rank)]
        if len(offsets) != int(rank) - 2 or max(offsets) >> bits:
            raise Fault(f"{i.text}: needs {int(rank) - 2} offsets of {bits} bits")
        if not all(-1 <= c >> bits - 1 <= 0 for c in (*known.lower, *known.upper)):
            raise Fault(f"{i.text}: a corner of the bounding box needs more than {bits} bits")
        n, *pixels = _walked(i, known, start)
        rows = [n, *(at + offset for at, offset in zip(pixels, offsets))]
        position: Any = [np.repeat(at, known.box[1]) for at in rows]
        position.append(start[-1] + np.tile(np.arange(known.box[1]), known.box[0]))
        Load(m, i, lane, boxed(m, i, lane, known, position, to), barrier)
