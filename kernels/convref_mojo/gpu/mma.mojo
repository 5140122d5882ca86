"""Implicit matrix products of bfloat16 by mma.sync m16n8k16, sums in float32.

A block of four warps makes a tile of ROWS x COLUMNS sums; both operands go through shared memory,
DEEP of the reduction at a time. There rows lie PITCH apart, so that the eight rows that a fragment
reads lie in different banks. A gather lays the next steps there while it multiplies one: 16 bytes
that lie side by side are copied asynchronously, three steps ahead, zeros where nothing is read.
"""

from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_idx, thread_idx
from max.gpu.compute.mma import mma
from max.gpu.memory import async_copy, async_copy_commit_group, async_copy_wait_group
from max.gpu.sync import barrier
from std.memory import stack_allocation
from std.memory.address_space import AddressSpace
from std.utils import StaticTuple

from direct import Numbers
from geometry import Geometry, Window, read_at, split, tap_of, window_of

comptime T = DType.bfloat16
comptime ROWS = 64
comptime COLUMNS = 64
comptime DEEP = 32
comptime PITCH = DEEP + 8
comptime WIDE = 8  # numbers that are copied asynchronously
comptime THREADS = 128
comptime TALL = 2  # fragments of 16 rows in the 32 of a warp
comptime BROAD = 4  # fragments of 8 columns in the 32 of a warp

comptime Shared = Pointer[BFloat16, MutUntrackedOrigin, address_space=AddressSpace.SHARED]
comptime Windows = Pointer[Window, MutUntrackedOrigin]
comptime Sums = Pointer[SIMD[DType.float32, 4], MutUntrackedOrigin]


@always_inline
def multiply(a: Shared, b: Shared, sums: Sums):
    """Add the product of both tiles to the sums of this warp's quarter."""
    var warp, lane = split(Int32(thread_idx.x), 32)
    var down, across = split(warp, 2)
    var g, t = split(lane, 4)
    var rows = a.unsafe_offset(Int((down * 32 + g) * PITCH + 2 * t))
    var columns = b.unsafe_offset(Int((across * 32 + g) * PITCH + 2 * t))
    comptime for k in range(0, DEEP, 16):
        var left = stack_allocation[TALL, SIMD[T, 8]]()
        comptime for i in range(TALL):
            var here = rows.unsafe_offset(i * 16 * PITCH + k)
            var low = pair(here).join(pair(here.unsafe_offset(8 * PITCH)))
            var high = pair(here.unsafe_offset(8)).join(pair(here.unsafe_offset(8 * PITCH + 8)))
            left[unsafe_offset=i] = low.join(high)
        comptime for j in range(BROAD):
            var here = columns.unsafe_offset(j * 8 * PITCH + k)
            var right = pair(here).join(pair(here.unsafe_offset(8)))
            comptime for i in range(TALL):
                var sum = sums[unsafe_offset=i * BROAD + j]
                var more = sum
                mma(more, left[unsafe_offset=i], right, sum)
                sums[unsafe_offset=i * BROAD + j] = more


@always_inline
def pair(p: Shared) -> SIMD[T, 2]:
    """Return two neighbours."""
    return p.unsafe_load[width=2, alignment=4]()


@always_inline
def cleared(sums: Sums):
    """Set the sums of a warp's quarter to zero."""
    comptime for i in range(TALL * BROAD):
        sums[unsafe_offset=i] = SIMD[DType.float32, 4](0)


