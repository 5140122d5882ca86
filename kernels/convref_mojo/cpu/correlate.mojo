"""The filter gradient (C.3) as a matrix product over windows, packed a piece at a time.

    dw[k, r, c] = sum over images and windows j of small[n, j, k] big[n, j * step + shift[r], c]

Rows are channels of the small side, columns are tap x channel of the big side as in a row of
windows, depth is the windows. The sums of a block stay in scratch memory until its last windows, whose tiles
write results.
"""

from std.memory import stack_allocation

from gather import Filter, parts
from simd import AVX512, Address, Table, at, clear, copy, lanes, load, size, store, wide
from tile import MR, NV, UNFINISHED, Pixels, sweep
from windows import WORDS, Source, Tap, Window, Windows, lay_rows, lay_windows, split

comptime PIECE = 128
"""Windows that are packed at a time."""
comptime PITCH = 16 if AVX512 else 8
"""Distance of windows where channels of the small side are packed."""
comptime TURN = 8
"""Windows whose rows are packed side by side: what they read is then read from end to end."""
comptime TILES = 16
"""Tiles of rows in a block at most."""
comptime PANELS = 8
"""Panels of columns in a block at most."""


struct Correlate(ImplicitlyCopyable):
    """One launch. Python fills in what comes before `scratch_bytes`, the plan the rest."""

    var windows: Windows
    var small: Source
    var rows: Int  # channels of the small side, per group
    var dst: Filter
    var wanted: Int  # units that there should be at least
    var sums: Int  # address of the sums of all units

    var scratch_bytes: Int  # of each thread
    var sums_bytes: Int  # 0 where they are written at once
    var units: Int
    var slices: Int  # of the lines of windows, summed apart and added up at the end
    var tiles: Int  # tiles of rows in a block
    var row_blocks: Int
    var panels: Int  # panels of columns in a block
    var column_blocks: Int
    var lines: Int  # of windows in a block that reads a strip, 0 where rows are packed
    var across: Int  # windows of such a line

    @always_inline
    def blocks(self) -> Int:
        """Return how many blocks the result has."""
        return self.windows.groups * self.row_blocks * self.column_blocks


struct Block(ImplicitlyCopyable):
    """A block of the result: its group, and which rows and columns of that it has."""

    var group: Int
    var first: Int
    var rows: Int
    var left: Int
    var columns: Int

    @always_inline
    def __init__(out self, p: Correlate, index: Int, width: Int):
        """Decode the index of a block whose panels are `width` wide."""
        var rest, column_block = split(index, p.column_blocks)
        var group, row_block = split(rest, p.row_blocks)
        self.group = group
        self.first = row_block * p.tiles * MR
        self.rows = min(p.tiles * MR, p.rows - self.first)
        self.left = column_block * p.panels * width
        self.columns = min(p.panels * width, p.windows.depth() - self.left)


def plan_correlate_rows[T: DType](mut p: Correlate):
    """Choose the blocks and say how much memory they need."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    var tiles = parts(p.rows, MR)
    var panels = parts(p.windows.depth(), width)
    p.row_blocks = parts(tiles, TILES)
    p.column_blocks = parts(panels, PANELS)
    p.slices = 1
    while p.blocks() < p.wanted and p.column_blocks < panels:
        p.column_blocks += 1
    p.tiles = parts(tiles, p.row_blocks)
    p.panels = parts(panels, p.column_blocks)
    p.column_blocks = parts(panels, p.panels)
    p.units = p.blocks()
    var block = p.tiles * p.panels * MR * width
    p.sums_bytes = 0
    var numbers = p.tiles * PIECE * PITCH + p.panels * PIECE * width + block
    p.scratch_bytes = numbers * size[A]() + PIECE * WORDS * 8 + p.tiles * MR * 8
    p.lines = 0


def correlate_rows[T: DType](p: Correlate, scratch: Int, low: Int, high: Int):
    """Compute blocks `low` to `high` of the result."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = p.windows
    var a = at[A](scratch)
    var b = a.unsafe_offset(p.tiles * PIECE * PITCH)
    var sums = b.unsafe_offset(p.panels * PIECE * width)
    var block = p.tiles * p.panels * MR * width
    var table = Pointer[Window, MutAnyOrigin](unsafe_from_address=Int(sums.unsafe_offset(block)))
    var distances = Table(unsafe_from_address=Int(table.unsafe_offset(PIECE)))
    for i in range(p.tiles * MR):
        distances[unsafe_offset=i] = i * p.dst.result
    for unit in range(low, high):
        var o = Block(p, unit, width)
        var begin = 0
        var fresh = True
        while True:
            var count = min(PIECE, w.windows() - begin)
            lay_windows(table, w, begin, count, p.small.n, p.small.z, p.small.y, p.small.x)
            pack_small[T](p, o.group * p.rows + o.first, o.rows, table, count, a)
            pack_big[T](w, o.group, table, count, o.left, o.columns, b)
            begin += count
            var last = begin >= w.windows()
            for panel in range(parts(o.columns, width)):
                var at_column = o.left + panel * width
                var here = min(width, o.columns - panel * width)
                var vectors = (here + W - 1) // W
                var target = UNFINISHED
                if last and T == A and here == vectors * W:
                    var start, beside = place_of(p, at_column, here)
                    if beside:
                        start += o.group * p.dst.group + o.first * p.dst.result
                        target.data = p.dst.data + start * size[T]()
                        target.apart = 1
                var of_columns = b.unsafe_offset(panel * PIECE * width)
                var of_panel = sums.unsafe_offset(panel * p.tiles * MR * width)
                for tile in range(parts(o.rows, MR)):
                    var of_tile = of_panel.unsafe_offset(tile * MR * width)
                    var packed = a.unsafe_offset(tile * PIECE * PITCH)
                    var tall = min(MR, o.rows - tile * MR)
                    target.places = Int(distances.unsafe_offset(tile * MR))
                    var pixels = Pixels(1, count, 0, PITCH, 0, vectors * W)
                    sweep[A](packed, of_columns, of_tile, tall, vectors, pixels, fresh, target)
                if last and target.data == 0:
                    write[T](p, o, at_column, here, of_panel)
            fresh = False
            if last:
                break


