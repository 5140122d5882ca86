"""Passes of a convolution: a gather for each class of the result, or a correlate (see ../../geometry.py)."""

from std.memory import stack_allocation
from std.sys import size_of

from launch import plan
from passes.sizes import Attributes, Extent, Sizes, set_image, stride_of, threads_of
from passes.threads import aligned, spread
from simd import at, clear, size
from windows import Axis, Conv, Filter

comptime PACKED_ALONE = 1 << 17
"""Bytes of a packed filter below which one thread has packed it before a second one has started."""
comptime CONV_WORDS = size_of[Conv]() // 8


@fieldwise_init
struct Arrays(ImplicitlyCopyable):
    """The addresses that a launch takes; 0 for an absent one."""

    var big: Int
    var filter: Int  # a correlate writes it
    var small: Int  # a gather writes it
    var bias: Int
    var pairs: Int
    var second_big: Int
    var second_filter: Int


@fieldwise_init
struct Windows(ImplicitlyCopyable):
    """An axis of the problem: `small` windows over `big` positions."""

    var big: Int
    var small: Int
    var taps: Int
    var stride: Int
    var dilation: Int
    var low: Int

    def classes(self, scatter: Bool) -> Int:
        return min(self.stride, self.big) if scatter else 1

    def set_axis(self, mut axis: Axis, scatter: Bool, start: Int) -> Tuple[Int, Int]:
        """Set the windows of class `start` of the result; return the first tap and the step to the next."""
        axis.count = self.small
        axis.size = self.big
        axis.step = self.stride
        axis.taps = self.taps
        axis.shift = -self.low
        axis.tap_step = self.dilation
        if not scatter:
            return 0, 1
        var first = 0
        var last = 0
        axis.taps = 0
        for r in range(self.taps):
            if (start + self.low - r * self.dilation) % self.stride == 0:
                first = first if axis.taps > 0 else r
                last = r
                axis.taps += 1
        var period = (last - first) // max(1, axis.taps - 1)
        axis.count = (self.big - start + self.stride - 1) // self.stride
        axis.size = self.small
        axis.step = 1
        axis.shift = (start + self.low - last * self.dilation) // self.stride
        axis.tap_step = period * self.dilation // self.stride
        return last, -period


def windows_of(s: Sizes, a: Attributes) -> Tuple[Windows, Windows, Windows]:
    var big = s.output if a.transposed == 1 else s.input
    var small = s.input if a.transposed == 1 else s.output
    return (
        Windows(big.z, small.z, s.filter.z, a.stride.z, a.dilation.z, a.low.z),
        Windows(big.y, small.y, s.filter.y, a.stride.y, a.dilation.y, a.low.y),
        Windows(big.x, small.x, s.filter.x, a.stride.x, a.dilation.x, a.low.x),
    )


