"""The distribution: entry points, extras, and what is in it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import partial
from importlib.metadata import PathDistribution, distribution
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def load(name):
    """Return a script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the paths of a wheel and an sdist, built with what is installed."""
    if not (importlib.util.find_spec("hatchling") and importlib.util.find_spec("editables")):
        pytest.skip("hatchling is not installed, and tests download nothing")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_wheel_holds_the_packages_and_nothing_else(built):
    names = zipfile.ZipFile(built[0]).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert "convref" in tops
    kernels = {"convref_driver", "convref_mojo", "convref_ptx", "convref_triton"}
    packages = {"convref", "convref_bench", *kernels}
    assert tops <= packages
    assert "convref/ops/conv.py" in names


def test_wheel_holds_every_file_of_its_packages(built):
    """Sources of Mojo, suites, templates, known bugs, py.typed: all that git tracks."""
    names = set(zipfile.ZipFile(built[0]).namelist())
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    for folder in folders["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        base = ROOT / folder
        files = (p for p in base.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        here = {p.relative_to(base.parent).as_posix() for p in files}
        assert here - names == set()
        assert here


def test_wheel_has_the_entry_points_and_extras(built):
    with zipfile.ZipFile(built[0]) as wheel:
        path = next(n for n in wheel.namelist() if n.endswith("/METADATA"))
        metadata = wheel.read(path).decode()
        entry_points = wheel.read(path.replace("METADATA", "entry_points.txt")).decode()
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE))
    assert extras == set(PROJECT["optional-dependencies"])
    assert re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE) == ["numpy>=2.0"]
    assert "convref = convref.cli:main" in entry_points
    assert "[convref.backends]" in entry_points
    assert "License-Expression: Apache-2.0" in metadata


def test_sdist_has_the_licence_and_no_results(built):
    with tarfile.open(built[1]) as sdist:
        names = [name.partition("/")[2] for name in sdist.getnames()]
    assert {"LICENSE", "pyproject.toml", "convref/ops/conv.py", "tests/test_packaging.py"} <= {
        *names
    }
    assert not [name for name in names if name.startswith(("bench/results", ".venv", "build"))]


def test_entry_points_of_packages_that_are_here_can_be_imported():
    for name, value in PROJECT["entry-points"]["convref.backends"].items():
        module, _, attribute = value.partition(":")
        assert attribute == "backend", name
        assert importlib.util.find_spec(module) is not None, f"{name}: no module {module}"


def test_kernels_is_a_folder_and_no_package():
    assert not (ROOT / "kernels" / "__init__.py").exists()


def test_dist_info_stands_in_for_an_installation(tmp_path):
    writer = load("dist_info")
    (tmp_path / "convref-0.0.0.dist-info").mkdir()
    folder = writer.write(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [f"convref-{PROJECT['version']}.dist-info"]
    found = {(e.group, e.name, e.value) for e in PathDistribution(folder).entry_points}
    backends = PROJECT["entry-points"]["convref.backends"]
    assert {("convref.backends", *item) for item in backends.items()} <= found
    assert ("console_scripts", "convref", "convref.cli:main") in found


def test_dist_info_is_found_before_anything_is_installed(tmp_path):
    """A bare interpreter with the folder on its path finds the group, as `make gpu` requires."""
    folder = tmp_path / "gpu"
    load("dist_info").write(folder)
    code = (
        "from importlib.metadata import entry_points as e, version; "
        "print(version('convref'), sorted({x.name for x in e(group='convref.backends')}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    out = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True
    )
    names = sorted(PROJECT["entry-points"]["convref.backends"])
    assert out.stdout == f"{PROJECT['version']} {names}\n", out.stderr


def test_the_installed_version_is_the_one_in_the_sources():
    assert distribution("convref").version == PROJECT["version"]
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_constraints_pin_every_direct_requirement():
    """triton is pinned in the Makefile: each build of torch requires its own."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    pinned = {pin.name.lower().replace("_", "-") for pin in pins}
    wanted = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    names = {re.match(r"[\w-]+", text)[0].lower().replace("_", "-") for text in wanted}
    assert names - pinned == {"convref", "triton"}
    assert "pip" not in pinned
    assert re.search(
        r"^TRITON \?= triton==\d", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )


def test_the_low_end_is_the_least_that_each_range_admits():
    """A bound that no release has is still a version; `make low` finds that it is none."""
    ends = load("ends")
    least = dict(line.split("==") for line in ends.constraints("low", []))
    for text in ends.requirements():
        wanted = Requirement(text)
        if wanted.name != "convref":
            admits = partial(wanted.specifier.contains, prereleases=True)
            assert admits(least[wanted.name]), text
            assert not admits(f"{least[wanted.name]}.dev0"), text
    assert ends.constraints("high", []) == []


def test_a_held_version_overrides_both_ends():
    ends = load("ends")
    assert ends.constraints("high", ["torch==2.13.0"]) == ["torch==2.13.0"]
    low = ends.constraints("low", ["torch==2.13.0"])
    assert [line for line in low if line.startswith("torch==")] == ["torch==2.13.0"]


@pytest.mark.parametrize("name", ["convref.api.functions", *load("stubs").MODULES])
def test_generated_file_is_what_the_tool_writes(name):
    if "torch" in name:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        version = torch.__version__.partition("+")[0]
        if f"torch=={version}\n" not in (ROOT / "constraints.txt").read_text("utf-8"):
            pytest.skip(f"layers of torch {version} may have other arguments")
    stubs = load("stubs")
    assert not stubs.is_stale(name), "run python tools/stubs.py"
