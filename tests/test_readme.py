"""The README's program prints its comments, and its case lines parse."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from convref import parse

README = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")


def test_the_program_prints_its_comments():
    program, judged, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    told = [line.split("# ", 1)[1] for line in program.splitlines() if "# " in line]
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(program, names)
    assert printed.getvalue().splitlines() == told
    names["my_dx_dw_db"] = names["dx"], names["dw"], names["db"]
    exec(judged, names)
    names["my_dx_dw_db"] = names["dx"] + np.float32(1), names["dw"], names["db"]
    with pytest.raises(AssertionError, match=r"conv\.backward:"):
        exec(judged, names)


def test_the_model_is_converted_whole_and_trains():
    pytest.importorskip("torch", reason="torch is not installed")
    *_, program = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(program, names)
    layers = list(names["model"])
    assert all(type(layer).__module__.startswith("convref.") for layer in layers), printed
    assert all(parameter.grad is not None for parameter in names["model"].parameters())


def test_every_case_line_parses():
    lines = re.findall(r"^ +(conv\.\S+:n\S+)", README, re.MULTILINE)
    assert lines
    for line in lines:
        assert str(parse(line)) == line


def test_its_two_commands_are_targets():
    makefile = Path(__file__).parent.parent.joinpath("Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile
