"""`assert_close` in place of torch.testing's: a test file changes its import, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from contextvars import Context
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn import functional as F  # noqa: E402

from convref import ConvrefError, UnsupportedError  # noqa: E402
from convref.integrations import pytest_plugin  # noqa: E402
from convref.integrations.torch.testing import assert_close, recording  # noqa: E402

# Tests as projects of kernels have them. The first kernel is right, the second is wrong.
OP_TESTS = """
import numpy
import torch
from torch.nn import functional as F

SIZES = numpy.arange(3)
from {module} import assert_close

EPS = torch.finfo(torch.bfloat16).eps


def split_k(x, w, parts=16):
    return torch.stack([a @ b for a, b in zip(x.chunk(parts, 1), w.chunk(parts, 0))]).sum(0)


def test_split_k():
    torch.manual_seed(0)
    x, w = torch.randn(16, 4096), torch.randn(4096, 16)
    assert_close(split_k(x, w), x @ w)


def layer_norm(x, eps=1e-5):
    wide = x.float()
    centered = wide - wide.mean(-1, keepdim=True)
    return (centered * torch.rsqrt(wide.var(-1, keepdim=True) + eps)).to(x.dtype)


def test_layer_norm():
    x = (torch.randn(16, 64) * 2 + 1).to(torch.bfloat16)
    assert_close(layer_norm(x), F.layer_norm(x, x.shape[-1:]), rtol=EPS + EPS, atol=EPS)
