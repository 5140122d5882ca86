"""Copies by a kernel: results, compiled code, wrong lines, and which copies a plan leaves."""

import pytest
import torch
from forced import copies_of
from hypothesis import given
from hypothesis import strategies as st
from judged import NEEDS_A_GPU

from convref.case import parse

pytest.importorskip("triton", reason="triton is not installed")

from test_slips import copied

from convref_ptx import Fault
from convref_triton import emulated
from convref_triton.common import reorder
from convref_triton.common.geometry import LIMIT, Tensor, operands
from convref_triton.compile import aot
from convref_triton.compile.inspection import inspect
from convref_triton.compile.layouts import accesses
from convref_triton.compile.specialize import specialize
from convref_triton.interpreter import StrictError
from convref_triton.plan.builder import channels_last, dense
from convref_triton.plan.choose import plan
from convref_triton.plan.launch import Buffer, KernelPlan
from convref_triton.run import gpu, interpreted

SHAPES = st.tuples(
    st.integers(1, 3), st.integers(1, 70), st.lists(st.integers(1, 9), min_size=1, max_size=3)
)


def order_of(rank, last):
    return channels_last(rank) if last else tuple(range(rank + 2))


def buffer(shape, last, dtype="bf16"):
    return Buffer(shape, dense(shape, order_of(len(shape) - 2, last)), dtype)


def random(shape, last, dtype="bf16"):
    """Return a tensor of normal numbers with channels innermost, or else pixels."""
    found = interpreted.poisoned(buffer(shape, last, dtype))
    return found.copy_(torch.randn(shape, generator=torch.Generator().manual_seed(3)))


def launch_of(x, made, module=reorder):
    facts = Tensor("x", tuple(x.shape), x.stride(), made.dtype, x.data_ptr() % 16 == 0)
    return module.reorder_launch(facts, "y", made)


def is_copied(x, made, run=interpreted.run, module=reorder):
    """Return whether a buffer has x's elements, and zeros in its other channels."""
    launch = launch_of(x, made, module)
    y = run(KernelPlan({"y": made}, (launch,)), {"x": x})["y"]
    return torch.equal(y[:, : x.shape[1]], x) and not y[:, x.shape[1] :].any()


@given(SHAPES, st.integers(0, 9), st.booleans(), st.booleans(), st.sampled_from(reorder.DTYPES))
def test_all_orders_and_sizes_are_right(shape, more, x_last, y_last, dtype):
    n, c, pixels = shape
    x = random((n, c, *pixels), x_last, dtype)
    assert is_copied(x, buffer((n, c + more, *pixels), y_last, dtype))


@given(SHAPES, st.booleans(), st.booleans())
def test_views_are_right(shape, x_last, y_last):
    n, c, pixels = shape
    whole = random((n + 1, c + 3, *pixels), x_last)
    x = whole[1:, 2:-1]
    assert is_copied(x, buffer(tuple(x.shape), y_last))


@given(SHAPES, st.sets(st.integers(0, 4), min_size=1), st.booleans(), st.booleans())
def test_expanded_axes_are_right_or_left_to_other_copies(shape, axes, x_last, y_last):
    n, c, pixels = shape
    full = n, c, *pixels
    small = tuple(1 if axis in axes else size for axis, size in enumerate(full))
    x, made = random(small, x_last).expand(full), buffer(full, y_last)
    assert launch_of(x, made) is None or is_copied(x, made)


PTX = (
    ((2, 72, 9, 8), 72, False, True),
    ((2, 72, 9, 8), 72, True, False),
    ((1, 3, 40, 31), 4, True, True),
    ((2, 130, 7, 7), 136, False, True),
)


@pytest.mark.parametrize(("shape", "channels", "x_last", "y_last"), PTX)
def test_the_ptx_is_right(shape, channels, x_last, y_last):
    made = buffer((shape[0], channels, *shape[2:]), y_last)
    assert is_copied(random(shape, x_last), made, emulated.run)


