"""The public activations: torch's meaning, any shape, and wrong calls with their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("torch", reason="torch is not installed")

import torch
import torch.nn.functional as F

import convref
from convref.ops import GROUPS, SIGNATURE

RNG = np.random.default_rng(0)
SHAPES = [(), (7,), (3, 4), (2, 3, 4), (2, 3, 4, 2), (2, 1, 3, 2, 2), (2, 1, 2, 1, 2, 2)]
TORCH: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "relu": (F.relu, ()),
    "leaky_relu": (F.leaky_relu, (0.3,)),
    "silu": (F.silu, ()),
    "gelu": (F.gelu, ()),
    "hardswish": (F.hardswish, ()),
    "hardsigmoid": (lambda x: F.relu6(x + 3) / 6, ()),  # ATen's own takes 1 / 6 in float32
    "sigmoid": (torch.sigmoid, ()),
    "tanh": (torch.tanh, ()),
    "threshold": (F.threshold, (0.5, 2.0)),
    "softmax": (F.softmax, (-1,)),
    "log_softmax": (F.log_softmax, (0,)),
}
ONE_OPERAND = [op for op in GROUPS["activation"] if hasattr(F, op) or op in TORCH]
ONE_OPERAND = [op for op in ONE_OPERAND if SIGNATURE[op, "fprop"].operands == ("x",)]


def near(got: Any, want: Any) -> None:
    """Raise unless float64 results of a few roundings on numbers below 10 agree."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    fine = np.abs(got - want) <= 256 * 2.0**-53 * (np.abs(want) + 10)
    assert np.all(fine | ((got != got) & (want != want)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ONE_OPERAND)
def test_same_call_as_torch_gives_same_result(name: str, shape: tuple[int, ...]) -> None:
    function, arguments = TORCH.get(name) or (getattr(F, name), ())
    if not shape and "softmax" in name:
        pytest.skip("a number has no axis to sum over")
    x, dy, dots = (RNG.standard_normal(shape) for _ in range(3))
    t = torch.from_numpy(np.array(x)).requires_grad_()
    want = function(t, *arguments)
    near(getattr(convref, name)(x, *arguments), want.detach())
    (dx,) = torch.autograd.grad(want, t, torch.from_numpy(np.array(dy)))
    near(getattr(convref, f"{name}_backward")(dy, x, *arguments), dx)
    y, y_dot = getattr(convref, f"{name}_jvp")((x,), (dots,), *arguments)
    near(y, want.detach())
    near(np.sum(dy * y_dot), np.sum(np.asarray(dx) * dots))
    second = getattr(convref, f"{name}_double_backward")
    piecewise = "dy" not in SIGNATURE[name, "double_backward"].operands
    ddy = second(dots, x, *arguments) if piecewise else second(dots, dy, x, *arguments)[0]
    assert ddy.shape == shape
    ours = getattr(convref, name)(torch.from_numpy(np.array(x)), *arguments)
    assert isinstance(ours, torch.Tensor)
    near(ours, want.detach())


LOGITS = RNG.standard_normal((3, 5, 2, 2))
TARGET = RNG.integers(0, 5, (3, 2, 2))
CLASSES = np.arange(1.0, 6)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, CLASSES])
@pytest.mark.parametrize("axes", [1, 2, 4])
def test_cross_entropy_matches_torch(
    axes: int, weight: Any, reduction: str, smoothing: float
) -> None:
    x, target = {
        1: (LOGITS[0, :, 0, 0], TARGET[0, 0, 0]),
        2: (LOGITS[..., 0, 0], TARGET[:, 0, 0]),
        4: (LOGITS, TARGET),
    }[axes]
    x, target = np.ascontiguousarray(x), np.asarray(target)
    t = torch.from_numpy(x.copy()).requires_grad_()
    ignored = int(TARGET[0, 0, 1])
    options = {"ignore_index": ignored, "reduction": reduction, "label_smoothing": smoothing}
    w = None if weight is None else torch.from_numpy(weight.copy())
    want = F.cross_entropy(t, torch.from_numpy(target.copy()), w, **options)
    near(convref.cross_entropy(x, target, weight, **options), want.detach())
    dy = RNG.standard_normal(tuple(want.shape))
    if target.size > 1 or int(target) != ignored:
        (dx,) = torch.autograd.grad(want, t, torch.from_numpy(np.array(dy)))
        near(convref.cross_entropy_backward(dy, x, target, weight, **options), dx)
        dots = RNG.standard_normal(x.shape)
        _, y_dot = convref.cross_entropy_jvp((x,), (dots,), target, weight, **options)
        near(np.sum(dy * y_dot), np.sum(np.asarray(dx) * dots))
        ddy, dx2 = convref.cross_entropy_double_backward(dots, dy, x, target, weight, **options)
        near(ddy, y_dot)
        assert dx2.shape == x.shape


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, CLASSES])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (3, 5, 2, 2)])
def test_cross_entropy_of_probabilities_matches_torch(
    shape: tuple[int, ...], weight: Any, reduction: str, smoothing: float
) -> None:
    x, p, *dots = (RNG.standard_normal(shape) for _ in range(4))
    options = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
    t, q = (torch.tensor(a, requires_grad=True) for a in (x, p))
    w = None if weight is None else torch.tensor(weight)
    want = F.cross_entropy(t, q, **{**options, "weight": w})
    for name in ("cross_entropy", "soft_cross_entropy"):
        near(getattr(convref, name)(x, p, **options), want.detach())
    dy = RNG.standard_normal(tuple(want.shape))
    first = torch.autograd.grad(want, (t, q), torch.tensor(dy), create_graph=True)
    found = convref.soft_cross_entropy_backward(dy, x, p, **options)
    for got, theirs in zip(found, first, strict=True):
        near(got, theirs.detach())
    near(convref.cross_entropy_backward(dy, x, p, **options), found[0])
    second = torch.autograd.grad(first, (t, q), [torch.tensor(a) for a in dots])
    found = convref.soft_cross_entropy_double_backward(*dots, dy, x, p, **options)
    for got, theirs in zip(found[1:], second, strict=True):
        near(got, theirs)
    near(convref.soft_cross_entropy_jvp((x, p), dots, **options)[1], found[0])
    _, y_dot = convref.cross_entropy_jvp((x,), dots[:1], p, **options)
    ddy, _ = convref.cross_entropy_double_backward(dots[0], dy, x, p, **options)
    near(ddy, y_dot)


