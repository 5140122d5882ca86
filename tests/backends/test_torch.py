"""The torch backend: flags put back, edge rules before ATen, geometry that ATen lacks."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

pytest.importorskip("torch", reason="torch is not installed")

import torch

import convref
from convref import UnsupportedError, parse
from convref.backends.numpy import backend as oracle
from convref.backends.torch import conv
from convref.backends.torch.adapter import TorchBackend, backend, without_onednn
from convref.conformance import fills, strategies
from convref.conformance.operands import operands as drawn
from convref.judge import judge
from convref.ops import SIGNATURE

PARTS = {
    "cudnn.conv": torch.backends.cudnn.conv,
    "cudnn.rnn": torch.backends.cudnn.rnn,
    "cuda.matmul": torch.backends.cuda.matmul,
    "mkldnn.conv": torch.backends.mkldnn.conv,
    "mkldnn.matmul": torch.backends.mkldnn.matmul,
}
CALL = parse("conv.fprop:n1c2k3_i4_f2:bias=0").call
X, W = torch.ones(1, 2, 4), torch.ones(3, 2, 2)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors on a busy machine: threads that wait for each other take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def flags() -> dict[str, Any]:
    found = {name: part.fp32_precision for name, part in PARTS.items()}
    return {**found, "onednn": torch._C._get_mkldnn_enabled(), "grad": torch.is_grad_enabled()}


def reset() -> None:
    torch.backends.fp32_precision = "none"
    for part in PARTS.values():
        part.fp32_precision = "none"
    torch._C._set_mkldnn_enabled(True)


@pytest.fixture(autouse=True)
def default_flags() -> Iterator[None]:
    legacy = torch.backends.cudnn.allow_tf32
    reset()
    yield
    reset()
    torch.backends.cudnn.allow_tf32 = legacy  # of convolutions and RNNs: they differ otherwise


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the list to which each forward pass adds the flags it ran under."""
    seen: list[dict[str, Any]] = []
    fprop = conv.PASSES["fprop"]

    def spy(*arguments: Any) -> Any:
        seen.append(flags())
        return fprop(*arguments)

    monkeypatch.setitem(conv.PASSES, "fprop", spy)
    return seen


SETTINGS: dict[str, Any] = {
    "default": lambda: None,
    "all ieee": lambda: setattr(torch.backends, "fp32_precision", "ieee"),
    "all tf32": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "conv ieee": lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"),
    "conv bf16": lambda: setattr(torch.backends.mkldnn.conv, "fp32_precision", "bf16"),
    "onednn off": lambda: torch._C._set_mkldnn_enabled(False),
}


