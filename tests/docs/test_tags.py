"""Tags of formulas: each is on one page, and code cites those that exist."""

import re
from collections import Counter
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TAG = r"(?<![\w.])([A-Z]{1,2}\.\d{1,2})(?!\w|\.\d)"
CODE = ("convref", "kernels", "bench", "tests", "docs")
KINDS = ("*.py", "*.mojo", "*.md", "*.svg")


def tags():
    pages = (path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    found = chain.from_iterable(re.findall(r"\\tag\{(.*?)\}", page) for page in pages)
    return [tag for text in found for tag in text.split(", ")]


def cited(path):
    return set(re.findall(TAG, path.read_text("utf-8")))


def test_each_tag_is_of_one_formula():
    found = tags()
    assert len(found) > 50
    assert [tag for tag, count in Counter(found).items() if count > 1] == []
    assert all(re.fullmatch(TAG, tag) for tag in found)


def test_tags_that_are_cited_exist():
    files = {path for top in CODE for kind in KINDS for path in (ROOT / top).rglob(kind)}
    files -= {path for path in files if "_build" in path.parts}
    known = {*tags()}
    found = {path.relative_to(ROOT): cited(path) - known for path in files}
    assert {path: sorted(missing) for path, missing in found.items() if missing} == {}
