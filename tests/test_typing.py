"""A type checker flags the lines of the scripts in `typing` that are marked `wrong`, no others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


LONG = pytest.mark.nightly(reason="half a minute: mypy reads the sources of torch")


OPTIONS = {
    "mypy": ("--strict", "--config-file=", "--cache-dir=.mypy_cache/user"),
    "pyright": ("--pythonpath", sys.executable),  # the scripts ask for the strict mode
}


@pytest.mark.parametrize("checker", OPTIONS)
@pytest.mark.parametrize("name", ["user", pytest.param("user_torch", marks=LONG)])
def test_wrong_uses_are_flagged_and_no_others(name, checker):
    pytest.importorskip(checker, reason=f"{checker} is not installed")
    if name == "user_torch":
        pytest.importorskip("torch", reason="torch is not installed")
    path = ROOT / "tests" / "typing" / f"{name}.py"
    command = [sys.executable, "-m", checker, *OPTIONS[checker], str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    errors = [line for line in done.stdout.splitlines() if re.search(r":\d+:? .*error", line)]
    flagged = {int(n) for n in re.findall(rf"{name}\.py:(\d+):", "\n".join(errors))}
    lines = path.read_text("utf-8").splitlines()
    marked = {n for n, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert flagged == marked, done.stdout
    assert all(f"{name}.py:" in line for line in errors), done.stdout
