"""Calls whose arguments print alike, are equal or are read once: each has a plan of its own."""

import numpy as np
import pytest

import convref

X = np.random.default_rng(0).normal(size=(2, 3, 8))
W = np.ones((2, 3, 3))


def _torch_scalar(value):
    return pytest.importorskip("torch").tensor(value)


# Two calls in this order, and whether their results differ.
PAIRS = {
    "an iterator as stride": (
        lambda: convref.conv1d(X, W, stride=(s for s in (1,))),
        lambda: convref.conv1d(X, W, stride=(s for s in (2,))),
    ),
    "a tensor that prints alike": (
        lambda: convref.layer_norm(X, 8, eps=_torch_scalar(0.12341)),
        lambda: convref.layer_norm(X, 8, eps=_torch_scalar(0.12339)),
    ),
    "an array that prints alike": (
        lambda: convref.interpolate(X, scale_factor=np.array([1.5 + 1e-11])),
        lambda: convref.interpolate(X, scale_factor=np.array([1.5 - 1e-11])),
    ),
    "an array element that prints alike": (
        lambda: convref.leaky_relu(X, np.array(0.12341)),
        lambda: convref.leaky_relu(X, np.array(0.12339)),
    ),
    "zeros of both signs": (
        lambda: np.signbit(convref.leaky_relu(X, 0.0)),
        lambda: np.signbit(convref.leaky_relu(X, -0.0)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_call_is_not_computed_with_the_arguments_of_the_call_before(name):
    first, second = PAIRS[name]
    with np.printoptions(precision=2):
        results = [call() for call in (first, second, first)]
    fresh = []
    for call in (first, second):
        convref.api.run.plans.clear()
        fresh.append(call())
    np.testing.assert_array_equal(results[0], fresh[0])
    np.testing.assert_array_equal(results[1], fresh[1])
    np.testing.assert_array_equal(results[2], fresh[0])


@pytest.mark.parametrize("first", [(1,), 1, [1]])
def test_a_bool_is_no_stride_after_an_equal_integer(first):
    functional = pytest.importorskip("convref.integrations.torch.functional")
    torch = pytest.importorskip("torch")
    for function, x, w in (
        (convref.conv1d, X, W),
        (functional.conv1d, torch.from_numpy(X), torch.from_numpy(W)),
    ):
        function(x, w, stride=first)
        wrong = True if isinstance(first, int) else type(first)([True])
        with pytest.raises(convref.ConvrefError, match=r"stride.* True, needs an integer"):
            function(x, w, stride=wrong)


def test_a_tensor_that_changed_in_place_is_read_again():
    functional = pytest.importorskip("convref.integrations.torch.functional")
    torch = pytest.importorskip("torch")
    x, eps = torch.from_numpy(X), torch.tensor(0.5)
    before = functional.layer_norm(x, (8,), eps=eps)
    eps.fill_(2.0)
    assert not torch.equal(functional.layer_norm(x, (8,), eps=eps), before)


def test_an_endless_iterator_is_refused():
    from itertools import count

    with pytest.raises(convref.ConvrefError, match="stride has 9 entries"):
        convref.conv1d(X, W, stride=count(1))
