"""The gather of mma.mojo by wgmma, products of four warps together, for sm_90a.

Lines of 64 numbers fill the 128 bytes in which pieces of 16 change places with the number of the
line, as wgmma wants to read them. Copies are two steps ahead of the step that is multiplied.
"""

from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_idx, thread_idx
from max.gpu.compute.mma import (
    WGMMADescriptor,
    wgmma_async,
    wgmma_commit_group_sync,
    wgmma_fence_aligned,
    wgmma_wait_group_sync,
)
from max.gpu.host.nvidia.tma import TensorMapSwizzle
from max.gpu.memory import async_copy_commit_group, async_copy_wait_group, fence_async_view_proxy
from max.gpu.sync import barrier
from std.memory import stack_allocation
from std.memory.address_space import AddressSpace
from std.utils import StaticTuple

from direct import Numbers
from geometry import Geometry, Window, split, window_of
from mma import COLUMNS, ROWS, Shared, T, THREADS, WIDE, finish, lay_filter, lay_windows

comptime DEEP = 64
comptime STEPS = 3
comptime EACH = ROWS * DEEP // (WIDE * THREADS)  # pieces of a step that a thread copies, per operand
comptime Sums = StaticTuple[Float32, ROWS * COLUMNS // THREADS]


@always_inline
def exchanged(line: Int32, u: Int32) -> Int32:
    """Return where the piece `u` of a line lies."""
    return line * DEEP + (u ^ (line & 7)) * WIDE


@always_inline
def multiplied(a: Shared, b: Shared, sums: Sums) -> Sums:
    """Return the sums with the products of one step."""
    comptime of = WGMMADescriptor[T].create[8 * 2 * DEEP // 16, 1, TensorMapSwizzle.SWIZZLE_128B]
    var left, right = of(a), of(b)
    var found = sums
    wgmma_fence_aligned()
    comptime for k in range(0, DEEP, 16):
        found = wgmma_async[ROWS, COLUMNS, 16, a_type=T, b_type=T](left + 2 * k, right + 2 * k, found)
    wgmma_commit_group_sync()
    wgmma_wait_group_sync()
    return found


@__name("convref_gather_wgmma")
@__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](THREADS))
def gather_wgmma(small: Numbers[T], big: Numbers[T], w: Numbers[T], bias: Numbers[T], g: Geometry):
    """The gather of mma.mojo where 8 numbers of `big` and `w` lie side by side."""
    var a = stack_allocation[STEPS * ROWS * DEEP, BFloat16, address_space=AddressSpace.SHARED, alignment=1024]()
    var b = stack_allocation[STEPS * COLUMNS * DEEP, BFloat16, address_space=AddressSpace.SHARED, alignment=1024]()
    var sums = Sums(fill=0)
    var first = Int32(block_idx.x) * ROWS
    var tiles = (g.results + COLUMNS - 1) // COLUMNS
    var group, tile = split(Int32(block_idx.y), tiles)
    var left = tile * COLUMNS
    var depth = g.taps() * g.channels
    var rows = stack_allocation[EACH, Window]()
    comptime for i in range(EACH):
        var line = Int32(thread_idx.x) // (DEEP // WIDE) + Int32(i * THREADS * WIDE // DEEP)
        rows[unsafe_offset=i] = window_of(g, first + line)
    for step in range(Int32(1 - STEPS), (depth + DEEP - 1) // DEEP):
        if step >= 0:
            async_copy_wait_group(Int32(STEPS - 2))
            fence_async_view_proxy()
            barrier()  # all have this step, and are done with the one whose place is laid anew
        var ahead = step + Int32(STEPS - 1)
        if ahead * DEEP < depth:
            var place = Int(ahead % Int32(STEPS))
            lay_windows[WIDE, DEEP, exchanged](
                a.unsafe_offset(place * ROWS * DEEP), big, g, rows, group, first, ahead * DEEP
            )
            lay_filter[WIDE, DEEP, exchanged](
                b.unsafe_offset(place * COLUMNS * DEEP), w, g, group, left, ahead * DEEP
            )
        async_copy_commit_group()
        if step >= 0:
            var place = Int(step % Int32(STEPS))
            sums = multiplied(
                a.unsafe_offset(place * ROWS * DEEP), b.unsafe_offset(place * COLUMNS * DEEP), sums
            )
    var warp, lane = split(Int32(thread_idx.x), 32)
    var row, t = split(lane, 4)
    comptime for i in range(ROWS * COLUMNS // THREADS):
        comptime down = 8 * (i // 2 % 2)
        comptime across = 8 * (i // 4) + i % 2
        finish(
            small, bias, g, group, first + warp * 16 + row + Int32(down), left + 2 * t + Int32(across), sums[i]
        )
