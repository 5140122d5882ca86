"""Sliding windows over a source: the positions that they read, and im2col rows of their elements.

Window j of an axis reads, at its r-th tap, position ``j * step + shift + r * tap_step``; positions
outside of the source read as zero. Both sums of a convolution have this form: a gather with the stride as step, and a
scatter as one gather of step 1 per class of the result modulo the stride (see geometry.py).
"""

from simd import Address, Table, at, clear, copy, wide


struct Axis(ImplicitlyCopyable):
    var count: Int  # windows
    var size: Int  # positions of the source
    var step: Int
    var taps: Int
    var shift: Int
    var tap_step: Int

    @always_inline
    def has(self, position: Int) -> Bool:
        return UInt(position) < UInt(self.size)

    @always_inline
    def has_all(self, window: Int, count: Int) -> Bool:
        """Return whether `count` windows from one on read nothing outside of the source."""
        var first = window * self.step + self.shift
        return first >= 0 and first + self.reach(count) <= self.size

    @always_inline
    def reach(self, count: Int) -> Int:
        return (count - 1) * self.step + (self.taps - 1) * self.tap_step + 1


struct Source(ImplicitlyCopyable):
    """An array (n, channel, z, y, x): its address and its strides in elements."""

    var data: Int
    var n: Int
    var c: Int
    var z: Int
    var y: Int
    var x: Int

    @always_inline
    def offset(self, n: Int, z: Int, y: Int, x: Int) -> Int:
        return n * self.n + z * self.z + y * self.y + x * self.x


@fieldwise_init
struct Filter(ImplicitlyCopyable):
    """A filter: the address of the first tap that is read, and strides in elements."""

    var data: Int
    var group: Int
    var channel: Int  # of big
    var result: Int  # of small
    var z: Int  # from one tap to the next one read, perhaps negative
    var y: Int
    var x: Int

    @always_inline
    def offset(self, tap: Tap) -> Int:
        return tap.t * self.z + tap.r * self.y + tap.s * self.x + tap.c * self.channel


struct Bias(ImplicitlyCopyable):
    """A vector of one element per channel of small."""

    var data: Int  # 0 for none
    var c: Int


struct Geometry(ImplicitlyCopyable):
    """Windows over `big`, or over two arrays of the same sizes that are summed one after the other;
    `small` has one element per window."""

    var images: Int
    var groups: Int
    var channels: Int  # of big, per group
    var results: Int  # of small, per group
    var bias: Bias
    var z: Axis
    var y: Axis
    var x: Axis
    var big: Source
    var small: Source
    var filter: Filter
    var pairs: Int  # of big and filter
    var second_big: Source
    var second_filter: Filter

    @always_inline
    def source(self, pair: Int) -> Source:
        return self.second_big if pair == 1 else self.big

    @always_inline
    def factor(self, pair: Int) -> Filter:
        return self.second_filter if pair == 1 else self.filter

    @always_inline
    def lines(self) -> Int:
        """Return the number of lines of windows in all images."""
        return self.images * self.z.count * self.y.count

    @always_inline
    def windows(self) -> Int:
        return self.lines() * self.x.count

    @always_inline
    def taps(self) -> Int:
        return self.z.taps * self.y.taps * self.x.taps

    @always_inline
    def depth(self) -> Int:
        """Return the length of an im2col row: pairs x taps x channels."""
        return self.pairs * self.taps() * self.channels


struct Conv(ImplicitlyCopyable):
    """One launch. Python sets the fields before `workspace_bytes`, the plan those from there on."""

    var geometry: Geometry
    var workspace: Int  # address: the packed filter of a gather, the sums of all units of a correlate
    var min_units: Int  # to aim for, so that all threads have work

    var workspace_bytes: Int
    var workspace_units: Int  # units in which the workspace is packed, or merged
    var scratch_bytes: Int  # of each thread
    var units: Int
    var slices: Int  # of the lines of windows of a correlate; each has sums, which are merged
    var block_depth: Int
    var tiles: Int  # tiles of rows in a block
    var row_blocks: Int
    var panels: Int  # panels of columns in a block of a correlate
    var column_blocks: Int
    var lines: Int  # of windows in a block with a padded input, 0 for im2col
    var across: Int  # windows of such a line
    var planar: Int  # 1 if pixels of the padded input are contiguous, 0 if channels are
    var in_place: Int  # 1 if rows inside of the source are read there, and the others are padded

    @always_inline
    def blocks(self) -> Int:
        return self.geometry.groups * self.row_blocks * self.column_blocks


