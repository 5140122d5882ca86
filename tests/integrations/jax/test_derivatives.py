"""Derivatives by XLA and by Mojo beside those of jax.lax, and beside difference quotients."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import Phase, assume, given, settings

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import convref  # noqa: E402
from convref.case import Spec  # noqa: E402
from convref.conformance.operands import operands  # noqa: E402
from convref.conformance.strategies import cases  # noqa: E402
from convref.integrations.jax import run_recorded  # noqa: E402
from convref.knownbugs import region_of  # noqa: E402
from convref_mojo import build  # noqa: E402

with_mojo = pytest.mark.skipif(build.why_missing() is not None, reason=str(build.why_missing()))
long = pytest.mark.nightly(reason="minutes")
MOJO = pytest.param("mojo", marks=with_mojo)


@pytest.fixture(autouse=True, scope="module")
def wide_types():
    with jax.enable_x64(True):
        yield


def gradients(convolution, x, w):
    """Return the convolution, its gradients and a tangent, compiled."""

    def computed(x, w):
        y, transpose = jax.vjp(convolution, x, w)
        return y, *transpose(y), jax.jvp(convolution, (x, w), (x, w))[1]

    return jax.jit(computed)(x, w)


def by_lax(problem, x, w):
    """Return the convolution of jax.lax; a transposed one is its transpose in the input."""
    convolved = partial(
        jax.lax.conv_general_dilated,
        rhs=jnp.flip(w, tuple(range(2, w.ndim))) if problem.flip else w,
        window_strides=problem.stride,
        padding=problem.padding,
        rhs_dilation=problem.dilation,
        feature_group_count=problem.groups,
    )
    if not problem.transposed:
        return convolved(x)
    inner = tuple(map(slice, x.shape))  # a dilated filter reaches further where it is padded
    y = jax.ShapeDtypeStruct(problem.shape("y"), x.dtype)
    return jax.linear_transpose(lambda y: convolved(y)[inner], y)(x)[0]


def is_compiled(call):
    """Return whether XLA compiles a convolution and its gradients: for some its compiler aborts."""
    return not any(region_of(replace(call, pass_=p, mask=()), "jax") for p in ("fprop", "backward"))


@long
@pytest.mark.parametrize("backend", ["jax", MOJO])
def test_results_and_derivatives_are_those_of_lax(backend):
    drawn = cases(ops=["conv"], passes=["fprop"], dtypes=["f64"], fills=["int"], empty=False)

    @settings(max_examples=300, phases=[Phase.generate], deadline=None)
    @given(drawn)
    def check(case):
        problem = replace(case.call.conv, bias=False)
        call = replace(case.call, problem=problem, specs=(Spec("f64"),))
        assume(is_compiled(call))
        x, w = (np.asarray(a) for a in operands(case)[:2])
        found = gradients(lambda x, w: run_recorded(backend, call, x, w, None)[0], x, w)
        expected = gradients(partial(by_lax, problem), x, w)
        assert all((a == b).all() for a, b in zip(found, expected)), case

    check()


CONVOLUTIONS = {
    "conv1d": (partial(convref.conv1d, stride=2, padding=1, groups=2), (1, 4, 4), (2, 2, 3)),
    "conv2d": (
        partial(convref.conv2d, stride=(1, 2), padding=1, dilation=(2, 1)),
        (1, 1, 3, 4),
        (1, 1, 2, 3),
    ),
    "conv3d": (
        partial(convref.conv3d, dilation=(1, 1, 2), groups=2),
        (1, 2, 2, 2, 3),
        (2, 1, 1, 2, 2),
    ),
    "conv_transpose1d": (
        partial(convref.conv_transpose1d, stride=2, padding=1, output_padding=1, groups=2),
        (1, 2, 3),
        (2, 2, 3),
    ),
    "conv_transpose2d": (
        partial(convref.conv_transpose2d, stride=(2, 1), dilation=(1, 2)),
        (1, 2, 2, 2),
        (2, 1, 2, 2),
    ),
    "conv_transpose3d": (
        partial(convref.conv_transpose3d, stride=(1, 2, 1)),
        (1, 1, 1, 2, 2),
        (1, 1, 1, 2, 2),
    ),
}


def _batch_norm(x, w, b, backend):
    return convref.batch_norm(x, None, None, w, b, training=True, backend=backend)


def _batch_norm_eval(x, w, b, backend):
    return convref.batch_norm(x, jnp.zeros(2), jnp.ones(2), w, b, backend=backend)


def _soft_cross_entropy(x, scores, backend):
    return convref.soft_cross_entropy(x, jax.nn.softmax(scores, 1), backend=backend)


OTHERS = {  # one of each family that XLA computes
    "max_pool": (partial(convref.max_pool2d, kernel_size=2, stride=1), (1, 1, 3, 3)),
    "avg_pool": (partial(convref.avg_pool2d, kernel_size=2, padding=1), (1, 1, 3, 3)),
    "resize": (partial(convref.interpolate, size=(3, 3), mode="bilinear"), (1, 1, 2, 2)),
    "batch_norm": (_batch_norm, (2, 2, 3), (2,), (2,)),
    "batch_norm_eval": (_batch_norm_eval, (2, 2, 3), (2,), (2,)),
    "layer_norm": (partial(convref.layer_norm, normalized_shape=(4,)), (2, 4)),
    "silu": (convref.silu, (5,)),
    "softmax": (partial(convref.softmax, dim=1), (2, 3)),
    "soft_cross_entropy": (_soft_cross_entropy, (2, 3), (2, 3)),
    "matmul": (convref.matmul, (2, 3), (3, 2)),
    "cumsum": (partial(convref.cumsum, dim=1), (2, 3)),
    "sdpa": (convref.sdpa, *((1, 1, 2, 3),) * 3),
}
QUICK = {("conv1d", "mojo"), ("conv_transpose2d", "mojo"), ("conv2d", "jax")}
QUICK |= {("max_pool", "jax"), ("resize", "jax")}


def _row(name, backend):
    marks = [] if (name, backend) in QUICK else [long]
    return pytest.param(name, backend, marks=[*marks, with_mojo] if backend == "mojo" else marks)


@pytest.mark.parametrize(
    ("name", "backend"),
    [_row(name, b) for name in CONVOLUTIONS for b in ("jax", "numpy", "mojo")]
    + [_row(name, "jax") for name in OTHERS],
)
def test_third_derivatives_in_both_modes(name, backend):
    function, *shapes = (CONVOLUTIONS | OTHERS)[name]
    rng = np.random.default_rng(3)
    arrays = tuple(jnp.asarray(rng.normal(size=shape)) for shape in shapes)

    def computed(*given):  # NumPy arrays too, for difference quotients
        return function(*map(jnp.asarray, given), backend=backend)

    check_grads(computed, arrays, order=3)
