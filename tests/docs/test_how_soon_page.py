"""The page of root causes by minutes: made from its data, and what counts as found."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("psutil", reason="psutil is not installed")

from convref.conformance.examine import Finding
from convref.conformance.workers.engine import Tally

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch):
    """Return tools/how_soon.py, which imports its neighbour bugs.py."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    spec = importlib.util.spec_from_file_location("how_soon", ROOT / "tools" / "how_soon.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "bugs")
    return module


def test_the_page_is_current(tool):
    assert tool.page() == tool.PAGE.read_text("utf-8"), "run python tools/how_soon.py"


def test_regions_of_one_root_cause_count_once_and_conventions_do_not(tool):
    first = {
        "onednn-5942-transposed": [70.0, 9],
        "torch-bf16-nonfinite": [1.0, 1],
        "onednn-5942": [90.0, 12],
        "torch-sdpa-negative-scale": [50.0, 7],
    }
    found = tool.curve("torch", first)
    assert list(found.items()) == [("torch-sdpa-negative-scale", 50.0), ("onednn-5942", 70.0)]
    assert tool.counts({"causes": found, "seconds": 610.0}) == ["1", "2", "not measured"]


def test_a_failing_case_counts_when_it_is_seen_and_the_limit_ends_the_campaign(
    tool, tmp_path, monkeypatch
):
    monkeypatch.setattr(tool, "DATA", tmp_path)
    recorder, tally = tool.Recorder("torch", 1.0), Tally()
    recorder.processor = clock = SimpleNamespace(seconds=lambda: 20.0)
    passed, failed = ("", "", "", "pass", "onednn-5942"), ("", "", "", "known", "torch-prelu-at-0")
    tally.counts = Counter({passed: 5, failed: 1})
    tally.findings = [Finding("", "wrong"), Finding("", "vacuous")]
    recorder.watch(SimpleNamespace(tally=tally), "")
    clock.seconds = lambda: 61.0
    tally.counts[failed] += 1
    with pytest.raises(KeyboardInterrupt):
        recorder.watch(SimpleNamespace(tally=tally), "")
    recorder.write()
    found = json.loads((tmp_path / "torch.json").read_text("utf-8"))
    assert found["first"] == {"torch-prelu-at-0": [20.0, 6]}
    assert found["causes"] == {"torch-prelu-at-0": 20.0}
    assert (found["seconds"], found["others"]) == (61.0, 1)
