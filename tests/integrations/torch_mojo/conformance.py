"""torch-mojo-backend's own conformance suite, without and with `install`: what changes.

    python tests/integrations/torch_mojo/conformance.py SOURCE [-k EXPRESSION]

SOURCE is a clone of torch-mojo-backend at the installed version, whose folder conformance/ runs
PyTorch's OpInfo on the device `mojo`. Each test whose outcome changes is printed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

CRASHES = "stack_mojo_int64"  # the process ends, as their known_unsupported.py says


class Recorder:
    """A plug-in of pytest that installs convref's passes if told to, and records outcomes."""

    def __init__(self, path: str, installed: bool) -> None:
        self.path, self.installed = path, installed

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Install, after their conftest has registered the device."""
        items[:] = [item for item in items if not item.name.endswith(CRASHES)]
        if self.installed:
            from convref.integrations import torch_mojo

            torch_mojo.install()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Append the outcome of a test."""
        if report.when == "call" or report.outcome != "passed":
            outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            if "it now PASSES" in report.longreprtext:  # listed as unsupported: a failure there
                outcome = "passed"
            with open(self.path, "a") as file:
                file.write(json.dumps([report.nodeid.split("::")[-1], outcome]) + "\n")


def outcomes(source: str, arguments: tuple[str, ...], installed: bool) -> dict[str, str]:
    """Return the outcome of each test, run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcomes"
        # alone, so that the installed package is imported
        suite = shutil.copytree(Path(source) / "conformance", Path(folder) / "conformance")
        command = [sys.executable, __file__, "run", str(path), str(installed), *arguments]
        done = subprocess.run(command, cwd=suite, check=False)
        lines = path.read_text().splitlines() if path.exists() else []
    if done.returncode not in (0, 1):
        raise SystemExit(f"the suite ended with {done.returncode} after {len(lines)} tests")
    return dict(map(json.loads, lines))


def main(source: str, *arguments: str) -> int:
    """Print how many tests have which outcome, and those whose outcome changes."""
    before, after = (outcomes(source, arguments, installed) for installed in (False, True))
    for name, found in (("without", before), ("with", after)):
        counts = sorted(Counter(found.values()).items())
        print(f"{name} install:", ", ".join(f"{count} {outcome}" for outcome, count in counts))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            print(f"{name}: {before.get(name)} -> {after.get(name)}")
    return 0


def run(path: str, installed: str, *arguments: str) -> int:
    """Run the suite in this process."""
    import pytest

    recorder = Recorder(path, installed == "True")
    return pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[recorder])


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(run(*words[1:]) if words[0] == "run" else main(*words))
