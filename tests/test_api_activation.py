"""The public activations: torch's meaning, any shape, and wrong calls with their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_array_equal

import convref
from convref import ConvrefError

RNG = np.random.default_rng(0)
SHAPES = [(), (7,), (3, 4), (2, 3, 4), (2, 3, 4, 2), (2, 1, 3, 2, 2), (2, 1, 2, 1, 2, 2)]
TORCH: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "relu": (F.relu, ()),
    "leaky_relu": (F.leaky_relu, (0.3,)),
    "silu": (F.silu, ()),
    "gelu": (F.gelu, ()),
    "hardswish": (F.hardswish, ()),
    "sigmoid": (torch.sigmoid, ()),
    "tanh": (torch.tanh, ()),
    "softmax": (F.softmax, (-1,)),
    "log_softmax": (F.log_softmax, (0,)),
}


def near(got: Any, want: Any) -> None:
    """Raise unless float64 results of a few roundings on numbers below 10 agree."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    fine = np.abs(got - want) <= 256 * 2.0**-53 * (np.abs(want) + 10)
    assert np.all(fine | ((got != got) & (want != want)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TORCH)
def test_the_same_call_means_the_same_as_in_torch(name: str, shape: tuple[int, ...]) -> None:
    function, arguments = TORCH[name]
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
    piecewise = "relu" in name
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
def test_the_loss_of_torch(axes: int, weight: Any, reduction: str, smoothing: float) -> None:
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


def test_masked_results_are_none() -> None:
    x = np.ones(3)
    assert convref.silu_double_backward(x, x, x, (True, False))[1] is None
    assert convref.softmax_double_backward(x, x, x, 0, (False, True))[0] is None


def test_integers_and_fractions() -> None:
    assert_array_equal(convref.relu(np.array([-3, 4], np.int8)), np.array([0, 4], np.int8))


X = np.ones((2, 3))
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("relu", (None,), {}, "relu.fprop: input is None, needs an array"),
    ("relu", ([1.0],), {}, "input is a list, needs a NumPy array or torch tensor"),
    ("relu", (X + 0j,), {}, "complex numbers have no order"),
    ("silu", (X.astype(int),), {}, "results of i64 are no integers, needs floats or Fractions"),
    ("silu_backward", (X[:1], X), {}, "grad_output has shape (1, 3), needs (2, 3)"),
    ("silu_backward", (X.astype("f4"), X), {}, "grad_output has dtype f32, needs f64"),
    ("silu_backward", (torch.ones(2, 3), X), {}, "grad_output has kind torch, needs numpy"),
    ("silu_jvp", (X, (X,)), {}, "primals needs a tuple (input,)"),
    ("silu_double_backward", (X, X, X, True), {}, "output_mask is True, needs 2 bools"),
    ("leaky_relu", (X, "a"), {}, "negative_slope is 'a', needs a finite number"),
    ("leaky_relu", (X, float("nan")), {}, "negative_slope is nan, needs a finite number"),
    ("gelu", (X, "erf"), {}, "approximate is 'erf', needs one of none, tanh"),
    ("softmax", (X, 2), {}, "dim is 2, needs -2 to 1"),
    ("softmax", (X, 1.0), {}, "dim is 1.0, needs an integer"),
    ("softmax", (np.array(1.0), 0), {}, "dim is 0, needs an input with an axis"),
    ("cross_entropy", (X, np.array([0])), {}, "target has shape (1,), needs (2,)"),
    ("cross_entropy", (X, np.array([0, 3])), {}, "holds 3, needs a class from 0 to 2 or -100"),
    ("cross_entropy", (X, np.array([0.0, 1])), {}, "target has dtype f64, needs i64"),
    ("cross_entropy", (X, np.array([0, 1]), np.ones(2)), {}, "weight has shape (2,), needs (3,)"),
    ("cross_entropy", (X, np.array([0, 1])), {"reduction": "max"}, "needs one of mean, sum, none"),
    (
        "cross_entropy",
        (X, np.array([0, 1])),
        {"label_smoothing": 1.5},
        "label_smoothing is 1.5, needs 0 to 1",
    ),
    (
        "cross_entropy",
        (X, np.array([0, 1])),
        {"label_smoothing": -0.5},
        "label_smoothing is -0.5, needs a finite number of at least 0",
    ),
    (
        "cross_entropy",
        (X, np.array([0, 1])),
        {"ignore_index": 0.5},
        "ignore_index is 0.5, needs an",
    ),
    ("cross_entropy", (np.array(1.0), np.array(0)), {}, "input has 0 axes, needs 1 to 5"),
    (
        "cross_entropy_backward",
        (np.ones(2), X, np.array([0, 1])),
        {},
        "grad_output has shape (2,), needs ()",
    ),
]


@pytest.mark.parametrize(("name", "arrays", "keywords", "text"), WRONG, ids=[w[3] for w in WRONG])
def test_a_wrong_call_says_what_is_wrong(
    name: str, arrays: tuple[Any, ...], keywords: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConvrefError) as caught:
        getattr(convref, name)(*arrays, **keywords)
    assert text in str(caught.value)


OF_SHAPES = [row for row in WRONG if row[3] != "holds 3, needs a class from 0 to 2 or -100"]


@pytest.mark.parametrize(("name", "arrays", "keywords", "text"), OF_SHAPES)
def test_the_line_of_a_wrong_call_is_refused_in_the_same_words(
    name: str, arrays: tuple[Any, ...], keywords: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConvrefError) as caught:
        getattr(convref, name)(*arrays, **keywords)
    with pytest.raises(ConvrefError) as said:
        convref.case_of(name, *arrays, **keywords)
    assert str(said.value) == str(caught.value)
    assert text in str(said.value)
