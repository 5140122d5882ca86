"""attorch (github.com/BobMcDear/attorch): its layers beside those of torch.nn."""

import sys

import torch
from torch import nn

from corpora import folder, leaf, with_gradients

sys.path.insert(0, str(folder("attorch")))
import attorch

ACTIVATIONS = (
    "Sigmoid", "LogSigmoid", "Tanh", "ReLU", "GELU", "SiLU", "ReLU6", "Hardsigmoid", "Hardtanh",
    "Hardswish", "SELU", "Mish", "Softplus", "Softsign", "Tanhshrink", "LeakyReLU", "ELU", "CELU",
    "Hardshrink", "Softshrink",
)  # fmt: skip
LAYERS = (  # layer, its arguments, shape of the operand
    ("AvgPool1d", (3, 2, 1), (4, 3, 19)),
    ("AvgPool2d", (3, 2, 1), (2, 3, 7, 9)),
    ("BatchNorm1d", (12,), (8, 12, 5)),
    ("BatchNorm2d", (6,), (2, 6, 5, 7)),
    ("Conv1d", (6, 8, 3, 2, 1), (2, 6, 19)),
    ("Conv2d", (6, 8, 3, 2, 1), (2, 6, 9, 8)),
    ("GLU", (), (6, 40)),
    ("LayerNorm", (40,), (6, 40)),
    ("Linear", (40, 24), (6, 40)),
    ("LogSoftmax", (-1,), (6, 70)),
    ("RMSNorm", (40,), (6, 40)),
    ("Softmax", (-1,), (6, 70)),
    ("Softmin", (-1,), (6, 70)),
)
LOSSES = ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss")


def cases():
    """Yield layers and losses, forward and backward."""
    for name in ACTIVATIONS:
        yield name, lambda name=name: layers(name, (), (4, 200))
    for name, given, shape in LAYERS:
        yield name, lambda name=name, given=given, shape=shape: layers(name, given, shape)
    for name in LOSSES:
        yield name, lambda name=name: losses(name, leaf(6, 40), torch.randn(6, 40))
    for name in ("CrossEntropyLoss", "NLLLoss"):
        yield name, lambda name=name: losses(name, leaf(6, 40), torch.randint(0, 40, (6,)))
    yield "Dropout", dropout


def layers(name, given, shape):
    theirs, ours = getattr(nn, name)(*given), getattr(attorch, name)(*given)
    parameters = list(theirs.parameters())
    with torch.no_grad():
        for p, q in zip(parameters, ours.parameters(), strict=True):
            p.uniform_(0.5, 1.5)
            q.copy_(p if p.shape == q.shape else p.T)  # attorch's Linear has (in, out)
    pairs = with_gradients(ours, theirs, leaf(*shape))
    return pairs + [
        (q.grad if q.shape == p.shape else q.grad.T, p.grad)
        for p, q in zip(parameters, ours.parameters())
    ]


def losses(name, x, target):
    return with_gradients(
        lambda a: getattr(attorch, name)()(a, target), lambda a: getattr(nn, name)()(a, target), x
    )


def dropout():
    x = leaf(4, 200)
    out = attorch.Dropout(0.5)(x)
    kept = out != 0
    return [(out, torch.where(kept, 2 * x, 0)), (kept.any(), torch.tensor(True))]
