"""Sliding windows over a source: where each window and tap reads, and rows of what they read.

A window j of an axis reads, at tap r, position ``j * step + shift[r]``; positions outside the source
read as zero. Both sums of a convolution are of this form: a gather with the stride as step, and a
scatter, class by class of the result modulo the stride, with step 1 (see geometry.py).
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
    """Windows over one source, or over two of the same sizes that are summed over one by one."""

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
        """Return how many windows there are in all images."""
        return self.images * self.count_z * self.count_y * self.count_x

    @always_inline
    def taps(self) -> Int:
        """Return the taps of one source."""
        return self.taps_z * self.taps_y * self.taps_x

    @always_inline
    def depth(self) -> Int:
        """Return the length of a row: sources, taps and channels."""
        return self.sources * self.taps() * self.channels

    @always_inline
    def shifts(self) -> Table:
        """Return the table of shifts."""
        return Table(unsafe_from_address=self.shift)


@always_inline
def split(value: Int, by: Int) -> Tuple[Int, Int]:
    """Return quotient and remainder of numbers that are not negative."""
    var quotient = Int(UInt(value) // UInt(by))
    return quotient, value - quotient * by


comptime WORDS = 5
"""Words of a Window, of which `place` is the first."""


struct Window(ImplicitlyCopyable):
    """One window: its image and where its tap of shift 0 reads, and its place on the lattice."""

    var place: Int
    var n: Int
    var z: Int
    var y: Int
    var x: Int

    @always_inline
    def __init__(out self, w: Windows, index: Int, n: Int, z: Int, y: Int, x: Int):
        """Decode a window's index; `n`, `z`, `y`, `x` are strides of the array it belongs to."""
        var rest, jx = split(index, w.count_x)
        var more, jy = split(rest, w.count_y)
        var image, jz = split(more, w.count_z)
        self.n = image
        self.z = jz * w.step_z
        self.y = jy * w.step_y
        self.x = jx * w.step_x
        self.place = image * n + jz * z + jy * y + jx * x


@always_inline
def lay_windows(
    table: Pointer[Window, MutAnyOrigin],
    w: Windows,
    first: Int,
    count: Int,
    n: Int,
    z: Int,
    y: Int,
    x: Int,
):
    """Write `count` windows from `first` on; a window is decoded only where a line begins."""
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
    """A position in a row: which source, tap and channel."""

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
    """A piece of a row that lies side by side in the source, or channels of one tap."""

    var source: Source
    var start: Int  # offset of its first number from where the window's tap of shift 0 reads
    var z: Int
    var y: Int
    var x: Int  # shifts of its first tap
    var taps: Int
    var head: Int  # numbers of the first tap; all taps but first and last have `channels`
    var length: Int

    @always_inline
    def __init__(out self, w: Windows, group: Int, tap: Tap, left: Int):
        """Find the run that begins at `tap` and has at most `left` numbers."""
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
def lay_rows[
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
    """Write positions `begin` to `begin + length` of the rows of `count` windows, `pitch` apart:
    what their taps read, zeros outside the source."""
    var done = 0
    var tap = Tap(w, begin)
    while done < length:
        var run = Run(w, group, tap, length - done)
        for i in range(count):
            var here = to.unsafe_offset(i * pitch + done)
            piece[T](w, table[unsafe_offset=i], run, here)
        done += run.length
        tap = Tap(w, begin + done)


@always_inline
def piece[T: DType](w: Windows, window: Window, run: Run, to: Address[wide[T]]):
    """Write what a run of a window's row reads."""
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
        var numbers = run.head if s == 0 else min(w.channels, run.length - done)
        if within(x + s, w.size_x):
            copy[T](to.unsafe_offset(done), start.unsafe_offset(done * source.c), numbers, source.c)
        else:
            clear[wide[T]](to.unsafe_offset(done), numbers)
        done += numbers
