"""Batch norm: each unit computes a pass for a block of channels.

With z = (x - mean) rstd of each channel and m pixels per channel,

    P(u) = u - sum(u) / m - z sum(u z) / m          u where mean and variance are operands
    fprop  y = w z + b          backward  dx = w rstd P(dy)        dw = sum(dy z)   db = sum(dy)
    jvp    y_dot = w rstd P(x_dot) + w_dot z + b_dot

The variance is computed in a second pass over x. A vector is adjacent channels if they are contiguous,
else adjacent pixels of a line.
"""

from std.math import sqrt
from std.memory import stack_allocation

from passes.sizes import Arrays
from simd import Address, at, lanes, load, store, wide
from windows import Source, split

comptime VECTORS = 4
"""Vectors of channels that are summed at a time, so that sums do not wait for one another."""


struct Norm(ImplicitlyCopyable):
    """One launch; the places of vectors of channels are those of the pass."""

    var images: Int
    var channels: Int
    var size_z: Int
    var size_y: Int
    var size_x: Int
    var x: Source
    var u: Source  # dy or x_dot, address 0 for none
    var out: Source  # y or dx
    var out_dot: Source
    var of: Arrays
    var block: Int  # channels of a unit
    var frozen: Bool  # mean and variance are operands
    var eps: Float64
    var momentum: Float64

    @always_inline
    def dense(self) -> Bool:
        return self.has_step(self.x.c, self.u.c, self.out.c, self.out_dot.c)

    @always_inline
    def contiguous_lines(self) -> Bool:
        return self.has_step(self.x.x, self.u.x, self.out.x, self.out_dot.x)

    @always_inline
    def has_step(self, x: Int, u: Int, to: Int, to_dot: Int) -> Bool:
        """Return whether the strides of all arrays that are present are 1."""
        return x == 1 and (u == 1 or self.u.data == 0) and (to == 1 or self.out.data == 0) and (
            to_dot == 1 or self.out_dot.data == 0
        )

    @always_inline
    def count(self) -> Int:
        return self.images * self.size_z * self.size_y * self.size_x


comptime Sums[A: DType, W: Int] = Pointer[SIMD[A, W], MutUntrackedOrigin]
comptime SUM = 0  # of u
comptime SQUARES = 1  # of x - mean
comptime PRODUCTS = 2  # sums of u and of u z


@fieldwise_init
struct Line(ImplicitlyCopyable):
    var n: Int
    var z: Int
    var y: Int

    @always_inline
    def __init__(out self, p: Norm, index: Int):
        var rest, y = split(index, p.size_y)
        var n, z = split(rest, p.size_z)
        self = Self(n, z, y)

    @always_inline
    def of[T: DType](self, s: Source, c: Int) -> Address[T]:
        return at[T](s.data).unsafe_offset(s.offset(self.n, self.z, self.y, 0) + c * s.c)


