"""Epilogues fused into every kernel that gathers: values, rounding, NaN, overflow.

The sums are the oracle's, in float64, and so is the epilogue here; the bound of a result's
error follows from the intermediate roundings in float32 and from the last one.
"""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from forced import facts

from convref import dtypes
from convref.case import parse
from convref.conformance.operands import operands
from convref.judge import bound, reference

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton import emulated
from convref_triton.backend import backend
from convref_triton.common.epilogue import ACTIVATIONS
from convref_triton.common.geometry import Tensor, geometry
from convref_triton.common.reorder import reorder
from convref_triton.conv import (
    blocks,
    classes,
    columns,
    direct,
    dual,
    flat,
    gather,
    planes,
    split,
    tma,
)
from convref_triton.depthwise import depthwise, depthwise_strided
from convref_triton.hopper import gluon, im2col
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import plan
from convref_triton.plan.kernels import serving
from convref_triton.plan.task import Fusion, Task
from convref_triton.run import interpreted

LINES = (
    (gather, "conv.fprop:n2c5k9_i5x4_f3x2_s2x1_p1:dt=bf16"),
    (gather, "conv.fprop:n2c3k4g1_i4x3_f3x3_s2_p1:t=1:dt=f32:mem=nhwc"),
    (gather, "conv.fprop:n3c8k40_i4x4_f1x1:dt=f16:mem=nhwc"),  # pixels as one axis
    (flat, "conv.fprop:n2c3k11_i7x6_f3x3_s2_p1:dt=f16"),
    (flat, "conv.fprop:n1c24k16_i5x4_f3x3_p1:dt=bf16:mem=nhwc"),
    (depthwise, "conv.fprop:n2c6k12g6_i9x5_f3x3_p1:dt=bf16:mem=nhwc"),
    (depthwise, "conv.fprop:n1c5k5g5_i9x7_f3x3_p1:t=1:dt=f32"),
    (depthwise_strided, "conv.fprop:n1c5k5g5_i4x3_f3x3_s2_p1:t=1:dt=bf16:mem=nhwc"),
    (direct, "conv.fprop:n2c8k12g4_i6x5_f3x3_s2_p1:dt=f16:mem=nhwc"),
    (direct, "conv.fprop:n2c4k4g4_i5x4_f3x3_s2_p1:t=1:dt=bf16"),
    (blocks, "conv.fprop:n2c16k32g4_i5x4_f3x3_s2_p1:dt=f16:mem=nhwc"),
    (split, "conv.fprop:n1c640k14_i2x3_f1x1:dt=f32"),
    (split, "conv.fprop:n1c4000k12_i2x1_f1x1:dt=bf16:mem=nhwc"),
    (split, "conv.fprop:n1c1280k12g2_i2x2_f2x2_s2:t=1:dt=f32"),
    (tma, "conv.fprop:n2c16k72_i4x3_f3x2_p1:dt=bf16:mem=nhwc"),
    (tma, "conv.fprop:n1c64k128g1_i3x3_f3x3_p1:t=1:dt=f16"),
    (columns, "conv.fprop:n2c16k72_i4x3_f3x2_p1:dt=bf16:mem=nhwc"),
    (columns, "conv.fprop:n1c64k104_i3x3_f3x3_p1:t=1:dt=f16"),
    (planes, "conv.fprop:n2c64k72_i4x3_f3x2_p1:dt=bf16:mem=w.ohwi"),
    (classes, "conv.fprop:n1c16k3_i5x4_f4x4_s2_p1:t=1:dt=bf16:mem=nhwc"),
)
PARTS = ("scale", "shift", "residual")
HALF_ULP = 2.0**-24
OVERFLOWS = -88.0  # below it exp(-v) may be infinite in float32, and silu 0
# Largest slope of each activation, and what computing it in float32 adds to |v| and to |f(v)|, in
# half units in the last place: exp errs by |v| + 4 of them, erf by 4 of one, a division by 4.
SLOPE = {"": 1.0, "relu": 1.0, "silu": 1.1, "gelu": 1.13, "hardswish": 1.5}
OF_V = {"gelu": 4.0, "hardswish": 4.0}
WIDE = {
    "": lambda v: v,
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": lambda v: v * torch.special.erfc(-v * 0.5**0.5) / 2,  # PyTorch's has NaN at infinity
    "hardswish": F.hardswish,
}


