"""Depthwise convolutions, with one channel per group on either side: a vector is adjacent groups.

The sums are those of gather.mojo and correlate.mojo over taps, or windows, alone: a matrix product
would have a single column.
"""

from std.memory import stack_allocation

from gather import contiguous
from simd import Address, Table, at, clear, lanes, load, size, store, wide
from windows import Conv, Tap, Window

comptime NEIGHBOURS = 4
"""Adjacent windows that share loads of taps and weights."""
comptime TAP = 4
"""64-bit words of a tap in the table."""
comptime VECTORS = 2
"""Vectors of channels that a filter gradient sums at once, as independent chains of FMAs."""


def plan_depthwise[T: DType](mut p: Conv):
    comptime A = wide[T]
    ref g = p.geometry
    p.workspace_units = g.depth()
    p.workspace_bytes = g.depth() * g.groups * size[A]()
    p.scratch_bytes = g.depth() * TAP * 8
    p.units = g.lines()


def pack_depthwise[T: DType](p: Conv, low: Int, high: Int):
    """Write lines `low` to `high` of the packed filter: (source, tap, group)."""
    ref g = p.geometry
    for k in range(low, high):
        var tap = Tap(g, k)
        var filter = g.factor(tap.pair)
        var start = at[T](filter.data).unsafe_offset(filter.offset(tap))
        var to = at[wide[T]](p.workspace).unsafe_offset(k * g.groups)
        for group in range(g.groups):
            to[unsafe_offset=group] = load[T, 1](start.unsafe_offset(group * filter.group))