@fieldwise_init
struct Block[T: DType, W: Int, V: Int, along: Bool](ImplicitlyCopyable):
    """V vectors of W channels from `c` on; if vectors are pixels of a line, the single channel `c`."""

    comptime A = wide[Self.T]
    comptime Vectors = Sums[Self.A, Self.W]
    var c: Int

    @always_inline
    def vectors(self, value: Scalar[Self.A] = 0) -> Self.Vectors:
        var found = stack_allocation[Self.V, SIMD[Self.A, Self.W]]()
        comptime for v in range(Self.V):
            found[unsafe_offset=v] = SIMD[Self.A, Self.W](value)
        return found

    @always_inline
    def read[D: DType](self, p: Norm, i: Int, missing: Scalar[Self.A]) -> Self.Vectors:
        """Return array `i` of numbers of type D, one for each channel."""
        var found = self.vectors(missing)
        if p.of[i] == 0:
            return found
        var step = p.of.step(i)
        var start = at[D](p.of[i]).unsafe_offset(self.c * step)
        comptime for v in range(Self.V):
            comptime if Self.along:
                found[unsafe_offset=v] = SIMD[Self.A, Self.W](load[D, 1](start).cast[Self.A]()[0])
            else:
                if step == 1:
                    found[unsafe_offset=v] = load[D, Self.W](start.unsafe_offset(v * Self.W)).cast[Self.A]()
                else:
                    comptime for j in range(Self.W):
                        var value = load[D, 1](start.unsafe_offset((v * Self.W + j) * step))
                        found[unsafe_offset=v][j] = value.cast[Self.A]()[0]
        return found

    @always_inline
    def write[D: DType](self, p: Norm, i: Int, values: Self.Vectors):
        """Write array `i` of numbers of type D, one for each channel, unless it is absent."""
        if p.of[i] == 0:
            return
        var step = p.of.step(i)
        var start = at[D](p.of[i]).unsafe_offset(self.c * step)
        comptime for v in range(Self.V):
            var value = values[unsafe_offset=v].cast[wide[D]]()
            comptime if Self.along:
                store[D, 1](start, value[0])
            else:
                if step == 1:
                    store[D, Self.W](start.unsafe_offset(v * Self.W), value)
                else:
                    comptime for j in range(Self.W):
                        store[D, 1](start.unsafe_offset((v * Self.W + j) * step), value[j])

    @always_inline
    def add[kind: Int](
        self, p: Norm, u: Source, mean: Self.Vectors, rstd: Self.Vectors, first: Self.Vectors,
        second: Self.Vectors
    ):
        """Add the sums of all pixels."""
        comptime if Self.along:
            var whole = p.size_x // Self.W * Self.W if p.contiguous_lines() else 0
            self.add_pixels[kind](p, u, 0, whole, mean, rstd, first, second)
            var one = Block[Self.T, 1, 1, False](self.c)
            var rest_first = one.vectors()
            var rest_second = one.vectors()
            var of_mean = one.vectors(mean[][0])
            var of_rstd = one.vectors(rstd[][0])
            one.add_pixels[kind](p, u, whole, p.size_x, of_mean, of_rstd, rest_first, rest_second)
            first[] = SIMD[Self.A, Self.W](first[].reduce_add() + rest_first[][0])
            second[] = SIMD[Self.A, Self.W](second[].reduce_add() + rest_second[][0])
        else:
            self.add_pixels[kind](p, u, 0, p.size_x, mean, rstd, first, second)

    @always_inline
    def add_pixels[kind: Int](
        self, p: Norm, other: Source, begin: Int, end: Int, mean: Self.Vectors, rstd: Self.Vectors,
        first: Self.Vectors, second: Self.Vectors
    ):
        """Add pixels `begin` to `end` of all lines."""
        if begin == end:
            return
        for index in range(p.images * p.size_z * p.size_y):
            var line = Line(p, index)
            var from_x = line.of[Self.T](p.x, self.c)
            var from_u = line.of[Self.T](other, self.c)
            for i in range(begin, end, Self.W if Self.along else 1):
                comptime for v in range(Self.V):
                    var u = SIMD[Self.A, Self.W](0)
                    comptime if kind != SQUARES:
                        u = load[Self.T, Self.W](from_u.unsafe_offset(i * other.x + v * Self.W))
                        first[unsafe_offset=v] += u
                    comptime if kind != SUM:
                        var x = load[Self.T, Self.W](from_x.unsafe_offset(i * p.x.x + v * Self.W))
                        var z = x - mean[unsafe_offset=v]
                        comptime if kind == SQUARES:
                            second[unsafe_offset=v] = z.fma(z, second[unsafe_offset=v])
                        else:
                            z *= rstd[unsafe_offset=v]
                            second[unsafe_offset=v] = u.fma(z, second[unsafe_offset=v])

    @always_inline
    def affine[of_z: Bool, of_u: Bool](
        self, p: Norm, to: Source, mean: Self.Vectors, rstd: Self.Vectors, a: Self.Vectors,
        b: Self.Vectors, c: Self.Vectors
    ):
        """Write a z + b u + c, without a term that is absent: 0 * inf would be NaN."""
        comptime if Self.along:
            var whole = p.size_x // Self.W * Self.W if p.contiguous_lines() else 0
            self.write_pixels[of_z, of_u](p, to, 0, whole, mean, rstd, a, b, c)
            var one = Block[Self.T, 1, 1, False](self.c)
            one.write_pixels[of_z, of_u](
                p, to, whole, p.size_x, one.vectors(mean[][0]), one.vectors(rstd[][0]),
                one.vectors(a[][0]), one.vectors(b[][0]), one.vectors(c[][0])
            )
        else:
            self.write_pixels[of_z, of_u](p, to, 0, p.size_x, mean, rstd, a, b, c)

    @always_inline
    def write_pixels[of_z: Bool, of_u: Bool](
        self, p: Norm, to: Source, begin: Int, end: Int, mean: Self.Vectors, rstd: Self.Vectors,
        a: Self.Vectors, b: Self.Vectors, c: Self.Vectors
    ):
        """Write pixels `begin` to `end` of all lines."""
        if begin == end:
            return
        for index in range(p.images * p.size_z * p.size_y):
            var line = Line(p, index)
            var from_x = line.of[Self.T](p.x, self.c)
            var from_u = line.of[Self.T](p.u, self.c)
            var start = line.of[Self.T](to, self.c)
            for i in range(begin, end, Self.W if Self.along else 1):
                comptime for v in range(Self.V):
                    var value = c[unsafe_offset=v]
                    comptime if of_z:
                        var x = load[Self.T, Self.W](from_x.unsafe_offset(i * p.x.x + v * Self.W))
                        var z = (x - mean[unsafe_offset=v]) * rstd[unsafe_offset=v]
                        value = z.fma(a[unsafe_offset=v], value)
                    comptime if of_u:
                        var u = load[Self.T, Self.W](from_u.unsafe_offset(i * p.u.x + v * Self.W))
                        value = u.fma(b[unsafe_offset=v], value)
                    store[Self.T, Self.W](start.unsafe_offset(i * to.x + v * Self.W), value)