@always_inline
def pack_big[
    T: DType
](
    w: Windows,
    group: Int,
    table: Pointer[Window, MutAnyOrigin],
    count: Int,
    left: Int,
    columns: Int,
    b: Address[wide[T]],
):
    """Pack what windows read: (panel, window, column)."""
    comptime W = lanes[wide[T]]()
    comptime width = NV * W
    for turn in range(0, count, TURN):
        for panel in range(parts(columns, width)):
            var here = min(width, columns - panel * width)
            var pitch = (here + W - 1) // W * W
            lay_rows[T](
                w,
                group,
                table.unsafe_offset(turn),
                min(TURN, count - turn),
                left + panel * width,
                here,
                b.unsafe_offset(panel * PIECE * width + turn * pitch),
                pitch,
            )


@always_inline
def pack_small[
    T: DType
](
    p: Correlate,
    channel: Int,
    rows: Int,
    table: Pointer[Window, MutAnyOrigin],
    count: Int,
    a: Address[wide[T]],
):
    """Pack channels of the small side: (tile, window, PITCH)."""
    var start = at[T](p.small.data).unsafe_offset(channel * p.small.c)
    for i in range(count):
        var here = start.unsafe_offset(table[unsafe_offset=i].place)
        for tile in range(parts(rows, MR)):
            var to = a.unsafe_offset((tile * PIECE + i) * PITCH)
            var begin = here.unsafe_offset(tile * MR * p.small.c)
            if p.small.c == 1 and rows - tile * MR >= PITCH:
                copy[T](to, begin, PITCH, 1)
            else:
                copy[T](to, begin, min(MR, rows - tile * MR), p.small.c)


def write[
    T: DType
](
    p: Correlate,
    o: Block,
    left: Int,
    columns: Int,
    sums: Address[wide[T]],
):
    """Round one panel of a block's sums, and write it to the filter gradient."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    var offsets = stack_allocation[width, Int]()
    for j in range(columns):
        offsets[unsafe_offset=j] = column(p, left + j)
    var start, beside = place_of(p, left, columns)
    var line = (columns + W - 1) // W * W
    for i in range(o.rows):
        var tile, r = split(i, MR)
        var from_ = sums.unsafe_offset(tile * MR * width + r * line)
        var to = at[T](p.dst.data).unsafe_offset(
            o.group * p.dst.group + (o.first + i) * p.dst.result
        )
        var j = 0
        if beside:
            var begin = to.unsafe_offset(start)
            while j + W <= columns:
                store[T, W](begin.unsafe_offset(j), from_.unsafe_offset(j).unsafe_load[width=W]())
                j += W
        while j < columns:
            store[T, 1](to.unsafe_offset(offsets[unsafe_offset=j]), from_[unsafe_offset=j])
            j += 1


def place_of(p: Correlate, left: Int, columns: Int) -> Tuple[Int, Bool]:
    """Return where columns from `left` on begin in a filter, and whether they lie side by side."""
    var start = column(p, left)
    var beside = True
    for j in range(1, columns):
        beside = beside and column(p, left + j) == start + j
    return start, beside


@always_inline
def column(p: Correlate, k: Int) -> Int:
    """Return where position `k` of a row of windows lies in a filter."""
    ref w = p.windows
    var tap = Tap(w, k)
    var offsets = Table(unsafe_from_address=p.dst.taps)
    var z = offsets[unsafe_offset=tap.t]
    var y = offsets[unsafe_offset=w.taps_z + tap.r]
    var x = offsets[unsafe_offset=w.taps_z + w.taps_y + tap.s]
    return z + y + x + tap.c * p.dst.channel
