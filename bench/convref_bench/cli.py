"""The command line: `convref bench ...`, or `python -m convref_bench ...` without an installation.

It uses argparse, because `make gpu` runs where typer may be missing. A command is a function whose
signature states its options: keyword-only parameters are options, the others are arguments, and a
trailing underscore is left out. Its module is imported when it runs.
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from inspect import Parameter, cleandoc, signature
from types import NoneType
from typing import Any, NoReturn, get_args, get_type_hints

from convref.errors import invalid

# Name -> (MODULE:FUNCTION of this package, help text).
COMMANDS = {
    "run": ("suites.network:run", "time backends on a suite; the word `run` may be left out"),
    "suites": ("suites.suite:main", "list the suites"),
    "gpu": ("gpu.runner:main", "run the steps of `make gpu`, or continue them"),
    "cpu": ("timing.oracle_convs:run", "time the oracle on ResNet-50, and what a call costs"),
    "oracle": ("timing.oracle_speed:main", "time the oracle against torch, op by op"),
    "training": ("timing.training:main", "time training steps of YOLO11n"),
    "converted": ("timing.converted:main", "time networks of torch.nn and converted, on the CPU"),
    "call-cost": ("timing.call_cost:main", "time what a call from PyTorch costs the host"),
    "plugins": ("timing.plugins:main", "time the plug-ins for PyTensor, JAX and MAX"),
    "marks": ("timing.marks:main", "compare this CPU with the speed targets; the default command"),
    "report": ("report.docs_page:report", "write the tables and plots of a file of records"),
    "compare": ("report.compare:main", "compare two files of records line by line"),
}
MAINTAINERS = {
    "tune": ("gpu.tuner:main", "time every configuration of a backend on a suite"),
    "fit": ("gpu.fit:main", "fit the rates of the time estimate to measured times"),
    "public": ("gpu.public:main", "compare the time estimate with published times"),
    "estimated": ("gpu.estimated:main", "compare the time estimate with the roof"),
    "keep": ("gpu.keep:main", "reduce a GPU run to the files that are committed, one per card"),
    "page": ("report.docs_page:main", "write the committed files into two pages of docs/"),
    "step": ("gpu.steps:run", "run one step of `gpu` in this process"),
}


class Parser(argparse.ArgumentParser):
    """Its errors are one sentence, like all of the command line."""

    def error(self, text: str) -> NoReturn:
        raise invalid(self.prog.removeprefix("convref "), text)


def parser(name: str, function: Callable[..., Any]) -> argparse.ArgumentParser:
    made = Parser(
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
            shown = parameter.default not in (None, "")
            more |= {"default": parameter.default}
            more |= {"help": f"by default {parameter.default}"} if shown else {}
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
    module, _, function = (COMMANDS | MAINTAINERS)[name][0].partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status, `marks` if there is no word.

    A suite as the first word means `run`.
    """
    words = (sys.argv[1:] if argv is None else argv) or ["marks"]
    if words[0].startswith("-"):
        print("usage: convref bench [COMMAND ...]\n")
        for title, table in (("commands", COMMANDS), ("for maintainers", MAINTAINERS)):
            print(f"{title}:")
            print(*(f"  {name:<10} {text}" for name, (_, text) in table.items()), "", sep="\n")
        print("`convref bench COMMAND --help` shows the options of a command.")
        return 0 if words[:1] in (["-h"], ["--help"]) else 2
    name, *rest = words if words[0] in COMMANDS | MAINTAINERS else ["run", *words]
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
