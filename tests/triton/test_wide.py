"""Offsets beyond 32 bits: in every kernel by far strides, and on a GPU by large images."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
import torch
from forced import facts, planned

from convref.arrays import to_torch
from convref.case import parse
from convref.conformance.operands import operands

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common.geometry import operands as layouts
from convref_triton.conv import (
    bgrad,
    classes,
    columns,
    direct,
    direct_wgrad,
    dual,
    flat,
    gather,
    planes_wgrad,
    split,
    wgrad,
)
from convref_triton.depthwise import depthwise, depthwise_strided, depthwise_taps, depthwise_wgrad
from convref_triton.interpreter import StrictError, memory
from convref_triton.plan.choose import plan, refusal
from convref_triton.run import interpreted
from convref_triton.unfold import unfold

# A kernel, its limit, a line whose tile spans three images, and the operand with wide strides.
FAR = (
    (gather, gather, "conv.fprop:n3c8k16_i2x2_f1x1:dt=bf16:mem=nhwc", "x"),
    (split, gather, "conv.fprop:n3c640k8_i2x2_f1x1:dt=f32:mem=nhwc", "x"),
    (flat, gather, "conv.fprop:n3c8k8_i4x3_f3x3_s2_p1:dt=bf16:mem=nhwc", "x"),
    (dual, gather, "conv.jvp:n3c8k8_i2x3_f2x2:dt=bf16:mem=nhwc:tan=w", "x"),
    (depthwise, depthwise, "conv.fprop:n3c3k3g3_i4x3_f3x3_p1:dt=bf16", "x"),
    (
        depthwise_strided,
        depthwise_strided,
        "conv.dgrad:n3c3k3g3_i4x3_f3x3_s2_p2:dt=bf16:mem=nhwc",
        "dy",
    ),
    (direct, direct, "conv.fprop:n3c4k4g2_i3x2_f2x2_s2_p1:dt=bf16", "x"),
    (wgrad, wgrad, "conv.wgrad:n3c8k8_i3x2_f2x2:dt=bf16:mem=nhwc", "x"),
    (planes_wgrad, planes_wgrad, "conv.wgrad:n3c8k8_i2x4_f1x1:dt=bf16", "x"),
    (direct_wgrad, direct_wgrad, "conv.wgrad:n3c3k3g3_i4x3_f3x3_p1:dt=bf16", "x"),
    *(
        (kernel, depthwise_wgrad, "conv.wgrad:n3c3k3g3_i4x3_f3x3_p1:dt=bf16:mem=nhwc", "x")
        for kernel in (depthwise_taps, depthwise_wgrad)
    ),
    (bgrad, bgrad, "conv.bgrad:n3c1k5_i3x2_f1x1:dt=bf16", "dy"),
    (unfold, unfold, "unfold.fprop:n3c3_i4x3_f3x2_p1:dt=bf16", "x"),
    (unfold, unfold, "fold.fprop:n3c3_i4x3_f3x2_p1:dt=bf16", "cols"),
)
ROWS = (
    (gather, "conv.fprop:n1c8k8_i2x2_f5x5_p2:dt=bf16:mem=nhwc", "x"),
    (gather, "conv.dgrad:n1c8k8_i4x4_f5x5_s2_p2:dt=bf16:mem=nhwc", "dy"),
    (flat, "conv.fprop:n1c8k8_i2x2_f5x5_p2:dt=bf16:mem=nhwc", "x"),
    (split, "conv.fprop:n1c640k8_i2x2_f5x5_p2:dt=bf16:mem=nhwc", "x"),
    (columns, "conv.fprop:n1c8k8_i2x2_f5x5_p2:dt=bf16:mem=nhwc", "x"),
    (classes, "conv.dgrad:n1c8k8_i4x4_f5x5_s2_p2:dt=bf16:mem=nhwc", "dy"),
    (direct, "conv.fprop:n1c8k8g8_i2x2_f5x5_p2:dt=bf16:mem=nhwc", "x"),
    (depthwise, "conv.fprop:n1c8k8g8_i2x2_f1x1_p1:dt=bf16:mem=nhwc", "x"),
    (depthwise, "conv.dgrad:n1c8k8g8_i2x2_f3x3_p1:dt=bf16:mem=nhwc", "dy"),
    (depthwise_strided, "conv.dgrad:n1c8k8g8_i4x4_f5x5_s2_p2:dt=bf16:mem=nhwc", "dy"),
    (depthwise_strided, "conv.dgrad:n1c8k8g8_i12x12_f2x2_s2_p-4:dt=bf16:mem=nhwc", "dy"),
    (wgrad, "conv.wgrad:n1c8k8_i2x2_f5x5_p2:dt=bf16:mem=nhwc", "x"),
    *(
        (kernel, "conv.wgrad:n1c8k8g8_i2x2_f5x5_p2:dt=bf16:mem=nhwc", "x")
        for kernel in (direct_wgrad, depthwise_taps, depthwise_wgrad)
    ),
    (direct_wgrad, "conv.wgrad:n1c8k8g8_i2x2_f1x1_p1:dt=bf16:mem=nhwc", "x"),
    *(
        (kernel, "conv.wgrad:n1c8k8g8_i2x2_f1x1_s2_p1:dt=bf16:mem=nhwc", "x")
        for kernel in (depthwise_taps, depthwise_wgrad)
    ),
    (unfold, "unfold.fprop:n1c8_i2x2_f5x5_p2:dt=bf16:mem=nhwc", "x"),
    (unfold, "fold.fprop:n1c1_i2x1_f3x1_p1x0:dt=bf16", "cols"),
    (None, "avg_pool.fprop:n1c8_i2x2_f4x4_p2:dt=bf16:mem=nhwc", "x"),
    (None, "avg_pool.backward:n1c8_i1x1_f4x4_p2:dt=bf16:mem=nhwc", "dy"),
    (None, "conv_integer.fprop:n1c16k8_i2x2_f5x5_p2:dt=i8:mem=nhwc", "x"),
    (None, "resize.backward:n1c8_i2x2_o2x2:scale=1x1:dt=bf16:mem=nhwc", "dy"),
)
OTHER_AXES = (  # that kernels multiply by in 32 bits, whatever they span: axes of an operand
    (direct, "conv.fprop:n1c6k6g2_i2x2_f1x1:dt=bf16", "w", 1),
    (wgrad, "conv.wgrad:n1c4k4g2_i2x2_f1x1:dt=bf16:mem=nhwc", "x", 1),
    (None, "batch_norm.backward:n3c4_i1:dt=f32", "dy", 0),
)
APART = 2**30  # elements: the distance of two images wraps around in 32 bits


def spread(case, role):
    """Return the operands of a case by role, with the images of one 2**31 elements apart."""
    tensors, known = facts(case.call, operands(case))
    near = tensors[role]
    pages = torch.empty(2 * APART + 8 * near.numel(), dtype=near.dtype)  # unless touched, free
    strides = (APART, *near.stride()[1:])
    tensors[role] = pages.as_strided(near.shape, strides).copy_(near)
    return tensors, known | {role: known[role]._replace(strides=strides)}


def forced_plan(case, kernel, known):
    """Return a plan in which `kernel` computes the results that it admits."""
    if case.call.op == "conv":
        found, admitted = planned(case.call, known, kernel)
        assert admitted
        return found
    return plan(case.call, known)


def loosely(patch):
    """Run launches without the interpreter's shadow of each of 2**31 elements."""
    execute = interpreted.execute
    patch.setattr(memory.MappedTensor, "_members", lambda region: None)
    patch.setattr(interpreted, "execute", lambda *a, **more: execute(*a, **more, strict=False))


