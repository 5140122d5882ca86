"""Loads, stores and copies: loads widen to the accumulator type, stores round once to nearest even.

A cast to bfloat16 would call the compiler's runtime library, so the bits are rounded here.
"""

from std.memory import bitcast, stack_allocation
from std.sys import CompilationTarget, simd_width_of

comptime Address[T: DType] = Pointer[Scalar[T], MutAnyOrigin]
comptime Table = Pointer[Int, MutAnyOrigin]

comptime wide[T: DType]: DType = DType.float32 if T == DType.bfloat16 else T
"""The accumulator type of T."""

comptime AVX512 = CompilationTarget.has_avx512f()


@always_inline
def lanes[T: DType]() -> Int:
    comptime if AVX512:
        return 512 // 8 // size[T]()
    return simd_width_of[T]()


@always_inline
def size[T: DType]() -> Int:
    comptime if T == DType.float64:
        return 8
    comptime if T == DType.bfloat16:
        return 2
    return 4


@always_inline
def at[T: DType](address: Int) -> Address[T]:
    return Address[T](unsafe_from_address=address)


@always_inline
def load[T: DType, W: Int](p: Address[T]) -> SIMD[wide[T], W]:
    """Load W contiguous elements, widened."""
    return p.unsafe_load[width=W]().cast[wide[T]]()


@always_inline
def store[T: DType, W: Int](p: Address[T], v: SIMD[wide[T], W]):
    """Round W values to T, to nearest even, and store them."""
    comptime if T == DType.bfloat16:
        var bits = bitcast[DType.uint32, W](v)
        # The low half of a NaN that was loaded from bfloat16 is zero, so rounding keeps it a NaN.
        var nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        p.unsafe_store[width=W](bitcast[T, W](nearest.cast[DType.uint16]()))
    else:
        p.unsafe_store[width=W](v.cast[T]())


@always_inline
def copy[T: DType](to: Address[wide[T]], start: Address[T], count: Int, step: Int):
    """Copy `count` elements of stride `step` to contiguous memory, widened."""
    if step != 1:
        for i in range(count):
            to[unsafe_offset=i] = load[T, 1](start.unsafe_offset(i * step))
        return
    comptime W = lanes[wide[T]]()
    if count >= W:
        for i in range(0, count - W + 1, W):
            to.unsafe_offset(i).unsafe_store[width=W](load[T, W](start.unsafe_offset(i)))
        var last = count - W  # the last vector overlaps the one before it
        if count % W != 0:
            to.unsafe_offset(last).unsafe_store[width=W](load[T, W](start.unsafe_offset(last)))
        return
    var i = 0
    comptime for half in range(log2(W)):
        comptime V = W >> (half + 1)
        if count & V:
            to.unsafe_offset(i).unsafe_store[width=V](load[T, V](start.unsafe_offset(i)))
            i += V


@always_inline
def clear[A: DType](to: Address[A], count: Int):
    comptime W = lanes[A]()
    var i = 0
    while i + W <= count:
        to.unsafe_offset(i).unsafe_store[width=W](SIMD[A, W](0))
        i += W
    while i < count:
        to[unsafe_offset=i] = 0
        i += 1


@always_inline
def transpose[T: DType](to: Address[wide[T]], pitch: Int, start: Address[T], step: Int, count: Int):
    """Transpose `count` lines of W elements, `step` apart, into W lines; missing columns are zero.

    Interleaving the lines of both halves rotates the index (line, column) by one bit; log2(W) rounds
    exchange line and column.
    """
    comptime A = wide[T]
    comptime W = lanes[A]()
    var lines = stack_allocation[W, SIMD[A, W]]()
    comptime for i in range(W):
        var line = SIMD[A, W](0)
        if i < count:
            line = load[T, W](start.unsafe_offset(i * step))
        lines[unsafe_offset=i] = line
    comptime for round in range(log2(W)):
        var turned = stack_allocation[W, SIMD[A, W]]()
        comptime for i in range(W // 2):
            var both = lines[unsafe_offset=i].interleave(lines[unsafe_offset=i + W // 2])
            turned[unsafe_offset=2 * i] = both.slice[W]()
            turned[unsafe_offset=2 * i + 1] = both.slice[W, offset=W]()
        comptime for i in range(W):
            lines[unsafe_offset=i] = turned[unsafe_offset=i]
    comptime for i in range(W):
        to.unsafe_offset(i * pitch).unsafe_store[width=W](lines[unsafe_offset=i])


@always_inline
def pack_pixels[T: DType](
    to: Address[wide[T]], pitch: Int, start: Address[T], count: Int, pixel: Int, channels: Int, channel: Int
):
    """Write `count` pixels `pitch` apart with contiguous channels; `pixel` and `channel` are the strides
    of the source."""
    comptime W = lanes[wide[T]]()
    if channel == 1 and pixel == channels and pitch == channels:
        copy[T](to, start, count * channels, 1)
        return
    var i = 0
    while i < count:
        var many = W if pixel == 1 and i + W <= count else 1
        var square = channels // W * W if many == W else 0
        for c in range(0, square, W):
            var corner = start.unsafe_offset(i + c * channel)
            transpose[T](to.unsafe_offset(i * pitch + c), pitch, corner, channel, W)
        for j in range(i, i + many):
            var rest = start.unsafe_offset(j * pixel + square * channel)
            copy[T](to.unsafe_offset(j * pitch + square), rest, channels - square, channel)
        i += many


def log2(n: Int) -> Int:
    var found = 0
    while (1 << found) < n:
        found += 1
    return found