@always_inline
def place_of(i: Int, j: Int, e: Int) -> Tuple[Int32, Int32]:
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
](small: Numbers[T], big: Numbers[T], w: Numbers[T], bias: Numbers[T], g: Geometry):
    """The gather of direct.mojo; V and F numbers of `big` and `w` lie side by side.

    Rows are windows, columns results, and the reduction is (tap, channel).
    """
    comptime STEPS = 4 if V == WIDE else 2
    var a = stack_allocation[STEPS * ROWS * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var b = stack_allocation[STEPS * COLUMNS * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var sums = stack_allocation[TALL * BROAD, SIMD[DType.float32, 4]]()
    cleared(sums)
    var first = Int32(block_idx.x) * ROWS
    var tiles = (g.results + COLUMNS - 1) // COLUMNS
    var group, tile = split(Int32(block_idx.y), tiles)
    var left = tile * COLUMNS
    var depth = g.taps() * g.channels
    var rows = stack_allocation[ROWS * DEEP // (WIDE * THREADS), Window]()
    comptime if V == WIDE:
        comptime for i in range(ROWS * DEEP // (WIDE * THREADS)):
            var line = Int32(thread_idx.x) // (DEEP // WIDE) + Int32(i * THREADS * WIDE // DEEP)
            rows[unsafe_offset=i] = window_of(g, first + line)
    for step in range(Int32(1 - STEPS), (depth + DEEP - 1) // DEEP):
        if step >= 0:
            async_copy_wait_group(Int32(STEPS - 2))
            barrier()  # all have this step, and are done with the one whose place is laid anew
        var ahead = step + Int32(STEPS - 1)
        if ahead * DEEP < depth:
            var place = Int(ahead % Int32(STEPS))
            lay_windows[V](a.unsafe_offset(place * ROWS * PITCH), big, g, rows, group, first, ahead * DEEP)
            lay_filter[F](b.unsafe_offset(place * COLUMNS * PITCH), w, g, group, left, ahead * DEEP)
        async_copy_commit_group()
        if step >= 0:
            var place = Int(step % Int32(STEPS))
            multiply(a.unsafe_offset(place * ROWS * PITCH), b.unsafe_offset(place * COLUMNS * PITCH), sums)
    comptime for i in range(TALL):
        comptime for j in range(BROAD):
            comptime for e in range(4):
                var row, column = place_of(i, j, e)
                var sum = sums[unsafe_offset=i * BROAD + j][e]
                finish(small, bias, g, group, first + row, left + column, sum)


@always_inline
def finish(
    small: Numbers[T],
    bias: Numbers[T],
    g: Geometry,
    group: Int32,
    window: Int32,
    result: Int32,
    total: Float32,
):
    """Write one result, if it exists."""
    if window < g.windows() and result < g.results:
        var k = group * g.results + result
        var sum = total
        if g.biased != 0:
            sum += bias[unsafe_offset=Int(k * g.bias)].cast[DType.float32]()
        var to = window_of(g, window).place(g.small) + k * g.small.c
        small[unsafe_offset=Int(to)] = sum.cast[T]()


@always_inline
def padded[V: Int](line: Int32, u: Int32) -> Int32:
    """Return where the piece `u` of V numbers of a line lies: lines are PITCH apart."""
    return line * PITCH + u * Int32(V)


@always_inline
def lay_windows[
    V: Int, deep: Int = DEEP, lies: def (Int32, Int32) thin -> Int32 = padded[V]
](a: Shared, big: Numbers[T], g: Geometry, rows: Windows, group: Int32, first: Int32, begin: Int32):
    """Lay the rows of ROWS windows, V numbers at a time."""
    comptime LINE = deep // V
    var row, u = split(Int32(thread_idx.x), Int32(LINE))
    var t, c = split(begin + u * Int32(V), g.channels)
    var tap = tap_of(g, t)
    comptime for i in range(ROWS * LINE // THREADS):
        var line = row + Int32(i * THREADS // LINE)
        var read = Int32(-1)
        if t < g.taps() and first + line < g.windows():
            comptime if V == WIDE:
                read = read_at(g, rows[unsafe_offset=i], tap)
            else:
                read = read_at(g, window_of(g, first + line), tap)
        var there = read + (group * g.channels + c) * g.big.c
        put[V](a.unsafe_offset(Int(lies(line, u))), big, there, read >= 0)


@always_inline
def lay_filter[
    F: Int, deep: Int = DEEP, lies: def (Int32, Int32) thin -> Int32 = padded[F]
](b: Shared, w: Numbers[T], g: Geometry, group: Int32, left: Int32, begin: Int32):
    """Lay the filters of COLUMNS results, F numbers at a time."""
    comptime LINE = deep // F
    var column, u = split(Int32(thread_idx.x), Int32(LINE))
    var t, c = split(begin + u * Int32(F), g.channels)
    var here = group * g.filter.group + c * g.filter.channel + tap_of(g, t).place(g.filter)
    comptime for i in range(COLUMNS * LINE // THREADS):
        var line = column + Int32(i * THREADS // LINE)
        var there = here + (left + line) * g.filter.result
        var real = t < g.taps() and left + line < g.results
        put[F](b.unsafe_offset(Int(lies(line, u))), w, there, real)


@always_inline
def put[V: Int](to: Shared, numbers: Numbers[T], at: Int32, real: Bool):
    """Write V numbers to shared memory, or zeros; a wide copy is waited for later."""
    comptime if V == WIDE:
        var source = numbers.unsafe_offset(Int(at) if real else 0)
        async_copy[2 * V, fill=BFloat16(0)](
            source.unsafe_address_space_cast[AddressSpace.GLOBAL](), to, Int32(2 * V) if real else 0
        )
    else:
        var values = SIMD[T, V](0)
        if real:
            values = numbers.unsafe_offset(Int(at)).unsafe_load[width=V, alignment=2 * V]()
        to.unsafe_store[width=V, alignment=2 * V](values)


@__name("convref_correlate_mma")
@__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](THREADS))
def correlate_mma(w: Numbers[T], big: Numbers[T], small: Numbers[T], g: Geometry):
    """The correlate of direct.mojo: rows are results, columns (tap, channel), reduced windows."""
    var a = stack_allocation[ROWS * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var b = stack_allocation[COLUMNS * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var sums = stack_allocation[TALL * BROAD, SIMD[DType.float32, 4]]()
    cleared(sums)
    var tiles = (g.results + ROWS - 1) // ROWS
    var group, tile = split(Int32(block_idx.y), tiles)
    var first = tile * ROWS
    var left = Int32(block_idx.x) * COLUMNS
    var depth = g.taps() * g.channels
    # Neighbouring threads take neighbouring channels, which lie side by side in memory.
    var half, line = split(Int32(thread_idx.x), ROWS)
    var t, c = split(left + line, g.channels)
    var tap = tap_of(g, t)
    var k = (group * g.results + first + line) * g.small.c
    var begin = Int32(0)
    while begin < g.windows():
        comptime for i in range(DEEP // 2):
            var u = half * (DEEP // 2) + Int32(i)
            var of_small = BFloat16(0)
            var of_big = BFloat16(0)
            if begin + u < g.windows():
                var window = window_of(g, begin + u)
                if first + line < g.results:
                    of_small = small[unsafe_offset=Int(window.place(g.small) + k)]
                var read = read_at(g, window, tap)
                if left + line < depth and read >= 0:
                    of_big = big[unsafe_offset=Int(read + (group * g.channels + c) * g.big.c)]
            a[unsafe_offset=Int(line * PITCH + u)] = of_small
            b[unsafe_offset=Int(line * PITCH + u)] = of_big
        barrier()
        multiply(a, b, sums)
        barrier()
        begin += DEEP
    placed(w, g, group, first, left, sums)


@always_inline
def placed(w: Numbers[T], g: Geometry, group: Int32, first: Int32, left: Int32, sums: Sums):
    """Write this thread's elements of a tile of a filter, as far as they exist."""
    comptime for i in range(TALL):
        comptime for j in range(BROAD):
            comptime for e in range(4):
                var row, column = place_of(i, j, e)
                if first + row < g.results and left + column < g.taps() * g.channels:
                    var t, c = split(left + column, g.channels)
                    var to = group * g.filter.group + (first + row) * g.filter.result
                    to += tap_of(g, t).place(g.filter) + c * g.filter.channel
                    w[unsafe_offset=Int(to)] = sums[unsafe_offset=i * BROAD + j][e].cast[T]()
