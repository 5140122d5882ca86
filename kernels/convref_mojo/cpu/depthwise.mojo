"""Depthwise convolutions, with one channel per group on either side: a vector is adjacent groups.

The sums are those of gather.mojo and correlate.mojo over taps, or windows, alone: a matrix product
would have a single column.
"""

from std.memory import stack_allocation

from correlate import Correlate, column
from gather import Filter, Gather
from simd import Address, Table, at, clear, lanes, load, size, store, wide
from windows import Source, Tap, Window, Windows, split, within

comptime NEIGHBOURS = 4
"""Adjacent windows that share loads of taps and weights."""
comptime TAP = 4
"""64-bit words of a tap in the table."""
comptime VECTORS = 2
"""Vectors of channels that a filter gradient sums at once, as independent chains of FMAs."""


def plan_depthwise[T: DType](mut g: Gather):
    """Set the memory and the units, which are lines of windows."""
    comptime A = wide[T]
    ref w = g.windows
    g.panels_units = w.depth()
    g.panels_bytes = w.depth() * w.groups * size[A]()
    g.scratch_bytes = w.depth() * TAP * 8
    g.units = w.images * w.count_z * w.count_y


def pack_depthwise[T: DType](g: Gather, low: Int, high: Int):
    """Write lines `low` to `high` of the packed filter: (source, tap, group)."""
    ref w = g.windows
    for k in range(low, high):
        var tap = Tap(w, k)
        var filter = g.first
        if tap.source == 1:
            filter = g.second
        var offsets = Table(unsafe_from_address=filter.taps)
        var here = offsets[unsafe_offset=tap.t] + offsets[unsafe_offset=w.taps_z + tap.r]
        here += offsets[unsafe_offset=w.taps_z + w.taps_y + tap.s]
        var start = at[T](filter.data).unsafe_offset(here)
        var to = at[wide[T]](g.panels).unsafe_offset(k * w.groups)
        for group in range(w.groups):
            to[unsafe_offset=group] = load[T, 1](start.unsafe_offset(group * filter.group))


def depthwise[T: DType](g: Gather, scratch: Int, low: Int, high: Int):
    """Compute lines `low` to `high` of the result."""
    ref w = g.windows
    var taps = Table(unsafe_from_address=scratch)
    var shifts = w.shifts().unsafe_offset(w.taps_z + w.taps_y)
    var dense = w.first.c == 1 and g.dst_c == 1 and (w.sources < 2 or w.second.c == 1)
    dense = dense and (g.bias == 0 or g.bias_c == 1)
    for line in range(low, high):
        var window = Window(w, line * w.count_x, g.dst_n, g.dst_z, g.dst_y, g.dst_x)
        var j = 0
        while j < w.count_x:
            var last = window.x + (NEIGHBOURS - 1) * w.step_x
            var inside = w.taps_x > 0 and j + NEIGHBOURS <= w.count_x
            inside = inside and window.x + shifts[unsafe_offset=0] >= 0
            inside = inside and last + shifts[unsafe_offset=w.taps_x - 1] < w.size_x
            var found = taps_inside[T](g, window, taps)
            var done = NEIGHBOURS if inside and dense else 1
            if inside and dense:
                compute_windows[T, NEIGHBOURS, 2](g, window, taps, found, dense)
            else:
                compute_windows[T, 1, 4](g, window, taps, found, dense)
            j += done
            window.x += done * w.step_x
            window.place += done * g.dst_x


@always_inline
def compute_windows[
    T: DType, X: Int, V: Int
](g: Gather, window: Window, taps: Table, found: Int, dense: Bool):
    """Compute all channels of X adjacent windows, V vectors of them at a time."""
    comptime W = lanes[wide[T]]()
    var c = 0
    while dense and c + V * W <= g.windows.groups:
        compute_sums[T, X, V, W](g, window, taps, found, c)
        c += V * W
    while dense and c + W <= g.windows.groups:
        compute_sums[T, X, 1, W](g, window, taps, found, c)
        c += W
    while c < g.windows.groups:
        compute_sums[T, X, 1, 1](g, window, taps, found, c)
        c += 1


@always_inline
def taps_inside[T: DType](g: Gather, window: Window, taps: Table) -> Int:
    """Write, for each tap inside of the source, its address, the offset of its weights, and the strides
    of channels and windows; return the number of taps."""
    ref w = g.windows
    var shifts = w.shifts()
    var found = 0
    var k = 0
    for source in range(w.sources):
        var src = w.first
        if source == 1:
            src = w.second
        for t in range(w.taps_z):
            var z = window.z + shifts[unsafe_offset=t]
            for r in range(w.taps_y):
                var y = window.y + shifts[unsafe_offset=w.taps_z + r]
                var there = within(z, w.size_z) and within(y, w.size_y)
                for s in range(w.taps_x):
                    var x = window.x + shifts[unsafe_offset=w.taps_z + w.taps_y + s]
                    if there and within(x, w.size_x):
                        var offset = window.n * src.n + z * src.z + y * src.y + x * src.x
                        var tap = taps.unsafe_offset(TAP * found)
                        tap[] = src.data + offset * size[T]()
                        tap[unsafe_offset=1] = k * w.groups
                        tap[unsafe_offset=2] = src.c
                        tap[unsafe_offset=3] = src.x * w.step_x
                        found += 1
                    k += 1
    return found