@pytest.mark.parametrize(("kernel", "limits", "line", "role"), FAR)
def test_a_far_image_needs_64_bits_and_gets_them(monkeypatch, kernel, limits, line, role):
    case = parse(line)
    tensors, known = spread(case, role)
    found = forced_plan(case, kernel, known)
    assert any(s.constants.get("WIDE") for s in found.launches)
    monkeypatch.setattr(limits, "LIMIT", 2**62)
    wrong = forced_plan(case, kernel, known)
    assert not any(s.constants.get("WIDE") for s in wrong.launches)
    loosely(monkeypatch)
    results = interpreted.run(found, tensors)
    right = backend.run(case.call, *(None if a is None else to_torch(a) for a in operands(case)))
    for name, expected in zip(case.call.signature.results, right):
        if expected is not None:
            assert torch.equal(results[name], expected)
    with pytest.raises(StrictError, match="out-of-bounds"):
        interpreted.run(wrong, tensors)


@pytest.mark.parametrize(
    ("kernel", "line", "role", "axis"), [*((*row, 2) for row in ROWS), *OTHER_AXES]
)
def test_elements_far_apart_along_an_axis(monkeypatch, kernel, line, role, axis):
    """Rows are 2**30 elements apart, and windows begin before the image; or another axis."""
    case = parse(line)
    tensors, known = facts(case.call, operands(case))
    near = tensors[role]
    strides = tuple(APART if n == axis else step for n, step in enumerate(near.stride()))
    span = (near.shape[axis] - 1) * APART
    pages = torch.empty(span + 8 * near.numel(), dtype=near.dtype)  # unless touched, free
    tensors[role] = pages.as_strided(near.shape, strides).copy_(near)
    known[role] = known[role]._replace(strides=strides)
    loosely(monkeypatch)
    found = interpreted.run(forced_plan(case, kernel, known), tensors)
    right = backend.run(case.call, *(None if a is None else to_torch(a) for a in operands(case)))
    for name, expected in zip(case.call.signature.results, right):
        if expected is not None:
            assert torch.equal(found[name], expected)


