"""Pools: forward passes by window, and backward passes that scatter to the positions of each window.

    max fprop      y[n,c,p]  = x[n,c,i*], i* the last NaN, else the first maximum            (P.2)
    avg fprop      y[n,c,p]  = sum over the window of x[n,c,i], divided by its divisor       (P.1)
    avg backward   x[n,c,i]  = sum of y[n,c,p] / divisor over the windows that read i        (P.3)
    select         y[n,c,p]  = x[n,c,index[n,c,p]]; max backward is its adjoint

A vector is adjacent channels. Along an axis a window reads positions that are `dilation` apart. A table
has the first of them and their number, without those in the padding.
"""

from simd import Address, at, clear, lanes, load, store, wide
from windows import Source, split


struct Reads(ImplicitlyCopyable):
    """The positions that a window reads along one axis, and the factor of its divisor."""

    var first: Int
    var count: Int
    var divisor: Int


struct PoolAxis(ImplicitlyCopyable):
    var count: Int
    var size: Int
    var dilation: Int


struct Pool(ImplicitlyCopyable):
    """One launch, filled in by Python. Windows slide over `big`; `small` has one element for each."""

    var images: Int
    var channels: Int
    var z: PoolAxis
    var y: PoolAxis
    var x: PoolAxis
    var reads: Int  # address of the reads of all windows: z, then y, then x
    var divisor: Int  # of all windows, 0 to take those of the table
    var big: Source
    var small: Source
    var indices: Source  # address 0 for none

    @always_inline
    def dense(self) -> Bool:
        return self.big.c == 1 and self.small.c == 1


@fieldwise_init
struct Window(ImplicitlyCopyable):
    """One window: its image, its position in `small`, and the positions that it reads."""

    var n: Int
    var jz: Int
    var jy: Int
    var jx: Int
    var z: Reads
    var y: Reads
    var x: Reads

    @always_inline
    def __init__(out self, p: Pool, n: Int, jz: Int, jy: Int, jx: Int):
        var z = Pointer[Reads, MutAnyOrigin](unsafe_from_address=p.reads)
        var y = z.unsafe_offset(p.z.count)
        var x = y.unsafe_offset(p.y.count)
        self = Self(n, jz, jy, jx, z[unsafe_offset=jz], y[unsafe_offset=jy], x[unsafe_offset=jx])

    @always_inline
    def place(self, s: Source, c: Int) -> Int:
        return s.offset(self.n, self.jz, self.jy, self.jx) + c * s.c

    @always_inline
    def divided[A: DType, W: Int](self, p: Pool, sums: SIMD[A, W]) -> SIMD[A, W]:
        """Return sums divided by the divisor; the sum of an empty window stays zero."""
        var divisor = p.divisor
        if divisor == 0:
            divisor = self.z.divisor * self.y.divisor * self.x.divisor
        if divisor == 0:
            return sums
        return sums / Scalar[A](divisor)


comptime FPROP_MAX = 0
comptime FPROP_AVG = 1
comptime SELECT = 2


def pool_forward[T: DType, kind: Int](p: Pool, low: Int, high: Int):
    comptime W = lanes[wide[T]]()
    for line in range(low, high):
        var rest, jy = split(line, p.y.count)
        var n, jz = split(rest, p.z.count)
        for jx in range(p.x.count):
            var window = Window(p, n, jz, jy, jx)
            var c = 0
            while p.dense() and kind != SELECT and c + W <= p.channels:
                reduce_window[T, W, kind](p, window, c)
                c += W
            while c < p.channels:
                comptime if kind == SELECT:
                    select_index[T](p, window, c)
                else:
                    reduce_window[T, 1, kind](p, window, c)
                c += 1


@always_inline
def reduce_window[T: DType, W: Int, kind: Int](p: Pool, window: Window, c: Int):
    """Write the mean of W channels of a window, or the maximum, and its position if `indices` is given;
    -inf and -1 for an empty window."""
    comptime A = wide[T]
    var found = SIMD[A, W](Scalar[A].MIN if kind == FPROP_MAX else 0)
    var index = SIMD[DType.int64, W](-1)
    var start = at[T](p.big.data).unsafe_offset(window.n * p.big.n + c * p.big.c)
    for kz in range(window.z.count):
        var z = window.z.first + kz * p.z.dilation
        for ky in range(window.y.count):
            var y = window.y.first + ky * p.y.dilation
            var row = start.unsafe_offset(z * p.big.z + y * p.big.y)
            for kx in range(window.x.count):
                var x = window.x.first + kx * p.x.dilation
                var value = load[T, W](row.unsafe_offset(x * p.big.x))
                comptime if kind == FPROP_AVG:
                    found += value
                else:
                    # The first element wins. After it an equal one loses and a NaN wins
                    # (`ne` cannot be used: in Mojo 1.2 it is false for NaN).
                    var wins = value.gt(found) | ~value.eq(value) | index.lt(0).cast[DType.bool]()
                    found = wins.select(value, found)
                    var position = (z * p.y.size + y) * p.x.size + x
                    index = wins.select(SIMD[DType.int64, W](position), index)
    comptime if kind == FPROP_AVG:
        found = window.divided[A, W](p, found)
    store[T, W](at[T](p.small.data).unsafe_offset(window.place(p.small, c)), found)
    if kind == FPROP_MAX and p.indices.data != 0:
        var to = at[DType.int64](p.indices.data).unsafe_offset(window.place(p.indices, c))
        comptime for j in range(W):
            to[unsafe_offset=j * p.indices.c] = index[j]


