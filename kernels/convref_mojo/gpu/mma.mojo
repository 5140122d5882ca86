"""Implicit matrix products of bfloat16 by mma.sync m16n8k16 with float32 accumulators.

A block of four warps computes a tile of ROWS x COLUMNS; both operands are staged in shared memory,
DEPTH of the reduction per stage. Rows there are PITCH apart, so that the eight rows of a fragment are in
different banks. A gather copies the next stages while it multiplies one: contiguous 16 bytes by
cp.async, three stages ahead, with zeros where a tap is outside.
"""

from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_idx, thread_idx
from max.gpu.compute.mma import mma
from max.gpu.memory import async_copy, async_copy_commit_group, async_copy_wait_group
from max.gpu.sync import barrier
from std.memory import stack_allocation
from std.memory.address_space import AddressSpace
from std.utils import StaticTuple

from direct import Elements
from geometry import Geometry, Window, read_at, split, tap_of, window_of

comptime T = DType.bfloat16
comptime ROWS = 64
comptime COLUMNS = 64
comptime DEPTH = 32
comptime PITCH = DEPTH + 8
comptime VECTOR = 8  # elements of a copy by cp.async
comptime THREADS = 128
comptime ROW_FRAGMENTS = 2  # fragments of 16 rows in the 32 of a warp
comptime COLUMN_FRAGMENTS = 4  # fragments of 8 columns in the 32 of a warp

comptime Shared = Pointer[BFloat16, MutUntrackedOrigin, address_space=AddressSpace.SHARED]
comptime Windows = Pointer[Window, MutUntrackedOrigin]
comptime Sums = Pointer[SIMD[DType.float32, 4], MutUntrackedOrigin]


@always_inline
def multiply(a: Shared, b: Shared, sums: Sums):
    """Add the product of both tiles to the accumulators of this warp."""
    var warp, lane = split(Int32(thread_idx.x), 32)
    var down, across = split(warp, 2)
    var g, t = split(lane, 4)
    var rows = a.unsafe_offset(Int((down * 32 + g) * PITCH + 2 * t))
    var columns = b.unsafe_offset(Int((across * 32 + g) * PITCH + 2 * t))
    comptime for k in range(0, DEPTH, 16):
        var left = stack_allocation[ROW_FRAGMENTS, SIMD[T, 8]]()
        comptime for i in range(ROW_FRAGMENTS):
            var here = rows.unsafe_offset(i * 16 * PITCH + k)
            var low = pair(here).join(pair(here.unsafe_offset(8 * PITCH)))
            var high = pair(here.unsafe_offset(8)).join(pair(here.unsafe_offset(8 * PITCH + 8)))
            left[unsafe_offset=i] = low.join(high)
        comptime for j in range(COLUMN_FRAGMENTS):
            var here = columns.unsafe_offset(j * 8 * PITCH + k)
            var right = pair(here).join(pair(here.unsafe_offset(8)))
            comptime for i in range(ROW_FRAGMENTS):
                var sum = sums[unsafe_offset=i * COLUMN_FRAGMENTS + j]
                var more = sum
                mma(more, left[unsafe_offset=i], right, sum)
                sums[unsafe_offset=i * COLUMN_FRAGMENTS + j] = more


@always_inline
def pair(p: Shared) -> SIMD[T, 2]:
    return p.unsafe_load[width=2, alignment=4]()


@always_inline
def clear(sums: Sums):
    comptime for i in range(ROW_FRAGMENTS * COLUMN_FRAGMENTS):
        sums[unsafe_offset=i] = SIMD[DType.float32, 4](0)


