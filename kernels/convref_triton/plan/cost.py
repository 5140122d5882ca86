"""How long a kernel takes on a Hopper card: an estimate from what it multiplies and what it loads.

A multiprocessor computes its share of the tiles one after the other. A step of a tile lasts as long
as its products at peak, as its blocks take to come from the L2 cache, or as its instructions take
to be issued, whichever is longest; no kernel reaches that bound, and `reached` says how much of it.
What a call has to move through memory at least takes its time beside.

No figure is measured here: `python -m convref_bench fit` finds them in a tuner's times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot
from typing import NamedTuple

SMS = 132  # multiprocessors, unless a device has others
REGISTERS = 2**16  # of a multiprocessor
# Products of a multiprocessor in a cycle, by a type of 16 bits or what is done to float32.
PRODUCTS = {"f16": 2048, "bf16": 2048, "tf32": 1024, "tf32x3": 340, "ieee": 128}
ISSUED = 4  # instructions of warps in a cycle


class Work(NamedTuple):
    """What a kernel does for a result on one tile of its table.

    Parameters
    ----------
    kernel : str
    kind : str
        Key of PRODUCTS.
    tiles, steps : int
        Tiles of the result, or of its parts, and steps of each.
    products : float
        Multiplications of a step, those for nothing too.
    loaded : float
        Bytes that a step brings into a multiprocessor.
    issued : float
        Instructions of warps of a step, where that many may be the bound.
    beside : float
        Bytes that copies and partial sums move through memory.
    launches : int
    resident : int
        Tiles that a multiprocessor has at a time: one is begun or ended while others multiply.
    """

    kernel: str
    kind: str
    tiles: int
    steps: int
    products: float
    loaded: float
    issued: float = 0.0
    beside: float = 0.0
    launches: int = 1
    resident: int = 1


# Of the bound. Kernels that load with one warp and multiply with others come closest.
REACHED = {
    **{"gather": 0.7, "split": 0.7, "dual": 0.65, "flat": 0.6, "tma": 0.75, "wgrad": 0.6},
    **{"gluon_fprop": 0.85, "gluon_halo": 0.85, "im2col": 0.85},
    **{"gluon_wgrad": 0.8, "gluon_halo_wgrad": 0.8},
    **{"depthwise": 0.6, "direct": 0.4, "direct_wgrad": 0.4},
}


@dataclass(frozen=True)
class Rates:
    """The figures of a card; those given here are estimates for an H100 or H200.

    Parameters
    ----------
    l2 : float
        Bytes that come from the L2 cache in a cycle, for each multiprocessor.
    fill : float
        Cycles in which a tile is begun and ended.
    mhz : float
        Clock under load.
    memory : float
        Bytes a microsecond.
    launch_us : float
        Between one kernel of a call and the next.
    reached : mapping of str to float
        By kernel.
    """

    l2: float = 40.0
    fill: float = 1500.0
    mhz: float = 1600.0
    memory: float = 3e6
    launch_us: float = 2.0
    reached: Mapping[str, float] = field(default_factory=lambda: REACHED)


ESTIMATED = Rates()


def step(kind: str, products: float, loaded: float, issued: float, rates: Rates) -> float:
    """Return the cycles of a step, if a kernel reached its bound.

    >>> [step("bf16", 128 * n * 64, (128 + n) * 128, 0.0, Rates(l2=64)) for n in (128, 256)]
    [512.0, 1024.0]
    """
    return max(products / PRODUCTS[kind], loaded / rates.l2, issued / ISSUED)


def bound_us(work: Work, sms: int = SMS, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds in which the multiprocessors do their share, if all reach the bound.

    >>> one = Work("gather", "bf16", 132, 10, 128 * 128 * 64, 0.0)
    >>> bound_us(one._replace(tiles=133)) / bound_us(one)
    2.0
    """
    turns = -(-work.tiles // (sms or SMS))
    cycles = turns * work.steps * step(work.kind, work.products, work.loaded, work.issued, rates)
    return (cycles + -(-turns // work.resident) * rates.fill) / rates.mhz


def longest(work: Work, moved: float, sms: int = SMS, rates: Rates = ESTIMATED) -> str:
    """Return what a kernel waits for most: products, L2, issue, ends of tiles, memory, launches.

    >>> longest(Work("tma", "bf16", 132, 9, 64 * 64 * 64, 2 * 64 * 64 * 2), 0.0)
    'L2'
    """
    turns = -(-work.tiles // (sms or SMS))
    cycles = {
        "products": turns * work.steps * work.products / PRODUCTS[work.kind],
        "L2": turns * work.steps * work.loaded / rates.l2,
        "issue": turns * work.steps * work.issued / ISSUED,
        "ends of tiles": -(-turns // work.resident) * rates.fill,
        "memory": (moved + work.beside) / rates.memory * rates.mhz,
        "launches": (work.launches - 1) * rates.launch_us * rates.mhz,
    }
    return max(cycles, key=lambda name: cycles[name])


def us(work: Work, moved: float, sms: int = SMS, rates: Rates = ESTIMATED) -> float:
    """Return the microseconds that a kernel is expected to take.

    Parameters
    ----------
    work : Work
    moved : float
        Bytes that any kernel would have to move for the call, once each.
    sms : int
        Multiprocessors of the device; 0 where nobody counted them.
    rates : Rates
    """
    busy = bound_us(work, sms, rates) / rates.reached.get(work.kernel, 1.0)
    rest = work.beside / rates.memory + (work.launches - 1) * rates.launch_us
    return hypot(busy, moved / rates.memory) + rest
