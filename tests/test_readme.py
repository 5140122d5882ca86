"""The programs of the README run and print their comments; its case lines and targets exist."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from convref import parse
from convref.conformance.examine import examine

ROOT = Path(__file__).parent.parent
README = ROOT.joinpath("README.md").read_text(encoding="utf-8")


def program(heading):
    """Return the program of a section."""
    return re.search(rf"^## {heading}\n.*?```python\n(.*?)```", README, re.DOTALL | re.MULTILINE)[1]


def run(text):
    """Run a program; return its names. It must print its comments that are values."""
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(text, names)
    values = re.findall(r"^print\(.*  # (\(.*\))$", text, re.MULTILINE)
    assert all(value in printed.getvalue() for value in values), printed.getvalue()
    return names


def test_the_kernel_fails_as_the_section_shows():
    backend = run(program("Check your kernels"))["backend"]
    assert "convref check mykernels:backend --op relu --pass fprop" in README
    (line,) = set(re.findall(r"relu\.fprop:\S+fill=nan", README))
    for text, verdict in ((line, "wrong"), ("relu.fprop:n2c3_i5", "pass")):
        found = examine(parse(text), backend)
        assert found.verdict == verdict
    assert found.reason in README


def test_the_check_of_a_result_fails_for_a_wrong_one():
    text = program("Check a result in your tests")
    names = run(text)
    dx, dw, db = names["result"]
    names["result"] = dx + np.float32(1), dw, db
    with pytest.raises(AssertionError, match=r"conv\.backward:"):
        exec(text[text.index("convref.assert_correct") :], names)


def test_the_check_of_a_fused_kernel_fails_without_its_bias():
    pytest.importorskip("torch", reason="torch is not installed")
    names = run(program("Check a fused kernel"))
    result = names["reference"](names["x"], names["w"], 0.0)
    with pytest.raises(AssertionError, match="bound"):
        names["assert_close"](result, names["reference"], (names["x"], names["w"], names["b"]))


def test_the_model_is_converted_whole_and_trains():
    pytest.importorskip("torch", reason="torch is not installed")
    model = run(program("Use the ops in PyTorch"))["model"]
    assert all(type(layer).__module__.startswith("convref.") for layer in model), model
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_gradient_in_jax_has_the_shape_of_its_comment():
    pytest.importorskip("jax", reason="jax is not installed")
    run(program("Use them in JAX"))


def test_every_case_line_parses():
    lines = re.findall(r"\b(conv\.\w+:n[^\s'`]+)", README)
    assert lines
    for line in lines:
        assert str(parse(line)) == line


def test_its_targets_exist():
    makefile = ROOT.joinpath("Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make (\w+)`", README):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_to_pages_and_headings_exist(name):
    text = (ROOT / name).read_text("utf-8")
    for path, anchor in re.findall(r"\]\((?!http)([^)#]+)#?([^)]*)\)", text):
        headings = re.findall(r"^#+ (.*)", (ROOT / path).read_text("utf-8"), re.MULTILINE)
        slugs = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
        assert not anchor or anchor in slugs, (path, anchor)
