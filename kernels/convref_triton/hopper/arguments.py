"""Named groups of kernel arguments: what partitions receive, and what is compiled in.

Kernels take numbers one by one: of a tuple's items Triton specializes those that are 1 or multiples
of 16, whatever `do_not_specialize` says, so that each shape would be compiled anew.
"""

from collections import namedtuple
from typing import NamedTuple

from ..common.geometry import Four, Three

Axes = namedtuple("Axes", "d h w")
# Boxes along each spatial axis, and the divisors of these counts.
BoxGrid = namedtuple("BoxGrid", "o p q o_magic o_shift p_magic p_shift q_magic q_shift")
# Tensor maps of x and w, and those of a second product or None.
Operands = namedtuple("Operands", "x w x_2 w_2")
# The result and the operands of the epilogue, which may be None.
Output = namedtuple("Output", "y bias scale shift residual")
# Of the result: in vectors, g that of a group of channels; c in elements.
Strides = namedtuple("Strides", "n g d h w c")
# The matrix of filters: its first column, the first row and column of a group, columns of a tap.
# It has a row for each channel of the result; `Config.transposed`: for each channel of the sum.
Filter = namedtuple("Filter", "first group_row group_column tap")
# The result of a wgrad: its first element and its strides, z that of a split.
FilterStrides = namedtuple("FilterStrides", "first g k t r s c z")
# mbarriers of a ring. `empty` has one more than there are stages, which no thread waits for:
# consumers arrive there while they have no stage to release. `order` has one per warp group.
Barriers = namedtuple("Barriers", "full empty order")


class Config(NamedTuple):
    """What is compiled into a kernel; each one reads only some of the fields with defaults."""

    # As `Tile` has them.
    bm: int
    bn: int
    bk: int
    band: int
    stages: int
    # Warp groups that share a tile, and how many tiles of a program apart those of a group are.
    readers: int
    turns: int
    rank: int  # spatial axes of the tensor maps
    # Distance between what neighbouring pixels read, and neighbouring taps.
    stride: Three = (1, 1, 1)
    move: Three = (1, 1, 1)
    box: Four = (1, 1, 1, 1)  # pixels of a tile along (n, o, p, q)
    # Whether offsets take 64 bits, and whether channels of the result are contiguous.
    wide: bool = False
    unit: bool = False
    # What strides of the result and its channels are counted in, in elements.
    vec: tuple[int, int] = (1, 1)
    # Products that are summed, and what follows.
    pairs: int = 1
    activation: str = ""
    transposed: bool = False  # whether w is the filters of an adjoint as they are stored
    # Parity classes of a strided adjoint, and distance between the taps of a class.
    classes: Three = (1, 1, 1)
    step: Three = (1, 1, 1)
    parities: int = 1  # all parity classes
    taps: Three = (1, 1, 1)  # of a wgrad, without those that share a block
    # Taps that share a block, lines between two of them, lines of a block and blocks of x.
    shared: int = 1
    apart: int = 1
    halo: int = 1
    blocks: int = 1
    order: Four = (0, 1, 2, 3)  # axes of (n, d, h, w) as blocks have them, the shared one first
