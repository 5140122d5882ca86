"""The pages: case lines parse, examples run, named tests exist, every public name is listed."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import runpy
from pathlib import Path

import pytest

import convref
from convref.case import parse, parse_problem
from convref.ops import FAMILY

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINE = re.compile(
    rf"""(?<![\w.-])(?:{"|".join(FAMILY)})(?:\.[a-z_]+)?:n[0-9][^\s"'`|]*[^\s"'`|.,;:)]"""
)
MALFORMED = "conv.fprop:n1c1k1_i5_f3_z9"  # a line of the page that shows the error


def lines_of(page):
    """Return the case lines on a page; one that is cut short with dots is none."""
    text = re.sub(r"\S+\.\.\.", "", page.read_text("utf-8"))
    return [line for line in LINE.findall(text) if line != MALFORMED]


def test_the_page_of_the_line_has_examples():
    assert len(lines_of(DOCS / "line.md")) >= 12


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_line_on_a_page_parses_and_is_the_only_one_of_its_case(page):
    for line in lines_of(page):
        if "." in line.partition(":")[0]:
            case = parse(line)
            assert parse(str(case)) == case
        else:
            parse_problem(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_on_a_page_print_what_they_say(page):
    text = page.read_text("utf-8").replace("```", "")
    for name in ("torch", "jax", "pytensor"):
        if f">>> import {name}" in text:
            pytest.importorskip(name, reason=f"{name} is not installed")
    test = doctest.DocTestParser().get_doctest(text, {}, page.stem, page.name, 0)
    said = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.fixture(scope="module")
def tests():
    """Return the names of all tests."""
    files = (path.read_text("utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    return {name for text in files for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_a_page_names_exists(page, tests):
    assert set(re.findall(r"`(test_\w+)`", page.read_text("utf-8"))) <= tests


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_example_on_a_page_is_read_as_a_quotation(page):
    outside = page.read_text("utf-8").split("```")[::2]
    assert not re.findall(r"^ *>.*", "".join(outside), re.MULTILINE)


def test_the_figures_are_those_that_are_drawn():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = runpy.run_path(str(DOCS / "figures" / "draw.py"))["FIGURES"]
    assert all((DOCS / "figures" / f"{name}.svg").is_file() for name in drawn)


def test_every_public_name_is_documented():
    pages = {*(DOCS / "api").glob("*.md")} - {DOCS / "api" / "problems.md"}
    page = "".join(path.read_text("utf-8").partition("## Exports")[0] for path in pages)
    listed = re.findall(r"^\.\. auto(?:function|class|data|exception):: (\w+)$", page, re.MULTILINE)
    for module in re.findall(r"^\.\. functions:: (\S+)$", page, re.MULTILINE):
        listed += importlib.import_module(module).__all__
    assert sorted(listed) == sorted(convref.__all__)


def test_a_function_of_another_rank_is_described_by_its_own_names():
    for name in convref.__all__:
        if re.search(r"[13]d(_|$)", name):
            prose, _, _ = inspect.getdoc(getattr(convref, name)).partition("Examples\n---")
            assert "2d" not in prose, name
