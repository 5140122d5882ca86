"""The estimate of time beside times that others have published for an H200.

The published kernels are not ours. A share of the bound and a time that even an empty kernel needs
are fitted to the fastest arm of each line, together with two rates of the estimate; each network is
then predicted by the fit to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import exp, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from convref.case import parse

if TYPE_CHECKING:
    from convref_triton.plan.cost import Work

FOLDER = Path(__file__).parents[2] / "results" / "public"
ARMS = ("TileLang", "torch", "torch.compile", "FlagGems")
MHZ = 1500.0
# Tried: bytes a cycle from the L2 cache, cycles of a tile's ends, microseconds of an empty kernel,
# and the share of the bound that kernels reach, as a multiple of ours.
L2, FILL = tuple(range(16, 97, 4)), (0, 750, 1500, 3000, 4500)
FLOOR, SHARE = np.arange(0.0, 4.1, 0.25), np.arange(0.5, 1.31, 0.05)


@dataclass(frozen=True)
class Published:
    """The time of the fastest arm of a line, and the kernel that we would choose for it."""

    network: str
    line: str
    us: float
    arm: str
    choice: str
    work: Work
    moved: float


class Fit(NamedTuple):
    l2: int
    fill: int
    floor: float
    share: float


def read(path: Path) -> list[Published]:
    from convref_triton.common.geometry import operands
    from convref_triton.plan.builder import Builder
    from convref_triton.plan.choose import expected, tasks
    from convref_triton.plan.kernels import BY_NAME

    found = []
    lines = path.read_text("utf-8").splitlines()
    for network, shape, *times in (line.split() for line in lines if not line.startswith("#")):
        us, arm = min(zip(map(float, times), ARMS))
        call = parse(f"conv.fprop:{shape}:mem=nhwc:dev=cuda").call
        (task,) = tasks(Builder(call, operands(call)))
        choice, _ = expected(task)
        work = BY_NAME[choice.kernel].work_of(task, choice.tile)
        moved = call.bytes_moved()
        found.append(Published(network, str(call), us, arm, str(choice), work, moved))
    return found


class Grid:
    """The estimates of all lines under every fit that is tried."""

    def __init__(self, rows: Sequence[Published]) -> None:
        from convref_triton.plan.cost import ESTIMATED, beside_us, ends_us, steps_us

        self.pairs = list(product(L2, FILL))
        bare = replace(ESTIMATED, mhz=MHZ, empty_us=0.0)
        cards = [replace(bare, l2=l2, fill=fill) for l2, fill in self.pairs]
        works = [row.work for row in rows]
        steps = np.array([[steps_us(w, 0, card) for w in works] for card in cards])
        ends = np.array([[ends_us(w, 0, card) for w in works] for card in cards])
        moved = np.array([row.moved for row in rows]) / bare.memory
        beside = np.array([beside_us(w, bare) for w in works])
        busy = steps[:, None] / SHARE[:, None] + ends[:, None]
        held = np.hypot(busy, moved)[:, :, None] + beside + FLOOR[:, None]
        self.estimates = held  # (pairs, shares, floors, rows)
        self.errors = np.log(held / np.array([row.us for row in rows]))

    def best(self, kept: np.ndarray) -> tuple[int, ...]:
        """Return the indices of the fit with the least squared error of the rows in `kept`."""
        squares = (self.errors[..., kept] ** 2).sum(-1)
        return tuple(map(int, np.unravel_index(squares.argmin(), squares.shape)))

    def fit(self, at: tuple[int, ...]) -> Fit:
        pair, share, floor = at
        return Fit(*self.pairs[pair], float(FLOOR[floor]), float(SHARE[share]))


def held_out(rows: Sequence[Published]) -> tuple[Fit, np.ndarray]:
    """Return the fit to all rows, and each row as estimated by the fit to the other networks."""
    grid, networks = Grid(rows), np.array([row.network for row in rows])
    found = np.array([grid.estimates[grid.best(networks != n)][i] for i, n in enumerate(networks)])
    return grid.fit(grid.best(np.full(len(rows), True))), found


def error(rows: Sequence[Published], found: np.ndarray) -> float:
    """Return the factor of one standard deviation of estimates around published times.

    >>> error([], np.array([]))
    1.0
    """
    logs = np.log(found / np.array([row.us for row in rows]))
    return exp(sqrt(float((logs**2).mean()))) if len(logs) else 1.0


def summary(rows: Sequence[Published]) -> str:
    from convref_triton.plan.cost import ESTIMATED, us

    fit, found = held_out(rows)
    slow = replace(ESTIMATED, mhz=MHZ)
    plain = np.array([us(row.work, row.moved, rates=slow) for row in rows])
    return (
        f"fitted to all: {fit.l2} bytes a cycle from L2, {fit.fill} cycles a tile, "
        f"{fit.floor:g} us of an empty kernel, {fit.share:.2f} of the shares\n"
        f"standard deviation: a factor of {error(rows, plain):.2f} without a fit, "
        f"of {error(rows, found):.2f} for networks that were left out of it"
    )


def main() -> int:
    """Print published times beside their estimates, and the error of these."""
    from convref.cli.output import print_table

    for path in sorted(FOLDER.glob("*.txt")):
        rows = read(path)
        table = [
            [row.network, row.line.split(":")[1], row.arm, f"{row.us:.1f}", row.choice.split()[0],
             f"{us:.1f}", f"{us / row.us:.2f}"]
            for row, us in zip(rows, held_out(rows)[1])
        ]  # fmt: skip
        columns = ("network", "line", "fastest", "us", "our kernel", "estimate", "ratio")
        print_table(columns, table, path.stem)
        print(summary(rows))
    return 0
