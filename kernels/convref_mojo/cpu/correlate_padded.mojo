"""The filter gradient of correlate.mojo from a padded input: rows are runs of taps and channels,
columns are channels of the small side, read in place if they are contiguous and whole vectors.

Each slice of the windows has sums of its own. Slices depend on the sizes alone, so that the order of
each sum does not depend on the number of threads.
"""

from std.memory import stack_allocation

from correlate import filter_offset
from simd import Address, Table, at, clear, lanes, pack_pixels, size, store, transpose, wide
from padded import DEPTH, Patch, PaddedInput, patches, pack_input, pieces
from tile import MR, NV, TO_SCRATCH, Pixels, tile_of_pixels
from windows import Conv, Tap, num_blocks, split

comptime SUMS = 128 * 1024
"""Bytes of the sums of a block of columns, unless one panel needs more."""
comptime SLICES = 8
"""Largest number of slices; with as many blocks of columns the windows are not sliced."""
comptime SLICE = 128
"""Fewest windows of a slice, and half of the fewest of a launch: else storing the sums dominates."""

comptime FEW = 64 * 32
"""Elements of a filter whose sums are stored in less time than rows of im2col take."""


def plan_correlate_padded[T: DType](mut p: Conv):
    """Set the block sizes if the padded input is taken."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref g = p.geometry
    if g.depth() > DEPTH or (g.windows() < 2 * SLICE and g.depth() * g.results > FEW):
        return
    var lines, across = patches[A](g, width)
    if lines == 0:
        return
    var panels = num_blocks(g.results, width)
    p.lines = lines
    p.across = across
    p.panels = max(1, min(panels, SUMS // (g.depth() * width * size[A]())))
    p.column_blocks = num_blocks(panels, p.panels)
    p.row_blocks = 1
    p.slices = max(1, min(SLICES // p.blocks(), min(g.windows() // SLICE, lines_of(p))))
    p.units = p.slices * p.blocks()
    p.workspace_units = p.blocks()
    p.workspace_bytes = p.units * p.panels * g.depth() * width * size[A]()
    var s = PaddedInput(g, lines, across)
    var elements = s.source + lines * across * width
    p.scratch_bytes = elements * size[A]() + g.depth() // s.run * 8


@always_inline
def lines_of(p: Conv) -> Int:
    """Return the number of lines of windows in all images."""
    ref g = p.geometry
    return g.lines() * pieces(g, p.across)


def correlate_padded[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref g = p.geometry
    var s = PaddedInput(g, p.lines, p.across)
    var a = at[A](scratch)
    var own = a.unsafe_offset(s.source)
    var starts = Table(unsafe_from_address=Int(own.unsafe_offset(p.lines * p.across * width)))
    s.write_starts(g, starts)
    for unit in range(low, high):
        var slice, index = split(unit, p.blocks())
        var group, column_block = split(index, p.column_blocks)
        var sums = at[A](p.workspace).unsafe_offset(unit * p.panels * g.depth() * width)
        var line = lines_of(p) * slice // p.slices
        var end = lines_of(p) * (slice + 1) // p.slices
        var fresh = True
        while line < end:
            var patch = Patch(g, line, min(p.lines, end - line), p.across)
            pack_input[T](g, s, patch, group, a)
            for i in range(p.panels):
                var panel = column_block * p.panels + i
                if panel * width < g.results:
                    var c = sums.unsafe_offset(i * g.depth() * width)
                    multiply_panel[T](p, s, patch, group, panel, starts, a, own, c, fresh)
            line += patch.lines
            fresh = False


@always_inline
def multiply_panel[T: DType](
    p: Conv, s: PaddedInput, patch: Patch, group: Int, panel: Int, starts: Table, a: Address[wide[T]],
    own: Address[wide[T]], c: Address[wide[T]], fresh: Bool
):
    """Add the products of a patch and a panel of channels of the small side."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref g = p.geometry
    ref src = g.small
    var columns = min(width, g.results - panel * width)
    var vectors = (columns + W - 1) // W
    var place = src.offset(patch.n, patch.z, patch.y, patch.x)
    place += (group * g.results + panel * width) * src.c
    var b = own
    var pixels = Pixels(patch.lines, patch.across, g.y.step * s.line, g.x.step * g.channels, 0, 0)
    if T == A and src.c == 1 and columns == vectors * W:
        b = at[A](src.data).unsafe_offset(place)
        pixels.b_line = src.y
        pixels.b_step = src.x
    else:
        pixels.b_line = patch.across * vectors * W
        pixels.b_step = vectors * W
        pack_small[T](p, pixels, at[T](src.data).unsafe_offset(place), columns, own)
    var tall = num_blocks(s.run, num_blocks(s.run, MR))
    for run in range(g.depth() // s.run):
        for i in range(0, s.run, tall):
            var row = a.unsafe_offset(starts[unsafe_offset=run] + i)
            var here = c.unsafe_offset((run * s.run + i) * vectors * W)
            tile_of_pixels[A](row, b, here, min(tall, s.run - i), vectors, pixels, fresh, TO_SCRATCH)


@always_inline
def pack_small[T: DType](p: Conv, pixels: Pixels, start: Address[T], columns: Int, to: Address[wide[T]]):
    """Pack channels of the small side: (line, pixel, vectors)."""
    ref g = p.geometry
    for line in range(pixels.lines):
        var there = start.unsafe_offset(line * g.small.y)
        var here = to.unsafe_offset(line * pixels.b_line)
        pack_pixels[T](here, pixels.b_step, there, pixels.count, g.small.x, columns, g.small.c)
        for i in range(pixels.count):
            clear[wide[T]](here.unsafe_offset(i * pixels.b_step + columns), pixels.b_step - columns)


def merge[T: DType](p: Conv, low: Int, high: Int):
    """Add the slices of blocks `low` to `high` and store the sums."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref g = p.geometry
    var panel = g.depth() * width
    var slice_step = p.blocks() * p.panels * panel
    for index in range(low, high):
        var group, column_block = split(index, p.column_blocks)
        for i in range(p.panels):
            var first = (column_block * p.panels + i) * width
            var columns = min(width, g.results - first)
            if columns <= 0:
                break
            var line = (columns + W - 1) // W * W
            var sums = at[A](p.workspace).unsafe_offset((index * p.panels + i) * panel)
            for j in range(0, g.depth() * line, W):
                var here = sums.unsafe_offset(j)
                var sum = here.unsafe_load[width=W]()
                for slice in range(1, p.slices):
                    sum += here.unsafe_offset(slice * slice_step).unsafe_load[width=W]()
                here.unsafe_store(sum)
            var place = group * g.filter.group + first * g.filter.result
            write_transposed[T](p, sums, line, columns, at[T](g.filter.data).unsafe_offset(place))


@always_inline
def write_transposed[T: DType](p: Conv, sums: Address[wide[T]], line: Int, columns: Int, to: Address[T]):
    """Round the sums of a panel, one line per tap and channel, and store their transpose."""
    ref g = p.geometry
    comptime A = wide[T]
    comptime W = lanes[A]()
    var transposed = stack_allocation[W * W, Scalar[A], alignment=64]()
    var offsets = stack_allocation[W, Int]()
    var depth = g.depth()
    for k in range(0, depth, W):
        var count = min(W, depth - k)
        var tap = Tap(g, k)
        for i in range(count):
            offsets[unsafe_offset=i] = g.filter.offset(tap)
            tap.step(g)
        var start, contiguous = filter_offset(g, k, count)
        for left in range(0, columns, W):
            var square = at[wide[A]](Int(transposed))
            transpose[A](square, W, sums.unsafe_offset(k * line + left), line, count)
            for j in range(min(W, columns - left)):
                var row = transposed.unsafe_offset(j * W)
                var there = to.unsafe_offset((left + j) * g.filter.result)
                if contiguous and count == W:
                    store[T, W](there.unsafe_offset(start), row.unsafe_load[width=W]())
                    continue
                for i in range(count):
                    store[T, 1](there.unsafe_offset(offsets[unsafe_offset=i]), row[unsafe_offset=i])
