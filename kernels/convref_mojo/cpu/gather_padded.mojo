"""The sum over windows of gather.mojo, whose rows are read from strips."""

from gather import Gather, finish, parts
from simd import Address, Table, at, lanes, size, wide
from padded import DEPTH, Patch, Strip, patches, pack_strip, pieces
from tile import MR, NV, UNFINISHED, Runs, slide
from windows import split


def plan_gather_strips[T: DType](mut g: Gather):
    """Choose the blocks, if strips shall be read."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref w = g.windows
    if w.depth() > DEPTH or w.taps() == 1 or 2 * w.count_x <= MR:
        return
    var lines, across = patches[A](w, 0)
    if lines == 0:
        return
    g.column_blocks = 1
    var units = w.groups * w.images * w.count_z * pieces(w, across)
    while lines > 1 and units * parts(w.count_y, lines) < g.wanted:
        lines -= 1
    g.lines = lines
    g.across = across
    g.row_blocks = w.images * w.count_z * parts(w.count_y, lines) * pieces(w, across)
    g.units = w.groups * g.row_blocks
    g.panels_units = w.groups * g.panels_per_group(width)
    g.panels_bytes = g.panels_units * w.depth() * width * size[A]()
    var s = Strip(w, lines, across)
    var numbers = s.source * w.sources + MR * width
    g.scratch_bytes = numbers * size[A]() + (MR + w.depth() // s.run) * 8


def gather_strips[T: DType](g: Gather, scratch: Int, low: Int, high: Int):
    """Compute blocks `low` to `high` of the result."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref w = g.windows
    var s = Strip(w, g.lines, g.across)
    var a = at[A](scratch)
    var c = a.unsafe_offset(s.source * w.sources)
    var distances = Table(unsafe_from_address=Int(c.unsafe_offset(MR * width)))
    for i in range(MR):
        distances[unsafe_offset=i] = i * g.dst_x
    var starts = distances.unsafe_offset(MR)
    s.lay_starts(w, starts)
    var panels = g.panels_per_group(width)
    for unit in range(low, high):
        var group, row_block = split(unit, g.row_blocks)
        var rest, x = split(row_block, pieces(w, g.across))
        var image, y = split(rest, parts(w.count_y, g.lines))
        var line = (image * w.count_y + y * g.lines) * pieces(w, g.across) + x
        var patch = Patch(w, line, g.lines, g.across)
        pack_strip[T](w, s, patch, group, a)
        for panel in range(panels):
            var b = at[A](g.panels).unsafe_offset((group * panels + panel) * w.depth() * width)
            for line in range(patch.lines):
                multiply_line[T](g, s, patch, line, group, panel, a, b, c, distances)


@always_inline
def multiply_line[
    T: DType
](
    g: Gather,
    s: Strip,
    patch: Patch,
    line: Int,
    group: Int,
    panel: Int,
    a: Address[wide[T]],
    b: Address[wide[T]],
    c: Address[wide[T]],
    distances: Table,
):
    """Multiply the windows of a line with a panel of the filter."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = g.windows
    var columns = min(width, g.results - panel * width)
    var vectors = (columns + W - 1) // W
    var channel = group * g.results + panel * width
    var plain = T == A and g.dst_c == 1 and (g.bias == 0 or g.bias_c == 1)
    plain = plain and columns == vectors * W
    var runs = Runs(Int(distances.unsafe_offset(MR)), s.run, w.step_x * w.channels)
    var place = patch.n * g.dst_n + patch.z * g.dst_z + (patch.y + line) * g.dst_y + patch.x * g.dst_x
    var target = UNFINISHED
    if plain:
        target.bias = g.bias + channel * size[T]() if g.bias != 0 else 0
        target.places = Int(distances)
        target.apart = 1
    for j in range(0, patch.across, MR):
        var rows = min(MR, patch.across - j)
        if plain:
            target.data = g.dst + (place + j * g.dst_x + channel) * size[T]()
        var first = a.unsafe_offset(line * w.step_y * s.line + j * runs.pitch)
        slide[A](first, b, c, rows, vectors, w.depth(), runs, True, target)
        if not plain:
            for i in range(rows):
                var sums = c.unsafe_offset(i * vectors * W)
                finish[T](g, sums, place + (j + i) * g.dst_x, channel, columns)