@pytest.mark.parametrize("change", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("math", ["ieee", "tf32"])
@pytest.mark.parametrize("computes", [backend, without_onednn], ids=lambda b: b.name)
def test_flags_are_set_and_put_back(
    change: Any, math: str, computes: TorchBackend, during: list[dict[str, Any]]
) -> None:
    change()
    before = flags()
    computes.run(parse(f"{CALL}:math={math}").call, X, W, None)
    assert flags() == before
    assert {during[0][name] for name in PARTS} == {math}
    assert during[0]["onednn"] == (computes.onednn and before["onednn"])
    assert during[0]["grad"] is False


@pytest.mark.parametrize("math", ["ieee", "tf32"])
@pytest.mark.parametrize("legacy", [False, True])
def test_legacy_flag_can_be_read_in_and_after_a_call(
    legacy: bool, math: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.export reads it, and raises where those of convolutions and RNNs contradict it."""
    torch.backends.cudnn.allow_tf32 = legacy
    seen, fprop = [], conv.PASSES["fprop"]

    def spy(*arguments: Any) -> Any:
        seen.append(torch.backends.cudnn.allow_tf32)
        return fprop(*arguments)

    monkeypatch.setitem(conv.PASSES, "fprop", spy)
    backend.run(parse(f"{CALL}:math={math}").call, X, W, None)
    assert (seen, torch.backends.cudnn.allow_tf32) == ([math == "tf32"], legacy)


def test_flags_are_put_back_after_an_exception(during: list[dict[str, Any]]) -> None:
    torch.backends.mkldnn.conv.fp32_precision = "bf16"
    before = flags()
    with pytest.raises(RuntimeError):
        without_onednn.run(CALL, X, torch.ones(3, 7, 2), None)
    assert len(during) == 1
    assert flags() == before


@pytest.mark.parametrize("parent", ["tf32", "none"])
def test_flags_still_follow_their_parent(parent: str) -> None:
    """What was inherited before the call is inherited after it, not fixed at its value."""
    torch.backends.fp32_precision = parent
    backend.run(CALL, X, W, None)
    torch.backends.fp32_precision = "ieee"
    assert {flags()[name] for name in PARTS} == {"ieee"}


def test_threads_do_not_mix_their_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.backends.mkldnn.conv.fp32_precision = "bf16"
    before, together, maths = flags(), threading.Semaphore(1), ("ieee", "tf32")
    failed: list[str] = []

    def fprop(call: Any, *operands: Any) -> Any:
        alone = together.acquire(blocking=False)
        time.sleep(0.005)  # long enough for the others to come in, were they let in
        found = {flags()[name] for name in PARTS}
        if not alone or found != {call.math}:
            failed.append(f"{call}: alone {alone}, flags {found}")
        together.release()
        return operands[:1]

    monkeypatch.setitem(conv.PASSES, "fprop", fprop)

    def work(which: int) -> None:
        call = parse(f"{CALL}:math={maths[which % 2]}").call
        for _ in range(3):
            (backend, without_onednn)[which // 2].run(call, X, W, None)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert flags() == before


def zeros(call: Any) -> list[Any]:
    shapes = ((r, call.problem.shape(r)) for r in call.roles)
    return [torch.ones(s).double() if call.is_present(r) else None for r, s in shapes]


EMPTY = [
    "n0c2k3_i4_f2",
    "n2c0k3_i4_f2",
    "n2c2k0_i4_f2",
    "n2c0k0_i4_f2",
    "n0c0k0_i4_f2",
    "n2c2k3_i0_f2_p2",
    "n2c2k3_i0x3_f2x2_p2",
    "n2c4k0g2_i4_f2",
    "n2c0k3_i4_f2:t=1",
    "n2c2k0_i4_f2:t=1",
    "n0c2k3_i4_f2_s2:t=1:op=1",
]


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("pass_", ["fprop", "backward", "jvp", "double_backward"])
def test_empty_sums_are_zeros_and_bias(shape: str, pass_: str) -> None:
    call = parse(f"conv.{pass_}:{shape}:dt=f64").call
    operands = zeros(call)
    got, want = backend.run(call, *operands), oracle.run(call, *operands)
    for g, a in zip(got, want):
        assert (g.shape, g.dtype) == (a.shape, a.dtype)
        assert torch.equal(g, a)


def test_raw_is_aten_and_nothing_else() -> None:
    call = parse("conv.fprop:n2c0k3_i4_f2:dt=f64").call
    assert backend.run(call, *zeros(call))[0].shape == (2, 3, 3)
    assert backend.raw.run(call, *zeros(call))[0].shape == (2, 0, 3)
    call = parse("conv.fprop:n2c2k0_i4_f2:dt=f64").call
    assert backend.run(call, *zeros(call))[0].shape == (2, 0, 3)
    with pytest.raises(RuntimeError, match="expected weight to be at least 1"):
        backend.raw.run(call, *zeros(call))
    assert (backend.raw.name, backend.raw.onednn) == (backend.name, backend.onednn)
    assert without_onednn.raw.onednn is False


def integers(call: Any) -> list[Any]:
    case = convref.Case(call, seed=7)
    present = ((r, call.is_present(r)) for r in call.roles)
    return [fills.values(case, r) if given else None for r, given in present]


@settings(max_examples=max(300, settings.default.max_examples))
@given(strategies.calls(dtypes=["f64"], memory=False, max_elements=1000, max_macs=10_000))
def test_any_geometry_agrees_with_the_oracle(call: Any) -> None:
    """Asymmetric, negative and large padding, flips, groups, empties; every pass; exactly."""
    operands = integers(call)
    for got, want in zip(backend.run(call, *operands), oracle.run(call, *operands)):
        assert (got is None) == (want is None)
        if want is not None:
            np.testing.assert_array_equal(got, want, strict=True)


GEOMETRIES = [
    "n2c2k3_i5_f3_p1,2",
    "n2c2k3_i5_f3_p-1,2",
    "n2c2k3_i5_f2_p-4,9",
    "n2c4k6g2_i5x6_f3x2_s2x1_p1,0x-1,2_d1x2",
    "n2c4k6g2_i5x6_f3x2_p1,0x-1,2:flip=1",
    "n2c2k3_i5_f3_s2_p1,2:t=1:op=1",
    "n2c2k3_i5_f3_s2_p-1,2:t=1:op=1",
    "n2c2k3_i5_f3_s2_p-2:t=1",
    "n2c4k6g2_i5x6_f3x2_s2x3_p1,0x-1,-2_d1x2:t=1:op=1x2",
]


@pytest.mark.parametrize("shape", GEOMETRIES)
@pytest.mark.parametrize("pass_", ["fprop", "backward", "jvp", "double_backward"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_padding_that_aten_lacks(shape: str, pass_: str, dtype: str) -> None:
    call = parse(f"conv.{pass_}:{shape}:dt={dtype}").call
    operands = integers(call)
    got = without_onednn.run(call, *operands)
    verdict = judge(call, operands, got, without_onednn.numerics(call))
    assert verdict, verdict.reason


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64"])
def test_on_a_gpu_subnormals_of_the_accumulator_may_be_flushed(dtype: str) -> None:
    case = parse(f"conv.fprop:n1c8k4_i1_f1:dt={dtype}:fill=subnormal:seed=1:dev=cuda")
    operands = drawn(case)
    got = (np.zeros(case.call.problem.shape("y"), operands[0].dtype),)
    assert bool(judge(case.call, operands, got, backend.numerics(case.call))) == (
        dtype in ("f32", "bf16")
    )


def test_outside_padding_has_bias_when_transposed() -> None:
    """y reaches beyond every window by 2 at each end: nothing but the bias is there."""
    x, w, b = np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.array([10.0])
    got = convref.conv_transpose1d(x, w, b, padding=-2, backend="torch")
    assert got.tolist() == [[[10.0, 10.0, 11.0, 12.0, 11.0, 10.0, 10.0]]]
    _, tangent = convref.conv1d_jvp(
        (x, w, b), (None, None, b), padding=-2, transposed=True, backend="torch"
    )
    assert tangent.tolist() == [[[10.0] * 7]]
    ddy, _, _ = convref.convolution_double_backward(
        *(None, None, b, got, w, x, 1, -2, 1, True, 0, 1, (True, False, False)), backend="torch"
    )
    assert ddy.tolist() == [[[10.0] * 7]]


OTHERS = [(dtype, shape) for dtype in ("c64", "c128", "i64") for shape in GEOMETRIES]
OTHERS += [(dtype, shape) for dtype in ("i8", "u8", "i16", "i32") for shape in GEOMETRIES[:3]]


@pytest.mark.parametrize(("dtype", "shape"), OTHERS)
def test_other_numbers_forward(dtype: str, shape: str) -> None:
    call = parse(f"conv.fprop:{shape}:dt={dtype}").call
    operands = integers(call)
    assert backend.supports(call) is None
    got = backend.run(call, *operands)
    verdict = judge(call, operands, got, backend.numerics(call))
    assert verdict, verdict.reason


@pytest.mark.parametrize("shape", [s for s in GEOMETRIES if "_d" in s or ":t=1" in s])
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32"])
def test_calls_that_aten_lacks_are_refused(shape: str, dtype: str) -> None:
    call = parse(f"conv.fprop:{shape}:dt={dtype}").call
    assert backend.supports(call) == f"ATen has no transposed or dilated kernel for {dtype}"
    with pytest.raises(NotImplementedError):
        backend.run(call, *integers(call))


@pytest.mark.parametrize("shared", ["", ":shared=1"])
@pytest.mark.parametrize("pass_", ["backward", "jvp", "double_backward"])
def test_every_derivative_of_prelu_has_the_same_slope_at_0(pass_: str, shared: str) -> None:
    case = parse(f"prelu.{pass_}:n2c3_i2{shared}:fill=negzero:seed=1")
    operands = drawn(case)
    call = case.call
    verdict = judge(call, operands, backend.run(call, *operands), backend.numerics(call))
    assert verdict, verdict.reason


@pytest.mark.parametrize("bits", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0), (1, 1, 0)])
@pytest.mark.parametrize("pass_", ["backward", "double_backward"])
def test_a_mask_off_is_none(bits: tuple[int, ...], pass_: str) -> None:
    mask = "".join(map(str, bits))
    for shape in ("n2c2k3_i5_f3", "n2c0k3_i5_f3", "n2c2k3_i5_f3_p1,2"):
        call = parse(f"conv.{pass_}:{shape}:dt=f64:mask={mask}").call
        got = backend.run(call, *integers(call))
        assert [g is not None for g in got] == [bool(bit) for bit in bits]


def test_no_result_shares_memory_with_an_operand() -> None:
    line = "conv.jvp:n1c1k1_i1_f1:dt=f64:tan=b"
    operands = zeros(parse(line).call)
    for result in backend.run(parse(line).call, *operands):
        assert all(result.data_ptr() != a.data_ptr() for a in operands if a is not None)


def test_operands_are_not_changed() -> None:
    for pass_ in ("fprop", "backward", "jvp", "double_backward"):
        call = parse(f"conv.{pass_}:n2c4k6g2_i5x6_f3x2_p1,0x-1,2:dt=f64:flip=1").call
        operands = integers(call)
        before = [a.tobytes() for a in operands]
        backend.run(call, *operands)
        assert [a.tobytes() for a in operands] == before


def test_a_cuda_call_needs_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    call = parse(f"{CALL}:dev=cuda").call
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match="torch finds no CUDA device"):
        convref.plan(call, "torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert backend.supports(call) is None


def test_the_fingerprint_names_what_computes() -> None:
    assert backend.fingerprint()["torch"] == torch.__version__
    assert without_onednn.fingerprint()["onednn"] == "off"


@pytest.mark.parametrize(
    "line", ["pixel_unshuffle.fprop:n0c1_i4x4", "pixel_shuffle.backward:n0c4_i2x2"]
)
def test_an_empty_result_has_its_own_shape(line):
    """ATen's pixel_unshuffle returns an empty image in the shape that it came in."""
    case = parse(line)
    (found,) = backend.run(case.call, *drawn(case))
    assert found.shape == case.call.problem.shape(case.call.wanted[0])


@pytest.mark.parametrize("mask", ["00", "01", "10", "11"])
@pytest.mark.parametrize("size", [0, 3])
def test_results_are_in_the_order_of_their_roles_whatever_the_mask(mask, size):
    call = parse(f"gelu.double_backward:n1c2_i{size}:mask={mask}").call
    results = backend.run(call, *(np.ones(call.problem.shape(r), np.float32) for r in call.roles))
    assert [r is not None for r in results] == [bit == "1" for bit in mask]


@pytest.mark.parametrize("op", sorted(op for op, pass_ in SIGNATURE if pass_ == "jvp"))
def test_tangents_within_a_forward_mode_of_the_caller_are_right(op: str) -> None:
    drawn_cases = strategies.cases(ops=[op], passes=["jvp"], dtypes=["f32"], fills=["normal"])

    @settings(max_examples=3)
    @given(drawn_cases)
    def check(case: Any) -> None:
        if backend.supports(case.call) is not None:
            return
        arrays = drawn(case)
        with torch.no_grad(), torch.autograd.forward_ad.dual_level():
            found = backend.run(case.call, *arrays)
        assert judge(case.call, arrays, found, backend.numerics(case.call))

    check()