comptime CHANNEL_SUMS = 0
comptime FPROP = 1
comptime BACKWARD = 2
comptime JVP = 3


def norm_pass[T: DType, kind: Int](p: Norm, low: Int, high: Int):
    """Compute units `low` to `high` of a pass."""
    comptime W = lanes[wide[T]]()
    for unit in range(low, high):
        var c = unit * p.block
        var end = min(p.channels, c + p.block)
        comptime for half in range(3):
            comptime V = VECTORS >> half
            while p.dense() and c + V * W <= end:
                norm_block[kind](p, Block[T, W, V, False](c))
                c += V * W
        while c < end:
            norm_block[kind](p, Block[T, W, 1, True](c))
            c += 1


@no_inline
def norm_block[
    T: DType, W: Int, V: Int, along: Bool, //, kind: Int
](norm: Norm, block: Block[T, W, V, along]):
    var p = norm  # a copy, which stores to the results cannot change
    comptime if kind == CHANNEL_SUMS:
        var sums = block.vectors()
        block.add[SUM](p, p.x, sums, sums, sums, block.vectors())
        block.write[T](p, 1, sums)
    elif kind == FPROP:
        fprop_block(p, block)
    elif kind == BACKWARD:
        backward_block(p, block)
    else:
        jvp_block(p, block)


@always_inline
def set_statistics[
    T: DType, W: Int, V: Int, along: Bool, //
](p: Norm, block: Block[T, W, V, along], mean: Sums[wide[T], W], variance: Sums[wide[T], W], rstd: Sums[wide[T], W]):
    """Set mean, variance and rstd, from x unless mean and variance are operands 3 and 4."""
    comptime A = wide[T]
    var count = Scalar[A](p.count())
    if p.frozen:
        var of_mean = block.read[A](p, 3, 0)
        var of_variance = block.read[A](p, 4, 0)
        comptime for v in range(V):
            mean[unsafe_offset=v] = of_mean[unsafe_offset=v]
            variance[unsafe_offset=v] = of_variance[unsafe_offset=v]
    else:
        block.add[SUM](p, p.x, mean, rstd, mean, block.vectors())
        comptime for v in range(V):
            mean[unsafe_offset=v] /= count
        block.add[SQUARES](p, p.x, mean, rstd, block.vectors(), variance)
        comptime for v in range(V):
            variance[unsafe_offset=v] /= count
    comptime for v in range(V):
        rstd[unsafe_offset=v] = 1 / sqrt(variance[unsafe_offset=v] + Scalar[A](p.eps))


