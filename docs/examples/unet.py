"""A U-Net (Ronneberger et al. 2015) with batch norms; convref computes it after `convert`.

python docs/examples/unet.py --size 64 --out build/unet
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTHS = (32, 64, 128, 256)  # channels at each resolution


class Twice(nn.Sequential):
    """Convolution, batch norm and ReLU, twice."""

    def __init__(self, c: int, k: int) -> None:
        super().__init__(
            nn.Conv2d(c, k, 3, padding=1, bias=False),
            nn.BatchNorm2d(k),
            nn.ReLU(),
            nn.Conv2d(k, k, 3, padding=1, bias=False),
            nn.BatchNorm2d(k),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """From images (N, 3, H, W) to the logits of each pixel; H and W are multiples of 8."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        pairs = [*pairwise(WIDTHS)]
        self.first = Twice(3, WIDTHS[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), Twice(*p)) for p in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(k, c, 2, 2) for c, k in reversed(pairs))
        self.joined = nn.ModuleList(Twice(2 * c, c) for c, _ in reversed(pairs))
        self.last = nn.Conv2d(WIDTHS[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(kept[-1]))
        y = kept.pop()
        for up, joined in zip(self.up, self.joined):
            y = joined(torch.cat([kept.pop(), up(y)], 1))
        return self.last(y)


if __name__ == "__main__":
    import compare

    compare.main(UNet, __doc__)
