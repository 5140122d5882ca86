"""Gradients of a program of one operation and the operation's own judge of its backward agree."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import convref  # noqa: E402
from convref import Numerics, assert_correct  # noqa: E402
from convref.judge.programs import Program, judge_results  # noqa: E402

# PyTorch's function, convref's, the shapes of the operands for sizes n and c, other arguments.
GRADIENTS = {
    "conv2d": (F.conv2d, "conv2d", lambda n, c: ((n, c, 6, 5), (3, c, 3, 2), (3,)), {"padding": 1}),
    "matmul": (torch.matmul, "matmul", lambda n, c: ((n, c), (c, 4)), {}),
    "softmax": (F.softmax, "softmax", lambda n, c: ((n, c),), {"dim": 1}),
    **{
        name: (getattr(F, name), name, lambda n, c: ((n, c),), {})
        for name in ("relu", "gelu", "silu", "sigmoid", "tanh")
    },
}


def gradients(f, named):
    def reference(dy, *operands):
        operands = [t.detach().requires_grad_() for t in operands]
        found = torch.autograd.grad(f(*operands, **named), operands, dy)
        return found if len(found) > 1 else found[0]

    return reference


def is_right(got, own, operands, named):
    try:
        assert_correct(got, own, operands, accuracy="rn32", **named)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", GRADIENTS)
def test_both_judges_agree_on_gradients(name):
    f, own, shapes, named = GRADIENTS[name]
    backward, reference = getattr(convref, f"{own}_backward"), gradients(f, named)

    @settings(max_examples=4, deadline=None)
    @given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 99))
    def agree(n, c, seed):
        random = torch.Generator().manual_seed(seed)
        operands = [torch.randn(s, generator=random) for s in shapes(n, c)]
        dy = torch.randn(f(*operands, **named).shape, generator=random)
        right = reference(dy, *operands)
        for error in (0.0, 4.0):
            got = [t.clone() for t in (right if isinstance(right, tuple) else (right,))]
            got[0].view(-1)[0] += error * (1 + got[0].abs().max())
            got = tuple(got) if len(got) > 1 else got[0]
            report = judge_results(Program(reference, (dy, *operands), {}, Numerics()), got)
            passes = report.verdict.kind != "wrong"
            arguments = (dy, *operands[:2])
            more = {"bias_sizes": [3]} if own == "conv2d" else {}
            assert passes == (error == 0), str(report)
            assert is_right(got, backward, arguments, named | more) == passes

    agree()
