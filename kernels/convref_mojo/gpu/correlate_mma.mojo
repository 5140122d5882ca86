"""The correlate of mma.mojo for operands with 8 contiguous channels.

A line of shared memory is one window, so that it can be copied 16 bytes at a time. A fragment needs
adjacent windows in one register, so `ldmatrix.trans` loads it. Copies are three stages ahead.
"""

from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_idx, thread_idx
from max.gpu.compute.mma import ld_matrix, mma
from max.gpu.memory import async_copy_commit_group, async_copy_wait_group
from max.gpu.sync import barrier
from std.memory import stack_allocation
from std.memory.address_space import AddressSpace
from std.utils import StaticTuple

from direct import Elements
from geometry import Geometry, read_at, split, tap_of, window_of
from mma import (
    COLUMN_FRAGMENTS, COLUMNS, DEPTH, ROWS, Shared, Sums, T, ROW_FRAGMENTS, THREADS, VECTOR, clear,
    store_filter_tile, copy
)

comptime STAGES = 4
comptime PITCH = ROWS + 8  # of lines, so that the eight that one matrix reads are in different banks


@always_inline
def multiply(a: Shared, b: Shared, sums: Sums):
    """Add the product of both tiles to the accumulators of this warp."""
    var warp, lane = split(Int32(thread_idx.x), 32)
    var down, across = split(warp, 2)
    var far, near = split(lane, 16)
    var high, line = split(near, 8)
    # Each lane has the address of one line of the four 8 x 8 matrices of an ldmatrix.
    var rows = a.unsafe_offset(Int((far * 8 + line) * PITCH + down * 32 + high * 8))
    var columns = b.unsafe_offset(Int((high * 8 + line) * PITCH + across * 32 + far * 8))
    comptime for k in range(0, DEPTH, 16):
        var left = stack_allocation[ROW_FRAGMENTS, SIMD[T, 8]]()
        comptime for i in range(ROW_FRAGMENTS):
            left[unsafe_offset=i] = ld_matrix[8, transpose=True](rows.unsafe_offset(k * PITCH + i * 16))
        comptime for j in range(0, COLUMN_FRAGMENTS, 2):
            var two = ld_matrix[8, transpose=True](columns.unsafe_offset(k * PITCH + j * 8))
            comptime for h in range(2):
                comptime for i in range(ROW_FRAGMENTS):
                    var sum = sums[unsafe_offset=i * COLUMN_FRAGMENTS + j + h]
                    var more = sum
                    mma(more, left[unsafe_offset=i], two.slice[4, offset=4 * h](), sum)
                    sums[unsafe_offset=i * COLUMN_FRAGMENTS + j + h] = more


@__name("convref_correlate_mma_v8")
@__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](THREADS))
def correlate_mma_v8(w: Elements[T], big: Elements[T], small: Elements[T], g: Geometry):
    """Rows are results, columns are (tap, channel), summed over windows."""
    var a = stack_allocation[STAGES * DEPTH * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var b = stack_allocation[STAGES * DEPTH * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var sums = stack_allocation[ROW_FRAGMENTS * COLUMN_FRAGMENTS, SIMD[DType.float32, 4]]()
    clear(sums)
    var tiles = (g.results + ROWS - 1) // ROWS
    var group, tile = split(Int32(block_idx.y), tiles)
    var first = tile * ROWS
    var left = Int32(block_idx.x) * COLUMNS
    var line, piece = split(Int32(thread_idx.x), ROWS // VECTOR)
    var result = first + piece * VECTOR
    var t, c = split(left + piece * VECTOR, g.channels)
    var tap = tap_of(g, t)
    for step in range(Int32(1 - STAGES), (g.windows() + DEPTH - 1) // DEPTH):
        if step >= 0:
            async_copy_wait_group(Int32(STAGES - 2))
            barrier()  # this stage has arrived, and all warps have read the one that is overwritten
        var ahead = step + Int32(STAGES - 1)
        if ahead * DEPTH < g.windows():
            comptime for i in range(DEPTH * ROWS // (VECTOR * THREADS)):
                var u = line + Int32(i * THREADS * VECTOR // ROWS)
                var window = window_of(g, ahead * DEPTH + u)
                var real = ahead * DEPTH + u < g.windows()
                var read = read_at(g, window, tap)
                var to = Int(((ahead % Int32(STAGES)) * DEPTH + u) * PITCH + piece * VECTOR)
                var of_small = window.offset(g.small) + (group * g.results + result) * g.small.c
                var of_big = read + (group * g.channels + c) * g.big.c
                copy[VECTOR](a.unsafe_offset(to), small, of_small, real and result < g.results)
                copy[VECTOR](b.unsafe_offset(to), big, of_big, real and t < g.taps() and read >= 0)
        async_copy_commit_group()
        if step >= 0:
            var stage = Int(step % Int32(STAGES)) * DEPTH * PITCH
            multiply(a.unsafe_offset(stage), b.unsafe_offset(stage), sums)
    store_filter_tile(w, g, group, first, left, sums)
