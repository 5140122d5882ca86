"""The glossary: each word has one entry, and is defined at the place that it names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "glossary.md").read_text("utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)
WORDS = [row for row in ROWS if row[0] not in ("word", "---")]


def test_glossary_words_are_unique():
    words = [word for word, *_ in WORDS]
    assert len(words) >= 40
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(("word", "meaning", "place"), WORDS, ids=[row[0] for row in WORDS])
def test_glossary_places_define_the_word(word, meaning, place):
    assert meaning.endswith(".")
    if link := re.fullmatch(r"\[[^]]+\]\((.+)\)", place):
        assert (ROOT / "docs" / link[1]).exists()
        return
    path, *names = re.findall(r"`([^`]+)`", place)
    text = (ROOT / path).read_text("utf-8")
    assert all(re.search(rf"\b{name}\b", text) for name in names), place
