"""YOLO11n: backbone, neck and head, from torch.nn's layers; convref computes them after `convert`.

    python docs/examples/yolo11n.py --size 64 --out build/yolo11n

Width 0.25, depth 0.5, at most 1024 channels (Ultralytics 2024). The head ends with its two
convolutions: 64 numbers for a box, one for each class; decoding these is no convolution.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvBNSiLU(nn.Sequential):
    """Convolution without bias, batch norm, silu (or nothing)."""

    def __init__(
        self, c: int, k: int, size: int = 1, stride: int = 1, groups: int = 1, act: bool = True
    ) -> None:
        conv = nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=False)
        norm = nn.BatchNorm2d(k, eps=1e-3, momentum=0.03)
        super().__init__(conv, norm, nn.SiLU() if act else nn.Identity())


class Bottleneck(nn.Module):
    """Two 3 x 3 convolutions, around which the input is added."""

    def __init__(self, c: int, expansion: float = 0.5) -> None:
        super().__init__()
        hidden = int(c * expansion)
        self.cv1, self.cv2 = ConvBNSiLU(c, hidden, 3), ConvBNSiLU(hidden, c, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.cv2(self.cv1(x))


class C3k(nn.Module):
    """Two bottlenecks beside a 1 x 1 convolution."""

    def __init__(self, c: int) -> None:
        super().__init__()
        hidden = c // 2
        self.cv1, self.cv2 = ConvBNSiLU(c, hidden), ConvBNSiLU(c, hidden)
        self.cv3 = ConvBNSiLU(2 * hidden, c)
        self.m = nn.Sequential(*(Bottleneck(hidden, 1.0) for _ in range(2)))

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class C3k2(nn.Module):
    """Half of the channels goes through a block; both halves and what came out are joined."""

    def __init__(self, c: int, k: int, deep: bool = False, expansion: float = 0.5) -> None:
        super().__init__()
        hidden = int(k * expansion)
        self.cv1, self.cv2 = ConvBNSiLU(c, 2 * hidden), ConvBNSiLU(3 * hidden, k)
        self.m = C3k(hidden) if deep else Bottleneck(hidden)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.cv1(x).chunk(2, 1)
        return self.cv2(torch.cat((a, b, self.m(b)), 1))


class SPPF(nn.Module):
    """Maxima of 5 x 5, 9 x 9 and 13 x 13 windows: three pools, one after the other."""

    def __init__(self, c: int, k: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = ConvBNSiLU(c, c // 2), ConvBNSiLU(2 * c, k)
        self.m = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = [self.cv1(x)]
        for _ in range(3):
            y.append(self.m(y[-1]))
        return self.cv2(torch.cat(y, 1))


class Attention(nn.Module):
    """Attention over positions; a depthwise convolution of the values says where they are."""

    def __init__(self, c: int, heads: int) -> None:
        super().__init__()
        self.heads, self.value, self.key = heads, c // heads, c // heads // 2
        self.qkv = ConvBNSiLU(c, c + 2 * heads * self.key, act=False)
        self.proj = ConvBNSiLU(c, c, act=False)
        self.pe = ConvBNSiLU(c, c, 3, groups=c, act=False)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        qkv = self.qkv(x).reshape(n, self.heads, -1, h * w)
        q, k, v = qkv.split((self.key, self.key, self.value), 2)  # (N, heads, each, H W)
        weights = (q.mT @ k * self.key**-0.5).softmax(-1)  # (N, heads, H W, H W)
        y = (v @ weights.mT).reshape(n, c, h, w)
        return self.proj(y + self.pe(v.reshape(n, c, h, w)))


class C2PSA(nn.Module):
    """Half of the channels goes through attention and a small network, each around an addition."""

    def __init__(self, c: int) -> None:
        super().__init__()
        hidden = c // 2
        self.cv1, self.cv2 = ConvBNSiLU(c, c), ConvBNSiLU(c, c)
        self.attn = Attention(hidden, hidden // 64)
        self.ffn = nn.Sequential(
            ConvBNSiLU(hidden, 2 * hidden), ConvBNSiLU(2 * hidden, hidden, act=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.cv1(x).chunk(2, 1)
        b = b + self.attn(b)
        return self.cv2(torch.cat((a, b + self.ffn(b)), 1))


class Backbone(nn.Module):
    """From an image to maps of an eighth, a sixteenth and a 32nd of its size."""

    channels = (128, 128, 256)

    def __init__(self) -> None:
        super().__init__()
        self.p3 = nn.Sequential(
            ConvBNSiLU(3, 16, 3, 2),
            ConvBNSiLU(16, 32, 3, 2),
            C3k2(32, 64, expansion=0.25),
            ConvBNSiLU(64, 64, 3, 2),
            C3k2(64, 128, expansion=0.25),
        )
        self.p4 = nn.Sequential(ConvBNSiLU(128, 128, 3, 2), C3k2(128, 128, deep=True))
        self.p5 = nn.Sequential(
            ConvBNSiLU(128, 256, 3, 2), C3k2(256, 256, deep=True), SPPF(256, 256), C2PSA(256)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p3 = self.p3(x)
        p4 = self.p4(p3)
        return p3, p4, self.p5(p4)


class Neck(nn.Module):
    """Down the pyramid (FPN), where small maps are enlarged, and up again (PAN)."""

    channels = (64, 128, 256)

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Upsample(scale_factor=2.0)
        self.down4, self.down3 = C3k2(384, 128), C3k2(256, 64)
        self.to4, self.up4 = ConvBNSiLU(64, 64, 3, 2), C3k2(192, 128)
        self.to5, self.up5 = ConvBNSiLU(128, 128, 3, 2), C3k2(384, 256, deep=True)

    def forward(self, p3: Tensor, p4: Tensor, p5: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        middle = self.down4(torch.cat((self.up(p5), p4), 1))
        n3 = self.down3(torch.cat((self.up(middle), p3), 1))
        n4 = self.up4(torch.cat((self.to4(n3), middle), 1))
        return n3, n4, self.up5(torch.cat((self.to5(n4), p5), 1))


class Head(nn.Module):
    """Numbers for a box and for each class, at each position of one map."""

    def __init__(self, c: int, classes: int) -> None:
        super().__init__()
        k = max(Neck.channels[0], min(classes, 100))
        self.box = nn.Sequential(ConvBNSiLU(c, 64, 3), ConvBNSiLU(64, 64, 3), nn.Conv2d(64, 64, 1))
        pairs = ((ConvBNSiLU(a, a, 3, groups=a), ConvBNSiLU(a, k)) for a in (c, k))
        self.label = nn.Sequential(
            *(one for pair in pairs for one in pair), nn.Conv2d(k, classes, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.box(x), self.label(x)), 1)


class YOLO11n(nn.Module):
    """The whole network: three maps of (N, 64 + classes, H, W)."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.backbone, self.neck = Backbone(), Neck()
        self.heads = nn.ModuleList(Head(c, classes) for c in Neck.channels)

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = self.neck(*self.backbone(x))
        return [head(one) for head, one in zip(self.heads, maps, strict=True)]


if __name__ == "__main__":
    import compare

    compare.main(YOLO11n, __doc__)
