"""JAX arrays in the dispatch: JAX's transforms give the library's own passes, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import Phase, given, settings

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402

import convref  # noqa: E402
from convref import dispatch  # noqa: E402
from convref.case import Case, Spec  # noqa: E402
from convref.conformance.operands import operands  # noqa: E402
from convref.conformance.strategies import cases  # noqa: E402
from convref.errors import ConvrefError, UnsupportedError  # noqa: E402
from convref.integrations.jax import run_recorded  # noqa: E402
from convref.judge import judge  # noqa: E402
from convref.ops import SIGNATURE  # noqa: E402

SMALL = {"max_elements": 24, "max_macs": 200, "empty": False}
EXAMPLES = max(1, settings.default.max_examples // 60)
DERIVED = sorted(op for op, pass_ in SIGNATURE if pass_ == "double_backward")
KEPT = ("mean", "rstd", "indices")


@pytest.fixture(autouse=True, scope="module")
def wide_types():
    with jax.enable_x64(True):
        yield


def campaign(check, op, pass_):
    drawn = cases([op], [pass_], dtypes=["f64"], fills=["int"], **SMALL)
    simplest: list[Case] = []

    @settings(max_examples=EXAMPLES + 1, phases=[Phase.generate], deadline=None)
    @given(drawn)
    def run(case):
        if not simplest:  # the first one drawn, of one element
            simplest.append(case)
            return
        arrays = operands(case)
        call = replace(case.call, specs=(Spec(case.call.dtype),))
        given = {r: jnp.asarray(a) for r, a in zip(call.roles, arrays) if a is not None}
        check(call, given)

    run()


def run(call, given, backend="numpy"):
    """Return the results by role; `given` may hold more than the pass takes."""
    found = run_recorded(backend, call, *(given.get(role) for role in call.roles))
    return {r: a for r, a in zip(call.signature.results, found) if a is not None}


def sibling(call, pass_, without=""):
    """Return another pass of the same problem, with all directions but those in `without`."""
    made = replace(call, pass_=pass_, mask=(), specs=(Spec("f64"),), tangents=None)
    return replace(made, tangents="".join(t for t in made.carried if t not in without))


def assert_same(found, expected):
    for role, array in found.items():
        np.testing.assert_array_equal(np.asarray(array), np.asarray(expected[role]), err_msg=role)


def directions(primals, scale):
    return {
        role: scale * jnp.arange(1.0, a.size + 1).reshape(a.shape) for role, a in primals.items()
    }


@pytest.mark.parametrize(("op", "pass_"), sorted(SIGNATURE))
def test_each_pass_is_right_alone_and_under_jit(op, pass_):
    def check(call, given):
        for found in (run(call, given), jax.jit(partial(run, call))(given)):
            results = [found.get(role) for role in call.signature.results]
            results = [None if a is None else np.asarray(a) for a in results]
            arrays = [None if r not in given else np.asarray(given[r]) for r in call.roles]
            verdict = judge(call, arrays, results, dispatch.load("numpy").numerics(call))
            assert verdict, f"{verdict.reason} {call}"

    campaign(check, op, pass_)


@pytest.mark.parametrize("op", DERIVED)
def test_derivatives_are_the_passes_of_the_library(op):
    """First: vjp and jvp of fprop; second: vjp and jvp of the function that vjp returns."""

    def check(call, given):
        out = call.signature.results[0]
        point = {r: a for r, a in given.items() if f"{r}_dot" in SIGNATURE[op, "jvp"].operands}
        results = run(call, given)
        known = {r: a for r, a in results.items() if r in KEPT} | given

        def forward(moved):
            return run(call, {**given, **moved})[out]

        y, pull = jax.vjp(forward, point)
        dy = directions({"dy": y}, 1)["dy"]
        (gradients,) = pull(dy)
        expected = run(sibling(call, "backward"), {**known, "dy": dy})
        assert_same({f"d{r}": a for r, a in gradients.items()}, expected)

        dots = directions(point, 2)
        y_dot = jax.jvp(forward, (point,), (dots,))[1]
        named = {f"{r}_dot": a for r, a in dots.items()}
        expected = run(sibling(call, "jvp"), {**known, **named})
        assert_same({f"{out}_dot": y_dot}, expected)

        read = SIGNATURE[op, "double_backward"].operands
        curved = {r: a for r, a in point.items() if r != "b" or "b" in read}

        def backward(dy, moved):
            return jax.vjp(lambda at: forward({**point, **at}), {**curved, **moved})[1](dy)[0]

        outer = {r: dots[r] for r in curved}
        ddy, seconds = jax.vjp(backward, dy, curved)[1](outer)
        carried = {f"dd{r}": a for r, a in outer.items()}
        twice = sibling(call, "double_backward", without="b")
        expected = {"ddy": None, "dx": jnp.zeros_like(given["x"])}
        expected |= run(twice, {**known, **carried, "dy": dy})
        assert_same({"ddy": ddy, **{f"d{r}": a for r, a in seconds.items() if r in "xw"}}, expected)
        tangent = jax.jvp(backward, (dy, curved), (jnp.zeros_like(dy), outer))[1]
        assert_same({f"d{r}": a for r, a in tangent.items()}, expected)

        seconds = lambda dy: jax.vjp(backward, dy, curved)[1](outer)[1]  # noqa: E731
        again = directions({"dy": y}, 3)["dy"]  # linear in dy
        assert_same(jax.jvp(seconds, (dy,), (again,))[1], seconds(again))

    campaign(check, op, "fprop")


@pytest.mark.parametrize("op", DERIVED)
def test_linearize_and_checkpoint_give_the_passes_of_the_library(op):
    def check(call, given):
        out = call.signature.results[0]
        point = {r: a for r, a in given.items() if f"{r}_dot" in SIGNATURE[op, "jvp"].operands}
        results = run(call, given)
        known = {r: a for r, a in results.items() if r in KEPT} | given

        def forward(moved):
            return run(call, {**given, **moved})[out]

        dots = directions(point, 2)
        y, linear = jax.linearize(forward, point)
        named = {f"{r}_dot": a for r, a in dots.items()}
        expected = run(sibling(call, "jvp"), {**known, **named})
        assert_same({out: y, f"{out}_dot": linear(dots)}, {**results, **expected})

        dy = directions({"dy": y}, 1)["dy"]
        (gradients,) = jax.vjp(jax.checkpoint(forward), point)[1](dy)
        expected = run(sibling(call, "backward"), {**known, "dy": dy})
        assert_same({f"d{r}": a for r, a in gradients.items()}, expected)

    campaign(check, op, "fprop")


def test_checkpoint_computes_a_convolution_again_and_keeps_only_its_operands():
    x, w = jnp.arange(16.0).reshape(1, 1, 4, 4), jnp.ones((2, 1, 3, 3))

    def loss(w):
        return convref.silu(convref.conv2d(x, w, backend="numpy"), backend="numpy").sum()

    def convolutions(function):
        return str(jax.make_jaxpr(jax.grad(function))(w)).count("convref_convolution_sum")

    assert (convolutions(loss), convolutions(jax.checkpoint(loss))) == (2, 3)
    np.testing.assert_array_equal(jax.grad(jax.checkpoint(loss))(w), jax.grad(loss)(w))


@pytest.mark.parametrize("op", DERIVED)
def test_vmap_gives_the_results_of_each_call(op):
    def check(call, given):
        moved = {r: jnp.stack([a, 2 * a]) for r, a in given.items() if r in ("x", "w")}
        fixed = {r: a for r, a in given.items() if r not in moved}
        one = lambda at: run(call, {**fixed, **at})  # noqa: E731
        found = jax.vmap(one)(moved)
        for i in range(2):
            expected = one({r: a[i] for r, a in moved.items()})
            assert_same({r: a[i] for r, a in found.items()}, expected)

    campaign(check, op, "fprop")


def test_a_batch_folds_into_images():
    x = jnp.arange(24.0).reshape(3, 2, 1, 4)
    found = jax.vmap(partial(convref.avg_pool1d, kernel_size=2, backend="numpy"))(x)
    np.testing.assert_array_equal(found, np.asarray(x).reshape(3, 2, 1, 2, 2).mean(-1))


@pytest.mark.parametrize("backend", ["auto", "numpy"])
def test_convolution_has_third_derivatives_in_both_modes(backend):
    """A cubic polynomial in x and w: the third derivative along (x, x, w) is an integer."""
    x, w = jnp.arange(5.0).reshape(1, 1, 5), jnp.array([[[1.0, 2.0]]])

    def cube(t):
        y = convref.conv1d(x + t, w * t, stride=2, backend=backend)
        return (y * y[::-1]).sum()

    orders = (jax.grad(jax.grad(jax.grad(cube))), jax.jacfwd(jax.jacfwd(jax.jacfwd(cube))))
    values = {float(third(1.0)) for third in orders}
    t = np.polynomial.Polynomial([0, 1])
    rows = [[float(v) for v in np.asarray(x)[0, 0, i : i + 2]] for i in (0, 2)]
    exact = sum((t * sum(k * (v + t) for v, k in zip(row, (1, 2)))) ** 2 for row in rows)
    assert values == {float(exact.deriv(3)(1))}


def test_a_batch_of_filters_is_differentiable():
    x, w = jnp.arange(6.0).reshape(1, 1, 6), jnp.arange(6.0).reshape(3, 1, 1, 2)
    each = jax.vmap(lambda w: convref.conv1d(x, w, backend="numpy"))
    dw = jax.grad(lambda w: each(w).sum())(w)
    np.testing.assert_array_equal(dw, np.broadcast_to(np.array([10.0, 15.0]), (3, 1, 1, 2)))


def test_functions_take_jax_arrays_in_any_layout():
    x, w = jnp.arange(32.0).reshape(1, 4, 4, 2), jnp.ones((2, 2, 2, 3))
    y = jax.jit(partial(convref.conv2d, layout="NHWC"))(x, w)
    assert isinstance(y, jax.Array)
    np.testing.assert_array_equal(y, convref.conv2d(np.asarray(x), np.asarray(w), layout="NHWC"))
    convref.assert_correct(y, "conv2d", (x, w), layout="NHWC", accuracy="rn64")


def test_indices_without_x64_are_32_bit_and_accepted():
    with jax.enable_x64(False):
        x = jnp.arange(16, dtype=jnp.float32).reshape(1, 1, 4, 4)
        y, indices = convref.max_pool2d(x, 2, return_indices=True)
        assert indices.dtype == jnp.int32
        np.testing.assert_array_equal(
            convref.max_unpool2d(y, indices, 2)[0, 0, 1::2, 1::2], y[0, 0]
        )


def test_values_of_concrete_indices_are_checked():
    with pytest.raises(ConvrefError, match="target holds 9"):
        convref.cross_entropy(jnp.ones((2, 3)), jnp.array([0, 9]))
    jax.make_jaxpr(convref.cross_entropy)(jnp.ones((2, 3)), jnp.array([0, 9]))


def test_tracing_reads_no_device(monkeypatch):
    """A tracer has none: JAX walks all that was traced before, to say whence the tracer comes."""
    read = []
    monkeypatch.setattr(jax.core.Tracer, "device", property(read.append))
    jax.make_jaxpr(convref.silu)(jnp.ones(3))
    assert not read


def test_messages_name_what_has_no_derivative():
    x, running = jnp.ones((2, 3, 4)), jnp.ones(3)
    norm = lambda mean: convref.batch_norm(x, mean, running)  # noqa: E731
    with pytest.raises(UnsupportedError, match="running_mean has no tangent"):
        jax.grad(lambda mean: norm(mean).sum())(running)
    twice = jax.jacfwd(jax.jacfwd(partial(convref.silu, backend="numpy")))
    with pytest.raises(UnsupportedError, match=r"^silu: .* needs backend='jax'"):
        twice(x)


class Bare(type(dispatch.load("numpy"))):
    """A third-party backend that returns an array where a tuple is needed."""

    def run(self, call, *operands):
        return super().run(call, *operands)[0]


def test_results_of_another_form_do_not_reach_the_caller(monkeypatch):
    monkeypatch.setattr(convref, "bare", Bare(), raising=False)
    with pytest.raises(ConvrefError, match="run returned an ndarray, needs a tuple of y"):
        convref.relu(jnp.ones((2, 1, 3)), backend="convref:bare")


def test_keys_of_random_numbers_are_refused():
    with pytest.raises(ConvrefError, match=r"relu: input has dtype key<fry>"):
        convref.relu(jax.random.key(0))
