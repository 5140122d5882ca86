"""The padded input of a patch of windows: a widened copy with zeros around, channels innermost.

A patch is some lines of windows. Its padded input has each element once; im2col rows repeat it for
every tap. The row of a window consists of runs in it: all taps of a line, or a single tap if taps are
not adjacent. The rows of adjacent windows start at a fixed distance.
"""

from simd import Address, Table, at, clear, copy, lanes, pack_pixels, size, transpose, wide
from tile import MR
from windows import Geometry, Source, split

comptime DEPTH = 72 * 64
"""Largest depth of a row, so that a panel of the filter stays in the L2 cache."""
comptime INPUT_BYTES = 128 * 1024
"""Bytes of a padded input and what is packed with it, unless one line of MR windows needs more."""


@fieldwise_init
struct Patch(ImplicitlyCopyable):
    """Some lines of windows: position of the first window, number of lines, and windows per line."""

    var n: Int
    var z: Int
    var y: Int
    var x: Int
    var lines: Int
    var across: Int

    @always_inline
    def __init__(out self, g: Geometry, line: Int, lines: Int, across: Int):
        """Decode the index of a line of at most `across` windows."""
        var rest, x = split(line, pieces(g, across))
        var image, y = split(rest, g.y.count)
        var n, z = split(image, g.z.count)
        var left = x * across
        self = Self(n, z, y, left, min(lines, g.y.count - y), min(across, g.x.count - left))


    @always_inline
    def is_inside(self, g: Geometry) -> Bool:
        """Return whether the windows read nothing outside of the source."""
        return g.z.has_all(self.z, 1) and g.y.has_all(self.y, self.lines) and g.x.has_all(self.x, self.across)

    @always_inline
    def first(self, g: Geometry) -> Int:
        """Return the offset in `big` of the first element that the windows read."""
        var z = self.z * g.z.step + g.z.shift
        var y = self.y * g.y.step + g.y.shift
        return g.big.offset(self.n, z, y, self.x * g.x.step + g.x.shift)


@always_inline
def pieces(g: Geometry, across: Int) -> Int:
    """Return into how many patches a line of windows is cut."""
    return (g.x.count + across - 1) // across


