"""The Mojo kernels against torch on the CPU, layer by layer: oneDNN in float32, MKL in float64.

    python -m convref_bench.mojo_speed [--threads 1,2] [--suite resnet50] [--dtype fp32,fp64]

Batch 1, channels last. Results are judged, then both take turns; a ratio is torch's fastest time
over ours. With one thread that is time which the thread had of its processor, since neighbours take
none of it; with more it is wall time, and only a quiet machine gives it a meaning.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from math import exp, log
from pathlib import Path

from convref import dispatch

from . import network, options, records, suite
from .cpu import SPIN_S, Cpu, machine, threads
from .records import Record
from .timing import Stop, Work

ARMS = ("mojo", "torch")
RUNS = (("resnet50", "fp32"), ("yolo11n", "fp32"), ("resnet50", "fp64"))
STOP = Stop(samples=8, noise=0.02, timeout_s=1.0, turn=2)


class OneThread(Cpu):
    """The processor, by the time that this thread has of it."""

    def sample(self, work: Work, calls: int, cold: bool) -> float:
        """Return the seconds one of `calls` calls took."""
        assert not cold
        start = time.thread_time()
        for _ in range(calls):
            work()
        return (time.thread_time() - start) / calls


def place(count: int, stop: Stop = STOP) -> network.CpuPlace:
    """Return where `count` threads are timed."""
    found = network.CpuPlace(stop, 0.0 if count == 1 else SPIN_S)
    if count == 1:
        found.device = OneThread(0.0)
    return found


def layers(name: str, dtype: str, where: network.CpuPlace) -> Iterator[tuple[str, list[Record]]]:
    """Yield each layer of a suite with the records of its passes and arms."""
    keys = [options.keys(dtype, "cpu-nhwc")]
    for layer in suite.load(name):
        yield layer.template, list(network.rows([layer], ARMS, where, suite.CONV, keys))


def ratios(rows: Iterable[Record]) -> dict[str, float]:
    """Return torch's fastest time over ours, by pass; passes that were not timed are left out.

    >>> line = "conv.fprop:n1c1k1_i3_f1"
    >>> ratios({"line": line, "arm": a, "low_ms": t} for a, t in (("mojo", 2.0), ("torch", 3.0)))
    {'fprop': 1.5}
    """
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        pass_ = row["line"].partition(":")[0].partition(".")[2]
        if "low_ms" in row:
            times.setdefault(pass_, {})[row["arm"]] = row["low_ms"]
    return {p: of["torch"] / of["mojo"] for p, of in times.items() if len(of) == len(ARMS)}


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean.

    >>> round(mean([0.5, 2.0]), 6)
    1.0
    """
    return exp(sum(map(log, values)) / len(values))


def run(name: str, dtype: str, count: int, out: Path | None = None, stop: Stop = STOP) -> int:
    """Print a row a layer and the geometric means, each layer once; return how many are refused."""
    all_ratios: list[dict[str, float]] = []
    refused = 0
    print(f"{name} {dtype}, threads {count}: torch / mojo".ljust(44), *_right(suite.CONV))
    if out:
        records.append(out, machine(count))
    with threads(count), dispatch.load("mojo").threads(count):  # type: ignore[attr-defined]
        for template, rows in layers(name, dtype, place(count, stop)):
            if out:
                for row in rows:
                    records.append(out, {**row, "suite": name})
            found = ratios(rows)
            print(f"  {template:42}", *_cells(found), flush=True)
            all_ratios.append(found)
            wrong = [row for row in rows if row["what"] != "point"]
            refused += len(wrong)
            for row in wrong:
                print(f"    {row['arm']} {row['what']}: {row['why']}")
    each = {p: [r[p] for r in all_ratios if p in r] for p in suite.CONV}
    columns = {p: mean(values) for p, values in each.items() if values}
    print(f"  geometric mean of {len(all_ratios)} layers".ljust(44), *_cells(columns), flush=True)
    return refused


def _cells(values: dict[str, float]) -> list[str]:
    return _right(f"{values[p]:.2f}" if p in values else "-" for p in suite.CONV)


def _right(words: Iterable[str]) -> list[str]:
    return [f"{word:>6}" for word in words]


def main(words: Sequence[str]) -> int:
    """Time the suites with each number of threads; status 1 if a result was refused."""
    parser = argparse.ArgumentParser(prog="convref_bench.mojo_speed")
    parser.add_argument("--threads", default="1,2", help="how many, one run each")
    parser.add_argument("--suite", default="resnet50,yolo11n")
    parser.add_argument("--dtype", default="fp32,fp64")
    parser.add_argument("--out", type=Path, help="a file to which records are appended")
    args = parser.parse_args(words)
    chosen = [
        one for one in RUNS if one[0] in args.suite.split(",") and one[1] in args.dtype.split(",")
    ]
    counts = [int(word) for word in args.threads.split(",")]
    return int(sum(run(*one, count, args.out) for count in counts for one in chosen) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
