"""The command line: `convref bench ...`, or `python -m convref_bench ...` without an installation.

It uses argparse, because `make gpu` runs where typer may be missing. A command is a function whose
signature states its options: keyword-only parameters are options, the others are arguments, and a
trailing underscore is left out. Its module is imported when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from inspect import Parameter, cleandoc, signature
from types import NoneType
from typing import Any, get_args, get_type_hints

# Name -> (MODULE:FUNCTION of this package, what it does).
COMMANDS = {
    "run": ("suites.network:run", "time backends on a suite; the word `run` may be left out"),
    "suites": ("suites.suite:main", "list the suites"),
    "cpu": ("timing.oracle_convs:run", "time the oracle on ResNet-50, and what a call costs"),
    "oracle": ("timing.oracle_speed:main", "time the oracle against torch, op by op"),
    "mojo": ("timing.mojo_speed:main", "time the Mojo kernels on the CPU, layer by layer"),
    "training": ("timing.training:main", "time training steps of YOLO11n"),
    "call-cost": ("timing.call_cost:main", "time what a call from PyTorch costs the host"),
    "gpu": ("gpu.runner:main", "run the steps of `make gpu`, or continue them"),
    "step": ("gpu.steps:run", "run one step of `gpu` in this process"),
    "tune": ("gpu.tuner:main", "time every configuration of a backend on a suite"),
    "fit": ("gpu.fit:main", "fit the rates of the estimate of time to a time matrix"),
    "keep": ("gpu.keep:main", "reduce a GPU run to the files that are committed, one a card"),
    "page": ("report.docs_page:main", "write the kept files into docs/performance.md"),
    "report": ("report.html_page:main", "write plots and a self-contained page of records"),
    "compare": ("report.compare:main", "compare two files of records line by line"),
}


def parser(name: str, function: Callable[..., Any]) -> argparse.ArgumentParser:
    """Return the parser of a command, made from the signature of its function."""
    made = argparse.ArgumentParser(
        prog=f"convref bench {name}",
        description=cleandoc(function.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    hints = get_type_hints(function)
    for parameter in signature(function).parameters.values():
        words = parameter.name.rstrip("_")
        kinds = get_args(hints[parameter.name]) or (hints[parameter.name],)
        more: dict[str, Any] = {"type": next(one for one in kinds if one is not NoneType)}
        required = parameter.default is Parameter.empty
        if not required:
            more |= {"default": parameter.default, "help": f"by default {parameter.default}"}
        if parameter.kind is Parameter.KEYWORD_ONLY:
            more |= {"dest": parameter.name, "metavar": words.upper(), "required": required}
            made.add_argument(f"--{words}", **more)
        else:
            if parameter.kind is Parameter.VAR_POSITIONAL:
                more["nargs"] = "*"
            elif not required:
                more["nargs"] = "?"
            made.add_argument(parameter.name, metavar=words, **more)
    return made


def load(name: str) -> Callable[..., Any]:
    """Return the function of a command."""
    module, _, function = COMMANDS[name][0].partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status; a suite as the first word means `run`."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0].startswith("-"):
        print("usage: convref bench COMMAND ...\n")
        for name, (_, text) in COMMANDS.items():
            print(f"  {name:<10} {text}")
        return 0 if words[:1] in (["-h"], ["--help"]) else 2
    name, *rest = words if words[0] in COMMANDS else ["run", *words]
    function = load(name)
    given = vars(parser(name, function).parse_args(rest))
    parameters = signature(function).parameters.values()
    arguments: list[Any] = []
    for one in parameters:
        if one.kind is Parameter.VAR_POSITIONAL:
            arguments += given.pop(one.name)
        elif one.kind is not Parameter.KEYWORD_ONLY:
            arguments.append(given.pop(one.name))
    return function(*arguments, **given) or 0
