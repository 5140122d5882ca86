"""`python -m convref_bench`: needs rich; torch for `cpu` and `gpu`, matplotlib for `report`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(prog="convref_bench", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    cpu = commands.add_parser("cpu", help="time the oracle against torch in float64")
    cpu.add_argument("--out", type=Path, default=RESULTS / "cpu.jsonl")
    cpu.add_argument("--threads", type=int, default=2)
    gpu = commands.add_parser("gpu", help="go through the steps of `make gpu`, or on with them")
    gpu.add_argument("--out", type=Path, default=RESULTS / "gpu", help="folder")
    gpu.add_argument("--seconds", type=float, default=os.environ.get("GPU_SECONDS", 540))
    step = commands.add_parser("step", help="run one step of `gpu` in this process")
    step.add_argument("name")
    step.add_argument("--out", type=Path, required=True)
    step.add_argument("--seconds", type=float, default=60.0)
    step.add_argument("--key", default="")
    compare = commands.add_parser("compare", help="compare two files of records, line by line")
    compare.add_argument("a", type=Path)
    compare.add_argument("b", type=Path)
    report = commands.add_parser("report", help="write plots and a self-contained page")
    report.add_argument("records", type=Path)
    report.add_argument("folder", type=Path)
    run = commands.add_parser("run", help="time backends of this CPU on a suite, judged first")
    run.add_argument("suite")
    run.add_argument("--backend", default="numpy,torch", help="names; the last is the reference")
    run.add_argument("--pass", dest="passes", default="fprop,dgrad,wgrad")
    run.add_argument("--dtype", default="f32")
    run.add_argument("--batch", type=int, default=1)
    run.add_argument("--out", type=Path, default=RESULTS / "network.jsonl")
    commands.add_parser("suites", help="list the suites")
    return made


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    given = parser().parse_args(argv)
    if given.command == "cpu":
        from . import cpu

        cpu.run(given.out, given.threads)
        return 0
    if given.command == "gpu":
        from . import gpu

        return gpu.main(given.out, given.seconds)
    if given.command == "run":
        from . import network

        backends, passes = given.backend.split(","), given.passes.split(",")
        return network.run(given.suite, backends, passes, given.dtype, given.batch, given.out)
    if given.command == "step":
        from . import steps

        return steps.main(given.name, given.out, given.seconds, given.key)
    if given.command == "compare":
        from . import compare

        return compare.main(given.a, given.b)
    if given.command == "report":
        from . import report

        print(report.write(given.records, given.folder))
        return 0
    return _suites()


def _suites() -> int:
    from . import suite

    for name in suite.names():
        layers = suite.load(name)
        print(f"{name}: {len(layers)} shapes, {sum(layer.times for layer in layers)} layers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
