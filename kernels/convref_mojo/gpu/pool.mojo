"""Pools by one thread per result, (P.1) to (P.3): no atomics, and a fixed order of each sum.

Window j of an axis reads positions `dilation` apart from begin(j) to before end(j):

    begin(j) = floor(j * step / divisor) - low      end(j) = ceil((j * step + reach) / divisor) - low

Sliding windows have divisor = 1 and reach = taps * dilation. Adaptive ones have divisor = the number of
windows and step = reach = size. Positions below 0 or from `end` on are in no window.
"""

from max.gpu import block_dim, block_idx, thread_idx

from direct import Elements, wide
from geometry import Strides, split

comptime Indices = Pointer[Int64, MutAnyOrigin]


@fieldwise_init
struct Range(ImplicitlyCopyable, TrivialRegisterPassable):
    var first: Int32
    var last: Int32


@fieldwise_init
struct PoolAxis(ImplicitlyCopyable, TrivialRegisterPassable):
    var count: Int32  # windows
    var size: Int32  # positions
    var step: Int32
    var divisor: Int32
    var reach: Int32
    var low: Int32
    var dilation: Int32
    var end: Int32
    var least: Int32  # a mean counts taps from here on
    var most: Int32  # to before here

    @always_inline
    def begin(self, j: Int32) -> Int32:
        """Return the first position of window j, perhaps in the padding."""
        return split(j * self.step, self.divisor)[0] - self.low

    @always_inline
    def within(self, j: Int32, least: Int32, most: Int32) -> Range:
        """Return the range of the taps of window j between two bounds."""
        var begin = self.begin(j)
        var end = split(j * self.step + self.reach + self.divisor - 1, self.divisor)[0] - self.low
        var missing = max(least - begin, 0) + self.dilation - 1
        return Range(begin + split(missing, self.dilation)[0] * self.dilation, min(end, most))

    @always_inline
    def reads(self, j: Int32) -> Range:
        return self.within(j, 0, self.end)

    @always_inline
    def counted(self, j: Int32) -> Int32:
        """Return the number of taps of window j that a mean is divided by."""
        var taps = self.within(j, self.least, self.most)
        return split(max(taps.last - taps.first, 0) + self.dilation - 1, self.dilation)[0]

    @always_inline
    def readers(self, i: Int32) -> Range:
        """Return a range of windows with all that read position i; `reads_at` filters it."""
        var reached = (i + self.low) * self.divisor
        if reached < 0 or i >= self.end:
            return Range(0, 0)
        var first = Int32(0)
        if reached >= self.reach:
            first = split(reached - self.reach, self.step)[0] + 1
        var last = split(reached + self.divisor - 1, self.step)[0] + 1
        return Range(first, min(last, self.count))

    @always_inline
    def reads_at(self, j: Int32, i: Int32) -> Bool:
        """Return whether position i is a multiple of the dilation from the first one of window j."""
        return self.dilation == 1 or split(i - self.begin(j), self.dilation)[1] == 0


@fieldwise_init
struct Pool(ImplicitlyCopyable, TrivialRegisterPassable):
    """One launch. Windows slide over `big`; `small` has one element for each."""

    var images: Int32
    var channels: Int32
    var last: Int32  # whether adjacent threads take adjacent channels, not pixels
    var indexed: Int32  # whether indices are written
    var tangent: Int32  # whether there is a tangent
    var divisor: Int32  # of all windows, 0 if each has its own
    var z: PoolAxis
    var y: PoolAxis
    var x: PoolAxis
    var big: Strides
    var small: Strides
    var indices: Strides
    var big_dot: Strides
    var small_dot: Strides

    @always_inline
    def position(self, z: Int32, y: Int32, x: Int32) -> Int64:
        return Int64((z * self.y.size + y) * self.x.size + x)

    @always_inline
    def has(self, position: Int64) -> Bool:
        """Return whether an index is inside of the image; it may be -1, or invalid."""
        return position >= 0 and position < Int64(self.z.size * self.y.size * self.x.size)


@fieldwise_init
struct Element(ImplicitlyCopyable, TrivialRegisterPassable):
    var n: Int32
    var c: Int32
    var z: Int32
    var y: Int32
    var x: Int32

    @always_inline
    def offset(self, s: Strides) -> Int:
        return Int(self.n * s.n + self.c * s.c + self.z * s.z + self.y * s.y + self.x * s.x)


@always_inline
def element_of(p: Pool, z: Int32, y: Int32, x: Int32) -> Element:
    """Return the element of this thread in images of z * y * x, with image -1 if it has none."""
    var index = Int32(block_idx.x) * Int32(block_dim.x) + Int32(thread_idx.x)
    if index >= p.images * p.channels * z * y * x:
        return Element(-1, 0, 0, 0, 0)
    var pixel, c = split(index, p.channels if p.last != 0 else 1)
    var lines, at_x = split(pixel, x)
    var planes, at_y = split(lines, y)
    var n, at_z = split(planes, z)
    if p.last == 0:
        n, c = split(n, p.channels)
    return Element(n, c, at_z, at_y, at_x)


@always_inline
def load_index[T: DType](x: Elements[T], s: Strides, p: Pool, window: Element, index: Int64) -> Scalar[T]:
    """Load the element at an index of the window's image, 0 if the index is outside."""
    if not p.has(index):
        return 0
    var lines, at_x = split(Int32(index), p.x.size)
    var at_z, at_y = split(lines, p.y.size)
    return x[unsafe_offset=Element(window.n, window.c, at_z, at_y, at_x).offset(s)]


