"""The compiled configurations meet the expectations, which detect regressions."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import triton

from convref.case import parse
from convref_triton.common.geometry import operands
from convref_triton.compile import aot, classes, expectations
from convref_triton.compile.expectations import inspected, shortfalls
from convref_triton.compile.layouts import Access
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.kernels import KERNELS

OURS = triton.__version__.startswith("3.6.")
PLAIN = ("fprop", "wgrad")
COMPILER = pytest.mark.skipif(not OURS, reason="the budgets are of Triton 3.6")
# Instructions per step of a kernel's reference configuration: line, choice, budget.
REFERENCE = {
    "gather": ("conv.fprop:n8c256k256_i28x28_f3x3_p1:bias=0", "gather 128x128x64 w8 s4", 118),
    "dual": ("conv.jvp:n8c256k256_i28x28_f3x3_p1:bias=0", "dual 128x128x64 w8 s3", 189),
    "flat": ("conv.fprop:n8c4k256_i28x28_f3x3_p1:bias=0", "flat 128x128x32 w8 s4 run4", 102),
    "tma": ("conv.fprop:n8c256k256_i28x28_f3x3_p1:bias=0", "tma 128x128x64 w8 s4", 95),
    "wgrad": ("conv.wgrad:n8c256k256_i28x28_f3x3_p1:bias=0", "wgrad 128x128x64 w8 s4 run8", 193),
}


def compiled_here(specimens, arch="sm_90"):
    """Return the specimens, compiled here: a worker process would first import triton."""
    wanted = list(specimens)
    for specimen in wanted:
        with contextlib.suppress(aot.CompileError):
            aot.compile(specimen.specialization, arch)
    return wanted


def hold(specimens, arch="sm_90"):
    """Assert that no configuration falls short."""
    results = inspected(specimens, arch)
    assert results
    wrong = {str(s): texts for s, found in results if (texts := shortfalls(s, found))}
    assert not wrong, "\n".join(f"{name}: {'; '.join(texts)}" for name, texts in wrong.items())


@COMPILER
def test_choices_for_the_largest_sizes():
    """The table's choices; without groups all large tiles, which use the most registers."""
    examples = classes.examples(("by_16",), ("bf16",))
    examples = [e for e in examples if e.shape in (*PLAIN, "jvp")]
    plain = [e for e in examples if e.shape in PLAIN and not e.groups]
    every = classes.specimens(plain, every=True)
    large = [s for s in every if s.choice.tile.bm * s.choice.tile.bn >= 128 * 128]
    assert len({s.kernel for s in large}) > 3
    hold(compiled_here([*large, *classes.specimens(examples, every=False)]))


@COMPILER
@pytest.mark.parametrize("size", ["by_8", "odd"])
def test_the_choices_of_the_table(size):
    hold(compiled_here(classes.specimens(classes.examples((size,), ("bf16",)), every=False)))


@pytest.mark.nightly(reason="some 2,700 compilations an architecture")
@COMPILER
@pytest.mark.parametrize("arch", aot.ARCHS)
def test_every_configuration(arch):
    hold(classes.all_specimens(arch), arch)


def launched(line, title):
    """Return the specimen of a line on the choice with a title, for the kernel of that name."""
    call = parse(f"{line}:dt=bf16:mem=nhwc").call
    choice = next(c for c in offered(call, operands(call)) if str(c) == title)
    (launch,) = (
        step
        for step in plan(call, operands(call), choice).launches
        if step.kernel.__name__ == choice.kernel
    )
    shape = line.partition(":")[0].partition(".")[2]
    example = classes.Example("", shape, "by_16", "bf16", line)
    return classes.Specimen(example, choice, launch, "sm_90")


@COMPILER
@pytest.mark.parametrize("kernel", REFERENCE)
def test_budgets_of_the_reference_configurations(kernel):
    line, title, budget = REFERENCE[kernel]
    ((_, found),) = inspected(compiled_here([launched(line, title)]), "sm_90")
    assert found.loop <= budget


@COMPILER
def test_few_result_channels_read_filters_16_bytes_at_a_time():
    """The gradient of a stem: a copy of the filters has the 64 reduced channels innermost."""
    line, title = "conv.dgrad:n2c3k64_i32x32_f7x7_s2_p3:bias=0", "gather 64x32x32 w4 s4"
    ((_, found),) = inspected(compiled_here([launched(line, title)]), "sm_90")
    assert set(found.loop_loads) == {"cp.async 16"}
    assert not found.spills


# Regressions: each must be reported, alone.


@pytest.fixture(scope="module")
def strong():
    """Return (a specimen that meets all expectations, its inspected binary)."""
    ((specimen, found),) = inspected(compiled_here([launched(*REFERENCE["gather"][:2])]), "sm_90")
    assert not shortfalls(specimen, found)
    return specimen, found