@always_inline
def row_and_column(i: Int, j: Int, e: Int) -> Tuple[Int32, Int32]:
    """Return (row, column) in the tile of element `e` of fragment (i, j) of this thread."""
    var warp, lane = split(Int32(thread_idx.x), 32)
    var down, across = split(warp, 2)
    var g, t = split(lane, 4)
    var row = down * 32 + Int32(i * 16 + (e // 2) * 8) + g
    return row, across * 32 + Int32(j * 8 + e % 2) + 2 * t


@__name("convref_gather_mma")
@__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](THREADS))
def gather_mma[
    V: Int, F: Int
](small: Elements[T], big: Elements[T], w: Elements[T], bias: Elements[T], g: Geometry):
    """The gather of direct.mojo; V and F elements of `big` and `w` are contiguous.

    Rows are windows, columns results, and the reduction is (tap, channel).
    """
    comptime STAGES = 4 if V == VECTOR else 2
    var a = stack_allocation[STAGES * ROWS * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var b = stack_allocation[STAGES * COLUMNS * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var sums = stack_allocation[ROW_FRAGMENTS * COLUMN_FRAGMENTS, SIMD[DType.float32, 4]]()
    clear(sums)
    var first = Int32(block_idx.x) * ROWS
    var tiles = (g.results + COLUMNS - 1) // COLUMNS
    var group, tile = split(Int32(block_idx.y), tiles)
    var left = tile * COLUMNS
    var depth = g.taps() * g.channels
    var rows = stack_allocation[ROWS * DEPTH // (VECTOR * THREADS), Window]()
    comptime if V == VECTOR:
        comptime for i in range(ROWS * DEPTH // (VECTOR * THREADS)):
            var line = Int32(thread_idx.x) // (DEPTH // VECTOR) + Int32(i * THREADS * VECTOR // DEPTH)
            rows[unsafe_offset=i] = window_of(g, first + line)
    for step in range(Int32(1 - STAGES), (depth + DEPTH - 1) // DEPTH):
        if step >= 0:
            async_copy_wait_group(Int32(STAGES - 2))
            barrier()  # this stage has arrived, and all warps have read the one that is overwritten
        var ahead = step + Int32(STAGES - 1)
        if ahead * DEPTH < depth:
            var stage = Int(ahead % Int32(STAGES))
            copy_windows[V](a.unsafe_offset(stage * ROWS * PITCH), big, g, rows, group, first, ahead * DEPTH)
            copy_filter[F](b.unsafe_offset(stage * COLUMNS * PITCH), w, g, group, left, ahead * DEPTH)
        async_copy_commit_group()
        if step >= 0:
            var stage = Int(step % Int32(STAGES))
            multiply(a.unsafe_offset(stage * ROWS * PITCH), b.unsafe_offset(stage * COLUMNS * PITCH), sums)
    comptime for i in range(ROW_FRAGMENTS):
        comptime for j in range(COLUMN_FRAGMENTS):
            comptime for e in range(4):
                var row, column = row_and_column(i, j, e)
                var sum = sums[unsafe_offset=i * COLUMN_FRAGMENTS + j][e]
                finish(small, bias, g, group, first + row, left + column, sum)


@always_inline
def finish(
    small: Elements[T], bias: Elements[T], g: Geometry, group: Int32, window: Int32, result: Int32,
    total: Float32
):
    if window < g.windows() and result < g.results:
        var k = group * g.results + result
        var sum = total
        if g.bias.given != 0:
            sum += bias[unsafe_offset=Int(k * g.bias.c)].cast[DType.float32]()
        var to = window_of(g, window).offset(g.small) + k * g.small.c
        small[unsafe_offset=Int(to)] = sum.cast[T]()


@always_inline
def padded[V: Int](line: Int32, u: Int32) -> Int32:
    """Return the offset of piece `u`, V elements, of a line; lines are PITCH apart."""
    return line * PITCH + u * Int32(V)


@always_inline
def copy_windows[
    V: Int, deep: Int = DEPTH, offset_of: def (Int32, Int32) thin -> Int32 = padded[V]
](a: Shared, big: Elements[T], g: Geometry, rows: Windows, group: Int32, first: Int32, begin: Int32):
    """Copy the im2col rows of ROWS windows to shared memory, V elements at a time."""
    comptime PIECES = deep // V
    var row, u = split(Int32(thread_idx.x), Int32(PIECES))
    var t, c = split(begin + u * Int32(V), g.channels)
    var tap = tap_of(g, t)
    comptime for i in range(ROWS * PIECES // THREADS):
        var line = row + Int32(i * THREADS // PIECES)
        var read = Int32(-1)
        if t < g.taps() and first + line < g.windows():
            comptime if V == VECTOR:
                read = read_at(g, rows[unsafe_offset=i], tap)
            else:
                read = read_at(g, window_of(g, first + line), tap)
        var there = read + (group * g.channels + c) * g.big.c
        copy[V](a.unsafe_offset(Int(offset_of(line, u))), big, there, read >= 0)


@always_inline
def copy_filter[
    F: Int, deep: Int = DEPTH, offset_of: def (Int32, Int32) thin -> Int32 = padded[F]
](b: Shared, w: Elements[T], g: Geometry, group: Int32, left: Int32, begin: Int32):
    """Copy the filters of COLUMNS results to shared memory, F elements at a time."""
    comptime PIECES = deep // F
    var column, u = split(Int32(thread_idx.x), Int32(PIECES))
    var t, c = split(begin + u * Int32(F), g.channels)
    var here = group * g.filter.group + c * g.filter.channel + tap_of(g, t).offset(g.filter)
    comptime for i in range(COLUMNS * PIECES // THREADS):
        var line = column + Int32(i * THREADS // PIECES)
        var there = here + (left + line) * g.filter.result
        var real = t < g.taps() and left + line < g.results
        copy[F](b.unsafe_offset(Int(offset_of(line, u))), w, there, real)


@always_inline
def copy[V: Int](to: Shared, source: Elements[T], at: Int32, real: Bool):
    """Write V elements, or zeros, to shared memory; VECTOR of them by cp.async."""
    comptime if V == VECTOR:
        var start = source.unsafe_offset(Int(at) if real else 0)
        async_copy[2 * V, fill=BFloat16(0)](
            start.unsafe_address_space_cast[AddressSpace.GLOBAL](), to, Int32(2 * V) if real else 0
        )
    else:
        var values = SIMD[T, V](0)
        if real:
            values = source.unsafe_offset(Int(at)).unsafe_load[width=V, alignment=2 * V]()
        to.unsafe_store[width=V, alignment=2 * V](values)


@__name("convref_correlate_mma")
@__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](THREADS))
def correlate_mma(w: Elements[T], big: Elements[T], small: Elements[T], g: Geometry):
    """The correlate of direct.mojo: rows are results, columns are (tap, channel), summed over windows."""
    var a = stack_allocation[ROWS * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var b = stack_allocation[COLUMNS * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var sums = stack_allocation[ROW_FRAGMENTS * COLUMN_FRAGMENTS, SIMD[DType.float32, 4]]()
    clear(sums)
    var tiles = (g.results + ROWS - 1) // ROWS
    var group, tile = split(Int32(block_idx.y), tiles)
    var first = tile * ROWS
    var left = Int32(block_idx.x) * COLUMNS
    var depth = g.taps() * g.channels
    # Adjacent threads load adjacent channels, which are contiguous in memory.
    var half, line = split(Int32(thread_idx.x), ROWS)
    var t, c = split(left + line, g.channels)
    var tap = tap_of(g, t)
    var k = (group * g.results + first + line) * g.small.c
    var begin = Int32(0)
    while begin < g.windows():
        comptime for i in range(DEPTH // 2):
            var u = half * (DEPTH // 2) + Int32(i)
            var of_small = BFloat16(0)
            var of_big = BFloat16(0)
            if begin + u < g.windows():
                var window = window_of(g, begin + u)
                if first + line < g.results:
                    of_small = small[unsafe_offset=Int(window.offset(g.small) + k)]
                var read = read_at(g, window, tap)
                if left + line < depth and read >= 0:
                    of_big = big[unsafe_offset=Int(read + (group * g.channels + c) * g.big.c)]
            a[unsafe_offset=Int(line * PITCH + u)] = of_small
            b[unsafe_offset=Int(line * PITCH + u)] = of_big
        barrier()
        multiply(a, b, sums)
        barrier()
        begin += DEPTH
    store_filter_tile(w, g, group, first, left, sums)


@always_inline
def store_filter_tile(w: Elements[T], g: Geometry, group: Int32, first: Int32, left: Int32, sums: Sums):
    """Store this thread's elements of a tile of a filter that are inside of it."""
    comptime for i in range(ROW_FRAGMENTS):
        comptime for j in range(COLUMN_FRAGMENTS):
            comptime for e in range(4):
                var row, column = row_and_column(i, j, e)
                if first + row < g.results and left + column < g.taps() * g.channels:
                    var t, c = split(left + column, g.channels)
                    var to = group * g.filter.group + (first + row) * g.filter.result
                    to += tap_of(g, t).offset(g.filter) + c * g.filter.channel
                    w[unsafe_offset=Int(to)] = sums[unsafe_offset=i * COLUMN_FRAGMENTS + j][e].cast[T]()
