"""Passes of a convolution: a gather for each class of the result, or a correlate (see ../../geometry.py)."""

from std.memory import stack_allocation
from std.sys import size_of

from launch import plan
from passes.sizes import Arrays, Attributes, Extent, Sizes, set_image, stride_of, threads_of
from passes.threads import aligned, spread
from simd import at, size
from windows import Axis, Conv, Filter, split

comptime PACKED_ALONE = 1 << 17
"""Bytes of a packed filter below which one thread has packed it before a second one has started."""
comptime CONV_WORDS = size_of[Conv]() // 8


@fieldwise_init
struct Roles(ImplicitlyCopyable):
    """The arrays of a pass, and which of them a launch takes; -1 for an absent one."""

    var of: Arrays
    var big: Int
    var filter: Int  # a correlate writes it
    var small: Int  # a gather writes it
    var bias: Int
    var pairs: Int
    var second_big: Int
    var second_filter: Int


@fieldwise_init
struct Starts(ImplicitlyCopyable):
    """Offsets of the first elements that a launch uses."""

    var filter: Int
    var second_filter: Int
    var small: Int


comptime Taps = Tuple[Int, Int]
"""The first tap along an axis, and the step to the next."""


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

    def set_axis(self, mut axis: Axis, scatter: Bool, start: Int) -> Taps:
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


def gather_pass[T: DType](s: Sizes, a: Attributes, scatter: Bool, roles: Roles, scratch: Int) -> Int:
    """Return the bytes of scratch memory; compute y, dx or a tangent of y unless `scratch` is 0."""
    var z, y, x = windows_of(s, a)
    var most = 0
    for i in range(z.classes(scatter)):
        for j in range(y.classes(scatter)):
            for k in range(x.classes(scatter)):
                var start = Extent(i, j, k)
                var bytes: Int
                if is_depthwise(s):
                    bytes = launch[T, "depthwise", "pack_depthwise"](s, a, scatter, start, roles, scratch)
                else:
                    bytes = launch[T, "gather", "pack_filter"](s, a, scatter, start, roles, scratch)
                most = max(most, bytes)
    return most


def correlate_pass[T: DType](s: Sizes, a: Attributes, roles: Roles, scratch: Int) -> Int:
    """Return the bytes of scratch memory; compute dw unless `scratch` is 0."""
    var start = Extent(0, 0, 0)
    if is_depthwise(s):
        return launch[T, "depthwise_wgrad"](s, a, False, start, roles, scratch)
    return launch[T, "correlate", merge="merge"](s, a, False, start, roles, scratch)


