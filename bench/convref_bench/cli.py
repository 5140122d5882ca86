"""The command line: `convref bench ...`, or `python -m convref_bench ...` without an installation.

It uses argparse, because `make gpu` runs where typer may be missing. A command is one row of
`COMMANDS`; its function is imported when it runs and takes the options by name.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

from .records import RESULTS

Option = tuple[tuple[str, ...], dict[str, Any]]


class Command(NamedTuple):
    """A command: what it runs, as MODULE:FUNCTION of this package, and its options."""

    target: str
    help: str
    options: tuple[Option, ...] = ()


def _option(*flags: str, **settings: Any) -> Option:
    return flags, settings


OUT = _option("--out", type=Path, help="JSON lines, appended to")
MATRIX = _option("path", metavar="matrix", type=Path, help="records of `tune` or of a GPU run")
CARDS = RESULTS / "cards"
SUITE = (
    _option("name", metavar="suite"),
    _option(
        "--pass",
        dest="passes",
        default="fprop,dgrad,wgrad,backward",
        help="conv: fprop, dgrad, wgrad; other ops: fprop, backward",
    ),
    _option("--batch", type=int, default=1),
    OUT,
)
DTYPE = "bf16, fp16, tf32, tf32x3, fp32 or fp64, with commas"
DEVICE = "cpu, cpu-nhwc or cuda"
THREADS = "threads of each arm on the CPU"

COMMANDS = {
    "run": Command(
        "suites.network:run",
        "time backends on a suite, judged first; the word `run` may be left out",
        (
            *SUITE,
            _option("--backend", default="numpy,torch", help="arms; torch is the reference"),
            _option("--op", dest="ops", default="conv", help="ops or families: conv,pool"),
            _option("--dtype", default="fp32", help=DTYPE),
            _option("--device", default="cpu", help=DEVICE),
            _option("--threads", type=int, help=THREADS),
        ),
    ),
    "suites": Command("suites.suite:main", "list the suites"),
    "cpu": Command(
        "timing.oracle_convs:run",
        "time the oracle against torch in float64 on ResNet-50, and what a call costs",
        (
            _option("--out", type=Path, default=RESULTS / "cpu.jsonl"),
            _option("--threads", dest="count", type=int, default=2, help=THREADS),
        ),
    ),
    "oracle": Command(
        "timing.oracle_speed:main",
        "time the oracle against torch in float64, op by op",
        (_option("ops", nargs="*", help="all ops by default"),),
    ),
    "mojo": Command(
        "timing.mojo_speed:main",
        "time the Mojo kernels against torch on the CPU, layer by layer",
        (
            _option("--threads", default="1,2", help="one run for each count"),
            _option("--suite", dest="suites", default="resnet50,yolo11n"),
            _option("--dtype", default="fp32,fp64", help="fp32, fp64 or bf16, with commas"),
            OUT,
        ),
    ),
    "training": Command(
        "timing.training:main",
        "time training steps of YOLO11n in images a second",
        (
            _option("--device", default="cpu"),
            _option("--dtype", default="float32"),
            _option("--size", type=int, default=160, help="height and width of the images"),
            _option("--batch", type=int, default=4),
            _option("--backend", default="auto", help="arms beside torch.nn, with commas"),
            OUT,
        ),
    ),
    "call-cost": Command("timing.call_cost:main", "time what a call from PyTorch costs the host"),
    "host-cost": Command(
        "timing.host_cost:main",
        "time what a launch costs the host, on a stand-in for libcuda",
        (_option("line", nargs="?", help="a case line"),),
    ),
    "gpu": Command(
        "gpu.runner:main",
        "run the steps of `make gpu`, or continue them",
        (
            _option("--out", dest="folder", type=Path, default=RESULTS / "gpu"),
            _option("--seconds", type=float, help="by default $GPU_SECONDS, else 540"),
            _option("--steps", help="names, by default $GPU_STEPS, else all"),
        ),
    ),
    "step": Command(
        "gpu.steps:run",
        "run one step of `gpu` in this process",
        (
            _option("name"),
            _option("--out", type=Path, required=True),
            _option("--seconds", type=float, default=60.0),
            _option("--key", default=""),
        ),
    ),
    "tune": Command(
        "gpu.tuner:main",
        "time every configuration of a backend on a suite",
        (
            *SUITE,
            _option("--backend", default="triton", help="one backend"),
            _option("--dtype", default="bf16", help=DTYPE),
            _option("--device", default="cuda", help=DEVICE),
            _option("--seconds", type=float, default=3600.0, help="limit of wall time"),
        ),
    ),
    "fit": Command(
        "gpu.fit:main", "fit the rates of the estimate of time to a time matrix", (MATRIX,)
    ),
    "keep": Command(
        "gpu.keep:main",
        "reduce a GPU run to the files that are committed, one a card",
        (
            _option(
                "source",
                metavar="records",
                type=Path,
                nargs="?",
                default=RESULTS / "gpu" / "gpu.jsonl",
            ),
            _option("--folder", type=Path, default=CARDS),
        ),
    ),
    "page": Command(
        "report.docs_page:main",
        "write the kept files into docs/performance.md, with plots",
        (
            _option("folder", type=Path, nargs="?", default=CARDS),
            _option("--page", type=Path, help="another page"),
        ),
    ),
    "report": Command(
        "report.html_page:main",
        "write plots and a self-contained page of a file of records",
        (_option("source", type=Path, metavar="records"), _option("folder", type=Path)),
    ),
    "compare": Command(
        "report.compare:main",
        "compare two files of records line by line; exit status 1 if b is slower somewhere",
        (_option("a", type=Path), _option("b", type=Path)),
    ),
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    made = argparse.ArgumentParser(prog="convref bench", description="Time kernels and networks.")
    commands = made.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.help, description=command.help)
        for flags, settings in command.options:
            sub.add_argument(*flags, **settings)
    return made


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status; a suite as the first word means `run`."""
    words = sys.argv[1:] if argv is None else argv
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        words = ["run", *words]
    given = vars(parser().parse_args(words))
    module, _, function = COMMANDS[given.pop("command")].target.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)(**given) or 0
