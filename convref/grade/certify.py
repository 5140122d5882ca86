"""The certificate of a benchmark: which wrong results its own rule and data accept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ConvrefError, UnsupportedError, invalid, missing_extra
from ..judge import Numerics
from ..judge.programs import Program, judged_mutants
from .gpumode import GpuMode
from .grading import class_of, kinds_of_data, load, trials
from .problem import BenchmarkProblem, Trial

LOOSE = 1e-2  # a tolerance that other benchmarks have


@dataclass
class Certificate:
    """What a problem's own rule and the judge accept.

    Attributes
    ----------
    refused : str
        Why the reference cannot be judged; empty if it can.
    vacuous : bool
        Whether zeros pass on all data.
    mutations : tuple of str
        Mutations of the reference that change a result on some data.
    own, loose, judge : tuple of str
        Those that the rule of the benchmark accepts on its own data, those that a tolerance of
        1e-2 accepts there, and those that the judge accepts on all data.
    """

    problem: str
    refused: str = ""
    vacuous: bool = False
    mutations: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()


def certify(
    format: str, folder: str | Path, *, seed: int = 0, arithmetic: Numerics | str = "rn32"
) -> Iterator[Certificate]:
    """Yield the certificate of each problem of a folder, or of one file."""
    numerics = Numerics(arithmetic) if isinstance(arithmetic, str) else arithmetic
    for path in problems(format, Path(folder)):
        try:
            yield _certificate(format, path, seed, numerics)
        except (ConvrefError, UnsupportedError) as error:
            yield Certificate(_name(path), refused=str(error))


def problems(format: str, folder: Path) -> list[Path]:
    """Return the files of problems by number, of a folder or one file."""
    if folder.is_file():
        return [folder]
    pattern = class_of(format).pattern
    if found := sorted(folder.rglob(pattern), key=_number):
        return found
    raise invalid(
        "grade", f"{folder} has no {pattern}" if folder.is_dir() else f"{folder} is not a folder"
    )


def _name(path: Path) -> str:
    return path.parent.name if path.name == GpuMode.pattern else path.stem


def _number(path: Path) -> tuple[str, int, str]:
    digits = path.stem.partition("_")[0]
    return str(path.parent), int(digits) if digits.isdecimal() else 0, path.stem


def _certificate(format: str, path: Path, seed: int, numerics: Numerics) -> Certificate:
    """Return a certificate: its rule on its data at the first sizes, the judge on all."""
    posed = load(format, path)
    known: dict[str, None] = {}
    differ, own, loose, caught = set[str](), set[str](), set[str](), set[str]()
    for number, kind, trial, data in _all_data(posed, seed):
        if number and caught >= known.keys():
            break
        traced = Program(trial.reference, tuple(data), {}, numerics).traced
        for name, results, passes in judged_mutants(traced, caught):
            known[name] = None
            pairs = [(got, pair.value) for got, pair in results]
            if any(_differs(got, value) for got, value in pairs):
                differ.add(name)
            if not number and kind == "given":
                own |= {name} if all(_is_close(*pair, posed.tolerance) for pair in pairs) else set()
                loose |= {name} if all(_is_close(*pair, LOOSE) for pair in pairs) else set()
            caught |= set() if passes else {name}
    names = [name for name in known if name in differ]
    return Certificate(
        posed.name,
        vacuous="zeros" in own and "zeros" not in caught,
        mutations=tuple(names),
        own=tuple(name for name in names if name in own),
        loose=tuple(name for name in names if name in loose),
        judge=tuple(name for name in names if name not in caught),
    )


def _all_data(posed: BenchmarkProblem, seed: int) -> Iterator[tuple[int, str, Trial, Any]]:
    for number, (_, trial) in enumerate(trials(posed, seed)):
        for kind, data in kinds_of_data(trial, 1, seed + number):
            yield number, kind, trial, data


def _differs(got: Any, value: Any) -> bool:
    right = value.to(got.dtype)
    return bool(((got != right) & ~(got.isnan() & right.isnan())).any())


def _is_close(got: Any, value: Any, tolerance: float) -> bool:
    far = (got.double() - value.double()).abs()
    return bool((far <= tolerance + tolerance * value.double().abs()).all())


def to_json(found: list[Certificate]) -> str:
    """Return certificates as JSON."""
    return json.dumps([asdict(each) for each in found], indent=1)


def to_html(found: list[Certificate], title: str) -> str:
    """Return certificates as a page that loads nothing."""
    judged = [each for each in found if not each.refused]
    return page(
        "certificate.html",
        title=title,
        found=found,
        judged=judged,
        mutations=sum(len(each.mutations) for each in judged),
        own=sum(len(each.own) for each in judged),
        loose=sum(len(each.loose) for each in judged),
        judge=sum(len(each.judge) for each in judged),
    )


def page(template: str, **facts: Any) -> str:
    """Return a page that loads nothing, of a template of this package."""
    try:
        import jinja2
    except ImportError as error:
        raise missing_extra("report", error) from None
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    return environment.get_template(template).render(**facts)
