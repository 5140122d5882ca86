"""Passes of batch norm: launches over images, and the vectors of channels between them (see ../norm.py).

With z = (x - mean) rstd and m pixels per channel,

    P(u) = u - sum(u) / m - z sum(u z) / m          u where mean and variance are operands
    fprop  y = w z + b          backward  dx = w rstd P(dy)        dw = sum(dy z)   db = sum(dy)
    jvp    y_dot = w rstd P(x_dot) + w_dot z + b_dot
"""

from std.math import sqrt
from std.memory import stack_allocation
from std.sys import size_of

from norm import CHANNELS, Norm
from passes.sizes import Addresses, Attributes, Sizes, set_image, threads_of
from passes.threads import aligned, spread
from simd import Address, at, clear, load, size, store, wide

comptime NORM_WORDS = size_of[Norm]() // 8
comptime VECTORS = 7  # of a Norm


@always_inline
def of_image[T: DType](s: Sizes, a: Attributes, x: Int, scratch: Int) -> Norm:
    """Return the struct of both kernels for an array, with vectors of zeros."""
    comptime A = wide[T]
    var memory = stack_allocation[NORM_WORDS, Int]()
    var p = Pointer[Norm, MutAnyOrigin](unsafe_from_address=Int(memory))[]
    var step = aligned(s.c * size[A]())
    clear[DType.float32](at[DType.float32](scratch), VECTORS * step // 4)
    p.images = s.n
    p.channels = s.c
    p.size_z = s.input.z
    p.size_y = s.input.y
    p.size_x = s.input.x
    set_image(p.x, s.n, s.c, s.input, a.channels_last)
    p.x.data = x
    p.u = p.x
    p.out = p.x
    p.mean = scratch
    p.rstd = scratch + step
    p.sum = scratch + 2 * step
    p.sum_z = scratch + 3 * step
    p.p = scratch + 4 * step
    p.q = scratch + 5 * step
    p.r = scratch + 6 * step
    return p


def vectors_bytes[T: DType](s: Sizes) -> Int:
    return VECTORS * aligned(s.c * size[wide[T]]())


def sums[T: DType](mut p: Norm, u: Int, threads: Int):
    """Sum u and u z of each channel; without u, z and its square."""
    p.u.data = u
    var address = Int(Pointer(to=p))
    spread["channel_sums", T](address, (p.channels + CHANNELS - 1) // CHANNELS, threads)


def write[T: DType](p: Norm, u: Int, result: Int, of_z: Bool, threads: Int):
    """Write z p + u q + r, without the first term unless `of_z`."""
    var launch = p
    launch.u.data = u
    launch.out.data = result
    launch.p = p.p if of_z else 0
    spread["affine", T](Int(Pointer(to=launch)), p.images * p.size_z * p.size_y, threads)
    _ = launch^


@always_inline
def element[T: DType](vector: Int, c: Int, absent: Scalar[wide[T]]) -> Scalar[wide[T]]:
    return absent if vector == 0 else load[T, 1](at[T](vector).unsafe_offset(c))[0]


def set_statistics[T: DType](mut p: Norm, a: Attributes, mean: Int, variance: Int, threads: Int):
    """Set mean and rstd, from x unless mean and variance are operands; `sum_z` has the variance then."""
    comptime A = wide[T]
    var count = Scalar[A](p.images * p.size_z * p.size_y * p.size_x)
    var of_mean = at[A](p.mean)
    var of_rstd = at[A](p.rstd)
    var of_variance = at[A](p.sum_z if mean == 0 else variance)
    if mean == 0:
        sums[T](p, p.x.data, threads)
    for c in range(p.channels):
        var total = at[A](p.sum)[unsafe_offset=c]
        of_mean[unsafe_offset=c] = at[A](mean)[unsafe_offset=c] if mean != 0 else total / count
        of_rstd[unsafe_offset=c] = 1
    if mean == 0:
        sums[T](p, 0, threads)
    for c in range(p.channels):
        if mean == 0:
            of_variance[unsafe_offset=c] /= count
        of_rstd[unsafe_offset=c] = 1 / sqrt(of_variance[unsafe_offset=c] + Scalar[A](a.eps))


def channel_sums_pass[T: DType](s: Sizes, a: Attributes, x: Int, sum: Int, scratch: Int) -> Int:
    """Write the sum of each channel of the output of a convolution."""
    if scratch == 0:
        return VECTORS * aligned(s.k * size[wide[T]]())
    var of = s
    of.c = s.k
    of.input = s.output
    var p = of_image[T](of, a, x, scratch)
    sums[T](p, x, threads_of(a, s.n * s.k * s.output.total()))
    for c in range(s.k):
        store[T, 1](at[T](sum).unsafe_offset(c), at[wide[T]](p.sum)[unsafe_offset=c])
    return 0


def fprop_pass[T: DType](s: Sizes, a: Attributes, arrays: Addresses, scratch: Int) -> Int:
    comptime A = wide[T]
    if scratch == 0:
        return vectors_bytes[T](s)
    var threads = threads_of(a, s.n * s.c * s.input.total())
    var p = of_image[T](s, a, arrays[0], scratch)
    var frozen = a.frozen == 1
    set_statistics[T](p, a, arrays[3] if frozen else 0, arrays[4], threads)
    set_affine[T](p, arrays[1], arrays[2])
    write[T](p, 0, arrays[5], True, threads)
    if frozen:
        return 0
    var count = Scalar[A](s.n * s.input.total())
    var share = Scalar[A](a.momentum)
    for c in range(s.c):
        var mean = at[A](p.mean)[unsafe_offset=c]
        var variance = at[A](p.sum_z)[unsafe_offset=c] * (count / (count - 1))
        at[A](arrays[6])[unsafe_offset=c] = mean
        at[A](arrays[7])[unsafe_offset=c] = at[A](p.rstd)[unsafe_offset=c]
        var rmean = at[A](arrays[3])[unsafe_offset=c]
        var rvar = at[A](arrays[4])[unsafe_offset=c]
        at[A](arrays[8])[unsafe_offset=c] = (1 - share) * rmean + share * mean
        at[A](arrays[9])[unsafe_offset=c] = (1 - share) * rvar + share * variance
    return 0


def set_affine[T: DType](p: Norm, w: Int, b: Int):
    """Set the factors of w z + b."""
    comptime A = wide[T]
    for c in range(p.channels):
        at[A](p.p)[unsafe_offset=c] = element[T](w, c, 1)
        at[A](p.q)[unsafe_offset=c] = 0
        at[A](p.r)[unsafe_offset=c] = element[T](b, c, 0)


def set_projected[T: DType](p: Norm, w: Int, w_dot: Int, b_dot: Int, frozen: Bool):
    """Set the factors of w rstd P(u) + w_dot z + b_dot, from the sums of u."""
    comptime A = wide[T]
    var count = Scalar[A](p.images * p.size_z * p.size_y * p.size_x)
    for c in range(p.channels):
        var scale = element[T](w, c, 1) * at[A](p.rstd)[unsafe_offset=c]
        var of_z = element[T](w_dot, c, 0)
        var constant = element[T](b_dot, c, 0)
        if not frozen:
            of_z -= scale * (at[A](p.sum_z)[unsafe_offset=c] / count)
            constant -= scale * (at[A](p.sum)[unsafe_offset=c] / count)
        at[A](p.p)[unsafe_offset=c] = of_z
        at[A](p.q)[unsafe_offset=c] = scale
        at[A](p.r)[unsafe_offset=c] = constant


def backward_pass[T: DType](s: Sizes, a: Attributes, arrays: Addresses, scratch: Int) -> Int:
    comptime A = wide[T]
    if scratch == 0:
        return vectors_bytes[T](s)
    var threads = threads_of(a, s.n * s.c * s.input.total())
    var p = of_image[T](s, a, arrays[1], scratch)
    var frozen = a.frozen == 1
    for c in range(s.c):
        var second = at[A](arrays[4])[unsafe_offset=c]
        at[A](p.mean)[unsafe_offset=c] = at[A](arrays[3])[unsafe_offset=c]
        at[A](p.rstd)[unsafe_offset=c] = 1 / sqrt(second + Scalar[A](a.eps)) if frozen else second
    sums[T](p, arrays[0], threads)
    if arrays[5] != 0:
        set_projected[T](p, arrays[2], 0, 0, frozen)
        write[T](p, arrays[0], arrays[5], not frozen, threads)
    for c in range(s.c):
        if arrays[6] != 0:
            store[T, 1](at[T](arrays[6]).unsafe_offset(c), at[A](p.sum_z)[unsafe_offset=c])
        if arrays[7] != 0:
            store[T, 1](at[T](arrays[7]).unsafe_offset(c), at[A](p.sum)[unsafe_offset=c])
    return 0


def jvp_pass[T: DType](s: Sizes, a: Attributes, arrays: Addresses, scratch: Int) -> Int:
    if scratch == 0:
        return vectors_bytes[T](s)
    var threads = threads_of(a, s.n * s.c * s.input.total())
    var p = of_image[T](s, a, arrays[0], scratch)
    var frozen = a.frozen == 1
    set_statistics[T](p, a, arrays[3] if frozen else 0, arrays[4], threads)
    set_affine[T](p, arrays[1], arrays[2])
    write[T](p, 0, arrays[8], True, threads)
    if arrays[5] != 0:
        sums[T](p, arrays[5], threads)
    set_projected[T](p, arrays[1], arrays[6], arrays[7], frozen or arrays[5] == 0)
    var of_z = arrays[6] != 0 or (arrays[5] != 0 and not frozen)
    write[T](p, arrays[5], arrays[9], of_z, threads)
    return 0
