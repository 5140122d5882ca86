"""`import convref` loads NumPy and the standard library only, and takes little time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What an application pays beyond NumPy, in seconds of CPU: others may be using the machine.
PROBE = """
import json, sys, time
start = time.process_time()
import numpy
numpy_seconds = time.process_time() - start
known = set(sys.modules)
start = time.process_time()
import convref
seconds = time.process_time() - start
packages = {name.partition(".")[0] for name in set(sys.modules) - known}
json.dump([[seconds, numpy_seconds], sorted(packages)], sys.stdout)
"""
OPTIONAL = ("torch", "triton", "jax", "onnx", "ml_dtypes", "hypothesis", "pytest", "rich", "typer")
AT_ONCE = ("convref.cli", "convref.conformance", "convref.integrations")


def probe(code=PROBE, **env):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_loads_nothing_but_numpy_and_the_standard_library():
    _, packages = probe()
    foreign = set(packages) - set(sys.stdlib_module_names) - {"convref", "numpy"}
    assert not foreign


def test_import_takes_60_ms_or_less_than_numpy(tmp_path):
    """60 ms, or on a slow or busy machine the time of NumPy, with cached bytecode."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    found = [probe(**kept)[0] for _ in range(7)]
    own, numpys = (min(column) for column in zip(*found, strict=True))
    assert own < max(0.060, numpys)


@pytest.mark.parametrize("package", OPTIONAL)
def test_the_probe_detects_an_import(package):
    pytest.importorskip(package)
    seen = probe(PROBE.replace("import convref", f"import {package}"))[1]
    assert package in seen


def test_without_the_extras_each_module_imports_or_says_what_to_install():
    """The command line and the court, which nothing imports by the way, need theirs at once."""
    root = Path(__file__).resolve().parent.parent / "convref"
    names = [
        ".".join(("convref", *path.relative_to(root).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for path in sorted(root.rglob("*.py"))
        if path.name != "__main__.py"
    ]
    light = [name for name in names if not name.startswith(AT_ONCE)]
    assert "convref.ops" in light
    code = f"""
import importlib, json, sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Nothing())
failed = {{}}
for name in {light!r}:
    try:
        importlib.import_module(name)
    except Exception as error:
        if type(error).__name__ != 'MissingExtraError':
            failed[name] = repr(error)
json.dump(failed, sys.stdout)
"""
    assert probe(code) == {}
