"""MobileNetV3-Large (Howard et al. 2019); convref computes it after `convert`.

python docs/examples/mobilenet.py --size 64 --out build/mobilenet
"""

from __future__ import annotations

from torch import Tensor, nn

# filter, channels inside, channels out, squeeze and excite, activation, stride
BLOCKS = (
    (3, 16, 16, False, nn.ReLU, 1),
    (3, 64, 24, False, nn.ReLU, 2),
    (3, 72, 24, False, nn.ReLU, 1),
    (5, 72, 40, True, nn.ReLU, 2),
    (5, 120, 40, True, nn.ReLU, 1),
    (5, 120, 40, True, nn.ReLU, 1),
    (3, 240, 80, False, nn.Hardswish, 2),
    (3, 200, 80, False, nn.Hardswish, 1),
    (3, 184, 80, False, nn.Hardswish, 1),
    (3, 184, 80, False, nn.Hardswish, 1),
    (3, 480, 112, True, nn.Hardswish, 1),
    (3, 672, 112, True, nn.Hardswish, 1),
    (5, 672, 160, True, nn.Hardswish, 2),
    (5, 960, 160, True, nn.Hardswish, 1),
    (5, 960, 160, True, nn.Hardswish, 1),
)


class ConvNormAct(nn.Sequential):
    """Convolution without bias, batch norm, an activation or none."""

    def __init__(
        self,
        c: int,
        k: int,
        size: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: type[nn.Module] = nn.Identity,
    ) -> None:
        conv = nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(k, eps=1e-3, momentum=0.01), act())


class SqueezeExcite(nn.Module):
    """Each channel times what two 1 x 1 convolutions make of the means of all."""

    def __init__(self, c: int) -> None:
        super().__init__()
        quarter = c // 4
        hidden = (quarter + 4) // 8 * 8  # the nearest multiple of 8, but no tenth below a quarter
        hidden += 8 if 10 * hidden < 9 * quarter else 0
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(c, hidden, 1),
            nn.ReLU(),
            nn.Conv2d(hidden, c, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(x)


class Block(nn.Module):
    """Expand, filter each channel alone, project; the input is added where it fits."""

    def __init__(
        self,
        c: int,
        size: int,
        inside: int,
        k: int,
        excite: bool,
        act: type[nn.Module],
        stride: int,
    ) -> None:
        super().__init__()
        self.added = stride == 1 and c == k
        self.body = nn.Sequential(
            ConvNormAct(c, inside, act=act) if inside != c else nn.Identity(),
            ConvNormAct(inside, inside, size, stride, groups=inside, act=act),
            SqueezeExcite(inside) if excite else nn.Identity(),
            ConvNormAct(inside, k),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.added else self.body(x)


class MobileNetV3(nn.Sequential):
    """From images (N, 3, H, W) to the logits of classes."""

    def __init__(self, classes: int = 1000) -> None:
        layers: list[nn.Module] = [ConvNormAct(3, 16, 3, 2, act=nn.Hardswish)]
        c = 16
        for size, inside, k, excite, act, stride in BLOCKS:
            layers.append(Block(c, size, inside, k, excite, act, stride))
            c = k
        layers += [ConvNormAct(c, 960, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        head = (nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, classes))
        super().__init__(*layers, *head)


if __name__ == "__main__":
    import compare

    compare.main(MobileNetV3, __doc__)
