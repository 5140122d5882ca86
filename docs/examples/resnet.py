"""ResNet-50 (He et al. 2015), the stride in the 3 x 3 filter; convref computes it after `convert`.

python docs/examples/resnet.py --size 64 --out build/resnet50
"""

from __future__ import annotations

from torch import Tensor, nn

BLOCKS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, how many, stride of the first


class ConvNorm(nn.Sequential):
    """Convolution without bias, batch norm."""

    def __init__(self, c: int, k: int, size: int, stride: int = 1) -> None:
        conv = nn.Conv2d(c, k, size, stride, size // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(k))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 filters, around which the input (or a projection of it) is added."""

    def __init__(self, c: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            ConvNorm(c, width, 1),
            nn.ReLU(),
            ConvNorm(width, width, 3, stride),
            nn.ReLU(),
            ConvNorm(width, 4 * width, 1),
        )
        same = stride == 1 and c == 4 * width
        self.shortcut = nn.Identity() if same else ConvNorm(c, 4 * width, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Sequential):
    """From images (N, 3, H, W) to the logits of classes."""

    def __init__(self, classes: int = 1000) -> None:
        layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        c = 64
        for width, count, stride in BLOCKS:
            for i in range(count):
                layers.append(Bottleneck(c, width, stride if i == 0 else 1))
                c = 4 * width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, classes))


if __name__ == "__main__":
    import compare

    compare.main(ResNet50, __doc__)
