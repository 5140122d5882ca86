"""The register tile: at most MR rows times NV vectors of columns, summed over a depth.

    c[i, j] = (c[i, j] or 0) + sum_k a[i, k] b[k, j]

All matrix products of this package, in every pass, end here. `a` is read by broadcast, `b` by whole
vectors. If rows are windows, each row is a list of contiguous runs (`tile_of_runs`). If rows are taps
and channels, and the depth is pixels, the rows of one pixel are contiguous (`tile_of_pixels`).
"""

from std.memory import stack_allocation

from simd import AVX512, Address, Table, at, lanes

comptime MR = 14 if AVX512 else 6
"""Rows: with NV = 2, the accumulators take 28 of 32 vector registers, or 12 of 16."""
comptime NV = 2


@fieldwise_init
struct Target(ImplicitlyCopyable):
    """Where finished sums are stored: an offset per row from one address, columns contiguous."""

    var data: Int  # address, 0 to store the sums to scratch memory
    var bias: Int  # address of the bias of the first column, 0 for none
    var offsets: Int  # address of the offset of the first row, in elements


comptime TO_SCRATCH = Target(0, 0, 0)


@fieldwise_init
struct Runs(ImplicitlyCopyable):
    """Rows in runs: element k of run r of row i is a[starts[r] + i * pitch + k]."""

    var starts: Int  # address
    var length: Int  # of all runs but the last, which may be shorter
    var pitch: Int


@fieldwise_init
struct Pixels(ImplicitlyCopyable):
    """Lines of pixels, and the strides of lines and pixels in `a` and in `b`."""

    var lines: Int
    var count: Int
    var a_line: Int
    var a_step: Int
    var b_line: Int
    var b_step: Int


comptime Sums[A: DType] = Pointer[SIMD[A, lanes[A]()], MutUntrackedOrigin]


@always_inline
def load_tile[A: DType, count: Int](sums: Sums[A], c: Address[A], fresh: Bool):
    """Load the accumulators of a tile, or clear them where it is fresh."""
    comptime W = lanes[A]()
    comptime for i in range(count):
        var here = c.unsafe_offset(i * W)
        sums[unsafe_offset=i] = SIMD[A, W](0) if fresh else here.unsafe_load[width=W]()


@always_inline
def fma_step[A: DType, M: Int, V: Int](sums: Sums[A], a: Address[A], pitch: Int, b: Address[A]):
    """Add the outer product of M elements, `pitch` apart, and V vectors."""
    comptime W = lanes[A]()
    var column = stack_allocation[V, SIMD[A, W]]()
    comptime for j in range(V):
        column[unsafe_offset=j] = b.unsafe_offset(j * W).unsafe_load[width=W]()
    comptime for i in range(M):
        var value = SIMD[A, W](a[unsafe_offset=i * pitch])
        comptime for j in range(V):
            var sum = sums[unsafe_offset=i * V + j]
            sums[unsafe_offset=i * V + j] = value.fma(column[unsafe_offset=j], sum)


@always_inline
def store_tile[A: DType, M: Int, V: Int, step: Int = 1](sums: Sums[A], c: Address[A], target: Target):
    """Store a tile to `c`, or with its bias to `target`, whose offsets are `step` 64-bit words apart."""
    comptime W = lanes[A]()
    if target.data == 0:
        comptime for i in range(M * V):
            c.unsafe_offset(i * W).unsafe_store[width=W](sums[unsafe_offset=i])
        return
    if target.bias != 0:
        comptime for j in range(V):
            var bias = at[A](target.bias).unsafe_offset(j * W).unsafe_load[width=W]()
            comptime for i in range(M):
                sums[unsafe_offset=i * V + j] += bias
    var offsets = Table(unsafe_from_address=target.offsets)
    comptime for i in range(M):
        var to = at[A](target.data).unsafe_offset(offsets[unsafe_offset=i * step])
        comptime for j in range(V):
            to.unsafe_offset(j * W).unsafe_store[width=W](sums[unsafe_offset=i * V + j])


def tile_of_runs[A: DType, pitch: Int = 0, step: Int = 1](
    a: Address[A], b: Address[A], c: Address[A], rows: Int, vectors: Int, depth: Int, runs: Runs,
    fresh: Bool, target: Target
):
    """Compute a tile whose rows are runs, and store it to `target`, or to `c` if that has no address.

    With a pitch known at compile time the tile needs no pointer for each of its rows.
    """
    comptime for v in range(1, NV + 1):
        comptime for m in range(MR, 0, -1):
            if vectors == v and rows == m:
                compute_runs[A, m, v, pitch, step](a, b, c, depth, runs, fresh, target)


@always_inline
def compute_runs[A: DType, M: Int, V: Int, pitch: Int, step: Int](
    a: Address[A], b: Address[A], c: Address[A], depth: Int, runs: Runs, fresh: Bool, target: Target
):
    var sums = stack_allocation[M * V, SIMD[A, lanes[A]()]]()
    load_tile[A, M * V](sums, c, fresh)
    var starts = Table(unsafe_from_address=runs.starts)
    var columns = b
    var left = depth
    while left > 0:
        var first = starts[]
        for k in range(first, first + min(left, runs.length)):
            fma_step[A, M, V](sums, a.unsafe_offset(k), pitch if pitch > 0 else runs.pitch, columns)
            columns = columns.unsafe_offset(V * lanes[A]())
        starts = starts.unsafe_offset(1)
        left -= runs.length
    store_tile[A, M, V, step](sums, c, target)


def tile_of_pixels[A: DType](
    a: Address[A], b: Address[A], c: Address[A], rows: Int, vectors: Int, pixels: Pixels, fresh: Bool,
    target: Target
):
    """Compute a tile summed over pixels, each of which has the elements of all rows contiguous."""
    comptime for v in range(1, NV + 1):
        comptime for m in range(MR, 0, -1):
            if vectors == v and rows == m:
                compute_pixels[A, m, v](a, b, c, pixels, fresh, target)


@always_inline
def compute_pixels[
    A: DType, M: Int, V: Int
](a: Address[A], b: Address[A], c: Address[A], p: Pixels, fresh: Bool, target: Target):
    var sums = stack_allocation[M * V, SIMD[A, lanes[A]()]]()
    load_tile[A, M * V](sums, c, fresh)
    for line in range(p.lines):
        var row = a.unsafe_offset(line * p.a_line)
        var columns = b.unsafe_offset(line * p.b_line)
        for _ in range(p.count):
            fma_step[A, M, V](sums, row, 1, columns)
            row = row.unsafe_offset(p.a_step)
            columns = columns.unsafe_offset(p.b_step)
    store_tile[A, M, V](sums, c, target)