struct PaddedInput(ImplicitlyCopyable):
    """Memory layout of the padded input of a patch: (source, plane, line, pixel, channel)."""

    var lines: Int
    var pixels: Int
    var line: Int  # elements of a line
    var plane: Int  # elements of all lines
    var source: Int  # elements of all planes, one per tap
    var run: Int  # elements of a run

    @always_inline
    def __init__(out self, g: Geometry, lines: Int, across: Int):
        self.lines = g.y.reach(lines)
        self.pixels = g.x.reach(across)
        self.line = self.pixels * g.channels
        self.plane = self.lines * self.line
        self.source = self.plane * g.z.taps
        self.run = g.channels * (g.x.taps if g.x.reach(1) == g.x.taps else 1)

    @always_inline
    def write_starts(self, g: Geometry, starts: Table):
        """Write the offsets of the runs of the first window, in order of depth."""
        self.write_offsets(g, starts, self.plane, g.y.tap_step * self.line, g.x.tap_step * g.channels)

    @always_inline
    def write_offsets(self, g: Geometry, starts: Table, plane: Int, line: Int, tap: Int):
        """Write the offsets of runs from the distances of their planes, lines and taps."""
        var i = 0
        for z in range(g.pairs * g.z.taps):
            for r in range(g.y.taps):
                for s in range(g.x.taps * g.channels // self.run):
                    starts[unsafe_offset=i] = z * plane + r * line + s * tap
                    i += 1


def patches[A: DType](g: Geometry, per_window: Int) -> Tuple[Int, Int]:
    """Return lines and windows across of patches whose padded inputs, with `per_window` more elements per
    window, fit into INPUT_BYTES; 0 lines if the padded inputs have more elements than im2col rows."""
    if g.windows() == 0 or g.depth() == 0:
        return 0, 0
    var across = g.x.count
    while across > MR and bytes_of[A](g, 1, across, per_window) > INPUT_BYTES:
        across = (across + 2 * MR - 1) // (2 * MR) * MR
    var most = g.y.count if across == g.x.count else 1
    var lines = 1
    while lines < most and bytes_of[A](g, min(2 * lines, most), across, per_window) <= INPUT_BYTES:
        lines = min(2 * lines, most)
    var count = g.images * g.z.count * ((g.y.count + lines - 1) // lines) * pieces(g, across)
    var elements = count * PaddedInput(g, lines, across).source * g.pairs
    return lines if elements <= g.windows() * g.depth() else 0, across


@always_inline
def bytes_of[A: DType](g: Geometry, lines: Int, across: Int, per_window: Int) -> Int:
    """Return the bytes of a padded input and of `per_window` elements for each window."""
    return (PaddedInput(g, lines, across).source * g.pairs + lines * across * per_window) * size[A]()


@always_inline
def pack_input[
    T: DType, planar: Bool = False
](g: Geometry, s: PaddedInput, patch: Patch, group: Int, to: Address[wide[T]]):
    """Write the padded input of a patch; `planar`, with the pixels of each channel of a line contiguous."""
    var there = to
    for pair in range(g.pairs):
        var src = g.source(pair)
        for t in range(g.z.taps):
            var z = patch.z * g.z.step + g.z.shift + t * g.z.tap_step
            for line in range(g.y.reach(patch.lines)):
                var y = patch.y * g.y.step + g.y.shift + line
                var here = there.unsafe_offset(line * s.line)
                if g.z.has(z) and g.y.has(y):
                    var offset = src.offset(patch.n, z, y, 0) + group * g.channels * src.c
                    var x = patch.x * g.x.step + g.x.shift
                    var start = at[T](src.data).unsafe_offset(offset)
                    comptime if planar:
                        pack_planes[T](g, s, src, start, x, here)
                    else:
                        pack_line[T](g, s, src, start, x, here)
                else:
                    clear[wide[T]](here, s.line)
            there = there.unsafe_offset(s.plane)


@always_inline
def inside(g: Geometry, s: PaddedInput, x: Int) -> Tuple[Int, Int]:
    """Return the range of the pixels of a line from `x` on that are inside of the source."""
    var left = min(max(0, -x), s.pixels)
    return left, max(left, min(s.pixels, g.x.size - x))


@always_inline
def pack_line[
    T: DType
](g: Geometry, s: PaddedInput, src: Source, line: Address[T], x: Int, to: Address[wide[T]]):
    """Write the pixels of a line from `x` on, zeros outside of the source."""
    var c = g.channels
    var left, right = inside(g, s, x)
    clear[wide[T]](to, left * c)
    clear[wide[T]](to.unsafe_offset(right * c), (s.pixels - right) * c)
    var first = line.unsafe_offset((x + left) * src.x)
    pack_pixels[T](to.unsafe_offset(left * c), c, first, right - left, src.x, c, src.c)


@always_inline
def pack_planes[
    T: DType
](g: Geometry, s: PaddedInput, src: Source, line: Address[T], x: Int, to: Address[wide[T]]):
    """Write the pixels of a line from `x` on, channel by channel, zeros outside of the source."""
    comptime W = lanes[wide[T]]()
    var left, right = inside(g, s, x)
    for c in range(g.channels):
        var row = to.unsafe_offset(c * s.pixels)
        clear[wide[T]](row, left)
        clear[wide[T]](row.unsafe_offset(right), s.pixels - right)
    var i = left
    while i < right:
        var many = min(W, right - i) if src.x != 1 and i + W <= s.pixels else right - i
        var first = line.unsafe_offset((x + i) * src.x)
        var square = g.channels // W * W if src.c == 1 and many <= W and i + W <= s.pixels else 0
        for c in range(0, square, W):
            var corner = to.unsafe_offset(c * s.pixels + i)
            transpose[T](corner, s.pixels, first.unsafe_offset(c), src.x, many)
        for c in range(square, g.channels):
            var row = to.unsafe_offset(c * s.pixels + i)
            copy[T](row, first.unsafe_offset(c * src.c), many, src.x)
        i += many
