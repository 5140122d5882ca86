"""The sum over windows, of gathers (C.1) and of each class of scatters (C.2), as a matrix product.

    dst[n, j, k] = sum over sources, taps r, channels c of src[n, j * step + shift[r], c] w[k, c, r] + b[k]

Rows are windows, columns are result channels, depth is source x tap x channel. Im2col rows are packed
one block at a time: contiguous, widened, with zeros where a tap is outside. The filter is packed into
panels of columns once per call; if all rows are one block, each part of a panel is packed just before
it is used. A block of rows and one panel fit into the L2 cache.
"""

from std.memory import stack_allocation

from simd import Address, Table, at, clear, copy, lanes, load, size, store, transpose, wide
from tile import MR, NV, TO_SCRATCH, Runs, tile_of_runs
from windows import (
    WINDOW_WORDS, Conv, Geometry, Tap, WindowTable, list_windows, num_blocks, pack_im2col, split
)

comptime CHUNK = 64
"""Depth of a chunk of packed rows; a pitch of MR * CHUNK elements avoids cache set conflicts."""
comptime MAX_DEPTH = 24 * CHUNK
"""Largest depth of a block."""
comptime CACHED = 320 * 1024
"""Bytes of packed rows in a block."""
comptime TILES = 16
"""Largest number of tiles of rows in a block."""
comptime PANELS = 8
"""Panels of columns that a block of rows is multiplied by."""


@always_inline
def panels_per_group(p: Conv, width: Int) -> Int:
    return (p.geometry.results + width - 1) // width


@always_inline
def contiguous(p: Conv) -> Bool:
    """Return whether the channels of the result and of the bias are contiguous."""
    ref g = p.geometry
    return g.small.c == 1 and (g.bias.data == 0 or g.bias.c == 1)


