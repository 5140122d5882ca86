"""docs/sampling.md: the tests that it names exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_names_tests_that_exist():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "sampling.md").read_text("utf-8")))
    source = (ROOT / "tests" / "oracle" / "test_sample.py").read_text("utf-8")
    assert named
    assert named <= set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
