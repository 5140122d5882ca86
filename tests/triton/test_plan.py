"""The inputs on which a plan depends, and those on which a binary does not."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convref import ConvrefError, dispatch, explain
from convref.case import parse

pytest.importorskip("triton", reason="triton is not installed")

import triton

from convref_triton.backend import backend, unproven
from convref_triton.common.geometry import operands
from convref_triton.compile import classes
from convref_triton.compile.specialize import specialize
from convref_triton.plan import measured
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.lines import KINDS

FEW = settings(max_examples=settings.default.max_examples // 4)
EXTENTS = st.integers(24, 90)  # enough pixels that sums over them are split
SIZES = st.tuples(
    st.integers(16, 40), st.sampled_from((64, 192, 320)), st.just(128), EXTENTS, EXTENTS
)
SHAPES = {name: line.text for name, line in classes.SHAPES.items() if line.sizes is KINDS}
SHAPES["strided"] = "conv.fprop:{}_f5x3_s2x1_p2,1x1,1_d1x2"


def binaries(line, choice=None):
    call = parse(line).call
    return [specialize(step).key for step in plan(call, operands(call), choice).launches]


@pytest.mark.parametrize("shape", SHAPES)
@FEW
@given(pair=st.tuples(SIZES, SIZES), pick=st.integers(0, 2**16))
def test_an_unseen_shape_of_a_seen_class_compiles_nothing(shape, pair, pick):
    sizes = (f"n{n}c{c}k{k}_i{h}x{w}" for n, c, k, h, w in pair)
    lines = [f"{SHAPES[shape].format(size)}:dt=bf16:mem=nhwc" for size in sizes]
    (first, *rest), other = (
        [choice for choice in offered(call, operands(call)) if choice.kernel != "tma"]
        for call in (parse(line).call for line in lines)
    )
    choices = [choice for choice in (first, *rest) if choice in other]
    choice = choices[pick % len(choices)]
    one, two = (binaries(line, choice) for line in lines)
    assume(len(one) == len(two))  # a sum that is split over programs is of another class
    assert one == two


def test_a_plan_is_a_function_of_the_call_alone():
    for example in classes.examples(("by_8", "odd"), ("bf16", "f32")):
        call = parse(example.line).call
        first, second = (plan(call, operands(call)) for _ in range(2))
        assert (first.reason, first.buffers) == (second.reason, second.buffers)
        assert first.copies == second.copies


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv.fprop:n1c1k1_i3_f1:dt=f64", "f64: kernels take f16, bf16, f32"),
        ("conv.fprop:n1c1k1_i3_f1:dt=bf16:math=tf32", "math=tf32 is for f32"),
        ("conv.fprop:n2048c1k1_i1024x1024_f1x1", "2**31 pixels or more"),
    ],
)
def test_unsupported_calls_are_refused_with_a_reason(line, reason):
    assert backend.supports(parse(line).call) == reason


def test_explain_shows_kernel_and_tile():
    text = explain(parse("conv.wgrad:n8c64k64_i28x28_f3x3_p1:dt=bf16:mem=nhwc").call, "triton")
    assert "* triton: selected by the caller" in text
    assert "dw: wgrad 32x64x128" in text
    assert f"compiled by Triton {triton.__version__} and ptxas " in text


def test_unproven_kernels_are_allowed_for_a_named_backend():
    call = parse("conv.fprop:n1c16k16_i4x4_f3x3:bias=0:dt=bf16").call
    assert dispatch.plan(call, "triton", unproven=True).backend is unproven
    assert dispatch.plan(call, "triton").backend is backend
    assert "y: " in explain(call, "triton", unproven=True)
    for name in ("auto", "numpy"):
        with pytest.raises(ConvrefError, match=f"'{name}' has no unproven kernels"):
            dispatch.plan(call, name, unproven=True)


LINE = "conv.fprop:n8c64k64_i28x28_f3x3_p1:bias=0:dt=bf16:mem=nhwc"


def records(choice, ms, reference_ms, line=LINE):
    row = {"what": "tuned", "line": line, "suite": "toy", "times": 1}
    made = {"kernel": choice.kernel, "tile": list(choice.tile), "source": choice.source}
    return [row | {"configuration": made, "median_ms": ms}, row | {"median_ms": reference_ms}]


@pytest.fixture
def card(tmp_path, monkeypatch):
    """Return a function that writes a card's table from runs of records."""
    monkeypatch.setattr(measured, "FOLDER", tmp_path / "measured")
    measured.table.cache_clear()

    def write(*runs):
        head = {"what": "tuning", "card": "Toy 9000"}
        paths = []
        for number, run in enumerate(runs):
            paths.append(tmp_path / f"{number}.jsonl")
            paths[-1].write_text("\n".join(json.dumps(row) for row in [head, *run]), "utf-8")
        assert measured.main([str(path) for path in paths]) == 0
        measured.table.cache_clear()
        return "Toy 9000"

    yield write
    measured.table.cache_clear()


