"""The PTX that Triton makes of our kernels, run by the interpreter, against the oracle.

Triton's compiler chooses the barriers, swizzles and descriptors here, and its kernels run on GPUs:
exact results are evidence that the interpreter follows the manual.
"""

import re
from unittest import mock

import pytest

from convref.arrays import like
from convref.case import parse
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

import forced

from convref_ptx import Fault
from convref_ptx import parse as parse_ptx
from convref_triton import emulated
from convref_triton.backend import backend
from convref_triton.common.geometry import geometry
from convref_triton.conv import blocks, gather, tma, wgrad
from convref_triton.hopper import gluon, gluon_fprop, gluon_wgrad
from convref_triton.plan.builder import Builder
from convref_triton.plan.task import Task

pytestmark = pytest.mark.skipif(not gluon.KERNELS, reason="the PTX of another Triton differs")
# (kernel, which of its tiles, call): copies of threads, boxes, warps of two kinds, every product.
CASES = (
    (gather, 0, "conv.fprop:n2c72k80_i5x6_f3x2_p1,0x2,1_d2x1:dt=bf16:mem=nhwc"),
    (gather, -1, "conv.fprop:n1c72k40_i5x6_f3_s2_p1:dt=f16:mem=nhwc"),
    (gather, 0, "conv.fprop:n1c72k80_i5x6_f3_p1:mem=nhwc:math=tf32"),
    (gather, 0, "conv.dgrad:n1c40k72_i5x6_f3_s2_p1:dt=bf16:mem=nhwc"),
    (wgrad, 0, "conv.wgrad:n1c72k80_i5x6_f3_p1:dt=bf16:mem=nhwc"),
    (wgrad, 0, "conv.wgrad:n1c24k40_i5x6_f3_p1:mem=nhwc:math=tf32"),
    (tma, -1, "conv.fprop:n2c8k64_i3x4x5_f2x3x1_p1:flip=1:dt=f16"),
    (tma, 1, "conv.dgrad:n2c70k64_i5x6_f3x3_p1,0x0,2_d1x2:dt=bf16:mem=nhwc"),
    (gluon_fprop, -1, "conv.fprop:n3c72k65_i17x13_f3x1:dt=bf16:mem=nhwc"),
    (gluon_fprop, 2, "conv.dgrad:n1c160k128g2_i5x6_f3x3_p1:flip=1:dt=bf16"),
    (gluon_wgrad, -1, "conv.wgrad:n2c64k128_i8x8_f3_p1:dt=bf16:mem=nhwc"),
    (gluon_wgrad, 0, "conv.wgrad:n2c64k128_i8x8_f1_p0:dt=f16:mem=nhwc"),
    (blocks, 1, "conv.fprop:n1c64k64g16_i5x6_f2_p1:dt=bf16:mem=nhwc:fill=normal"),
    (blocks, -1, "conv.dgrad:n1c16k32g4_i20_f1:dt=f16:mem=nwc:fill=inf"),  # group by group
)
IDS = [f"{kernel.__name__.rpartition('.')[2]}-{line}" for kernel, _, line in CASES]


def planned(kernel, pick, case):
    """Return the plan for the first result of a call, on one tile, as for a GPU of sm_90."""
    call = case.call
    tensors, known = forced.facts(call, operands(case))
    on_card = call.on("cuda")
    builder = Builder(on_card, known)
    task = Task(builder, geometry(call.conv), call.wanted[0], arch="sm_90")
    assert kernel.SPEC.refusal(task) is None
    rows = kernel.SPEC.tiles(task)
    kernel.SPEC.add(task, rows[pick % len(rows)])
    return builder.plan(), tensors


def verdict(case, plan, tensors, late, seed=0):
    """Return the judge's verdict on what the PTX of a plan computes."""
    found, given = emulated.run(plan, tensors, seed, late), operands(case)
    results = tuple(
        like(found[role], given[0]) if role in found else None
        for role in case.call.signature.results
    )
    return judge(case.call, given, results, backend.numerics(case.call))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_ptx_is_right_early_and_late(case):
    kernel, pick, line = case
    case = parse(line)
    made, tensors = planned(kernel, pick, case)
    for late in (False, True):
        found = verdict(case, made, tensors, late)
        assert (found.kind, found.reason) == ("pass", "")


@pytest.mark.parametrize(
    "line",
    [
        "conv.backward:n2c12k8g2_i5x6_f3x2_s2_p1,0x1,2_d1x2:dt=bf16:mem=nhwc:fill=normal",
        "conv.wgrad:n2c3k21g3_i8x4_f4x2_s1x3_p5,5x-3,2_d1x2:t=1:dt=f16:fill=normal",
        "max_pool.backward:n2c35_i9x10_f3_s1_p1:mem=nhwc:fill=ties",
        "batch_norm.fprop:n2c35_i3x4:mem=nhwc:fill=normal",
        "conv.jvp:n1c1k1_i1_f1:tan=0",  # a sum of nothing
        "conv.jvp:n2c4k3_i5x4_f2x2_s2_p1:t=1:op=1:tan=b:dt=bf16:mem=nhwc",
        "conv.double_backward:n2c8k8g8_i5x5_f3x3_p1:tan=0:dt=f16",
        "conv.dgrad:n2c8k0_i5x5_f3x3_p1:dt=bf16:mem=nhwc",
        "max_pool.jvp:n2c7_i5_f2:dt=bf16:mem=x.nwc:fill=nan",  # compares pairs
        "conv.double_backward:n1c1k1_i1x6_f1x4_s3:tan=w:fill=subnormal",  # packs what is undefined
        "adaptive_max_pool.jvp:n2c3_i2_o1:mem=x_dot.nwc:fill=ones",  # bytes of four warps
    ],
)
def test_the_court_runs_the_ptx_of_any_kernel(line):
    found = examine(parse(line), emulated.backend)
    assert (found.verdict, found.reason) == ("pass", "")


