"""Memory in cells, whose accesses are checked."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.program import Fault, refuse
from ..watch.races import ANY, Conflict


class CheckedMemory:
    """Bytes in cells of `grain` bytes; subclasses record the accesses to each cell."""

    # Notes accesses (text, cells, lanes, whether they write) in a run that looks for a race.
    note: Callable[[str, Array, Array, bool], None] | None = None
    batch = 0  # of the blocks that run together
    is_shared = False

    def __init__(self, size: int, grain: int, fill: int = 0xFF) -> None:
        self.bytes = np.full(size, fill, np.uint8) if fill else np.zeros(size, np.uint8)
        self.grain = grain

    def race(
        self, wrong: Array, text: str, cells: Array, lanes: Array, writes: bool,
        block: Any = ANY, warp: Any = ANY,
    ) -> Fault:  # fmt: skip
        """Return the Fault of the first wrong access (lane, cell), or (lane,).

        `writes` says whether the other access of the race does; `block` and `warp` are its, for
        each access.
        """
        at = tuple(np.argwhere(wrong)[0].tolist())
        cell, *by = (int(np.broadcast_to(a, wrong.shape)[at]) for a in (cells, block, warp))
        thread = self.batch, int(lanes[at[0]])
        fault = Fault(text)
        fault.row = at[0], len(wrong)
        fault.conflict = Conflict(self.is_shared, cell, thread, writes, *by)
        return fault

    def refuse_race(self, wrong: Array, *more: Any) -> None:
        """Raise the Fault of the first wrong access, if there is one."""
        if wrong.any():
            raise self.race(wrong, *more)

    def refuse_misaligned(self, rest: Array, text: str, place: Array, size: int) -> None:
        """Raise a Fault that names the first place whose rest is not 0."""
        if rest.any():
            where = self.described(int(place[rest != 0][0]))
            refuse(rest, text, f"an address is not a multiple of {size}: {where}")

    def described(self, place: int) -> str:
        """Return where an offset in `bytes` is, for a message."""
        raise NotImplementedError

    def lines(self, size: int) -> Array:
        """Return memory in elements of `size` bytes; NumPy moves them faster than rows."""
        return self.bytes.view(f"V{size}")

    def cells(self, place: Array, size: int) -> Array:
        """Return the cells (access, cell) that accesses of `size` bytes touch."""
        first = place[:, None] // self.grain
        return first if size <= self.grain else first + np.arange(size // self.grain)


def bytes_of(value: Array) -> Array:
    size = value.itemsize * prod(value.shape[1:])
    return np.ascontiguousarray(value).view(np.uint8).reshape(len(value), size)


def element_of(value: Array) -> Array:
    """Return rows as one element each."""
    rows = bytes_of(value)
    return rows.view(f"V{rows.shape[1]}")[:, 0]


def differing_parts(a: Array, b: Array, shape: tuple[int, ...]) -> Array:
    """Return which parts of elements differ, as (element,) or (element, part)."""
    return (bytes_of(a) != bytes_of(b)).reshape(*shape, -1).any(-1)