def set_filter(mut to: Filter, arrays: Arrays, i: Int, s: Sizes, a: Attributes, scatter: Bool):
    """Set the strides of filter `i`; those of z, y and x are the steps of one tap."""
    var rows = s.c if a.transposed == 1 else s.k
    var columns = (s.k if a.transposed == 1 else s.c) // s.groups
    var tap = rows * columns if a.channels_last == 1 else 1
    var small = stride_of(rows, 1 if a.channels_last == 1 else columns * s.filter.total())
    var big = stride_of(columns, rows if a.channels_last == 1 else s.filter.total())
    to.z = stride_of(s.filter.z, s.filter.y * s.filter.x * tap)
    to.y = stride_of(s.filter.y, s.filter.x * tap)
    to.x = stride_of(s.filter.x, tap)
    if arrays.strides != 0 and i >= 0:
        var row = arrays.row(i)
        small = row[]
        big = row[unsafe_offset=1]
        to.z = row[unsafe_offset=2]
        to.y = row[unsafe_offset=3]
        to.x = row[unsafe_offset=4]
    to.group = small * (rows // s.groups)
    to.channel = small if scatter else big
    to.result = big if scatter else small


def order_taps(mut step: Int, taps: Int, found: Taps, flip: Int) -> Int:
    """Multiply the step of a tap by that of the windows; return the offset of their first tap."""
    var first, factor = found
    var start = (taps - 1 - first if flip == 1 else first) * step
    step *= -factor if flip == 1 else factor
    return start


def set_taps(mut to: Filter, s: Sizes, a: Attributes, taps: Tuple[Taps, Taps, Taps]) -> Int:
    """Set the steps of the taps that are read; return the offset of the first."""
    var first = order_taps(to.z, s.filter.z, taps[0], a.flip)
    first += order_taps(to.y, s.filter.y, taps[1], a.flip)
    return first + order_taps(to.x, s.filter.x, taps[2], a.flip)


def set_geometry(mut p: Conv, s: Sizes, a: Attributes, scatter: Bool, start: Extent, roles: Roles) -> Starts:
    """Set the geometry but the addresses."""
    ref g = p.geometry
    var z, y, x = windows_of(s, a)
    var c = s.c // s.groups
    var k = s.k // s.groups
    var exchanged = (a.transposed == 1) != scatter
    g.images = s.n
    g.groups = s.groups
    g.channels = k if exchanged else c
    g.results = c if exchanged else k
    g.pairs = roles.pairs
    g.bias.c = roles.of.step(roles.bias)
    var source = s.output if exchanged else s.input
    var result = s.input if exchanged else s.output
    var channels = g.channels * s.groups
    set_image(g.big, roles.of, roles.big, s.n, channels, source, a.channels_last)
    set_image(g.second_big, roles.of, roles.second_big, s.n, channels, source, a.channels_last)
    set_image(g.small, roles.of, roles.small, s.n, g.results * s.groups, result, a.channels_last)
    set_filter(g.filter, roles.of, roles.filter, s, a, scatter)
    set_filter(g.second_filter, roles.of, roles.second_filter, s, a, scatter)
    var taps = (
        z.set_axis(g.z, scatter, start.z), y.set_axis(g.y, scatter, start.y), x.set_axis(g.x, scatter, start.x)
    )
    var first = set_taps(g.filter, s, a, taps)
    var second = set_taps(g.second_filter, s, a, taps)
    var place = g.small.offset(0, start.z, start.y, start.x)
    if scatter:
        g.small.z *= a.stride.z
        g.small.y *= a.stride.y
        g.small.x *= a.stride.x
    return Starts(first, second, place)


def clear_filter[T: DType](s: Sizes, a: Attributes, roles: Roles):
    """Set all elements of the filter to zero."""
    var filter = Filter(roles.of[roles.filter], 0, 0, 0, 0, 0, 0)
    set_filter(filter, roles.of, roles.filter, s, a, False)
    var rows = s.c if a.transposed == 1 else s.k
    var columns = (s.k if a.transposed == 1 else s.c) // s.groups
    for i in range(rows * columns * s.filter.total()):
        var lines, x = split(i, s.filter.x)
        var planes, y = split(lines, s.filter.y)
        var matrix, z = split(planes, s.filter.z)
        var row, column = split(matrix, columns)
        var tap = z * filter.z + y * filter.y + x * filter.x
        at[T](filter.data)[unsafe_offset=row * filter.result + column * filter.channel + tap] = 0


def launch[
    T: DType, kernel: StaticString, pack: StaticString = "", merge: StaticString = ""
](s: Sizes, a: Attributes, scatter: Bool, start: Extent, roles: Roles, scratch: Int) -> Int:
    """Return the bytes of scratch memory of a launch; compute it unless `scratch` is 0."""
    var memory = stack_allocation[CONV_WORDS, Int]()
    for i in range(CONV_WORDS):
        memory[unsafe_offset=i] = 0
    ref p = Pointer[Conv, MutAnyOrigin](unsafe_from_address=Int(memory))[]
    ref g = p.geometry
    var starts = set_geometry(p, s, a, scatter, start, roles)
    var threads = threads_of(a, products(s, a))
    p.min_units = 2 * threads
    comptime wgrad = kernel == "correlate" or kernel == "depthwise_wgrad"
    if g.windows() == 0 or (wgrad and g.pairs == 0):
        comptime if wgrad:
            if scratch != 0:
                clear_filter[T](s, a, roles)
        return 0
    plan[kernel, T](p)
    var workspace = aligned(p.workspace_bytes)
    if scratch != 0:
        comptime bytes = size[T]()
        p.workspace = scratch
        g.big.data = roles.of[roles.big]
        g.second_big.data = roles.of[roles.second_big]
        g.filter.data = roles.of[roles.filter] + starts.filter * bytes
        g.second_filter.data = roles.of[roles.second_filter] + starts.second_filter * bytes
        g.small.data = roles.of[roles.small] + starts.small * bytes
        g.bias.data = roles.of[roles.bias]
        comptime if pack != "":
            if p.workspace_bytes > 0:
                var packers = threads if p.workspace_bytes > PACKED_ALONE else 1
                spread[pack, T](Int(memory), p.workspace_units, packers)
        spread[kernel, T](Int(memory), p.units, threads, scratch + workspace, p.scratch_bytes)
        comptime if merge != "":
            if p.workspace_bytes > 0:
                spread[merge, T](Int(memory), p.workspace_units, threads)
    return workspace + threads * aligned(p.scratch_bytes)
