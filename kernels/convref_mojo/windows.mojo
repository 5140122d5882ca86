"""Sliding windows over a source: where each window and tap reads, and rows of what they read.

A window j of an axis reads, at tap r, position ``j * step + shift[r]``; positions outside the source
read as zero. Both sums of a convolution are of this form: a gather with the stride as step, and a
scatter, class by class of the result modulo the stride, with step 1 (see geometry.py).
"""

from numbers import Address, Table, at, clear, copy, wide


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


struct Window(ImplicitlyCopyable):
    """One window: its image and where its tap of shift 0 reads, and its place on the lattice."""

    var n: Int
    var z: Int
    var y: Int
    var x: Int
    var place: Int

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


@always_inline
def within(position: Int, size: Int) -> Bool:
    """Return whether 0 <= position < size, in one comparison."""
    return UInt(position) < UInt(size)


@always_inline
def row[
    T: DType
](w: Windows, group: Int, window: Window, start: Tap, count: Int, to: Address[wide[T]]):
    """Write `count` numbers of a window's row from `start` on: what its taps read, zeros outside."""
    var tap = start
    var done = 0
    var shifts = w.shifts().unsafe_offset(w.taps_z + w.taps_y)
    while done < count:
        ref source = w.first if tap.source == 0 else w.second
        var z = window.z + w.shifts()[unsafe_offset=tap.t]
        var y = window.y + w.shifts()[unsafe_offset=w.taps_z + tap.r]
        var there = within(z, w.size_z) and within(y, w.size_y)
        var corner = window.n * source.n + group * w.channels * source.c
        var line = at[T](source.data).unsafe_offset(corner + z * source.z + y * source.y)
        var dense = source.x == w.channels and source.c == 1
        while tap.s < w.taps_x and done < count:
            var x = window.x + shifts[unsafe_offset=tap.s]
            var length = min(w.channels - tap.c, count - done)
            var last = tap.s
            if there and within(x, w.size_x):
                while dense and last + 1 < w.taps_x and done + length < count:
                    var next = window.x + shifts[unsafe_offset=last + 1]
                    if next != x + (last + 1 - tap.s) or next >= w.size_x:
                        break
                    last += 1
                    length += min(w.channels, count - done - length)
                var begin = line.unsafe_offset(x * source.x + tap.c * source.c)
                copy[T](to.unsafe_offset(done), begin, length, source.c)
            else:
                clear[wide[T]](to.unsafe_offset(done), length)
            done += length
            tap.s = last + 1
            tap.c = 0
        if tap.s == w.taps_x:
            tap.s = 0
            tap.r += 1
        if tap.r == w.taps_y:
            tap.r = 0
            tap.t += 1
        if tap.t == w.taps_z:
            tap.t = 0
            tap.source += 1
