"""Our own checks of `make lint`: each refuses its violations, seeded in a small tree."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load(name):
    """Return a script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(f"lint_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look annotations up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("convref/a.py", "    ok = np.all" + "close(a, b)", "without a derivation"),
        ("tests/test_a.py", "    np.array_equal(a, b)", "result is lost"),
        ("tests/test_a.py", "    assert_close(a, b, rtol" + "=1e-3)", "typed tolerance"),
        ("docs/a.md", "see /ho" + "me/me/notes", "path of one machine"),
        ("Makefile", "pip install --index" + "-url x", "address"),
        ("kernels/__init__.py", "", "kernels is a folder"),
    ],
)
def test_bans_find_what_they_ban(tmp_path, name, line, reason):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"\n{line}\n", "utf-8")
    found = list(load("bans").violations(tmp_path))
    assert len(found) == 1
    assert found[0].startswith(name)
    assert reason in found[0]


def test_bans_let_the_rest_pass(tmp_path):
    (tmp_path / "tests").mkdir()
    text = (
        "assert np.array_equal(a, b)\nassert_close(a, b, rtol=0, atol=bound)\nx = 'docs/home/a'\n"
    )
    (tmp_path / "tests" / "test_a.py").write_text(text, "utf-8")
    assert list(load("bans").violations(tmp_path)) == []


def write(root, **files):
    """Write modules by dotted name; return the violations of the tree."""
    for module, text in files.items():
        base = {"convref": "", "convref_bench": "bench"}.get(module.partition(".")[0], "kernels")
        path = (root / base).joinpath(*module.split("."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text, "utf-8")
    return list(load("imports").violations(root, allowed=()))


@pytest.mark.parametrize(
    ("module", "text", "reason"),
    [
        ("convref.ops.conv", "from ..errors import message\nfrom ..oracle import x", "is above it"),
        ("convref.ops.conv", "def f():\n    from convref import oracle", "is above it"),
        ("convref.ops.conv", "import convref.oracle as o", "is above it"),
        ("convref.judge", "from .dispatch import run", "is above it"),
        ("convref_triton.conv", "from convref.dispatch import run", "is above it"),
        ("convref_ptx.state.machine", "import convref_bench.timing", "is above it"),
        ("convref.api", "def f():\n    import convref_mojo", "optional plug-in"),
        ("convref.cli", "importlib.import_module('convref_bench.cli')", "optional plug-in"),
        ("convref.judge", "from .ops.conv import _taps", "_taps is private to convref.ops.conv"),
        ("convref.judge", "from .ops import conv as c\nc._taps()", "_taps is private"),
        ("convref.judge", "from .ops._sizes import taps", "_sizes is private to convref.ops"),
    ],
)
def test_import_check_refuses(tmp_path, module, text, reason):
    names = ("oracle", "dispatch", "errors", "ops.conv", "ops._sizes", "judge")
    tree = {f"convref.{name}": "" for name in names}
    tree["convref.ops.conv"] = "def _taps():\n    ..."
    tree |= {"convref_mojo": "", "convref_bench.cli": "", "convref_bench.timing": ""}
    assert write(tmp_path, **tree) == []
    (found,) = write(tmp_path, **{module: text})
    assert reason in found
    assert f"{module.replace('.', '/')}.py:{text.count(chr(10)) + 1}: " in found


def test_import_check_refuses_circles_lazy_ones_too(tmp_path):
    found = write(
        tmp_path,
        **{
            "convref.ops.a": "from .b import x",
            "convref.ops.b": "from . import c",
            "convref.ops.c": "def f():\n    from .a import y",
        },
    )
    path = "convref.ops.a -> convref.ops.b -> convref.ops.c -> convref.ops.a"
    assert found == [f"circle: {path}"]


def test_import_check_leaves_out_what_only_annotations_need(tmp_path):
    text = "if TYPE_CHECKING:\n    from .judge import verdict\nelse:\n    from .errors import e"
    tree = {"convref.judge": "from .ops import x", "convref.errors": "", "convref.ops": text}
    assert write(tmp_path, **tree) == []


def test_import_check_refuses_long_folders(tmp_path):
    for number in range(20):
        (tmp_path / "convref/ops" / "__pycache__").mkdir(parents=True, exist_ok=True)
        (tmp_path / "convref/ops" / f"{number}.txt").touch()
    assert write(tmp_path) == []
    (tmp_path / "convref/ops/20.txt").touch()
    (found,) = write(tmp_path)
    assert found.startswith("convref/ops: 21 entries")


def test_import_check_refuses_an_allowance_without_a_violation(tmp_path):
    (found,) = load("imports").violations(tmp_path, allowed=("convref.a imports convref.b",))
    assert "which is fixed" in found
