"""`import convref` loads NumPy and the standard library only, and generates no function."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from convref.api.functions import FUNCTIONS

PROBE = """
import json, sys, time
start = time.process_time()
import numpy
numpy_seconds = time.process_time() - start
known = set(sys.modules)
start = time.process_time()
import convref
seconds = time.process_time() - start
json.dump([seconds / numpy_seconds, sorted(set(sys.modules) - known)], sys.stdout)
"""
OPTIONAL = ("torch", "triton", "jax", "onnx", "ml_dtypes", "hypothesis", "pytest", "rich", "typer")
AT_ONCE = ("convref.cli", "convref.conformance", "convref.integrations")


def probe(code=PROBE, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def packages(names):
    return {name.partition(".")[0] for name in names}


def test_import_and_first_use_load_nothing_but_numpy_and_the_standard_library():
    for use in ("", "; convref.conv1d(numpy.ones((1, 1, 4)), numpy.ones((1, 1, 3)))"):
        _, loaded = probe(PROBE.replace("import convref", f"import convref{use}"))
        assert not packages(loaded) - set(sys.stdlib_module_names) - {"convref", "numpy"}


def test_import_generates_no_function_and_takes_a_quarter_of_numpys_time():
    """A hundredth, as measured: the limit only excludes work that does not show as a module."""
    share, loaded = probe()
    assert [name for name in loaded if name.startswith("convref")] == [
        "convref",
        "convref.api",
        "convref.api.functions",
    ]
    assert share < 0.25


def test_first_use_of_a_function_generates_those_of_its_module_only():
    loaded = probe(PROBE.replace("import convref", "from convref import conv2d"))[1]
    assert {name for name in FUNCTIONS if f"convref.api.{name}" in loaded} == {"conv"}


def test_every_public_name_is_found_at_its_first_use():
    """In its own process, so that nothing has imported its module; `judge` stays the function."""
    code = """
import importlib, inspect, json, pickle, sys
import convref
importlib.import_module(sys.argv[1])
failed = [name for name in convref.__all__ if inspect.ismodule(getattr(convref, name))]
from convref import *
functions = [getattr(convref, name) for name in convref.api.__all__]
failed += [f.__name__ for f in functions if pickle.loads(pickle.dumps(f)) is not f]
failed += [name for name in convref.__all__ if globals()[name] is not getattr(convref, name)]
json.dump([failed, dir(convref) == sorted(convref.__all__), hasattr(convref, "conv4d")], sys.stdout)
"""
    for first in ("convref", "convref.judge", "convref.api.unfold"):
        assert probe(code, first) == [[], True, False]


def test_the_probe_detects_each_import(tmp_path):
    for name in OPTIONAL:
        (tmp_path / f"{name}.py").touch()
    imports = f"sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(OPTIONAL)}"
    seen = probe(PROBE.replace("import convref", imports))[1]
    assert set(OPTIONAL) <= set(seen)


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


def test_the_torch_integration_does_not_load_the_compiler():
    """`torch._dynamo` and sympy take longer than all else; torch.compile loads them when needed."""
    pytest.importorskip("torch")
    imports = "import torch; known = set(sys.modules); import convref.integrations.torch"
    loaded = probe(PROBE.replace("import convref", imports))[1]
    assert "convref.integrations.torch" in loaded
    assert not {"torch._dynamo", "torch._inductor", "sympy"} & set(loaded)
