"""The filter gradient of correlate.mojo, from strips: rows are runs of taps and channels, columns
are channels of the small side, which are read where they lie if vectors of them can be.

Sums of all windows of a slice stay in memory of their own. Slices depend on the sizes alone, so that
each result is summed in one order, whatever the threads.
"""

from std.memory import stack_allocation

from correlate import Correlate, column, place_of
from gather import parts
from simd import Address, Table, at, clear, lanes, lay_pixels, size, store, transpose, wide
from padded import DEPTH, Patch, Strip, patches, pack_strip, pieces
from tile import MR, NV, UNFINISHED, Pixels, sweep
from windows import Windows, split

comptime SUMS = 128 * 1024
"""Bytes of the sums of a block of columns, if one panel has not more."""
comptime SLICES = 8
"""Slices of the windows at most, and blocks of columns from which on they stay whole."""
comptime SLICE = 128
"""Windows in a slice at least; half of what there are at least, or sums cost more to write than to make."""


def plan_correlate_strips[T: DType](mut p: Correlate):
    """Choose the blocks, if strips shall be read."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref w = p.windows
    if w.depth() > DEPTH or w.windows() < 2 * SLICE:
        return
    var lines, across = patches[A](w, width)
    if lines == 0:
        return
    var panels = parts(p.rows, width)
    p.lines = lines
    p.across = across
    p.panels = max(1, min(panels, SUMS // (w.depth() * width * size[A]())))
    p.column_blocks = parts(panels, p.panels)
    p.row_blocks = 1
    p.slices = max(1, min(SLICES // p.blocks(), min(w.windows() // SLICE, lines_of(p))))
    p.units = p.slices * p.blocks()
    p.sums_bytes = p.units * p.panels * w.depth() * width * size[A]()
    var s = Strip(w, lines, across)
    var numbers = s.source + lines * across * width
    p.scratch_bytes = numbers * size[A]() + w.depth() // s.run * 8


@always_inline
def lines_of(p: Correlate) -> Int:
    """Return how many lines of windows there are in all images."""
    ref w = p.windows
    return w.images * w.count_z * w.count_y * pieces(w, p.across)


def correlate_strips[T: DType](p: Correlate, scratch: Int, low: Int, high: Int):
    """Compute the sums of slices and blocks `low` to `high`."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref w = p.windows
    var s = Strip(w, p.lines, p.across)
    var a = at[A](scratch)
    var own = a.unsafe_offset(s.source)
    var starts = Table(unsafe_from_address=Int(own.unsafe_offset(p.lines * p.across * width)))
    s.lay_starts(w, starts)
    for unit in range(low, high):
        var slice, index = split(unit, p.blocks())
        var group, column_block = split(index, p.column_blocks)
        var sums = at[A](p.sums).unsafe_offset(unit * p.panels * w.depth() * width)
        var line = lines_of(p) * slice // p.slices
        var end = lines_of(p) * (slice + 1) // p.slices
        var fresh = True
        while line < end:
            var patch = Patch(w, line, min(p.lines, end - line), p.across)
            pack_strip[T](w, s, patch, group, a)
            for i in range(p.panels):
                var panel = column_block * p.panels + i
                if panel * width < p.rows:
                    var c = sums.unsafe_offset(i * w.depth() * width)
                    sweep_panel[T](p, s, patch, group, panel, starts, a, own, c, fresh)
            line += patch.lines
            fresh = False


