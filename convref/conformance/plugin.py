"""The court in pytest: ``-p convref.conformance.plugin --convref-backend pkg.mod:obj``.

    pytest -p convref.conformance.plugin --convref-backend pkg.mod:obj \
        --pyargs convref.conformance.suite

One test for each op, pass and dtype; each runs generated cases in a worker process, so that a crash
ends only that process. Skip and xfail files hold one entry per line: a test id such as
``conv.fprop-f16``, a case line, or a region of cases in the terms of `convref.knownbugs`:
``dt = f16, any.s >= 2``.
"""

import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .. import knownbugs
from ..case import Case, parse
from ..case.files import read_text
from ..errors import ConvrefError
from ..ops import SIGNATURE, ops_of
from .causes import SHRINK_SECONDS, run_lines
from .examine import HARMLESS, Finding
from .generate import Axes, chunk_cases, strategy
from .shrink import shrink
from .strategies import DTYPES
from .workers.engine import Engine, Limits
from .workers.worker import ChunkReport, Task

MAX_FILE = 1 << 20  # bytes of a skip or xfail file
SHOWN = 5  # findings in the message of one test


@dataclass
class Exceptions:
    """The entries of a skip or xfail file, and which of them were used."""

    path: str = ""
    entries: dict[str, knownbugs.Region | None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def name(self, name: str) -> bool:
        """Return whether a test id is listed."""
        found = name in self.entries
        self.used |= {name} if found else set()
        return found

    def case(self, case: Case) -> bool:
        """Return whether a case is listed: its line, or a region that contains it."""
        for text, region in self.entries.items():
            if text == str(case) or (region is not None and region.contains(case)):
                self.used.add(text)
                return True
        return False

    def unused(self) -> list[str]:
        """Return the entries that matched no test and no finding."""
        return [text for text in self.entries if text not in self.used]


def read_exceptions(path: str) -> Exceptions:
    """Return the entries of a skip or xfail file; blank lines and # comments are left out."""
    found = Exceptions(path)
    for number, line in enumerate(_text(path).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text:
            found.entries[text] = _region(f"{path}, line {number}", text)
    return found


def read_known_bugs(path: str) -> tuple[knownbugs.Region, ...]:
    """Return the regions of a file of known bugs; none without a path."""
    try:
        return knownbugs.parse_regions(_text(path), path)
    except ConvrefError as error:
        raise pytest.UsageError(f"{path}: {error}") from None


def _text(path: str) -> str:
    try:
        return read_text("pytest", Path(path), MAX_FILE) if path else ""
    except ConvrefError as error:
        raise pytest.UsageError(str(error)) from None


def _region(where: str, text: str) -> knownbugs.Region | None:
    """Return the region an entry describes, or None for a test id or a case line."""
    try:
        if ":" in text:
            parse(text)
        elif " " in text:
            return knownbugs.parse_regions(f"entry | any | {text} | - |")[0]
    except ConvrefError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    return None


@dataclass
class Court:
    """The state that the tests of one session share."""

    backend: str
    examples: int
    seed: int
    limits: Limits
    skips: Exceptions
    xfails: Exceptions
    known: tuple[knownbugs.Region, ...] = ()
    engine: Engine | None = None

    def started(self) -> Engine:
        """Return the worker, started when the first test needs it."""
        if self.engine is None:
            self.engine = Engine(self.backend, limits=self.limits)
        return self.engine


_COURT = pytest.StashKey[Court]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("convref")
    add = group.addoption
    add("--convref-backend", default="", help="Backend: a name or package.module:object.")
    add("--convref-examples", type=int, default=200, help="Cases for each op, pass and dtype.")
    add("--convref-seed", type=int, default=0, help="Seed of the cases.")
    add("--convref-ops", default="conv", help="Ops or families, comma-separated.")
    add("--convref-dtypes", default=",".join(DTYPES), help="Dtypes, comma-separated.")
    add("--convref-limit", type=float, default=30.0, help="Seconds that one case may take.")
    add("--convref-skips", default="", help="File of test ids, lines and regions not to run.")
    add("--convref-xfails", default="", help="File of those that are known to fail.")
    add("--convref-known-bugs", default="", help="File of known bugs, as for `convref check`.")
    add("--convref-json", default="", help="Where to write what was found, as JSON.")


def pytest_configure(config: pytest.Config) -> None:
    """Read the files once, so that a malformed entry ends the session before it starts."""
    option = config.getoption
    sys.path.append(os.getcwd())  # mykernels:backend may be a file of the current folder
    _FOUND.clear()
    config.stash[_COURT] = Court(
        option("--convref-backend"),
        option("--convref-examples"),
        option("--convref-seed"),
        Limits(option("--convref-limit")),
        read_exceptions(option("--convref-skips")),
        read_exceptions(option("--convref-xfails")),
        read_known_bugs(option("--convref-known-bugs")),
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the worker."""
    court = config.stash.get(_COURT, None)
    if court is not None and court.engine is not None:
        court.engine.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each op, pass and dtype."""
    if "convref_cell" not in metafunc.fixturenames:
        return
    option = metafunc.config.getoption
    if not option("--convref-backend"):
        raise pytest.UsageError("the suite needs --convref-backend")
    ops = ops_of(option("--convref-ops").split(","))
    axes = Axes(ops=ops, dtypes=tuple(option("--convref-dtypes").split(",")))
    try:
        strategy(axes)
    except ConvrefError as error:
        raise pytest.UsageError(str(error)) from None
    cells = [(op, p, dtype) for op, p in SIGNATURE if op in ops for dtype in axes.dtypes]
    metafunc.parametrize("convref_cell", cells, ids=[f"{op}.{p}-{d}" for op, p, d in cells])


@pytest.fixture
def convref_court(request: pytest.FixtureRequest) -> Court:
    """Return the state that the tests share."""
    return request.config.stash[_COURT]


def try_cell(court: Court, cell: tuple[str, str, str]) -> dict[str, Any]:
    """Run the cases of one op, pass and dtype; return the findings, and skip, xfail or fail."""
    op, pass_, dtype = cell
    name = f"{op}.{pass_}-{dtype}"
    if court.skips.name(name):
        pytest.skip(f"listed in {court.skips.path}")
    axes = Axes(court.seed, (op,), (pass_,), (dtype,), size=court.examples)
    cases = [case for case in chunk_cases(axes, 0) if not court.skips.case(case)]
    try:
        counts, findings = _run(court, [str(case) for case in cases])
    except ConvrefError as error:
        pytest.exit(str(error), returncode=2)
    bad = [f for f in findings if f.verdict not in HARMLESS]
    expected = [f for f in bad if court.xfails.case(parse(f.line))]
    unexpected = [f for f in bad if f not in expected]
    listed = bool(bad) and court.xfails.name(name)  # an entry whose bug is fixed stays unused
    return {
        "name": name,
        "examples": len(cases),
        "verdicts": dict(counts),
        "failures": [f.as_dict() for f in unexpected],
        "expected": [f.as_dict() for f in expected],
        "xfail": bool(listed or (expected and not unexpected)),
        "unsupported": counts["unsupported"] == len(cases) > 0,
        "fingerprint": court.started().fingerprint,
        "shrunk": _smallest(court.started(), unexpected[0]) if unexpected and not listed else "",
    }


def _run(court: Court, lines: list[str]) -> tuple[Counter[str], list[Finding]]:
    counts: Counter[str] = Counter()
    findings: list[Finding] = []

    def receive(task: Task, report: ChunkReport) -> None:
        findings.extend(report.findings)
        for key, n in report.counts.items():
            counts[key[3]] += n

    task = Task(lines=tuple(lines), known=knownbugs.regions_of(court.backend, court.known))
    court.started().run(iter([task]), receive)
    return counts, findings


def _smallest(engine: Engine, finding: Finding) -> str:
    """Return the line of the smallest case found that fails with the same verdict."""
    ends = time.monotonic() + SHRINK_SECONDS

    def fails(cases: list[Case]) -> list[bool]:
        if time.monotonic() > ends:
            return [False] * len(cases)
        verdicts = {f.line: f.verdict for f in run_lines(engine, [str(case) for case in cases])}
        return [verdicts.get(str(case)) == finding.verdict for case in cases]

    return str(shrink(parse(finding.line), fails).case)


def outcome(found: dict[str, Any]) -> None:
    """End a test with pass, skip, xfail or fail, as its findings require."""
    if found["failures"] and not found["xfail"]:
        shown = [f"{f['line']}  {f['verdict']} {f['reason']}" for f in found["failures"][:SHOWN]]
        count = f"{len(found['failures'])} of {found['examples']} cases fail; shrunk:"
        pytest.fail("\n".join((count, found["shrunk"], "", *shown)), pytrace=False)
    if found["xfail"] and (found["failures"] or found["expected"]):
        pytest.xfail(f"{len(found['failures'] + found['expected'])} cases fail as listed")
    if found["unsupported"]:
        pytest.skip("the backend supports none of these cases")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Send the findings of a test to the session that writes the JSON, also from pytest-xdist."""
    for key, value in report.user_properties:
        if key == "convref" and report.when == "call" and isinstance(value, dict):
            _FOUND[value["name"]] = value


_FOUND: dict[str, Any] = {}  # pytest gives this hook no config


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the JSON report."""
    path = session.config.getoption("--convref-json")
    if not path or hasattr(session.config, "workerinput"):
        return
    made_of: dict[str, str] = next((found["fingerprint"] for found in _FOUND.values()), {})
    cells = {k: {n: v for n, v in f.items() if n != "fingerprint"} for k, f in _FOUND.items()}
    text = {"backend": session.config.getoption("--convref-backend")}
    text |= {"fingerprint": made_of, "cells": cells}
    Path(path).write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Warn of entries of the skip and xfail files that matched no test and no finding."""
    court = config.stash[_COURT]
    if court.engine is None:  # pytest-xdist runs the tests elsewhere
        return
    for listed in (court.skips, court.xfails):
        for entry in listed.unused():
            text = f"warning: {listed.path}: unused entry {entry!r}"
            terminalreporter.write_line(text, yellow=True)
