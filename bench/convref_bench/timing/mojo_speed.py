"""The Mojo kernels against torch on the CPU, layer by layer: MKL in float64, else oneDNN.

Batch 1, channels last. Results are judged, then both take turns; a ratio is torch's fastest time
over ours. With one thread it is the CPU time of the thread, which other processes do not disturb;
with more it is wall time, which needs a quiet machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from convref import dispatch
from convref.case import parse
from convref.errors import ConvrefError, message

from .. import options, records
from ..records import Record
from ..suites import network, suite
from .cpu import SPIN_S, Cpu, CpuPlace, machine, threads
from .measure import Stop, geometric_mean

ARMS = ("mojo", "torch")
RUNS = (
    *(("resnet50", "fp32"), ("yolo11n", "fp32"), ("resnet50", "fp64")),
    *(("resnet50", "bf16"), ("yolo11n", "bf16")),
)
SIZE = 512
STOP = Stop(samples=8, noise=0.02, timeout_s=1.0, turn=2)


def ratios(rows: Iterable[Record]) -> list[tuple[str, float]]:
    """Return each line and torch's fastest time over ours; lines that one cannot do are left out.

    >>> line = "conv.fprop:n1c1k1_i3_f1"
    >>> ratios({"line": line, "arm": a, "low_ms": t} for a, t in (("mojo", 2.0), ("torch", 3.0)))
    [('conv.fprop:n1c1k1_i3_f1', 1.5)]
    """
    times = {(row["line"], row["arm"]): row["low_ms"] for row in rows if "low_ms" in row}
    return [
        (line, times[line, "torch"] / ms)
        for (line, arm), ms in times.items()
        if arm == "mojo" and (line, "torch") in times
    ]


def shares(rows: Iterable[Record], arm: str, rate: float) -> Iterator[tuple[str, float]]:
    """Yield each line and the flop/s of an arm, over `rate`."""
    for row in rows:
        if row["arm"] == arm and "low_ms" in row:
            yield row["line"], parse(row["line"]).call.flop() / (row["low_ms"] / 1e3) / rate


def means(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the geometric mean by pass of the values of lines.

    >>> means([("conv.dgrad:n1c1k1_i3_f1", 2.0), ("conv.dgrad:n1c1k1_i4_f1", 8.0)])
    {'dgrad': 4.0}
    """
    found: dict[str, list[float]] = {}
    for line, value in values:
        found.setdefault(line.partition(":")[0].partition(".")[2], []).append(value)
    return {pass_: round(geometric_mean(some), 6) for pass_, some in found.items()}


def product_rate(dtype: str, device: Cpu) -> float:
    """Return the flop/s of torch's product of square matrices, a bound for dense layers."""
    import torch

    kinds = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
    a = torch.ones(SIZE, SIZE, dtype=kinds[dtype])
    return 2 * SIZE**3 / min(device.sample(lambda: a @ a, 1, False) for _ in range(5))


def run(name: str, dtype: str, count: int, out: Path | None = None, stop: Stop = STOP) -> int:
    """Print a row per layer and the geometric means; return the number of refused results."""
    found: list[Record] = []
    keys, rate = [options.keys(dtype, "cpu-nhwc")], 0.0
    where = CpuPlace(stop, 0.0 if count == 1 else SPIN_S)
    if count == 1:
        where.device = Cpu(0.0, time.thread_time)
    _print(f"{name} {dtype}, threads {count}: torch / mojo", dict(zip(suite.CONV, suite.CONV)))
    if out:
        records.append(out, machine(count))
    with threads(count), dispatch.load("mojo").threads(count):  # type: ignore[attr-defined]
        for layer in suite.load(name):
            rows = list(network.rows([layer], ARMS, where, suite.CONV, keys))
            found += rows
            rate = max(rate, product_rate(dtype, where.device))
            _print(f"  {layer.template}", means(ratios(rows)))
            for row in rows:
                if out:
                    records.append(out, {**row, "suite": name})
                if row["what"] != "point":
                    print(f"    {row['arm']} {row['what']}: {row['why']}")
    _print("  geometric mean", means(ratios(found)))
    for arm in ARMS:
        text = f"  {arm}, of torch's {SIZE}x{SIZE} product at {rate / 1e9:.0f} GF/s"
        _print(text, means(shares(found, arm, rate)))
    return sum(row["what"] != "point" for row in found)


def _print(text: str, cells: Mapping[str, float | str]) -> None:
    words = (cells.get(pass_, "-") for pass_ in suite.CONV)
    row = "".join(f"{word:>7}" if isinstance(word, str) else f"{word:7.2f}" for word in words)
    print(f"{text:48}{row}", flush=True)


def main(
    *,
    threads: str = "1,2",
    suite_: str = "resnet50,yolo11n",
    dtype: str = "fp32,fp64",
    out: Path | None = None,
) -> int:
    """Time the suites in each type with each number of threads; lists have commas.

    The types are fp32, fp64 and bf16. Exit status 1 if a result was refused.
    """
    names, dtypes = options.words(suite_), options.words(dtype)
    chosen = [one for one in RUNS if one[0] in names and one[1] in dtypes]
    if not chosen:
        raise ConvrefError(message("bench", f"no suite {suite_} in {dtype}"))
    counts = [int(word) for word in options.words(threads)]
    return int(sum(run(*one, count, out) for count in counts for one in chosen) > 0)