def fused(case, kernel, fusion, extra, tile=None, run=interpreted.run):
    """Return y of a case computed by `kernel` with `fusion`, whose operands are `extra`."""
    call = case.call
    tensors, known = facts(call, operands(case))
    tensors |= extra
    known |= {n: Tensor(n, tuple(t.shape), t.stride(), call.dtype) for n, t in extra.items()}
    builder = Builder(call, known)
    task = Task(builder, geometry(call.conv), "y", fusion)
    assert kernel.SPEC.refusal(task) is None
    kernel.SPEC.add(task, tile or kernel.SPEC.best(task))
    return run(builder.plan(), tensors)["y"]


def drawn(case, names, seed, spread=1.0):
    """Return the operands of an epilogue by name."""
    made = torch.Generator().manual_seed(seed)
    shape, dtype = case.call.problem.shape("y"), interpreted.TYPES[case.call.dtype][0]
    sizes = {"residual": shape, "scale": (shape[1],), "shift": (shape[1],)}
    return {n: (spread * torch.randn(sizes[n], generator=made)).to(dtype) for n in names}


def along_channels(vector, rank):
    return vector.double().reshape(-1, *[1] * rank)


def expected(case, extra, activation):
    """Return (value, how far a result may be from it), in float64."""
    single = replace(case.call, specs=tuple(replace(s, dtype="f32") for s in case.call.specs))
    arrays = tuple(None if a is None else a.astype(np.float32) for a in operands(case))
    told = reference(single, arrays)
    numerics = backend.numerics(single)
    limit = bound(single, "y", told.values[0], told.sums[0], numerics, told.largest)
    v, e = torch.from_numpy(told.values[0]), torch.from_numpy(limit)
    rank = case.call.problem.rank
    tiny = dtypes.number("f32").eta
    for name, value in extra.items():
        t = value.double() if name == "residual" else along_channels(value, rank)
        v, e = (v * t, e * t.abs() + tiny) if name == "scale" else (v + t, e)
        e = e + HALF_ULP * (v.abs() + e)
    value = WIDE[activation](v)
    own = OF_V.get(activation, 0.0) * v.abs() + 2 * value.abs()
    if activation == "silu":
        own = (v.abs() + 10) * value.abs()
    if activation:
        e = SLOPE[activation] * e + HALF_ULP * own + tiny
    if activation == "silu":
        e = e + torch.where(v - e < OVERFLOWS, value.abs(), 0)
    if case.call.dtype != "f32":
        out = dtypes.number(case.call.dtype)
        e = e + out.u * (value.abs() + e) + out.eta / 2
    return value, e


def assert_within(case, got, value, limit):
    """Check a result against its bound; an infinity of the right sign is correct on overflow."""
    out = dtypes.number(case.call.dtype)
    overflows = got.isinf() & (got.sign() == value.sign())
    overflows &= value.abs() + limit >= out.huge * (1 - out.u)
    fine = ((got.double() - value).abs() <= limit) | overflows
    assert fine.all(), f"{(~fine).sum()} of {fine.numel()} beyond the bound"


@pytest.mark.parametrize(
    ("kernel", "line", "activation"),
    [(*pair, name) for i, pair in enumerate(LINES) for name in (ACTIVATIONS * 2)[i % 5 :][:3]],
)
def test_values_are_within_the_bound(kernel, line, activation):
    case = replace(parse(line), fill="normal", seed=5)
    chosen = {"relu": ("scale",), "silu": ("shift", "residual"), "gelu": ("residual",)}
    names = chosen.get(activation, PARTS)
    extra = drawn(case, names, 7)
    fusion = Fusion(**{n: n for n in names}, activation=activation)
    got = fused(case, kernel, fusion, extra)
    value, limit = expected(case, extra, activation)
    assert_within(case, got, value, limit)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "hardswish"])
@pytest.mark.parametrize("late", [False, True])
def test_emulated_ptx_is_within_the_bound(activation, late):
    """The PTX, run by our PTX interpreter; each activation after another kernel's sums."""
    pairs = {"relu": LINES[5], "silu": LINES[0], "gelu": LINES[12], "hardswish": LINES[4]}
    kernel, line = pairs[activation]
    case = replace(parse(line), fill="normal", seed=5)
    extra = drawn(case, PARTS, 7)
    fusion = Fusion(*PARTS, activation=activation)
    got = fused(case, kernel, fusion, extra, run=partial(emulated.run, late=late))
    assert_within(case, got, *expected(case, extra, activation))


