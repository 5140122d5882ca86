"""The bias gradient: for each channel, the sum over images and space."""

from simd import Address, at, lanes, load, store, wide
from windows import Source


struct Total(ImplicitlyCopyable):
    """One launch, all of it filled in by Python; a unit is a block of CHANNELS channels."""

    var images: Int
    var channels: Int
    var size_z: Int
    var size_y: Int
    var size_x: Int
    var src: Source
    var dst: Int
    var dst_c: Int


comptime CHANNELS = 16
"""Channels in a unit."""


def total[T: DType](p: Total, low: Int, high: Int):
    """Compute the sums of blocks `low` to `high` of channels."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    for unit in range(low, high):
        var c = unit * CHANNELS
        var end = min(p.channels, c + CHANNELS)
        if p.src.c == 1:
            while c + W <= end:
                var sums = of_channels[T, W](p, c)
                comptime for j in range(W):
                    store[T, 1](at[T](p.dst).unsafe_offset((c + j) * p.dst_c), sums[j])
                c += W
        while c < end:
            var sum = of_channels[T, 1](p, c) if p.src.x != 1 else along[T](p, c)
            store[T, 1](at[T](p.dst).unsafe_offset(c * p.dst_c), sum)
            c += 1


@always_inline
def of_channels[T: DType, W: Int](p: Total, c: Int) -> SIMD[wide[T], W]:
    """Return the sums of W neighbouring channels."""
    var sums = SIMD[wide[T], W](0)
    for n in range(p.images):
        for z in range(p.size_z):
            for y in range(p.size_y):
                var line = at[T](p.src.data).unsafe_offset(
                    n * p.src.n + c * p.src.c + z * p.src.z + y * p.src.y
                )
                for x in range(p.size_x):
                    sums += load[T, W](line.unsafe_offset(x * p.src.x))
    return sums


@always_inline
def along[T: DType](p: Total, c: Int) -> Scalar[wide[T]]:
    """Return the sum of one channel whose lines are dense."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    var sums = SIMD[A, W](0)
    var rest = Scalar[A](0)
    for n in range(p.images):
        for z in range(p.size_z):
            for y in range(p.size_y):
                var line = at[T](p.src.data).unsafe_offset(
                    n * p.src.n + c * p.src.c + z * p.src.z + y * p.src.y
                )
                var x = 0
                while x + W <= p.size_x:
                    sums += load[T, W](line.unsafe_offset(x))
                    x += W
                while x < p.size_x:
                    rest += load[T, 1](line.unsafe_offset(x))
                    x += 1
    return sums.reduce_add() + rest
