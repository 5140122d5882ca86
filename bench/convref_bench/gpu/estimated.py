"""The estimated time of the kernels that are chosen, as a multiple of the roof.

The floor of a call is the roof, and at least an empty kernel: no kernel takes less, however small
the call.
"""

from collections.abc import Iterable
from itertools import product
from math import exp, log
from typing import NamedTuple

from convref.case import Call

from ..suites import suite
from ..timing.roofline import Roof
from .steps import TUNED

BATCHES = (1, 8, 32)
KEYS = "dt=bf16:mem=nhwc:dev=cuda"
ROOF = Roof({"bf16": 7.94e14}, 4.25e12)  # the step `peaks` of `make gpu` on an H200


class Estimate(NamedTuple):
    line: str
    times: int  # layers of the network
    kernel: str
    us: float
    part: str  # the longest of the time: products, L2, ..., as `cost.longest` has them
    roof_us: float
    floor_us: float

    @property
    def excess_us(self) -> float:
        """Return the time above the floor, of all such layers."""
        return self.times * (self.us - self.floor_us)


def estimate(call: Call, times: int = 1, unproven: bool = False) -> Estimate:
    from convref_triton.common.geometry import operands
    from convref_triton.plan import cost
    from convref_triton.plan.builder import Builder
    from convref_triton.plan.choose import expected, tasks
    from convref_triton.plan.kernels import BY_NAME

    (task,) = tasks(Builder(call, operands(call)))
    choice, _ = expected(task, unproven)
    spec = BY_NAME[choice.kernel]
    part = cost.longest(spec.work_of(task, choice.tile), call.bytes_moved())
    roof = 1e6 * ROOF.seconds(call, cold=True)
    us = spec.us(task, choice.tile)
    line = str(call).replace(f":{KEYS}", "")
    return Estimate(line, times, str(choice), us, part, roof, max(roof, cost.ESTIMATED.empty_us))


def of_network(name: str, pass_: str, batch: int, unproven: bool) -> list[Estimate]:
    layers = (layer for layer in suite.load(name) if layer.problem(1).rank == 2)
    return [estimate(la.call(pass_, batch, KEYS), la.times, unproven) for la in layers]


def mean(networks: Iterable[list[Estimate]], above: str) -> float:
    """Return the geometric mean of the time over a field, "roof_us" or "floor_us".

    Networks count alike, and within one its layers, as often as there are.
    """
    logs = []
    for lines in networks:
        total = sum(log(line.us / getattr(line, above)) * line.times for line in lines)
        logs.append(total / sum(line.times for line in lines))
    return exp(sum(logs) / len(logs))


def worst_lines(lines: Iterable[Estimate], top: int) -> list[list[str]]:
    """Return rows of the lines that lose the most time against the floor."""
    order = sorted(lines, key=lambda line: -line.excess_us)
    return [
        [
            f"{line.times} x {line.line}",
            *(f"{us:.1f}" for us in (line.us, line.floor_us, line.excess_us)),
            line.kernel,
            line.part,
        ]
        for line in order[:top]
    ]


def main(networks: str = ",".join(TUNED), *, top: int = 0) -> int:
    """Print the estimated time over the roof, a geometric mean over networks, by batch and pass.

    In parentheses it is over the roof or an empty kernel, whichever takes longer. With `top`, print
    the lines of each network that lose the most time against that floor too, at the largest batch.
    """
    from convref.cli.output import print_table
    from convref_triton.plan.cost import ERROR

    names, rows = tuple(networks.split(",")), []
    for pass_, unproven in product(suite.CONV, (True, False)):
        cells = [pass_, "with unproven" if unproven else "without"]
        every: list[list[Estimate]] = []
        for batch in BATCHES:
            found = [of_network(name, pass_, batch, unproven) for name in names]
            every += found
            cells.append(f"{mean(found, 'roof_us'):.2f} ({mean(found, 'floor_us'):.2f})")
        cells.append(f"{mean(every, 'roof_us'):.2f} ({mean(every, 'floor_us'):.2f})")
        rows.append(cells)
    columns = ("pass", "kernels", *(f"N = {batch}" for batch in BATCHES), "all")
    print_table(columns, rows, f"{', '.join(names)}, bf16: estimated time over the roof")
    print(f"standard deviation of the time of a line: a factor of {ERROR}")
    for name in names if top else ():
        lines = [e for pass_ in suite.CONV for e in of_network(name, pass_, BATCHES[-1], True)]
        columns = ("layers", "us", "floor", "above it, of all", "kernel", "longest part")
        print_table(columns, worst_lines(lines, top), f"{name}, N = {BATCHES[-1]}")
    return 0
