"""JAX beyond convolution: every pass against the oracle; unsupported calls have a reason."""

import numpy as np
import pytest

from convref import parse
from convref.conformance.examine import examine
from convref.conformance.generate import Axes
from convref.judge import Numerics, judge

module = pytest.importorskip(
    "convref.backends.jax.adapter", reason="needs jax", exc_type=ImportError
)
quick = module.quick
# Releases whose jax.image.resize has neither area nor cubic-pytorch.
OLD = tuple(map(int, module.jax.__version__.split(".")[:2])) < (0, 10)

CALLED = (
    "max_pool",
    "avg_pool",
    "batch_norm",
    "batch_norm_eval",
    "group_norm",
    "layer_norm",
    "relu",
    "leaky_relu",
    "prelu",
    "elu",
    "celu",
    "selu",
    "softsign",
    "logsigmoid",
    "silu",
    "gelu",
    "hardswish",
    "sigmoid",
    "tanh",
    "softmax",
    "log_softmax",
    "resize",
)
# Where JAX's numbers are not the formula's: docs/bugs-found.md.
LOSES = {("tanh", "double_backward"), ("logsigmoid", "double_backward")}


@pytest.mark.parametrize("op", CALLED)
def test_each_pass_is_right(op, right):
    """Data of moderate size; where JAX differs, tests/test_knownbugs.py has a line of it.

    XLA compiles each case anew, for half a second.
    """
    axes = Axes(3, (op,), dtypes=("f16", "bf16", "f32", "f64"), fills=("int", "normal"), size=10)
    right(quick, axes, 2, LOSES)


RIGHT = (
    "avg_pool.fprop:n2c3_i9x7_f3x2_s2x1_p1,0x0,1_d1x2:ceil=1:cip=0:fill=normal",
    "avg_pool.backward:n1c2_i6x5x4_f2x3x1_s2x1x2_p1x1x0:div=3:fill=normal",
    "avg_pool.double_backward:n1c1_i8_f1_p-1,-1:dt=bf16",
    "max_pool.backward:n1c2_i7x7_f3_s2_p1:fill=ties",
    "max_pool.fprop:n2c2_i7x9_f3x2_s1x2_p1_d2x1:fill=nan",
    "max_pool.fprop:n2c1_i12_f5_d2:ceil=1:dt=f64:fill=subnormal:seed=11277",
    "max_pool.fprop:n1c2_i5_f3_p-1,2:dt=bf16:fill=negzero",
    "max_pool.double_backward:n1c2_i5x4_f2_d2:fill=ties",
    "max_pool.jvp:n1c2_i7x7_f3_s1_p1:ceil=1:dt=f64:fill=ties",
    "resize.fprop:n1c2_i5x7_o9x3:mode=cubic:xo=1:a=-0.5:dt=f64:fill=normal",
    "resize.jvp:n1c2_i5_o9:mode=cubic:fill=normal",
    "resize.backward:n1c2_i5x7x2_o3x3x2:aa=1:xo=1:fill=normal",
    "resize.backward:n1c2_i6x4_o3x2:mode=area:fill=normal",
    "resize.fprop:n1c2_i5_o10:mode=nearest:near=round_prefer_ceil",
    "group_norm.backward:n2c6g3_i4x4:weight=0:mask=110:fill=normal",
    "batch_norm.fprop:n4c3_i5:dt=bf16:mom=0.25:fill=normal",
    "batch_norm.backward:n4c3_i5:weight=0:mask=101:dt=bf16:fill=normal",
    "batch_norm_eval.double_backward:n2c3_i4:mask=101:fill=normal",
    "layer_norm.jvp:n2c3_i4:bias=0:dt=f64:fill=normal",
    "sdpa.double_backward:n1c4g2_i3x2_o4x3:causal=1:bias=1:fill=normal",
    "cumsum.fprop:n2c3_i9:dim=2:dt=bf16:fill=normal",
    "matmul.double_backward:n2c3k2_i5:shared=1:fill=normal",
    "mean.jvp:n2c3_i4x3:over=hw:fill=normal",
)


