"""Barriers in shared memory, whose phases complete when arrivals and bytes are there.

After the PTX manual, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import Fault, Instruction, refuse
from ..memory.accesses import addresses
from ..state.control import AT_MBARRIER
from ..watch.deadlocks import history

if TYPE_CHECKING:
    from ..state.machine import Machine


class Barrier:
    """An mbarrier: pending arrivals and bytes of its phase, and the clocks of the last phase."""

    def __init__(self, place: int, count: int, columns: int) -> None:
        self.place, self.count, self.pending = place, count, count
        self.bytes = self.phase = 0
        self.clock, self.seen = np.zeros((2, columns), np.int32)
        self.last: tuple[Instruction, int] | None = None  # arrival, and its lane
        self.filled = ""  # the last copy whose bytes arrived

    def complete_phase(self) -> None:
        """Complete the phase if no arrivals and bytes are pending."""
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending, self.seen = self.phase + 1, self.count, self.clock.copy()

    def phase_is_over(self, parity: Array) -> Array:
        return (self.phase - parity) % 2 == 1


@operation(r"mbarrier\.(init|inval)\.shared(?:::cta)?\.b64")
def _barrier(m: Machine, i: Instruction, lanes: Array, name: str) -> None:
    at, count = (*i.operands, 0)[:2]
    address = addresses(m, i, at, lanes)
    m.shared.store(i.text, address, np.zeros(len(lanes), np.uint64), lanes)
    places = m.shared.places(i.text, address, 8, lanes)
    for place, arrivals in zip(places.tolist(), m.read(i, count, "u32", lanes).tolist()):
        known = m.barriers.pop(place, None) is not None
        refuse(known == (name == "init"), i.text, f"{'an' if known else 'no'} mbarrier is there")
        if name == "init":
            m.barriers[place] = Barrier(place, arrivals, m.shared.width + 1)


def barriers(m: Machine, i: Instruction, at: Any, lanes: Array) -> Iterator[tuple[Barrier, Array]]:
    """Yield each mbarrier that lanes address, and a mask of those lanes."""
    address = addresses(m, i, at, lanes)
    m.shared.load(i.text, address, 8, lanes)
    places = m.shared.places(i.text, address, 8, lanes)
    for place in np.unique(places).tolist():
        refuse(place not in m.barriers, i.text, "no mbarrier was initialized there")
        yield m.barriers[place], places == place


@operation(r"mbarrier\.arrive(\.expect_tx)?(?:\.\w+\.cta)?\.shared(?:::cta)?\.b64")
def _arrive(m: Machine, i: Instruction, lanes: Array, expects: str | None) -> None:
    state, at, given = (*i.operands, 1)[:3]
    refuse(state != "_", i.text, "a result of mbarrier.arrive is not supported")
    count = m.read(i, given, "u32", lanes).astype(np.int64)
    for barrier, mine in barriers(m, i, at, lanes):
        warps = np.unique(m.warp[lanes[mine]])
        barrier.clock = np.maximum(barrier.clock, m.shared.clock[warps].max(0))
        m.shared.tick(warps)
        barrier.bytes += int(count[mine].sum()) if expects else 0
        barrier.pending -= int(mine.sum() if expects else count[mine].sum())
        if barrier.pending < 0:
            why = "more arrivals than the mbarrier was initialized with"
            raise Fault(f"{i.text}: {why}; {history(m, barrier)}")
        barrier.last = i, int(lanes[mine][-1])
        barrier.complete_phase()


@operation(
    r"mbarrier\.(?:try|test)_wait\.parity(?:\.\w+\.cta)?\.shared(?:::cta)?\.b64", diverges=True
)
def _wait_for_phase(m: Machine, i: Instruction, lanes: Array) -> None:
    """Return whether a phase is complete; if not, the thread blocks.

    It resumes when the phase completes, or when the block could make no progress otherwise.
    """
    to, at, parity = i.operands[:3]
    wanted = m.read(i, parity, "u32", lanes).astype(np.int64) & 1
    over = np.zeros(len(lanes), bool)
    for barrier, mine in barriers(m, i, at, lanes):
        over[mine] = barrier.phase_is_over(wanted[mine])
        warps = np.unique(m.warp[lanes[mine & over]])
        m.shared.clock[warps] = np.maximum(m.shared.clock[warps], barrier.seen)
        m.at[lanes[mine]] = barrier.place
    m.write(i, to, over, lanes)
    m.need[lanes] = wanted
    m.state[lanes[~over]] = AT_MBARRIER