"""
MODULES = ("torch.testing", "convref.integrations.torch.testing")


def outcomes(module):
    """Run the tests of a file as pytest does with the plug-in; return their errors by name."""
    names = {}
    exec(OP_TESTS.format(module=module), names)
    item, errors = SimpleNamespace(module=SimpleNamespace(**names)), {}
    for name in ("test_split_k", "test_layer_norm"):
        run = pytest_plugin.pytest_runtest_protocol(item)
        next(run)
        try:
            names[name]()
        except AssertionError as error:
            errors[name] = str(error).splitlines()[0]
        with pytest.raises(StopIteration):
            run.send(None)
    return errors


def test_a_test_file_that_changes_its_import():
    typed, derived = map(outcomes, MODULES)
    assert typed == {"test_split_k": "Tensor-likes are not close!"}
    assert derived.keys() == {"test_layer_norm"}
    assert derived["test_layer_norm"].startswith("wrong: output[0, 0] is ")
    with pytest.raises(ConvrefError, match="let pytest load"):
        Context().run(assert_close, torch.zeros(1), torch.zeros(1) + 1)  # as without the plug-in


@pytest.mark.nightly
def test_pytest_records_the_tests_of_such_a_file(tmp_path):
    (tmp_path / "test_ops.py").write_text(OP_TESTS.format(module=MODULES[1]), "utf-8")
    words = ("pytest", "-q", "-p", "convref.integrations.pytest_plugin", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", *words, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "1 failed, 1 passed" in found.stdout, found.stdout
    assert ">       assert_close(layer_norm(x), F.layer_norm(" in found.stdout


def reversed_sum(x):
    return x.flip(1).sum(1)


@recording()
def test_gradients_are_judged():
    x, w, dy = torch.randn(4, 6), torch.randn(6, 3), torch.randn(4, 3)
    found = []
    for approximate in ("none", "none", "tanh"):
        leaves = [t.clone().requires_grad_() for t in (x, w)]
        product = leaves[0] @ leaves[1] if found else (leaves[0][:, None] * leaves[1].t()).sum(-1)
        F.gelu(product, approximate=approximate).backward(dy)
        found.append([t.grad for t in leaves])
    assert assert_close(found[0], found[1]).verdict.tier == "proven"
    with pytest.raises(AssertionError, match=r"wrong: output\[0\]\[0, 0\]"):
        assert_close(found[2], found[1])


@recording()
def test_operations_in_place_are_repeated_in_their_order():
    x = torch.randn(5, 7)
    expected = x.clone()
    expected[1:].mul_(0.1).add_(x[:-1])
    actual = torch.cat([x[:1], x[1:] / 10 + x[:-1]])
    x.zero_()
    expected.neg_()
    assert assert_close(-actual, expected)
    with pytest.raises(AssertionError, match=r"wrong: output\[0, 0\]"):
        assert_close(actual, expected)


@recording()
def test_data_that_a_kernel_cannot_have_read_are_no_part_of_the_program():
    """A kernel gets what was rounded: its bound has no rounding of what was freed before."""
    x = ((torch.rand(5, 70) - 0.5) / 3).to(torch.float16)
    held = torch.rand(5, 70)
    y = held.to(torch.float16)
    bounds = []
    for operand in (x, y):
        out = torch.empty(5, dtype=torch.float16)
        out.numpy()[:] = operand.numpy().astype("f8").sum(1)  # PyTorch does not see it
        report = assert_close(out, operand.sum(1))
        bounds.append(report.verdict.worst)
        labels = set(report.program.traced()[0].labels)
        assert ("aten._to_copy to float16" in labels) == (operand is y), labels


@recording()
def test_tables_that_a_kernel_can_compute_too_are_part_of_the_program():
    table = (torch.arange(40.0) * 0.37).cos()  # what it was computed of is freed
    x = torch.randn(3, 40)
    expected, actual = x * table, torch.empty(3, 40)
    wide = (torch.arange(40, dtype=torch.float64) * 0.37).cos()
    actual.numpy()[:] = (x.double() * wide).numpy()
    assert assert_close(actual, expected).verdict.worst > 0


@recording()
def test_a_dtype_other_than_that_of_expected():
    x, w = torch.randn(9, 33), torch.randn(33, 5)
    half, wide = torch.bfloat16, torch.float64
    actual = (x.to(half) @ w.to(half)).float()
    expected = (x.to(half) @ w.to(half)).float()
    assert assert_close(actual, expected)  # rounded to bfloat16 before it became wide
    assert assert_close(x @ w, x.to(wide) @ w.to(wide), check_dtype=False)
    assert assert_close((x @ w).to(wide), x.to(wide) @ w.to(wide))
    for flags, says in (({}, "has dtype torch.float32, needs"), ({"check_dtype": False}, "is ")):
        with pytest.raises(AssertionError, match=says):
            assert_close(x @ w * 1.001, x.to(wide) @ w.to(wide), **flags)


@recording()
def test_the_form_of_results():
    x = torch.randn(2, 3)
    actual, expected = {"a": [x + 1, 2, None]}, {"a": (1 + x, 2, None)}
    assert_close(actual, expected)
    transposed = (1 + x).t().contiguous().t()
    assert_close(transposed, expected["a"][0])
    for got, flags, says in (
        (transposed, {"check_stride": True}, "has stride"),
        (x, {"msg": "mine"}, "^mine$"),
        (x, {"msg": lambda text: f"mine: {text}"}, "^mine: wrong: output"),
        ([x + 1], {}, r"actual has output\[0\], needs output"),
        (x[:, :1] + 1, {}, "has shape"),
        (1.5, {}, "is a float, needs a Tensor"),
    ):
        with pytest.raises(AssertionError, match=says):
            assert_close(got, expected["a"][0], **flags)


@recording()
def test_constants_need_to_be_equal():
    one = torch.tensor([1.0, float("nan")])
    assert assert_close(one + 0, one) is None
    assert_close([3, 0.5, None, "a"], [3, 0.5, None, "a"])
    with pytest.raises(AssertionError, match="is not equal to expected"):
        assert_close(torch.tensor([1]), torch.tensor([2]))
    x = torch.randn(3)
    for actual, expected, says in (
        (x.exp(), torch.ones(3), "what was computed before has no record"),
        (x, torch.ones(3), "compute it in the test"),
        (x.exp().max().item(), 0.5, "no recorded operation computed it"),
    ):
        with pytest.raises(ConvrefError, match=says):
            assert_close(actual, expected)


@recording()
def test_what_cannot_be_judged_is_refused():
    x = torch.randn(3, 3)
    with pytest.raises(UnsupportedError, match="no rule"):
        assert_close(x + 1, torch.linalg.svd(x)[0])
    with pytest.raises(UnsupportedError, match="sparse"):
        assert_close(x + 1, x.to_sparse() @ x)
    expected = x.exp()
    expected.numpy()[0] = 0
    with pytest.raises(ConvrefError, match="other code wrote to it, or to its data"):
        assert_close(expected.clone(), expected)


@recording()
def test_random_numbers_are_data():
    x = torch.empty(5, 7).normal_(0, 0.5)
    torch.manual_seed(0)
    actual = F.dropout(x) * 3
    x[0].uniform_()
    x[0] += 1
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match="wrong: output"):
        assert_close(actual, F.dropout(x) * 3)
    assert_close(reversed_sum(x), x.sum(1))


@recording()
def test_what_a_review_found():
    """Each was passed, failed or refused wrongly."""
    x, w, n = torch.randn(16, 64), torch.randn(64, 8), torch.arange(3.0)
    with pytest.raises(AssertionError, match="wrong: "):  # rounded to bfloat16, in a float32 kernel
        assert_close((x @ w).bfloat16().float(), x @ w)
    with pytest.raises(AssertionError, match="wrong: "):
        assert_close(torch.arange(3), n * 1.3, check_dtype=False)
    with pytest.raises(AssertionError, match="has shape"):
        assert_close(torch.zeros(3), torch.zeros(4))
    assert_close((n * 2).to(torch.int64), (n * 2).long())
    assert_close({"a": n, "b": x}, {"b": x, "a": n})
    y = n * 2
    y.unsqueeze_(0)
    assert_close((n + n)[None], y)
    assert_close(x[:, :0] @ w[:0], torch.zeros(16, 8) * n[1])

    def product():
        torch.manual_seed(0)
        return torch.randn(4, 300), torch.randn(300, 4)

    left, right = product()
    expected = left @ right
    left, right = product()
    assert_close(left[:, :150] @ right[:150] + left[:, 150:] @ right[150:], expected)
