"""The estimate of time beside times that others have published for an H200.

The published kernels are not ours. Their times add up what each kernel of a call takes, without the
gaps between them, and some of these kernels copy operands into other orders; the estimate counts
these copies too. One number is fitted to the fastest arm of each line, the time of an empty kernel;
each network is then predicted by the fit to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convref.case import Call, parse

if TYPE_CHECKING:
    from convref_triton.plan.cost import Work

FOLDER = Path(__file__).parents[2] / "results" / "public"
ARMS = ("TileLang", "torch", "torch.compile", "FlagGems")
MHZ = 1500.0
FLOORS = np.arange(0.0, 4.1, 0.1)  # tried: microseconds of an empty kernel
COPIED = ("x", "w", "y")  # by the kernels of a call besides the convolution, in this order


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


def read(path: Path) -> list[Published]:
    from convref_triton.common.geometry import operands
    from convref_triton.plan.builder import Builder
    from convref_triton.plan.choose import expected, tasks
    from convref_triton.plan.kernels import BY_NAME

    found = []
    lines = path.read_text("utf-8").splitlines()
    for network, shape, *cells in (line.split() for line in lines if not line.startswith("#")):
        us, arm = min(zip(map(float, cells[:-1]), ARMS))
        call = parse(f"conv.fprop:{shape}:mem=nhwc:dev=cuda").call
        (task,) = tasks(Builder(call, operands(call)))
        choice, _ = expected(task)
        work = with_copies(BY_NAME[choice.kernel].work_of(task, choice.tile), call, int(cells[-1]))
        moved = call.bytes_moved()
        found.append(Published(network, str(call), us, arm, str(choice), work, moved))
    return found


def with_copies(work: Work, call: Call, kernels: int) -> Work:
    """Return the work with the copies of a call that launches so many kernels."""
    from convref_triton.common.geometry import ITEMSIZE

    sizes = (prod(call.problem.shape(role)) for role in COPIED[: kernels - 1])
    copied = sum(2.0 * size * ITEMSIZE[call.dtype] for size in sizes)
    return work._replace(copies=work.copies + kernels - 1, copied=work.copied + copied)


def expected_us(rows: Sequence[Published], floor: float) -> np.ndarray:
    """Return the time of each row if an empty kernel takes `floor`, also one that only copies."""
    from convref_triton.plan.cost import ESTIMATED, us

    times = {"empty_us": floor, "launch_us": floor, "copy_us": floor, "copy": ESTIMATED.memory}
    rates = replace(ESTIMATED, mhz=MHZ, **times)
    return np.array([us(row.work, row.moved, rates=rates) for row in rows])


def held_out(rows: Sequence[Published]) -> tuple[float, np.ndarray]:
    """Return the floor of the fit to all rows, and each row by the fit to the other networks."""
    networks, us = np.array([row.network for row in rows]), np.array([row.us for row in rows])
    every = np.array([expected_us(rows, floor) for floor in FLOORS])  # (floors, rows)
    squares = np.log(every / us) ** 2
    best = [squares[:, networks != one].sum(1).argmin() for one in networks]
    return float(FLOORS[squares.sum(1).argmin()]), every[best, np.arange(len(rows))]


def error(rows: Sequence[Published], found: np.ndarray) -> float:
    """Return the factor of one standard deviation of estimates around published times.

    >>> error([], np.array([]))
    1.0
    """
    logs = np.log(found / np.array([row.us for row in rows]))
    return exp(sqrt(float((logs**2).mean()))) if len(logs) else 1.0


def summary(rows: Sequence[Published]) -> str:
    from convref_triton.plan.cost import ESTIMATED

    floor, found = held_out(rows)
    plain = expected_us(rows, ESTIMATED.empty_us)
    return (
        f"fitted to all: {floor:.1f} us of an empty kernel\n"
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
