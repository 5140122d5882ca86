"""The files of a campaign: logs, pages, and lines to replay."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ..case import Case, parse
from ..case.files import read_text
from ..errors import invalid, shorten
from ..ops import ops_of

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Merge logs of check, write its page, or a bug report.",
)
Logs = Annotated[list[Path], typer.Argument(help="Logs written by check --log.")]


@app.command("merge")
def report_merge(
    logs: Logs,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The merged log.")] = None,
) -> None:
    """Merge the logs of a check's shards; print each failure once."""
    from ..conformance import report
    from ..conformance.report import terminal
    from .output import console

    total = report.merge(logs)
    print(f"{total.backend}: {report.count(total.examples, 'example')}")
    console().print(terminal.table(total.counts))
    for failure in total.failures:
        print(f"{failure.verdict}  {failure.line}")
    if out is not None:
        write(lambda: report.save(total, out), out)
        print(f"log: {out}")


@app.command("html")
def report_html(
    logs: Logs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
) -> None:
    """Write an HTML page from logs; nothing in them is executed."""
    from ..conformance import report
    from ..conformance.report import page

    total = report.merge(logs)
    write(lambda: page.write(total, out), out)
    print(f"page: {out}")


@app.command("draws")
def report_draws(
    ops: Annotated[list[str], typer.Argument(help="Ops or families, such as conv or pool.")],
    examples: Annotated[int, typer.Option(min=1, help="Cases per op.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the generator.")] = 0,
) -> None:
    """Print which sizes, types and layouts the drawn cases cover."""
    from ..conformance.report.coverage import HEADER, coverage_of

    print(HEADER)
    for op in ops_of(tuple(ops)):
        print(coverage_of(op, examples, seed))


@app.command("issue")
def report_issue(
    finding: Annotated[str, typer.Argument(help="A log of check, or a case line.")],
    number: Annotated[int, typer.Option(min=1, help="Which failure of the log, from 1.")] = 1,
    backend: Annotated[str, typer.Option(help="The backend that runs a case line.")] = "torch",
) -> None:
    """Print a bug report for the library, with a program."""
    from ..conformance import report
    from ..conformance.causes import Failure, kind_of, run_line
    from ..conformance.report.issue import issue
    from ..conformance.workers.device import MEMORY
    from ..conformance.workers.engine import Engine, Limits

    path = Path(finding)
    if path.is_file():
        total = report.merge([path])
        if number > len(total.failures):
            most = f"needs at most {len(total.failures)}, the failures of {path}"
            raise invalid("report", f"--number is {number}, {most}")
        print(issue(total.failures[number - 1], total.backend, total.fingerprint))
        return
    if ":" not in finding:
        raise invalid("report", f"{shorten(finding)} is no file, needs a log or a case line")
    case = require_memory(parse(finding))
    limits = Limits(memory=MEMORY[case.call.specs[0].device])
    with Engine(backend, limits=limits) as engine:
        found = run_line(engine, str(case))
        if found.verdict in ("pass", "unsupported"):
            what = f"the verdict on {backend} is {found.verdict}, needs a failure"
            raise invalid("report", what, case)
        failure = Failure(str(case), found.verdict, found.reason, seen=1, kind=kind_of(found))
        print(issue(failure, backend, engine.fingerprint))


MAX_REPLAY = 16 << 20  # bytes


def lines(path: Path, device: str = "cpu") -> tuple[str, ...]:
    """Return the case lines of a file, without blank lines and # comments, or those of a log.

    On a device other than the CPU if one is given.
    """
    if path.is_file() and _first_byte(path) == b"{":
        from ..conformance import report

        kept = report.merge([path]).lines()
    else:
        stripped = (line.strip() for line in read_text("check", path, MAX_REPLAY).splitlines())
        kept = tuple(line for line in stripped if line and not line.startswith("#"))
    for line in kept:
        require_memory(parse(line))
    if not kept:
        raise invalid("check", f"{path} has no case, needs at least one line")
    return kept if device == "cpu" else tuple(str(parse(line).on(device)) for line in kept)


def _first_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1)


MAX_MEMORY = 16 << 30  # bytes that the oracle may need for one line


def require_memory(case: Case) -> Case:
    """Return the case, or raise where the reference would need more than `MAX_MEMORY` for it."""
    need = case.call.memory()
    if need > MAX_MEMORY:
        what = f"the reference takes {need >> 30} GiB, needs at most {MAX_MEMORY >> 30}"
        raise invalid("line", what, case)
    return case


def write(save: Callable[[], None], path: Path) -> None:
    """Call `save`, which writes a file; an error is one sentence."""
    try:
        save()
    except OSError as error:
        raise invalid("report", f"{path}: {error.strerror}") from None
