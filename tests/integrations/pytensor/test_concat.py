"""Concatenation: its derivatives of any order, and JAX with sizes that PyTensor does not know."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytensor = pytest.importorskip("pytensor", reason="pytensor is not installed")
import pytensor.tensor as pt  # noqa: E402
from pytensor.gradient import pullback, pushforward, verify_grad  # noqa: E402

from convref.integrations import pytensor as cp  # noqa: E402

pytestmark = [  # PyTensor gives PyTorch constants that are not writable; Inductor uses TorchScript
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
]
PLAIN = pytensor.compile.Mode("py", optimizer=None)
NIGHTLY = settings.default.max_examples > 100


@st.composite
def arrays(draw, least=0):
    """Return arrays of drawn sizes from `least`, which differ along one axis, and the axis."""
    axes = draw(st.integers(1, 5))
    axis, count = draw(st.integers(-axes, axes - 1)), draw(st.integers(1, 4))
    sizes = [draw(st.integers(least, 2 if axes > 3 else 3)) for _ in range(axes)]
    draws, found = np.random.default_rng(draw(st.integers(0, 99))), []
    for _ in range(count):
        sizes[axis] = draw(st.integers(least, 3))
        found.append(draws.normal(size=sizes))
    return found, axis


def symbols(given):
    return [pt.tensor(f"x{i}", dtype=a.dtype, shape=(None,) * a.ndim) for i, a in enumerate(given)]


@settings(max_examples=200 if NIGHTLY else 4)
@given(arrays())
def test_derivatives_are_parts_and_sums(drawn):
    """The gradient, its gradient, both pushforwards and the shapes, bit for bit."""
    given, axis = drawn
    xs = symbols(given)
    y = cp.concat(xs, axis)
    whole = np.concatenate(given, axis)
    ct = pt.tensor("ct", dtype="float64", shape=(None,) * y.ndim)
    parts = pullback(y, xs, ct)
    (twice,) = pullback(parts, [ct], xs)
    dots = [
        pushforward([y], xs[::2], [2 * x for x in xs[::2]], use_op_pushforward=own)[0]
        for own in (True, False)
    ]
    outputs = [y, twice, y.shape, *(p.shape for p in parts), *parts, *dots]
    run = pytensor.function([*xs, ct], outputs, PLAIN, on_unused_input="ignore")
    found = run(*given, weights := np.arange(1.0, whole.size + 1).reshape(whole.shape))
    ends = np.cumsum([a.shape[axis] for a in given])[:-1]
    tangents = [(2 - 2 * (i % 2)) * a for i, a in enumerate(given)]
    exact = [whole, whole, whole.shape, *(a.shape for a in given)]
    exact += [*np.split(weights, ends, axis), *[np.concatenate(tangents, axis)] * 2]
    for a, e in zip(found, exact, strict=True):
        np.testing.assert_array_equal(a, e)
    static = cp.concat([pt.constant(a) for a in given], axis)
    assert static.type.shape == whole.shape


@pytest.mark.nightly(reason="numeric gradients")
@settings(max_examples=200)
@given(arrays(least=1))
def test_gradients_equal_differences(drawn):
    given, axis = drawn
    rng = np.random.default_rng(0)
    verify_grad(lambda *xs: cp.concat([x**2 for x in xs], axis), given, rng=rng, mode=PLAIN)


@pytest.mark.parametrize("mode", ["CVM", "NUMBA", "JAX", "PYTORCH"])
def test_linkers_need_no_sizes(mode):
    """First and second derivatives; JAX cannot compile PyTensor's own without known sizes."""
    if mode != "CVM":
        pytest.importorskip({"NUMBA": "numba", "JAX": "jax", "PYTORCH": "torch"}[mode])
    a, b = given = np.ones((2, 1, 3)), np.arange(12.0).reshape(2, 2, 3)
    xs = symbols(given)
    loss = (cp.concat([*xs, xs[0]], 1) ** 2).sum()
    first = pytensor.grad(loss, xs)
    second = pytensor.grad(sum((g**2).sum() for g in first), xs)
    results = pytensor.function(xs, [*first, *second], mode=mode)(*given)
    for found, exact in zip(results, (4 * a, 2 * b, 32 * a, 8 * b), strict=True):
        np.testing.assert_array_equal(found, exact)