@always_inline
def num_blocks(total: Int, most: Int) -> Int:
    """Return the number of blocks of at most `most` elements, at least 1."""
    return max(1, (total + most - 1) // most)


@always_inline
def split(value: Int, by: Int) -> Tuple[Int, Int]:
    """Return quotient and remainder of non-negative integers."""
    var quotient = Int(UInt(value) // UInt(by))
    return quotient, value - quotient * by


comptime WINDOW_WORDS = 5
"""64-bit words of a Window; `place` is the first."""


@fieldwise_init
struct Window(ImplicitlyCopyable):
    """One window: image, position of a tap of shift 0, and offset in the array of one element each."""

    var place: Int
    var n: Int
    var z: Int
    var y: Int
    var x: Int

    @always_inline
    def __init__(out self, g: Geometry, index: Int):
        var rest, x = split(index, g.x.count)
        var more, y = split(rest, g.y.count)
        var n, z = split(more, g.z.count)
        self = Self(g.small.offset(n, z, y, x), n, z * g.z.step, y * g.y.step, x * g.x.step)


comptime WindowTable = Pointer[Window, MutAnyOrigin]


@always_inline
def list_windows(table: WindowTable, g: Geometry, first: Int, count: Int):
    """Write `count` windows from `first` on; only the first of each line is decoded."""
    var left = 0
    var window = Window(g, 0)
    for i in range(count):
        if left == 0:
            window = Window(g, first + i)
            left = g.x.count - window.x // g.x.step
        table[unsafe_offset=i] = window
        window.x += g.x.step
        window.place += g.small.x
        left -= 1


@fieldwise_init
struct Tap(ImplicitlyCopyable):
    """A position in an im2col row: pair, tap and channel."""

    var pair: Int
    var t: Int
    var r: Int
    var s: Int
    var c: Int

    @always_inline
    def __init__(out self, g: Geometry, k: Int):
        """Decode position `k` of a row; rows have pairs outermost and channels innermost."""
        var taps, c = split(k, g.channels)
        var lines, s = split(taps, g.x.taps)
        var planes, r = split(lines, g.y.taps)
        var pair, t = split(planes, g.z.taps)
        self = Self(pair, t, r, s, c)

    @always_inline
    def step(mut self, g: Geometry):
        """Go to the next position, without the divisions of decoding it."""
        self.c += 1
        if self.c < g.channels:
            return
        self.c = 0
        self.s += 1
        if self.s < g.x.taps:
            return
        self.s = 0
        self.r += 1
        if self.r < g.y.taps:
            return
        self.r = 0
        self.t += 1
        if self.t == g.z.taps:
            self.t = 0
            self.pair += 1


struct Run(ImplicitlyCopyable):
    """Part of an im2col row that is contiguous in the source, or the channels of one tap."""

    var source: Source
    var start: Int  # offset of its first element from the position of a tap of shift 0
    var z: Int
    var y: Int
    var x: Int  # shifts of its first tap
    var taps: Int
    var head: Int  # elements of the first tap; all taps but the first and the last have `channels`
    var length: Int

    @always_inline
    def __init__(out self, g: Geometry, group: Int, tap: Tap, left: Int):
        """Find the run that begins at `tap` and has at most `left` elements."""
        self.source = g.source(tap.pair)
        self.z = g.z.shift + tap.t * g.z.tap_step
        self.y = g.y.shift + tap.r * g.y.tap_step
        self.x = g.x.shift + tap.s * g.x.tap_step
        self.head = min(g.channels - tap.c, left)
        self.length = self.head
        self.taps = 1
        if self.source.c == 1 and self.source.x == g.channels and g.x.tap_step == 1:
            while tap.s + self.taps < g.x.taps and self.length < left:
                self.length += min(g.channels, left - self.length)
                self.taps += 1
        self.start = (group * g.channels + tap.c) * self.source.c
        self.start += self.source.offset(0, self.z, self.y, self.x)


@always_inline
def pack_im2col[T: DType](
    g: Geometry, group: Int, table: WindowTable, count: Int, begin: Int, length: Int, to: Address[wide[T]],
    pitch: Int
):
    """Write positions `begin` to `begin + length` of the im2col rows of `count` windows, `pitch` apart;
    zeros outside the source."""
    var done = 0
    var tap = Tap(g, begin)
    while done < length:
        var run = Run(g, group, tap, length - done)
        for i in range(count):
            var here = to.unsafe_offset(i * pitch + done)
            pack_run[T](g, table[unsafe_offset=i], run, here)
        done += run.length
        tap = Tap(g, begin + done)


@always_inline
def pack_run[T: DType](g: Geometry, window: Window, run: Run, to: Address[wide[T]]):
    var x = window.x + run.x
    if not (g.z.has(window.z + run.z) and g.y.has(window.y + run.y)):
        clear[wide[T]](to, run.length)
        return
    ref source = run.source
    var offset = source.offset(window.n, window.z, window.y, window.x) + run.start
    var start = at[T](source.data).unsafe_offset(offset)
    if x >= 0 and x + run.taps <= g.x.size:
        copy[T](to, start, run.length, source.c)
        return
    var done = 0
    for s in range(run.taps):
        var count = run.head if s == 0 else min(g.channels, run.length - done)
        if g.x.has(x + s):
            copy[T](to.unsafe_offset(done), start.unsafe_offset(done * source.c), count, source.c)
        else:
            clear[wide[T]](to.unsafe_offset(done), count)
        done += count
