"""`make gpu` from end to end in its own processes, on a card that is a CPU: in turns, and kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from convref_bench import records
from convref_bench.gpu import keep, steps, tuner
from convref_bench.gpu import runner as gpu

ROOT = Path(__file__).resolve().parents[2]
MOST_RUNS = 4
GOOD = f"import pytest\n\n@{steps.MARK}\ndef test_it():\n    pass\n"

pytestmark = [
    pytest.mark.nightly(reason="eighteen processes, some minutes"),
]


def run(folder, seconds):
    """Run the programme as `make gpu` does; return the status of each step that it prints."""
    named = folder / "installed"  # with a dist-info folder, as `make gpu` has it
    subprocess.run([sys.executable, ROOT / "tools" / "dist_info.py", named], check=True)
    sources = ROOT, ROOT / "kernels", ROOT / "bench"
    places = [ROOT / "tests" / "bench" / "rehearsal", named, *sources]
    path = os.pathsep.join([*map(str, places), os.environ.get("PYTHONPATH", "")])
    more = {"PYTHONPATH": path, "CONVREF_REHEARSED_TESTS": str(folder / "tests")}
    words = [sys.executable, "-m", "convref_bench", "gpu", "--out", str(folder / "out")]
    found = subprocess.run(
        [*words, "--seconds", str(seconds)], env=os.environ | more, capture_output=True, text=True
    )
    assert "Traceback" not in found.stderr, found.stderr
    lines = [line.split(maxsplit=1) for line in found.stdout.splitlines() if line.startswith("  ")]
    lines = [words for words in lines if words]
    return found.returncode, {
        name: status for name, status in lines if not status.startswith("continues")
    }


def test_runs_continue_until_all_steps_are_done_and_keep_distils_them(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_proof.py").write_text(GOOD)
    _, first = run(tmp_path, 45)
    assert first["versions"] == "done"
    assert "no time left" in first.values()  # time ran out in the middle
    for _ in range(MOST_RUNS):
        status, last = run(tmp_path, 1500)
        if "partial" not in last.values():  # of a step that compiles, on a busy machine
            break
    out = tmp_path / "out" / "gpu.jsonl"
    rows, broken = records.read(out)
    log = (tmp_path / "out" / "gpu.log").read_text()
    assert broken == []
    assert set(last) == {step.name for step in gpu.STEPS}
    absent = {name for name, said in last.items() if said.startswith("absent")}
    assert absent == set()
    assert {said for name, said in last.items() if name not in absent} <= {"done", "before"}, log
    assert status == 0
    timed = [row for row in rows if row["what"] in ("point", "tuned")]
    assert {row["arm"].partition("@")[0] for row in timed} >= {"triton", "auto", "torch"}
    assert not [row for row in rows if row["what"] == "refused"], log
    parts = [row["part"] for row in rows if row["what"] == "searched"]
    assert parts == sorted(parts)  # "first" of every line, then "rest"
    assert set(parts) == {tuner.FIRST, tuner.REST}
    assert keep.main(out, folder=tmp_path / "cards") == 0
    (card,) = (tmp_path / "cards").glob("*.jsonl")
    kinds = {row["what"] for row in records.read(card)[0]}
    assert kinds >= {"machine", "peaks", "properties", "marked-file", "tuned", "point", "kernels"}
    assert kinds >= {"accumulator", "training"}
