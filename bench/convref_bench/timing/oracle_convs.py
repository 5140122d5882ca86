"""`make bench`: the oracle against torch in float64 on ResNet-50, and the cost of a call."""

import tracemalloc
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from convref import dispatch, oracle
from convref.case import Call, Case, parse
from convref.conformance.operands import operands

from .. import records
from ..suites import network, suite
from . import cpu
from .cpu import SPIN_S, Cpu, CpuPlace, machine
from .measure import Stop, Work, geometric_mean, measure

BATCH = 4
LAYER = Stop(samples=8, noise=0.02, timeout_s=2.2, turn=4)
HOST = Stop(samples=20, noise=0.02, timeout_s=2.0, turn=5, batch_s=0.005)
STEM = "conv1"
TINY = "conv.fprop:n2c4k4_i6x6_f3x3:dt=f64"


def peak_ratio(call: Call) -> float:
    """Return the peak memory of the oracle, result included, over operands plus result."""
    given = operands(Case(call, fill="normal"))
    tracemalloc.start()
    try:
        oracle.evaluate(call, *given)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # only two of the three arrays of a backward pass are operands of a one-bit mask
    return peak / (8 * sum(int(np.prod(call.problem.shape(role))) for role in ("x", "w", "y")))


def layers(stop: Stop = LAYER, spin_s: float = SPIN_S) -> Iterator[records.Record]:
    place, chosen = CpuPlace(stop, spin_s), suite.load("resnet50")
    for row in network.rows(chosen, ("numpy", "torch"), place, suite.CONV, ["dt=f64"], BATCH):
        if row["arm"] == "numpy":
            row["memory"] = round(peak_ratio(parse(row["line"]).call), 3)
        yield {**row, "suite": "resnet50"}


def host(stop: Stop = HOST) -> Iterator[records.Record]:
    import torch

    call = parse(TINY).call
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(call.problem.shape(role)) for role in ("x", "w", "b"))
    tensors = tuple(map(torch.from_numpy, (x, w, b)))
    entries: dict[str, Work] = {
        "formula": lambda: oracle.conv.conv_fprop(x, w, b, call.conv),
        "oracle.evaluate": lambda: oracle.evaluate(call, x, w, b),
        "dispatch.run numpy": lambda: dispatch.run(call, x, w, b),
        "dispatch.run torch": lambda: dispatch.run(call, *tensors),
        "torch.convolution": lambda: torch.convolution(
            *tensors, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        ),
        "dispatch.plan": lambda: dispatch.plan(call),
        "parse a line": lambda: parse(TINY),
    }
    for entry, timing in measure(entries, Cpu(0.0), stop).items():
        yield {"what": "host", "line": TINY, "arm": entry, **timing.record()}


def summary(rows: list[records.Record]) -> list[list[str]]:
    """Return a row per pass: ratio torch / oracle without the stem and of it, and the memory."""
    found = []
    for pass_ in suite.CONV:
        ours = [r for r in rows if r["line"].startswith(f"conv.{pass_}:") and "ratio" in r]
        cells = []
        for is_stem in (False, True):
            some = [row for row in ours if (row["layer"] == STEM) == is_stem]
            values, times = ([row[name] for row in some] for name in ("ratio", "times"))
            cells.append(f"{geometric_mean(values, times):.2f}" if some else "-")
        memory = max((row["memory"] for row in ours), default=0.0)
        found.append([pass_, *cells, f"{memory:.2f}"])
    return found


def run(*, out: Path = records.RESULTS / "cpu.jsonl", threads: int = 2) -> None:
    """Time the oracle against torch in float64 on ResNet-50, and the host cost of a call."""
    from convref.cli.output import print_table

    from ..report.summary import print_record

    found = []
    records.append(out, machine(threads))
    with cpu.threads(threads):
        for row in chain(host(), layers()):
            records.append(out, row)
            found.append(row)
            print_record(row)
    columns = ["pass", "without the stem", "stem alone", "worst memory"]
    title = "ResNet-50, batch 4, float64: torch / oracle; memory over operands and result"
    print_table(columns, summary(found), title)
