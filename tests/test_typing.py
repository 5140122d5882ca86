"""A type checker flags the lines of the scripts in `typing` that are marked `wrong`, no others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


LONG = [
    pytest.mark.nightly,  # mypy reads the sources of torch
    pytest.mark.skipif(
        os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="half a minute, nightly profile"
    ),
]


@pytest.mark.parametrize("name", ["user", pytest.param("user_torch", marks=LONG)])
def test_mypy_flags_wrong_uses_and_no_other(name):
    pytest.importorskip("mypy", reason="mypy is not installed")
    if name == "user_torch":
        pytest.importorskip("torch", reason="torch is not installed")
    path = ROOT / "tests" / "typing" / f"{name}.py"
    options = ["--strict", "--config-file=", "--cache-dir=.mypy_cache/user", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode < 2, done.stderr
    flagged = {int(n) for n in re.findall(rf"{name}\.py:(\d+): error", done.stdout)}
    lines = path.read_text("utf-8").splitlines()
    marked = {n for n, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert marked
    assert flagged == marked, done.stdout
    assert done.stdout.count("error:") == len(re.findall(rf"{name}\.py:\d+: error", done.stdout))
