"""Probes of the compiler and the card, and the property list: rehearsed without a card."""

import pytest

torch = pytest.importorskip("torch")

from convref.case import parse  # noqa: E402
from convref_bench.gpu import accumulate, properties, steps  # noqa: E402


def nearest(a, b, dtype):
    return torch.mm(a.float(), b.float())


def truncating(a, b, dtype):
    """Every 64 terms the sum is cut to 24 bits, towards zero."""
    acc = torch.zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], 64):
        part = a[:, start : start + 64].double() @ b[start : start + 64].double()
        exact = acc.double() + part
        near = exact.float()
        down = torch.nextafter(near, torch.zeros_like(near))
        acc = torch.where(near.double() > exact, down, near)
    return acc


def test_truncation_shows_as_a_mean_that_falls_with_n(monkeypatch):
    monkeypatch.setattr(accumulate, "SIZE", 16)
    ways = {"near": nearest, "cut": truncating}
    rows = {(r["by"], r["dtype"], r["n"]): r for r in accumulate.rows((512, 4608), ways, "cpu")}
    assert len(rows) == 2 * 3 * 2
    for dtype in accumulate.DTYPES:
        assert rows["cut", dtype, 4608]["mean"] < 3 * rows["cut", dtype, 512]["mean"] < -3
        assert abs(rows["near", dtype, 4608]["mean"]) < -rows["cut", dtype, 4608]["mean"] / 3
        assert rows["cut", dtype, 512]["worst"] > 0


def test_a_failing_product_is_absent(monkeypatch):
    monkeypatch.setattr(accumulate, "SIZE", 16)

    def fails(a, b, dtype):
        raise RuntimeError("no such product")

    rows = list(accumulate.rows((64,), {"x": fails}, "cpu"))
    assert [row["absent"] for row in rows] == ["RuntimeError: no such product"] * 3


def test_property_list_has_few_specializations_of_many_sizes():
    lines = properties.lines()
    classes = sum(map(len, properties.KINDS.values())) * len(properties.PASSES) * 2
    assert classes + len(properties.other_lines()) <= 150
    assert len(set(lines)) == len(lines) > 400
    calls = [parse(line).call for line in lines]
    assert len({(c.op, c.pass_, c.mask, c.dtype, c.math) for c in calls}) == 22
    assert {c.problem.rank for c in calls} == {1, 2}
    assert all(spec.device == "cuda" for c in calls for spec in c.specs)
    assert {parse(line).fill for line in lines} >= {"int", "normal", "nan"}


def test_a_step_holds_kernels_to_the_oracle_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(properties, "lines", lambda: LINES)
    monkeypatch.setattr(properties, "CHUNK", 2)
    child = steps.StepRun(tmp_path / "x", 600, "k")
    assert list(properties.check(child, "numpy", "cpu")) == []
    rows = steps.StepRun(tmp_path / "x", 600, "k").before
    assert [(row["chunk"], sum(row["counts"].values())) for row in rows] == [(0, 2), (1, 1)]
    again = steps.StepRun(tmp_path / "x", 600, "k")
    again.before[:] = rows[:1]
    assert list(properties.check(again, "numpy", "cpu")) == []
    assert [row["chunk"] for row in steps.StepRun(tmp_path / "x", 600, "k").before] == [0, 1, 1]
    again.before[0]["findings"] = [{"line": "wrong before"}]
    assert [row["line"] for row in properties.check(again, "numpy", "cpu")] == ["wrong before"]


LINES = (
    "conv.fprop:n1c2k2_i4x4_f3x3:bias=0:seed=1",
    "conv.dgrad:n1c2k2_i4x4_f3x3:seed=2",
    "conv.wgrad:n1c2k2_i4x4_f3x3:seed=3",
)


def test_the_loop_of_the_probe_compiles_for_hopper():
    triton = pytest.importorskip("triton", reason="no Triton to compile the probe with")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from convref_bench.gpu.probe_kernels import dot_loop
    from convref_triton.compile import aot

    constants = {"TILE": 128, "STEP": 64, "PRECISION": "ieee"}
    signature = dict.fromkeys("ab", "*bf16") | {"out": "*fp32", "n": "i32"}
    signature |= dict.fromkeys(constants, "constexpr")
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    options = aot.OPTIONS | {"num_warps": 8}
    source = ASTSource(dot_loop, signature, constants, attrs)
    made = triton.compile(source, GPUTarget("cuda", 90, 32), options)
    assert "wgmma.mma_async" in made.asm["ptx"]
