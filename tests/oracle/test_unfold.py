"""Unfold and fold against loops, torch and each other."""

from math import prod

import numpy as np
import pytest
from hypothesis import given

from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.ops import WindowProblem
from convref.oracle import evaluate
from convref.oracle.conv import conv_fprop
from convref.oracle.unfold import fold, unfold

SMALL = {"max_elements": 600}
INTEGERS = {"dtypes": ["i64", "obj", "f64"], "fills": ["int", "ramp", "impulse"]}


@given(cases(ops=["unfold", "fold"], **INTEGERS, **SMALL))
def test_loops_bit_for_bit(checks, case):
    checks.loops(case)


@given(cases(ops=["unfold"], passes=["fprop"], **INTEGERS, **SMALL))
def test_fold_is_the_adjoint_of_unfold(case):
    (x,) = operands(case)
    cols = unfold(x, case.call.problem)
    weights = np.arange(cols.size).reshape(cols.shape) % 7 - 3
    assert np.sum(weights * cols) == np.sum(fold(weights, case.call.problem) * x), str(case)


@pytest.mark.parametrize("op", ["unfold", "fold"])
def test_torch(checks, op):
    torch = pytest.importorskip("torch")

    @given(
        cases(
            ops=[op],
            passes=["fprop"],
            dtypes=["f64"],
            fills=["int"],
            max_rank=2,
            negative_padding=False,
            empty=False,
        )
    )
    def check(case):
        (array,) = operands(case)
        problem = case.call.problem
        padded = [size + lo + hi for size, (lo, hi) in zip(problem.input, problem.padding)]
        flat = [1] * (2 - problem.rank)  # torch has no 1d form: the missing axis has one row
        geometry = {
            "kernel_size": [*flat, *problem.filter],
            "stride": [*flat, *problem.stride],
            "dilation": [*flat, *problem.dilation],
        }
        lead = (problem.n, problem.c, *flat)
        if op == "unfold":
            wide = np.pad(array, ((0, 0), (0, 0), *problem.padding)).reshape(*lead, *padded)
            want = torch.nn.functional.unfold(torch.from_numpy(wide), **geometry).numpy()
        else:
            cols = torch.from_numpy(np.array(array))
            wide = torch.nn.functional.fold(cols, [*flat, *padded], **geometry).numpy()
            inside = [slice(lo, lo + i) for i, (lo, _) in zip(problem.input, problem.padding)]
            want = wide.reshape(problem.n, problem.c, *padded)[(..., *inside)]
        (got,) = evaluate(case.call, array)
        checks.equal(got, want, str(case))

    check()


@given(cases(passes=["fprop"], dtypes=["i64"], fills=["int"], transposed=False, flip=False))
def test_convolution_is_unfold_then_matrix_product(checks, case):
    x, w, _ = operands(case)
    problem = case.call.conv
    windows = WindowProblem(
        n=problem.n,
        c=problem.c,
        input=problem.input,
        filter=problem.filter,
        stride=problem.stride,
        padding=problem.padding,
        dilation=problem.dilation,
    )
    g, rows = problem.groups, problem.c // problem.groups * prod(problem.filter)
    cols = unfold(x, windows).reshape(problem.n, g, rows, prod(problem.output))
    y = w.reshape(g, problem.k // g, rows) @ cols  # (N, G, K/G, P)
    checks.equal(conv_fprop(x, w, None, problem), y.reshape(problem.shape("y")), str(case))
