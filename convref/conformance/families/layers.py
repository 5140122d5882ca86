"""The plain sizes of a draw: all 1, those of a network's layer, or more than a kernel's grid."""

from typing import NamedTuple

from .tape import Tape


class Layer(NamedTuple):
    """Sizes before any of them is unusual; each spatial one holds for all axes but `windows`."""

    taps: int = 1
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    transposed: bool = False
    n: int = 1
    c: int = 1  # per group
    k: int = 1
    groups: int = 1
    windows: tuple[int, ...] = (1,)  # how many, one number per axis


# Filter, stride, dilation, padding, transposed: of ResNet, VGG, Inception, MobileNet, EfficientNet,
# ViT, ConvNeXt, DeepLab, U-Net, DCGAN, YOLO and WaveNet; pools have the same.
NETWORKS = (
    Layer(3, padding=1),
    Layer(1),
    Layer(3, 2, padding=1),
    Layer(1, 2),
    Layer(3),
    Layer(3, 2),
    Layer(2, 2),
    Layer(7, 2, padding=3),
    Layer(5, padding=2),
    Layer(5, 2, padding=2),
    Layer(7, padding=3),
    Layer(4, 4),
    Layer(16, 16),
    Layer(11, 4, padding=2),
    Layer(3, dilation=2, padding=2),
    Layer(3, dilation=6, padding=6),
    Layer(4, 2, padding=1, transposed=True),
    Layer(2, 2, transposed=True),
    Layer(3, 2, padding=1, transposed=True),
)
# (c, k, groups): plain, depthwise, grouped, of a first and of a last layer.
WIDTHS = (
    (8, 8, 1),
    (1, 1, 8),
    (4, 4, 4),
    (3, 16, 1),
    (16, 10, 1),
    (16, 32, 1),
    (64, 16, 1),
    (1, 1, 32),
)
IMAGES = (7, 8, 14, 4, 16, 5, 20, 28)
# (n, c, k, width, height), 0: as many as the rank needs for 100,000 elements. Each exceeds the
# 65,535 blocks of a grid's second axis, or several tiles of a kernel.
LARGE = (
    (1, 1, 1, 65_537, 1),
    (1, 1, 1, 0, 0),
    (1, 1, 1, 1, 65_537),
    (65_537, 1, 1, 1, 1),
    (1, 65_537, 1, 1, 1),
    (1, 1, 65_537, 1, 1),
    (257, 257, 1, 1, 1),
    (1, 4_099, 17, 1, 1),
    (2, 129, 1, 513, 1),
)
UNFILTERED = [row for row in LARGE if row[2] == 1]


def layer(tape: Tape, rank: int, filtered: bool) -> Layer:
    """Return the plain sizes for a draw of this kind."""
    if tape.base == "large":
        n, c, k, width, height = tape.pick(LARGE if filtered else UNFILTERED)
        every = (100_003, 331, 47)[rank - 1]
        sizes = (every if width == 0 else 1, height or every, width or every)[-rank:]
        return Layer(n=n, c=c, k=k, windows=sizes)
    if tape.base not in ("usual", "far"):
        return Layer(windows=(1,) * rank)
    c, k, groups = tape.pick(WIDTHS)
    if not filtered:
        c, k, groups = c * groups, 1, 1
    image = tape.pick(IMAGES)
    plain = tape.pick(NETWORKS if filtered else [row for row in NETWORKS if not row.transposed])
    n = tape.pick((2, 1, 4, 8))
    return plain._replace(n=n, c=c, k=k, groups=groups, windows=(image,) * rank)
