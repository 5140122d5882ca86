"""Every kernel of every convolution pass, on every tile of its table, in the strict interpreter."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judged import verdict, with_tile

from convref.arrays import to_torch
from convref.case import parse
from convref.conformance.operands import operands
from convref.conformance.strategies import cases

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common import geometry
from convref_triton.common.geometry import Tensor
from convref_triton.conv import gather
from convref_triton.interpreter import StrictError, execute
from convref_triton.plan.choose import plan
from convref_triton.run import interpreted

DTYPES = ("f32", "bf16", "f16")
SMALL = {"max_elements": 800, "max_macs": 8_000}
FEW = {"max_elements": 400, "max_macs": 4_000}  # an epilogue sees elements, not sums
A_THIRD = settings(max_examples=settings.default.max_examples // 3)


@given(cases(dtypes=DTYPES, maths=("ieee", "tf32", "tf32x3"), **SMALL), st.integers(0, 2**16))
def test_every_choice_is_right(case, pick):
    assume(backend.supports(case.call) is None)  # tf32 is for float32
    assert with_tile(case, pick)


@pytest.mark.parametrize(
    "line",
    ["fprop:n1c8k0_i1x1_f1x1", "dgrad:n1c0k8_i3_f1", "jvp:n0c8k8_i3x3_f1x1", "wgrad:n1c0k8_i3_f1"],
)
def test_an_empty_result_has_no_choice_of_tiles(line):
    case = parse(f"conv.{line}")
    assert backend.configurations(case.call) == []
    assert verdict(case)


@A_THIRD
@given(cases(dtypes=DTYPES, **SMALL))
def test_offsets_of_64_bits_are_right(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "LIMIT", 1)
        assert verdict(case)


@given(cases(dtypes=["f32"], memory=True, max_elements=500, max_macs=5_000))
def test_layouts_of_specs_match_operands(case):
    for role, array in zip(case.call.roles, operands(case)):
        if array is not None and array.size:
            told = geometry.operands(case.call)[role]
            real = tuple(step // array.itemsize for step in array.strides)
            assert [s for s, size in zip(told.strides, array.shape) if size > 1] == [
                s for s, size in zip(real, array.shape) if size > 1
            ]


@pytest.mark.parametrize("limit", [gather.LIMIT, 2**62])
def test_a_tile_that_spans_2_31_elements_needs_64_bits(monkeypatch, limit):
    monkeypatch.setattr(gather, "LIMIT", limit)
    case = parse("conv.fprop:n2c8k16_i2x2_f1x1:dt=bf16")
    near, w, b = map(to_torch, operands(case))
    far = torch.empty(2**31 + 64, dtype=torch.bfloat16)  # untouched pages take no memory
    x = far.as_strided((2, 8, 2, 2), (2**31, 1, 16, 8)).copy_(near)
    tensors = {"x": x, "w": w, "b": b}
    facts = {r: Tensor(r, tuple(t.shape), t.stride(), "bf16") for r, t in tensors.items()}
    made = plan(case.call, facts)
    (launch,) = made.steps
    assert launch.constants["WIDE"] == (limit == 2**31)
    y = interpreted.poisoned(made.buffers["y"])
    if launch.constants["WIDE"]:
        execute(launch, tensors | {"y": y}, strict=False)
        assert torch.equal(y, backend.run(case.call, near, w, b)[0])
    else:
        with pytest.raises(StrictError, match="out-of-bounds"):
            execute(launch, tensors | {"y": y}, strict=False)


@A_THIRD
@given(cases(passes=["fprop"], dtypes=DTYPES, fills=["int", "nan"], **FEW))
def test_a_fused_relu_is_exact_and_lets_nan_through(case):
    call = replace(case.call, problem=replace(case.call.problem, bias=True))
    x, w, b = map(to_torch, operands(replace(case, call=call)))
    plain = backend.run(call, x, w, b)[0]
    got = backend.fused(call, "relu")(x, w, b)
    torch.testing.assert_close(got, plain.relu(), rtol=0, atol=0, equal_nan=True)


@A_THIRD
@given(cases(passes=["fprop"], dtypes=["f32"], fills=["int"], **FEW))
def test_a_fused_residual_is_exact(case):
    call = replace(case.call, problem=replace(case.call.problem, bias=True))
    x, w, b = map(to_torch, operands(replace(case, call=call)))
    plain = backend.run(call, x, w, b)[0]
    residual = torch.arange(plain.numel()).reshape(plain.shape).remainder(7).sub(3.0)
    got = backend.fused(call, "add_relu")(x, w, b, residual)
    torch.testing.assert_close(got, (plain + residual).relu(), rtol=0, atol=0)
