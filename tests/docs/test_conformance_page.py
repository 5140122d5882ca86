"""The pages of the court, bugs and backends: the backend of the page is installed and tried."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil", reason="needs convref[check]")

import convref
from convref import parse
from convref.conformance.examine import VERDICTS, examine
from convref.errors import ExitStatus
from convref.ops import OPS, SIGNATURE

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "conformance.md").read_text("utf-8")
BACKEND = (DOCS / "contributing" / "a-backend.md").read_text("utf-8")
BUILD = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n\n'


def test_the_page_lists_every_exit_status():
    _, _, table = PAGE.partition("| exit status | means |\n| --- | --- |\n")
    rows = table.partition("\n\n")[0].splitlines()
    assert [int(row.split("|")[1]) for row in rows] == list(ExitStatus)


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the environment in which the page's package is installed, as a wheel is."""
    pytest.importorskip("hatchling", reason="needs convref[test]")
    folder = tmp_path_factory.mktemp("package")
    (folder / "mykernels.py").write_text(blocks(BACKEND, "python")[0])
    (folder / "pyproject.toml").write_text(BUILD + blocks(BACKEND, "toml")[0])
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", target, folder]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return target, {**os.environ, "PYTHONPATH": str(target)}


def check(name, environment):
    options = ["--examples", "1000", "--pass", "fprop", "--dtype", "f32", "--jobs", "1"]
    return subprocess.run(
        [sys.executable, "-m", "convref", "check", name, *options],
        capture_output=True, text=True, timeout=600, env=environment,
    )  # fmt: skip


def test_the_backend_on_the_page_is_found_by_name_and_right(installed):
    done = check("mine", installed[1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all right" in " ".join(done.stdout.split())
    assert "mykernels 0.1" in done.stdout


def test_the_court_finds_an_ignored_dilation(installed):
    target, environment = installed
    source = (target / "mykernels.py").read_text()
    (target / "slip.py").write_text(source.replace("s * p.dilation[0]", "s"))
    assert "* p.dilation" in source
    done = check("slip:backend", environment)
    assert done.returncode == 1
    assert "needs" in done.stdout
    assert "dilation" in done.stdout


@pytest.mark.parametrize("slip", [0, 1])
def test_the_test_on_the_page_passes_what_is_right_and_nothing_else(slip):
    def my_kernel(x, w, b, *, bias, groups, stride, padding, dilation, flip, **sizes):
        assert {*sizes} == {"n", "c", "k", "input", "filter", "transposed", "output_padding"}
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "flip": flip}
        kernel = {1: convref.conv1d, 2: convref.conv2d}[len(stride)]
        return kernel(x, w, b, groups=groups, **geometry, backend="numpy") + slip * (
            max(stride) == 2
        )

    names = {"my_kernel": my_kernel}
    exec(blocks(PAGE, "python")[0], names)
    if not slip:
        return names["test_my_kernel"]()
    with pytest.raises(
        AssertionError, match=r"conv\.fprop:n1c\d+k1_i[0-9x]+_f[0-9x]+_s[0-9x]+\S*: y\["
    ):
        names["test_my_kernel"]()


def test_every_verdict_is_explained():
    table, _, _ = PAGE.split("| verdict |")[1].partition("\n\n")
    assert dict(re.findall(r"^\| ([a-z][a-z-]+) \| (.+) \|", table, re.MULTILINE)) == VERDICTS


def results_table():
    """Return the table of results by op and pass; ops with the same results share a row."""
    ops: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    passes = ("fprop", "backward", "jvp", "double_backward")
    for op in OPS:
        roles = (getattr(SIGNATURE.get((op, p)), "results", ()) for p in passes)
        ops.setdefault(tuple(roles), []).append(op)
    rows = [f"| ops | {' | '.join(passes)} |", "| --- " * 5 + "|"]
    for results, names in ops.items():
        cells = ["`" + " ".join(r) + "`" if r else "-" for r in results]
        rows.append(f"| {', '.join(names)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def test_the_table_of_results_is_that_of_the_signatures():
    table = BACKEND.partition("<!-- results -->")[2].partition("<!-- end of results -->")[0]
    assert table.strip() == results_table()


def test_the_backends_of_the_page_run_and_pass():
    torch = pytest.importorskip("torch", reason="needs torch")
    _, autodiff, stages = blocks(BACKEND, "python")
    names: dict[str, Any] = {"torch": torch}
    exec(autodiff, names)
    exec(stages, names)
    assert names["sum_in_float16"].stages == 96
    for op in ("silu", "softmax"):
        for pass_ in ("fprop", "backward", "double_backward"):
            case = parse(f"{op}.{pass_}:n2c3_i2:fill=normal")
            assert examine(case, names["backend"]).verdict == "pass"
