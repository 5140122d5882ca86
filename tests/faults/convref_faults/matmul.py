"""Wrong products of matrices, reductions and running sums: a term, an axis or a direction lost."""

import numpy as np

from convref.case import Call
from convref.conformance.mutations import Array, Operands, Results
from convref.ops import Problem
from convref.oracle import matmul, reduce

from .base import Fault, with_functions

STEP = 4  # terms that a kernel adds at once


def _whole_steps(x: Array, w: Array, problem: Problem) -> Array:
    kept = x.shape[-1] // STEP * STEP
    return x[..., :kept] @ w[..., :kept, :]


def _last_of_batch(dy: Array, x: Array, problem: Problem) -> Array:
    return np.conj(x[-1]).swapaxes(-1, -2) @ dy[-1]


def _narrow_sums(call: Call, operands: Operands) -> Results:
    """Round the sum to the type of the operands after each term."""
    x, w = operands
    assert x is not None
    assert w is not None
    total = np.zeros(call.problem.shape("y"), x.dtype)
    for i in range(x.shape[-1]):
        term = x[..., i, None].astype(np.float64) * w[..., i, None, :].astype(np.float64)
        total = (total.astype(np.float64) + term).astype(x.dtype)
    return (total,)


def _exclusive(x: Array, problem: Problem) -> Array:
    return np.add.accumulate(x, axis=problem.dim) - x


def _forward(dy: Array, problem: Problem) -> Array:
    return np.add.accumulate(dy, axis=problem.dim)


def _last_axis(x: Array, problem: Problem) -> Array:
    found = x.sum(axis=problem.axes[-1], keepdims=True)
    for axis in problem.axes[:-1]:
        found = found.take([0], axis)
    return found


def _one_less(x: Array, problem: Problem) -> Array:
    return reduce.sum_fprop(x, problem) / x.dtype.type(problem.count - 1)


def _several(call: Call) -> bool:
    sizes = call.problem.input
    return any(sizes[axis - 2] > 1 for axis in call.problem.axes[:-1]) and min(sizes) > 0


ROWS = (
    Fault(
        "matmul_whole_steps",
        "the terms after the last whole step of the inner loop are not added",
        "matmul.fprop:n1c1k1_i1",
        lambda call: call.pass_ == "fprop" and call.problem.input[0] % STEP != 0,
        with_functions(matmul, matmul_fprop=_whole_steps),
        ops=("matmul",),
    ),
    Fault(
        "matmul_shared_gradient",
        "the gradient of a matrix that a batch shares is that of its last element",
        "matmul.backward:n2c1k1_i1:shared=1",
        lambda call: call.pass_ == "backward" and call.problem.shared and call.problem.n > 1,
        with_functions(matmul, matmul_wgrad=_last_of_batch),
        ops=("matmul",),
    ),
    Fault(
        "matmul_narrow_accumulator",
        "sums are kept in the 16-bit type of the operands",
        "matmul.fprop:n1c1k1_i2:dt=bf16:fill=normal:seed=4",
        lambda call: call.where == "matmul.fprop" and call.dtype == "bf16",
        _narrow_sums,
        dtypes=("bf16",),
        ops=("matmul",),
    ),
    Fault(
        "cumsum_exclusive",
        "an element is no term of its own sum",
        "cumsum.fprop:n1c1_i1",
        lambda call: call.pass_ == "fprop",
        with_functions(reduce, cumsum_fprop=_exclusive),
        ops=("cumsum",),
    ),
    Fault(
        "cumsum_gradient_forward",
        "the gradient is summed from the first element, not from the last",
        "cumsum.backward:n1c2_i1",
        lambda call: call.pass_ == "backward" and call.problem.count > 1,
        with_functions(reduce, cumsum_backward=_forward),
        ops=("cumsum",),
    ),
    Fault(
        "sum_last_axis",
        "of several axes only the last is summed over",
        "sum.fprop:n1c1_i2x1:over=hw",
        lambda call: call.pass_ == "fprop" and _several(call),
        with_functions(reduce, sum_fprop=_last_axis),
        ops=("sum",),
    ),
    Fault(
        "mean_one_less",
        "the divisor of a mean is that of an unbiased variance",
        "mean.fprop:n1c1_i2",
        lambda call: call.pass_ == "fprop" and call.problem.count > 1,
        with_functions(reduce, mean_fprop=_one_less),
        ops=("mean",),
    ),
)
