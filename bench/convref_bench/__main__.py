"""`python -m convref_bench`: needs rich; torch for `cpu` and `gpu`, matplotlib for `report`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .records import RESULTS

PASSES = "fprop,dgrad,wgrad,backward"
END = os._exit  # of a step, at once: Python would wait for compilers that work ahead


def with_default(args: list[str], commands: tuple[str, ...]) -> list[str]:
    """Return the words of a command line, `run` in front where they begin with a suite.

    >>> with_default(["resnet50", "--batch", "2"], ("run", "cpu"))
    ['run', 'resnet50', '--batch', '2']
    """
    named = not args or args[0].startswith("-") or args[0] in commands
    return args if named else ["run", *args]


def _cpu(commands: Any) -> None:
    cpu = commands.add_parser("cpu", help="time the oracle against torch in float64")
    cpu.add_argument("--out", type=Path, default=RESULTS / "cpu.jsonl")
    cpu.add_argument("--threads", type=int, default=2)


def _gpu(commands: Any) -> None:
    gpu = commands.add_parser("gpu", help="go through the steps of `make gpu`, or on with them")
    gpu.add_argument("--out", type=Path, default=RESULTS / "gpu", help="folder")
    gpu.add_argument("--seconds", type=float, default=os.environ.get("GPU_SECONDS", 540))
    gpu.add_argument("--steps", default=os.environ.get("GPU_STEPS", ""), help="names, all of none")
    step = commands.add_parser("step", help="run one step of `gpu` in this process")
    step.add_argument("name")
    step.add_argument("--out", type=Path, required=True)
    step.add_argument("--seconds", type=float, default=60.0)
    step.add_argument("--key", default="")


def _files(commands: Any) -> None:
    compare = commands.add_parser("compare", help="compare two files of records, line by line")
    compare.add_argument("a", type=Path)
    compare.add_argument("b", type=Path)
    report = commands.add_parser("report", help="write plots and a self-contained page")
    report.add_argument("records", type=Path)
    report.add_argument("folder", type=Path)
    keep = commands.add_parser("keep", help="distil a GPU run into the files that are committed")
    keep.add_argument("records", type=Path, nargs="?", default=RESULTS / "gpu" / "gpu.jsonl")
    keep.add_argument("--folder", type=Path, default=RESULTS / "cards")
    page = commands.add_parser("page", help="write what was kept of cards into the documentation")
    page.add_argument("folder", type=Path, nargs="?", default=RESULTS / "cards")
    page.add_argument("--page", type=Path)
    regret = commands.add_parser(
        "regret", help="what a refitted heuristic loses, network by network"
    )
    regret.add_argument("matrix", type=Path)
    fit = commands.add_parser("fit", help="find the figures of the estimate of time in a matrix")
    fit.add_argument("matrix", type=Path)
    commands.add_parser("suites", help="list the suites")


def _networks(commands: Any) -> None:
    run = commands.add_parser("run", help="time backends on a suite; the word may be left out")
    tune = commands.add_parser("tune", help="time every configuration of a backend on a suite")
    for one in (run, tune):
        one.add_argument("suite")
        one.add_argument("--pass", dest="passes", default=PASSES)
        one.add_argument("--batch", type=int, default=1)
        one.add_argument("--out", type=Path)
    run.add_argument("--backend", default="numpy,torch", help="arms by name")
    run.add_argument("--op", default="conv", help="ops or families of ops: conv,pool")
    run.add_argument("--dtype", default="fp32")
    run.add_argument("--device", default="cpu")
    run.add_argument("--threads", type=int, help="of each arm on the CPU")
    tune.add_argument("--backend", default="triton", help="one backend")
    tune.add_argument("--dtype", default="bf16")
    tune.add_argument("--device", default="cuda")
    tune.add_argument("--seconds", type=float, default=3600.0)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(prog="convref_bench", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    for add in (_cpu, _gpu, _files, _networks):
        add(commands)
    return made


def _run_cpu(given: argparse.Namespace) -> int:
    from .timing import cpu

    cpu.run(given.out, given.threads)
    return 0


def _run_gpu(given: argparse.Namespace) -> int:
    from .gpu import runner as gpu

    return gpu.main(given.out, given.seconds, given.steps)


def _run_step(given: argparse.Namespace) -> int:
    from .gpu import steps

    status = steps.main(given.name, given.out, given.seconds, given.key)
    sys.stdout.flush()
    END(status)
    return status


def _run_network(given: argparse.Namespace) -> int:
    from .suites import network

    out = given.out or RESULTS / "network.jsonl"
    words = (given.suite, given.backend, given.passes, given.dtype, given.device)
    return network.run(*words, given.batch, out, given.threads, given.op)


def _run_tune(given: argparse.Namespace) -> int:
    from .gpu import tuner

    words = (given.suite, given.backend, given.passes, given.dtype, given.device)
    return tuner.main(*words, given.batch, given.seconds, given.out)


def _run_compare(given: argparse.Namespace) -> int:
    from .report import compare

    return compare.main(given.a, given.b)


def _run_report(given: argparse.Namespace) -> int:
    from .report import html_page as report

    print(report.write(given.records, given.folder))
    return 0


def _run_keep(given: argparse.Namespace) -> int:
    from .gpu import keep

    return keep.main(given.records, given.folder)


def _run_regret(given: argparse.Namespace) -> int:
    from .gpu import refit

    return refit.main(given.matrix)


def _run_fit(given: argparse.Namespace) -> int:
    from .gpu import fit

    return fit.main(given.matrix)


def _run_page(given: argparse.Namespace) -> int:
    from .report import docs_page as page

    return page.main(given.folder, given.page or page.PAGE)


def _run_suites(given: argparse.Namespace) -> int:
    from convref.ops import FAMILY

    from .suites import suite

    for name in suite.names():
        for op in FAMILY:
            if layers := suite.load(name, (op,)):
                count = sum(layer.times for layer in layers)
                print(f"{name}: {len(layers)} shapes, {count} layers of {op}")
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "cpu": _run_cpu,
    "gpu": _run_gpu,
    "step": _run_step,
    "run": _run_network,
    "tune": _run_tune,
    "compare": _run_compare,
    "report": _run_report,
    "keep": _run_keep,
    "page": _run_page,
    "regret": _run_regret,
    "fit": _run_fit,
    "suites": _run_suites,
}


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    words = with_default(sys.argv[1:] if argv is None else argv, tuple(COMMANDS))
    given = parser().parse_args(words)
    return COMMANDS[given.command](given)


if __name__ == "__main__":
    sys.exit(main())
