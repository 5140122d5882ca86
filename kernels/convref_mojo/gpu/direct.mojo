"""Sums by one thread per result, for every number type, size and stride."""

from max.gpu import WARP_SIZE, block_dim, block_idx, thread_idx
from max.gpu.primitives.warp import shuffle_xor
from max.gpu.sync import barrier
from std.memory import stack_allocation
from std.memory.address_space import AddressSpace

from geometry import Geometry, Window, read_at, split, tap_of, window_of

comptime Elements[T: DType] = Pointer[Scalar[T], MutAnyOrigin]
comptime wide[T: DType]: DType = DType.float32 if T == DType.bfloat16 else T
"""The accumulator type of T."""

comptime THREADS = 128


@always_inline
def add_window[T: DType](
    big: Elements[T], w: Elements[T], g: Geometry, window: Window, column: Int32, sum: Scalar[wide[T]]
) -> Scalar[wide[T]]:
    """Return `sum` plus the products of a window's taps and channels."""
    var group, k = split(column, g.results)
    var found = sum
    for t in range(g.taps()):
        var tap = tap_of(g, t)
        var read = read_at(g, window, tap)
        if read >= 0:
            var x = read + group * g.channels * g.big.c
            var v = group * g.filter.group + k * g.filter.result + tap.offset(g.filter)
            for c in range(g.channels):
                var value = big[unsafe_offset=Int(x + c * g.big.c)].cast[wide[T]]()
                var factor = w[unsafe_offset=Int(v + c * g.filter.channel)].cast[wide[T]]()
                found = value.fma(factor, found)
    return found


@__name("convref_gather")
def gather[T: DType](
    small: Elements[T], big: Elements[T], w: Elements[T], bias: Elements[T], second_big: Elements[T],
    second_w: Elements[T], g: Geometry
):
    """Write small[n, j, k] = sum over pairs, taps r, channels c of big[n, j * step + shift[r], c] w[k, c, r]."""
    comptime A = wide[T]
    var index = Int32(block_idx.x) * Int32(block_dim.x) + Int32(thread_idx.x)
    var columns = g.groups * g.results
    if index >= g.windows() * columns:
        return
    var row, column = split(index, columns)
    var window = window_of(g, row)
    var sum = Scalar[A](0)
    if g.pairs > 0:
        sum = add_window[T](big, w, g, window, column, sum)
    if g.pairs > 1:
        sum = add_window[T](second_big, second_w, g.of_second(), window, column, sum)
    if g.bias.given != 0:
        sum += bias[unsafe_offset=Int(column * g.bias.c)].cast[A]()
    small[unsafe_offset=Int(window.offset(g.small) + column * g.small.c)] = sum.cast[T]()


@__name("convref_correlate")
def correlate[T: DType](w: Elements[T], big: Elements[T], small: Elements[T], g: Geometry):
    """Write w[k, r, c] = sum over images and windows j of small[n, j, k] big[n, j * step + shift[r], c]."""
    comptime A = wide[T]
    var index = Int32(block_idx.x) * Int32(block_dim.x) + Int32(thread_idx.x)
    var row_size = g.taps() * g.channels
    if index >= g.groups * g.results * row_size:
        return
    var row, column = split(index, row_size)
    var group, k = split(row, g.results)
    var t, c = split(column, g.channels)
    var tap = tap_of(g, t)
    var x = (group * g.channels + c) * g.big.c
    var sum = Scalar[A](0)
    for j in range(g.windows()):
        var window = window_of(g, j)
        var read = read_at(g, window, tap)
        if read >= 0:
            var value = big[unsafe_offset=Int(read + x)].cast[A]()
            var factor = small[unsafe_offset=Int(window.offset(g.small) + row * g.small.c)].cast[A]()
            sum = value.fma(factor, sum)
    var to = group * g.filter.group + k * g.filter.result + tap.offset(g.filter)
    w[unsafe_offset=Int(to + c * g.filter.channel)] = sum.cast[T]()


@__name("convref_bgrad")
def bgrad[T: DType](b: Elements[T], small: Elements[T], g: Geometry):
    """Write b[k] = sum over images and space of small[n, j, k]; a block for each k."""
    comptime A = wide[T]
    comptime WARPS = THREADS // WARP_SIZE
    var k = Int32(block_idx.x)
    var sum = Scalar[A](0)
    var j = Int32(thread_idx.x)
    while j < g.windows():
        var offset = window_of(g, j).offset(g.small) + k * g.small.c
        sum += small[unsafe_offset=Int(offset)].cast[A]()
        j += THREADS
    comptime for step in range(5):
        sum += shuffle_xor(sum, UInt32(16 >> step))
    var of_warps = stack_allocation[WARPS, Scalar[A], address_space=AddressSpace.SHARED]()
    var warp, lane = split(Int32(thread_idx.x), Int32(WARP_SIZE))
    if lane == 0:
        of_warps[unsafe_offset=Int(warp)] = sum
    barrier()
    if thread_idx.x == 0:
        var all = Scalar[A](0)
        comptime for i in range(WARPS):
            all += of_warps[unsafe_offset=i]
        b[unsafe_offset=Int(k * g.bias.c)] = all.cast[T]()
