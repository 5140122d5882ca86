"""Kernels of public reports about tolerances: the correct one passes, the faulty one fails."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn import functional as F  # noqa: E402

from convref import Numerics  # noqa: E402
from convref.judge.programs import Program, judge_results  # noqa: E402

half, bf16 = torch.float16, torch.bfloat16


def split_k(x, w, parts=8, held=torch.float32):
    """Return x w, each part of K summed by itself, in the accumulator type `held`."""
    sums = [(a.float() @ b.float()).to(held) for a, b in zip(x.chunk(parts, 1), w.chunk(parts, 0))]
    return sum(sums[1:], sums[0]).to(x.dtype)


def norm_rope(x, w, b, cos, sin):
    """Return a layer norm and a rotation of its halves, in the dtype of w, rounded once."""
    y = F.layer_norm(x.to(w.dtype), x.shape[-1:], w, b)
    first, second = y.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


def wide_rope(x, *others):
    return norm_rope(x, *(t.double() for t in others))


def rope_backwards(x, w, b, cos, sin):
    return norm_rope(x, w, b, cos, -sin)


def swiglu(x, w, v, out):
    return (F.silu(x @ w) * (x @ v)) @ out


def wide_swiglu(x, w, v, out):
    return swiglu(*(t.double() for t in (x, w, v, out))).to(x.dtype)


def dequantized(x, w, scale):
    """Return the product with blocks of 4 columns of x that have a scale each."""
    return (x * scale.repeat_interleave(4, 1)) @ w


def scaled_after(x, w, scale):
    """Scale the product of each block, as tensor cores of 8 bits do."""
    blocks = zip(x.split(4, 1), w.split(4), scale.unbind(1))
    return sum((a @ b) * s[:, None] for a, b, s in blocks)


def one_scale(x, w, scale):
    return dequantized(x, w, scale[:, :1].expand_as(scale))


def taps(x, w):
    """Return a convolution as the sum of a product for each tap."""
    rows, columns = x.shape[2] - 2, x.shape[3] - 2
    views = (x[:, :, i : i + rows, j : j + columns] for i in range(3) for j in range(3))
    return sum(
        torch.einsum("nchw,kc->nkhw", view, tap) for view, tap in zip(views, w.flatten(2).unbind(2))
    )


def wide_taps(x, w):
    return taps(x.float(), w.float()).to(x.dtype)


def lost_tap(x, w):
    w = w.clone()
    w[..., -1, -1] = 0
    return F.conv2d(x, w)


def rounded(x, w):
    return F.conv2d(x.bfloat16().float(), w.bfloat16().float())


def mean_of_squares(x):
    """Compute the variance as a difference of means, which cancels where they are large."""
    return (x.square().mean(-1) - x.mean(-1).square() + 1e-5).rsqrt()


def inverse_deviation(x):
    return (x.var(-1, correction=0) + 1e-5).rsqrt()


def two_passes(x):
    return ((x - x.mean(-1, keepdim=True)).square().mean(-1) + 1e-5).rsqrt()


def drawn(*shapes, dtype=torch.float32, scale=1.0, sparse=False):
    random = torch.Generator().manual_seed(1)
    found = [torch.randn(s, generator=random) * scale for s in shapes]
    if sparse:  # six products in a sum, so that the bound is narrow
        found[0] *= torch.rand(shapes[0], generator=random) < 6 / shapes[0][-1]
    return tuple(t.to(dtype) for t in found)


GEMM = (8, 2048), (2048, 8)
ROPE = *drawn((16, 32), dtype=bf16), *drawn((32,), (32,), (16, 16), (16, 16))
SWIGLU = (6, 16), (16, 24), (16, 24), (24, 8)
CONV = (1, 3, 8, 8), (4, 3, 3, 3)
# The report: the reference, its arguments, the correct kernel and the faulty one.
REPORTS = {
    "helion#3522": (
        torch.matmul,
        drawn(*GEMM, dtype=half),
        split_k,
        lambda x, w: split_k(x[:, :-256], w[:-256], 7),
    ),
    "aiter#5031": (
        torch.matmul,
        drawn(*GEMM, dtype=bf16, sparse=True),
        split_k,
        lambda x, w: split_k(x[:, :-32], w[:-32]),
    ),
    "HipKittens#64": (
        torch.matmul,
        drawn(*GEMM, dtype=bf16),
        lambda x, w: split_k(x.flip(1), w.flip(0), 32),
        lambda x, w: split_k(x, w, 256, bf16),
    ),
    "torchtitan#4348": (inverse_deviation, (drawn((4, 64))[0] + 100,), two_passes, mean_of_squares),
    "sglang#35795": (norm_rope, ROPE, wide_rope, rope_backwards),
    "torch-mojo-backend#439": (F.conv2d, drawn(*CONV), taps, rounded),
    "iree-test-suites#158": (F.conv2d, drawn(*CONV, dtype=half), wide_taps, lost_tap),
    "flashinfer-bench#178": (dequantized, drawn((6, 32), (32, 5), (6, 8)), scaled_after, one_scale),
    "Liger-Kernel#192": (
        swiglu,
        drawn(*SWIGLU, scale=30.0),
        wide_swiglu,
        lambda x, w, v, out: swiglu(x, v, w, out),
    ),
}


@pytest.mark.parametrize("report", REPORTS)
def test_the_correct_kernel_passes_and_the_faulty_one_fails(report):
    reference, args, correct, faulty = REPORTS[report]
    program = Program(reference, args, {}, Numerics())
    found = judge_results(program, correct(*args))
    assert found.verdict.kind == "pass", str(found)
    assert judge_results(program, faulty(*args)).verdict.kind == "wrong"