@always_inline
def select_index[T: DType](p: Pool, window: Window, c: Int):
    """Write the element at a window's index, 0 for -1."""
    var value = Scalar[wide[T]](0)
    var index = index_of(p, window, c)
    if index >= 0:
        var lines, x = split(index, p.x.size)
        var z, y = split(lines, p.y.size)
        var here = p.big.offset(window.n, z, y, x) + c * p.big.c
        value = load[T, 1](at[T](p.big.data).unsafe_offset(here))
    store[T, 1](at[T](p.small.data).unsafe_offset(window.place(p.small, c)), value)


@always_inline
def index_of(p: Pool, window: Window, c: Int) -> Int:
    return Int(at[DType.int64](p.indices.data)[unsafe_offset=window.place(p.indices, c)])


comptime CHANNELS = 16
"""Channels of a unit of `pool_backward`."""


def pool_backward[T: DType, by_index: Bool](p: Pool, scratch: Int, low: Int, high: Int):
    """Compute units `low` to `high` of (image, block of channels); scratch has a vector per position
    of an image."""
    comptime W = lanes[wide[T]]()
    var blocks = (p.channels + CHANNELS - 1) // CHANNELS
    for unit in range(low, high):
        var n, block = split(unit, blocks)
        var c = block * CHANNELS
        var end = min(p.channels, c + CHANNELS)
        while p.dense() and c + W <= end:
            compute_channels[T, W, by_index](p, at[wide[T]](scratch), n, c)
            c += W
        while c < end:
            compute_channels[T, 1, by_index](p, at[wide[T]](scratch), n, c)
            c += 1


def compute_channels[T: DType, W: Int, by_index: Bool](p: Pool, sums: Address[wide[T]], n: Int, c: Int):
    """Sum the contributions of all windows of W channels, then round once."""
    clear[wide[T]](sums, p.z.size * p.y.size * p.x.size * W)
    for jz in range(p.z.count):
        for jy in range(p.y.count):
            for jx in range(p.x.count):
                var window = Window(p, n, jz, jy, jx)
                var from_ = at[T](p.small.data).unsafe_offset(window.place(p.small, c))
                comptime if by_index:
                    scatter_max[T, W](p, window, load[T, W](from_), sums, c)
                else:
                    scatter_mean[T, W](p, window, load[T, W](from_), sums)
    var to = at[T](p.big.data).unsafe_offset(n * p.big.n + c * p.big.c)
    var position = sums
    for z in range(p.z.size):
        for y in range(p.y.size):
            var row = to.unsafe_offset(z * p.big.z + y * p.big.y)
            for x in range(p.x.size):
                store[T, W](row.unsafe_offset(x * p.big.x), position.unsafe_load[width=W]())
                position = position.unsafe_offset(W)


@always_inline
def scatter_mean[
    T: DType, W: Int
](p: Pool, window: Window, value: SIMD[wide[T], W], sums: Address[wide[T]]):
    """Add a value, divided by the window's divisor, to each position that the window reads."""
    var share = window.divided[wide[T], W](p, value)
    for kz in range(window.z.count):
        var z = window.z.first + kz * p.z.dilation
        for ky in range(window.y.count):
            var y = window.y.first + ky * p.y.dilation
            for kx in range(window.x.count):
                var x = window.x.first + kx * p.x.dilation
                var here = sums.unsafe_offset(((z * p.y.size + y) * p.x.size + x) * W)
                here.unsafe_store[width=W](here.unsafe_load[width=W]() + share)


@always_inline
def scatter_max[
    T: DType, W: Int
](p: Pool, window: Window, value: SIMD[wide[T], W], sums: Address[wide[T]], c: Int):
    """Add each lane to the position of its index, unless that is -1."""
    comptime for j in range(W):
        var index = index_of(p, window, c + j)
        if index >= 0:
            sums[unsafe_offset=index * W + j] += value[j]
