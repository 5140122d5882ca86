"""The Mojo kernels against torch on the CPU, layer by layer: MKL in float64, else oneDNN.

Batch 1, channels last. A ratio is torch's fastest time over ours. With one thread it is the CPU
time of the thread, which other processes do not disturb; with more it is wall time, which needs a
quiet machine.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path

from convref import dispatch
from convref.case import Call, parse

from .. import options, records
from ..records import Record
from ..suites import network, suite
from .cpu import SPIN_S, Cpu, CpuPlace, machine, threads
from .measure import Stop, geometric_mean

ARMS = ("mojo", "torch")
SIZE = 512
STOP = Stop(samples=8, noise=0.02, timeout_s=1.0, turn=2)


def means(
    rows: Iterable[Record], value: Callable[[Call, Mapping[str, float]], float]
) -> dict[str, float]:
    """Return the geometric mean by pass of `value` of each line that both arms compute.

    `value` takes the call and the fastest time of each arm in ms.

    >>> line = "conv.fprop:n1c1k1_i3_f1"
    >>> rows = [{"line": line, "arm": a, "low_ms": t} for a, t in (("mojo", 2.0), ("torch", 3.0))]
    >>> means(rows, lambda call, low: low["torch"] / low["mojo"])
    {'fprop': 1.5}
    """
    low: dict[str, dict[str, float]] = {}
    for row in rows:
        if "low_ms" in row:
            low.setdefault(row["line"], {})[row["arm"]] = row["low_ms"]
    found: dict[str, list[float]] = {}
    for line, times in low.items():
        if len(times) == len(ARMS):
            pass_ = line.partition(":")[0].partition(".")[2]
            found.setdefault(pass_, []).append(value(parse(line).call, times))
    return {pass_: geometric_mean(some) for pass_, some in found.items()}


def ratio(call: Call, low: Mapping[str, float]) -> float:
    return low["torch"] / low["mojo"]


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
            _print(f"  {layer.template}", means(rows, ratio))
            for row in rows:
                if out:
                    records.append(out, {**row, "suite": name})
                if row["what"] != "point":
                    print(f"    {row['arm']} {row['what']}: {row['why']}")
    _print("  geometric mean", means(found, ratio))
    for arm in ARMS:
        text = f"  {arm}, of torch's {SIZE}x{SIZE} product at {rate / 1e9:.0f} GF/s"
        _print(text, means(found, lambda call, low, arm=arm: call.flop() / low[arm] * 1e3 / rate))
    return sum(row["what"] != "point" for row in found)


def _print(text: str, cells: Mapping[str, float | str]) -> None:
    words = (cells.get(pass_, "-") for pass_ in suite.CONV)
    row = "".join(f"{word:>7}" if isinstance(word, str) else f"{word:7.2f}" for word in words)
    print(f"{text:48}{row}", flush=True)


def main(
    *,
    threads: str = "1,2",
    suite_: str = "resnet50,yolo11n",
    dtype: str = "fp32",
    out: Path | None = None,
) -> int:
    """Time the suites in each type with each number of threads; lists have commas.

    The types are fp32, fp64 and bf16. Exit status 1 if a result was refused.
    """
    runs = product(options.words(threads), options.words(suite_), options.words(dtype))
    return int(sum(run(name, dtype, int(count), out) for count, name, dtype in runs) > 0)
