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
from windows import WINDOW_WORDS, Tap, Window, Windows, pack_im2col, list_windows, split

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


struct Filter(ImplicitlyCopyable):
    """A filter: its address, strides in elements and the offset of each tap."""

    var data: Int
    var group: Int
    var channel: Int  # stride of the channels that are summed over
    var result: Int
    var taps: Int  # address of the offsets of all taps: z, then y, then x


struct Gather(ImplicitlyCopyable):
    """One launch. Python sets the fields before `panels_bytes`, the plan those from there on."""

    var windows: Windows
    var results: Int  # channels of dst, per group
    var dst: Int
    var dst_n: Int
    var dst_c: Int
    var dst_z: Int
    var dst_y: Int
    var dst_x: Int
    var bias: Int  # address, 0 for none
    var bias_c: Int
    var first: Filter
    var second: Filter
    var panels: Int  # address of the packed filter
    var min_units: Int  # to aim for, so that all threads have work

    var panels_bytes: Int  # 0 if panels are packed just before they are used
    var panels_units: Int
    var scratch_bytes: Int  # of each thread
    var units: Int
    var block_depth: Int
    var tiles: Int  # tiles of rows in a block
    var row_blocks: Int
    var column_blocks: Int
    var lines: Int  # of windows in a block with a padded input, 0 for im2col
    var across: Int  # windows of such a line
    var planar: Int  # 1 if pixels of the padded input are contiguous, 0 if channels are

    @always_inline
    def panels_per_group(self, width: Int) -> Int:
        """Return the number of panels of `width` columns of a group."""
        return (self.results + width - 1) // width


