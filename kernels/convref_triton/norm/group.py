"""Group norm beside batch norm: what merges the channels of one group of one image.

`norm.moments` and `norm.cosums` give sums of each channel of each image; a program here has one
group of one image, and walks over its channels and their splits in a fixed order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..common.geometry import Tensor
from ..plan.builder import slot
from ..plan.launch import Launch
from ..plan.tile import Tile

RUNTIME = ["pieces", "channels", "width", "count", "eps"]
LANES = Tile(1, 256, 1, 4, 1)  # splits of channels that one program merges at a time


@triton.jit
def merged(mean, m2, count, mean_2, m2_2, count_2):
    """Return (mean, M2, count) of two sets as one."""
    total = count + count_2
    share = tl.where(total > 0, count_2 / total, 0.0)
    apart = mean_2 - mean
    return mean + apart * share, m2 + m2_2 + apart * apart * count * share, total


@triton.jit
def entry(e, pieces, channels, width, ROWS: tl.constexpr):
    """Return where the e-th split of this program's channels lies in parts, and its channel."""
    groups = channels // width
    image, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    c = group * width + e % width
    row = (image * pieces + e // width).to(tl.int64)
    return row * ROWS * channels + c, c


@triton.jit(do_not_specialize=RUNTIME)
def settle_groups(parts, mean, rstd, pieces, channels, width, count, eps, BN: tl.constexpr):
    """Merge the splits of all channels of a group into its mean and rstd."""
    m, m2, n = (tl.zeros((BN,), tl.float32),) * 3
    for first in range(0, pieces * width, BN):
        e = first + tl.arange(0, BN)
        on = e < pieces * width
        at, _ = entry(e, pieces, channels, width, 3)
        new = tl.load(parts + at, on, other=0.0)
        new_2 = tl.load(parts + at + channels, on, other=0.0)
        new_n = tl.load(parts + at + 2 * channels, on, other=0.0)
        m, m2, n = merged(m, m2, n, new, new_2, new_n)
    m, m2, n = tl.reduce((m, m2, n), 0, merged)
    tl.store(mean + tl.program_id(0), m)
    tl.store(rstd + tl.program_id(0), tl.div_rn(1.0, tl.sqrt_rn(m2 / count + eps)))


@triton.jit(do_not_specialize=RUNTIME)
def total_groups(parts, w, sums, pieces, channels, width, count, eps, BN: tl.constexpr):
    """Add up w dy z and w dy over a group: sums (2, images x groups)."""
    with_z, plain = tl.zeros((BN,), tl.float32), tl.zeros((BN,), tl.float32)
    for first in range(0, pieces * width, BN):
        e = first + tl.arange(0, BN)
        on = e < pieces * width
        at, c = entry(e, pieces, channels, width, 2)
        z, p = tl.load(parts + at, on, other=0.0), tl.load(parts + at + channels, on, other=0.0)
        if w is not None:
            weight = tl.load(w + c, on, other=0.0).to(tl.float32)
            z, p = z * weight, p * weight
        with_z += z
        plain += p
    tl.store(sums + tl.program_id(0), tl.sum(with_z, 0))
    tl.store(sums + tl.num_programs(0) + tl.program_id(0), tl.sum(plain, 0))


def launch(
    tensors: dict[str, Tensor | None], sizes: tuple[int, int, int, int], eps: float, count: int
) -> Launch:
    """Return the launch that settles groups if there is a mean among `tensors`, else adds them up.

    Parameters
    ----------
    tensors : dict of str to Tensor
        By the kernel's names.
    sizes : tuple of int
        Images, splits of each, channels, and channels of a group.
    eps : float
    count : int
        Elements of a group.
    """
    images, pieces, channels, width = sizes
    numbers = dict(zip(RUNTIME, (pieces, channels, width, float(count), eps)))
    slots = {name: slot(tensor) for name, tensor in tensors.items()}
    return Launch(
        settle_groups if "mean" in tensors else total_groups,
        (images * (channels // width), 1, 1),
        {name: found for name, found in slots.items() if found} | numbers,
        {name: None for name, found in slots.items() if not found} | {"BN": LANES.bn},
        LANES.warps,
        LANES.stages,
    )
