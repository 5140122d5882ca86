"""What is known of a deadlock: where each warp waits, and the state of what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..arithmetic.numbers import Array
from ..state.control import AT_BARRIER, AT_MBARRIER

if TYPE_CHECKING:
    from ..asynchronous.mbarriers import Barrier
    from ..state.machine import Machine


def described(m: Machine, lanes: Array) -> str:
    """Return what the threads of a block wait for, none of which runs."""
    return "; ".join([*_positions(m, lanes), *_barriers(m, lanes), *_mbarriers(m, lanes)])


def _positions(m: Machine, lanes: Array) -> Iterator[str]:
    for pc in np.unique(m.pc[lanes]):
        warps = np.unique(m.warp[lanes[m.pc[lanes] == pc]]) % m.shared.width
        i = m.code[pc - 1][1]
        yield f"{i.text}: warps {warps.tolist()}" + f" ({i.where})" * bool(i.where)


def _barriers(m: Machine, lanes: Array) -> Iterator[str]:
    waiting = lanes[m.state[lanes] == AT_BARRIER]
    for number in np.unique(m.at[waiting]):
        here = waiting[m.at[waiting] == number]
        needs = int(m.need[here[0]]) or len(lanes)
        yield f"barrier {number}: {len(here)} of {needs} threads arrived"


def _mbarriers(m: Machine, lanes: Array) -> Iterator[str]:
    blocked = lanes[m.state[lanes] == AT_MBARRIER]
    for place in np.unique(m.at[blocked]).tolist():
        parities = np.unique(m.need[blocked[m.at[blocked] == place]])
        wanted = " and ".join(map(str, parities.tolist()))
        yield f"{history(m, m.barriers[place])}, waits for parity {wanted}"


def history(m: Machine, barrier: Barrier) -> str:
    """Return the state of an mbarrier, and what arrived at it last."""
    last = "no arrival"
    if barrier.last is not None:
        i, lane = barrier.last
        last = f"last arrival by {i.text} ({m.location(i.where, lane)})"
    return (
        f"mbarrier at {m.shared.described(barrier.place)}: in phase {barrier.phase}, "
        f"{barrier.pending} of {barrier.count} arrivals and {barrier.bytes} bytes pending, {last}"
        + f", last bytes by {barrier.filled}"
        * bool(barrier.filled)
    )
