"""What the compiler makes of every configuration, held to the columns of the table."""

import os

import pytest

from convref.line import parse

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton import aot, classes, expected
from convref_triton.geometry import operands
from convref_triton.inspection import inspect
from convref_triton.launch import Launch
from convref_triton.plan import offered, plan
from convref_triton.specialise import specialise

# The marks of a tile of 128x128x64, bf16, channels last, by kernel and pass: instructions a step.
MARKS = {
    ("gather", "fprop"): 124,
    ("gather", "jvp"): 203,
    ("tma", "fprop"): 108,
    ("wgrad", "wgrad"): 223,
}
RECORDED = expected.read() if expected.FILE.exists() else {}


def held(specimen, found):
    """Hold one compiled configuration to its row, and to what no row may allow."""
    name = expected.key(specimen, found.arch if not isinstance(found, Exception) else "")
    assert not isinstance(found, Exception), f"{name}: {found}"
    assert found.spills == 0, name
    assert found.shared <= expected.SHARED[found.arch], name
    for weakness in expected.weaknesses(specimen, found):
        assert not weakness.endswith(": "), f"{name}: {weakness}no reason is known"
    if row := RECORDED.get(name):
        now = expected.columns(found)
        for column in ("mma", "operands", "loads", "wait", "shared"):
            assert now[column] == row[column], f"{name}: {column}"
        assert (now["loop"] or 0) <= (row["loop"] or 0), f"{name}: loop"


def test_the_tables_choices_are_in_the_strong_form():
    lines = classes.lines(("by_16", "by_8", "odd"), ("bf16",))
    for specimen, found in expected.inspected(classes.specimens(lines, every=False), "sm_90"):
        held(specimen, found)


@pytest.mark.nightly
@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "nightly",
    reason="some 2,000 compilations: HYPOTHESIS_PROFILE=nightly",
)
@pytest.mark.parametrize("arch", expected.ARCHS)
def test_every_configuration_compiles_and_meets_its_columns(arch):
    specimens = classes.specimens(classes.lines(), every=True, arch=arch)
    for specimen, found in expected.inspected(specimens, arch):
        held(specimen, found)


@pytest.mark.parametrize(("kernel", "pass_"), MARKS, ids=[" ".join(pair) for pair in MARKS])
def test_the_marks_are_met(kernel, pass_):
    call = parse(f"conv.{pass_}:n8c256k256_i28x28_f3x3_p1:bias=0:dt=bf16:mem=nhwc").call
    choice = next(
        c
        for c in offered(call, operands(call))
        if (c.kernel, c.tile[:3]) == (kernel, (128, 128, 64))
    )
    launches = [s for s in plan(call, operands(call), choice).steps if isinstance(s, Launch)]
    launch = next(s for s in reversed(launches) if s.kernel.__name__ == kernel)
    found = inspect(aot.compile(specialise(launch), "sm_90"))
    assert found.loop <= MARKS[kernel, pass_]
    assert (found.operands, found.spills) == ("SS", 0)
    assert found.wait >= 1
