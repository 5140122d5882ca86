"""Pools: forward passes by window; backward passes sum the windows that read each position, or scatter to the
positions of each window, where these are many or channels are not contiguous.

    max fprop      y[n,c,p]  = x[n,c,i*], i* the last NaN, else the first maximum            (P.2)
    avg fprop      y[n,c,p]  = sum over the window of x[n,c,i], divided by its divisor       (P.1)
    avg backward   x[n,c,i]  = sum of y[n,c,p] / divisor over the windows that read i        (P.3)
    select         y[n,c,p]  = x[n,c,index[n,c,p]]; max backward is its adjoint

A vector is adjacent channels. Along an axis a window reads positions that are `dilation` apart. A table has the
first of them and their number, without those in the padding; a second one has the windows of each position.
"""

from std.memory import stack_allocation

from simd import Address, at, lanes, load, store, wide
from windows import Source, split


struct Reads(ImplicitlyCopyable):
    """The positions that a window reads along one axis, and the factor of its divisor."""

    var first: Int
    var count: Int
    var divisor: Int


@fieldwise_init
struct Readers(ImplicitlyCopyable):
    """The windows that read a position along one axis, `step` apart."""

    var first: Int
    var count: Int
    var step: Int

    @always_inline
    def at(self, i: Int) -> Int:
        return self.first + i * self.step


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
    var readers: Int  # address of the readers of all positions: z, then y, then x; of backward passes only
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
    def in_place[T: DType](self) -> Bool:
        """Return whether `big` can have the sums: positions have one distance, also across lines."""
        return T == wide[T] and (self.y.size == 1 or self.big.y == self.x.size * self.big.x) and (
            self.z.size == 1 or self.big.z == self.y.size * self.x.size * self.big.x
        )

    @always_inline
    def compared(self) -> Bool:
        """Return whether to compare indices, in 32 bits: windows, but for those at the edges, are small."""
        var window = Window(self, 0, self.z.count // 2, self.y.count // 2, self.x.count // 2)
        return window.taps() <= COMPARED and self.positions() < POSITIONS

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
    def reads[W: Int](self, p: Pool, position: SIMD[DType.uint32, W]) -> SIMD[DType.bool, W]:
        """Return which positions the window reads: their distances from the first are sums of its steps.

        A difference below zero is a large number, so the minimum subtracts a step only where it fits."""
        var plane = p.y.size * p.x.size
        var left = position - UInt32(self.z.first * plane + self.y.first * p.x.size + self.x.first)
        for _ in range(1, self.z.count):
            left = min(left, left - UInt32(p.z.dilation * plane))
        for _ in range(1, self.y.count):
            left = min(left, left - UInt32(p.y.dilation * p.x.size))
        for _ in range(1, self.x.count):
            left = min(left, left - UInt32(p.x.dilation))
        return left.eq(0) & SIMD[DType.bool, W](fill=self.taps() > 0)

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
comptime NO_POSITION = (1 << 32) - 1
"""The 32-bit number for an index that is not a position."""


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


comptime COMPARED = 12
"""Windows of more positions are scattered: comparing their indices would take longer."""


def pool_backward[T: DType, by_index: Bool](p: Pool, scratch: Int, low: Int, high: Int):
    """Compute units `low` to `high` of (image, block of channels)."""
    comptime W = lanes[wide[T]]()
    var blocks = (p.channels + p.block - 1) // p.block
    for unit in range(low, high):
        var n, block = split(unit, blocks)
        var c = block * p.block
        var end = min(p.channels, c + p.block)
        var vectors = (end - c) // W if p.dense() and (not by_index or p.indices.c == 1) else 0
        if vectors > 0:
            comptime if by_index:
                if not p.compared() or not gather_windows[T, by_index](p, scratch, n, c, vectors):
                    var most = vectors if p.in_place[T]() else 1
                    for v in range(0, vectors, most):
                        scatter_windows[T, W, by_index](p, scratch, n, c + v * W, most)
            else:
                _ = gather_windows[T, by_index](p, scratch, n, c, vectors)
            c += vectors * W
        while c < end:
            scatter_windows[T, 1, by_index](p, scratch, n, c, 1)
            c += 1


def gather_windows[
    T: DType, by_index: Bool
](pool: Pool, scratch: Int, n: Int, c: Int, vectors: Int) -> Bool:
    """Compute vectors of channels from `c` on, position by position. Return False if an index is one that its
    window does not read, and not -1."""
    var p = pool  # a copy, which stores to the result cannot change
    comptime W = lanes[wide[T]]()
    var of_z = Pointer[Readers, MutAnyOrigin](unsafe_from_address=p.readers)
    var of_y = of_z.unsafe_offset(p.z.size)
    var of_x = of_y.unsafe_offset(p.y.size)
    var kept = Kept(scratch, vectors, 0)
    for z in range(p.z.size):
        for y in range(p.y.size):
            var lines = Lines(of_z[unsafe_offset=z], of_y[unsafe_offset=y])
            if not kept.keep_until[T, by_index](p, n, c, lines.end(p)):
                return False
            var row = at[T](p.big.data).unsafe_offset(p.big.offset(n, z, y, 0) + c)
            for x in range(p.x.size):
                var position = (z * p.y.size + y) * p.x.size + x
                var to = row.unsafe_offset(x * p.big.x)
                var v = 0
                comptime for half in range(2):
                    comptime V = VECTORS if half == 0 else 1
                    while v + V <= vectors:
                        var sums = sum_readers[T, V, by_index](
                            p, kept, lines, of_x[unsafe_offset=x], n, c, v, position
                        )
                        comptime for i in range(V):
                            store[T, W](to.unsafe_offset((v + i) * W), sums[unsafe_offset=i])
                        v += V
    return kept.keep_until[T, by_index](p, n, c, p.z.count * p.y.count)


@fieldwise_init
struct Lines(ImplicitlyCopyable):
    """The lines of windows that read a line of positions."""

    var z: Readers
    var y: Readers

    @always_inline
    def end(self, p: Pool) -> Int:
        """Return the line after the last of them."""
        if self.z.count == 0 or self.y.count == 0:
            return 0
        return self.z.at(self.z.count - 1) * p.y.count + self.y.at(self.y.count - 1) + 1


@fieldwise_init
struct Kept(ImplicitlyCopyable):
    """What is kept of each window, a line at a time: the indices in 32 bits, or its share of the mean."""

    var address: Int
    var vectors: Int  # of each window
    var lines: Int

    @always_inline
    def of[K: DType, W: Int](self, window: Int, v: Int) -> Address[K]:
        return at[K](self.address).unsafe_offset((window * self.vectors + v) * W)

    @always_inline
    def keep_until[T: DType, by_index: Bool](mut self, p: Pool, n: Int, c: Int, end: Int) -> Bool:
        """Keep the lines before `end`; return False if an index is one that its window does not read."""
        for line in range(self.lines, end):
            var jz, jy = split(line, p.y.count)
            for jx in range(p.x.count):
                var window = Window(p, n, jz, jy, jx)
                for v in range(self.vectors):
                    comptime if by_index:
                        if not self.keep_index[lanes[wide[T]]()](p, window, line * p.x.count + jx, c, v):
                            return False
                    else:
                        self.keep_share[T](p, window, line * p.x.count + jx, c, v)
        self.lines = max(self.lines, end)
        return True

    @always_inline
    def keep_index[W: Int](self, p: Pool, window: Window, place: Int, c: Int, v: Int) -> Bool:
        var start = at[DType.int64](p.indices.data).unsafe_offset(window.place(p.indices, c + v * W))
        var index = start.unsafe_load[width=W]()
        var narrow = min(index.cast[DType.uint64](), UInt64(NO_POSITION)).cast[DType.uint32]()
        self.of[DType.uint32, W](place, v).unsafe_store[width=W](narrow)
        var read = window.reads(p, narrow)
        return read.reduce_and() or (read | index.eq(-1)).reduce_and()

    @always_inline
    def keep_share[T: DType](self, p: Pool, window: Window, place: Int, c: Int, v: Int):
        comptime A = wide[T]
        comptime W = lanes[A]()
        var start = at[T](p.small.data).unsafe_offset(window.place(p.small, c + v * W))
        var share = window.divided[A, W](p, load[T, W](start))
        self.of[A, W](place, v).unsafe_store[width=W](share)


@always_inline
def sum_readers[T: DType, V: Int, by_index: Bool](
    p: Pool, kept: Kept, lines: Lines, of_x: Readers, n: Int, c: Int, v: Int, position: Int
) -> Pointer[SIMD[wide[T], lanes[wide[T]]()], MutUntrackedOrigin]:
    """Return V vectors of sums over the windows that read a position."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    var sums = stack_allocation[V, SIMD[A, W]]()
    comptime for i in range(V):
        sums[unsafe_offset=i] = SIMD[A, W](0)
    for a in range(lines.z.count):
        for b in range(lines.y.count):
            var jz = lines.z.at(a)
            var jy = lines.y.at(b)
            var line = at[T](p.small.data).unsafe_offset(p.small.offset(n, jz, jy, 0) + c + v * W)
            for d in range(of_x.count):
                var jx = of_x.at(d)
                var window = (jz * p.y.count + jy) * p.x.count + jx
                comptime for i in range(V):
                    comptime if by_index:
                        var value = load[T, W](line.unsafe_offset(jx * p.small.x + i * W))
                        var index = kept.of[DType.uint32, W](window, v + i).unsafe_load[width=W]()
                        var sum = sums[unsafe_offset=i]
                        sums[unsafe_offset=i] = index.eq(UInt32(position)).select(sum + value, sum)
                    else:
                        sums[unsafe_offset=i] += kept.of[A, W](window, v + i).unsafe_load[width=W]()
    return sums


def scatter_windows[
    T: DType, W: Int, by_index: Bool
](pool: Pool, scratch: Int, n: Int, c: Int, vectors: Int):
    """Compute vectors of channels from `c` on, window by window, in the result or in scratch memory."""
    comptime A = wide[T]
    var p = pool  # a copy, which stores to the sums cannot change
    var start = at[T](p.big.data).unsafe_offset(n * p.big.n + c * p.big.c)
    var in_place = p.in_place[T]()
    var sums = at[A](Int(start) if in_place else scratch)
    var pitch = p.big.x if in_place else vectors * W
    for i in range(p.positions()):
        for v in range(vectors):
            sums.unsafe_offset(i * pitch + v * W).unsafe_store[width=W](SIMD[A, W](0))
    for line in range(p.z.count * p.y.count):
        var jz, jy = split(line, p.y.count)
        for jx in range(p.x.count):
            var window = Window(p, n, jz, jy, jx)
            for v in range(vectors):
                scatter[T, W, by_index](p, window, c + v * W, sums.unsafe_offset(v * W), pitch)
    if in_place:
        return
    for z in range(p.z.size):
        for y in range(p.y.size):
            for x in range(p.x.size):
                var to = start.unsafe_offset(p.big.offset(0, z, y, x))
                for v in range(vectors):
                    store[T, W](to.unsafe_offset(v * W), sums.unsafe_offset(v * W).unsafe_load[width=W]())
                sums = sums.unsafe_offset(pitch)


@always_inline
def scatter[T: DType, W: Int, by_index: Bool](
    p: Pool, window: Window, c: Int, sums: Address[wide[T]], pitch: Int
):
    """Add the vector of a window to the positions of its indices, or its share to all that it reads."""
    var value = load[T, W](at[T](p.small.data).unsafe_offset(window.place(p.small, c)))
    comptime if by_index:
        var start = at[DType.int64](p.indices.data).unsafe_offset(window.place(p.indices, c))
        var index = start.unsafe_load[width=W]()
        if index.cast[DType.uint64]().lt(UInt64(p.positions())).reduce_and():
            comptime for j in range(W):
                sums[unsafe_offset=Int(start[unsafe_offset=j]) * pitch + j] += value[j]
            return
        comptime for j in range(W):
            if UInt(Int(index[j])) < UInt(p.positions()):
                sums[unsafe_offset=Int(index[j]) * pitch + j] += value[j]
            elif index[j] != -1:
                p.report()
        return
    var share = window.divided[wide[T], W](p, value)
    for kz in range(window.z.count):
        for ky in range(window.y.count):
            for kx in range(window.x.count):
                var z = window.z.first + kz * p.z.dilation
                var y = window.y.first + ky * p.y.dilation
                var x = window.x.first + kx * p.x.dilation
                var here = sums.unsafe_offset(((z * p.y.size + y) * p.x.size + x) * pitch)
                here.unsafe_store[width=W](here.unsafe_load[width=W]() + share)