@always_inline
def compute_sums[
    T: DType, X: Int, V: Int, W: Int
](g: Gather, window: Window, taps: Table, found: Int, c: Int):
    """Compute V times W channels of X windows from `c` on; vectors need contiguous channels."""
    comptime A = wide[T]
    var weights = at[A](g.panels).unsafe_offset(c)
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
                sums[unsafe_offset=x * V + v] = load[T, W](here).fma(
                    factor, sums[unsafe_offset=x * V + v]
                )
    var bias = at[T](g.bias).unsafe_offset(c * g.bias_c)
    var to = at[T](g.dst).unsafe_offset(window.place + c * g.dst_c)
    comptime for x in range(X):
        comptime for v in range(V):
            var sum = sums[unsafe_offset=x * V + v]
            if g.bias != 0:
                sum += load[T, W](bias.unsafe_offset(v * W))
            store[T, W](to.unsafe_offset(x * g.dst_x + v * W), sum)


def plan_depthwise_wgrad[T: DType](mut p: Correlate):
    """Set the memory and the units, which are blocks of channels."""
    comptime A = wide[T]
    comptime width = VECTORS * lanes[A]()
    p.units = (p.windows.groups + width - 1) // width
    p.scratch_bytes = p.windows.taps() * width * size[A]()


def depthwise_wgrad[T: DType](p: Correlate, scratch: Int, low: Int, high: Int):
    """Compute blocks `low` to `high` of the filter gradient."""
    comptime A = wide[T]
    comptime W = lanes[A]()
    comptime width = VECTORS * W
    ref w = p.windows
    var dense = w.first.c == 1 and p.small.c == 1
    for unit in range(low, high):
        var c = unit * width
        var end = min(w.groups, c + width)
        if dense and end - c == width:
            compute_channels[T, VECTORS, W](p, at[A](scratch), c)
            c += width
        while dense and c + W <= end:
            compute_channels[T, 1, W](p, at[A](scratch), c)
            c += W
        while c < end:
            compute_channels[T, 1, 1](p, at[A](scratch), c)
            c += 1


def compute_channels[T: DType, V: Int, W: Int](p: Correlate, sums: Address[wide[T]], c: Int):
    """Compute the filter gradient of V times W channels from `c` on."""
    ref w = p.windows
    var shifts = w.shifts()
    clear[wide[T]](sums, w.taps() * V * W)
    for line in range(w.images * w.count_z * w.count_y):
        var window = Window(w, line * w.count_x, p.small.n, p.small.z, p.small.y, p.small.x)
        var small = at[T](p.small.data).unsafe_offset(window.place + c * p.small.c)
        var big = at[T](w.first.data).unsafe_offset(window.n * w.first.n + c * w.first.c)
        for k in range(w.taps()):
            var tap = Tap(w, k)
            var z = window.z + shifts[unsafe_offset=tap.t]
            var y = window.y + shifts[unsafe_offset=w.taps_z + tap.r]
            if not (within(z, w.size_z) and within(y, w.size_y)):
                continue
            var shift = shifts[unsafe_offset=w.taps_z + w.taps_y + tap.s]
            var there = big.unsafe_offset(z * w.first.z + y * w.first.y)
            sum_line[T, V, W](p, sums.unsafe_offset(k * V * W), there, small, shift)
    for k in range(w.taps()):
        var offset = column(p, k)
        for j in range(V * W):
            var to = at[T](p.dst.data).unsafe_offset((c + j) * p.dst.group + offset)
            store[T, 1](to, sums[unsafe_offset=k * V * W + j])


@always_inline
def sum_line[
    T: DType, V: Int, W: Int
](p: Correlate, sums: Address[wide[T]], big: Address[T], small: Address[T], shift: Int):
    """Add the products of a line of windows and the elements that one tap of each reads."""
    comptime A = wide[T]
    ref w = p.windows
    var first = sums.unsafe_load[width=W]()
    var second = sums.unsafe_offset((V - 1) * W).unsafe_load[width=W]()
    for j in range(w.count_x):
        var x = j * w.step_x + shift
        if within(x, w.size_x):
            var values = big.unsafe_offset(x * w.first.x)
            var weights = small.unsafe_offset(j * p.small.x)
            first = load[T, W](values).fma(load[T, W](weights), first)
            comptime if V == 2:
                var next = load[T, W](values.unsafe_offset(W))
                second = next.fma(load[T, W](weights.unsafe_offset(W)), second)
    sums.unsafe_store[width=W](first)
    comptime if V == 2:
        sums.unsafe_offset(W).unsafe_store[width=W](second)