def test_images_far_apart_do_not_make_every_offset_wide():
    """Offsets of a tile in one image start at that image, whatever the stride between images."""
    for line, kernel in (
        ("conv.bgrad:n64c1k64_i300x300_f1x1:dt=bf16", bgrad),
        ("conv.fprop:n64c64k64_i300x300_f3x3_p1:dt=bf16:mem=nhwc", gather),
        ("conv.wgrad:n64c64k64_i300x300_f3x3_p1:dt=bf16:mem=nhwc", wgrad),
    ):
        call = parse(line).call
        known = {
            role: t._replace(strides=(2**26, *t.strides[1:])) if role in ("x", "dy") else t
            for role, t in layouts(call).items()
        }
        found, _ = planned(call, known, kernel)
        assert not any(step.constants.get("WIDE") for step in found.steps)


def test_filters_of_2_31_elements_are_left_to_kernels_with_such_offsets():
    call = parse("conv.wgrad:n1c32768k32768g32768_i256x256_f256x256:dt=bf16:mem=nhwc").call
    for kernel in (direct_wgrad, depthwise_taps, depthwise_wgrad):
        assert planned(call, layouts(call), kernel)[1] == []
    many = parse("conv.wgrad:n1c33554432k33554432g33554432_i8x8_f8x8:dt=bf16:mem=nhwc").call
    assert "groups" in refusal(many)


@pytest.mark.parametrize("name", ["conv.wgrad", "hopper.gluon_wgrad"])
def test_filters_of_groups_2_31_elements_apart(name):
    """Their stride is a number of 64 bits, not one of vectors of which 32 bits are multiplied."""
    kernel = pytest.importorskip(f"convref_triton.{name}", exc_type=ImportError)
    call = parse("conv.wgrad:n1c98304k98304g2_i8x8_f1x1:dt=bf16:mem=nhwc").call.on("cuda")
    made, admitted = planned(call, layouts(call), kernel)
    assert admitted == ["dw"]
    assert [s.arguments["w_g"] for s in made.launches if "w_g" in s.arguments] == [49152**2]