@pytest.mark.parametrize(("kernel", "line"), [LINES[i] for i in (0, 3, 5, 7, 9, 12)])
@pytest.mark.parametrize("spread", [2e4, 1e38])
def test_large_values_saturate_where_they_overflow(kernel, line, spread):
    """float16 ends at 65504; the gate of hardswish must not end float32 and bfloat16 early."""
    case = replace(parse(line), fill="int")
    extra = drawn(case, ("residual",), 3, spread=1.0)
    residual = (extra["residual"].double() * spread).to(extra["residual"].dtype)
    extra = {"residual": residual.nan_to_num(posinf=6e4, neginf=-6e4)}
    for activation in ("", "silu", "hardswish"):
        got = fused(case, kernel, Fusion(residual="residual", activation=activation), extra)
        value, limit = expected(case, extra, activation)
        assert_within(case, got, value, limit)


@pytest.mark.parametrize(("kernel", "line"), LINES)
def test_each_part_alone_is_exact_on_integers(kernel, line):
    case = replace(parse(line), fill="int", seed=2)
    plain = fused(case, kernel, Fusion(), {})
    shape, dtype = plain.shape, plain.dtype
    rank = len(shape) - 2
    vector = torch.arange(shape[1]).remainder(5).sub(2).to(dtype)
    residual = torch.arange(plain.numel()).reshape(shape).remainder(7).sub(3).to(dtype)
    across = along_channels(vector, rank)
    value, _ = expected(case, {}, "")
    for name, given, wanted in (
        ("scale", vector, value * across),
        ("shift", vector, value + across),
        ("residual", residual, value + residual.double()),
    ):
        got = fused(case, kernel, Fusion(**{name: name}), {name: given})
        assert torch.equal(got, wanted.to(dtype)), name
    got = fused(case, kernel, Fusion(activation="relu"), {})
    assert torch.equal(got, value.relu().to(dtype))


@pytest.mark.parametrize("fill", ["nan", "inf"])
@pytest.mark.parametrize(("kernel", "line"), LINES[::3])
def test_nonfinite_values_propagate(kernel, line, fill):
    case = replace(parse(line), fill=fill, seed=1)
    plain = fused(case, kernel, Fusion(), {})
    for activation in ACTIVATIONS[1:]:
        got = fused(case, kernel, Fusion(activation=activation), {})
        told = WIDE[activation](plain.double())
        for kind in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(kind(got), kind(told.to(got.dtype))), (activation, kind)


@pytest.mark.parametrize(
    ("layout", "expands"), list(product(("nchw", "nhwc"), (False, True))), ids=str
)
def test_residual_in_any_memory_layout(layout, expands):
    case = replace(parse("conv.fprop:n2c16k24_i4x5_f3x3_p1:dt=bf16:mem=nhwc"), fill="int")
    shape = case.call.problem.shape("y")
    residual = torch.arange(24.0).remainder(5).to(torch.bfloat16)
    residual = residual.reshape(1, -1, 1, 1).expand(shape)
    if not expands:
        memory = torch.channels_last if layout == "nhwc" else torch.contiguous_format
        residual = residual.contiguous(memory_format=memory)
    value, _ = expected(case, {"residual": residual}, "relu")
    for kernel in (gather, flat):
        fusion = Fusion(residual="residual", activation="relu")
        got = fused(case, kernel, fusion, {"residual": residual})
        assert torch.equal(got, value.to(torch.bfloat16))


def test_every_kernel_that_gathers_is_in_the_list_or_admits_no_epilogue():
    listed = {kernel.SPEC for kernel, _ in LINES}
    gathering = {spec for kind in ("gather", "scatter") for spec in serving(kind)}
    as_ptx = {im2col.SPEC, *gluon.KERNELS, *gluon.ABSENT}  # the interpreter of Triton runs none
    assert gathering - as_ptx == listed | {dual.SPEC}
    call = parse("conv.jvp:n1c8k8_i4x4_f3x3_p1").call
    _, known = facts(call, operands(parse("conv.jvp:n1c8k8_i4x4_f3x3_p1")))
    task = Task(Builder(call, known), geometry(call.conv), "y", Fusion(activation="relu"))
    assert dual.SPEC.refusal(task) == "an epilogue has a derivative of its own"


@pytest.mark.parametrize(("kernel", "line"), LINES[4:])
def test_a_fused_plan_takes_the_same_kernel(kernel, line):
    case = parse(line)
    _, known = facts(case.call, operands(case))
    fused_ = plan(case.call, known, fusion=Fusion(activation="silu"))
    plain = plan(case.call, known)
    assert fused_.reason.partition(" (")[0] == plain.reason.partition(" (")[0]
    launch = next(step for step in fused_.launches[::-1] if step.kernel is not reorder)
    assert launch.constants["ACTIVATION"] == "silu"  # of parts it follows their sum
