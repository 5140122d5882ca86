"""A user's script on PyTorch: a type checker must flag the lines marked `wrong` and no other."""
# pyright: strict

import torch
from torch import Tensor

import convref
from convref.integrations.torch import convert, fuse, nn, revert, use_backend
from convref.integrations.torch import functional as F


class Net(torch.nn.Module):
    """A network of layers and functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv: torch.nn.Conv2d = nn.Conv2d(3, 8, 3, padding=1, backend="auto")
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.ConvBNAct2d(8, 8, 3, padding=1, activation="silu")
        self.up = nn.Upsample(scale_factor=2.0, mode="nearest")

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        y, _ = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2, return_indices=True)
        y = F.interpolate(self.block(y), scale_factor=2.0, mode="bilinear")
        return F.avg_pool2d(F.batch_norm(y, None, None, training=True), 2)


def computed() -> Tensor:
    """Return the output of a converted network.

    >>> computed().shape
    torch.Size([1, 8, 2, 2])
    """
    model, x = Net().eval(), convref.relu(torch.ones(1, 3, 4, 4))
    reports = [str(convert(model)), str(fuse(model))]
    with use_backend("numpy"):
        found: Tensor = model(x)
    revert(model)
    return found if all(reports) else x


def wrong() -> None:
    """Hold calls that a type checker must flag."""
    F.conv2d("hello", 3)  # wrong
    F.relu(torch.ones(3)).nothing()  # wrong
    F.interpolate(torch.ones(1, 1, 2, 2), 4, mode="billinear")  # wrong
    F.conv4d(torch.ones(1), torch.ones(1))  # wrong
    nn.Conv2d("three", 8, 3)  # wrong
    nn.Conv2d(3, 8, 3, backends="numpy")  # wrong
    nn.Conv2d(3, 8, 3).backend()  # wrong
    nn.MaxPool2d(2.5)  # wrong
    nn.Conv4d(3, 8, 3)  # wrong