@always_inline
def sweep_panel[
    T: DType
](
    p: Correlate,
    s: Strip,
    patch: Patch,
    group: Int,
    panel: Int,
    starts: Table,
    a: Address[wide[T]],
    own: Address[wide[T]],
    c: Address[wide[T]],
    fresh: Bool,
):
    """Add the products of a patch with a panel of channels of the small side."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = p.windows
    ref src = p.small
    var columns = min(width, p.rows - panel * width)
    var vectors = (columns + W - 1) // W
    var place = patch.n * src.n + patch.z * src.z + patch.y * src.y + patch.x * src.x
    place += (group * p.rows + panel * width) * src.c
    var b = own
    var pixels = Pixels(patch.lines, patch.across, w.step_y * s.line, w.step_x * w.channels, 0, 0)
    if T == A and src.c == 1 and columns == vectors * W:
        b = at[A](src.data).unsafe_offset(place)
        pixels.b_line = src.y
        pixels.b_step = src.x
    else:
        pixels.b_line = patch.across * vectors * W
        pixels.b_step = vectors * W
        pack_pixels[T](p, pixels, at[T](src.data).unsafe_offset(place), columns, own)
    var tall = parts(s.run, parts(s.run, MR))
    for run in range(w.depth() // s.run):
        for i in range(0, s.run, tall):
            var row = a.unsafe_offset(starts[unsafe_offset=run] + i)
            var here = c.unsafe_offset((run * s.run + i) * vectors * W)
            sweep[A](row, b, here, min(tall, s.run - i), vectors, pixels, fresh, UNFINISHED)


@always_inline
def pack_pixels[
    T: DType
](p: Correlate, pixels: Pixels, start: Address[T], columns: Int, to: Address[wide[T]]):
    """Pack channels of the small side: (line, pixel, vectors)."""
    for line in range(pixels.lines):
        var there = start.unsafe_offset(line * p.small.y)
        var here = to.unsafe_offset(line * pixels.b_line)
        lay_pixels[T](here, pixels.b_step, there, pixels.count, p.small.x, columns, p.small.c)
        for i in range(pixels.count):
            clear[wide[T]](here.unsafe_offset(i * pixels.b_step + columns), pixels.b_step - columns)


def merge[T: DType](p: Correlate, low: Int, high: Int):
    """Add up the slices of blocks `low` to `high`, and write the sums."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = p.windows
    var panel = w.depth() * width
    var apart = p.blocks() * p.panels * panel
    for index in range(low, high):
        var group, column_block = split(index, p.column_blocks)
        for i in range(p.panels):
            var first = (column_block * p.panels + i) * width
            var columns = min(width, p.rows - first)
            if columns <= 0:
                break
            var line = (columns + W - 1) // W * W
            var sums = at[A](p.sums).unsafe_offset((index * p.panels + i) * panel)
            for j in range(0, w.depth() * line, W):
                var here = sums.unsafe_offset(j)
                var sum = here.unsafe_load[width=W]()
                for slice in range(1, p.slices):
                    sum += here.unsafe_offset(slice * apart).unsafe_load[width=W]()
                here.unsafe_store(sum)
            var place = group * p.dst.group + first * p.dst.result
            write_turned[T](p, sums, line, columns, at[T](p.dst.data).unsafe_offset(place))


@always_inline
def write_turned[
    T: DType
](p: Correlate, sums: Address[wide[T]], line: Int, columns: Int, to: Address[T]):
    """Round the sums of a panel, a line of them for each tap and channel, and write them."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    var turned = stack_allocation[W * W, Scalar[A], alignment=64]()
    var offsets = stack_allocation[W, Int]()
    var depth = p.windows.depth()
    for k in range(0, depth, W):
        var count = min(W, depth - k)
        for i in range(count):
            offsets[unsafe_offset=i] = column(p, k + i)
        var start, beside = place_of(p, k, count)
        for left in range(0, columns, W):
            var square = at[wide[A]](Int(turned))
            transpose[A](square, W, sums.unsafe_offset(k * line + left), line, count)
            for j in range(min(W, columns - left)):
                var row = turned.unsafe_offset(j * W)
                var there = to.unsafe_offset((left + j) * p.dst.result)
                if beside and count == W:
                    store[T, W](there.unsafe_offset(start), row.unsafe_load[width=W]())
                    continue
                for i in range(count):
                    store[T, 1](there.unsafe_offset(offsets[unsafe_offset=i]), row[unsafe_offset=i])
