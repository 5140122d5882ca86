"""The filter gradient (C.3) as a matrix product over windows, with im2col rows packed in parts.

    dw[k, r, c] = sum over images and windows j of small[n, j, k] big[n, j * step + shift[r], c]

Rows are channels of the small side, columns are tap x channel of the big side, depth is the windows.
The sums of a block stay in scratch memory; the tiles of its last windows store the results.
"""

from std.memory import stack_allocation

from simd import AVX512, Address, Table, at, clear, copy, lanes, load, size, store, wide
from tile import MR, NV, TO_SCRATCH, Pixels, tile_of_pixels
from windows import (
    WINDOW_WORDS, Conv, Geometry, Tap, WindowTable, list_windows, num_blocks, pack_im2col, split
)

comptime WINDOWS_PACKED = 128
"""Windows that are packed at a time."""
comptime PITCH = 16 if AVX512 else 8
"""Elements from one window to the next in the packed small side."""
comptime WINDOWS_AT_ONCE = 8
"""Windows of which a panel is packed before the next panel, so that the source is read in order."""
comptime TILES = 16
"""Largest number of tiles of rows in a block."""
comptime PANELS = 8
"""Largest number of panels of columns in a block."""


struct Block(ImplicitlyCopyable):
    """A block of the result: its group, rows and columns."""

    var group: Int
    var first: Int
    var rows: Int
    var left: Int
    var columns: Int

    @always_inline
    def __init__(out self, p: Conv, index: Int, width: Int):
        """Decode the index of a block whose panels are `width` wide."""
        ref g = p.geometry
        var rest, column_block = split(index, p.column_blocks)
        var group, row_block = split(rest, p.row_blocks)
        self.group = group
        self.first = row_block * p.tiles * MR
        self.rows = min(p.tiles * MR, g.results - self.first)
        self.left = column_block * p.panels * width
        self.columns = min(p.panels * width, g.depth() - self.left)


def plan_correlate_im2col[T: DType](mut p: Conv):
    ref g = p.geometry
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    var tiles = num_blocks(g.results, MR)
    var panels = num_blocks(g.depth(), width)
    p.row_blocks = num_blocks(tiles, TILES)
    p.column_blocks = num_blocks(panels, PANELS)
    p.slices = 1
    while p.blocks() < p.min_units and p.column_blocks < panels:
        p.column_blocks += 1
    p.tiles = num_blocks(tiles, p.row_blocks)
    p.panels = num_blocks(panels, p.column_blocks)
    p.column_blocks = num_blocks(panels, p.panels)
    p.units = p.blocks()
    var block = p.tiles * p.panels * MR * width
    p.workspace_bytes = 0
    var elements = p.tiles * WINDOWS_PACKED * PITCH + p.panels * WINDOWS_PACKED * width + block
    p.scratch_bytes = elements * size[A]() + WINDOWS_PACKED * WINDOW_WORDS * 8 + p.tiles * MR * 8
    p.lines = 0


