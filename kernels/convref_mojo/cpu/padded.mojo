"""The padded input of a patch of windows: a widened copy with zeros around, channels innermost.

A patch is some lines of windows. Its padded input has each element once; im2col rows repeat it for
every tap. The row of a window consists of runs in it: all taps of a line, or a single tap if taps are
not adjacent. The rows of adjacent windows start at a fixed distance.
"""

from simd import Address, Table, at, clear, copy, lanes, pack_pixels, size, transpose, wide
from tile import MR
from windows import Source, Windows, split, within

comptime DEPTH = 72 * 64
"""Largest depth of a row, so that a panel of the filter stays in the L2 cache."""
comptime INPUT_BYTES = 128 * 1024
"""Bytes of a padded input and what is packed with it, unless one line of MR windows needs more."""


@always_inline
def reach(shifts: Table, taps: Int, count: Int, step: Int) -> Int:
    """Return how many positions of an axis `count` windows span."""
    return (count - 1) * step + shifts[unsafe_offset=taps - 1] - shifts[] + 1


struct Patch(ImplicitlyCopyable):
    """Some lines of windows: position of the first window, number of lines, and windows per line."""

    var n: Int
    var z: Int
    var y: Int
    var x: Int
    var lines: Int
    var across: Int

    @always_inline
    def __init__(out self, w: Windows, line: Int, lines: Int, across: Int):
        """Decode the index of a line of at most `across` windows."""
        var rest, x = split(line, pieces(w, across))
        var image, y = split(rest, w.count_y)
        var n, z = split(image, w.count_z)
        self.n = n
        self.z = z
        self.y = y
        self.x = x * across
        self.lines = min(lines, w.count_y - y)
        self.across = min(across, w.count_x - self.x)


@always_inline
def pieces(w: Windows, across: Int) -> Int:
    """Return into how many patches a line of windows is cut."""
    return (w.count_x + across - 1) // across


