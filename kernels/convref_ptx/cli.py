"""`convref sanitize MODULE:FUNCTION`: run a program and list what its kernels do wrong."""

from __future__ import annotations

import argparse
import importlib
import inspect
import linecache
import re
import runpy
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from convref.errors import ConvrefError, ExitStatus, invalid, missing_extra

NEEDS = "MODULE:FUNCTION, FILE.py or FILE.json"


def main(argv: list[str] | None = None) -> int:
    """Run a function, or a script, with its Triton kernels as PTX; print the findings.

    Return 1 if there is a finding or the program raises, else the program's own exit status.
    """
    parser = argparse.ArgumentParser(
        prog="convref sanitize",
        description="Run a program's Triton kernels on the CPU, as the PTX that a GPU would get.",
    )
    what = "MODULE:FUNCTION without arguments, a script FILE.py, or a launch of PTX FILE.json"
    parser.add_argument("program", help=what)
    parser.add_argument("--arch", default="sm_90", help="sm_80, sm_90 (default) or sm_100")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the order of warps and programs"
    )
    parser.add_argument("--late", action="store_true", help="do asynchronous work late")
    text = "parameters whose tensors kernels may write to, as a,b; by default all"
    parser.add_argument(
        "--writable", metavar="NAMES", type=lambda names: names.split(","), help=text
    )
    text = "round sums of products of matrices once, or as the cards of the architecture do"
    parser.add_argument("--tensor-cores", choices=("exact", "model"), default="exact", help=text)
    text = "run the programs of a launch in N processes, if they do not communicate"
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help=text)
    parser.add_argument("--html", metavar="FILE", help="also write the findings as a page")
    given = parser.parse_args(argv)
    if given.program.endswith(".json"):
        return _run_launch(given)
    try:
        from .triton.device import LaunchFinding, device
    except ImportError as error:
        raise invalid("sanitize", f"needs torch and triton installed ({error})") from error

    findings: list[LaunchFinding] = []
    options = {**_options(given), "writable": given.writable}
    ended: BaseException | None = None
    with device(given.arch, findings=findings, **options) as made:
        try:
            _run(given.program)
        except ConvrefError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            ended = error
    found = _report(by_cause(findings), len(made.launched), given)
    status = 0 if ended is None else _status(ended)
    return ExitStatus.FAILED if found and status != ExitStatus.INTERRUPTED else status


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"is {text!r}, needs a positive integer")
    return int(text)


def _status(ended: BaseException) -> int:
    """Return the exit status of a program that raised, after printing what Python would."""
    if isinstance(ended, KeyboardInterrupt):
        return ExitStatus.INTERRUPTED
    if isinstance(ended, SystemExit) and (ended.code is None or isinstance(ended.code, int)):
        return ended.code or 0
    if isinstance(ended, SystemExit):
        print(ended.code, file=sys.stderr)
    else:
        traceback.print_exception(ended.with_traceback(_of_program(ended.__traceback__)))
    return ExitStatus.FAILED


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the program's first frame on, without those that called it."""
    callers = (__file__, importlib.__file__)
    while trace and (name := trace.tb_frame.f_code.co_filename):
        if name not in callers and not name.startswith("<frozen "):
            return trace
        trace = trace.tb_next
    return None


def _options(given: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(given, name) for name in ("seed", "late", "tensor_cores", "jobs")}


def _run_launch(given: argparse.Namespace) -> int:
    """Run a launch of PTX and report its finding, if there is one."""
    from .decode.program import Fault
    from .launches import run_file

    if given.writable is not None:
        what = 'is for programs; an argument of a launch has "writable"'
        raise invalid("sanitize", f"--writable {what}")
    causes = []
    try:
        run_file(given.program, arch=given.arch, **_options(given))
    except Fault as fault:
        causes.append(Cause(Path(given.program).stem, given.program, str(fault)))
    return _report(causes, 1, given)


@dataclass
class Cause:
    """Findings of one kernel, instruction and kind: the first launch, and how many there are."""

    kernel: str
    call: str
    text: str
    launches: int = 1

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the places that the text names, with their lines of source."""
        places = re.findall(r"([^\s(),]+):(\d+)", self.text)
        found = [(f"{path}:{n}", linecache.getline(path, int(n)).strip()) for path, n in places]
        return [(place, line) for place, line in dict.fromkeys(found) if line]


def _report(causes: list[Cause], launches: int, given: argparse.Namespace) -> int:
    """Print the findings, write the page that is asked for, and return 1 if there is a finding."""
    for n, cause in enumerate(causes, 1):
        print(f"{n}. {cause.call}: {cause.text}")
        if cause.launches > 1:
            print(f"   {cause.launches} launches of {cause.kernel}")
    many = sum(cause.launches for cause in causes)
    print(f"{launches} launch{'es' if launches != 1 else ''}, {many} with a finding")
    if given.html:
        text = _page(title=given.program, arch=given.arch, launches=launches, causes=causes)
        Path(given.html).write_text(text, "utf-8")
    return bool(causes)


def _page(**facts: Any) -> str:
    """Return a page that loads nothing, in the style of those of `convref grade`."""
    try:
        import jinja2
    except ImportError as error:
        raise missing_extra("report", error) from None
    folders = [Path(__file__).parent, Path(inspect.getfile(invalid)).parent / "grade"]
    loader = jinja2.FileSystemLoader(folders)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    return environment.get_template("findings.html").render(**facts)


def _run(program: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    sys.argv = [program]
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise invalid("sanitize", f"there is no file {program}")
        sys.path.insert(0, str(Path(program).resolve().parent))
        return runpy.run_path(program, run_name="__main__")
    module, _, name = program.partition(":")
    if not module or not name:
        raise invalid("sanitize", f"program is {program!r}, needs {NEEDS}")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # of an import in the module
        raise invalid("sanitize", f"there is no module {module}") from None
    if not callable(getattr(found, name, None)):
        raise invalid("sanitize", f"module {module} has no function {name}")
    return getattr(found, name)()


def by_cause(findings: Iterable[Any]) -> list[Cause]:
    """Return a cause for the findings of each kernel, instruction and kind of fault.

    The kind is the reason up to its first number: other launches have other sizes.
    """
    found: dict[tuple[str, str, str], Cause] = {}
    for finding in findings:
        instruction, _, reason = finding.text.partition(": ")  # an opcode may have "::"
        kind = re.split(r"[:;,(\d]", reason)[0]
        call = str(finding).removesuffix(f": {finding.text}")
        cause = Cause(finding.kernel, call, finding.text, 0)
        found.setdefault((finding.kernel, instruction, kind), cause).launches += 1
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