def correlate_im2col[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref g = p.geometry
    var a = at[A](scratch)
    var b = a.unsafe_offset(p.tiles * WINDOWS_PACKED * PITCH)
    var sums = b.unsafe_offset(p.panels * WINDOWS_PACKED * width)
    var block = p.tiles * p.panels * MR * width
    var table = WindowTable(unsafe_from_address=Int(sums.unsafe_offset(block)))
    var offsets = Table(unsafe_from_address=Int(table.unsafe_offset(WINDOWS_PACKED)))
    for i in range(p.tiles * MR):
        offsets[unsafe_offset=i] = i * g.filter.result
    for unit in range(low, high):
        var o = Block(p, unit, width)
        var begin = 0
        var fresh = True
        while True:
            var count = min(WINDOWS_PACKED, g.windows() - begin)
            list_windows(table, g, begin, count)
            pack_small[T](p, o.group * g.results + o.first, o.rows, table, count, a)
            pack_big[T](g, o.group, table, count, o.left, o.columns, b)
            begin += count
            var last = begin >= g.windows()
            for panel in range(num_blocks(o.columns, width)):
                var at_column = o.left + panel * width
                var here = min(width, o.columns - panel * width)
                var vectors = (here + W - 1) // W
                var target = TO_SCRATCH
                if last and T == A and here == vectors * W:
                    var start, contiguous = filter_offset(g, at_column, here)
                    if contiguous:
                        start += o.group * g.filter.group + o.first * g.filter.result
                        target.data = g.filter.data + start * size[T]()
                var of_columns = b.unsafe_offset(panel * WINDOWS_PACKED * width)
                var of_panel = sums.unsafe_offset(panel * p.tiles * MR * width)
                for tile in range(num_blocks(o.rows, MR)):
                    var of_tile = of_panel.unsafe_offset(tile * MR * width)
                    var packed = a.unsafe_offset(tile * WINDOWS_PACKED * PITCH)
                    var tall = min(MR, o.rows - tile * MR)
                    target.offsets = Int(offsets.unsafe_offset(tile * MR))
                    var pixels = Pixels(1, count, 0, PITCH, 0, vectors * W)
                    tile_of_pixels[A](packed, of_columns, of_tile, tall, vectors, pixels, fresh, target)
                if last and target.data == 0:
                    write[T](p, o, at_column, here, of_panel)
            fresh = False
            if last:
                break


@always_inline
def pack_big[T: DType](
    g: Geometry, group: Int, table: WindowTable, count: Int, left: Int, columns: Int, b: Address[wide[T]]
):
    """Pack the im2col rows of windows: (panel, window, column)."""
    comptime W = lanes[wide[T]]()
    comptime width = NV * W
    for turn in range(0, count, WINDOWS_AT_ONCE):
        for panel in range(num_blocks(columns, width)):
            var here = min(width, columns - panel * width)
            var pitch = (here + W - 1) // W * W
            pack_im2col[T](
                g, group, table.unsafe_offset(turn), min(WINDOWS_AT_ONCE, count - turn),
                left + panel * width, here, b.unsafe_offset(panel * WINDOWS_PACKED * width + turn * pitch),
                pitch
            )


@always_inline
def pack_small[T: DType](
    p: Conv, channel: Int, rows: Int, table: WindowTable, count: Int, a: Address[wide[T]]
):
    """Pack channels of the small side: (tile, window, PITCH)."""
    ref g = p.geometry
    var start = at[T](g.small.data).unsafe_offset(channel * g.small.c)
    for i in range(count):
        var here = start.unsafe_offset(table[unsafe_offset=i].place)
        for tile in range(num_blocks(rows, MR)):
            var to = a.unsafe_offset((tile * WINDOWS_PACKED + i) * PITCH)
            var begin = here.unsafe_offset(tile * MR * g.small.c)
            if g.small.c == 1 and rows - tile * MR >= PITCH:
                copy[T](to, begin, PITCH, 1)
            else:
                copy[T](to, begin, min(MR, rows - tile * MR), g.small.c)


def write[T: DType](p: Conv, o: Block, left: Int, columns: Int, sums: Address[wide[T]]):
    """Round one panel of a block's sums and store it to the filter gradient."""
    ref g = p.geometry
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    var offsets = stack_allocation[width, Int]()
    var tap = Tap(g, left)
    for j in range(columns):
        offsets[unsafe_offset=j] = g.filter.offset(tap)
        tap.step(g)
    var start, contiguous = filter_offset(g, left, columns)
    var line = (columns + W - 1) // W * W
    for i in range(o.rows):
        var tile, r = split(i, MR)
        var from_ = sums.unsafe_offset(tile * MR * width + r * line)
        var to = at[T](g.filter.data).unsafe_offset(
            o.group * g.filter.group + (o.first + i) * g.filter.result
        )
        var j = 0
        if contiguous:
            var begin = to.unsafe_offset(start)
            while j + W <= columns:
                store[T, W](begin.unsafe_offset(j), from_.unsafe_offset(j).unsafe_load[width=W]())
                j += W
        while j < columns:
            store[T, 1](to.unsafe_offset(offsets[unsafe_offset=j]), from_[unsafe_offset=j])
            j += 1


def filter_offset(g: Geometry, left: Int, columns: Int) -> Tuple[Int, Bool]:
    """Return the offset of column `left` in a filter, and whether the columns are contiguous there."""
    var tap = Tap(g, left)
    var start = g.filter.offset(tap)
    for j in range(1, columns):
        tap.step(g)
        if g.filter.offset(tap) != start + j:
            return start, False
    return start, True
