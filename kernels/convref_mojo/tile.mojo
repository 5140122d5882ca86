"""The register tile: MR rows times NV vectors of columns, summed over a depth.

    c[i, j] = (c[i, j] or 0) + sum_k a[i, k] b[k, j]

All matrix products of this package, in every pass, end here. `a` is read by broadcast, `b` by
whole vectors; both lie packed, so that every address is a constant away from two pointers.
"""

from std.memory import stack_allocation

from numbers import AVX512, Address, Table, at, lanes

comptime MR = 14 if AVX512 else 6
"""Rows: with NV = 2, 28 of 32 registers hold sums, or 12 of 16."""
comptime NV = 2
comptime CHUNK = 64
"""Depth of a piece of packed rows; MR * CHUNK numbers are a pitch that no cache set dislikes."""
comptime PITCH = 16 if AVX512 else 8
"""Distance of successive depths where rows are packed side by side."""


@fieldwise_init
struct Target(ImplicitlyCopyable):
    """Where finished sums go: rows at some distances from an address, columns side by side."""

    var data: Int  # address, 0 to leave the sums in scratch memory
    var bias: Int  # address of the bias of the first column, 0 for none
    var places: Int  # address of the distance of the first row, in numbers
    var apart: Int  # words between the distances of two rows


comptime UNFINISHED = Target(0, 0, 0, 0)


@always_inline
def steps[
    A: DType, M: Int, V: Int, row: Int, step: Int
](
    a: Address[A],
    b: Address[A],
    c: Address[A],
    depth: Int,
    chunks: Int,
    fresh: Bool,
    target: Target,
    present: Int,
):
    """Sum M rows and V vectors over `depth`; a[i, k] lies at i * row + k * step of its chunk."""
    comptime W = lanes[A]()
    var sums = stack_allocation[M * V, SIMD[A, W]]()
    comptime for i in range(M):
        comptime for j in range(V):
            var here = c.unsafe_offset((i * V + j) * W)
            sums[unsafe_offset=i * V + j] = SIMD[A, W](0) if fresh else here.unsafe_load[width=W]()
    var left = depth
    var rows = a
    var columns = b
    for _ in range(chunks):
        var length = min(left, CHUNK) if step == 1 else left
        for k in range(length):
            var column = stack_allocation[V, SIMD[A, W]]()
            comptime for j in range(V):
                column[unsafe_offset=j] = columns.unsafe_offset(j * W).unsafe_load[width=W]()
            comptime for i in range(M):
                var value = SIMD[A, W](rows[unsafe_offset=i * row + k * step])
                comptime for j in range(V):
                    var sum = sums[unsafe_offset=i * V + j]
                    sums[unsafe_offset=i * V + j] = value.fma(column[unsafe_offset=j], sum)
            columns = columns.unsafe_offset(V * W)
        rows = rows.unsafe_offset(MR * CHUNK)
        left -= length
    if target.data == 0:
        comptime for i in range(M):
            comptime for j in range(V):
                var here = c.unsafe_offset((i * V + j) * W)
                here.unsafe_store[width=W](sums[unsafe_offset=i * V + j])
        return
    if target.bias != 0:
        comptime for j in range(V):
            var bias = at[A](target.bias).unsafe_offset(j * W).unsafe_load[width=W]()
            comptime for i in range(M):
                sums[unsafe_offset=i * V + j] += bias
    var places = Table(unsafe_from_address=target.places)
    comptime for i in range(M):
        if i < present:
            var place = places[unsafe_offset=i * target.apart]
            var to = at[A](target.data).unsafe_offset(place)
            comptime for j in range(V):
                to.unsafe_offset(j * W).unsafe_store[width=W](sums[unsafe_offset=i * V + j])


def multiply[
    A: DType, row: Int, step: Int
](
    a: Address[A],
    b: Address[A],
    c: Address[A],
    rows: Int,
    vectors: Int,
    depth: Int,
    fresh: Bool,
    target: Target,
):
    """Sum a tile of `rows` <= MR and `vectors` <= NV, to `target` if that is an address, else to `c`.

    One row more may be computed: `a` and `c` must have room for an even number of them.
    """
    var chunks = (depth + CHUNK - 1) // CHUNK if step == 1 else min(depth, 1)
    comptime for v in range(1, NV + 1):
        comptime for m in range(2, MR + 1, 2):
            if vectors == v and (rows == m or rows == m - 1):
                steps[A, m, v, row, step](
                    a, b, c, depth, chunks, fresh, target, rows
                )
