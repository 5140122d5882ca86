"""Positions and classes among the operands: every backend computes with those that are given."""

import numpy as np
import pytest

import convref
from convref.backends.registry import names
from convref.errors import MissingExtraError

BACKENDS = [name for name in ("numpy", "loops", "torch", "jax") if name in names()]


def _run(backend, function, *arguments, **keywords):
    try:
        return function(*arguments, **keywords, backend=backend)
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", [[0, 2], [1, 3], [3, 3], [-1, 2]])
def test_gradient_of_max_pool_goes_to_the_given_indices(backend, index):
    dy, x = np.array([[[5.0, 7.0]]]), np.array([[[9.0, 0.0, 9.0, 0.0]]])
    expected = np.zeros(5)
    np.add.at(expected, index, dy[0, 0])
    dx = _run(backend, convref.max_pool1d_backward, dy, x, 2, indices=np.array([[index]]))
    np.testing.assert_array_equal(dx[0, 0], expected[:4])


@pytest.mark.parametrize("backend", ["numpy", "loops", "torch"])
@pytest.mark.parametrize("index", [[0, 2], [1, 3], [3, 3], [-1, 2]])
def test_second_gradient_of_max_pool_is_read_at_the_given_indices(backend, index):
    ddx = np.array([[[1.0, 2.0, 3.0, 4.0]]])
    expected = np.append(ddx[0, 0], 0)[index]
    found = _run(
        backend, convref.max_pool1d_double_backward, ddx, 0 * ddx, 2, indices=np.array([[index]])
    )
    np.testing.assert_array_equal(found[0, 0], expected)


@pytest.mark.parametrize("backend", ["numpy", "loops", "torch"])
def test_adaptive_max_pool_uses_the_given_indices(backend):
    x, indices = np.array([[[9.0, 0.0, 9.0, 0.0]]]), np.array([[[1, -1]]])
    dy = np.array([[[5.0, 7.0]]])
    dx = _run(backend, convref.adaptive_max_pool1d_backward, dy, x, 2, indices=indices)
    np.testing.assert_array_equal(dx, [[[0, 5, 0, 0]]])
    ddy = _run(backend, convref.adaptive_max_pool1d_double_backward, x + 1, x, 2, indices=indices)
    np.testing.assert_array_equal(ddy, [[[1, 0]]])


ONE = np.ones((1, 1, 1))


@pytest.mark.parametrize("backend", ["auto", "numpy", "loops", "torch"])
@pytest.mark.parametrize("at", [2, 99, 10**8, -2, -(2**63)])
def test_a_position_outside_of_the_image_is_refused(backend, at):
    indices = np.array([[[at]]])
    text = rf"indices holds {at}, needs a position from 0 to 1 or -1"
    with pytest.raises(convref.ConvrefError, match=text):
        _run(backend, convref.max_pool1d_backward, ONE, np.ones((1, 1, 2)), 2, indices=indices)
    with pytest.raises(convref.ConvrefError, match=text):
        _run(backend, convref.max_unpool1d, ONE, indices, 2)


@pytest.mark.parametrize("backend", ["auto", "numpy", "loops", "torch"])
@pytest.mark.parametrize("wrong", [-1, 3, 9])
def test_a_class_that_does_not_exist_is_refused(backend, wrong):
    x, target = np.ones((2, 3)), np.array([0, wrong])
    text = rf"target holds {wrong}, needs a class from 0 to 2 or -100"
    with pytest.raises(convref.ConvrefError, match=text):
        _run(backend, convref.cross_entropy, x, target)
    with pytest.raises(convref.ConvrefError, match=text):
        _run(backend, convref.cross_entropy_backward, np.ones(()), x, target)


def test_invalid_positions_in_tensors_are_refused():
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("convref.integrations.torch.functional")
    ones, at = torch.ones, torch.tensor
    calls = (
        lambda f: f.max_unpool1d(ones(1, 1, 1), at([[[99]]]), 2),
        lambda f: f.cross_entropy(ones(2, 3), at([0, 9])),
    )
    for module in (convref, functional):
        for call in calls:
            with pytest.raises(
                convref.ConvrefError, match=r"holds 9+, needs a (class|position) from 0"
            ):
                call(module)
