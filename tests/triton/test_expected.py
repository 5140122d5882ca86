"""What the compiler makes of every configuration, held to the columns of the table."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convref.case import parse

pytest.importorskip("triton", reason="triton is not installed")

import triton

from convref_triton.common.geometry import operands
from convref_triton.compile import aot, classes, expected
from convref_triton.compile.inspection import inspect
from convref_triton.compile.specialise import specialise
from convref_triton.hopper import race
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.launch import Launch

# The marks of a tile of 128x128x64, bf16, channels last, by kernel and pass: instructions a step.
MARKS = {
    ("gather", "fprop"): 124,
    ("gather", "jvp"): 203,
    ("tma", "fprop"): 108,
    ("wgrad", "wgrad"): 223,
}
OURS = triton.__version__.startswith("3.6.")
PLAIN = ("fprop", "wgrad")
RECORDED = {arch: expected.read(arch) for arch in expected.ARCHS}
# A name of three words, of which the first may hold a blank.
NAMES = st.builds(
    " ".join,
    st.tuples(
        st.sampled_from((*classes.SHAPES, "grouped fprop", "depthwise jvp")),
        st.sampled_from(tuple(classes.SIZES)),
        st.sampled_from(tuple(classes.NUMBERS)),
    ),
)


def held(specimen, found):
    """Hold one compiled configuration to its row, and to what no row may allow."""
    name = f"{specimen.name} {expected.configuration(specimen)} {specimen.arch}"
    assert not expected.faults(specimen, found), name
    rows = RECORDED[specimen.arch][expected.configuration(specimen), specimen.name]
    now = expected.columns(found)
    assert any(
        now._replace(loop=None) == row._replace(loop=None) and (now.loop or 0) <= (row.loop or 0)
        for row in rows
    ), f"{name}: {now} is none of {rows}"


@pytest.mark.skipif(not OURS, reason="the files are of what Triton 3.6 makes")
def test_choices_for_the_largest_sizes_meet_their_columns():
    """Every one of a plain sum; of a tangent, whose tiles are the same, what the table takes."""
    every = list(classes.lines(("by_16",), ("bf16",)))
    plain, tangents = ([n for n in every if n[0].split()[0] in of] for of in (PLAIN, ("jvp",)))
    taken = {s.specialisation.key for s in classes.specimens(tangents, every=False)}
    chosen = [s for s in classes.specimens(tangents, every=True) if s.specialisation.key in taken]
    assert chosen
    for specimen, found in expected.inspected(
        [*classes.specimens(plain, every=True), *chosen], "sm_90"
    ):
        held(specimen, found)


@pytest.mark.skipif(not race.KERNELS, reason="the kernels are for another Gluon")
def test_every_tile_in_gluon_meets_its_columns():
    made = [s for s in classes.raced(("by_16",), ("bf16",)) if s.name.split()[0] in PLAIN]
    assert {s.choice.kernel for s in made} == set(expected.GLUON)
    for specimen, found in expected.inspected(made, "sm_90"):
        held(specimen, found)


@given(st.lists(NAMES, max_size=40))
def test_folded_names_unfold(names):
    unfolded = [name for text in expected.fold(names) for name in expected.unfold(text)]
    assert sorted(unfolded) == sorted(set(names))


def test_what_is_written_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(expected, "FOLDER", tmp_path / "new")
    some = expected.Columns("wgmma m64n64k16", "SS", "cp.async 16", 1, 1024, 90)
    none = expected.Columns("", "", "", None, 0, None, 168)
    names = ["fprop odd bf16", "fprop odd f16"]
    expected.write("sm_90", {"gather 64x64x64 w4 s4: gather": {some: names, none: names[:1]}})
    assert expected.read("sm_90") == {
        ("gather 64x64x64 w4 s4: gather", "fprop odd bf16"): {some, none},
        ("gather 64x64x64 w4 s4: gather", "fprop odd f16"): {some},
    }


@pytest.mark.parametrize("size", ["by_8", "odd"])
def test_the_tables_choices_are_in_the_strong_form(size):
    lines = classes.lines((size,), ("bf16",))
    for specimen, found in expected.inspected(classes.specimens(lines, every=False), "sm_90"):
        assert not expected.faults(specimen, found), specimen.name


@pytest.mark.nightly
@pytest.mark.skipif(not OURS, reason="the files are of what Triton 3.6 makes")
@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "nightly",
    reason="some 2,700 compilations an architecture: HYPOTHESIS_PROFILE=nightly",
)
@pytest.mark.parametrize("arch", expected.ARCHS)
def test_every_configuration_compiles_and_meets_its_columns(arch):
    for specimen, found in expected.inspected(expected.specimens(arch), arch):
        held(specimen, found)


@pytest.mark.skipif(not OURS, reason="the marks are of what Triton 3.6 makes")
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
