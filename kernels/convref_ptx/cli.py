"""`convref sanitize MODULE:FUNCTION`: run a program and list what its kernels do wrong."""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

from convref.errors import invalid


def main(argv: list[str] | None = None) -> int:
    """Run a function, or a script, with its Triton kernels as PTX; print the findings.

    Return 1 if there is a finding, else 0.
    """
    parser = argparse.ArgumentParser(
        prog="convref sanitize",
        description="Run a program's Triton kernels on the CPU, as the PTX that a GPU would get.",
    )
    what = "MODULE:FUNCTION, called without arguments, FILE.py, or a launch of PTX, FILE.json"
    parser.add_argument("program", help=what)
    parser.add_argument("--arch", default="sm_90", help="sm_80, sm_90 (default) or sm_100")
    parser.add_argument("--seed", type=int, default=0, help="of the order of warps and programs")
    parser.add_argument("--late", action="store_true", help="do asynchronous work late")
    given = parser.parse_args(argv)
    if given.program.endswith(".json"):
        return _run_launch(given)
    try:
        from .device import Finding, device
    except ImportError as error:
        raise invalid("sanitize", f"needs torch and triton installed ({error})") from error

    findings: list[Finding] = []
    with device(given.arch, seed=given.seed, late=given.late, findings=findings) as made:
        _run(given.program)
    for n, several in enumerate(_by_cause(findings), 1):
        print(f"{n}. {several[0]}")
        if len(several) > 1:
            print(f"   {len(several)} launches of {several[0].kernel}")
    print(f"{len(made.launched)} launches, {len(findings)} with a finding")
    return bool(findings)


def _run_launch(given: argparse.Namespace) -> int:
    """Run a launch of PTX and print its finding, if there is one."""
    from .launches import run_file
    from .program import Fault

    try:
        run_file(given.program, seed=given.seed, late=given.late)
    except Fault as fault:
        print(f"1. {fault}")
        return 1
    print("1 launch, 0 with a finding")
    return 0


def _run(program: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise invalid("sanitize", f"there is no file {program}")
        return runpy.run_path(program, run_name="__main__")
    module, _, name = program.partition(":")
    if not name:
        raise invalid("sanitize", f"program is {program!r}, needs MODULE:FUNCTION or FILE.py")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # of an import in the module
        raise invalid("sanitize", f"there is no module {module}") from None
    if not callable(getattr(found, name, None)):
        raise invalid("sanitize", f"module {module} has no function {name}")
    return getattr(found, name)()


def _by_cause(findings: list[Any]) -> list[list[Any]]:
    """Return the findings of each kernel and instruction together."""
    found: dict[tuple[str, str], list[Any]] = {}
    for finding in findings:
        instruction = finding.text.partition(":")[0]
        found.setdefault((finding.kernel, instruction), []).append(finding)
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