SOURCES = """
import sys
from convref.case import parse
from convref_triton.common.geometry import operands
from convref_triton.plan.choose import offered
found = {}
for line in sys.argv[1:]:
    call = parse(f"{line}:dt=bf16:mem=nhwc:dev=cuda").call
    found |= {choice.kernel: choice.source for choice in offered(call, operands(call))}
print(sorted(found.items()))
"""


def test_sources_do_not_depend_on_what_was_planned_before():
    lines = [f"conv.{pass_}:n8c64k64_i28x28_f3x3_p1" for pass_ in ("fprop", "wgrad")]
    first, second = (
        subprocess.run([sys.executable, "-c", SOURCES, *order], check=True, stdout=subprocess.PIPE)
        for order in (lines, lines[::-1])
    )
    assert first.stdout == second.stdout


def test_a_measured_row_comes_before_the_heuristic_and_a_stale_one_does_not(card):
    call = parse(LINE).call
    expected = plan(call, operands(call)).reason
    other = next(c for c in backend.configurations(call) if str(c) not in expected)
    name = card(records(other, 1.0, 2.0))
    assert plan(call, operands(call), card=name).reason == f"y: {other} (measured)"
    like = parse(LINE.replace("i28x28", "i27x31")).call
    assert plan(like, operands(like), card=name).reason == f"y: {other} (measured on its class)"
    stale = [
        row | {"configuration": row["configuration"] | {"source": "0" * 12}}
        if "configuration" in row
        else row
        for row in records(other, 1.0, 2.0)
    ]
    name = card(stale)
    found = plan(call, operands(call), card=name).reason
    assert expected.split(" (")[0] in found
    assert "another source" in found


@pytest.mark.parametrize("tangents", ["xwb", "xb", "b", ""])
def test_a_jvp_is_looked_up_without_its_bias(card, tangents):
    line = "conv.jvp:n1c64k64_i9x9_f3x3:dt=bf16:mem=nhwc:dev=cuda"
    call = replace(parse(line).call, tangents=tangents)
    bare = replace(call, problem=replace(call.conv, bias=False), tangents=tangents.strip("b"))
    assert measured.line_of(call, "y_dot") == str(bare)
    name = card(records(backend.configurations(parse(LINE).call)[0], 1.0, 2.0))
    assert measured.look_up(call, "y_dot", name) is None
    assert not measured.is_fastest(call, name)


def test_an_op_without_windows_is_measured_by_its_lines(card):
    call = parse("group_norm.fprop:n2c8g2_i4x4").call
    choice = offered(call, operands(call))[-1]
    name = card(records(choice, 1.0, 2.0, line=str(call)))
    assert plan(call, operands(call), card=name).reason.endswith(f"{choice} (measured)")
    other = parse("group_norm.fprop:n3c8g2_i4x4").call
    assert "measured" not in plan(other, operands(other), card=name).reason


def test_auto_takes_kernels_measured_faster_twice(card):
    call, (choice, *_) = parse(LINE).call, backend.configurations(parse(LINE).call)
    fast, slow = records(choice, 0.96, 1.0), records(choice, 0.98, 1.0)
    for runs, taken in (((fast,), False), ((fast, slow), False), ((fast, fast), True)):
        assert measured.is_fastest(call, card(*runs)) == taken
