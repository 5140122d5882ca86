"""The sum over windows of gather.mojo, with rows that are runs of a padded input."""

from gather import Gather, finish, num_blocks
from simd import Address, Table, at, lanes, size, wide
from padded import DEPTH, Patch, PaddedInput, patches, pack_input, pieces
from tile import MR, NV, TO_SCRATCH, Runs, tile_of_runs
from windows import split


def plan_gather_padded[T: DType](mut g: Gather):
    """Set the block sizes if the padded input is taken."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref w = g.windows
    if w.depth() > DEPTH or w.taps() == 1 or 2 * w.count_x <= MR:
        return
    var lines, across = patches[A](w, 0)
    if lines == 0:
        return
    set_patches(g, lines, across)
    g.panels_units = w.groups * g.panels_per_group(width)
    g.panels_bytes = g.panels_units * w.depth() * width * size[A]()
    var s = PaddedInput(w, g.lines, across)
    var elements = s.source * w.sources + MR * width
    g.scratch_bytes = elements * size[A]() + (MR + w.depth() // s.run) * 8


def set_patches(mut g: Gather, lines: Int, across: Int):
    """Set the units to patches of `lines` lines, or fewer where there would be too few units."""
    ref w = g.windows
    var per_line = w.images * w.count_z * pieces(w, across)
    g.lines = lines
    while g.lines > 1 and w.groups * per_line * num_blocks(w.count_y, g.lines) < g.min_units:
        g.lines -= 1
    g.across = across
    g.column_blocks = 1
    g.row_blocks = per_line * num_blocks(w.count_y, g.lines)
    g.units = w.groups * g.row_blocks


@always_inline
def patch_of(g: Gather, row_block: Int) -> Patch:
    """Return the patch of windows that a block of rows consists of."""
    ref w = g.windows
    var rest, x = split(row_block, pieces(w, g.across))
    var image, y = split(rest, num_blocks(w.count_y, g.lines))
    return Patch(w, (image * w.count_y + y * g.lines) * pieces(w, g.across) + x, g.lines, g.across)


def gather_padded[T: DType](g: Gather, scratch: Int, low: Int, high: Int):
    """Compute blocks `low` to `high` of the result."""
    comptime A = wide[T]
    comptime width = NV * lanes[A]()
    ref w = g.windows
    var s = PaddedInput(w, g.lines, g.across)
    var a = at[A](scratch)
    var c = a.unsafe_offset(s.source * w.sources)
    var distances = Table(unsafe_from_address=Int(c.unsafe_offset(MR * width)))
    for i in range(MR):
        distances[unsafe_offset=i] = i * g.dst_x
    var starts = distances.unsafe_offset(MR)
    s.write_starts(w, starts)
    var panels = g.panels_per_group(width)
    for unit in range(low, high):
        var group, row_block = split(unit, g.row_blocks)
        var patch = patch_of(g, row_block)
        pack_input[T](w, s, patch, group, a)
        for panel in range(panels):
            var b = at[A](g.panels).unsafe_offset((group * panels + panel) * w.depth() * width)
            for line in range(patch.lines):
                multiply_line[T](g, s, patch, line, group, panel, a, b, c, distances)


@always_inline
def multiply_line[
    T: DType
](
    g: Gather,
    s: PaddedInput,
    patch: Patch,
    line: Int,
    group: Int,
    panel: Int,
    a: Address[wide[T]],
    b: Address[wide[T]],
    c: Address[wide[T]],
    distances: Table,
):
    """Multiply the windows of a line by a panel of the filter."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = NV * W
    ref w = g.windows
    var columns = min(width, g.results - panel * width)
    var vectors = (columns + W - 1) // W
    var channel = group * g.results + panel * width
    var direct = T == A and g.dst_c == 1 and (g.bias == 0 or g.bias_c == 1)
    direct = direct and columns == vectors * W
    var runs = Runs(Int(distances.unsafe_offset(MR)), s.run, w.step_x * w.channels)
    var place = patch.n * g.dst_n + patch.z * g.dst_z + (patch.y + line) * g.dst_y + patch.x * g.dst_x
    var target = TO_SCRATCH
    if direct:
        target.bias = g.bias + channel * size[T]() if g.bias != 0 else 0
        target.offsets = Int(distances)
        target.offset_step = 1
    for j in range(0, patch.across, MR):
        var rows = min(MR, patch.across - j)
        if direct:
            target.data = g.dst + (place + j * g.dst_x + channel) * size[T]()
        var first = a.unsafe_offset(line * w.step_y * s.line + j * runs.pitch)
        tile_of_runs[A](first, b, c, rows, vectors, w.depth(), runs, True, target)
        if not direct:
            for i in range(rows):
                var sums = c.unsafe_offset(i * vectors * W)
                finish[T](g, sums, place + (j + i) * g.dst_x, channel, columns)