def test_attention_to_no_key_is_0():
    call = parse("sdpa.fprop:n1c1_i2x2_o3x2:bias=1").call
    operands = [np.ones(call.problem.shape(role), np.float32) for role in call.roles]
    operands[-1][0] = -np.inf
    (y,) = quick.run(call, *operands)
    assert np.array_equal(np.asarray(y)[0, 0], [[0, 0], [1, 1]])


@pytest.mark.parametrize("line", RIGHT)
def test_the_same_function_under_other_conventions(line):
    refused = quick.supports(parse(line).call)
    if refused and OLD:
        pytest.skip(refused)
    assert refused is None
    found = examine(parse(line), quick)
    assert (found.verdict, found.reason) == ("pass", "")


REFUSED = {
    "avg_pool.fprop:n1c1_i5_f2_p0,-1:ceil=1": "negative padding at the high end",
    "lp_pool.fprop:n1c1_i4_f2": "no lp_pool",
    "cross_entropy.fprop:n1c3_i1": "no cross_entropy",
    "relu.fprop:n1c1_i4:dt=i8": "no relu for i8",
    "silu.fprop:n0c1_i4": "empty images",
    "leaky_relu.backward:n1c1_i4": "leaky_relu at 0 is 1",
    "selu.backward:n2c33_i7:seed=22376": "which cancels",
    "hardswish.jvp:n1c1_i4": "the mean of both sides",
    "resize.fprop:n1c1_i4_o8:coord=align_corners": "only half_pixel positions",
    "resize.fprop:n1c1_i4_o8:mode=nearest": "only near=round_prefer_ceil",
    "resize.fprop:n1c1_i5_o3:mode=area": "partly covered elements in mode area",
    "resize.fprop:n1c1_i4_o8:mode=cubic:a=-0.6": "a = -0.5",
    "resize.fprop:n1c1_i8_o4:aa=1": "always excludes positions",
    "silu.fprop:n1c1_i4:dev=cuda": "only the CPU",
}


OWN_MAXIMUM = {
    "max_pool.fprop:n1c1_i4_f2": "returns no indices",
    "max_pool.backward:n1c1_i4_f2_d2": "no derivative of dilated max pooling",
    "max_pool.backward:n1c1_i5_f2_p-1,0": "refuses negative padding",
    "max_pool.double_backward:n1c1_i4_f2": "no second derivative",
}


@pytest.mark.parametrize(("line", "reason"), OWN_MAXIMUM.items())
def test_what_the_maximum_of_jax_itself_lacks_has_a_reason(line, reason):
    call = parse(line).call
    assert reason in (quick.raw.supports(call) or "")
    assert quick.supports(call) is None


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_calls_that_differ_from_jax_have_a_reason(line, reason):
    assert reason in (quick.supports(parse(line).call) or "")


def test_a_method_that_this_jax_lacks_is_refused(monkeypatch):
    def unknown(name):
        raise ValueError(name)

    call = parse("resize.fprop:n1c1_i4_o2:aa=1:xo=1").call
    assert quick.supports(call) is None
    monkeypatch.setattr(module.jax.image.ResizeMethod, "from_string", unknown)
    assert quick.supports(call).endswith(f"JAX {module.jax.__version__} has no linear")


def test_the_stages_that_are_declared_are_taken():
    """A 16-bit window is summed in the 16-bit type: with one rounding it would be wrong."""
    case = parse("avg_pool.fprop:n1c4_i40_f16:dt=bf16:fill=normal")
    from convref.conformance.operands import operands

    given = operands(case)
    results = quick.run(case.call, *given)
    assert judge(case.call, given, results, quick.numerics(case.call)).kind == "pass"
    assert judge(case.call, given, results, Numerics("rn32", ftz=True)).kind == "wrong"