@always_inline
def num_blocks(total: Int, most: Int) -> Int:
    """Return the number of blocks of at most `most` elements, at least 1."""
    return max(1, (total + most - 1) // most)


def plan_gather_im2col[T: DType](mut g: Gather):
    """Set the block sizes and the memory that they need."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    var depth = g.windows.depth()
    var blocks = max(1, (depth + MAX_DEPTH - 1) // MAX_DEPTH)
    var chunks = max(1, (depth + CHUNK - 1) // CHUNK)
    g.block_depth = (chunks + blocks - 1) // blocks * CHUNK
    var rows = g.windows.windows()
    var all_tiles = (rows + MR - 1) // MR
    var most = max(1, CACHED // (MR * g.block_depth * size[A]()))
    if most < all_tiles <= TILES:  # with less depth, all rows fit into one block
        g.block_depth = CACHED // (MR * all_tiles * size[A]()) // CHUNK * CHUNK
        most = all_tiles
    g.tiles = max(1, min(TILES, min(most, all_tiles)))
    var panels = g.panels_per_group(width)
    g.column_blocks = (panels + PANELS - 1) // PANELS
    while g.tiles > 1 and g.windows.groups * num_blocks(all_tiles, g.tiles) * g.column_blocks < g.min_units:
        g.tiles -= 1
    g.row_blocks = num_blocks(all_tiles, g.tiles)
    g.units = g.windows.groups * g.row_blocks * g.column_blocks
    g.panels_units = g.windows.groups * panels
    g.panels_bytes = g.panels_units * depth * width * size[A]() if g.row_blocks > 1 else 0
    var elements = g.tiles * MR * g.block_depth + g.tiles * PANELS * MR * width + g.block_depth * width
    g.scratch_bytes = elements * size[A]() + (g.tiles * MR * WINDOW_WORDS + g.block_depth // CHUNK) * 8
    g.lines = 0
    g.planar = 0


def pack_filter[T: DType](g: Gather, low: Int, high: Int):
    """Write panels `low` to `high` of the packed filter: (group, panel, depth, column)."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    var depth = g.windows.depth()
    var panels = g.panels_per_group(width)
    for unit in range(low, high):
        var group, panel = split(unit, panels)
        pack_panel[T](g, group, panel, 0, depth, at[A](g.panels).unsafe_offset(unit * depth * width))


def pack_panel[
    T: DType
](g: Gather, group: Int, panel: Int, begin: Int, length: Int, start: Address[wide[T]]):
    """Write depths `begin` to `begin + length` of a panel: (depth, column)."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = g.windows
    var columns = min(width, g.results - panel * width)
    var line = W if columns <= W else width
    var to = start
    var done = 0
    while done < length:
        var tap = Tap(w, begin + done)
        ref filter = g.first if tap.source == 0 else g.second
        var offsets = Table(unsafe_from_address=filter.taps)
        var from_ = group * filter.group + panel * width * filter.result + tap.c * filter.channel
        from_ += offsets[unsafe_offset=tap.t]
        from_ += offsets[unsafe_offset=w.taps_z + tap.r]
        from_ += offsets[unsafe_offset=w.taps_z + w.taps_y + tap.s]
        var rows = min(w.channels - tap.c, length - done)
        var first = at[T](filter.data).unsafe_offset(from_)
        pack_matrix[T](to, first, filter.channel, filter.result, rows, columns, line)
        to = to.unsafe_offset(rows * line)
        done += rows


@always_inline
def pack_matrix[
    T: DType
](
    to: Address[wide[T]],
    start: Address[T],
    down: Int,
    across: Int,
    rows: Int,
    columns: Int,
    line: Int,
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


def gather_im2col[T: DType](g: Gather, scratch: Int, low: Int, high: Int):
    """Compute blocks `low` to `high` of the result."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = g.windows
    var a = at[A](scratch)
    var c = a.unsafe_offset(g.tiles * MR * g.block_depth)
    var own = c.unsafe_offset(g.tiles * PANELS * MR * width)
    var table = Pointer[Window, MutAnyOrigin](
        unsafe_from_address=Int(own.unsafe_offset(g.block_depth * width))
    )
    var starts = Table(unsafe_from_address=Int(table.unsafe_offset(g.tiles * MR)))
    for chunk in range(g.block_depth // CHUNK):
        starts[unsafe_offset=chunk] = chunk * MR * CHUNK
    var runs = Runs(Int(starts), CHUNK, CHUNK)
    var depth = w.depth()
    var panels = g.panels_per_group(width)
    var direct = T == A and g.dst_c == 1 and (g.bias == 0 or g.bias_c == 1)
    for unit in range(low, high):
        var rest, column_block = split(unit, g.column_blocks)
        var group, row_block = split(rest, g.row_blocks)
        var first = row_block * g.tiles * MR
        var rows = min(g.tiles * MR, w.windows() - first)
        list_windows(table, w, first, rows, g.dst_n, g.dst_z, g.dst_y, g.dst_x)
        var begin = 0
        while True:
            var length = min(g.block_depth, depth - begin)
            pack_rows[T](g, group, table, rows, begin, length, a)
            var last = begin + length >= depth
            for p in range(column_block * PANELS, min(panels, (column_block + 1) * PANELS)):
                var columns = min(width, g.results - p * width)
                var vectors = (columns + W - 1) // W
                var b = own
                if g.panels_bytes == 0:
                    pack_panel[T](g, group, p, begin, length, own)
                else:
                    b = at[A](g.panels).unsafe_offset(
                        (group * panels + p) * depth * width + begin * vectors * W
                    )
                for tile in range((rows + MR - 1) // MR):
                    var here = min(MR, rows - tile * MR)
                    var sums = c.unsafe_offset(
                        ((p - column_block * PANELS) * g.tiles + tile) * MR * width
                    )
                    var packed = a.unsafe_offset(tile * MR * g.block_depth)
                    var channel = group * g.results + p * width
                    var target = TO_SCRATCH
                    if last and direct and columns == vectors * W:
                        target.data = g.dst + channel * size[T]()
                        target.bias = g.bias + channel * size[T]() if g.bias != 0 else 0
                        target.offsets = Int(table.unsafe_offset(tile * MR))
                        target.offset_step = WINDOW_WORDS
                    var fresh = begin == 0
                    tile_of_runs[A, CHUNK](packed, b, sums, here, vectors, length, runs, fresh, target)
                    if last and target.data == 0:
                        for i in range(here):
                            finish[T](
                                g,
                                sums.unsafe_offset(i * vectors * W),
                                table[unsafe_offset=tile * MR + i].place,
                                channel,
                                columns,
                            )
            begin += length
            if last:
                break


@always_inline
def pack_rows[
    T: DType
](
    g: Gather,
    group: Int,
    table: Pointer[Window, MutAnyOrigin],
    rows: Int,
    begin: Int,
    length: Int,
    a: Address[wide[T]],
):
    """Pack the im2col rows of windows: (tile, chunk, row, CHUNK)."""
    if length == 0:
        return
    for tile in range(num_blocks(rows, MR)):
        for chunk in range(num_blocks(length, CHUNK)):
            pack_im2col[T](
                g.windows,
                group,
                table.unsafe_offset(tile * MR),
                min(MR, rows - tile * MR),
                begin + chunk * CHUNK,
                min(CHUNK, length - chunk * CHUNK),
                a.unsafe_offset(tile * MR * g.block_depth + chunk * MR * CHUNK),
                CHUNK,
            )


@always_inline
def finish[
    T: DType
](g: Gather, sums: Address[wide[T]], place: Int, channel: Int, columns: Int):
    """Add the bias to one row of a tile, round it and store it to the result."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    var to = at[T](g.dst).unsafe_offset(place + channel * g.dst_c)
    var bias = at[T](g.bias).unsafe_offset(channel * g.bias_c)
    var j = 0
    if g.dst_c == 1 and (g.bias == 0 or g.bias_c == 1):
        while j + W <= columns:
            var value = sums.unsafe_offset(j).unsafe_load[width=W]()
            if g.bias != 0:
                value += load[T, W](bias.unsafe_offset(j))
            store[T, W](to.unsafe_offset(j), value)
            j += W
    while j < columns:
        var value = sums[unsafe_offset=j]
        if g.bias != 0:
            value += load[T, 1](bias.unsafe_offset(j * g.bias_c))
        store[T, 1](to.unsafe_offset(j * g.dst_c), value)
        j += 1
