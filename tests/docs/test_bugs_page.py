"""The page of bugs: made from docs/bugs, complete, and each program shows its bug."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from convref import parse
from convref.knownbugs import parse_regions, shipped_regions

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("bugs", ROOT / "tools" / "bugs.py")
bugs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bugs)
BUGS = bugs.load()
KNOWN = ROOT / "docs" / "examples" / "known_bugs.txt"
REGIONS = (*shipped_regions(), *parse_regions(KNOWN.read_text("utf-8"), KNOWN.name))
FACTS = [{"onednn": switch} for switch in ("on", "off")]


def contains(region, line):
    return any(region.contains(parse(line), facts) for facts in FACTS)


def test_the_page_is_current():
    assert bugs.page(BUGS) == bugs.PAGE.read_text("utf-8"), "run python tools/bugs.py"


def test_each_bug_is_listed_once_under_its_library():
    contents, _, entries = bugs.page(BUGS).partition("## Crashes and hangs")
    first, *parts = contents.split("(bugs-of-")
    listed = []
    for part in parts:
        file = part.partition(")=")[0]
        assert f"](#bugs-of-{file}) |" in first
        listed += [(file, name) for name in re.findall(r"^- \[.*\]\(#bug-(.*?)\)", part, re.M)]
    assert sorted(listed) == sorted((bug["file"], bug["id"]) for bug in BUGS)
    assert all(f"(bug-{name})=" in entries for _, name in listed)


def test_every_region_is_a_bug_with_a_line_in_it():
    found = {name: bug for bug in BUGS for name in bug["regions"]}
    assert set(found) == {region.id for region in REGIONS}
    for region in REGIONS:
        assert any(contains(region, line) for line in found[region.id]["lines"]), region.id


def test_every_convolution_of_the_page_is_in_a_region():
    for bug in BUGS:
        for line in bug["lines"]:
            assert not line.startswith("conv.") or any(contains(r, line) for r in REGIONS), line


def test_fields_of_a_bug():
    ids = [bug["id"] for bug in BUGS]
    assert len(set(ids)) == len(ids)
    for bug in BUGS:
        compile(bug["program"], bug["id"], "exec")
        assert bug["severity"] in bugs.SEVERITIES
        assert bug["expected"] != bug["actual"]
        assert bug.get("fixed", bug["again"]) == bug["again"]
        assert all(link.startswith("https://github.com/") for link in bug["link"].split())
        assert "convref" not in bug["program"]


def test_most_bugs_are_new():
    causes = bugs.root_causes(BUGS).values()
    assert len(causes) >= 60
    assert sum(not bug["link"] for bug in causes) >= 30
    # what was searched for is data too
    assert all(bool(bug["link"]) != bool(bug.get("searched")) for bug in causes)


@pytest.mark.parametrize(
    ("printed", "fields", "state"),
    [
        ("wrong", {}, "confirmed"),
        ("right", {}, "gives 'right'"),
        ("right", {"fixed": pytest.__version__}, "fixed"),
        ("wrong", {"fixed": pytest.__version__}, "gives 'wrong'"),
        ("wrong", {"again": "0", "fixed": "0"}, "confirmed"),
        ("wrong", {"version": "0"}, "confirmed"),
        ("wrong", {"version": "0", "again": "0"}, "another version"),
    ],
)
def test_state_of_a_bug_in_either_version(printed, fields, state):
    versions = {"version": pytest.__version__, "again": pytest.__version__}
    results = {"expected": "right", "actual": "wrong"}
    bug = {"module": "pytest", "packages": [], "program": f"print({printed!r})", **results}
    assert bugs.state({**bug, **versions, **fields}) == state


def test_a_fixed_bug_is_marked_where_it_is_listed():
    page = bugs.page(BUGS)
    fixed = [bug for bug in BUGS if "fixed" in bug]
    for bug in fixed:
        listed = next(line for line in page.splitlines() if f"(#bug-{bug['id']})" in line)
        assert f"fixed in {bug['fixed']}" in listed
    assert page.count("fixed in ") == 2 * len(fixed)
    assert "### PyTorch 2.13.0, 2.14.1" in page


@pytest.mark.nightly(reason="a process a bug")
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug["id"])
def test_a_program_shows_its_bug(bug):
    state = bugs.state(bug)
    if state in ("not installed", "another version") or state.startswith("needs"):
        pytest.skip(f"{bug['module']} {bug['version']}: {state}")
    assert state in ("confirmed", "fixed")
