"""Triton kernels on CPU tensors: their PTX runs, and their faults are found."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

import side_by_side  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from convref_ptx import Fault, device  # noqa: E402

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


def test_the_entry_point_is_the_device_and_the_package_needs_no_torch():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    ((name, value),) = project["project"]["entry-points"]["convref.triton_devices"].items()
    assert EntryPoint(name, value, "convref.triton_devices").load() is device
    light = "import convref_ptx, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", light], check=False).returncode == 0


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


@triton.jit
def rows(x, out, stride, width, BLOCK: tl.constexpr):
    n, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + n * BLOCK + i, tl.load(x + n * stride + i, i < width), i < width)


def test_what_lies_between_the_rows_of_a_view_is_not_of_the_tensor():
    x, out = numbers(4, 24), torch.zeros(4, 16)
    for view, width, where in ((x[:, :8], 9, 32), (x[:, 8:12], 6, 16), (x[:3, ::2], 2, 4)):
        with device("sm_90"), pytest.raises(Fault) as fault:
            rows[(3,)](view, out, 24, width, BLOCK=16)
        named = r"between the elements of a tensor: byte (\d+) of x float32\("
        found = re.search(named, str(fault.value))
        assert found, str(fault.value)
        assert int(found[1]) % 96 == where
        with device("sm_90", bounds="storage"):
            rows[(3,)](view, out, 24, width, BLOCK=16)
    with device("sm_90"):
        rows[(4,)](x[:, :8], out, 24, 8, BLOCK=16)
        rows[(1,)](x[:, :8], x[:, 8:], 24, 8, BLOCK=16)  # together they are all of x
    assert torch.equal(out[:, :8], x[:, :8])
    assert torch.equal(x[0, 8:16], x[0, :8])


def test_a_kernel_writes_only_to_what_the_caller_says():
    x, y, out = numbers(200), numbers(200), torch.zeros(200)
    with device("sm_90", writable=["x"]), pytest.raises(Fault) as found:
        add[(4,)](x, y, out, 200, 0, BLOCK)
    assert re.search(r"writes to an operand: byte \d+ of out float32\(200\) \(", str(found.value))
    assert not out.any()
    with device("sm_90", writable=["out"]):
        add[(4,)](x, y, out, 200, 0, BLOCK)
    assert torch.equal(out, x + y)


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


def test_tensors_that_the_program_placed_on_the_cpu_are_there():
    with device("sm_90"):
        x = torch.ones(200, device="cuda")
        here = x.cpu()
        here += 1  # a copy, as from a GPU
        assert x.sum().item() == 200
        for host in (here, x.to("cpu"), torch.zeros(3, device="cpu"), here[:2] * 2,
                     torch.cat([here, here]), torch.empty_like(here), x.to(here)):  # fmt: skip
            assert host.device == torch.device("cpu")
            assert (host.is_cuda, host.is_cpu, host.get_device()) == (False, True, -1)
        assert here.cpu() is here
        assert here.to("cuda", torch.float32, False, True).is_cuda
        for placed in (x, here.cuda(), here.to("cuda"), here.to(x), x + here[0]):
            assert placed.device == torch.device("cuda", 0)
            assert (placed.is_cuda, placed.is_cpu, placed.get_device()) == (True, False, 0)
        assert x.cuda() is x
        with pytest.raises(Fault, match="y is a tensor on the CPU"):
            add[(4,)](x, here, x, 200, 0, BLOCK)


def test_backward_of_a_function_is_on_cuda():
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, dy):
            seen.append((dy.device.type, torch.empty(2, device=dy.device).device.type))
            return 2 * dy

    with device("sm_90"):
        x = torch.ones(3, device="cuda", requires_grad=True)
        Twice.apply(x).sum().backward()
        (gradient,) = torch.autograd.grad(Twice.apply(x).sum(), x)
    assert seen == [("cuda", "cuda")] * 2
    assert torch.equal(gradient, x.grad)


def test_architecture_must_be_known():
    with pytest.raises(ValueError, match="arch is 'gfx942', needs sm_80"), device("gfx942"):
        pass


FLATTENED = pytest.mark.xfail(reason="triton issue 11519: 3.6.0 to 3.8.0 miscompile", strict=False)


@pytest.mark.parametrize("flat", [False, pytest.param(True, marks=FLATTENED)])
def test_inner_loop_without_iterations(flat):
    assert side_by_side.computed(flat)[1] == side_by_side.WANTED


def test_versions_are_shown_side_by_side(capsys):
    found = side_by_side.described()
    side_by_side.show([found, {**found, "version": "0"}])
    lines = capsys.readouterr().out.splitlines()
    assert f"Triton {triton.__version__}, flatten=False: right, [0.0, -1.0" in lines[0]
    assert re.fullmatch(rf"Triton {triton.__version__} +\| Triton 0", lines[4])
    assert any(re.fullmatch(r"(mov.u32 %r1, %tid.x;) +\| \1", line) for line in lines)


@triton.jit
def copied(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n), i < n)


def test_memory_that_nothing_wrote_is_undefined():
    def run(x, out):
        copied[(2,)](x, out, 100, BLOCK)
        return out

    with device("sm_90"):
        x, out = torch.empty(100), torch.empty(100)
        assert x.isnan().all()
        with pytest.raises(Fault, match=r"reads memory that was not written .*test_device.py:\d+"):
            run(x, out)
        x[:99] = 1
        with pytest.raises(Fault, match="reads memory that was not written"):
            run(x, out)
        x[99:].fill_(1)
        assert run(run(x, out), torch.empty_like(x)).sum() == 100  # a kernel writes to it
        x, y = torch.empty(200)[::2], torch.empty(100, dtype=torch.int32)
        torch.add(out, out, out=x)
        y.numpy()[...] = 3
        assert run(torch.as_strided(x, (100,), (1,)).copy_(out), torch.empty(100)).sum() == 100
        assert run(y, torch.empty(100)).sum() == 300
        assert run(torch.ones(100).new_empty(100).normal_(), out) is out
        with pytest.raises(Fault, match="updates memory that was not written"):
            total[(1,)](out, torch.empty(1), 100, BLOCK, True)


def test_a_launch_that_ends_at_a_finding_leaves_no_second_one():
    findings, x = [], torch.ones(100)
    with device("sm_90", findings=findings):
        out = torch.empty(100)
        add[(2,)](x, x, out, 100, 1, BLOCK)
        copied[(2,)](out, torch.empty(100), 100, BLOCK)
    assert len(findings) == 1


@triton.jit
def checked(x, out, n, most, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n, other=0.0)
    tl.device_print("value", value)
    tl.device_assert(value < most, "too large")
    tl.store(out + i, value, i < n)


def test_device_print_and_device_assert(capsys):
    with device("sm_90"):
        x = torch.arange(40, dtype=torch.float32)
        checked[(1,)](x, torch.empty_like(x), 40, 40, BLOCK=64, num_warps=1, debug=True)
        lines = capsys.readouterr().out.splitlines()
        wanted = [f"pid (0, 0, 0) idx ({n:2d}) value: {n % 40 * (n < 40):f}" for n in range(64)]
        assert sorted(lines) == sorted(wanted)
        reason = rf"^assert\(too large\): does not hold \(.*{Path(__file__).name}:\d+, program"
        with pytest.raises(Fault, match=reason):
            checked[(1,)](x, torch.empty_like(x), 40, 30, BLOCK=64, num_warps=1, debug=True)
