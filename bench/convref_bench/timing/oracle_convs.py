"""`make bench`: the oracle against torch in float64 on ResNet-50, and the cost of a call."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from convref import dispatch, oracle
from convref.arrays import to_numpy
from convref.case import Call, Case, parse
from convref.conformance.operands import operands

from .. import records
from ..suites import suite
from . import cpu
from .cpu import SPIN_S, Cpu, machine
from .measure import Stop, Work, geometric_mean, measure, verdict

BATCH = 4
LAYER = Stop(samples=8, noise=0.02, timeout_s=2.2, turn=4)
HOST = Stop(samples=20, noise=0.02, timeout_s=2.0, turn=5, batch_s=0.005)
STEM = "conv1"
TINY = "conv.fprop:n2c4k4_i6x6_f3x3:dt=f64"


def agree(call: Call, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Raise unless two float64 results differ by no more than rounding explains.

    The bound holds for data below 8 in absolute value: gamma_n of each side times n times 64.
    """
    n = call.products(call.wanted[0])
    limit = 2 * (n * 2.0**-53) * n * 64
    off = float(np.abs(ours - theirs).max(initial=0.0))
    if off > limit:
        raise ArithmeticError(f"{call}: oracle and torch differ by {off:.3g}, at most {limit:.3g}")


def peak_ratio(call: Call, work: Work) -> float:
    """Return the peak memory of `work`, result included, over operands plus result."""
    tracemalloc.start()
    try:
        work()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # only two of the three arrays of a backward pass are operands of a one-bit mask
    return peak / (8 * sum(int(np.prod(call.problem.shape(role))) for role in ("x", "w", "y")))


def layers(stop: Stop = LAYER, spin_s: float = SPIN_S) -> Iterator[records.Record]:
    """Yield two records per layer and pass of ResNet-50: the oracle and torch, in float64."""
    for layer in suite.load("resnet50"):
        for pass_ in suite.CONV:
            call = layer.call(pass_, BATCH, "dt=f64")
            given = operands(Case(call, fill="normal"))
            ours, theirs = partial(oracle.evaluate, call, *given), cpu.aten(call, given)
            assert theirs is not None
            result = call.signature.results.index(call.wanted[0])
            agree(call, ours()[result], to_numpy(theirs()[result]))
            memory = peak_ratio(call, ours)
            found = measure({"oracle": ours, "torch": theirs}, Cpu(spin_s), stop)
            about = {"what": "layer", "line": str(call), "layer": layer.name, "suite": "resnet50"}
            about["times"] = layer.times
            ratio = found["torch"].median_ms / found["oracle"].median_ms
            compared = {"against": "torch", "ratio": ratio, "verdict": verdict(*found.values())}
            compared["memory"] = round(memory, 3)
            yield {**about, **compared, "arm": "oracle", **found["oracle"].record()}
            yield {**about, "arm": "torch", **found["torch"].record()}


def host(stop: Stop = HOST) -> Iterator[records.Record]:
    """Yield the time of one tiny convolution by each entry, from the formula to dispatch."""
    import torch

    call = parse(TINY).call
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(call.problem.shape(role)) for role in ("x", "w", "b"))
    tensors = tuple(map(torch.from_numpy, (x, w, b)))
    entries: dict[str, Work] = {
        "formula": lambda: oracle.conv_fprop(x, w, b, call.conv),
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
    """Return a row per pass: ratios torch / oracle without the stem and of it, and the memory.

    Ratios are of medians and, for machines with other load, of the fastest samples.
    """
    found = []
    timed = [row for row in rows if row["what"] == "layer"]
    theirs = {row["line"]: row for row in timed if row["arm"] == "torch"}
    for pass_ in suite.CONV:
        ours = [
            row for row in timed
            if row["arm"] == "oracle" and row["line"].startswith(f"conv.{pass_}:")
        ]  # fmt: skip
        cells = []
        for is_stem in (False, True):
            some = [row for row in ours if (row["layer"] == STEM) == is_stem]
            for time in ("median_ms", "low_ms"):
                ratios = [theirs[row["line"]][time] / row[time] for row in some]
                times = [row["times"] for row in some]
                cells.append(f"{geometric_mean(ratios, times):.2f}" if some else "-")
        memory = max((row["memory"] for row in ours), default=0.0)
        found.append([pass_, *cells, f"{memory:.2f}"])
    return found


def run(*, out: Path = records.RESULTS / "cpu.jsonl", threads: int = 2) -> None:
    """Time the oracle against torch in float64 on ResNet-50, and what a call costs the host."""
    from convref.cli.output import print_table

    from ..report.tables import print_record

    found = []
    records.append(out, machine(threads))
    with cpu.threads(threads):
        for row in chain(host(), layers()):
            records.append(out, row)
            found.append(row)
            print_record(row)
    columns = ["pass", "medians", "fastest", "stem, medians", "stem, fastest", "worst memory"]
    title = "ResNet-50, batch 4, float64: torch / oracle; memory over operands and result"
    print_table(columns, summary(found), title)
