"""The sum over windows of gather.mojo, with rows that are runs of a padded input."""

from gather import contiguous, finish, panels_per_group
from simd import Address, Table, at, lanes, size, wide
from padded import DEPTH, Patch, PaddedInput, patches, pack_input, pieces
from tile import MR, NV, TO_SCRATCH, Runs, tile_of_runs
from windows import Conv, num_blocks, split

comptime STEM = 2 * 3
"""Elements from one window to the next in most first layers: stride times channels. Where one vector of results
is multiplied, the additions of a pitch that is unknown take as long as the products."""
comptime WIDE = 4
"""Fewest tiles of a line that are read in place: the first and the last one are packed."""


def plan_gather_padded[T: DType](mut p: Conv):
    """Set the block sizes if the padded input is taken."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref g = p.geometry
    if g.depth() > DEPTH or g.taps() == 1 or (2 * g.x.count <= MR and g.results > width):
        return
    var lines, across = patches[A](g, 0)
    if lines == 0:
        return
    set_patches(p, lines, across)
    p.workspace_units = g.groups * panels_per_group(p, width)
    p.workspace_bytes = p.workspace_units * g.depth() * width * size[A]()
    # Rows that only one panel reads, and reads as they are, are not worth a copy.
    var contiguous = g.big.c == 1 and g.big.x == g.channels
    p.in_place = 1 if T == A and contiguous and g.pairs * p.workspace_units == 1 and across >= WIDE * MR else 0
    var s = padded_input(p)
    var elements = s.source * g.pairs + MR * width
    p.scratch_bytes = elements * size[A]() + (MR + 2 * (g.depth() // s.run)) * 8


@always_inline
def padded_input(p: Conv) -> PaddedInput:
    """Return the padded input of a patch, or of a tile if the others are read in place."""
    ref g = p.geometry
    return PaddedInput(g, 1, MR) if p.in_place == 1 else PaddedInput(g, p.lines, p.across)


def set_patches(mut p: Conv, lines: Int, across: Int):
    """Set the units to patches of `lines` lines, or fewer where there would be too few units."""
    ref g = p.geometry
    var per_line = g.images * g.z.count * pieces(g, across)
    p.lines = lines
    while p.lines > 1 and g.groups * per_line * num_blocks(g.y.count, p.lines) < p.min_units:
        p.lines -= 1
    p.across = across
    p.column_blocks = 1
    p.row_blocks = per_line * num_blocks(g.y.count, p.lines)
    p.units = g.groups * p.row_blocks


@always_inline
def patch_of(p: Conv, row_block: Int) -> Patch:
    ref g = p.geometry
    var rest, x = split(row_block, pieces(g, p.across))
    var image, y = split(rest, num_blocks(g.y.count, p.lines))
    return Patch(g, (image * g.y.count + y * p.lines) * pieces(g, p.across) + x, p.lines, p.across)


def gather_padded[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref g = p.geometry
    var s = padded_input(p)
    var a = at[A](scratch)
    var c = a.unsafe_offset(s.source * g.pairs)
    var distances = Table(unsafe_from_address=Int(c.unsafe_offset(MR * width)))
    for i in range(MR):
        distances[unsafe_offset=i] = i * g.small.x
    var starts = distances.unsafe_offset(MR)
    s.write_starts(g, starts)
    var in_place = starts.unsafe_offset(g.depth() // s.run)
    s.write_offsets(g, in_place, g.z.tap_step * g.big.z, g.y.tap_step * g.big.y, g.x.tap_step * g.big.x)
    var panels = panels_per_group(p, width)
    for unit in range(low, high):
        var group, row_block = split(unit, p.row_blocks)
        var patch = patch_of(p, row_block)
        if p.in_place == 0:
            pack_input[T](g, s, patch, group, a)
        for panel in range(panels):
            var b = at[A](p.workspace).unsafe_offset((group * panels + panel) * g.depth() * width)
            for line in range(patch.lines):
                multiply_line[T](p, s, patch, line, group, panel, a, b, c, distances)


@always_inline
def multiply_line[T: DType](
    p: Conv, s: PaddedInput, patch: Patch, line: Int, group: Int, panel: Int, a: Address[wide[T]],
    b: Address[wide[T]], c: Address[wide[T]], distances: Table
):
    """Multiply the windows of a line by a panel of the filter."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref g = p.geometry
    var columns = min(width, g.results - panel * width)
    var vectors = (columns + W - 1) // W
    var channel = group * g.results + panel * width
    var direct = T == A and contiguous(p) and columns == vectors * W
    var runs = Runs(Int(distances.unsafe_offset(MR)), s.run, g.x.step * g.channels)
    var place = g.small.offset(patch.n, patch.z, patch.y + line, patch.x)
    var target = TO_SCRATCH
    if direct:
        target.bias = g.bias.data + channel * size[T]() if g.bias.data != 0 else 0
        target.offsets = Int(distances)
    for j in range(0, patch.across, MR):
        var rows = min(MR, patch.across - j)
        if direct:
            target.data = g.small.data + (place + j * g.small.x + channel) * size[T]()
        var first = a.unsafe_offset(line * g.y.step * s.line + j * runs.pitch)
        if p.in_place == 1:
            var tile = Patch(patch.n, patch.z, patch.y + line, patch.x + j, 1, rows)
            runs.starts = Int(distances.unsafe_offset(MR))
            first = a
            if tile.is_inside(g):
                runs.starts += g.depth() // s.run * 8
                first = at[A](g.big.data).unsafe_offset(tile.first(g))
            else:
                pack_input[T](g, s, tile, group, a)
        if runs.pitch == STEM:
            tile_of_runs[A, STEM](first, b, c, rows, vectors, g.depth(), runs, True, target)
        else:
            tile_of_runs[A](first, b, c, rows, vectors, g.depth(), runs, True, target)
        if not direct:
            for i in range(rows):
                var sums = c.unsafe_offset(i * vectors * W)
                finish[T](p, sums, place + (j + i) * g.small.x, channel, columns)
