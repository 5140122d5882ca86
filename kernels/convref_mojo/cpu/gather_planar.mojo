"""The sum over windows of gather.mojo for few results: a vector is adjacent windows of a line.

Rows are results, columns are windows of a line, depth is tap x channel. With fewer results than half a
vector, columns of results would leave most of each vector unused.
"""

from gather import Gather, num_blocks
from gather_padded import patch_of, set_patches
from simd import Address, Table, at, lanes, load, size, store, wide
from padded import PaddedInput, pack_input, patches
from tile import NV, TO_SCRATCH, Pixels, tile_of_pixels
from windows import split


@always_inline
def rounded(across: Int, width: Int) -> Int:
    """Return the windows of a line, rounded up to whole vectors."""
    return num_blocks(across, width) * width


def plan_gather_planar[T: DType](mut g: Gather):
    """Set the block sizes if there are few enough results."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = g.windows
    if 2 * g.results > W or w.step_x != 1 or 2 * num_blocks(w.count_x, W) * g.results > w.count_x:
        return
    var lines, across = patches[A](w, 0)
    if lines == 0:
        return
    g.planar = 1
    set_patches(g, lines, across)
    g.panels_units = w.groups
    g.panels_bytes = w.groups * w.depth() * width * size[A]()
    var s = PaddedInput(w, g.lines, rounded(across, width))
    g.scratch_bytes = (s.source * w.sources + g.results * width) * size[A]()


def gather_planar[T: DType](g: Gather, scratch: Int, low: Int, high: Int):
    """Compute blocks `low` to `high` of the result."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = g.windows
    var s = PaddedInput(w, g.lines, rounded(g.across, width))
    var b = at[A](scratch)
    var c = b.unsafe_offset(s.source * w.sources)
    for unit in range(low, high):
        var group, row_block = split(unit, g.row_blocks)
        var patch = patch_of(g, row_block)
        pack_input[T, planar=True](w, s, patch, group, b)
        var a = at[A](g.panels).unsafe_offset(group * w.depth() * width)
        for line in range(patch.lines):
            var place = patch.n * g.dst_n + patch.z * g.dst_z
            place += (patch.y + line) * g.dst_y + patch.x * g.dst_x
            for j in range(0, patch.across, width):
                var count = min(width, patch.across - j)
                var vectors = (count + W - 1) // W
                sum_taps[A](g, s, line, j, a, b, c, vectors)
                write_planes[T](g, group, place + j * g.dst_x, count, vectors * W, c)


@always_inline
def sum_taps[
    A: DType
](
    g: Gather,
    s: PaddedInput,
    line: Int,
    j: Int,
    a: Address[A],
    b: Address[A],
    c: Address[A],
    vectors: Int,
):
    """Sum vectors of windows from window `j` of a line on."""
    comptime W = lanes[A]()
    ref w = g.windows
    var ys = w.shifts().unsafe_offset(w.taps_z)
    var xs = ys.unsafe_offset(w.taps_y)
    var pixels = Pixels(1, w.channels, 0, W, 0, s.pixels)
    var row = a
    var fresh = True
    for plane in range(w.sources * w.taps_z):
        for r in range(w.taps_y):
            var start = plane * s.plane + (ys[unsafe_offset=r] - ys[] + line * w.step_y) * s.line + j
            for t in range(w.taps_x):
                var column = b.unsafe_offset(start + xs[unsafe_offset=t] - xs[])
                tile_of_pixels[A](row, column, c, g.results, vectors, pixels, fresh, TO_SCRATCH)
                row = row.unsafe_offset(w.channels * W)
                fresh = False


@always_inline
def write_planes[
    T: DType
](g: Gather, group: Int, place: Int, count: Int, pitch: Int, sums: Address[wide[T]]):
    """Add the bias to the sums of `count` windows, round them and store them to the result."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    for i in range(g.results):
        var channel = group * g.results + i
        var bias = Scalar[A](0)
        if g.bias != 0:
            bias = load[T, 1](at[T](g.bias).unsafe_offset(channel * g.bias_c))
        var to = at[T](g.dst).unsafe_offset(place + channel * g.dst_c)
        var row = sums.unsafe_offset(i * pitch)
        var j = 0
        while g.dst_x == 1 and j + W <= count:
            store[T, W](to.unsafe_offset(j), row.unsafe_offset(j).unsafe_load[width=W]() + bias)
            j += W
        while j < count:
            store[T, 1](to.unsafe_offset(j * g.dst_x), row[unsafe_offset=j] + bias)
            j += 1