# Data in the last corner of the last image, zeros elsewhere: the corner alone has the same result.
CORNER, FILLED = 12, 6  # pixels along each axis
LARGE = (
    "conv.fprop:n2c64k16_i{0}_f3x3_p1:bias=0:dt=bf16:mem=nhwc",
    "conv.fprop:n2c64k128_i{0}_f3x3_p1:bias=0:dt=bf16:mem=nhwc",  # through tensor maps
    "conv.fprop:n2c64k64g64_i{0}_f3x3_p1:bias=0:dt=bf16:mem=nhwc",
    "conv.fprop:n2c64k64g16_i{0}_f3x3_p1:bias=0:dt=bf16",
    "conv.jvp:n2c64k16_i{0}_f3x3_p1:bias=0:dt=bf16:mem=nhwc:tan=w",
    "conv.backward:n2c64k16_i{0}_f3x3_p1:dt=bf16:mem=nhwc",
    "conv.backward:n2c16k64_i{0}_f3x3_p1:dt=bf16:mem=nhwc",
    "conv.backward:n2c64k64g64_i{0}_f3x3_p1:dt=bf16",
    "unfold.fprop:n2c16_i{0}_f3x3_p1:dt=bf16",
    "fold.fprop:n2c16_i{0}_f3x3_p1:dt=bf16",
)


def with_pixels(tensor, sizes):
    """Return a view (N, channels, H, W) of an image or of columns; None of what has no pixels."""
    if tensor.dim() == 3:
        return tensor.view(*tensor.shape[:2], *sizes)
    return tensor if tensor.shape[2:] == sizes else None


def cornered(line, sizes, device):
    """Return the call and its operands: small integers, those with pixels in a corner alone."""
    call = parse(line.format("x".join(map(str, sizes)))).call
    made = torch.Generator().manual_seed(4)
    tensors = {}
    for role, fact in layouts(call).items():
        tensor = torch.empty_strided(fact.shape, fact.strides, dtype=torch.bfloat16, device=device)
        pixels = with_pixels(tensor.zero_(), sizes)
        part = tensor if pixels is None else pixels[-1:, :, -FILLED:, -FILLED:]
        part.copy_(torch.randint(-2, 3, part.shape, generator=made))
        tensors[role] = tensor
    return call, tensors


def check_corner(line, sizes, device):
    """Compare the result of a call in its corner with the interpreter's on the corner alone."""
    call, tensors = cornered(line, sizes, device)
    small, _ = cornered(line, (CORNER, CORNER), "cpu")
    few = {}
    for role, fact in layouts(small).items():
        pixels = with_pixels(tensors[role], sizes)
        part = tensors[role] if pixels is None else pixels[-1:, :, -CORNER:, -CORNER:]
        image = torch.zeros(fact.shape, dtype=torch.bfloat16)
        own = image if pixels is None else with_pixels(image, (CORNER, CORNER))[-1:]
        own.copy_(part.cpu())
        few[role] = image
    got = backend.run(on(call, device), *(tensors.get(role) for role in call.roles))
    want = backend.run(small, *(few.get(role) for role in small.roles))
    for name, one, other in zip(call.signature.results, got, want):
        if one is not None:
            pixels = with_pixels(one, sizes)
            part = one if pixels is None else pixels[-1:, :, -CORNER:, -CORNER:]
            own = other if pixels is None else with_pixels(other, (CORNER, CORNER))[-1:]
            assert torch.equal(part.cpu(), own), name
            assert int(one.count_nonzero()) == int(other.count_nonzero()) > 0, name


def on(call, device):
    return replace(call, specs=tuple(replace(spec, device=device) for spec in call.specs))


@pytest.mark.parametrize("line", [line for line in LARGE if "g" not in line.split("_")[0]])
def test_the_corner_alone_has_the_same_result(line):
    check_corner(line, (13, 12), "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("line", LARGE)
def test_on_a_gpu_more_than_2_31_elements(line):
    sizes = (4_200, 4_100)
    call = parse(line.format("4200x4100")).call
    roles = (*layouts(call), *call.wanted)
    assert max(prod(call.problem.shape(role)) for role in roles) > 2**31
    check_corner(line, sizes, "cuda")
