"""What a typed tolerance, dense data and generated data catch of the same faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import measure  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from convref import Numerics  # noqa: E402
from convref.judge.programs import Program, for_program, judge_results  # noqa: E402

K, ROWS = 8192, 24


def reference(x, w, b):
    """Return a linear layer, a division and a GELU."""
    return F.gelu(F.linear(x, w, b) / 10)


def blocked(x, w, b):
    """Return the product as a sum of 32 partial sums."""
    return sum(p @ q.t() for p, q in zip(x.chunk(32, 1), w.chunk(32, 1))) + b


def half_sums(x, w, b):
    total = torch.zeros(x.shape[0], w.shape[0], dtype=torch.float16)
    for p, q in zip(x.chunk(K // 16, 1), w.chunk(K // 16, 1)):
        total += (p @ q.t()).half()
    return total.float() + b


def one_output(x, w, b):
    y = blocked(x, w, b)
    y[3, 5] -= x[3, -1] * w[5, -1]
    return y


def finished(linear, approximate="none"):
    return lambda x, w, b: F.gelu(linear(x, w, b) / 10, approximate=approximate)


RIGHT = finished(blocked)
FAULTS = {
    "drops the last product": finished(lambda x, w, b: blocked(x[:, :-1], w[:, :-1], b)),
    "drops 32 products": finished(lambda x, w, b: blocked(x[:, :-32], w[:, :-32], b)),
    "first product twice": finished(lambda x, w, b: blocked(x, w, b) + x[:, :1] @ w[:, :1].t()),
    "sums in float16": finished(half_sums),
    "bfloat16 operands": finished(
        lambda x, w, b: blocked(x.bfloat16().float(), w.bfloat16().float(), b)
    ),
    "no bias": finished(lambda x, w, b: blocked(x, w, 0)),
    "tanh for erf": finished(blocked, "tanh"),
    "one output drops a product": finished(one_output),
}


def benchmark_data(random):
    """Return data as KernelBench makes it: uniform inputs, the initial weights of a layer."""
    scale = K**-0.5
    x = torch.rand(ROWS, K, generator=random)
    return x, *(scale * (2 * torch.rand(s, generator=random) - 1) for s in ((ROWS, K), (ROWS,)))


def fails(kernel, data):
    """Return whether the judge fails a kernel."""
    report = judge_results(Program(reference, data, {}, Numerics()), kernel(*data))
    return report.verdict.kind == "wrong"


def close(kernel, data, tolerance):
    """Return whether a kernel passes a typed tolerance."""
    got, wanted = kernel(*data), reference(*data)
    return bool(((got - wanted).abs() <= tolerance * (1 + wanted.abs())).all())


def test_generated_data_show_what_a_tolerance_on_dense_data_passes():
    random = torch.Generator().manual_seed(0)
    given = benchmark_data(random)
    generated = [data for name, data in for_program(given, 1) if not name.startswith("special")]
    assert not any(fails(RIGHT, data) for data in generated)
    loose, tight = (
        {name for name, kernel in FAULTS.items() if close(kernel, given, 10.0**-digits)}
        for digits in (2, 4)
    )
    assert loose == set(FAULTS)  # 1e-2 passes all eight
    assert "tanh for erf" in tight
    dense = {name for name, kernel in FAULTS.items() if not fails(kernel, given)}
    assert len(dense) >= 6  # the proven bound of 8,192 dense products is no better
    for name, kernel in FAULTS.items():
        assert any(fails(kernel, data) for data in generated), name


def test_bounds_are_narrow_on_sparse_data():
    random = torch.Generator().manual_seed(0)
    given = benchmark_data(random)
    sparse = dict(for_program(given, 1))["sparse argument 0, 0"]
    dense, narrow = (
        Program(reference, data, {}, Numerics()).traced()[1]["output"][1].error.median()
        for data in (given, sparse)
    )
    assert dense > 100 * narrow


def test_a_correct_sum_that_a_typed_tolerance_fails_passes():
    """Sums of 131,072 products one after the other, as a direct convolution adds them."""
    random = torch.Generator().manual_seed(0)
    half = torch.randn(4, 1 << 16, generator=random)
    x, w = torch.cat([half, -half], 1), torch.ones(1 << 17, 1)
    y = torch.from_numpy(np.cumsum(x.numpy(), 1)[:, -1:].copy())
    assert bool((y.abs() > 1e-3).any())  # the right results are 0; 1e-3 + 1e-3 |y| is the tolerance
    report = judge_results(Program(torch.matmul, (x, w), {}, Numerics()), y)
    assert report.verdict.kind == "vacuous", str(report)  # right, but these data cannot tell
    assert (
        judge_results(Program(torch.matmul, (x, w), {}, Numerics()), y + 1000).verdict.kind
        == "wrong"
    )


def test_bounds_are_as_narrow_as_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "programs.md").read_text("utf-8")
    _, _, table = page.partition("| operation | 2^4 | 2^8 | 2^12 |\n")
    for name in measure.TIGHTNESS:
        row = table.partition(f"| {name} | ")[2].partition(" |\n")[0].split(" | ")
        for length, cell in zip((4, 8, 12), row, strict=True):
            assert measure.roundings(name, length) <= 1.01 * float(cell), (name, length)