@fieldwise_init
struct Factors[A: DType](ImplicitlyCopyable, TrivialRegisterPassable):
    """The factor of the mean of each window: 1 over its divisor."""

    var of_all: Scalar[Self.A]  # 0 if each has its own

    @always_inline
    def __init__(out self, p: Pool):
        """Divide once if all windows have the same divisor."""
        self.of_all = 0
        if p.divisor != 0:
            self.of_all = 1 / p.divisor.cast[Self.A]()

    @always_inline
    def at(self, p: Pool, z: Int32, y: Int32, x: Int32) -> Scalar[Self.A]:
        """Return the factor of a window; that of an empty window is not used."""
        if p.divisor != 0:
            return self.of_all
        return 1 / max(p.z.counted(z) * p.y.counted(y) * p.x.counted(x), 1).cast[Self.A]()


@__name("convref_max_pool_fprop")
def max_pool_fprop[
    T: DType
](y: Elements[T], indices: Indices, y_dot: Elements[T], x: Elements[T], x_dot: Elements[T], p: Pool):
    """Write the maximum of a window, its index, and the tangent at that index."""
    comptime A = wide[T]
    var window = element_of(p, p.z.count, p.y.count, p.x.count)
    if window.n < 0:
        return
    var best = Scalar[A].MIN
    var found = Int64(-1)
    var image = x.unsafe_offset(Element(window.n, window.c, 0, 0, 0).offset(p.big))
    var planes, lines, row = p.z.reads(window.z), p.y.reads(window.y), p.x.reads(window.x)
    var at_z = planes.first
    while at_z < planes.last:
        var at_y = lines.first
        while at_y < lines.last:
            var at_x = row.first
            while at_x < row.last:
                var offset = Element(0, 0, at_z, at_y, at_x).offset(p.big)
                var value = image[unsafe_offset=offset].cast[A]()
                # The first element and NaN win, an equal one loses, and after a NaN all but NaN lose.
                var loses = value <= best
                if found < 0 or not loses:
                    found = p.position(at_z, at_y, at_x)
                if not loses:
                    best = value if value > best else Scalar[A].MAX
                at_x += p.x.dilation
            at_y += p.y.dilation
        at_z += p.z.dilation
    var value = Scalar[T].MIN
    if found >= 0:
        value = load_index[T](x, p.big, p, window, found)
    y[unsafe_offset=window.offset(p.small)] = value
    if p.indexed != 0:
        indices[unsafe_offset=window.offset(p.indices)] = found
    if p.tangent != 0:
        y_dot[unsafe_offset=window.offset(p.small_dot)] = load_index[T](x_dot, p.big_dot, p, window, found)


@__name("convref_max_pool_select")
def max_pool_select[T: DType](y: Elements[T], x: Elements[T], indices: Indices, p: Pool):
    var window = element_of(p, p.z.count, p.y.count, p.x.count)
    if window.n < 0:
        return
    var index = indices[unsafe_offset=window.offset(p.indices)]
    y[unsafe_offset=window.offset(p.small)] = load_index[T](x, p.big, p, window, index)


@__name("convref_avg_pool_fprop")
def avg_pool_fprop[T: DType](y: Elements[T], x: Elements[T], p: Pool):
    comptime A = wide[T]
    var window = element_of(p, p.z.count, p.y.count, p.x.count)
    if window.n < 0:
        return
    var sum = Scalar[A](0)
    var image = x.unsafe_offset(Element(window.n, window.c, 0, 0, 0).offset(p.big))
    var planes, lines, row = p.z.reads(window.z), p.y.reads(window.y), p.x.reads(window.x)
    var at_z = planes.first
    while at_z < planes.last:
        var at_y = lines.first
        while at_y < lines.last:
            var at_x = row.first
            while at_x < row.last:
                var offset = Element(0, 0, at_z, at_y, at_x).offset(p.big)
                sum += image[unsafe_offset=offset].cast[A]()
                at_x += p.x.dilation
            at_y += p.y.dilation
        at_z += p.z.dilation
    sum *= Factors[A](p).at(p, window.z, window.y, window.x)
    y[unsafe_offset=window.offset(p.small)] = sum.cast[T]()


@__name("convref_pool_backward")
def pool_backward[T: DType, by_index: Bool](x: Elements[T], y: Elements[T], indices: Indices, p: Pool):
    """Write the gradient of a position: the sum over the windows that read it, or whose index it is."""
    comptime A = wide[T]
    var here = element_of(p, p.z.size, p.y.size, p.x.size)
    if here.n < 0:
        return
    var sum = Scalar[A](0)
    var index = p.position(here.z, here.y, here.x)
    var factors = Factors[A](p)
    var planes, lines, row = p.z.readers(here.z), p.y.readers(here.y), p.x.readers(here.x)
    for z in range(planes.first, planes.last):
        for y_ in range(lines.first, lines.last):
            for x_ in range(row.first, row.last):
                var window = Element(here.n, here.c, z, y_, x_)
                var reads = p.z.reads_at(z, here.z) and p.y.reads_at(y_, here.y) and p.x.reads_at(x_, here.x)
                comptime if by_index:
                    reads = reads and indices[unsafe_offset=window.offset(p.indices)] == index
                if reads:
                    var value = y[unsafe_offset=window.offset(p.small)].cast[A]()
                    comptime if by_index:
                        sum += value
                    else:
                        sum = value.fma(factors.at(p, z, y_, x_), sum)
    x[unsafe_offset=here.offset(p.big)] = sum.cast[T]()
