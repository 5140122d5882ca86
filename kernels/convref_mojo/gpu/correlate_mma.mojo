"""The correlate of mma.mojo where 8 numbers of both operands lie side by side.

A line of shared memory is one window, so that 16 bytes of it can be copied; fragments want numbers
of neighbouring windows together, and are read across lines. Copies are three steps ahead.
"""

from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_idx, thread_idx
from max.gpu.compute.mma import ld_matrix, mma
from max.gpu.memory import async_copy_commit_group, async_copy_wait_group
from max.gpu.sync import barrier
from std.memory import stack_allocation
from std.memory.address_space import AddressSpace
from std.utils import StaticTuple

from direct import Numbers
from geometry import Geometry, read_at, split, tap_of, window_of
from mma import (
    BROAD,
    COLUMNS,
    DEEP,
    ROWS,
    Shared,
    Sums,
    T,
    TALL,
    THREADS,
    WIDE,
    cleared,
    placed,
    put,
)

comptime STEPS = 4
comptime PITCH = ROWS + 8  # of lines, so that the eight that are read together lie in different banks


@always_inline
def multiply(a: Shared, b: Shared, sums: Sums):
    """Add the product of both tiles to the sums of this warp's quarter."""
    var warp, lane = split(Int32(thread_idx.x), 32)
    var down, across = split(warp, 2)
    var far, near = split(lane, 16)
    var high, line = split(near, 8)
    # A lane has the address of a line of one of four matrices of 8 by 8, which go to registers.
    var rows = a.unsafe_offset(Int((far * 8 + line) * PITCH + down * 32 + high * 8))
    var columns = b.unsafe_offset(Int((high * 8 + line) * PITCH + across * 32 + far * 8))
    comptime for k in range(0, DEEP, 16):
        var left = stack_allocation[TALL, SIMD[T, 8]]()
        comptime for i in range(TALL):
            left[unsafe_offset=i] = ld_matrix[8, transpose=True](rows.unsafe_offset(k * PITCH + i * 16))
        comptime for j in range(0, BROAD, 2):
            var two = ld_matrix[8, transpose=True](columns.unsafe_offset(k * PITCH + j * 8))
            comptime for h in range(2):
                comptime for i in range(TALL):
                    var sum = sums[unsafe_offset=i * BROAD + j + h]
                    var more = sum
                    mma(more, left[unsafe_offset=i], two.slice[4, offset=4 * h](), sum)
                    sums[unsafe_offset=i * BROAD + j + h] = more


@__name("convref_correlate_mma_v8")
@__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](THREADS))
def correlate_mma_v8(w: Numbers[T], big: Numbers[T], small: Numbers[T], g: Geometry):
    """Rows are results, columns (tap, channel), and the reduction is over windows."""
    var a = stack_allocation[STEPS * DEEP * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var b = stack_allocation[STEPS * DEEP * PITCH, BFloat16, address_space=AddressSpace.SHARED, alignment=16]()
    var sums = stack_allocation[TALL * BROAD, SIMD[DType.float32, 4]]()
    cleared(sums)
    var tiles = (g.results + ROWS - 1) // ROWS
    var group, tile = split(Int32(block_idx.y), tiles)
    var first = tile * ROWS
    var left = Int32(block_idx.x) * COLUMNS
    var line, piece = split(Int32(thread_idx.x), ROWS // WIDE)
    var result = first + piece * WIDE
    var t, c = split(left + piece * WIDE, g.channels)
    var tap = tap_of(g, t)
    for step in range(Int32(1 - STEPS), (g.windows() + DEEP - 1) // DEEP):
        if step >= 0:
            async_copy_wait_group(Int32(STEPS - 2))
            barrier()  # all have this step, and are done with the one whose place is laid anew
        var ahead = step + Int32(STEPS - 1)
        if ahead * DEEP < g.windows():
            comptime for i in range(DEEP * ROWS // (WIDE * THREADS)):
                var u = line + Int32(i * THREADS * WIDE // ROWS)
                var window = window_of(g, ahead * DEEP + u)
                var real = ahead * DEEP + u < g.windows()
                var read = read_at(g, window, tap)
                var to = Int(((ahead % Int32(STEPS)) * DEEP + u) * PITCH + piece * WIDE)
                var of_small = window.place(g.small) + (group * g.results + result) * g.small.c
                var of_big = read + (group * g.channels + c) * g.big.c
                put[WIDE](a.unsafe_offset(to), small, of_small, real and result < g.results)
                put[WIDE](b.unsafe_offset(to), big, of_big, real and t < g.taps() and read >= 0)
        async_copy_commit_group()
        if step >= 0:
            var place = Int(step % Int32(STEPS)) * DEEP * PITCH
            multiply(a.unsafe_offset(place), b.unsafe_offset(place), sums)
    placed(w, g, group, first, left, sums)
