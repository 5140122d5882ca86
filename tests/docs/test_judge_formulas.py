"""What docs/judge.md claims of norms and activations, tried on kernels in float32."""

from __future__ import annotations

import numpy as np
import pytest

from convref import dtypes
from convref.case import parse
from convref.judge import Numerics, judge

F = np.float32
ONE = F(1)


def verdict(line, arrays, results, model="rn32"):
    call = parse(line).call
    shaped = [
        None if a is None else np.asarray(a).reshape(call.problem.shape(r))
        for r, a in zip(call.roles, arrays, strict=True)
    ]
    found = [
        dtypes.rounded(np.asarray(r).reshape(call.problem.shape(role)), call.dtype_of(role))
        for role, r in zip(call.signature.results, results, strict=True)
    ]
    return judge(call, shaped, found, Numerics(model))


def summed(values):
    """Return a sum from left to right in the type of the values."""
    return np.add.accumulate(values)[-1]


def two_passes(x):
    mean = summed(x) / x.dtype.type(x.size)
    return mean, summed((x - mean) ** 2) / x.dtype.type(x.size)


def welford(x):
    mean = m2 = x.dtype.type(0)
    for k, v in enumerate(x, 1):
        delta = v - mean
        mean = mean + delta / x.dtype.type(k)
        m2 = m2 + delta * (v - mean)
    return mean, m2 / x.dtype.type(x.size)


def merged(x):
    """Merge the statistics of parts of other sizes."""
    cut = -(-x.size // 3)
    (one, first), (other, second) = two_passes(x[:cut]), two_passes(x[cut:])
    share = x.dtype.type(cut / x.size)
    delta = other - one
    mean = one + delta * (1 - share)
    return mean, first * share + second * (1 - share) + delta * delta * share * (1 - share)


def one_pass(x):
    size = x.dtype.type(x.size)
    mean = summed(x) / size
    return mean, summed(x * x) / size - mean * mean


def plain(x, mean, rstd, w, b):
    return (x - mean) * rstd * w + b


def folded(x, mean, rstd, w, b):
    a = w * rstd
    return x * a + (b - mean * a)


def layer(dtype, moments, apply, shift, size=300):
    rng = np.random.default_rng(int(shift) + size)
    x, w, b = (dtypes.rounded(rng.standard_normal(size) + s, dtype) for s in (shift, 1, 0))
    kind = np.float64 if dtype == "f64" else F
    wide = [a.astype(kind) for a in (x, w, b)]
    mean, var = moments(wide[0])
    rstd = kind(1) / np.sqrt(var + kind(1e-5))
    y = apply(wide[0], mean, rstd, *wide[1:])
    line = f"layer_norm.fprop:n1c{size}_i1:dt={dtype}"
    model = "rn64" if dtype == "f64" else "rn32"
    return verdict(line.replace(":dt=f32", ""), (x, w, b), (y, mean, rstd), model)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("apply", [plain, folded])
@pytest.mark.parametrize("moments", [two_passes, welford, merged])
def test_norms_that_are_right_stay_within_their_bound(dtype, apply, moments):
    for shift in (0, 10, 100):
        for size in (2, 33, 300):
            found = layer(dtype, moments, apply, shift, size)
            assert found, f"{shift} {size}: {found.reason}"


def test_a_one_pass_variance_exceeds_the_bound_at_a_large_mean():
    assert layer("f32", two_passes, plain, 3000.0, 32)
    assert not layer("f32", one_pass, plain, 3000.0, 32)


def test_backward_in_another_form_stays_within_its_bound():
    """A dy + B x + C, as libraries fold it, with sums of dy x and dy."""
    rng = np.random.default_rng(0)
    for shift in (0, 30):
        x, dy, w = (rng.standard_normal(100).astype(F) + F(s) for s in (shift, 0, 1))
        mean, var = two_passes(x)
        rstd = ONE / np.sqrt(var + F(1e-5))
        g = dy * w
        ds, db, share = summed(g * x), summed(g), ONE / F(100)
        c2 = (db * mean - ds) * rstd**3 * share
        c3 = -c2 * mean - db * rstd * share
        dx = rstd * g + c2 * x + c3
        results = (dx, dy * (x - mean) * rstd, dy)
        found = verdict("layer_norm.backward:n1c100_i1", (dy, x, w, mean, rstd), results)
        assert found, found.reason


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x):
    u = x.dtype.type(np.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
    return x * (1 + np.tanh(u)) / 2


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / summed(powers)


def log_softmax(x):
    shifted = x - x.max()
    return shifted - np.log(summed(np.exp(shifted)))


FORMS = {  # op: the value, and the slope as libraries find it from what they kept
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x))),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "silu": (
        lambda x: x / (1 + np.exp(-x)),
        lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    ),
    "hardswish": (
        lambda x: x * np.clip(x + 3, 0, 6) * x.dtype.type(1 / 6),
        lambda x: np.where(x <= -3, 0, np.where(x < 3, x / 3 + x.dtype.type(0.5), 1)),
    ),
    "gelu": (gelu_tanh, None),
    "softmax": (softmax, None),
    "log_softmax": (log_softmax, None),
}
POINTS = np.concatenate(
    [
        np.linspace(-12, 12, 401),
        [-1e4, -120.0, -104, -88.5, -30, 30, 88.5, 104, 120, 1e4],
        10.0 ** np.arange(-7, 0),
        -(10.0 ** np.arange(-7, 0)),
        [-3, 3, 0],
    ]
)


def line_of(op, pass_, dtype):
    keys = {"gelu": ":approx=tanh"}.get(op, "") + (f":dt={dtype}" if dtype != "f32" else "")
    shape = f"n1c{POINTS.size}_i1" if "softmax" in op else f"n1c1_i{POINTS.size}"
    return f"{op}.{pass_}:{shape}{keys}"


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("op", FORMS)
def test_activations_that_are_right_stay_within_their_bound(op, dtype):
    x = dtypes.rounded(POINTS, dtype)
    kind, model = (np.float64, "rn64") if dtype == "f64" else (F, "rn32")
    value, slope = FORMS[op]
    with np.errstate(all="ignore"):
        found = verdict(line_of(op, "fprop", dtype), (x,), (value(x.astype(kind)),), model)
        assert found, found.reason
        if slope is not None:
            dy = dtypes.rounded(1 + POINTS % 3, dtype)
            dx = dy.astype(kind) * slope(x.astype(kind))
            found = verdict(line_of(op, "backward", dtype), (dy, x), (dx,), model)
            assert found, found.reason


@pytest.mark.parametrize(
    ("op", "x", "wrong"),
    [
        ("tanh", 1e-4, lambda x: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1)),  # digits cancel
        ("silu", 1e-3, lambda x: x * sigmoid(x) * F(1 + 2**-17)),
        ("silu", -60.0, lambda x: x * sigmoid(x) * F(1 + 2**-17)),
        ("sigmoid", -80.0, lambda x: 1 - sigmoid(-x)),
        ("hardswish", -2.99, lambda x: x * np.clip(x + 3, 0, 6) / 6 + F(1e-7)),
    ],
)
def test_an_activation_outside_its_bound_fails_at_zero_and_in_the_tails(op, x, wrong):
    x = np.array([x], F)
    assert verdict(f"{op}.fprop:n1c1_i1", (x,), (FORMS[op][0](x),))
    assert not verdict(f"{op}.fprop:n1c1_i1", (x,), (wrong(x),))
