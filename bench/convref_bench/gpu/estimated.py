"""The estimated time of the kernels that are chosen, as a multiple of the roof."""

from itertools import product
from math import exp, log

from convref.case import Call

from ..suites import suite
from ..timing.roofline import Roof
from .steps import TUNED

BATCHES = (1, 8, 32)
KEYS = "dt=bf16:mem=nhwc:dev=cuda"


ROOF = Roof({"bf16": 7.94e14}, 4.25e12)  # the step `peaks` of `make gpu` on an H200


def over_roof(call: Call, unproven: bool) -> float:
    from convref_triton.common.geometry import operands
    from convref_triton.plan.builder import Builder
    from convref_triton.plan.choose import expected, tasks
    from convref_triton.plan.kernels import BY_NAME

    (task,) = tasks(Builder(call, operands(call)))
    choice, _ = expected(task, unproven)
    us = BY_NAME[choice.kernel].us(task, choice.tile)
    return us / (1e6 * ROOF.seconds(call, cold=True))


def mean(networks: tuple[str, ...], pass_: str, batch: int, unproven: bool) -> float:
    """Return the geometric mean over networks, whose layers count as often as there are."""
    logs = []
    for name in networks:
        layers = [layer for layer in suite.load(name) if layer.problem(1).rank == 2]
        found = [log(over_roof(la.call(pass_, batch, KEYS), unproven)) * la.times for la in layers]
        logs.append(sum(found) / sum(layer.times for layer in layers))
    return exp(sum(logs) / len(logs))


def main(networks: str = ",".join(TUNED)) -> int:
    """Print the estimated time over the roof, a geometric mean over networks, by batch and pass."""
    from convref.cli.output import print_table
    from convref_triton.plan.cost import ERROR

    names, rows = tuple(networks.split(",")), []
    for pass_, unproven in product(suite.CONV, (True, False)):
        found = [mean(names, pass_, batch, unproven) for batch in BATCHES]
        every = exp(sum(map(log, found)) / len(found))
        kernels = "with unproven" if unproven else "without"
        rows.append([pass_, kernels, *(f"{value:.2f}" for value in (*found, every))])
    columns = ("pass", "kernels", *(f"N = {batch}" for batch in BATCHES), "all")
    print_table(columns, rows, f"{', '.join(names)}, bf16: estimated time over the roof")
    print(f"standard deviation of the time of a line: a factor of {ERROR}")
    return 0