@always_inline
def fprop_block[T: DType, W: Int, V: Int, along: Bool, //](p: Norm, block: Block[T, W, V, along]):
    comptime A = wide[T]
    var mean = block.vectors()
    var variance = block.vectors()
    var rstd = block.vectors()
    set_statistics(p, block, mean, variance, rstd)
    var w = block.read[T](p, 1, 1)
    block.affine[True, False](p, p.out, mean, rstd, w, w, block.read[T](p, 2, 0))
    if p.frozen:
        return
    var share = Scalar[A](p.momentum)
    var count = Scalar[A](p.count())
    var of_mean = block.read[A](p, 3, 0)
    var of_variance = block.read[A](p, 4, 0)
    comptime for v in range(V):
        var unbiased = variance[unsafe_offset=v] * (count / (count - 1))
        of_mean[unsafe_offset=v] = (1 - share) * of_mean[unsafe_offset=v] + share * mean[unsafe_offset=v]
        of_variance[unsafe_offset=v] = (1 - share) * of_variance[unsafe_offset=v] + share * unbiased
    block.write[A](p, 6, mean)
    block.write[A](p, 7, rstd)
    block.write[A](p, 8, of_mean)
    block.write[A](p, 9, of_variance)


@always_inline
def project[T: DType, W: Int, V: Int, along: Bool, //](
    p: Norm, block: Block[T, W, V, along], scale: Sums[wide[T], W], first: Sums[wide[T], W],
    second: Sums[wide[T], W], of_z: Sums[wide[T], W], constant: Sums[wide[T], W]
):
    """Add the factor of z and the constant of scale P(u), from the sums of u and u z."""
    var count = Scalar[wide[T]](p.count())
    comptime for v in range(V):
        of_z[unsafe_offset=v] -= scale[unsafe_offset=v] * (second[unsafe_offset=v] / count)
        constant[unsafe_offset=v] -= scale[unsafe_offset=v] * (first[unsafe_offset=v] / count)


@always_inline
def backward_block[T: DType, W: Int, V: Int, along: Bool, //](p: Norm, block: Block[T, W, V, along]):
    comptime A = wide[T]
    var mean = block.read[A](p, 3, 0)
    var rstd = block.read[A](p, 4, 0)
    if p.frozen:
        comptime for v in range(V):
            rstd[unsafe_offset=v] = 1 / sqrt(rstd[unsafe_offset=v] + Scalar[A](p.eps))
    var first = block.vectors()
    var second = block.vectors()
    block.add[PRODUCTS](p, p.u, mean, rstd, first, second)
    if p.out.data != 0:
        var scale = block.read[T](p, 2, 1)
        var of_z = block.vectors()
        var constant = block.vectors()
        comptime for v in range(V):
            scale[unsafe_offset=v] *= rstd[unsafe_offset=v]
        if p.frozen:
            block.affine[False, True](p, p.out, mean, rstd, of_z, scale, constant)
        else:
            project(p, block, scale, first, second, of_z, constant)
            block.affine[True, True](p, p.out, mean, rstd, of_z, scale, constant)
    block.write[T](p, 6, second)
    block.write[T](p, 7, first)


@always_inline
def jvp_block[T: DType, W: Int, V: Int, along: Bool, //](p: Norm, block: Block[T, W, V, along]):
    var mean = block.vectors()
    var variance = block.vectors()
    var rstd = block.vectors()
    set_statistics(p, block, mean, variance, rstd)
    var scale = block.read[T](p, 1, 1)
    block.affine[True, False](p, p.out, mean, rstd, scale, scale, block.read[T](p, 2, 0))
    comptime for v in range(V):
        scale[unsafe_offset=v] *= rstd[unsafe_offset=v]
    var of_z = block.read[T](p, 6, 0)
    var constant = block.read[T](p, 7, 0)
    if p.u.data == 0:
        if p.of[6] != 0:
            block.affine[True, False](p, p.out_dot, mean, rstd, of_z, of_z, constant)
        else:
            block.affine[False, False](p, p.out_dot, mean, rstd, of_z, of_z, constant)
        return
    if p.frozen and p.of[6] == 0:
        block.affine[False, True](p, p.out_dot, mean, rstd, of_z, scale, constant)
        return
    if not p.frozen:
        var first = block.vectors()
        var second = block.vectors()
        block.add[PRODUCTS](p, p.u, mean, rstd, first, second)
        project(p, block, scale, first, second, of_z, constant)
    block.affine[True, True](p, p.out_dot, mean, rstd, of_z, scale, constant)
