"""The register tile: at most MR rows times NV vectors of columns, summed over a depth.

    c[i, j] = (c[i, j] or 0) + sum_k a[i, k] b[k, j]

All matrix products of this package, in every pass, end here. `a` is read by broadcast, `b` by whole
vectors. Where rows are windows they lie in runs (`slide`); where they are taps and channels, and the
depth is pixels, they lie side by side (`sweep`).
"""

from std.memory import stack_allocation

from simd import AVX512, Address, Table, at, lanes

comptime MR = 14 if AVX512 else 6
"""Rows: with NV = 2, 28 of 32 registers hold sums, or 12 of 16."""
comptime NV = 2


@fieldwise_init
struct Target(ImplicitlyCopyable):
    """Where finished sums go: rows at some distances from an address, columns side by side."""

    var data: Int  # address, 0 to leave the sums in scratch memory
    var bias: Int  # address of the bias of the first column, 0 for none
    var places: Int  # address of the distance of the first row, in numbers
    var apart: Int  # words between the distances of two rows


comptime UNFINISHED = Target(0, 0, 0, 0)


@fieldwise_init
struct Runs(ImplicitlyCopyable):
    """Rows in runs: number k of run r of row i is a[starts[r] + i * pitch + k]."""

    var starts: Int  # address
    var length: Int  # of all runs but the last, which has what is left
    var pitch: Int


@fieldwise_init
struct Pixels(ImplicitlyCopyable):
    """Lines of pixels of `a` and of `b`, and how far apart lines and pixels are."""

    var lines: Int
    var count: Int
    var a_line: Int
    var a_step: Int
    var b_line: Int
    var b_step: Int


comptime Sums[A: DType] = Pointer[SIMD[A, lanes[A]()], MutUntrackedOrigin]


@always_inline
def begin[A: DType, count: Int](sums: Sums[A], c: Address[A], fresh: Bool):
    """Fetch the vectors of a tile that is not fresh."""
    comptime W = lanes[A]()
    comptime for i in range(count):
        var here = c.unsafe_offset(i * W)
        sums[unsafe_offset=i] = SIMD[A, W](0) if fresh else here.unsafe_load[width=W]()


@always_inline
def step[
    A: DType, M: Int, V: Int
](sums: Sums[A], a: Address[A], pitch: Int, b: Address[A]):
    """Add the products of M numbers, `pitch` apart, and V vectors."""
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
def deliver[
    A: DType, M: Int, V: Int
](sums: Sums[A], c: Address[A], target: Target):
    """Write a tile to `c`, or with its bias to `target`."""
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
    var places = Table(unsafe_from_address=target.places)
    comptime for i in range(M):
        var to = at[A](target.data).unsafe_offset(places[unsafe_offset=i * target.apart])
        comptime for j in range(V):
            to.unsafe_offset(j * W).unsafe_store[width=W](sums[unsafe_offset=i * V + j])


def slide[
    A: DType, pitch: Int = 0
](
    a: Address[A],
    b: Address[A],
    c: Address[A],
    rows: Int,
    vectors: Int,
    depth: Int,
    runs: Runs,
    fresh: Bool,
    target: Target,
):
    """Sum a tile whose rows lie in runs, to `target` if that is an address, else to `c`.

    A pitch that is known beforehand spares the tile a pointer for each of its rows.
    """
    comptime for v in range(1, NV + 1):
        comptime for m in range(MR, 0, -1):
            if vectors == v and rows == m:
                slide_tile[A, m, v, pitch](a, b, c, depth, runs, fresh, target)


@always_inline
def slide_tile[
    A: DType, M: Int, V: Int, pitch: Int
](
    a: Address[A],
    b: Address[A],
    c: Address[A],
    depth: Int,
    runs: Runs,
    fresh: Bool,
    target: Target,
):
    var sums = stack_allocation[M * V, SIMD[A, lanes[A]()]]()
    begin[A, M * V](sums, c, fresh)
    var starts = Table(unsafe_from_address=runs.starts)
    var columns = b
    var left = depth
    while left > 0:
        var first = starts[]
        for k in range(first, first + min(left, runs.length)):
            step[A, M, V](sums, a.unsafe_offset(k), pitch if pitch > 0 else runs.pitch, columns)
            columns = columns.unsafe_offset(V * lanes[A]())
        starts = starts.unsafe_offset(1)
        left -= runs.length
    deliver[A, M, V](sums, c, target)


def sweep[
    A: DType
](
    a: Address[A],
    b: Address[A],
    c: Address[A],
    rows: Int,
    vectors: Int,
    pixels: Pixels,
    fresh: Bool,
    target: Target,
):
    """Sum a tile over pixels, of which each has the numbers of its rows side by side."""
    comptime for v in range(1, NV + 1):
        comptime for m in range(MR, 0, -1):
            if vectors == v and rows == m:
                sweep_tile[A, m, v](a, b, c, pixels, fresh, target)


@always_inline
def sweep_tile[
    A: DType, M: Int, V: Int
](a: Address[A], b: Address[A], c: Address[A], p: Pixels, fresh: Bool, target: Target):
    var sums = stack_allocation[M * V, SIMD[A, lanes[A]()]]()
    begin[A, M * V](sums, c, fresh)
    for line in range(p.lines):
        var row = a.unsafe_offset(line * p.a_line)
        var columns = b.unsafe_offset(line * p.b_line)
        for _ in range(p.count):
            step[A, M, V](sums, row, 1, columns)
            row = row.unsafe_offset(p.a_step)
            columns = columns.unsafe_offset(p.b_step)
    deliver[A, M, V](sums, c, target)
