"""Tuples as arguments: specialized, compiled, interpreted and launched like single arguments."""

from __future__ import annotations

from functools import partial

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

import aot_kernels
import triton.language as tl
from aot_kernels import Rows, Tile

from convref.errors import ConvrefError
from convref_triton import emulated
from convref_triton.compile import aot
from convref_triton.compile.specialize import specialize
from convref_triton.interpreter import StrictError, execute
from convref_triton.plan.launch import Buffer, Descriptor, KernelPlan, Launch, Slot
from convref_triton.run import gpu

SIZES = (5, 7)


def scaled(bias, activation=aot_kernels.twice, stride=SIZES[1]):
    """Return a launch of `scaled_rows` on tensors x, b and y."""
    bias = Slot("b", "f32", aligned=False) if bias else None
    arguments = {
        "source": Rows(Slot("x", "f32"), SIZES[1], bias),
        "target": Rows(Slot("y", "f32"), stride),
        "sizes": SIZES,
        "factor": (0.5, (activation, 1)),
    }
    return Launch(aot_kernels.scaled_rows, (2, 1, 1), arguments, {"T": Tile(4, 8)})


def operands():
    x, b = torch.arange(35.0).reshape(SIZES), torch.arange(100.0, 107.0)
    return {"x": x, "b": b}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("run", [emulated.run, emulated.interpreted.run], ids=["ptx", "strict"])
def test_results(run, bias):
    plan = KernelPlan({"y": Buffer(SIZES, (7, 1), "f32")}, (scaled(bias),))
    given = operands()
    y = run(plan, given)["y"]
    assert torch.equal(y, 2 * (given["x"] / 2 + (given["b"] if bias else 0)))


@pytest.mark.parametrize("arch", aot.ARCHS)
def test_a_bias_changes_the_binary(arch):
    compiled = aot.compile(specialize(scaled(bias=True)), arch)
    assert aot.compile(specialize(scaled(bias=False)), arch).binary != compiled.binary


def test_a_missing_bias_and_a_stride_of_one_are_compiled_in():
    made = specialize(scaled(bias=False, stride=1))
    assert made.signature["source"] == Rows("*fp32", "i32", "constexpr")
    assert {path: made.constants[path] for path in ((0, 2), (1, 1))} == {(0, 2): None, (1, 1): 1}
    assert set(made.attributes) == {(0, 0), (1, 0)}


def test_functions_in_tuples_travel_to_worker_processes():
    (compiled,) = aot.compile_all([specialize(scaled(bias=True, stride=9))], "sm_90", jobs=1)
    assert isinstance(compiled, aot.Compiled)


def test_the_launcher_passes_items_depth_first():
    launch = scaled(bias=True)
    compiled = aot.compile(specialize(launch), "sm_90")
    x, b, y = Slot("x", "f32"), Slot("b", "f32", aligned=False), Slot("y", "f32")
    assert gpu.arguments(compiled, launch) == [x, 7, b, y, 7, 5, 7, 0.5]
    kinds = ("ptr", "i32", "ptr", "ptr", "i32", "i32", "i32", "f32")
    assert gpu.manifest(compiled).parameters == kinds


def test_boxes_in_a_tuple():
    box = partial(Descriptor, shape=(64, 64), strides=(64, 1), block=(64, 64))
    arguments = {
        "boxes": (box(Slot("a", "f16")), box(Slot("b", "f16"))),
        "c": Rows(Slot("c", "f32"), 64),
    }
    launch = Launch(aot_kernels.product_of_paired_boxes, (1, 1, 1), arguments, {"T": 64})
    plan = KernelPlan({"c": Buffer((64, 64), (64, 1), "f32")}, (launch,))
    a = torch.arange(64 * 64).reshape(64, 64).remainder(7).half()
    given = {"a": a, "b": a.T.contiguous()}
    for run in (emulated.run, emulated.interpreted.run):
        assert torch.equal(run(plan, given)["c"], a.float() @ a.T.float())


def test_the_strict_interpreter_checks_tensors_in_tuples():
    tensors = operands() | {"y": torch.zeros(SIZES)}
    with pytest.raises(StrictError, match="never-written"):
        execute(scaled(bias=True), tensors | {"y": torch.zeros(6, 7)}, outputs=["y"])
    with pytest.raises(StrictError, match="unaligned"):
        execute(scaled(bias=True), tensors | {"x": torch.zeros(36)[1:].reshape(SIZES)})
    with pytest.raises(TypeError, match=r"b is torch\.float64, needs f32"):
        execute(scaled(bias=True), tensors | {"b": torch.zeros(7).double()})


def test_constants_in_tuples_of_both_languages():
    launch = scaled(bias=False, activation=tl.constexpr(aot_kernels.twice))
    tensors = operands() | {"y": torch.full(SIZES, torch.nan)}
    execute(launch, tensors, outputs=["y"])
    assert torch.equal(tensors["y"], tensors["x"])
    aot.compile(specialize(launch), "sm_90")


def test_a_message_names_the_item():
    source = Rows(Slot("x", "f32"), (2, "7"))
    launch = Launch(aot_kernels.every_kind, (1, 1, 1), {"plain": source, "wide": 1}, {})
    rest = dict.fromkeys(("x", "y", "z", "n", "step", "scale", "flag", "low"), 2)
    with pytest.raises(ConvrefError, match=r"plain\.stride\.1 is a str, needs a Slot"):
        specialize(Launch(launch.kernel, launch.grid, rest | launch.arguments, {}))
    with pytest.raises(ConvrefError, match="wide is a tuple, needs i64"):
        specialize(Launch(launch.kernel, launch.grid, rest | {"plain": 1, "wide": (1,)}, {}))
