"""Wrong norms: statistics over other elements, a variance of another kind, eps elsewhere."""

from functools import partial

import numpy as np

from convref.case import Call
from convref.conformance.mutations import Array, Operands, Results, oracle_results
from convref.ops import BASE_ROLE, GROUPS, FrozenNormProblem, Problem
from convref.oracle import norm as formulas

from .base import Fault, reading, with_functions
from .pairs import size

NormFault = partial(Fault, ops=GROUPS["norm"])


def _biased(old: Array, new: Array, problem: Problem, unbiased: bool = False) -> Array:
    share = problem.momentum
    return (1 - share) * old + share * new


def _exchanged(old: Array, new: Array, problem: Problem, unbiased: bool = False) -> Array:
    factor = problem.count / (problem.count - 1) if unbiased else 1
    share = problem.momentum
    return share * old + (1 - share) * factor * new


def _beside_the_root(var: Array, problem: Problem) -> Array:
    return (np.sqrt(var) + problem.eps) ** 2


def _halves(x: Array, problem: Problem) -> tuple[Array, Array]:
    """Return statistics merged from two parts of other sizes, as if both were halves."""
    axis = 3 if x.shape[3] > 1 else 2 if x.shape[2] > 1 else 0
    cut = -(-x.shape[axis] // 2)
    axes, parts = problem.blocks.statistics, np.split(x, [cut], axis)
    first, second = (part.mean(axis=axes, keepdims=True) for part in parts)
    one, other = (part.var(axis=axes, keepdims=True) for part in parts)
    return (first + second) / 2, (one + other) / 2 + (first - second) ** 2 / 4


def _sizes_differ(call: Call) -> bool:
    image, axes = call.problem.blocks.image, call.problem.blocks.statistics
    split = 3 if image[3] > 1 else 2 if image[2] > 1 else 0
    odd = split in axes and image[split] % 2 == 1 and image[split] > 1
    return odd and call.op != "batch_norm_eval" and call.pass_ in ("fprop", "jvp")


def _unbiased_everywhere(x: Array, problem: Problem) -> tuple[Array, Array]:
    mean = formulas.mean_of(x, problem)
    var = formulas.mean_of((x - mean) ** 2, problem)
    return mean, var * problem.count / (problem.count - 1)


def _interleaved(call: Call, operands: Operands) -> Results:
    """Group channels that are a group's number apart, as if C were (C/G, G)."""
    order = np.arange(call.problem.c).reshape(-1, call.problem.groups).T.ravel()
    back = order.argsort()

    def moved(roles: tuple[str, ...], arrays: Operands, order: Array) -> Operands:
        axis = {"x": 1, "y": 1, "w": 0, "b": 0}
        return tuple(
            a if a is None or (at := axis.get(BASE_ROLE[r])) is None else a.take(order, at)
            for r, a in zip(roles, arrays)
        )

    results = oracle_results(call, moved(call.roles, operands, order))
    return moved(call.signature.results, results, back)


def _first_position(call: Call, operands: Operands) -> Results:
    """Sum the cotangent of the bias over the batch, and forget the positions."""
    dx, dw, db = oracle_results(call, operands)
    dy = operands[0]
    assert dy is not None
    if db is not None:
        wide = dy.reshape(*dy.shape[:2], -1)[..., 0].astype(np.float64)
        db = wide.sum(axis=0).astype(db.dtype)
    return dx, dw, db


def _batch_mean(v: Array, problem: Problem) -> Array:
    return v.mean(axis=problem.blocks.broadcast_axes, keepdims=True).reshape(problem.shape("w"))


def _moving(v: Array, z: Array, problem: Problem) -> Array:
    """Differentiate given statistics by x, as if they were its own."""
    return v - formulas.mean_of(v, problem) - z * formulas.mean_of(v * z, problem)


def _one_product_short(v: Array, g: Array, z: Array, rstd: Array, problem: Problem) -> Array:
    a, b = formulas.mean_of(v * z, problem), formulas.mean_of(g * z, problem)
    v, g = v - formulas.mean_of(v, problem), g - formulas.mean_of(g, problem)
    return -rstd * rstd * (z * (formulas.mean_of(v * g, problem) - a * b) + b * v + a * g)


def _without_z(v: Array, z: Array, problem: Problem) -> Array:
    frozen = isinstance(problem, FrozenNormProblem)
    return v if frozen else v - formulas.mean_of(v, problem)


def _rolled(w: Array, call: Call, role: str) -> Array:
    return np.roll(w, 1, axis=0)


def _trains(call: Call) -> bool:
    return call.op == "batch_norm" and call.pass_ == "fprop"


def _finds(call: Call) -> bool:
    return call.op != "batch_norm_eval" and call.pass_ in ("fprop", "jvp")


ROWS = (
    NormFault(
        "biased_running_variance",
        "the biased variance goes into the running one",
        "batch_norm.fprop:n2c1_i1",
        _trains,
        with_functions(formulas, running=_biased),
    ),
    NormFault(
        "momentum_swapped",
        "momentum as the share of the old statistic",
        "batch_norm.fprop:n2c1_i1:fill=ones",
        lambda call: _trains(call) and call.problem.momentum != 0.5,
        with_functions(formulas, running=_exchanged),
    ),
    NormFault(
        "eps_beside_the_root",
        "1 / (sqrt(var) + eps) for 1 / sqrt(var + eps)",
        "layer_norm.fprop:n1c1_i1:fill=ones",
        lambda call: call.pass_ == "fprop",
        with_functions(formulas, plus_eps=_beside_the_root),
    ),
    NormFault(
        "eps_forgotten",
        "1 / sqrt(var)",
        "layer_norm.fprop:n1c1_i1:fill=ones",
        lambda call: call.pass_ == "fprop",
        with_functions(formulas, plus_eps=lambda var, problem: var),
    ),
    NormFault(
        "unbiased_variance_normalises",
        "the variance over M - 1 normalises too",
        "layer_norm.fprop:n1c1_i2",
        lambda call: _finds(call) and call.problem.count > 1,
        with_functions(formulas, statistics=_unbiased_everywhere),
    ),
    NormFault(
        "welford_merge_weight",
        "apex#1768: parts of other sizes merged with one weight",
        "batch_norm.jvp:n1c1_i3",
        _sizes_differ,
        with_functions(formulas, statistics=_halves),
    ),
    NormFault(
        "groups_interleaved",
        "channel c in group c mod G",
        "group_norm.jvp:n1c4g2_i1",
        lambda call: call.op == "group_norm" and 1 < call.problem.groups < call.problem.c,
        _interleaved,
    ),
    NormFault(
        "bias_gradient_over_the_batch_alone",
        "db without the sum over positions",
        "batch_norm.bgrad:n1c1_i2:fill=ones",
        lambda call: (
            call.op in ("batch_norm", "group_norm")
            and call.pass_ == "backward"
            and "db" in call.wanted
        ),
        _first_position,
    ),
    NormFault(
        "weight_gradient_is_a_mean",
        "dw and db divided by how many elements share a weight",
        "group_norm.bgrad:n1c1_i2:fill=ones",
        lambda call: call.pass_ == "backward" and {"dw", "db"} & {*call.wanted} and size(call) > 0,
        with_functions(formulas, per_weight=_batch_mean),
    ),
    NormFault(
        "eval_backward_as_in_training",
        "pytorch#586: the backward pass of evaluation differentiates its statistics",
        "batch_norm_eval.dgrad:n1c1_i1:fill=ones",
        lambda call: (
            call.op == "batch_norm_eval" and call.pass_ == "backward" and "dx" in call.wanted
        ),
        with_functions(formulas, project=_moving),
    ),
    NormFault(
        "gradient_without_variance",
        "dx takes the mean into account and not the variance",
        "layer_norm.dgrad:n1c2_i1",
        lambda call: (
            call.op != "batch_norm_eval" and call.pass_ == "backward" and "dx" in call.wanted
        ),
        with_functions(formulas, project=_without_z),
    ),
    NormFault(
        "second_derivative_one_product_short",
        "a b where 3 a b is right",
        "group_norm.double_backward:n1c2_i1:mask=010",
        lambda call: (
            call.op != "batch_norm_eval" and call.pass_ == "double_backward" and "dx" in call.wanted
        ),
        with_functions(formulas, second_derivative=_one_product_short),
    ),
    NormFault(
        "weight_of_the_next_channel",
        "weights read one channel off",
        "layer_norm.fprop:n1c2_i1",
        lambda call: call.problem.weight and call.problem.c > 1 and call.pass_ == "fprop",
        reading("w", _rolled),
    ),
)
OTHERS = (
    NormFault(
        "rms_norm_of_centred_elements",
        "the mean is subtracted, as in layer norm",
        "rms_norm.fprop:n1c1_i1:eps=1.1920928955078125e-07:fill=ones",
        lambda call: call.op == "rms_norm",
        with_functions(formulas, mean_or_zero=formulas.mean_of),
    ),
)
