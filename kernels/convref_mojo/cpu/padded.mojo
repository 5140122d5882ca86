"""Strips: what a patch of windows reads, widened, with zeros around, channels innermost.

A patch is some lines of windows. Its strip has each number once, where packed rows would repeat it
for every tap. A window finds its row there in runs, which have the numbers of all taps of a line,
or where those are no neighbours of one tap; windows side by side start equally far apart.
"""

from simd import Address, Table, at, clear, copy, lanes, lay_pixels, size, transpose, wide
from tile import MR
from windows import Source, Windows, split, within

comptime DEPTH = 72 * 64
"""Depth of rows at most: a panel of the filter stays in the second-level cache."""
comptime STRIP = 128 * 1024
"""Bytes of a strip, and of what is packed with it, if one line of MR windows has not more."""


@always_inline
def reach(shifts: Table, taps: Int, count: Int, step: Int) -> Int:
    """Return how many positions of an axis `count` windows reach over."""
    return (count - 1) * step + shifts[unsafe_offset=taps - 1] - shifts[] + 1


struct Patch(ImplicitlyCopyable):
    """Some lines of windows: the place of the first window, how many lines, and windows of each."""

    var n: Int
    var z: Int
    var y: Int
    var x: Int
    var lines: Int
    var across: Int

    @always_inline
    def __init__(out self, w: Windows, line: Int, lines: Int, across: Int):
        """Decode the index of a line; lines have at most `across` windows."""
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
    """Return into how many lines of patches a line of windows is cut."""
    return (w.count_x + across - 1) // across


struct Strip(ImplicitlyCopyable):
    """How the strip of a patch lies: (source, plane, line, pixel, channel)."""

    var lines: Int
    var pixels: Int
    var line: Int  # numbers of a line
    var plane: Int  # numbers of all lines
    var source: Int  # numbers of all planes, one for each tap
    var run: Int  # numbers of a run

    @always_inline
    def __init__(out self, w: Windows, lines: Int, across: Int):
        """Make room for a patch of that many lines, and windows across."""
        var y = w.shifts().unsafe_offset(w.taps_z)
        var x = y.unsafe_offset(w.taps_y)
        self.lines = reach(y, w.taps_y, lines, w.step_y)
        self.pixels = reach(x, w.taps_x, across, w.step_x)
        self.line = self.pixels * w.channels
        self.plane = self.lines * self.line
        self.source = self.plane * w.taps_z
        var neighbours = reach(x, w.taps_x, 1, 1) == w.taps_x
        self.run = w.channels * (w.taps_x if neighbours else 1)

    @always_inline
    def lay_starts(self, w: Windows, starts: Table):
        """Write where the runs of the first window start, in order of depth."""
        var y = w.shifts().unsafe_offset(w.taps_z)
        var x = y.unsafe_offset(w.taps_y)
        var i = 0
        for plane in range(w.sources * w.taps_z):
            for r in range(w.taps_y):
                for s in range(w.taps_x * w.channels // self.run):
                    var start = plane * self.plane + (y[unsafe_offset=r] - y[]) * self.line
                    starts[unsafe_offset=i] = start + (x[unsafe_offset=s] - x[]) * w.channels
                    i += 1


def patches[A: DType](w: Windows, beside: Int) -> Tuple[Int, Int]:
    """Return lines and windows across of patches whose strips have no more than STRIP bytes, together
    with `beside` numbers a window; no lines where strips have more numbers than rows would."""
    if w.windows() == 0 or w.depth() == 0:
        return 0, 0
    var across = w.count_x
    while across > MR and bytes[A](w, 1, across, beside) > STRIP:
        across = (across + 2 * MR - 1) // (2 * MR) * MR
    var most = w.count_y if across == w.count_x else 1
    var lines = 1
    while lines < most and bytes[A](w, min(2 * lines, most), across, beside) <= STRIP:
        lines = min(2 * lines, most)
    var count = w.images * w.count_z * ((w.count_y + lines - 1) // lines) * pieces(w, across)
    var numbers = count * Strip(w, lines, across).source * w.sources
    return lines if numbers <= w.windows() * w.depth() else 0, across


@always_inline
def bytes[A: DType](w: Windows, lines: Int, across: Int, beside: Int) -> Int:
    """Return the bytes of a strip and of what lies beside it."""
    return (Strip(w, lines, across).source * w.sources + lines * across * beside) * size[A]()


@always_inline
def pack_strip[
    T: DType, planar: Bool = False
](w: Windows, s: Strip, patch: Patch, group: Int, to: Address[wide[T]]):
    """Write the strip of a patch; if it is planar, each channel of a line lies by itself."""
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
                        lay_planes[T](w, s, src, start, x, here)
                    else:
                        lay_line[T](w, s, src, start, x, here)
                else:
                    clear[wide[T]](here, s.line)
            there = there.unsafe_offset(s.plane)


@always_inline
def inside(w: Windows, s: Strip, x: Int) -> Tuple[Int, Int]:
    """Return the first pixel of a line from `x` on that the source has, and the first that it lacks."""
    var left = min(max(0, -x), s.pixels)
    return left, max(left, min(s.pixels, w.size_x - x))


@always_inline
def lay_line[
    T: DType
](w: Windows, s: Strip, src: Source, line: Address[T], x: Int, to: Address[wide[T]]):
    """Write the pixels of a line from `x` on, zeros outside of it."""
    var c = w.channels
    var left, right = inside(w, s, x)
    clear[wide[T]](to, left * c)
    clear[wide[T]](to.unsafe_offset(right * c), (s.pixels - right) * c)
    var first = line.unsafe_offset((x + left) * src.x)
    lay_pixels[T](to.unsafe_offset(left * c), c, first, right - left, src.x, c, src.c)


@always_inline
def lay_planes[
    T: DType
](w: Windows, s: Strip, src: Source, line: Address[T], x: Int, to: Address[wide[T]]):
    """Write the pixels of a line from `x` on, channel by channel, zeros outside of it."""
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
