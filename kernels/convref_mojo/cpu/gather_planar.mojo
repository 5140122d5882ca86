"""The sum over windows of gather.mojo for few results: a vector is adjacent windows of a line.

Rows are results, columns are windows of a line, depth is tap x channel. With fewer results than half a
vector, columns of results would leave most of each vector unused.
"""

from gather_padded import patch_of, set_patches
from simd import Address, Table, at, lanes, load, size, store, wide
from padded import PaddedInput, pack_input, patches
from tile import NV, TO_SCRATCH, Pixels, tile_of_pixels
from windows import Conv, num_blocks, split


@always_inline
def rounded(across: Int, width: Int) -> Int:
    """Return the windows of a line, rounded up to whole vectors."""
    return num_blocks(across, width) * width


def plan_gather_planar[T: DType](mut p: Conv):
    """Set the block sizes if there are few enough results."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref g = p.geometry
    if 2 * g.results > W or g.x.step != 1 or 2 * num_blocks(g.x.count, W) * g.results > g.x.count:
        return
    var lines, across = patches[A](g, 0)
    if lines == 0:
        return
    p.planar = 1
    set_patches(p, lines, across)
    p.workspace_units = g.groups
    p.workspace_bytes = g.groups * g.depth() * width * size[A]()
    var s = PaddedInput(g, p.lines, rounded(across, width))
    p.scratch_bytes = (s.source * g.pairs + g.results * width) * size[A]()


def gather_planar[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref g = p.geometry
    var s = PaddedInput(g, p.lines, rounded(p.across, width))
    var b = at[A](scratch)
    var c = b.unsafe_offset(s.source * g.pairs)
    for unit in range(low, high):
        var group, row_block = split(unit, p.row_blocks)
        var patch = patch_of(p, row_block)
        pack_input[T, planar=True](g, s, patch, group, b)
        var a = at[A](p.workspace).unsafe_offset(group * g.depth() * width)
        for line in range(patch.lines):
            var place = g.small.offset(patch.n, patch.z, patch.y + line, patch.x)
            for j in range(0, patch.across, width):
                var count = min(width, patch.across - j)
                var vectors = (count + W - 1) // W
                sum_taps[A](p, s, line, j, a, b, c, vectors)
                write_planes[T](p, group, place + j * g.small.x, count, vectors * W, c)


@always_inline
def sum_taps[A: DType](
    p: Conv, s: PaddedInput, line: Int, j: Int, a: Address[A], b: Address[A], c: Address[A], vectors: Int
):
    """Sum vectors of windows from window `j` of a line on."""
    comptime W = lanes[A]()
    ref g = p.geometry
    var pixels = Pixels(1, g.channels, 0, W, 0, s.pixels)
    var row = a
    var fresh = True
    for plane in range(g.pairs * g.z.taps):
        for r in range(g.y.taps):
            var start = plane * s.plane + (r * g.y.tap_step + line * g.y.step) * s.line + j
            for t in range(g.x.taps):
                var column = b.unsafe_offset(start + t * g.x.tap_step)
                tile_of_pixels[A](row, column, c, g.results, vectors, pixels, fresh, TO_SCRATCH)
                row = row.unsafe_offset(g.channels * W)
                fresh = False


@always_inline
def write_planes[T: DType](p: Conv, group: Int, place: Int, count: Int, pitch: Int, sums: Address[wide[T]]):
    """Add the bias to the sums of `count` windows, round them and store them to the result."""
    ref g = p.geometry
    comptime A = wide[T]
    comptime W = lanes[A]()
    for i in range(g.results):
        var channel = group * g.results + i
        var bias = Scalar[A](0)
        if g.bias.data != 0:
            bias = load[T, 1](at[T](g.bias.data).unsafe_offset(channel * g.bias.c))
        var to = at[T](g.small.data).unsafe_offset(place + channel * g.small.c)
        var row = sums.unsafe_offset(i * pitch)
        var j = 0
        while g.small.x == 1 and j + W <= count:
            store[T, W](to.unsafe_offset(j), row.unsafe_offset(j).unsafe_load[width=W]() + bias)
            j += W
        while j < count:
            store[T, 1](to.unsafe_offset(j * g.small.x), row[unsafe_offset=j] + bias)
            j += 1