def plan_gather_im2col[T: DType](mut p: Conv):
    ref g = p.geometry
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    var depth = g.depth()
    var blocks = max(1, (depth + MAX_DEPTH - 1) // MAX_DEPTH)
    var chunks = max(1, (depth + CHUNK - 1) // CHUNK)
    p.block_depth = (chunks + blocks - 1) // blocks * CHUNK
    var rows = g.windows()
    var all_tiles = (rows + MR - 1) // MR
    var most = max(1, CACHED // (MR * p.block_depth * size[A]()))
    if most < all_tiles <= TILES:  # with less depth, all rows fit into one block
        p.block_depth = CACHED // (MR * all_tiles * size[A]()) // CHUNK * CHUNK
        most = all_tiles
    p.tiles = max(1, min(TILES, min(most, all_tiles)))
    var panels = panels_per_group(p, width)
    p.column_blocks = (panels + PANELS - 1) // PANELS
    while p.tiles > 1 and g.groups * num_blocks(all_tiles, p.tiles) * p.column_blocks < p.min_units:
        p.tiles -= 1
    p.row_blocks = num_blocks(all_tiles, p.tiles)
    p.units = g.groups * p.row_blocks * p.column_blocks
    p.workspace_units = g.groups * panels
    p.workspace_bytes = p.workspace_units * depth * width * size[A]() if p.row_blocks > 1 else 0
    var elements = p.tiles * MR * p.block_depth + p.tiles * PANELS * MR * width + p.block_depth * width
    p.scratch_bytes = elements * size[A]() + (p.tiles * MR * WINDOW_WORDS + p.block_depth // CHUNK) * 8
    p.lines = 0
    p.planar = 0


def pack_filter[T: DType](p: Conv, low: Int, high: Int):
    """Write panels `low` to `high` of the packed filter: (group, panel, depth, column)."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    var depth = p.geometry.depth()
    var panels = panels_per_group(p, width)
    for unit in range(low, high):
        var group, panel = split(unit, panels)
        pack_panel[T](p, group, panel, 0, depth, at[A](p.workspace).unsafe_offset(unit * depth * width))


def pack_panel[T: DType](p: Conv, group: Int, panel: Int, begin: Int, length: Int, start: Address[wide[T]]):
    """Write depths `begin` to `begin + length` of a panel: (depth, column)."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref g = p.geometry
    var columns = min(width, g.results - panel * width)
    var line = W if columns <= W else width
    var to = start
    var done = 0
    while done < length:
        var tap = Tap(g, begin + done)
        var filter = g.factor(tap.pair)
        var from_ = group * filter.group + panel * width * filter.result + filter.offset(tap)
        var rows = min(g.channels - tap.c, length - done)
        var first = at[T](filter.data).unsafe_offset(from_)
        pack_matrix[T](to, first, filter.channel, filter.result, rows, columns, line)
        to = to.unsafe_offset(rows * line)
        done += rows


@always_inline
def pack_matrix[T: DType](
    to: Address[wide[T]], start: Address[T], down: Int, across: Int, rows: Int, columns: Int, line: Int
):
    """Copy a matrix to rows of `line` elements, padded with zeros."""
    comptime W = lanes[wide[T]]()
    var done = 0
    if down == 1 and across != 1:
        while done + W <= rows:
            for j in range(0, line, W):
                var corner = start.unsafe_offset(done + j * across)
                var square = to.unsafe_offset(done * line + j)
                transpose[T](square, line, corner, across, min(W, columns - j))
            done += W
    for i in range(done, rows):
        var there = to.unsafe_offset(i * line)
        copy[T](there, start.unsafe_offset(i * down), columns, across)
        clear[wide[T]](there.unsafe_offset(columns), line - columns)


def gather_im2col[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref g = p.geometry
    var a = at[A](scratch)
    var c = a.unsafe_offset(p.tiles * MR * p.block_depth)
    var own = c.unsafe_offset(p.tiles * PANELS * MR * width)
    var table = WindowTable(unsafe_from_address=Int(own.unsafe_offset(p.block_depth * width)))
    var starts = Table(unsafe_from_address=Int(table.unsafe_offset(p.tiles * MR)))
    for chunk in range(p.block_depth // CHUNK):
        starts[unsafe_offset=chunk] = chunk * MR * CHUNK
    var runs = Runs(Int(starts), CHUNK, CHUNK)
    var depth = g.depth()
    var panels = panels_per_group(p, width)
    var direct = T == A and contiguous(p)
    for unit in range(low, high):
        var rest, column_block = split(unit, p.column_blocks)
        var group, row_block = split(rest, p.row_blocks)
        var first = row_block * p.tiles * MR
        var rows = min(p.tiles * MR, g.windows() - first)
        list_windows(table, g, first, rows)
        var begin = 0
        while True:
            var length = min(p.block_depth, depth - begin)
            pack_rows[T](p, group, table, rows, begin, length, a)
            var last = begin + length >= depth
            for panel in range(column_block * PANELS, min(panels, (column_block + 1) * PANELS)):
                var columns = min(width, g.results - panel * width)
                var vectors = (columns + W - 1) // W
                var b = own
                if p.workspace_bytes == 0:
                    pack_panel[T](p, group, panel, begin, length, own)
                else:
                    b = at[A](p.workspace).unsafe_offset(
                        (group * panels + panel) * depth * width + begin * vectors * W
                    )
                for tile in range((rows + MR - 1) // MR):
                    var here = min(MR, rows - tile * MR)
                    var sums = c.unsafe_offset(
                        ((panel - column_block * PANELS) * p.tiles + tile) * MR * width
                    )
                    var packed = a.unsafe_offset(tile * MR * p.block_depth)
                    var channel = group * g.results + panel * width
                    var target = TO_SCRATCH
                    if last and direct and columns == vectors * W:
                        target.data = g.small.data + channel * size[T]()
                        target.bias = g.bias.data + channel * size[T]() if g.bias.data != 0 else 0
                        target.offsets = Int(table.unsafe_offset(tile * MR))
                    var fresh = begin == 0
                    tile_of_runs[A, CHUNK, WINDOW_WORDS](
                        packed, b, sums, here, vectors, length, runs, fresh, target
                    )
                    if last and target.data == 0:
                        for i in range(here):
                            finish[T](
                                p, sums.unsafe_offset(i * vectors * W),
                                table[unsafe_offset=tile * MR + i].place, channel, columns
                            )
            begin += length
            if last:
                break


@always_inline
def pack_rows[T: DType](
    p: Conv, group: Int, table: WindowTable, rows: Int, begin: Int, length: Int, a: Address[wide[T]]
):
    """Pack the im2col rows of windows: (tile, chunk, row, CHUNK)."""
    if length == 0:
        return
    for tile in range(num_blocks(rows, MR)):
        for chunk in range(num_blocks(length, CHUNK)):
            pack_im2col[T](
                p.geometry, group, table.unsafe_offset(tile * MR), min(MR, rows - tile * MR),
                begin + chunk * CHUNK, min(CHUNK, length - chunk * CHUNK),
                a.unsafe_offset(tile * MR * p.block_depth + chunk * MR * CHUNK), CHUNK
            )


@always_inline
def finish[T: DType](p: Conv, sums: Address[wide[T]], place: Int, channel: Int, columns: Int):
    """Add the bias to one row of a tile, round it and store it to the result."""
    ref g = p.geometry
    comptime A = wide[T]
    comptime W = lanes[A]()
    var to = at[T](g.small.data).unsafe_offset(place + channel * g.small.c)
    var bias = at[T](g.bias.data).unsafe_offset(channel * g.bias.c)
    var j = 0
    if contiguous(p):
        while j + W <= columns:
            var value = sums.unsafe_offset(j).unsafe_load[width=W]()
            if g.bias.data != 0:
                value += load[T, W](bias.unsafe_offset(j))
            store[T, W](to.unsafe_offset(j), value)
            j += W
    while j < columns:
        var value = sums[unsafe_offset=j]
        if g.bias.data != 0:
            value += load[T, 1](bias.unsafe_offset(j * g.bias.c))
        store[T, 1](to.unsafe_offset(j * g.small.c), value)
        j += 1
