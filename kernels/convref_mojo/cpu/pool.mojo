"""Pools: what each window makes of the positions that it reads, and what it gives back to them.

    maxima    y[n,c,p]  = x[n,c,i*], i* the last NaN, else the first maximum               (P.2)
    means     y[n,c,p]  = sum over the window of x[n,c,i], over its divisor                (P.1)
    spread    x[n,c,i]  = sum of y[n,c,p] over its divisor, over the windows that read i   (P.3)
    picked    y[n,c,p]  = x[n,c,index[n,c,p]], and `placed`, its adjoint

Vectors hold neighbouring channels. Of one axis, a window reads positions that are `pace` apart: the
first and their number stand in a table, and padding is in none of them.
"""

from simd import Address, at, clear, lanes, load, store, wide
from windows import Source, split


struct Reads(ImplicitlyCopyable):
    """What a window reads of one axis, and what the axis contributes to its divisor."""

    var first: Int
    var count: Int
    var divisor: Int


struct Pool(ImplicitlyCopyable):
    """One launch, all of it filled in by Python. Windows slide over `big`, `small` has one each."""

    var images: Int
    var channels: Int
    var count_z: Int
    var count_y: Int
    var count_x: Int
    var size_z: Int
    var size_y: Int
    var size_x: Int
    var pace_z: Int
    var pace_y: Int
    var pace_x: Int
    var reads: Int  # address of the reads of all windows: z, then y, then x
    var divisor: Int  # for all windows, 0 for that of the table
    var big: Source
    var small: Source
    var indices: Source  # address 0 for none

    @always_inline
    def line(self, axis: Int) -> Pointer[Reads, MutAnyOrigin]:
        """Return the table of an axis."""
        var before = 0
        if axis > 0:
            before += self.count_z
        if axis > 1:
            before += self.count_y
        return Pointer[Reads, MutAnyOrigin](unsafe_from_address=self.reads).unsafe_offset(before)

    @always_inline
    def dense(self) -> Bool:
        """Return whether neighbouring channels lie side by side."""
        return self.big.c == 1 and self.small.c == 1


struct Window(ImplicitlyCopyable):
    """One window: its image, where its results lie, and what it reads."""

    var n: Int
    var jz: Int
    var jy: Int
    var jx: Int
    var z: Reads
    var y: Reads
    var x: Reads

    @always_inline
    def __init__(out self, p: Pool, n: Int, jz: Int, jy: Int, jx: Int):
        """Look a window up."""
        self.n = n
        self.jz = jz
        self.jy = jy
        self.jx = jx
        self.z = p.line(0)[unsafe_offset=jz]
        self.y = p.line(1)[unsafe_offset=jy]
        self.x = p.line(2)[unsafe_offset=jx]

    @always_inline
    def place(self, s: Source, c: Int) -> Int:
        """Return where channel `c` of the window lies in an array of windows."""
        return self.n * s.n + c * s.c + self.jz * s.z + self.jy * s.y + self.jx * s.x

    @always_inline
    def divided[A: DType, W: Int](self, p: Pool, sums: SIMD[A, W]) -> SIMD[A, W]:
        """Return sums over the divisor; the sum of a window that reads nothing stays zero."""
        var divisor = p.divisor
        if divisor == 0:
            divisor = self.z.divisor * self.y.divisor * self.x.divisor
        if divisor == 0:
            return sums
        return sums / Scalar[A](divisor)


comptime MAXIMA = 0
comptime MEANS = 1
comptime PICKED = 2


def gathered[T: DType, kind: Int](p: Pool, scratch: Int, low: Int, high: Int):
    """Compute lines `low` to `high` of windows."""
    comptime W = lanes[wide[T]]()
    for line in range(low, high):
        var rest, jy = split(line, p.count_y)
        var n, jz = split(rest, p.count_z)
        for jx in range(p.count_x):
            var window = Window(p, n, jz, jy, jx)
            var c = 0
            while p.dense() and kind != PICKED and c + W <= p.channels:
                of_window[T, W, kind](p, window, c)
                c += W
            while c < p.channels:
                of_window[T, 1, kind](p, window, c)
                c += 1


@always_inline
def of_window[T: DType, W: Int, kind: Int](p: Pool, window: Window, c: Int):
    """Compute W channels of a window from `c` on."""
    comptime if kind == MAXIMA:
        largest[T, W](p, window, c)
    comptime if kind == MEANS:
        mean[T, W](p, window, c)
    comptime if kind == PICKED:
        pick[T](p, window, c)


@always_inline
def largest[T: DType, W: Int](p: Pool, window: Window, c: Int):
    """Write the maximum, and its position if there is memory for it; -inf and -1 for nothing."""
    comptime A = wide[T]
    var best = SIMD[A, W](Scalar[A].MIN)
    var found = SIMD[DType.int64, W](-1)
    var start = at[T](p.big.data).unsafe_offset(window.n * p.big.n + c * p.big.c)
    for kz in range(window.z.count):
        var z = window.z.first + kz * p.pace_z
        for ky in range(window.y.count):
            var y = window.y.first + ky * p.pace_y
            var row = start.unsafe_offset(z * p.big.z + y * p.big.y)
            for kx in range(window.x.count):
                var x = window.x.first + kx * p.pace_x
                var position = (z * p.size_y + y) * p.size_x + x
                var value = load[T, W](row.unsafe_offset(x * p.big.x))
                # The first one read wins whatever it is; later an equal loses, a NaN does not
                # (`ne` would not tell: of NaN it is false).
                var wins = value.gt(best) | ~value.eq(value) | found.lt(0).cast[DType.bool]()
                best = wins.select(value, best)
                found = wins.select(SIMD[DType.int64, W](position), found)
    store[T, W](at[T](p.small.data).unsafe_offset(window.place(p.small, c)), best)
    if p.indices.data != 0:
        var to = at[DType.int64](p.indices.data).unsafe_offset(window.place(p.indices, c))
        comptime for j in range(W):
            to[unsafe_offset=j * p.indices.c] = found[j]


