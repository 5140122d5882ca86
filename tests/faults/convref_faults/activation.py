"""Wrong activations: NaN swallowed, corners, tails that overflow, terms and weights left out."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from convref.case import Call
from convref.conformance.mutations import (
    Array,
    Operands,
    Results,
    Wrong,
    on_problem,
    oracle_results,
)
from convref.ops import GROUPS, Problem
from convref.oracle import activation as formulas
from convref.oracle import piecewise, prelu, softmax
from convref.oracle._elementary import logistic

from .base import Fault, with_functions

ActivationFault = partial(Fault, ops=GROUPS["activation"])


def _of(*ops: str, passes: tuple[str, ...] = ()) -> Callable[[Call], bool]:
    return lambda call: call.op in ops and (not passes or call.pass_ in passes)


def computing(op: str, **changes: Callable[..., Array]) -> Wrong:
    """Return a kernel with another value, derivative, second_derivative or directional."""
    row = formulas.POINTWISE[op]._replace(**changes)
    return with_functions(formulas, POINTWISE={**formulas.POINTWISE, op: row})


def _number_wins(x: Array, problem: Problem) -> Array:
    return np.fmax(x, 0)


def _at_zero_too(x: Array, v: Array, problem: Problem) -> Array:
    return np.where(x < 0, 0, v)


def _exchanged(x: Array, v: Array, problem: Problem) -> Array:
    return np.where(x > 0, v * problem.slope, v)


def _single(function: Callable[[Array, int], Array]) -> Callable[[Array, int], Array]:
    """Return a function computed in float32, where exp(89) overflows."""
    return lambda x, dim: function(x.astype(np.float32), dim).astype(np.float64)


def _naive(x: Array, dim: int) -> Array:
    powers = np.exp(x)
    return powers / powers.sum(axis=dim, keepdims=True)


def _log_of_softmax(x: Array, dim: int) -> Array:
    return np.log(softmax.softmax(x, dim))


def _silu_derivative(x: Array, problem: Problem) -> Array:
    return logistic(x)[0]


def _sigmoid_second_derivative(x: Array, problem: Problem) -> Array:
    s, rest = logistic(x)
    return s * rest * (s - rest)


def _no_ceiling(x: Array, problem: Problem) -> Array:
    return x * np.maximum(x + 3, 0) / 6


def _corner_inside(x: Array, problem: Problem) -> Array:
    return np.where(x < -3, 0, np.where(x > 3, 1, (2 * x + 3) / 6))


def _slope_to_the_corner(x: Array, v: Array, problem: Problem) -> Array:
    return np.where((x < problem.min_val) | (x > problem.max_val), 0, v)


def _fifth(x: Array, problem: Problem) -> Array:
    return np.clip(x / 5 + 0.5, 0, 1)


def _softplus_of_beta(x: Array, problem: Problem) -> Array:
    return formulas.softplus(x, problem) * problem.beta


def _mish_without_slope(x: Array, problem: Problem) -> Array:
    return formulas.mish(x, problem) / x


def _first_slope(w: Array, x: Array) -> Array:
    return w[:1].reshape(1, *(1,) * (x.ndim - 2))


def _with(problem: Problem, **fields: Any) -> Problem:
    return replace(problem, **fields)


def _by_tanh(problem: Problem) -> Problem:
    return _with(problem, approximate="tanh")


def _alpha_one(problem: Problem) -> Problem:
    return _with(problem, alpha=1.0)


def _next_axis(problem: Problem) -> Problem:
    return _with(problem, dim=(problem.dim + 1) % (problem.rank + 2))


_targets = softmax.targets


def _smoothed_everywhere(
    target: Array, w: Array | None, problem: Problem, like: Array
) -> tuple[Array, Any]:
    q, share = _targets(target, w, problem, like)
    weights = np.ones(problem.c) if w is None else w
    ignored = (target == problem.ignore_index)[:, None]
    spread = problem.label_smoothing / problem.c * weights.reshape(-1, *(1,) * problem.rank)
    return q + np.where(ignored, spread, 0), share


def _over_positions(
    target: Array, w: Array | None, problem: Problem, like: Array
) -> tuple[Array, Any]:
    q, share = _targets(target, w, problem, like)
    return q, like.dtype.type(target.size) if problem.reduction == "mean" else share


def _over_counted(
    target: Array, w: Array | None, problem: Problem, like: Array
) -> tuple[Array, Any]:
    q, share = _targets(target, w, problem, like)
    counted = (target != problem.ignore_index).sum()
    return q, like.dtype.type(counted) if problem.reduction == "mean" else share


def _unweighted(call: Call, operands: Operands) -> Results:
    """Compute a weighted loss with weights of 1."""
    plain = tuple(
        np.ones_like(a) if role == "w" and a is not None else a
        for role, a in zip(call.roles, operands)
    )
    return oracle_results(call, plain)


def _mean_loss(call: Call) -> bool:
    return call.op == "cross_entropy" and call.problem.reduction == "mean"


ROWS = (
    ActivationFault(
        "relu_swallows_nan",
        "the maximum of PTX and of C, in which the number wins over NaN",
        "relu.fprop:n1c1_i1:fill=nan",
        _of("relu", passes=("fprop", "jvp")),
        computing("relu", value=_number_wins),
    ),
    ActivationFault(
        "relu_passes_at_zero",
        "the gradient passes where the input is 0",
        "relu.backward:n1c1_i2:fill=impulse:seed=43955",
        _of("relu", passes=("backward",)),
        computing("relu", directional=_at_zero_too),
    ),
    ActivationFault(
        "leaky_sides_exchanged",
        "the slope on the positive side",
        "leaky_relu.backward:n1c1_i1:fill=ones",
        lambda call: call.op == "leaky_relu" and call.pass_ == "backward",
        computing("leaky_relu", directional=_exchanged),
    ),
    ActivationFault(
        "gelu_by_tanh",
        "the tanh form where the integral was asked for",
        "gelu.backward:n1c1_i1:fill=ones",
        lambda call: call.op == "gelu" and call.problem.approximate == "none",
        on_problem(_by_tanh),
    ),
    ActivationFault(
        "silu_slope_short",
        "s for s (1 + x (1 - s))",
        "silu.jvp:n1c1_i1:fill=ones",
        _of("silu", passes=("backward", "jvp")),
        computing("silu", derivative=_silu_derivative),
    ),
    ActivationFault(
        "sigmoid_bend_of_the_other_sign",
        "s (1 - s) (2 s - 1)",
        "sigmoid.double_backward:n1c1_i1:mask=01:fill=ones",
        lambda call: (
            call.op == "sigmoid" and call.pass_ == "double_backward" and "dx" in call.wanted
        ),
        computing("sigmoid", second_derivative=_sigmoid_second_derivative),
    ),
    ActivationFault(
        "hardswish_without_ceiling",
        "x relu(x + 3) / 6, without the minimum with 6",
        "hardswish.fprop:n1c1_i1",
        _of("hardswish", passes=("fprop",)),
        computing("hardswish", value=_no_ceiling),
    ),
    ActivationFault(
        "hardswish_corner_inside",
        "the slope of the parabola at -3 and 3 themselves",
        "hardswish.backward:n1c1_i1:seed=9642",
        _of("hardswish", passes=("backward",)),
        with_functions(piecewise, hardswish_derivative=_corner_inside),
    ),
    ActivationFault(
        "softmax_without_maximum",
        "exp(x) over its sum: overflow from 89 on",
        "softmax.fprop:n1c1_i3:fill=wide",
        lambda call: call.op == "softmax" and call.pass_ == "fprop" and call.dtype != "f64",
        with_functions(softmax, softmax=_single(_naive)),
        single=True,
    ),
    ActivationFault(
        "log_of_softmax",
        "log(softmax(x)) in float32: infinite below -103",
        "log_softmax.fprop:n1c3_i1:fill=wide:seed=4",
        lambda call: call.op == "log_softmax" and call.pass_ == "fprop" and call.dtype != "f64",
        with_functions(softmax, log_softmax=_single(_log_of_softmax)),
        single=True,
    ),
    ActivationFault(
        "softmax_along_the_next_axis",
        "sums over another axis",
        "softmax.fprop:n1c2_i1:fill=ones",
        _of("softmax", "log_softmax"),
        on_problem(_next_axis),
    ),
    ActivationFault(
        "smoothing_over_ignored",
        "label smoothing counts ignored targets",
        "cross_entropy.fprop:n1c2_i3:smooth=0.5:fill=ones",
        lambda call: call.op == "cross_entropy" and call.problem.label_smoothing > 0,
        with_functions(softmax, targets=_smoothed_everywhere),
    ),
    ActivationFault(
        "mean_over_all_positions",
        "the mean divides by ignored targets too",
        "cross_entropy.fprop:n1c2_i3:fill=ones",
        _mean_loss,
        with_functions(softmax, targets=_over_positions),
    ),
    ActivationFault(
        "mean_over_the_count",
        "a weighted mean divides by how many targets there are",
        "cross_entropy.backward:n1c2_i1:weight=1",
        lambda call: _mean_loss(call) and call.problem.weight,
        with_functions(softmax, targets=_over_counted),
    ),
    ActivationFault(
        "class_weights_forgotten",
        "a weighted loss without its weights",
        "cross_entropy.backward:n1c2_i2:weight=1",
        lambda call: call.op == "cross_entropy" and call.problem.weight,
        _unweighted,
    ),
)
OTHERS = (
    ActivationFault(
        "hardtanh_slope_to_the_corner",
        "the gradient passes where the input is a bound",
        "hardtanh.backward:n1c1_i2:fill=ones",
        _of("hardtanh", passes=("backward",)),
        computing("hardtanh", directional=_slope_to_the_corner),
    ),
    ActivationFault(
        "hardsigmoid_of_another_library",
        "x / 5 + 1 / 2, the default of ONNX, where x / 6 + 1 / 2 was asked for",
        "hardsigmoid.fprop:n1c1_i1:fill=ones",
        _of("hardsigmoid", passes=("fprop",)),
        computing("hardsigmoid", value=_fifth),
    ),
    ActivationFault(
        "elu_without_alpha",
        "exp(x) - 1 whatever alpha is",
        "elu.fprop:n1c1_i1:alpha=-1:seed=1",
        lambda call: call.op == "elu" and call.problem.alpha != 1,
        on_problem(_alpha_one),
    ),
    ActivationFault(
        "softplus_not_divided",
        "log(1 + exp(beta x)) without the division by beta",
        "softplus.fprop:n1c1_i1:beta=0.5:fill=ones",
        lambda call: call.op == "softplus" and call.pass_ == "fprop" and call.problem.beta != 1,
        computing("softplus", value=_softplus_of_beta),
    ),
    ActivationFault(
        "mish_slope_short",
        "t for t + x t'",
        "mish.jvp:n1c1_i1:fill=ones",
        _of("mish", passes=("backward", "jvp")),
        computing("mish", derivative=_mish_without_slope),
    ),
    ActivationFault(
        "prelu_slope_of_the_first_channel",
        "the slope of channel 0 in all channels",
        "prelu.fprop:n1c2_i1",
        lambda call: call.op == "prelu" and not call.problem.shared and call.problem.c > 1,
        with_functions(prelu, _slopes=_first_slope),
    ),
)
