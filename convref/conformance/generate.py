"""Cases by the chunk, from a counter-based generator seeded by campaign and chunk number.

A chunk is a pure function of its axes and number, so shards, resume and replay are numbers too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..backends import PLAIN, Arm
from ..case import Case
from ..dtypes import short_name
from ..errors import missing_extra

try:
    from . import strategies
except ImportError as error:
    raise missing_extra("check", error) from None

CHUNK = 1000


@dataclass(frozen=True)
class Axes:
    """The axes of a campaign; an empty tuple means everything, but convolution for `ops`."""

    seed: int = 0
    # names as in the line
    ops: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    size: int = CHUNK  # examples in a chunk
    arms: tuple[str, ...] = ()  # ways to run the library, by name
    laws: bool = False  # whether the laws of convolution are checked instead of results
    large: bool = False  # whether a few examples have more than 100,000 elements
    device: str = "cpu"  # where the operands are
    data: int = 1  # on how many data each drawn call is run

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtypes", tuple(map(short_name, self.dtypes)))


def strategy(axes: Axes) -> strategies.Built[Case]:
    """Return the strategy that the chunks of `axes` are drawn from; a wrong name is an error."""
    names: Any = ("ops", "passes", "dtypes", "fills")
    given = {name: v for name in names if (v := getattr(axes, name))}
    return strategies.cases(**given, large=axes.large)


def chunk_cases(axes: Axes, chunk: int) -> list[Case]:
    """Return the cases of one chunk, the same list for the same arguments.

    Hypothesis would draw the same mixture in four times the time.

    >>> axes = Axes(seed=1, dtypes=("f32",), size=20)
    >>> len(chunk_cases(axes, 0)), chunk_cases(axes, 3) == chunk_cases(axes, 3)
    (20, True)
    """
    drawn = strategy(axes)
    words = np.random.Generator(np.random.Philox(key=_seed(axes.seed, chunk)))
    cases = [drawn.of(words.bytes(drawn.size)) for _ in range(-(-axes.size // axes.data))]
    if axes.data > 1:
        fills = axes.fills or strategies.MIXTURE
        cases = [one for case in cases for one in on_data(case, axes.data, words.integers, fills)]
        cases = cases[: axes.size]
    return cases if axes.device == "cpu" else [case.on(axes.device) for case in cases]


def on_data(
    case: Case,
    count: int,
    below: Callable[[int], int],  # returns a random integer from 0, less than its argument
    fills: tuple[str, ...] = strategies.MIXTURE,
) -> Iterator[Case]:
    """Yield the case, and its call on other data, `count` cases in all."""
    yield case
    some = strategies.suitable_fills(case.call, fills)
    for _ in range(count - 1):
        yield replace(case, fill=some[below(len(some))], seed=int(below(2**16)))


def arm_of(axes: Axes, chunk: int, arms: Sequence[Arm]) -> Arm:
    """Return the arm that runs a chunk: the first named the first, then each by its share.

    >>> arms = (Arm(share=3), Arm("native"))
    >>> [arm_of(Axes(), chunk, arms).name for chunk in range(6)]
    ['plain', 'plain', 'native', 'plain', 'native', 'plain']
    >>> arm_of(Axes(arms=("native",)), 0, arms).name
    'native'
    """
    wanted = [arm for arm in arms or (PLAIN,) if not axes.arms or arm.name in axes.arms]
    if chunk == 0:
        return wanted[0]
    shares = [arm for arm in wanted for _ in range(arm.share)]
    return shares[_seed(axes.seed, -chunk) % len(shares)]


def _seed(seed: int, chunk: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{chunk}".encode()).digest()[:8], "big")
