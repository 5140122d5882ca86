"""Sliding windows over a source: the positions that they read, and im2col rows of their elements.

A window j of an axis reads, at tap r, position ``j * step + shift[r]``; positions outside the source
read as zero. Both sums of a convolution have this form: a gather with the stride as step, and a
scatter as one gather of step 1 per class of the result modulo the stride (see geometry.py).
"""

from simd import Address, Table, at, clear, copy, wide


struct Source(ImplicitlyCopyable):
    """An array (n, channel, z, y, x): its address and its strides in elements."""

    var data: Int
    var n: Int
    var c: Int
    var z: Int
    var y: Int
    var x: Int


struct Windows(ImplicitlyCopyable):
    """Windows over one source, or over two of the same sizes that are summed one after the other."""

    var images: Int
    var groups: Int
    var channels: Int  # of the source, per group
    var sources: Int
    var count_z: Int
    var count_y: Int
    var count_x: Int
    var size_z: Int
    var size_y: Int
    var size_x: Int
    var step_z: Int
    var step_y: Int
    var step_x: Int
    var taps_z: Int
    var taps_y: Int
    var taps_x: Int
    var shift: Int  # address of the shifts of all taps: z, then y, then x
    var first: Source
    var second: Source

    @always_inline
    def windows(self) -> Int:
        """Return the number of windows in all images."""
        return self.images * self.count_z * self.count_y * self.count_x

    @always_inline
    def taps(self) -> Int:
        """Return the number of taps of one source."""
        return self.taps_z * self.taps_y * self.taps_x

    @always_inline
    def depth(self) -> Int:
        """Return the length of an im2col row: sources x taps x channels."""
        return self.sources * self.taps() * self.channels

    @always_inline
    def shifts(self) -> Table:
        """Return the shifts of all taps."""
        return Table(unsafe_from_address=self.shift)


@always_inline
def split(value: Int, by: Int) -> Tuple[Int, Int]:
    """Return quotient and remainder of non-negative integers."""
    var quotient = Int(UInt(value) // UInt(by))
    return quotient, value - quotient * by


comptime WINDOW_WORDS = 5
"""64-bit words of a Window; `place` is the first."""


struct Window(ImplicitlyCopyable):
    """One window: image, position of a tap of shift 0, and offset in the array of one element each."""

    var place: Int
    var n: Int
    var z: Int
    var y: Int
    var x: Int

    @always_inline
    def __init__(out self, w: Windows, index: Int, n: Int, z: Int, y: Int, x: Int):
        """Decode a window's index; `n`, `z`, `y`, `x` are the strides for `place`."""
        var rest, jx = split(index, w.count_x)
        var more, jy = split(rest, w.count_y)
        var image, jz = split(more, w.count_z)
        self.n = image
        self.z = jz * w.step_z
        self.y = jy * w.step_y
        self.x = jx * w.step_x
        self.place = image * n + jz * z + jy * y + jx * x


@always_inline
def list_windows(
    table: Pointer[Window, MutAnyOrigin],
    w: Windows,
    first: Int,
    count: Int,
    n: Int,
    z: Int,
    y: Int,
    x: Int,
):
    """Write `count` windows from `first` on; only the first of each line is decoded."""
    var left = 0
    var window = Window(w, 0, n, z, y, x)
    for i in range(count):
        if left == 0:
            window = Window(w, first + i, n, z, y, x)
            left = w.count_x - window.x // w.step_x
        table[unsafe_offset=i] = window
        window.x += w.step_x
        window.place += x
        left -= 1


struct Tap(ImplicitlyCopyable):
    """A position in an im2col row: source, tap and channel."""

    var source: Int
    var t: Int
    var r: Int
    var s: Int
    var c: Int

    @always_inline
    def __init__(out self, w: Windows, k: Int):
        """Decode position `k` of a row; rows have sources outermost and channels innermost."""
        var taps, c = split(k, w.channels)
        var lines, s = split(taps, w.taps_x)
        var planes, r = split(lines, w.taps_y)
        var source, t = split(planes, w.taps_z)
        self.source = source
        self.t = t
        self.r = r
        self.s = s
        self.c = c


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
    def __init__(out self, w: Windows, group: Int, tap: Tap, left: Int):
        """Find the run that begins at `tap` and has at most `left` elements."""
        var shifts = w.shifts()
        var line = shifts.unsafe_offset(w.taps_z + w.taps_y)
        self.source = w.first
        if tap.source == 1:
            self.source = w.second
        self.z = shifts[unsafe_offset=tap.t]
        self.y = shifts[unsafe_offset=w.taps_z + tap.r]
        self.x = line[unsafe_offset=tap.s]
        self.head = min(w.channels - tap.c, left)
        self.length = self.head
        self.taps = 1
        var s = tap.s + 1
        if self.source.c == 1 and self.source.x == w.channels:
            while s < w.taps_x and self.length < left and line[unsafe_offset=s] == self.x + self.taps:
                self.length += min(w.channels, left - self.length)
                self.taps += 1
                s += 1
        self.start = (group * w.channels + tap.c) * self.source.c
        self.start += self.z * self.source.z + self.y * self.source.y + self.x * self.source.x


@always_inline
def within(position: Int, size: Int) -> Bool:
    """Return whether 0 <= position < size, in one comparison."""
    return UInt(position) < UInt(size)


@always_inline
def pack_im2col[
    T: DType
](
    w: Windows,
    group: Int,
    table: Pointer[Window, MutAnyOrigin],
    count: Int,
    begin: Int,
    length: Int,
    to: Address[wide[T]],
    pitch: Int,
):
    """Write positions `begin` to `begin + length` of the im2col rows of `count` windows, `pitch` apart;
    zeros outside the source."""
    var done = 0
    var tap = Tap(w, begin)
    while done < length:
        var run = Run(w, group, tap, length - done)
        for i in range(count):
            var here = to.unsafe_offset(i * pitch + done)
            pack_run[T](w, table[unsafe_offset=i], run, here)
        done += run.length
        tap = Tap(w, begin + done)


@always_inline
def pack_run[T: DType](w: Windows, window: Window, run: Run, to: Address[wide[T]]):
    """Write the elements of one run of one window."""
    var x = window.x + run.x
    if not (within(window.z + run.z, w.size_z) and within(window.y + run.y, w.size_y)):
        clear[wide[T]](to, run.length)
        return
    ref source = run.source
    var corner = window.n * source.n + window.z * source.z + window.y * source.y
    var start = at[T](source.data).unsafe_offset(corner + window.x * source.x + run.start)
    if x >= 0 and x + run.taps <= w.size_x:
        copy[T](to, start, run.length, source.c)
        return
    var done = 0
    for s in range(run.taps):
        var count = run.head if s == 0 else min(w.channels, run.length - done)
        if within(x + s, w.size_x):
            copy[T](to.unsafe_offset(done), start.unsafe_offset(done * source.c), count, source.c)
        else:
            clear[wide[T]](to.unsafe_offset(done), count)
        done += count
