"""ATen's kernels called directly: judged as the backend is, in any memory order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref import knownbugs  # noqa: E402
from convref.arrays import to_numpy, to_torch  # noqa: E402
from convref.backends.torch.adapter import backend  # noqa: E402
from convref.backends.torch.direct import _ROWS, direct  # noqa: E402
from convref.case import parse  # noqa: E402
from convref.conformance.operands import operands  # noqa: E402
from convref.conformance.strategies import cases  # noqa: E402
from convref.judge import judge  # noqa: E402

EXAMPLES = settings.default.max_examples // 4
FLOATS = ["f64", "f32", "bf16", "f16"]


def is_served(case):
    """Return whether ATen supports the call, and no known bug affects it."""
    call = case.call
    return (
        backend.supports(call) is None
        and knownbugs.region_of(call, "torch", backend.fingerprint()) is None
        and direct(call) is not None
    )


@pytest.mark.parametrize(("op", "pass_"), _ROWS)
def test_direct_kernels_are_right(op, pass_):
    drawn = cases([op], [pass_], dtypes=FLOATS, fills=["int", "normal", "ties"], max_elements=400)

    @settings(max_examples=EXAMPLES)
    @given(drawn.filter(is_served))
    def run(case):
        arrays = operands(case)
        tensors = [None if a is None else to_torch(a) for a in arrays]
        found = backend.bind(case.call)(*tensors)
        results = [None if r is None else to_numpy(r) for r in found]
        verdict = judge(case.call, arrays, results, backend.numerics(case.call))
        assert verdict, f"{case}\n{verdict}"

    run()


@pytest.mark.parametrize(
    "line",
    [
        "conv.fprop:n1c2k2_i5_f3_p1,0",  # ATen pads both ends alike
        "conv.fprop:n1c2k2_i5_f3:flip=1",
        "conv.fprop:n1c2k2_i5_f3:dt=c64",
        "conv.backward:n0c2k2_i5_f3",
        "max_pool.backward:n1c0_i5_f3",
        "max_pool.jvp:n1c1_i5_f3",
        "batch_norm.fprop:n2c2_i3:dt=bf16",  # ATen requires parameters in float32
    ],
)
def test_calls_without_an_aten_kernel_are_not_direct(line):
    assert direct(parse(line).call) is None


@pytest.mark.parametrize("op", ["adaptive_max_pool", "max_pool"])
@pytest.mark.parametrize("rank", [2, 3])
def test_indices_may_have_any_memory_order(op, rank):
    """ATen's kernel of three axes reads adaptive pools' indices as if they were contiguous."""
    sizes = {"adaptive_max_pool": "o1x1x2", "max_pool": "f1x1x2"}[op].replace("1x", "", 3 - rank)
    memory = {2: "nhwc", 3: "ndhwc"}[rank]
    case = parse(f"{op}.backward:n1c2_i{'1x' * (rank - 1)}3_{sizes}:mem=indices.{memory}")
    arrays = operands(case)
    (dx,) = backend.bind(case.call)(*map(to_torch, arrays))
    assert judge(case.call, arrays, [to_numpy(dx)], backend.numerics(case.call))


@pytest.mark.parametrize("said", ["tf32", "bf16"])
def test_a_weaker_product_that_the_process_allows_is_not_taken(said, monkeypatch):
    read = torch._C._get_fp32_precision_getter
    seen = []

    def convolution(*arguments):
        seen.append(read("mkldnn", "conv"))
        return genuine(*arguments)

    genuine = torch.convolution
    monkeypatch.setattr(torch, "convolution", convolution)
    call = parse("conv.fprop:n1c2k2_i5_f3").call
    x, w, b = (to_torch(a) for a in operands(parse("conv.fprop:n1c2k2_i5_f3")))
    run = backend.bind(call)
    run(x, w, b)
    torch.backends.mkldnn.conv.fp32_precision = said
    try:
        run(x, w, b)
        assert read("mkldnn", "conv") == said  # put back
    finally:
        torch.backends.mkldnn.conv.fp32_precision = "none"
    assert seen[0] in ("none", "ieee")
    assert seen[1] == "ieee"


def test_channels_last_stays_so():
    case = parse("max_pool.fprop:n2c3_i6x6_f2x2:dt=f32")
    (x,) = operands(case)
    last = to_torch(np.asarray(x)).contiguous(memory_format=torch.channels_last)
    y, indices = backend.bind(case.call)(last)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert indices.is_contiguous(memory_format=torch.channels_last)