def depthwise[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    ref g = p.geometry
    var taps = Table(unsafe_from_address=scratch)
    var dense = g.big.c == 1 and contiguous(p) and (g.pairs < 2 or g.second_big.c == 1)
    for line in range(low, high):
        var window = Window(g, line * g.x.count)
        var j = 0
        while j < g.x.count:
            var first = window.x + g.x.shift
            var inside = g.x.taps > 0 and j + NEIGHBOURS <= g.x.count
            inside = inside and first >= 0 and first + g.x.reach(NEIGHBOURS) <= g.x.size
            var found = taps_inside[T](p, window, taps)
            var done = NEIGHBOURS if inside and dense else 1
            if inside and dense:
                compute_windows[T, NEIGHBOURS, 2](p, window, taps, found, dense)
            else:
                compute_windows[T, 1, 4](p, window, taps, found, dense)
            j += done
            window.x += done * g.x.step
            window.place += done * g.small.x


@always_inline
def compute_windows[
    T: DType, X: Int, V: Int
](p: Conv, window: Window, taps: Table, found: Int, dense: Bool):
    """Compute all channels of X adjacent windows, V vectors of them at a time."""
    ref g = p.geometry
    comptime W = lanes[wide[T]]()
    var c = 0
    while dense and c + V * W <= g.groups:
        compute_sums[T, X, V, W](p, window, taps, found, c)
        c += V * W
    while dense and c + W <= g.groups:
        compute_sums[T, X, 1, W](p, window, taps, found, c)
        c += W
    while c < g.groups:
        compute_sums[T, X, 1, 1](p, window, taps, found, c)
        c += 1


@always_inline
def taps_inside[T: DType](p: Conv, window: Window, taps: Table) -> Int:
    """Write, for each tap inside of the source, its address, the offset of its weights, and the strides
    of channels and windows; return the number of taps."""
    ref g = p.geometry
    var across = g.x
    var found = 0
    var k = 0
    for pair in range(g.pairs):
        var src = g.source(pair)
        for t in range(g.z.taps):
            var z = window.z + g.z.shift + t * g.z.tap_step
            for r in range(g.y.taps):
                var y = window.y + g.y.shift + r * g.y.tap_step
                var there = g.z.has(z) and g.y.has(y)
                var x = window.x + across.shift
                var address = src.data + src.offset(window.n, z, y, x) * size[T]()
                for _ in range(across.taps):
                    if there and across.has(x):
                        var tap = taps.unsafe_offset(TAP * found)
                        tap[] = address
                        tap[unsafe_offset=1] = k * g.groups
                        tap[unsafe_offset=2] = src.c
                        tap[unsafe_offset=3] = src.x * across.step
                        found += 1
                    x += across.tap_step
                    address += across.tap_step * src.x * size[T]()
                    k += 1
    return found


@always_inline
def compute_sums[
    T: DType, X: Int, V: Int, W: Int
](p: Conv, window: Window, taps: Table, found: Int, c: Int):
    """Compute V times W channels of X windows from `c` on; vectors need contiguous channels."""
    ref g = p.geometry
    comptime A = wide[T]
    var weights = at[A](p.workspace).unsafe_offset(c)
    var sums = stack_allocation[X * V, SIMD[A, W]]()
    comptime for i in range(X * V):
        sums[unsafe_offset=i] = SIMD[A, W](0)
    for k in range(found):
        var tap = taps.unsafe_offset(TAP * k)
        var step = 1 if W > 1 else tap[unsafe_offset=2]
        var source = at[T](tap[]).unsafe_offset(c * step)
        var weight = weights.unsafe_offset(tap[unsafe_offset=1])
        comptime for v in range(V):
            var factor = weight.unsafe_offset(v * W).unsafe_load[width=W]()
            comptime for x in range(X):
                var here = source.unsafe_offset(x * tap[unsafe_offset=3] + v * W)
                sums[unsafe_offset=x * V + v] = load[T, W](here).fma(factor, sums[unsafe_offset=x * V + v])
    var bias = at[T](g.bias.data).unsafe_offset(c * g.bias.c)
    var to = at[T](g.small.data).unsafe_offset(window.place + c * g.small.c)
    comptime for x in range(X):
        comptime for v in range(V):
            var sum = sums[unsafe_offset=x * V + v]
            if g.bias.data != 0:
                sum += load[T, W](bias.unsafe_offset(v * W))
            store[T, W](to.unsafe_offset(x * g.small.x + v * W), sum)


def plan_depthwise_wgrad[T: DType](mut p: Conv):
    ref g = p.geometry
    comptime A = wide[T]
    comptime width = VECTORS * lanes[A]()
    p.units = (g.groups + width - 1) // width
    p.scratch_bytes = g.taps() * width * size[A]()


def depthwise_wgrad[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = VECTORS * W
    ref g = p.geometry
    var dense = g.big.c == 1 and g.small.c == 1
    for unit in range(low, high):
        var c = unit * width
        var end = min(g.groups, c + width)
        if dense and end - c == width:
            compute_channels[T, VECTORS, W](p, at[A](scratch), c)
            c += width
        while dense and c + W <= end:
            compute_channels[T, 1, W](p, at[A](scratch), c)
            c += W
        while c < end:
            compute_channels[T, 1, 1](p, at[A](scratch), c)
            c += 1


def compute_channels[T: DType, V: Int, W: Int](p: Conv, sums: Address[wide[T]], c: Int):
    ref g = p.geometry
    clear[wide[T]](sums, g.taps() * V * W)
    for line in range(g.lines()):
        var window = Window(g, line * g.x.count)
        var small = at[T](g.small.data).unsafe_offset(window.place + c * g.small.c)
        var big = at[T](g.big.data).unsafe_offset(window.n * g.big.n + c * g.big.c)
        for k in range(g.taps()):
            var tap = Tap(g, k)
            var z = window.z + g.z.shift + tap.t * g.z.tap_step
            var y = window.y + g.y.shift + tap.r * g.y.tap_step
            if not (g.z.has(z) and g.y.has(y)):
                continue
            var shift = g.x.shift + tap.s * g.x.tap_step
            var there = big.unsafe_offset(z * g.big.z + y * g.big.y)
            sum_line[T, V, W](p, sums.unsafe_offset(k * V * W), there, small, shift)
    for k in range(g.taps()):
        var offset = g.filter.offset(Tap(g, k))
        for j in range(V * W):
            var to = at[T](g.filter.data).unsafe_offset((c + j) * g.filter.group + offset)
            store[T, 1](to, sums[unsafe_offset=k * V * W + j])


@always_inline
def sum_line[
    T: DType, V: Int, W: Int
](p: Conv, sums: Address[wide[T]], big: Address[T], small: Address[T], shift: Int):
    """Add the products of a line of windows and the elements that one tap of each reads."""
    comptime A = wide[T]
    ref g = p.geometry
    var first = sums.unsafe_load[width=W]()
    var second = sums.unsafe_offset((V - 1) * W).unsafe_load[width=W]()
    for j in range(g.x.count):
        var x = j * g.x.step + shift
        if g.x.has(x):
            var values = big.unsafe_offset(x * g.big.x)
            var weights = small.unsafe_offset(j * g.small.x)
            first = load[T, W](values).fma(load[T, W](weights), first)
            comptime if V == 2:
                var next = load[T, W](values.unsafe_offset(W))
                second = next.fma(load[T, W](weights.unsafe_offset(W)), second)
    sums.unsafe_store[width=W](first)
    comptime if V == 2:
        sums.unsafe_offset(W).unsafe_store[width=W](second)
