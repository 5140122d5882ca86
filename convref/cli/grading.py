"""The command that grades solutions of benchmarks."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConvrefError, ExitStatus, UnsupportedError, invalid
from .check import above_zero
from .files import write

Option = typer.Option
Format = Annotated[str, typer.Argument(help="Format of the benchmark (docs/grading.md).")]
Problem = Annotated[Path | None, typer.Argument(help="The problem's file.")]
Solutions = Annotated[list[Path] | None, typer.Argument(help="Its solutions: files or folders.")]
Certify = Annotated[
    Path | None, Option(help="Folder of problems: list the mutations that their own rules accept.")
]
Backward = Annotated[bool, Option("--backward", help="Judge gradients too.")]
Full = Annotated[bool, Option("--full", help="Use the problem's own sizes.")]
Packed = Annotated[
    bool, Option("--packed", help="Do not copy weights: solutions pack theirs in __init__.")
]
Arithmetic = Annotated[str, Option(help="Arithmetic of the solution's sums: rn32 or mma32.")]
Draws = Annotated[int, Option(min=1, help="Draws of each kind of data.")]
Seed = Annotated[int | None, Option(help="Seed of the data; random by default.")]
Device = Annotated[str, Option(help="Where the solution computes.")]
Seconds = Annotated[float, Option(help="Seconds that a call may take.")]
Memory = Annotated[float, Option(help="GiB of memory the solution may use.")]
Ray = Annotated[str, Option(help="Address of a Ray cluster that grades the solutions.")]
Gpus = Annotated[float, Option(min=0.0, help="GPUs that a solution needs with --ray.")]
Html = Annotated[Path | None, Option(help="Write a page of the result.")]
Json = Annotated[Path | None, Option("--json", help="Write the result as JSON.")]


def grade(
    format: Format,
    problem: Problem = None,
    solutions: Solutions = None,
    certify: Certify = None,
    backward: Backward = False,
    full: Full = False,
    packed: Packed = False,
    arithmetic: Arithmetic = "rn32",
    draws: Draws = 1,
    seed: Seed = None,
    device: Device = "cpu",
    seconds: Seconds = 30.0,
    memory: Memory = 8.0,
    ray: Ray = "",
    gpus: Gpus = 0.0,
    html: Html = None,
    to: Json = None,
) -> None:
    """Grade solutions of a benchmark's problem, or certify it."""
    from .. import grade as grading

    above_zero("grade", seconds=seconds, memory=memory)
    if not solutions:
        if (folder := certify or problem) is None:
            raise invalid("grade", "needs a problem and a solution, or --certify FOLDER")
        if backward or full or packed or seed is not None or draws > 1 or device != "cpu":
            what = "takes --arithmetic, --html and --json; the other options are of solutions"
            raise invalid("grade", f"--certify {what}")
        _certify(format, folder, arithmetic, html, to)
        return
    if problem is None or certify is not None:
        raise invalid("grade", "--certify is for problems without a solution")
    if gpus and not ray:
        raise invalid("grade", f"--gpus is {gpus:g}, needs --ray")
    options: dict[str, Any] = {"arithmetic": arithmetic, "backward": backward, "full": full}
    options["packed"] = packed
    options |= {"draws": draws, "seed": seed, "device": device}
    options["limits"] = grading.Limits(seconds=seconds, memory=int(memory * 2**30))
    grading.load(format, problem)  # so that what is refused below is a solution
    work = partial(_graded, format, problem.absolute() if ray else problem, options)
    found = _printed(_grade_each(work, solutions, ray, gpus), alone=len(solutions) == 1)
    if not found:
        raise typer.Exit(ExitStatus.REFUSED)
    _write_results(found, f"{format}: {problem.stem}", html, to)
    if any(each.verdict != "pass" for each in found):
        raise typer.Exit(ExitStatus.FAILED)
    raise typer.Exit(ExitStatus.DONE if len(found) == len(solutions) else ExitStatus.REFUSED)


def _printed(graded: Iterator[tuple[Path, Any]], alone: bool) -> list[Any]:
    """Print grades and refusals as they come, and return the grades."""
    found = []
    try:
        for solution, grade in graded:
            if isinstance(grade, Exception) and alone:
                raise grade
            if isinstance(grade, Exception):
                print(f"refused: {solution.name}: {grade}")
                continue
            found.append(grade)
            print(grade)
    except KeyboardInterrupt:
        raise typer.Exit(ExitStatus.INTERRUPTED) from None
    return found


def _write_results(found: list[Any], title: str, html: Path | None, to: Path | None) -> None:
    from ..grade.certify import page

    print(f"isolation: {'; '.join(found[0].isolation) or 'the process did not start'}")
    if html is not None:
        _write_file(html, page("grade.html", title=title, found=found))
        print(f"page: {html}")
    if to is not None:
        facts = [each.facts() for each in found]
        _write_file(to, json.dumps(facts if len(facts) > 1 else facts[0], indent=1))


def _graded(format: str, problem: Path, options: dict[str, Any], solution: Path) -> Any:
    """Return the grade of a solution, or the error with which it is refused."""
    from .. import grade

    try:
        return grade.grade(format, problem, solution, **options)
    except (ConvrefError, UnsupportedError) as error:
        return error


def _grade_each(
    work: Callable[[Path], Any], solutions: list[Path], ray: str, gpus: float
) -> Iterator[tuple[Path, Any]]:
    """Yield each solution with its grade: here in their order, on a cluster as they end."""
    if not ray:
        yield from ((solution, work(solution)) for solution in solutions)
        return
    from ..conformance.workers import fleet

    fleet.connect(ray)
    with closing(
        fleet.as_completed(work, iter([each.absolute() for each in solutions]), gpus)
    ) as graded:
        yield from filter(None, graded)


def _certify(
    format: str, folder: Path, arithmetic: str, html: Path | None, to: Path | None
) -> None:
    from ..grade import certify
    from ..grade.certify import to_html, to_json

    found = []
    for each in certify(format, folder, arithmetic=arithmetic):
        found.append(each)
        said = each.refused or f"{len(each.mutations)} mutations, its rule accepts {len(each.own)}"
        if not each.refused:
            said += f", convref {len(each.judge)}{', vacuous' if each.vacuous else ''}"
        print(f"{each.problem}: {said}")
    if html is not None:
        _write_file(html, to_html(found, f"{format}: {folder.name}"))
        print(f"page: {html}")
    if to is not None:
        _write_file(to, to_json(found))


def _write_file(path: Path, text: str) -> None:
    def save() -> None:
        path.write_text(text, encoding="utf-8")

    write(save, path)