def test_probabilities_have_no_ignored_index() -> None:
    with pytest.raises(convref.ConvrefError, match="ignore_index is 1, needs -100"):
        convref.cross_entropy(LOGITS, LOGITS, ignore_index=1)


def test_masked_results_are_none() -> None:
    x = np.ones(3)
    assert convref.silu_double_backward(x, x, x, (True, False))[1] is None
    assert convref.softmax_double_backward(x, x, x, 0, (False, True))[0] is None


def test_integers_and_fractions() -> None:
    assert_array_equal(convref.relu(np.array([-3, 4], np.int8)), np.array([0, 4], np.int8))


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_a_number_is_that_of_one_element(name: str, dim: int) -> None:
    x = torch.tensor(3.0)
    want = getattr(F, name)(x, dim)
    for got in (getattr(convref, name)(x, dim), getattr(convref, name)(np.array(3.0), dim)):
        assert got.shape == ()
        assert float(got) == want.item()
    assert float(getattr(convref, f"{name}_backward")(x, x, dim)) == 0
    with pytest.raises(convref.ConvrefError, match="dim is 1, needs -1 to 0"):
        getattr(convref, name)(x, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_dtype_is_that_of_the_computation_as_in_torch(name: str, dtype: torch.dtype) -> None:
    """Operands are cast first; the gradient has the type of the input."""
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).half()
    for operand in (x, torch.arange(6).reshape(2, 3)):
        got, want = (getattr(f, name)(operand, 1, dtype=dtype) for f in (convref, F))
        assert got.dtype == dtype
        torch.testing.assert_close(got, want)
    x.requires_grad_()
    dy = torch.ones(2, 3, dtype=dtype) * x.detach()
    (want,) = torch.autograd.grad(getattr(F, name)(x, 1, dtype=dtype), x, dy)
    x = x.detach()
    got = getattr(convref, f"{name}_backward")(dy, x, 1, dtype=dtype)
    assert got.dtype == torch.float16
    torch.testing.assert_close(got, want)
    y, y_dot = getattr(convref, f"{name}_jvp")((x,), (x,), 1, dtype=dtype)
    assert (y.dtype, y_dot.dtype) == (dtype, dtype)
    second = getattr(convref, f"{name}_double_backward")(x, dy, x, 1, dtype=dtype)
    assert [a.dtype for a in second] == [dtype, torch.float16]
    with pytest.raises(convref.ConvrefError, match="dtype is 'f4', needs a dtype of the kind"):
        getattr(convref, name)(x, 1, dtype="f4")
    assert getattr(convref, name)(np.arange(3), 0, dtype="f4").dtype == np.float32