SLIPS = (  # the case, what is replaced, the wrong text
    (0, "column * BN", "column"),
    (0, "(c < C)[None, :], other=0.0", "(c <= C)[None, :], other=0.0"),
    (0, "value, inside & (c < K)[None, :]", "value, inside & (c < K - 1)[None, :]"),
    (0, "tile % rows * BM", "tile % rows * (BM + 1)"),
    (3, "n * (y_n.to", "n * (x_n.to"),
    (1, "else (1, y_step * VEC[1])", "else (1, y_step)"),
    (3, "L, C, K = L * VEC[2], C * VEC[3]", "L, C, K = L * VEC[2], C * VEC[4]"),
    (2, "inside & (c < C)[None, :]", "inside & (c < K)[None, :]"),
)


def is_found(slip, folder, monkeypatch, run):
    case, old, new = slip
    shape, channels, x_last, y_last = PTX[case]
    made = buffer((shape[0], channels, *shape[2:]), y_last)
    module = copied((reorder,), folder, monkeypatch, old, new)
    try:
        return not is_copied(random(shape, x_last), made, run, module)
    except (StrictError, Fault):
        return True


@pytest.mark.parametrize("slip", SLIPS)
def test_a_wrong_line_is_found(slip, tmp_path, monkeypatch):
    assert is_found(slip, tmp_path, monkeypatch, interpreted.run)


@pytest.mark.nightly(reason="a compilation for each")
@pytest.mark.parametrize("slip", SLIPS)
def test_a_wrong_line_is_found_in_its_ptx(slip, tmp_path, monkeypatch):
    assert is_found(slip, tmp_path, monkeypatch, emulated.run)


@pytest.mark.parametrize("arch", ["sm_90", "sm_80", "gfx942"])
@pytest.mark.parametrize("x_last", [False, True])
def test_both_sides_move_16_bytes_at_a_time(arch, x_last):
    launch = launch_of(random((2, 64, 56, 56), x_last), buffer((2, 64, 56, 56), not x_last))
    binary = aot.compile(specialize(launch), arch)
    assert not inspect(binary).spills
    assert [(a.vector, a.row) for a in accesses(binary.asm["ttgir"])] == [(16, 128)] * 2


def test_an_unseen_size_compiles_nothing():
    keys = set()
    for n, c, size in ((1, 16, 8), (2, 64, 56), (3, 208, 28)):
        shape = n, c, size, size
        keys.add(specialize(launch_of(random(shape, False), buffer(shape, True))).key)
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("conv.fprop:n2c64k64_i28x28_f3x3_p1:dt=bf16", {"w"}),
        ("conv.dgrad:n2c64k64_i28x28_f3x3_p1:dt=f16", {"w"}),
        ("conv.wgrad:n2c64k64_i28x28_f3x3_p1:dt=bf16", set()),
        ("conv.fprop:n32c3k64_i224x224_f7x7_s2_p3:dt=bf16:mem=nhwc", {"w"}),
        ("batch_norm.fprop:n2c64_i28x28:dt=bf16:mem=x.nhwc", set()),
    ],
)
def test_a_plan_leaves_copies_of_filters(line, left):
    """They may be kept from one call to the next."""
    call = parse(f"{line}:dev=cuda").call
    made = plan(call, operands(call))
    assert {step.source for step in made.copies} <= left
    if call.op == "conv":
        assert len(copies_of(made)) > len(made.copies)


def test_what_is_left_to_other_copies():
    x, made = random((2, 8, 6, 6), True), buffer((2, 8, 6, 6), False)
    assert launch_of(x, made) is not None
    assert launch_of(x[:, ::2, ::2, ::2], buffer((2, 4, 3, 3), False)) is None
    assert launch_of(x[:, 0, 0], buffer((2, 6), False)) is None
    assert launch_of(x, made._replace(dtype="i8")) is None
    assert launch_of(x[:0], buffer((0, 8, 6, 6), False)) is None
    assert launch_of(x, buffer((3, 8, 6, 6), False)) is None
    for n, rows, known in ((2, LIMIT // 8, True), (1, LIMIT // 2 + 1, False)):
        shape = n, 2, rows, 1
        facts = Tensor("x", shape, dense(shape, order_of(2, True)), "bf16")
        assert (reorder.reorder_launch(facts, "y", buffer(shape, False)) is not None) == known


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize(("shape", "channels", "x_last", "y_last"), PTX)
def test_on_a_gpu(shape, channels, x_last, y_last):
    made = buffer((shape[0], channels, *shape[2:]), y_last)
    assert is_copied(random(shape, x_last).cuda(), made, gpu.run)