@always_inline
def mean[T: DType, W: Int](p: Pool, window: Window, c: Int):
    """Write the mean of what a window reads."""
    comptime A = wide[T]
    var sums = SIMD[A, W](0)
    var start = at[T](p.big.data).unsafe_offset(window.n * p.big.n + c * p.big.c)
    for kz in range(window.z.count):
        var z = window.z.first + kz * p.pace_z
        for ky in range(window.y.count):
            var y = window.y.first + ky * p.pace_y
            var row = start.unsafe_offset(z * p.big.z + y * p.big.y)
            for kx in range(window.x.count):
                var x = window.x.first + kx * p.pace_x
                sums += load[T, W](row.unsafe_offset(x * p.big.x))
    var to = at[T](p.small.data).unsafe_offset(window.place(p.small, c))
    store[T, W](to, window.divided[A, W](p, sums))


@always_inline
def pick[T: DType](p: Pool, window: Window, c: Int):
    """Write the element that a window's index names, 0 for -1."""
    var value = Scalar[wide[T]](0)
    var index = index_of(p, window, c)
    if index >= 0:
        var lines, x = split(index, p.size_x)
        var z, y = split(lines, p.size_y)
        var here = window.n * p.big.n + c * p.big.c + z * p.big.z + y * p.big.y + x * p.big.x
        value = load[T, 1](at[T](p.big.data).unsafe_offset(here))
    store[T, 1](at[T](p.small.data).unsafe_offset(window.place(p.small, c)), value)


@always_inline
def index_of(p: Pool, window: Window, c: Int) -> Int:
    """Return the position that a window's index names."""
    return Int(at[DType.int64](p.indices.data)[unsafe_offset=window.place(p.indices, c)])


comptime CHANNELS = 16
"""Channels in a unit of `scattered`."""


def scattered[T: DType, by_index: Bool](p: Pool, scratch: Int, low: Int, high: Int):
    """Compute units `low` to `high` of (image, block of channels); scratch has one vector each
    for the positions of an image."""
    comptime W = lanes[wide[T]]()
    var blocks = (p.channels + CHANNELS - 1) // CHANNELS
    for unit in range(low, high):
        var n, block = split(unit, blocks)
        var c = block * CHANNELS
        var end = min(p.channels, c + CHANNELS)
        while p.dense() and c + W <= end:
            of_channels[T, W, by_index](p, at[wide[T]](scratch), n, c)
            c += W
        while c < end:
            of_channels[T, 1, by_index](p, at[wide[T]](scratch), n, c)
            c += 1


def of_channels[T: DType, W: Int, by_index: Bool](p: Pool, sums: Address[wide[T]], n: Int, c: Int):
    """Sum what all windows of W channels give back, then round it once."""
    clear[wide[T]](sums, p.size_z * p.size_y * p.size_x * W)
    for jz in range(p.count_z):
        for jy in range(p.count_y):
            for jx in range(p.count_x):
                var window = Window(p, n, jz, jy, jx)
                var from_ = at[T](p.small.data).unsafe_offset(window.place(p.small, c))
                comptime if by_index:
                    place[T, W](p, window, load[T, W](from_), sums, c)
                else:
                    spread[T, W](p, window, load[T, W](from_), sums)
    var to = at[T](p.big.data).unsafe_offset(n * p.big.n + c * p.big.c)
    var position = sums
    for z in range(p.size_z):
        for y in range(p.size_y):
            var row = to.unsafe_offset(z * p.big.z + y * p.big.y)
            for x in range(p.size_x):
                store[T, W](row.unsafe_offset(x * p.big.x), position.unsafe_load[width=W]())
                position = position.unsafe_offset(W)


@always_inline
def spread[
    T: DType, W: Int
](p: Pool, window: Window, value: SIMD[wide[T], W], sums: Address[wide[T]]):
    """Add a value over the window's divisor to each position that it reads."""
    var share = window.divided[wide[T], W](p, value)
    for kz in range(window.z.count):
        var z = window.z.first + kz * p.pace_z
        for ky in range(window.y.count):
            var y = window.y.first + ky * p.pace_y
            for kx in range(window.x.count):
                var x = window.x.first + kx * p.pace_x
                var here = sums.unsafe_offset(((z * p.size_y + y) * p.size_x + x) * W)
                here.unsafe_store[width=W](here.unsafe_load[width=W]() + share)


@always_inline
def place[
    T: DType, W: Int
](p: Pool, window: Window, value: SIMD[wide[T], W], sums: Address[wide[T]], c: Int):
    """Add each lane to the position that its index names; -1 names none."""
    comptime for j in range(W):
        var index = index_of(p, window, c + j)
        if index >= 0:
            sums[unsafe_offset=index * W + j] += value[j]
