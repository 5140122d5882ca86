"""A program of one operation and the operation's own judge agree."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn import functional as F  # noqa: E402

import convref  # noqa: E402
from convref import Numerics, assert_close, assert_correct  # noqa: E402
from convref.judge.programs import Program  # noqa: E402

X = (2, 4, 6, 5)
# PyTorch's function, convref's, the shapes of the operands and the other arguments.
SINGLE = {
    "conv2d": (F.conv2d, convref.conv2d, (X, (3, 4, 3, 2), (3,)), {"stride": 2, "padding": 1}),
    "conv_transpose2d": (
        F.conv_transpose2d,
        convref.conv_transpose2d,
        (X, (4, 3, 3, 2), (3,)),
        {"stride": 2},
    ),
    "avg_pool2d": (F.avg_pool2d, convref.avg_pool2d, (X,), {"kernel_size": 2}),
    "max_pool2d": (F.max_pool2d, convref.max_pool2d, (X,), {"kernel_size": 2}),
    "layer_norm": (F.layer_norm, convref.layer_norm, (X,), {"normalized_shape": (5,)}),
    "group_norm": (F.group_norm, convref.group_norm, (X,), {"num_groups": 2}),
    "softmax": (F.softmax, convref.softmax, (X,), {"dim": 1}),
    "log_softmax": (F.log_softmax, convref.log_softmax, (X,), {"dim": 1}),
    **{
        name: (getattr(F, name), getattr(convref, name), (X,), {})
        for name in ("relu", "gelu", "silu", "mish", "sigmoid", "tanh", "softplus", "hardswish")
    },
}


def passes(check, *arguments, **named):
    try:
        check(*arguments, **named)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", SINGLE)
def test_both_judges_agree_on_right_and_on_wrong_results(name):
    f, own, shapes, named = SINGLE[name]
    random = torch.Generator().manual_seed(1)
    for dtype in (torch.float32, torch.bfloat16):
        for fill in (
            torch.randn,
            lambda s, generator: torch.randint(-2, 3, s, generator=generator),
        ):
            operands = tuple(fill(s, generator=random).to(dtype) for s in shapes)
            _, wanted = Program(f, operands, named, Numerics()).traced()
            value = wanted["output"][1].wide
            right = value.to(dtype)
            for error in (0.0, 2.0**-7, 2.0**-2, 4.0):
                got = right.clone()
                got.view(-1)[3] += error * (1 + got.view(-1)[3].abs())
                verdicts = {
                    passes(assert_close, got, f, operands, named),
                    passes(assert_correct, got, own, operands, accuracy="rn32", **named),
                }
                if error in (0.0, 4.0) or dtype == torch.float32:  # else between the two bounds
                    assert verdicts == {error == 0}, (error, dtype)