def products(s: Sizes, a: Attributes) -> Int:
    var small = s.input if a.transposed == 1 else s.output
    return s.n * s.c * (s.k // s.groups) * s.filter.total() * small.total()


def is_depthwise(s: Sizes) -> Bool:
    return s.groups > 1 and s.c == s.k == s.groups


def gather_pass[T: DType](s: Sizes, a: Attributes, scatter: Bool, arrays: Arrays, scratch: Int) -> Int:
    """Return the bytes of scratch memory; compute y, dx or a tangent of y unless `scratch` is 0."""
    var z, y, x = windows_of(s, a)
    var most = 0
    for i in range(z.classes(scatter)):
        for j in range(y.classes(scatter)):
            for k in range(x.classes(scatter)):
                var start = Extent(i, j, k)
                var bytes: Int
                if is_depthwise(s):
                    bytes = launch[T, "depthwise", "pack_depthwise"](s, a, scatter, start, arrays, scratch)
                else:
                    bytes = launch[T, "gather", "pack_filter"](s, a, scatter, start, arrays, scratch)
                most = max(most, bytes)
    return most


def correlate_pass[T: DType](s: Sizes, a: Attributes, arrays: Arrays, scratch: Int) -> Int:
    """Return the bytes of scratch memory; compute dw unless `scratch` is 0."""
    var start = Extent(0, 0, 0)
    if is_depthwise(s):
        return launch[T, "depthwise_wgrad"](s, a, False, start, arrays, scratch)
    return launch[T, "correlate", merge="merge"](s, a, False, start, arrays, scratch)


def set_filter(mut to: Filter, s: Sizes, a: Attributes, scatter: Bool):
    """Set the strides of the filter; those of z, y and x are the steps of one tap."""
    var rows = s.c if a.transposed == 1 else s.k
    var columns = (s.k if a.transposed == 1 else s.c) // s.groups
    var tap = rows * columns if a.channels_last == 1 else 1
    var small = stride_of(rows, 1 if a.channels_last == 1 else columns * s.filter.total())
    var big = stride_of(columns, rows if a.channels_last == 1 else s.filter.total())
    to.group = small * (rows // s.groups)
    to.channel = small if scatter else big
    to.result = big if scatter else small
    to.z = stride_of(s.filter.z, s.filter.y * s.filter.x * tap)
    to.y = stride_of(s.filter.y, s.filter.x * tap)
    to.x = stride_of(s.filter.x, tap)


def order_taps(mut step: Int, taps: Int, found: Tuple[Int, Int], flip: Int) -> Int:
    """Multiply the step of a tap by that of the windows; return the offset of their first tap."""
    var first, factor = found
    var start = (taps - 1 - first if flip == 1 else first) * step
    step *= -factor if flip == 1 else factor
    return start


def set_geometry(mut p: Conv, s: Sizes, a: Attributes, scatter: Bool, start: Extent) -> Tuple[Int, Int]:
    """Set the geometry but the addresses; return the offsets of the first elements of filter and small."""
    ref g = p.geometry
    var z, y, x = windows_of(s, a)
    var c = s.c // s.groups
    var k = s.k // s.groups
    var exchanged = (a.transposed == 1) != scatter
    g.images = s.n
    g.groups = s.groups
    g.channels = k if exchanged else c
    g.results = c if exchanged else k
    g.bias.c = 1
    var source = s.output if exchanged else s.input
    var result = s.input if exchanged else s.output
    set_image(g.big, s.n, g.channels * s.groups, source, a.channels_last)
    set_image(g.small, s.n, g.results * s.groups, result, a.channels_last)
    set_filter(g.filter, s, a, scatter)
    var first = order_taps(g.filter.z, s.filter.z, z.set_axis(g.z, scatter, start.z), a.flip)
    first += order_taps(g.filter.y, s.filter.y, y.set_axis(g.y, scatter, start.y), a.flip)
    first += order_taps(g.filter.x, s.filter.x, x.set_axis(g.x, scatter, start.x), a.flip)
    var place = g.small.offset(0, start.z, start.y, start.x)
    if scatter:
        g.small.z *= a.stride.z
        g.small.y *= a.stride.y
        g.small.x *= a.stride.x
    g.second_big = g.big
    g.second_filter = g.filter
    return first, place


def launch[
    T: DType, kernel: StaticString, pack: StaticString = "", merge: StaticString = ""
](s: Sizes, a: Attributes, scatter: Bool, start: Extent, arrays: Arrays, scratch: Int) -> Int:
    """Return the bytes of scratch memory of a launch; compute it unless `scratch` is 0."""
    var memory = stack_allocation[CONV_WORDS, Int]()
    for i in range(CONV_WORDS):
        memory[unsafe_offset=i] = 0
    ref p = Pointer[Conv, MutAnyOrigin](unsafe_from_address=Int(memory))[]
    ref g = p.geometry
    var first, place = set_geometry(p, s, a, scatter, start)
    var threads = threads_of(a, products(s, a))
    g.pairs = arrays.pairs
    p.min_units = 2 * threads
    comptime wgrad = kernel == "correlate" or kernel == "depthwise_wgrad"
    if g.windows() == 0 or (wgrad and g.pairs == 0):
        comptime if wgrad:
            if scratch != 0:
                clear[T](at[T](arrays.filter), s.k * (s.c // s.groups) * s.filter.total())
        return 0
    plan[kernel, T](p)
    var workspace = aligned(p.workspace_bytes)
    if scratch != 0:
        comptime bytes = size[T]()
        p.workspace = scratch
        g.big.data = arrays.big
        g.second_big.data = arrays.second_big
        g.filter.data = arrays.filter + first * bytes
        g.second_filter.data = arrays.second_filter + first * bytes
        g.small.data = arrays.small + place * bytes
        g.bias.data = arrays.bias
        comptime if pack != "":
            if p.workspace_bytes > 0:
                var packers = threads if p.workspace_bytes > PACKED_ALONE else 1
                spread[pack, T](Int(memory), p.workspace_units, packers)
        spread[kernel, T](Int(memory), p.units, threads, scratch + workspace, p.scratch_bytes)
        comptime if merge != "":
            if p.workspace_bytes > 0:
                spread[merge, T](Int(memory), p.workspace_units, threads)
    return workspace + threads * aligned(p.scratch_bytes)
