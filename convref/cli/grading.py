"""The command that grades solutions of benchmarks."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConvrefError, ExitStatus, UnsupportedError, invalid
from .files import write

Solutions = Annotated[list[Path] | None, typer.Argument(help="Its solutions: files or folders.")]
Html = Annotated[Path | None, typer.Option(help="Write a page of the result.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the result as JSON.")]


def grade(
    format: Annotated[str, typer.Argument(help="Format of the benchmark (docs/grading.md).")],
    problem: Annotated[Path | None, typer.Argument(help="The problem's file.")] = None,
    solutions: Solutions = None,
    certify: Annotated[
        Path | None, typer.Option(help="A folder of problems: what do their own rules accept?")
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="Judge gradients too.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Use the problem's own sizes.")] = False,
    packed: Annotated[
        bool, typer.Option("--packed", help="The solution packs its weights in __init__.")
    ] = False,
    arithmetic: Annotated[str, typer.Option(help="Of the solution's sums: rn32, mma32.")] = "rn32",
    draws: Annotated[int, typer.Option(min=1, help="Draws of each kind of data.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Of the data; by default they cannot be predicted.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where the solution computes.")] = "cpu",
    seconds: Annotated[float, typer.Option(help="Seconds that a call may take.")] = 30.0,
    memory: Annotated[float, typer.Option(help="GiB of memory the solution may use.")] = 8.0,
    ray: Annotated[str, typer.Option(help="Address of a Ray cluster that grades them.")] = "",
    gpus: Annotated[float, typer.Option(min=0.0, help="GPUs that one needs with --ray.")] = 0.0,
    html: Html = None,
    to: Json = None,
) -> None:
    """Grade solutions of a benchmark's problem, or certify the benchmark itself."""
    from .. import grade as grading
    from ..grade.certify import page

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
    found = []
    work = partial(_graded, format, problem.absolute() if ray else problem, options)
    try:
        for solution, grade in _each(work, solutions, ray, gpus):
            if isinstance(grade, Exception) and len(solutions) == 1:
                raise grade
            if isinstance(grade, Exception):
                print(f"refused: {solution.name}: {grade}")
                continue
            found.append(grade)
            print(grade)
    except KeyboardInterrupt:
        raise typer.Exit(ExitStatus.INTERRUPTED) from None
    if not found:
        raise typer.Exit(ExitStatus.REFUSED)
    print(f"isolation: {'; '.join(found[0].isolation) or 'the process did not start'}")
    if html is not None:
        _written(html, page("grade.html", title=f"{format}: {problem.stem}", found=found))
        print(f"page: {html}")
    if to is not None:
        facts = [each.facts() for each in found]
        _written(to, json.dumps(facts if len(facts) > 1 else facts[0], indent=1))
    if any(each.verdict != "pass" for each in found):
        raise typer.Exit(ExitStatus.FAILED)
    raise typer.Exit(ExitStatus.DONE if len(found) == len(solutions) else ExitStatus.REFUSED)


def _graded(format: str, problem: Path, options: dict[str, Any], solution: Path) -> Any:
    """Return the grade of a solution, or the error with which it is refused."""
    from .. import grade

    try:
        return grade.grade(format, problem, solution, **options)
    except (ConvrefError, UnsupportedError) as error:
        return error


def _each(
    work: Callable[[Path], Any], solutions: list[Path], ray: str, gpus: float
) -> Iterator[tuple[Path, Any]]:
    """Yield each solution with its grade: here in their order, on a cluster as they end."""
    if not ray:
        yield from ((solution, work(solution)) for solution in solutions)
        return
    from ..conformance.workers import fleet

    fleet.connect(ray)
    with closing(fleet.each(work, iter([each.absolute() for each in solutions]), gpus)) as graded:
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
        _written(html, to_html(found, f"{format}: {folder.name}"))
        print(f"page: {html}")
    if to is not None:
        _written(to, to_json(found))


def _written(path: Path, text: str) -> None:
    def save() -> None:
        path.write_text(text, encoding="utf-8")

    write(save, path)