SHORT_ROWS = Access("load", (128, 64), "bf16", 1, 16, 32)
REGRESSIONS = {
    "a spill": ({"spills": 2}, "2 accesses to local memory, needs none"),
    "an early write": (
        {"overwritten": ("MOV R4, R8 at 0x10",)},
        "MOV R4, R8 at 0x10 while a wgmma is in flight",
    ),
    "another instruction": ({"mma": {"mma.sync m16n8k16": 64}}, "products by mma.sync m16n8k16"),
    "no products": ({"mma": {}}, "products by nothing, needs wgmma"),
    "register operands": ({"operands": "RS"}, "operands RS, needs SS"),
    "no product in flight": ({"wait": 0}, "0 products in flight at the wait, needs 1"),
    "narrow loads": ({"loop_loads": {"cp.async 16": 4, "cp.async 4": 8}}, "loads of 4 B"),
    "fewer stages": ({"shared": 66_560}, "needs 4 stages of 32768 B"),
    "more stages": (
        {"shared": 164_864},
        "needs at most 133120 B for its stages",
    ),
    "a long loop": ({"loop": 400}, "400 instructions in the hot loop, needs at most 313"),
    "short rows": ({"accesses": (SHORT_ROWS,)}, "needs coalesced rows"),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_are_reported(strong, name):
    change, text = REGRESSIONS[name]
    specimen, found = strong
    (wrong,) = shortfalls(specimen, replace(found, **change))
    assert text in wrong


@pytest.fixture(scope="module")
def row():
    """Return (a launch of layer norm that meets all expectations, its inspected binary)."""
    examples = [e for e in classes.examples(("by_16",), ("bf16",)) if e.shape == "layer_norm_fprop"]
    ((specimen, found),) = inspected(
        compiled_here(classes.specimens(examples, every=False)), "sm_90"
    )
    assert not shortfalls(specimen, found)
    return specimen, found


NARROW = Access("load", (4, 1024), "bf16", 1, 4, 128)
ROW_REGRESSIONS = {
    "a spill": ({"spills": 2}, "2 accesses to local memory, needs none"),
    "a long program": ({"program": 9_000}, "9000 instructions, needs at most"),
    "narrow loads": ({"accesses": (NARROW,)}, "needs 16 B a thread"),
}


@COMPILER
@pytest.mark.parametrize("name", ROW_REGRESSIONS)
def test_regressions_without_products_are_reported(row, name):
    change, text = ROW_REGRESSIONS[name]
    specimen, found = row
    (wrong,) = shortfalls(specimen, replace(found, **change))
    assert text in wrong


def test_a_refusal_of_the_compiler_is_reported(strong):
    specimen, _ = strong
    assert shortfalls(specimen, aot.CompileError("gather: refused")) == ["gather: refused"]


def test_more_shared_memory_than_the_architecture_has_is_reported(strong):
    specimen, found = strong
    wrong = shortfalls(specimen, replace(found, shared=250_000))
    assert any("needs at most 232448 B" in text for text in wrong)


@pytest.mark.parametrize(
    ("worse", "text"),
    [
        (lambda launch: replace(launch, stages=1), "needs 4 stages"),
        (
            lambda launch: replace(
                launch, arguments=launch.arguments | unaligned(launch.arguments)
            ),
            "loads of 2 B",
        ),
    ],
    ids=["one stage", "unaligned operands"],
)
def test_worse_code_is_reported(strong, worse, text):
    specimen, _ = strong
    launch = specimen.launch
    bad = specimen._replace(launch=worse(launch))
    ((_, found),) = inspected(compiled_here([bad]), "sm_90")
    assert any(text in wrong for wrong in shortfalls(specimen, found))


@COMPILER
def test_an_accumulator_that_spills_is_reported():
    specimen = launched(REFERENCE["gather"][0], "gather 128x256x64 w8 s3")
    few = specimen._replace(launch=replace(specimen.launch, warps=4))
    ((_, found),) = inspected(compiled_here([few]), "sm_90")
    assert any("local memory" in wrong for wrong in shortfalls(specimen, found))


def unaligned(arguments):
    slots = {name: value for name, value in arguments.items() if hasattr(value, "aligned")}
    return {name: slot._replace(aligned=False) for name, slot in slots.items()}


def test_every_weakness_is_of_some_configuration():
    weaker = list(expectations.WEAKER)
    named = {name for spec in KERNELS for name in spec.expects.serialised}
    for specimen in classes.all_specimens("sm_90"):
        if expectations.expectation(specimen).products:
            weaker = [each for each in weaker if not each.applies(specimen)]
            named.discard(expectations.configuration(specimen))
        if not weaker and not named:
            return
    pytest.fail(f"of no configuration: {[each.reason for each in weaker]}, {named}")


def test_weaker_expectation_has_a_reason():
    for spec in KERNELS:
        weaker = spec.expects.operands != "SS" or not spec.expects.in_flight
        assert bool(spec.expects.why) is weaker, spec.name