@pytest.mark.parametrize(
    "line",
    [
        "resize.fprop:n2c5_i4x5_o8x7:mode=nearest:dt=bf16:fill=normal",  # fused, a number each
        "resize.fprop:n2c8_i4x5_o8x8:mode=nearest:dt=bf16:mem=nhwc:fill=inf",  # in pairs
    ],
)
def test_the_court_runs_the_ptx_for_an_older_card(line):
    found = examine(parse(line), emulated.Emulated("triton.emulated.sm_80", "sm_80"))
    assert (found.verdict, found.reason) == ("pass", "")


def more(by):
    return lambda match: f"{match[1]}{int(match[2]) + by}"


# (case, a pattern in its PTX, the faulty text, the symptom).
FAULTS = {
    "copies are used too early": (0, r"(cp\.async\.wait_group\s+)([1-9])", more(2), "waited for"),
    "copies do not wait for products": (0, r"(wgmma\.wait_group\S+\s+)(1)", more(3), "still read"),
    "half of the bytes": (6, r"(expect_tx\S+ _, \[%r\d+\], )(\d+)", more(-64), "all threads wait"),
    "no wait for boxes": (8, r"@!complete bra\.uni waitLoop;", "", "waited for|race"),
    "boxes have another swizzle": (6, r"(\b)(46116862933052948\d\d)", more(1 << 62), "wrong"),
    "slots are not released": (
        9,
        r"@%p\d+ mbarrier\.arrive\.shared[^;]*;",
        "",
        "all threads wait",
    ),
    "sums are stored transposed": (6, r"(stmatrix\S+)\.trans", r"\1", "wrong"),
    "sums are used too early": (10, r"(wgmma\.wait_group\S+\s+)(0)", more(1), "waited for"),
}


@pytest.fixture
def seed_fault(monkeypatch):
    """Return a function that seeds a fault into each PTX text with a pattern; one must have it."""
    counts = []

    def begin(pattern, wrong):
        def edited(text):
            changed, count = re.subn(pattern, wrong, text)
            counts.append(count)
            return parse_ptx(changed)

        monkeypatch.setattr(emulated, "parse", edited)

    yield begin
    assert any(counts), "the fault names text that no longer exists"


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_found(name, seed_fault):
    which, pattern, wrong, how = FAULTS[name]
    kernel, pick, line = CASES[which]
    case = parse(line)
    made, tensors = planned(kernel, pick, case)

    seed_fault(pattern, wrong)
    shown = []
    for late in (False, True):
        try:
            shown.append(verdict(case, made, tensors, late).kind)
        except Fault as fault:
            shown.append(str(fault))
    assert any(re.search(how, reason) for reason in shown), shown


# (line, pattern in its PTX, replacement, verdict and reason).
EMULATED_FAULTS = {
    "a pair is exchanged": (
        "max_pool.jvp:n2c7_i5_f2:dt=bf16:mem=x.nwc:fill=nan",
        r"(setp\.nan\.bf16x2\s+)(%p\d+)\|(%p\d+)",
        r"\1\3|\2",
        "wrong",
    ),
    "an undefined half is used": (
        "conv.double_backward:n1c1k1_i1x6_f1x4_s3:tan=w:fill=subnormal",
        r"(?s)(mov\.b32\s+(%r\d+), {%rs\d+, %rs\d+};.*?)(cvt\.u16\.u32\s+%rs\d+, \2;)",
        r"\1 add.u32 \2, \2, 0; \3",
        "undefined bits",
    ),
    "bytes are not written": (
        "adaptive_max_pool.jvp:n2c3_i2_o1:mem=x_dot.nwc:fill=normal",
        r"st\.shared\.b8[^;]*;",
        "",
        "undefined bits",
    ),
    "bytes are read too early": (
        "adaptive_max_pool.jvp:n2c3_i2_o1:mem=x_dot.nwc:fill=ones",
        r"(st\.shared\.b8[^;]*;\s*)bar\.sync\s+0;",
        r"\1",
        "race",
    ),
}


@pytest.mark.parametrize("name", EMULATED_FAULTS)
def test_the_court_finds_a_seeded_fault(name, seed_fault):
    line, pattern, wrong, how = EMULATED_FAULTS[name]
    seed_fault(pattern, wrong)
    found = examine(parse(line), emulated.backend)
    assert re.search(how, f"{found.verdict} {found.reason}"), found


def test_calls_that_run_together_have_the_results_of_each_alone():
    """Several calls of one kernel, on sizes and data of their own, and one of another kernel."""
    lines = [
        "conv.fprop:n2c8k16_i5x6_f3x3_p1:dt=f16:mem=nhwc:fill=normal",
        "conv.fprop:n2c8k16_i5x6_f3x3_p1:dt=f16:mem=nhwc:fill=nan:seed=3",
        "relu.fprop:n2c3_i5:fill=normal",
        "conv.fprop:n3c8k16_i7x4_f3x3_p1:dt=f16:mem=nhwc:seed=5",
    ]
    cases = list(map(parse, lines))
    given = [operands(case) for case in cases]
    with mock.patch.object(emulated, "launch_all", side_effect=emulated.launch_all) as launches:
        found = emulated.backend.run_many([case.call for case in cases], given)
    assert sorted(len(call.args[1]) for call in launches.call_args_list) == [1, 6]
    for case, arrays, results in zip(cases, given, found):
        alone = emulated.backend.run(case.call, *arrays)
        assert results[0].tobytes() == alone[0].tobytes()
        assert judge(case.call, arrays, results, backend.numerics(case.call))
