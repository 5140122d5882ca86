"""Rows of pixels by tensor maps im2col: the kernels that came along, judged by their PTX.

A program gets several tiles where there are few multiprocessors, as in `test_gluon_numbers`.
"""

from __future__ import annotations

import importlib
import pickle
import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convref.case import Call, Case, Spec, parse
from convref.conformance.operands import operands as arrays_of
from convref.errors import ConvrefError
from convref.ops import ConvProblem

pytest.importorskip("triton", reason="triton is not installed")

import triton
from forced import copies_of, facts, judged, planned
from test_specialize import TYPES

from convref_ptx import Fault
from convref_triton import emulated
from convref_triton.backend import backend
from convref_triton.common.geometry import geometry, operands
from convref_triton.compile import aot, inspection, machine_code, sass
from convref_triton.compile.specialize import Specialization, specialize
from convref_triton.hopper import im2col, precompiled
from convref_triton.plan import archs
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.launch import Launch
from convref_triton.plan.task import Fusion, Task
from convref_triton.run import gpu

FILE = precompiled.load(im2col.NAME)
KERNELS = [pytest.param(k, id="-".join(map(str, key))) for key, k in im2col.kernels().items()]
pytestmark = pytest.mark.skipif(not KERNELS, reason="no file of kernels came along")
SHARED = 227 * 1024  # bytes of a block
# Instructions of a step, and where filters are read as they are stored. The last three run only if
# a warp has to wait for a block.
MARKS = {(128, 256): (46, 47), (128, 128): (54, 57)}
FEW = settings(max_examples=max(settings.default.max_examples // 40, 2))


def test_the_file_is_small_and_compiled_from_the_present_source():
    assert precompiled.path(im2col.NAME).stat().st_size < 70_000
    assert FILE.triton
    count = len(im2col.DTYPES) * len(im2col.RANKS) * len(im2col.TILES)
    assert len(FILE.kernels) == 2 * count  # filters as they are stored, and copied
    assert set(FILE.sources) == set(im2col.SOURCES)
    changed = [m for m, digest in FILE.sources.items() if digest != precompiled.source_digest(m)]
    assert not changed, "run `python -m convref_triton.hopper.precompile`"


def test_kernel_parameters_match_the_compiled_signature():
    pytest.importorskip("triton.experimental.gluon", reason="a Triton without Gluon")
    kernel = importlib.import_module("convref_triton.hopper.gluon_im2col").gluon_im2col
    for made in FILE.kernels:
        assert list(made.signature) == [p.name for p in kernel.params if not p.is_constexpr]


def test_ptx_has_no_paths_or_comments():
    for kernel in FILE.kernels:
        assert not any(mark in kernel.ptx for mark in ("//", "/*", ".loc", ".file", "home", "tmp"))
        assert kernel.ptx.startswith(".version 8.6\n.target sm_90a\n")


@pytest.mark.skipif(triton.__version__ != FILE.triton, reason=f"needs Triton {FILE.triton}")
def test_this_triton_compiles_the_same_ptx(monkeypatch):
    precompile = importlib.import_module("convref_triton.hopper.precompile")
    for name, value in precompile.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for (dtype, rank, tile, transposed), kernel in im2col.kernels().items():
        assert precompile.compile_kernel(dtype, rank, tile, transposed).ptx == kernel.ptx


def compiled(kernel):
    """Return the machine code of a kernel."""
    return aot.compile(Specialization(kernel, kernel.signature, {}, {}, {}), "sm_90")


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_uses_wgmma_without_spills(kernel):
    made = compiled(kernel)
    found = inspection.inspect(made)
    assert (found.operands, found.spills) == ("SS", 0)
    assert found.wait >= 1
    assert found.shared <= SHARED
    assert found.stores == {"STG 16": 32}
    assert set(found.loads) == {f"TMA {kernel.constants['RANK'] + 2}d", "TMA 2d", "LDG 16"}
    assert set(found.loop_loads) == set()
    assert all("wgmma" in product for product in found.mma)
    code = sass.parse(sass.text(made))
    loops = machine_code.loops(code)
    products = [i.position for i in code if sass.read_mma(i)]
    steps = {min((b for b in loops if at in b), key=len) for at in products}
    bm, bn, *_ = kernel.constants["tile"]
    mark = MARKS[bm, bn][kernel.constants["TRANSPOSED"]]
    assert len(steps) == 2  # one of each warp group
    assert max(map(len, steps)) <= mark


def test_precompiled_kernels_pickle():
    kernel = FILE.kernels[0]
    assert pickle.loads(pickle.dumps(kernel)).ptx == kernel.ptx


def test_message_of_the_assembler():
    kernel = replace(FILE.kernels[0], ptx=FILE.kernels[0].ptx.replace("sm_90a", "sm_90"))
    with pytest.raises(aot.CompileError, match="gluon_im2col for sm_90: "):
        compiled(kernel)


def test_launch_with_other_arguments_is_refused():
    launch = Launch(FILE.kernels[0], (1, 1, 1), {"x": 1, "z": 1}, {})
    with pytest.raises(ConvrefError, match=r"^gluon_im2col: .*z: parameters of the launch or"):
        specialize(launch)


def run(call, arrays, pick=0, seed=0, late=False):
    """Return (results by role, roles that were admitted)."""
    tensors, known = facts(call, arrays)
    made, admitted = planned(call.on("cuda"), known, im2col, pick)
    return emulated.run(made, tensors, seed, late), admitted


def check_case(case, pick=0, seed=0, late=False):
    """Judge a case by its one result."""
    arrays = arrays_of(case)
    found, admitted = run(case.call, arrays, pick, seed, late)
    assert admitted == list(case.call.wanted)
    assert judged(case, arrays, found)


def test_grid_has_one_program_per_multiprocessor():
    call = parse("conv.fprop:n8c64k256_i56x56_f3x3_p1:dt=bf16:mem=nhwc").call.on("cuda")
    known = operands(call)
    choice = next(one for one in offered(call, known) if one.kernel == "im2col")
    grids = [plan(call, known, choice, sms=sms).steps[-1].grid[0] for sms in (7, 0, 2**20)]
    assert grids == [7, archs.SMS, grids[2]]
    assert grids[2] > archs.SMS


LINES = (
    "conv.fprop:n2c72k80_i9x10_f3x2_p1,0x2,1_d2x1:dt=f16:mem=nhwc:fill=int",
    "conv.fprop:n5c72k80_i19x21_f3x3_s2_p1:bias=0:dt=bf16:mem=nhwc:fill=int",
    "conv.fprop:n2c72k136_i9x11_f3x2_s2x3_p1,0x2,1_d1x2:flip=1:dt=bf16:mem=nhwc:fill=int",
    "conv.fprop:n3c72k64_i15x15_f1x1_s2:dt=bf16:mem=x.nhwc.step2h,w.ohwi:fill=int",
    "conv.fprop:n2c64k72_i9x10_f3x2_s2_p1:dt=bf16:mem=x.nhwc.off3,w.ohwi.off1,b.off1:fill=int",
    "conv.fprop:n3c40k264_i17x15_f2x2_s8x7_p-1,2x3,-2:dt=f16:mem=nhwc:fill=int",
    "conv.fprop:n1c128k160g2_i5x6_f3x1_p1:flip=1:dt=bf16:fill=int",
    "conv.fprop:n2c8k136_i3x4x5_f2x3x1_s1x2x1_p1:flip=1:dt=bf16:fill=int",
    "conv.fprop:n150c16k64_i1x1_f1x1:dt=f16:mem=nhwc:fill=int",
    "conv.fprop:n2c64k72_i90_f4_s3_p-1,3:dt=bf16:fill=int",
    "conv.fprop:n2c64k72_i5x6_f2x3_p0x1:t=1:dt=f16:mem=nhwc:fill=int",
    "conv.dgrad:n2c128k64_i9x10_f3x3_p1,0x0,2_d1x2:dt=bf16:mem=nhwc:fill=int",
    "conv.dgrad:n1c160k128g2_i5x6_f3x3_p1:flip=1:dt=bf16:fill=int",
    "conv.dgrad:n1c64k16_i4x3x5_f2x1x3_p0,1x2,0x1,1:dt=f16:fill=int",
    "conv.dgrad:n2c72k64_i7x6_f3x2_s2x3_p1x0:t=1:dt=bf16:mem=nhwc:fill=int",
)


@pytest.mark.parametrize("number", range(len(LINES)))
def test_several_tiles_per_program(monkeypatch, number):
    monkeypatch.setattr(archs, "SMS", 1 + number % 2)
    check_case(parse(LINES[number]), number // 2, late=number % 3 > 0)


@st.composite
def cases(draw):
    """Draw forward problems of any stride up to 8, and adjoints of stride 1."""
    rank = draw(st.integers(1, 3))
    each = lambda values: draw(st.lists(values, min_size=rank, max_size=rank))  # noqa: E731
    transposed, adjoint = draw(st.booleans()), draw(st.booleans())
    gathers = transposed == adjoint
    stride = each(st.sampled_from([1, 2, 3, 8] if gathers else [1]))
    filter_, dilation = each(st.integers(1, 3)), each(st.integers(1, 2))
    groups = draw(st.sampled_from([1, 1, 2]))
    reduced = groups * draw(st.sampled_from([8, 40, 64, 72] if groups == 1 else [64, 128]))
    made = groups * draw(st.sampled_from([64, 72, 136]))
    c, k = (made, reduced) if adjoint else (reduced, made)
    try:
        problem = ConvProblem(
            n=draw(st.integers(1, 4)),
            c=c,
            k=k,
            groups=groups,
            input=tuple(each(st.integers(1, 9 if rank < 3 else 4))),
            filter=tuple(filter_),
            stride=tuple(stride),
            padding=tuple(
                (draw(st.integers(-1, 4)), draw(st.integers(-1, 4))) for _ in range(rank)
            ),
            dilation=tuple(dilation),
            transposed=transposed,
            flip=draw(st.booleans()),
        )
    except ConvrefError:
        assume(False)
    assume(all(map(prod, (problem.shape("x"), problem.shape("y")))))
    pass_, mask = ("backward", (True, False, False)) if adjoint else ("fprop", ())
    plain = Call("conv", pass_, problem, mask)
    dtype = draw(st.sampled_from(["bf16", "f16"]))
    call = replace(plain, specs=tuple(Spec(dtype) for _ in plain.roles))
    fill = draw(st.sampled_from(["int", "int", "normal", "inf", "nan"]))
    return Case(call, fill, draw(st.integers(0, 99)))


@FEW
@given(cases(), st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_admitted_problems_are_correct(case, pick, sms, late):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archs, "SMS", sms)
        check_case(case, pick, pick, late)


def test_unaligned_operands_are_copied():
    (call,) = (parse(line).call.on("cuda") for line in LINES if "b.off1" in line)
    (choice, *_) = (c for c in offered(call, operands(call)) if c.kernel == "im2col")
    copies = copies_of(plan(call, operands(call), choice))
    assert sorted(source for source, _ in copies) == ["b", "w", "x"]


def test_unread_elements_do_not_reach_the_result():
    """Pixels between strides, channels of another group, and images beyond the last."""
    case = parse("conv.fprop:n2c128k128g2_i5x7_f1x1_s2:bias=0:dt=bf16:mem=nhwc:fill=int")
    x, w, b = (None if a is None else a.copy() for a in arrays_of(case))
    x[:, :, 1::2], x[:, :, :, 1::2], x[:, 64:], w[64:] = np.nan, np.inf, np.inf, np.inf
    for pick in range(2):
        y = run(case.call, (x, w, b), pick)[0]["y"].float().numpy()
        assert np.isfinite(y[:, :64]).all()
        assert not np.isfinite(y[:, 64:]).any()


def test_bits_repeat_in_any_schedule(monkeypatch):
    monkeypatch.setattr(archs, "SMS", 2)
    case = parse("conv.fprop:n3c72k136_i9x11_f3x2_s2_p1:dt=bf16:mem=nhwc:fill=normal")
    arrays = arrays_of(case)
    found = [
        run(case.call, arrays, 1, seed, late)[0]["y"] for seed, late in ((0, False), (1, True))
    ]
    assert torch.equal(*found)


# A fault: a pattern in the PTX, its replacement, the message, or none if the sums differ.
FAULTS = {
    "no wait for rows": (r"@!complete bra\.uni waitLoop;", "", "race|waited|parity"),
    "no tap is aside": (r"cvt\.u16\.u32\s+(%rs\d+), %r\d+;", r"mov.b16 \1, 0;", None),
    "taps turned": (r"(im2col\.mbarrier.*\{)(%rs\d+), (%rs\d+)\}", r"\1\3, \2}", None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_edited_ptx_fails(monkeypatch, name):
    pattern, instead, told = FAULTS[name]
    slipped = {}
    for key, kernel in im2col.kernels().items():
        text, count = re.subn(pattern, instead, kernel.ptx)
        assert count or key[1] == 3, "the slip names what is no more"
        slipped[key] = replace(kernel, ptx=text)
    monkeypatch.setattr(im2col, "kernels", lambda: slipped)
    with pytest.raises(Fault if told else AssertionError, match=told):
        check_case(parse(LINES[0]), late=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv.fprop:n2c64k64_i9x9_f3x3_p1:dt=bf16", "the interpreter takes no PTX"),
        ("conv.fprop:n2c64k64_i9x9_f3x3_p1:dt=f32:dev=cuda", "f32 is not a 16-bit dtype"),
        ("conv.fprop:n2c20k64_i9x9_f3x3_p1:dt=bf16:dev=cuda", "rows of 20 channels do not start"),
        (
            "conv.fprop:n2c64k68_i9x9_f3x3_p1:dt=bf16:dev=cuda",
            "68 result channels are not a multiple of a vector",
        ),
        ("conv.fprop:n2c64k64_i99x9_f3x3_s9_p1:dt=bf16:dev=cuda", "an adjoint of stride 1, or"),
        ("conv.dgrad:n2c64k64_i9x9_f3x3_s2_p1:dt=bf16:dev=cuda", "an adjoint of stride 1, or"),
        ("conv.fprop:n2c64k64_i9x9_f3x3_p129:dt=bf16:dev=cuda", "padding and filter exceed"),
        (
            "conv.fprop:n2c64k64_i9x900_f1x3_d1x128_p0x128:dt=bf16:dev=cuda",
            "the distance of the last tap",
        ),
        ("conv.fprop:n1c64k64_i9x9x40_f1x1x2_d1x1x32:dt=bf16:dev=cuda", "padding and filter"),
    ],
)
def test_im2col_is_not_offered(line, reason):
    call = parse(line).call
    assert "im2col" not in {choice.kernel for choice in offered(call, operands(call))}
    assert f"no im2col: {reason}" in plan(call, operands(call)).reason


def test_two_products_are_refused():
    call = parse("conv.jvp:n2c64k64_i9x9_f3x3_p1:dt=bf16:dev=cuda").call
    builder = Builder(call, operands(call))
    y, y_dot = (Task(builder, geometry(call.conv), role) for role in ("y", "y_dot"))
    assert im2col.SPEC.refusal(y) is None
    assert im2col.SPEC.refusal(y_dot) == "one product, and nothing after it but a bias"
    fused = replace(y, fusion=Fusion(activation="relu"))
    assert im2col.SPEC.refusal(fused) == im2col.SPEC.refusal(y_dot)


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_other_architectures_are_refused(arch):
    call = parse(LINES[1]).call.on("cuda")
    assert f"no im2col: {arch} has no wgmma" in plan(call, operands(call), arch=arch).reason


def test_im2col_is_considered_for_every_call(device, monkeypatch):
    monkeypatch.setattr(gpu, "cuda", lambda index: device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for line in LINES:
        call = parse(line).call.on("cuda")
        assert "im2col " in plan(call, operands(call)).reason.partition("; no ")[0]
        mine = [c for c in backend.configurations(call) if c.kernel == "im2col"]
        assert len(mine) == len(im2col.TILES)
        assert all(c.source and not c.unproven for c in mine)


def test_launch_through_the_driver(device):
    call = parse("conv.fprop:n4c72k136_i9x11_f3x2_s2x3_p1,0x2,1:dt=bf16:mem=nhwc").call.on("cuda")
    for choice in (c for c in offered(call, operands(call)) if c.kernel == "im2col"):
        ready = gpu.prepare(plan(call, operands(call), choice), device)
        ordered = [operands(call)[role] for role in ready.roles]
        given = [torch.empty_strided(t.shape, t.strides, dtype=TYPES[t.dtype]) for t in ordered]
        device.driver.log()
        ready(given)
        log = device.driver.log()
        assert sum(" block 384 1 1 " in line for line in log) == 1
        (pixels,) = (line for line in log if line.startswith("im2col "))
        assert "dim 72 11 9 4 strides 144 1584 14256 corners -2:0 -1:-3 " in pixels
        assert pixels.endswith("box 64 128 every 1 3 2 1 0 3 2 0")


def test_inspect_im2col_by_kernel_and_tile():
    call = parse(LINES[1]).call
    (shown,) = (s for s in backend.inspect(call, "sm_90", "im2col 128x128") if "im2col" in s.title)
    assert "wgmma m64n128k16 from SS" in shown.facts["products"]
