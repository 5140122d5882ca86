"""Triton kernels on CPU tensors: their PTX runs, and their faults are found."""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from convref_ptx import Fault  # noqa: E402
from convref_ptx.device import device  # noqa: E402

BLOCK = 64


@triton.jit
def add(x, y, out, n, past, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n + past
    tl.store(out + i, tl.load(x + i, mask) + tl.load(y + i, mask), mask)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + i, i < n, other=0.0))
    if ATOMIC:
        tl.atomic_add(out, part)
    else:
        tl.store(out, tl.load(out) + part)


@triton.jit
def locked_total(x, out, lock, n, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    i, own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    part = tl.load(x + i, i < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    part += tl.load(out + own)
    if EARLY:
        tl.atomic_xchg(lock, 0)
    tl.store(out + own, part)
    if not EARLY:
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)


@triton.autotune([triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=3)], key=["K"])
@triton.jit
def product(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SLIP: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        inside = first + k < K + SLIP
        left = tl.load(a + m[:, None] * K + (first + k)[None], inside[None], other=0.0)
        right = tl.load(b + (first + k)[:, None] * N + n[None], inside[:, None], other=0.0)
        sums += tl.dot(left, right)
    tl.store(c + m[:, None] * N + n[None], sums.to(c.dtype.element_ty))


@triton.jit
def transposed(source, target, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([n, m], source.load([m, n]).T)


def numbers(*shape, dtype=torch.float32):
    """Return whole numbers, whose sums are exact."""
    drawn = np.random.default_rng(0).integers(-4, 5, shape)
    return torch.from_numpy(drawn).to(dtype)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_masked_addition(arch):
    x, y = numbers(200), numbers(200)
    out = torch.empty(200)
    with device(arch):
        add[(4,)](x, y, out, 200, 0, BLOCK)
    assert torch.equal(out, x + y)


def test_access_past_the_end_names_line_tensor_and_thread():
    x, y, out = numbers(200), numbers(200), torch.empty(200)
    with device("sm_90"), pytest.raises(Fault) as found:
        add[(4,)](x, y, out, 200, 1, BLOCK)
    line = add.fn.__code__.co_firstlineno + 4
    wanted = r"4 bytes past the last of 800 bytes of x float32\(200\) "
    assert re.search(wanted + rf"\(.*test_device\.py:{line}, program \(3, 0, 0\)", str(found.value))


def test_a_slice_ends_where_it_ends_not_where_its_storage_does():
    storage = numbers(201)
    with device("sm_90"), pytest.raises(Fault, match="past the last of 800 bytes of x"):
        add[(4,)](storage[:200], numbers(200), torch.empty(200), 200, 1, BLOCK)


def test_storage_behind_views_may_be_accessed():
    views = [numbers(201)[:200] for _ in range(3)]
    with device("sm_90", bounds="storage"):
        add[(4,)](*views, 200, 1, BLOCK)
        with pytest.raises(Fault, match="past the last of 804 bytes of x"):
            add[(4,)](*views, 200, 2, BLOCK)
    with pytest.raises(ValueError, match="bounds is 'all', needs"), device(bounds="all"):
        pass


def test_benchmarks_time_nothing():
    with device("sm_90"):
        assert triton.testing.do_bench(lambda: 1 / 0, quantiles=[0.5, 0.2]) == [0.0, 0.0]


def test_view_that_is_no_tensor_is_bounded_by_its_base():
    class Shifted:
        def __init__(self, base):
            self._base, self.dtype = base, base.dtype

        def data_ptr(self):
            return self._base.data_ptr() + 400

    x, y, out = numbers(300), numbers(200), torch.empty(200)
    with device("sm_90"):
        add[(4,)](Shifted(x), y, out, 200, 0, BLOCK)
        assert torch.equal(out, x[100:] + y)
        with pytest.raises(Fault, match="past the last of 1200 bytes of x"):
            add[(4,)](Shifted(x), numbers(201), torch.empty(201), 200, 1, BLOCK)


def test_sum_by_atomic_additions_and_without():
    x, out = numbers(200), torch.zeros(1)
    with device("sm_90"):
        total[(4,)](x, out, 200, BLOCK, True)
        assert out.item() == x.sum().item()
        with pytest.raises(Fault, match=r"race, .*another (block|thread)"):
            total[(4,)](x, torch.zeros(1), 200, BLOCK, False)


def test_lock_held_to_the_last_store_and_released_before_it():
    x, want = numbers(256), numbers(256).reshape(4, BLOCK).sum(0)
    with device("sm_90"):
        out, lock = torch.zeros(BLOCK), torch.zeros(1, dtype=torch.int32)
        locked_total[(4,)](x, out, lock, 256, BLOCK, False)
        assert torch.equal(out, want)
        assert lock.item() == 0
        with pytest.raises(Fault, match="race"):
            locked_total[(4,)](x, torch.zeros(BLOCK), lock, 256, BLOCK, True)


@pytest.mark.parametrize(("arch", "late"), [("sm_80", False), ("sm_90", False), ("sm_90", True)])
def test_pipelined_product(arch, late):
    a, b = numbers(64, 96, dtype=torch.bfloat16), numbers(96, 128, dtype=torch.bfloat16)
    c = torch.empty(64, 128, device="cpu")
    with device(arch, late=late):
        product[lambda meta: (1, 128 // meta["BN"])](a, b, c, 64, 128, 96, SLIP=0)
    assert torch.equal(c, a.float() @ b.float())


def test_findings_are_collected_and_the_program_goes_on():
    findings, out = [], torch.zeros(200)
    a, b = numbers(64, 40, dtype=torch.float16), numbers(40, 64, dtype=torch.float16)
    with device("sm_90", findings=findings):
        product[(1, 1)](a, b, torch.empty(64, 64), 64, 64, 40, SLIP=1)
        add[(4,)](numbers(200), numbers(200), out, 200, 0, BLOCK)
    assert torch.equal(out, 2 * numbers(200))
    (finding,) = findings
    assert str(finding).startswith("product[(1, 1, 1)](float16(64, 40), float16(40, 64), ")
    assert "past the last" in finding.text


def test_tensor_descriptors():
    x, out = numbers(64, 32), torch.zeros(32, 64)
    with device("sm_90"):
        source = TensorDescriptor.from_tensor(x, [32, 16])
        transposed[(2, 2)](source, TensorDescriptor.from_tensor(out, [16, 32]), 32, 16)
    assert torch.equal(out, x.T)


def test_programs_for_cuda_stay_on_the_cpu():
    with device("sm_90"):
        x = torch.ones(200, device="cuda")
        assert x.is_cuda
        assert x.device == torch.device("cuda", 0)
        assert torch.empty(2, device=x.device).device == x.device
        with torch.device("cuda"):
            assert torch.zeros(2).device == x.to(torch.device("cuda:0")).device
        assert torch.cuda.get_device_capability() == (9, 0)
        out = torch.empty_like(x.cuda())
        add[(4,)](x, x.to("cuda"), out, 200, 0, BLOCK)
        torch.cuda.synchronize()
    assert not out.is_cuda
    assert out.sum().item() == 400


def test_architecture_must_be_known():
    with pytest.raises(ValueError, match="arch is 'gfx942', needs sm_80"), device("gfx942"):
        pass
