"""The gather of mma.mojo by wgmma, for sm_90a.

A line of 64 elements is one row of the 128-byte swizzle. Copies are two stages ahead.
"""

from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_idx, thread_idx
from max.gpu.compute.mma import (
    WGMMADescriptor, wgmma_async, wgmma_commit_group_sync, wgmma_fence_aligned, wgmma_wait_group_sync
)
from max.gpu.host.nvidia.tma import TensorMapSwizzle
from max.gpu.memory import async_copy_commit_group, async_copy_wait_group, fence_async_view_proxy
from max.gpu.sync import barrier
from std.memory import stack_allocation
from std.memory.address_space import AddressSpace
from std.utils import StaticTuple

from direct import Elements
from geometry import Geometry, Window, split, window_of
from mma import COLUMNS, ROWS, Shared, T, THREADS, VECTOR, finish, copy_filter, copy_windows

comptime DEPTH = 64
comptime STAGES = 3
comptime PIECES_PER_THREAD = ROWS * DEPTH // (VECTOR * THREADS)  # of a stage, per operand
comptime Sums = StaticTuple[Float32, ROWS * COLUMNS // THREADS]


@always_inline
def swizzled(line: Int32, u: Int32) -> Int32:
    """Return the offset of piece `u` of a line under the 128-byte swizzle."""
    return line * DEPTH + (u ^ (line & 7)) * VECTOR


@always_inline
def multiply(a: Shared, b: Shared, sums: Sums) -> Sums:
    """Return the accumulators plus the products of one stage."""
    comptime of = WGMMADescriptor[T].create[8 * 2 * DEPTH // 16, 1, TensorMapSwizzle.SWIZZLE_128B]
    var left, right = of(a), of(b)
    var found = sums
    wgmma_fence_aligned()
    comptime for k in range(0, DEPTH, 16):
        found = wgmma_async[ROWS, COLUMNS, 16, a_type=T, b_type=T](left + 2 * k, right + 2 * k, found)
    wgmma_commit_group_sync()
    wgmma_wait_group_sync()
    return found


@__name("convref_gather_wgmma")
@__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](THREADS))
def gather_wgmma(small: Elements[T], big: Elements[T], w: Elements[T], bias: Elements[T], g: Geometry):
    """The gather of mma.mojo for `big` and `w` with 8 contiguous elements."""
    var a = stack_allocation[STAGES * ROWS * DEPTH, BFloat16, address_space=AddressSpace.SHARED, alignment=1024]()
    var b = stack_allocation[STAGES * COLUMNS * DEPTH, BFloat16, address_space=AddressSpace.SHARED, alignment=1024]()
    var sums = Sums(fill=0)
    var first = Int32(block_idx.x) * ROWS
    var tiles = (g.results + COLUMNS - 1) // COLUMNS
    var group, tile = split(Int32(block_idx.y), tiles)
    var left = tile * COLUMNS
    var depth = g.taps() * g.channels
    var rows = stack_allocation[PIECES_PER_THREAD, Window]()
    comptime for i in range(PIECES_PER_THREAD):
        var line = Int32(thread_idx.x) // (DEPTH // VECTOR) + Int32(i * THREADS * VECTOR // DEPTH)
        rows[unsafe_offset=i] = window_of(g, first + line)
    for step in range(Int32(1 - STAGES), (depth + DEPTH - 1) // DEPTH):
        if step >= 0:
            async_copy_wait_group(Int32(STAGES - 2))
            fence_async_view_proxy()
            barrier()  # this stage has arrived, and all warps have read the one that is overwritten
        var ahead = step + Int32(STAGES - 1)
        if ahead * DEPTH < depth:
            var stage = Int(ahead % Int32(STAGES))
            copy_windows[VECTOR, DEPTH, swizzled](
                a.unsafe_offset(stage * ROWS * DEPTH), big, g, rows, group, first, ahead * DEPTH
            )
            copy_filter[VECTOR, DEPTH, swizzled](
                b.unsafe_offset(stage * COLUMNS * DEPTH), w, g, group, left, ahead * DEPTH
            )
        async_copy_commit_group()
        if step >= 0:
            var stage = Int(step % Int32(STAGES))
            sums = multiply(
                a.unsafe_offset(stage * ROWS * DEPTH), b.unsafe_offset(stage * COLUMNS * DEPTH), sums
            )
    var warp, lane = split(Int32(thread_idx.x), 32)
    var row, t = split(lane, 4)
    comptime for i in range(ROWS * COLUMNS // THREADS):
        comptime down = 8 * (i // 2 % 2)
        comptime across = 8 * (i // 4) + i % 2
        finish(
            small, bias, g, group, first + warp * 16 + row + Int32(down), left + 2 * t + Int32(across), sums[i]
        )
