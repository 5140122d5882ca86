"""Pools: forward passes by window, and backward passes that scatter to the positions of each window.

    max fprop      y[n,c,p]  = x[n,c,i*], i* the last NaN, else the first maximum            (P.2)
    avg fprop      y[n,c,p]  = sum over the window of x[n,c,i], divided by its divisor       (P.1)
    avg backward   x[n,c,i]  = sum of y[n,c,p] / divisor over the windows that read i        (P.3)
    select         y[n,c,p]  = x[n,c,index[n,c,p]]; max backward is its adjoint

A vector is adjacent channels. Along an axis a window reads positions that are `dilation` apart. A table
has the first of them and their number, without those in the padding.
"""

from std.memory import stack_allocation

from simd import Address, at, lanes, load, size, store, wide
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
    var block: Int  # channels of a unit of a backward pass
    var wrong: Int  # address of a word that is set if an index is neither a position of `big` nor -1

    @always_inline
    def dense(self) -> Bool:
        return self.big.c == 1 and self.small.c == 1

    @always_inline
    def positions(self) -> Int:
        return self.z.size * self.y.size * self.x.size

    @always_inline
    def evenly_spaced(self) -> Bool:
        """Return whether adjacent positions of `big` have the same distance, also across lines."""
        return (self.y.size == 1 or self.big.y == self.x.size * self.big.x) and (
            self.z.size == 1 or self.big.z == self.y.size * self.x.size * self.big.x
        )

    @always_inline
    def compared(self) -> Bool:
        """Return whether the windows, but for those at the edges, are small enough for `scatter_max`."""
        var window = Window(self, 0, self.z.count // 2, self.y.count // 2, self.x.count // 2)
        return window.taps() <= COMPARED

    @always_inline
    def report(self):
        at[DType.int64](self.wrong)[] = 1


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
    def taps(self) -> Int:
        return self.z.count * self.y.count * self.x.count

    @always_inline
    def end_of_lines(self, p: Pool) -> Int:
        """Return the position after those of all lines that the window reads."""
        if self.z.count == 0 or self.y.count == 0:
            return 0
        var z = self.z.first + (self.z.count - 1) * p.z.dilation
        var y = self.y.first + (self.y.count - 1) * p.y.dilation
        return (z * p.y.size + y + 1) * p.x.size

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


comptime VECTORS = 4
"""Vectors of channels that are reduced at a time."""
comptime POSITIONS = 1 << 31
"""Positions that 32 bits represent."""


def pool_forward[T: DType, kind: Int](p: Pool, low: Int, high: Int):
    if p.positions() < POSITIONS:
        reduce_lines[T, DType.int32, kind](p, low, high)
    else:
        reduce_lines[T, DType.int64, kind](p, low, high)


def reduce_lines[T: DType, I: DType, kind: Int](pool: Pool, low: Int, high: Int):
    """Compute lines of windows; positions have type I."""
    var p = pool  # a copy, which stores to the results cannot change
    comptime W = lanes[wide[T]]()
    for line in range(low, high):
        var rest, jy = split(line, p.y.count)
        var n, jz = split(rest, p.z.count)
        for jx in range(p.x.count):
            var window = Window(p, n, jz, jy, jx)
            var c = 0
            comptime if kind != SELECT:
                comptime for half in range(2):
                    comptime V = VECTORS if half == 0 else 1
                    while p.dense() and c + V * W <= p.channels:
                        reduce_window[T, I, W, V, kind](p, window, c)
                        c += V * W
            while c < p.channels:
                comptime if kind == SELECT:
                    select_index[T](p, window, c)
                else:
                    reduce_window[T, I, 1, 1, kind](p, window, c)
                c += 1


@always_inline
def reduce_window[T: DType, I: DType, W: Int, V: Int, kind: Int](p: Pool, window: Window, c: Int):
    """Write the mean of V vectors of W channels of a window, or the maximum, and its position if `indices`
    is given; -inf and -1 for an empty window."""
    comptime A = wide[T]
    var found = stack_allocation[V, SIMD[A, W]]()
    var index = stack_allocation[V, SIMD[I, W]]()
    var start = at[T](p.big.data).unsafe_offset(window.n * p.big.n + c * p.big.c)
    comptime for v in range(V):
        found[unsafe_offset=v] = SIMD[A, W](Scalar[A].MIN if kind == FPROP_MAX else 0)
        index[unsafe_offset=v] = SIMD[I, W](-1)
    comptime if kind == FPROP_MAX:
        if window.taps() > 0:
            var place = window.z.first * p.big.z + window.y.first * p.big.y + window.x.first * p.big.x
            var position = (window.z.first * p.y.size + window.y.first) * p.x.size + window.x.first
            comptime for v in range(V):
                found[unsafe_offset=v] = load[T, W](start.unsafe_offset(place + v * W))
                index[unsafe_offset=v] = SIMD[I, W](Scalar[I](position))
    for kz in range(window.z.count):
        var z = window.z.first + kz * p.z.dilation
        for ky in range(window.y.count):
            var y = window.y.first + ky * p.y.dilation
            var row = start.unsafe_offset(z * p.big.z + y * p.big.y)
            for kx in range(window.x.count):
                var x = window.x.first + kx * p.x.dilation
                comptime for v in range(V):
                    var value = load[T, W](row.unsafe_offset(x * p.big.x + v * W))
                    comptime if kind == FPROP_AVG:
                        found[unsafe_offset=v] += value
                    else:
                        # The first element wins. After it an equal one loses and a NaN wins
                        # (`ne` cannot be used: in Mojo 1.2 it is false for NaN).
                        var wins = value.gt(found[unsafe_offset=v]) | ~value.eq(value)
                        found[unsafe_offset=v] = wins.select(value, found[unsafe_offset=v])
                        var position = SIMD[I, W](Scalar[I]((z * p.y.size + y) * p.x.size + x))
                        index[unsafe_offset=v] = wins.select(position, index[unsafe_offset=v])
    var to = at[T](p.small.data).unsafe_offset(window.place(p.small, c))
    comptime for v in range(V):
        comptime if kind == FPROP_AVG:
            found[unsafe_offset=v] = window.divided[A, W](p, found[unsafe_offset=v])
        store[T, W](to.unsafe_offset(v * W), found[unsafe_offset=v])
    if kind == FPROP_MAX and p.indices.data != 0:
        var place = at[DType.int64](p.indices.data).unsafe_offset(window.place(p.indices, c))
        comptime for v in range(V):
            var wanted = index[unsafe_offset=v].cast[DType.int64]()
            if p.indices.c == 1:
                place.unsafe_offset(v * W).unsafe_store[width=W](wanted)
                continue
            comptime for j in range(W):
                place[unsafe_offset=(v * W + j) * p.indices.c] = wanted[j]


@always_inline
def select_index[T: DType](p: Pool, window: Window, c: Int):
    """Write the element at a window's index, 0 for -1."""
    var value = Scalar[wide[T]](0)
    var index = index_of(p, window, c)
    if index < -1 or index >= p.positions():
        p.report()
    elif index >= 0:
        var lines, x = split(index, p.x.size)
        var z, y = split(lines, p.y.size)
        var here = p.big.offset(window.n, z, y, x) + c * p.big.c
        value = load[T, 1](at[T](p.big.data).unsafe_offset(here))
    store[T, 1](at[T](p.small.data).unsafe_offset(window.place(p.small, c)), value)


@always_inline
def index_of(p: Pool, window: Window, c: Int) -> Int:
    return Int(at[DType.int64](p.indices.data)[unsafe_offset=window.place(p.indices, c)])


@fieldwise_init
struct PoolSums[A: DType, W: Int]:
    """Sums of adjacent vectors of channels at each position; they are cleared just before the first use."""

    var address: Int
    var pitch: Int  # from one position to the next
    var vectors: Int
    var cleared: Int  # positions

    @always_inline
    def of(self, position: Int, v: Int) -> Address[Self.A]:
        return at[Self.A](self.address).unsafe_offset(position * self.pitch + v * Self.W)

    @always_inline
    def clear_until(mut self, end: Int):
        for i in range(self.cleared, end):
            for v in range(self.vectors):
                self.of(i, v).unsafe_store[width=Self.W](SIMD[Self.A, Self.W](0))
        self.cleared = max(self.cleared, end)


def pool_backward[T: DType, by_index: Bool](p: Pool, scratch: Int, low: Int, high: Int):
    """Compute units `low` to `high` of (image, block of channels), in the result itself if possible; else
    scratch memory has a vector per position of an image."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    var blocks = (p.channels + p.block - 1) // p.block
    for unit in range(low, high):
        var n, block = split(unit, blocks)
        var c = block * p.block
        var end = min(p.channels, c + p.block)
        if T == A and by_index and p.dense() and p.evenly_spaced() and p.compared():
            var vectors = (end - c) // W
            var start = p.big.data + (n * p.big.n + c) * size[A]()
            add_windows[T, W, by_index](p, PoolSums[A, W](start, p.big.x, vectors, 0), n, c)
            c += vectors * W
        while p.dense() and c + W <= end:
            compute_channels[T, W, by_index](p, scratch, n, c)
            c += W
        while c < end:
            compute_channels[T, 1, by_index](p, scratch, n, c)
            c += 1


@always_inline
def add_windows[
    T: DType, W: Int, by_index: Bool
](pool: Pool, var sums: PoolSums[wide[T], W], n: Int, first: Int):
    """Sum the contributions of all windows of vectors of channels from `first` on."""
    var p = pool  # a copy, which stores to the sums cannot change
    for jz in range(p.z.count):
        for jy in range(p.y.count):
            for jx in range(p.x.count):
                var window = Window(p, n, jz, jy, jx)
                if jx == 0:
                    sums.clear_until(window.end_of_lines(p))
                for v in range(sums.vectors):
                    var c = first + v * W
                    var values = at[T](p.small.data).unsafe_offset(window.place(p.small, c))
                    comptime if by_index:
                        scatter_max[T, W](p, window, values, sums, v, c)
                    else:
                        scatter_mean[T, W](p, window, load[T, W](values), sums, v)
    sums.clear_until(p.positions())


def compute_channels[T: DType, W: Int, by_index: Bool](p: Pool, scratch: Int, n: Int, c: Int):
    """Sum the contributions of all windows of W channels in scratch memory, then round once."""
    add_windows[T, W, by_index](p, PoolSums[wide[T], W](scratch, W, 1, 0), n, c)
    var to = at[T](p.big.data).unsafe_offset(n * p.big.n + c * p.big.c)
    var position = at[wide[T]](scratch)
    for z in range(p.z.size):
        for y in range(p.y.size):
            var row = to.unsafe_offset(z * p.big.z + y * p.big.y)
            for x in range(p.x.size):
                store[T, W](row.unsafe_offset(x * p.big.x), position.unsafe_load[width=W]())
                position = position.unsafe_offset(W)


@always_inline
def scatter_mean[
    T: DType, W: Int
](p: Pool, window: Window, value: SIMD[wide[T], W], sums: PoolSums[wide[T], W], v: Int):
    """Add a value, divided by the window's divisor, to each position that the window reads."""
    var share = window.divided[wide[T], W](p, value)
    for kz in range(window.z.count):
        var z = window.z.first + kz * p.z.dilation
        for ky in range(window.y.count):
            var y = window.y.first + ky * p.y.dilation
            for kx in range(window.x.count):
                var x = window.x.first + kx * p.x.dilation
                var here = sums.of((z * p.y.size + y) * p.x.size + x, v)
                here.unsafe_store[width=W](here.unsafe_load[width=W]() + share)


comptime COMPARED = 12
"""Most positions of a window that are compared with the indices of a vector; more take longer than to add one
lane after the other."""


@always_inline
def scatter_max[
    T: DType, W: Int
](p: Pool, window: Window, values: Address[T], mut sums: PoolSums[wide[T], W], v: Int, c: Int):
    """Add each lane to the position of its index, unless that is -1."""
    if W > 1 and window.taps() <= COMPARED and p.indices.c == 1 and p.positions() < POSITIONS:
        var start = at[DType.int64](p.indices.data).unsafe_offset(window.place(p.indices, c))
        var value = load[T, W](values)
        var index = start.unsafe_load[width=W]()
        var inside = index.ge(0) & index.lt(Int64(p.positions()))  # the others are reported below
        var left = ~index.eq(-1)
        var narrow = index.cast[DType.int32]()
        for kz in range(window.z.count):
            var z = window.z.first + kz * p.z.dilation
            for ky in range(window.y.count):
                var y = window.y.first + ky * p.y.dilation
                for kx in range(window.x.count):
                    var position = (z * p.y.size + y) * p.x.size + window.x.first + kx * p.x.dilation
                    var hits = narrow.eq(Int32(position)) & inside
                    left = left & ~hits
                    var here = sums.of(position, v)
                    var sum = here.unsafe_load[width=W]()
                    here.unsafe_store[width=W](hits.select(sum + value, sum))
        if left.reduce_or():  # of another window
            comptime for j in range(W):
                if left[j]:
                    add_lane[T, W](p, Int(index[j]), value[j], sums, v, j)
        return
    var start = at[DType.int64](p.indices.data).unsafe_offset(window.place(p.indices, c))
    comptime for j in range(W):
        var value = load[T, 1](values.unsafe_offset(j))[0]
        add_lane[T, W](p, Int(start[unsafe_offset=j * p.indices.c]), value, sums, v, j)


@always_inline
def add_lane[
    T: DType, W: Int
](p: Pool, index: Int, value: Scalar[wide[T]], mut sums: PoolSums[wide[T], W], v: Int, j: Int):
    if UInt(index) < UInt(p.positions()):
        if index >= sums.cleared:
            sums.clear_until(index + 1)
        sums.of(index, v)[unsafe_offset=j] += value
    elif index != -1:
        p.report()
