"""Named groups of kernel arguments, as the partitions of warp-specialised kernels receive them.

Fields in capitals are compile-time constants. Triton turns constants into tensors where a tuple is
assigned to a variable, so tuples that have constants are only passed on and read.

Kernels take numbers one by one: of a tuple's items Triton specialises those that are 1 or multiples
of 16, whatever `do_not_specialize` says, so that each shape would be compiled anew.
"""

from __future__ import annotations

from typing import NamedTuple

from triton.experimental.gluon import language as gl


class Axes(NamedTuple):
    """A value for each spatial axis."""

    d: gl.tensor
    h: gl.tensor
    w: gl.tensor


class BoxGrid(NamedTuple):
    """How many boxes of pixels there are along each spatial axis, and the divisors of that."""

    o: gl.tensor
    p: gl.tensor
    q: gl.tensor
    o_magic: gl.tensor
    o_shift: gl.tensor
    p_magic: gl.tensor
    p_shift: gl.tensor
    q_magic: gl.tensor
    q_shift: gl.tensor


class Operands(NamedTuple):
    """The tensor maps of x and w, and of a second product or None."""

    x: gl.tensor
    w: gl.tensor
    x_2: gl.tensor
    w_2: gl.tensor


class Output(NamedTuple):
    """The result, and what the epilogue adds or multiplies, each may be None."""

    y: gl.tensor
    bias: gl.tensor
    scale: gl.tensor
    shift: gl.tensor
    residual: gl.tensor


class Strides(NamedTuple):
    """Strides of the result in vectors, of a group of channels too; of channels in elements."""

    n: gl.tensor
    g: gl.tensor
    d: gl.tensor
    h: gl.tensor
    w: gl.tensor
    c: gl.tensor


class Filter(NamedTuple):
    """Where the matrix of filters begins, for each group more, and its columns between two taps."""

    first: gl.tensor
    group_row: gl.tensor
    group_column: gl.tensor
    tap: gl.tuple


class FilterStrides(NamedTuple):
    """Where the result of a wgrad begins and its strides, z between splits."""

    first: gl.tensor
    g: gl.tensor
    k: gl.tensor
    t: gl.tensor
    r: gl.tensor
    s: gl.tensor
    c: gl.tensor
    z: gl.tensor


class Barriers(NamedTuple):
    """The mbarriers of a ring.

    `empty` has one more than there are stages, which no thread waits for: consumers arrive there
    while they have no stage to release. `order` has one per warp group, for groups that alternate.
    """

    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    order: gl.shared_memory_descriptor


class Blocking(NamedTuple):
    """The tile sizes of a kernel, its stages, and how many warp groups share a tile."""

    BM: gl.constexpr
    BN: gl.constexpr
    BK: gl.constexpr
    BAND: gl.constexpr
    STAGES: gl.constexpr
    READERS: gl.constexpr
