"""Passes of pools: the table of the positions that each window reads, and one launch."""

from std.memory import stack_allocation
from std.sys import size_of

from passes.sizes import Arrays, Attributes, Extent, Sizes, set_image, threads_of
from passes.threads import ALIGNMENT, aligned, spread
from simd import Table, lanes, size, wide
from pool import VECTORS, Pool, PoolAxis, Readers, Reads

comptime POOL_WORDS = size_of[Pool]() // 8
comptime WRONG_POSITION = -2
comptime KEPT = 128 * 1024
"""Bytes of what a backward pass keeps of the windows of a unit of more than VECTORS vectors."""


@fieldwise_init
struct PoolWindows(ImplicitlyCopyable):
    """An axis of a pool; an adaptive one has windows cut from `big` and reads nothing else."""

    var big: Int
    var small: Int
    var taps: Int
    var stride: Int
    var dilation: Int
    var low: Int
    var high: Int

    def taps_within(self, start: Int, least: Int, end: Int) -> Tuple[Int, Int]:
        """Return the first tap of a window on a position from `least` to `end`, and the number of them."""
        var first = 0
        var count = 0
        for r in range(self.taps):
            if least <= start + r * self.dilation < end:
                first = first if count > 0 else r
                count += 1
        return first, count

    def write_reads(self, to: Pointer[Reads, MutAnyOrigin], a: Attributes):
        """Write what each window reads, and the factor of its divisor."""
        for p in range(self.small):
            ref reads = to[unsafe_offset=p]
            if a.adaptive == 1:
                reads.first = p * self.big // self.small
                reads.count = ((p + 1) * self.big + self.small - 1) // self.small - reads.first
                reads.divisor = reads.count
                continue
            var start = p * self.stride - self.low
            var end = self.big + min(0, self.high)
            var first, count = self.taps_within(start, 0, end)
            reads.first = start + first * self.dilation if count > 0 else 0
            reads.count = count
            if a.include_pad == 1:
                var _, padded = self.taps_within(start, -self.low, self.big + self.high)
                count = padded
            reads.divisor = count

    def write_readers(self, to: Pointer[Readers, MutAnyOrigin], reads: Pointer[Reads, MutAnyOrigin]):
        """Write the windows that read each position; they are evenly spaced."""
        for i in range(self.big):
            to[unsafe_offset=i] = Readers(0, 0, 1)
        for p in range(self.small):
            for r in range(reads[unsafe_offset=p].count):
                ref readers = to[unsafe_offset=reads[unsafe_offset=p].first + r * self.dilation]
                if readers.count == 0:
                    readers.first = p
                elif readers.count == 1:
                    readers.step = p - readers.first
                readers.count += 1

    def set_axis(self, mut to: PoolAxis):
        to.count = self.small
        to.size = self.big
        to.dilation = self.dilation


def channels_of_unit[T: DType](s: Sizes, threads: Int) -> Int:
    """Return the channels of a unit of a backward pass: few enough that all threads have one."""
    comptime W = lanes[wide[T]]()
    var block = VECTORS * W
    while block < s.c and 2 * block * s.output.total() * size[wide[T]]() <= KEPT:
        block *= 2
    while block > W and s.n * s.c < threads * block:
        block //= 2
    return block


def pool_pass[
    T: DType, kernel: StaticString
](s: Sizes, a: Attributes, of: Arrays, big: Int, small: Int, indices: Int, scratch: Int) -> Int:
    """Return the bytes of scratch memory if `scratch` is 0, else compute the pass and return 0; return
    WRONG_POSITION if an index is neither a position nor -1."""
    comptime backward = kernel == "max_pool_backward" or kernel == "avg_pool_backward"
    var threads = threads_of(a, s.n * s.c * s.output.total() * s.filter.total())
    var block = channels_of_unit[T](s, threads)
    var windows = s.output.z + s.output.y + s.output.x
    var reads_bytes = windows * size_of[Reads]()
    var bytes = 0
    if backward:
        reads_bytes += (s.input.z + s.input.y + s.input.x) * size_of[Readers]()
        bytes = max(s.output.total() * block, s.input.total() * lanes[wide[T]]()) * size[wide[T]]()
    reads_bytes = aligned(reads_bytes)
    if scratch == 0:
        return reads_bytes + ALIGNMENT + threads * aligned(bytes)
    if s.n * s.c * (s.input.total() if backward else s.output.total()) == 0:
        return 0
    var memory = stack_allocation[POOL_WORDS, Int]()
    ref p = Pointer[Pool, MutAnyOrigin](unsafe_from_address=Int(memory))[]
    p.images = s.n
    p.channels = s.c
    var z = PoolWindows(
        s.input.z, s.output.z, s.filter.z, a.stride.z, a.dilation.z, a.low.z, a.high.z
    )
    var y = PoolWindows(
        s.input.y, s.output.y, s.filter.y, a.stride.y, a.dilation.y, a.low.y, a.high.y
    )
    var x = PoolWindows(
        s.input.x, s.output.x, s.filter.x, a.stride.x, a.dilation.x, a.low.x, a.high.x
    )
    z.set_axis(p.z)
    y.set_axis(p.y)
    x.set_axis(p.x)
    p.reads = scratch
    var table = Pointer[Reads, MutAnyOrigin](unsafe_from_address=scratch)
    z.write_reads(table, a)
    y.write_reads(table.unsafe_offset(s.output.z), a)
    x.write_reads(table.unsafe_offset(s.output.z + s.output.y), a)
    comptime if backward:
        p.readers = Int(table.unsafe_offset(windows))
        var readers = Pointer[Readers, MutAnyOrigin](unsafe_from_address=p.readers)
        z.write_readers(readers, table)
        y.write_readers(readers.unsafe_offset(s.input.z), table.unsafe_offset(s.output.z))
        var last = readers.unsafe_offset(s.input.z + s.input.y)
        x.write_readers(last, table.unsafe_offset(s.output.z + s.output.y))
    p.divisor = a.divisor
    set_image(p.big, of, big, s.n, s.c, s.input, a.channels_last)
    set_image(p.small, of, small, s.n, s.c, s.output, a.channels_last)
    set_image(p.indices, of, indices, s.n, s.c, s.output, a.channels_last)
    p.big.data = of[big]
    p.small.data = of[small]
    p.indices.data = of[indices]
    p.block = block
    var blocks = (s.c + p.block - 1) // p.block if backward else s.output.z * s.output.y
    p.wrong = scratch + reads_bytes
    var wrong = Table(unsafe_from_address=p.wrong)
    wrong[] = 0
    spread[kernel, T](Int(memory), s.n * blocks, threads, scratch + reads_bytes + ALIGNMENT, bytes)
    return WRONG_POSITION if wrong[] != 0 else 0