struct PaddedInput(ImplicitlyCopyable):
    """Memory layout of the padded input of a patch: (source, plane, line, pixel, channel)."""

    var lines: Int
    var pixels: Int
    var line: Int  # elements of a line
    var plane: Int  # elements of all lines
    var source: Int  # elements of all planes, one per tap
    var run: Int  # elements of a run

    @always_inline
    def __init__(out self, w: Windows, lines: Int, across: Int):
        """Lay out a patch of `lines` lines of `across` windows."""
        var y = w.shifts().unsafe_offset(w.taps_z)
        var x = y.unsafe_offset(w.taps_y)
        self.lines = reach(y, w.taps_y, lines, w.step_y)
        self.pixels = reach(x, w.taps_x, across, w.step_x)
        self.line = self.pixels * w.channels
        self.plane = self.lines * self.line
        self.source = self.plane * w.taps_z
        var adjacent = reach(x, w.taps_x, 1, 1) == w.taps_x
        self.run = w.channels * (w.taps_x if adjacent else 1)

    @always_inline
    def write_starts(self, w: Windows, starts: Table):
        """Write the offsets of the runs of the first window, in order of depth."""
        var y = w.shifts().unsafe_offset(w.taps_z)
        var x = y.unsafe_offset(w.taps_y)
        var i = 0
        for plane in range(w.sources * w.taps_z):
            for r in range(w.taps_y):
                for s in range(w.taps_x * w.channels // self.run):
                    var start = plane * self.plane + (y[unsafe_offset=r] - y[]) * self.line
                    starts[unsafe_offset=i] = start + (x[unsafe_offset=s] - x[]) * w.channels
                    i += 1


def patches[A: DType](w: Windows, per_window: Int) -> Tuple[Int, Int]:
    """Return lines and windows across of patches whose padded inputs, with `per_window` more elements per
    window, fit into INPUT_BYTES; 0 lines if the padded inputs have more elements than im2col rows."""
    if w.windows() == 0 or w.depth() == 0:
        return 0, 0
    var across = w.count_x
    while across > MR and bytes_of[A](w, 1, across, per_window) > INPUT_BYTES:
        across = (across + 2 * MR - 1) // (2 * MR) * MR
    var most = w.count_y if across == w.count_x else 1
    var lines = 1
    while lines < most and bytes_of[A](w, min(2 * lines, most), across, per_window) <= INPUT_BYTES:
        lines = min(2 * lines, most)
    var count = w.images * w.count_z * ((w.count_y + lines - 1) // lines) * pieces(w, across)
    var elements = count * PaddedInput(w, lines, across).source * w.sources
    return lines if elements <= w.windows() * w.depth() else 0, across


@always_inline
def bytes_of[A: DType](w: Windows, lines: Int, across: Int, per_window: Int) -> Int:
    """Return the bytes of a padded input and of `per_window` elements for each window."""
    return (PaddedInput(w, lines, across).source * w.sources + lines * across * per_window) * size[A]()


@always_inline
def pack_input[
    T: DType, planar: Bool = False
](w: Windows, s: PaddedInput, patch: Patch, group: Int, to: Address[wide[T]]):
    """Write the padded input of a patch; `planar`, with the pixels of each channel of a line contiguous."""
    var shifts = w.shifts()
    var there = to
    for source in range(w.sources):
        var src = w.first
        if source == 1:
            src = w.second
        for t in range(w.taps_z):
            var z = patch.z * w.step_z + shifts[unsafe_offset=t]
            for line in range(reach(shifts.unsafe_offset(w.taps_z), w.taps_y, patch.lines, w.step_y)):
                var y = patch.y * w.step_y + shifts[unsafe_offset=w.taps_z] + line
                var here = there.unsafe_offset(line * s.line)
                if within(z, w.size_z) and within(y, w.size_y):
                    var offset = patch.n * src.n + group * w.channels * src.c
                    offset += z * src.z + y * src.y
                    var x = patch.x * w.step_x + shifts[unsafe_offset=w.taps_z + w.taps_y]
                    var start = at[T](src.data).unsafe_offset(offset)
                    comptime if planar:
                        pack_planes[T](w, s, src, start, x, here)
                    else:
                        pack_line[T](w, s, src, start, x, here)
                else:
                    clear[wide[T]](here, s.line)
            there = there.unsafe_offset(s.plane)


@always_inline
def inside(w: Windows, s: PaddedInput, x: Int) -> Tuple[Int, Int]:
    """Return the range of the pixels of a line from `x` on that are inside of the source."""
    var left = min(max(0, -x), s.pixels)
    return left, max(left, min(s.pixels, w.size_x - x))


@always_inline
def pack_line[
    T: DType
](w: Windows, s: PaddedInput, src: Source, line: Address[T], x: Int, to: Address[wide[T]]):
    """Write the pixels of a line from `x` on, zeros outside of the source."""
    var c = w.channels
    var left, right = inside(w, s, x)
    clear[wide[T]](to, left * c)
    clear[wide[T]](to.unsafe_offset(right * c), (s.pixels - right) * c)
    var first = line.unsafe_offset((x + left) * src.x)
    pack_pixels[T](to.unsafe_offset(left * c), c, first, right - left, src.x, c, src.c)


@always_inline
def pack_planes[
    T: DType
](w: Windows, s: PaddedInput, src: Source, line: Address[T], x: Int, to: Address[wide[T]]):
    """Write the pixels of a line from `x` on, channel by channel, zeros outside of the source."""
    comptime W = lanes[wide[T]]()
    var left, right = inside(w, s, x)
    for c in range(w.channels):
        var row = to.unsafe_offset(c * s.pixels)
        clear[wide[T]](row, left)
        clear[wide[T]](row.unsafe_offset(right), s.pixels - right)
    var i = left
    while i < right:
        var many = min(W, right - i) if src.x != 1 and i + W <= s.pixels else right - i
        var first = line.unsafe_offset((x + i) * src.x)
        var square = w.channels // W * W if src.c == 1 and many <= W and i + W <= s.pixels else 0
        for c in range(0, square, W):
            var corner = to.unsafe_offset(c * s.pixels + i)
            transpose[T](corner, s.pixels, first.unsafe_offset(c), src.x, many)
        for c in range(square, w.channels):
            var row = to.unsafe_offset(c * s.pixels + i)
            copy[T](row, first.unsafe_offset(c * src.c), many, src.x)
        i += many
