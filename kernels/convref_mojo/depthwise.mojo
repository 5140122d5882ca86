"""Convolutions whose groups have one channel on either side: vectors hold neighbouring groups.

The sums are those of gather.mojo and correlate.mojo with nothing to sum over but taps, or windows: a
matrix product would leave all but one column empty.
"""

from correlate import Correlate, column
from gather import Filter, Gather
from numbers import Address, Table, at, clear, lanes, load, size, store, wide
from windows import Source, Tap, Window, Windows, split, within

comptime VECTORS = 2
"""Vectors of channels that a filter gradient sums at once: their chains of sums overlap."""


def plan_depthwise[T: DType](mut g: Gather):
    """Say how much memory and how many units there are: lines of windows."""
    comptime A = wide[T]
    ref w = g.windows
    g.panels_units = w.depth()
    g.panels_bytes = w.depth() * w.groups * size[A]()
    g.scratch_bytes = w.depth() * 2 * 8
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
    comptime W = lanes[wide[T]]()
    ref w = g.windows
    var pairs = Table(unsafe_from_address=scratch)
    var dense = w.first.c == 1 and g.dst_c == 1 and (w.sources < 2 or w.second.c == 1)
    dense = dense and (g.bias == 0 or g.bias_c == 1)
    for line in range(low, high):
        for x in range(w.count_x):
            var window = Window(w, line * w.count_x + x, g.dst_n, g.dst_z, g.dst_y, g.dst_x)
            var found = taps_inside[T](g, window, pairs)
            var c = 0
            if dense:
                while c + W <= w.groups:
                    weigh[T, W](g, window, pairs, found, c)
                    c += W
            while c < w.groups:
                weigh[T, 1](g, window, pairs, found, c)
                c += 1


@always_inline
def taps_inside[T: DType](g: Gather, window: Window, pairs: Table) -> Int:
    """Write what each tap that falls inside reads, and its weights; return how many there are."""
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
                        pairs[unsafe_offset=2 * found] = src.data + offset * size[T]()
                        pairs[unsafe_offset=2 * found + 1] = k
                        found += 1
                    k += 1
    return found


@always_inline
def weigh[
    T: DType, W: Int
](g: Gather, window: Window, pairs: Table, found: Int, c: Int):
    """Compute W channels of one window."""
    comptime A = wide[T]
    ref w = g.windows
    var weights = at[A](g.panels).unsafe_offset(c)
    var sums = SIMD[A, W](0)
    for i in range(found):
        var k = pairs[unsafe_offset=2 * i + 1]
        var step = w.first.c if k < w.taps() else w.second.c
        var values = load[T, W](at[T](pairs[unsafe_offset=2 * i]).unsafe_offset(c * step))
        var weight = weights.unsafe_offset(k * w.groups).unsafe_load[width=W]()
        sums = values.fma(weight, sums)
    if g.bias != 0:
        sums += load[T, W](at[T](g.bias).unsafe_offset(c * g.bias_c))
    store[T, W](at[T](g.dst).unsafe_offset(window.place + c * g.dst_c), sums)


def plan_depthwise_filter[T: DType](mut p: Correlate):
    """Say how much memory and how many units there are: blocks of channels."""
    comptime A = wide[T]
    comptime width = VECTORS * lanes[A]()
    p.units = (p.windows.groups + width - 1) // width
    p.scratch_bytes = p.windows.taps() * width * size[A]()


def depthwise_filter[T: DType](p: Correlate, scratch: Int, low: Int, high: Int):
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
            of_channels[T, VECTORS, W](p, at[A](scratch), c)
            c += width
        while dense and c + W <= end:
            of_channels[T, 1, W](p, at[A](scratch), c)
            c += W
        while c < end:
            of_channels[T, 1, 1](p, at[A](scratch), c)
            c += 1


def of_channels[T: DType, V: Int, W: Int](p: Correlate, sums: Address[wide[T]], c: Int):
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
            along[T, V, W](p, sums.unsafe_offset(k * V * W), there, small, shift)
    for k in range(w.taps()):
        var offset = column(p, k)
        for j in range(V * W):
            var to = at[T](p.dst.data).unsafe_offset((c + j) * p.dst.group + offset)
            store[T, 1](to, sums[unsafe_offset=k * V * W + j])


@always_inline
def along[
    T: DType, V: Int, W: Int
](p: Correlate, sums: Address[wide[T]], big: Address[T], small: Address[T], shift: Int):
    """Add the products of a line of windows with what one tap of them reads."""
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
