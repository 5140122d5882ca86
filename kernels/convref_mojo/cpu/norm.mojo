"""Batch norm: sums over the pixels of each channel, and an affine function of each pixel.

With z = (x - mean) rstd of each channel:

    channel_sums   sum[c] = sum of u,  sum_z[c] = sum of u z        without u, u is z
    affine         out = z p[c] + u q[c] + r[c]                     without p or u, no such term

A vector is adjacent channels if they are contiguous, else adjacent pixels of a line.
"""

from simd import Address, at, lanes, load, store, wide
from windows import Source, split


struct Norm(ImplicitlyCopyable):
    """One launch, filled in by Python; vectors of channels are contiguous, in the accumulator type."""

    var images: Int
    var channels: Int
    var size_z: Int
    var size_y: Int
    var size_x: Int
    var x: Source
    var u: Source  # address 0 for none
    var out: Source
    var mean: Int
    var rstd: Int
    var sum: Int  # results of `channel_sums`
    var sum_z: Int
    var p: Int  # factors of `affine`; p is 0 without a term in z
    var q: Int
    var r: Int

    @always_inline
    def dense(self) -> Bool:
        return self.x.c == 1 and self.out.c == 1 and (self.u.data == 0 or self.u.c == 1)

    @always_inline
    def contiguous_lines(self) -> Bool:
        return self.x.x == 1 and self.out.x == 1 and (self.u.data == 0 or self.u.x == 1)


@fieldwise_init
struct Line(ImplicitlyCopyable):
    var n: Int
    var z: Int
    var y: Int

    @always_inline
    def __init__(out self, p: Norm, index: Int):
        var rest, y = split(index, p.size_y)
        var n, z = split(rest, p.size_z)
        self = Self(n, z, y)

    @always_inline
    def of[T: DType](self, s: Source, c: Int) -> Address[T]:
        return at[T](s.data).unsafe_offset(s.offset(self.n, self.z, self.y, 0) + c * s.c)


@always_inline
def channels_of[A: DType, W: Int, along: Bool](address: Int, c: Int) -> SIMD[A, W]:
    """Return the values of W channels, or W times that of one if vectors are pixels of a line."""
    comptime if along:
        return SIMD[A, W](at[A](address)[unsafe_offset=c])
    return at[A](address).unsafe_offset(c).unsafe_load[width=W]()


@always_inline
def normalized[T: DType, W: Int](x: Address[T], mean: SIMD[wide[T], W], rstd: SIMD[wide[T], W]) -> SIMD[wide[T], W]:
    return (load[T, W](x) - mean) * rstd


comptime CHANNELS = 16
"""Channels in a unit of `channel_sums`."""


def channel_sums[T: DType](p: Norm, low: Int, high: Int):
    comptime A = wide[T]
    comptime W = lanes[A]()
    for unit in range(low, high):
        var c = unit * CHANNELS
        var end = min(p.channels, c + CHANNELS)
        while p.dense() and c + W <= end:
            var first = SIMD[A, W](0)
            var second = SIMD[A, W](0)
            add_pixels[T, W, False](p, c, 0, p.size_x, first, second)
            at[A](p.sum).unsafe_offset(c).unsafe_store[width=W](first)
            at[A](p.sum_z).unsafe_offset(c).unsafe_store[width=W](second)
            c += W
        while c < end:
            var whole = p.size_x // W * W if p.contiguous_lines() else 0
            var first = SIMD[A, W](0)
            var second = SIMD[A, W](0)
            add_pixels[T, W, True](p, c, 0, whole, first, second)
            var rest_first = SIMD[A, 1](0)
            var rest_second = SIMD[A, 1](0)
            add_pixels[T, 1, False](p, c, whole, p.size_x, rest_first, rest_second)
            at[A](p.sum)[unsafe_offset=c] = first.reduce_add() + rest_first[0]
            at[A](p.sum_z)[unsafe_offset=c] = second.reduce_add() + rest_second[0]
            c += 1


@always_inline
def add_pixels[T: DType, W: Int, along: Bool](
    p: Norm, c: Int, begin: Int, end: Int, mut first: SIMD[wide[T], W], mut second: SIMD[wide[T], W]
):
    """Add pixels `begin` to `end` of all lines: W channels of one, or W of one channel at a time."""
    comptime A = wide[T]
    if begin == end:
        return
    var mean = channels_of[A, W, along](p.mean, c)
    var rstd = channels_of[A, W, along](p.rstd, c)
    for index in range(p.images * p.size_z * p.size_y):
        var line = Line(p, index)
        var source = line.of[T](p.x, c)
        var other = line.of[T](p.u, c)
        for i in range(begin, end, W if along else 1):
            var z = normalized[T, W](source.unsafe_offset(i * p.x.x), mean, rstd)
            var u = z
            if p.u.data != 0:
                u = load[T, W](other.unsafe_offset(i * p.u.x))
            first += u
            second = u.fma(z, second)


def affine[T: DType](p: Norm, low: Int, high: Int):
    comptime W = lanes[wide[T]]()
    for index in range(low, high):
        var line = Line(p, index)
        var c = 0
        while p.dense() and c + W <= p.channels:
            write_pixels[T, W, False](p, line, c, 0, p.size_x)
            c += W
        while c < p.channels:
            var whole = p.size_x // W * W if p.contiguous_lines() else 0
            write_pixels[T, W, True](p, line, c, 0, whole)
            write_pixels[T, 1, False](p, line, c, whole, p.size_x)
            c += 1


@always_inline
def write_pixels[T: DType, W: Int, along: Bool](p: Norm, line: Line, c: Int, begin: Int, end: Int):
    """Write pixels `begin` to `end` of a line: W channels of one, or W of one channel at a time."""
    comptime A = wide[T]
    if begin == end:
        return
    var mean = channels_of[A, W, along](p.mean, c)
    var rstd = channels_of[A, W, along](p.rstd, c)
    var of_z = SIMD[A, W](0)
    if p.p != 0:
        of_z = channels_of[A, W, along](p.p, c)
    var of_u = channels_of[A, W, along](p.q, c)
    var constant = channels_of[A, W, along](p.r, c)
    for i in range(begin, end, W if along else 1):
        var value = constant
        if p.p != 0:  # 0 * inf would be NaN
            var x = line.of[T](p.x, c).unsafe_offset(i * p.x.x)
            value = normalized[T, W](x, mean, rstd).fma(of_z, constant)
        if p.u.data != 0:
            value = load[T, W](line.of[T](p.u, c).unsafe_offset(i * p.u.x)).fma(of_u, value)
        store[T, W](line.of[T](p.out, c).unsafe_offset(i * p.out.x), value)
