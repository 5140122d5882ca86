"""A program of one operation and the operation's own judge agree."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import convref  # noqa: E402
from convref import Numerics, assert_close, assert_correct  # noqa: E402
from convref.judge.programs import Program  # noqa: E402

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
ACTIVATIONS = "relu gelu silu mish sigmoid tanh softplus hardswish"

# PyTorch's function, convref's, the shapes of the operands for sizes n and c, other arguments.
SINGLE = {
    "conv2d": (
        F.conv2d,
        convref.conv2d,
        lambda n, c: ((n, c, 6, 5), (3, c, 3, 2), (3,)),
        {"stride": 2, "padding": 1},
    ),
    "conv_transpose2d": (
        F.conv_transpose2d,
        convref.conv_transpose2d,
        lambda n, c: ((n, c, 3, 4), (c, 3, 3, 2), (3,)),
        {"stride": 2},
    ),
    "matmul": (torch.matmul, convref.matmul, lambda n, c: ((n, 9 * c), (9 * c, 4)), {}),
    "group_norm": (
        F.group_norm,
        convref.group_norm,
        lambda n, c: ((n, 2 * c, 3, 4),),
        {"num_groups": 2},
    ),
    **{
        name: (getattr(F, name), getattr(convref, name), lambda n, c: ((n, c, 6, 5),), given)
        for name, given in (
            ("avg_pool2d", {"kernel_size": 2}),
            ("max_pool2d", {"kernel_size": 2}),
            ("layer_norm", {"normalized_shape": (5,)}),
            ("softmax", {"dim": 2}),
            ("log_softmax", {"dim": 2}),
            *((name, {}) for name in ACTIVATIONS.split()),
        )
    },
}


def passes(check, *arguments, **named):
    try:
        check(*arguments, **named)
    except AssertionError:
        return False
    return True


@settings(max_examples=200 if NIGHTLY else 3, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 999),
    st.sampled_from((torch.float32, torch.bfloat16)),
    st.booleans(),
)
def test_both_judges_agree_on_right_and_on_wrong_results(n, c, seed, dtype, is_integer):
    random = torch.Generator().manual_seed(seed)
    for name, (f, own, shapes, named) in SINGLE.items():
        operands = [torch.randn(s, generator=random) for s in shapes(n, c)]
        operands = tuple((t.round() if is_integer else t).to(dtype) for t in operands)
        _, wanted = Program(f, operands, named, Numerics()).traced()
        right = wanted["output"][1].wide.to(dtype)
        for error in (0.0, 2.0**-7, 2.0**-2, 4.0):
            got = right.clone()
            got.view(-1)[seed % got.numel()] += error * (1 + right.abs().max())
            verdicts = {
                passes(assert_close, got, f, operands, named),
                passes(assert_correct, got, own, operands, accuracy="rn32", **named),
            }
            if error in (0.0, 4.0) or dtype == torch.float32:  # else between the two bounds
                assert verdicts == {error == 0}, (name, error)
