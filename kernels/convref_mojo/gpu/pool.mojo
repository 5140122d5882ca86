"""Pools by one thread for each result, (P.1) to (P.3): each is written once, its sum in one order.

Window j of an axis reads, `pace` apart, positions from begin(j) on and before end(j):

    begin(j) = floor(j * step / over) - low        end(j) = ceil((j * step + reach) / over) - low

Windows that slide have over = 1 and reach = taps * pace; adaptive ones share `size` positions among
`over` windows and have step = reach = size. Padding is absence: what is below 0 or from `stop` on is
in no window.
"""

from max.gpu import block_dim, block_idx, thread_idx

from direct import Numbers, wide
from geometry import Place, split

comptime Indices = Pointer[Int64, MutAnyOrigin]


@fieldwise_init
struct Range(ImplicitlyCopyable, TrivialRegisterPassable):
    """Numbers from `first` on and before `last`."""

    var first: Int32
    var last: Int32


@fieldwise_init
struct Slide(ImplicitlyCopyable, TrivialRegisterPassable):
    """One axis."""

    var count: Int32  # windows
    var size: Int32  # positions
    var step: Int32
    var over: Int32
    var reach: Int32
    var low: Int32
    var pace: Int32
    var stop: Int32
    var least: Int32  # the divisor counts taps from here on
    var most: Int32  # and before here

    @always_inline
    def begin(self, j: Int32) -> Int32:
        """Return where window j begins, real or not."""
        return split(j * self.step, self.over)[0] - self.low

    @always_inline
    def within(self, j: Int32, least: Int32, most: Int32) -> Range:
        """Return from which tap of window j on, and before where, it is between two bounds."""
        var begin = self.begin(j)
        var end = split(j * self.step + self.reach + self.over - 1, self.over)[0] - self.low
        var lacking = max(least - begin, 0) + self.pace - 1
        return Range(begin + split(lacking, self.pace)[0] * self.pace, min(end, most))

    @always_inline
    def reads(self, j: Int32) -> Range:
        """Return the positions that window j reads."""
        return self.within(j, 0, self.stop)

    @always_inline
    def counted(self, j: Int32) -> Int32:
        """Return how many taps of window j its divisor counts."""
        var taps = self.within(j, self.least, self.most)
        return split(max(taps.last - taps.first, 0) + self.pace - 1, self.pace)[0]

    @always_inline
    def readers(self, i: Int32) -> Range:
        """Return windows of which those that `meets` confirms read position i, and no others."""
        var reached = (i + self.low) * self.over
        if reached < 0 or i >= self.stop:
            return Range(0, 0)
        var first = Int32(0)
        if reached >= self.reach:
            first = split(reached - self.reach, self.step)[0] + 1
        var last = split(reached + self.over - 1, self.step)[0] + 1
        return Range(first, min(last, self.count))

    @always_inline
    def meets(self, j: Int32, i: Int32) -> Bool:
        """Return whether position i is a whole number of paces from where window j begins."""
        return self.pace == 1 or split(i - self.begin(j), self.pace)[1] == 0


@fieldwise_init
struct Pool(ImplicitlyCopyable, TrivialRegisterPassable):
    """One launch. Windows slide over `big`, `small` has one place for each."""

    var images: Int32
    var channels: Int32
    var last: Int32  # whether neighbouring threads take neighbouring channels, not pixels
    var indexed: Int32  # whether indices are wanted
    var tangent: Int32  # whether there is a tangent
    var divisor: Int32  # of all windows, 0 if each has its own
    var z: Slide
    var y: Slide
    var x: Slide
    var big: Place
    var small: Place
    var indices: Place
    var big_dot: Place
    var small_dot: Place

    @always_inline
    def position(self, z: Int32, y: Int32, x: Int32) -> Int64:
        """Return the number of a position in its image."""
        return Int64((z * self.y.size + y) * self.x.size + x)

    @always_inline
    def has(self, position: Int64) -> Bool:
        """Return whether an image has a position; an index may be -1, or anything."""
        return position >= 0 and position < Int64(self.z.size * self.y.size * self.x.size)


@fieldwise_init
struct Cell(ImplicitlyCopyable, TrivialRegisterPassable):
    """An element: of a window, or of a position."""

    var n: Int32
    var c: Int32
    var z: Int32
    var y: Int32
    var x: Int32

    @always_inline
    def place(self, s: Place) -> Int:
        """Return where it lies in an array."""
        return Int(self.n * s.n + self.c * s.c + self.z * s.z + self.y * s.y + self.x * s.x)


@always_inline
def cell_of(p: Pool, z: Int32, y: Int32, x: Int32) -> Cell:
    """Return the element of this thread, its image -1 beyond the last, of images of z * y * x."""
    var index = Int32(block_idx.x) * Int32(block_dim.x) + Int32(thread_idx.x)
    if index >= p.images * p.channels * z * y * x:
        return Cell(-1, 0, 0, 0, 0)
    var pixel, c = split(index, p.channels if p.last != 0 else 1)
    var lines, at_x = split(pixel, x)
    var planes, at_y = split(lines, y)
    var n, at_z = split(planes, z)
    if p.last == 0:
        n, c = split(n, p.channels)
    return Cell(n, c, at_z, at_y, at_x)


@always_inline
def named[T: DType](x: Numbers[T], s: Place, p: Pool, window: Cell, index: Int64) -> Scalar[T]:
    """Return the element of the window's image that an index names, 0 if it names none."""
    if not p.has(index):
        return 0
    var lines, at_x = split(Int32(index), p.x.size)
    var at_z, at_y = split(lines, p.y.size)
    return x[unsafe_offset=Cell(window.n, window.c, at_z, at_y, at_x).place(s)]


@fieldwise_init
struct Shares[A: DType](ImplicitlyCopyable, TrivialRegisterPassable):
    """What each window multiplies its sum by: 1 over its divisor."""

    var of_all: Scalar[Self.A]  # 0 if each has its own

    @always_inline
    def __init__(out self, p: Pool):
        """Divide once for all windows if one divisor serves them."""
        self.of_all = 0
        if p.divisor != 0:
            self.of_all = 1 / p.divisor.cast[Self.A]()

    @always_inline
    def at(self, p: Pool, z: Int32, y: Int32, x: Int32) -> Scalar[Self.A]:
        """Return the share of a window; what reads nothing may have any."""
        if p.divisor != 0:
            return self.of_all
        return 1 / max(p.z.counted(z) * p.y.counted(y) * p.x.counted(x), 1).cast[Self.A]()


@__name("convref_maxima")
def maxima[
    T: DType
](y: Numbers[T], indices: Indices, y_dot: Numbers[T], x: Numbers[T], x_dot: Numbers[T], p: Pool):
    """Write the maximum of a window, where it stands, and what stands there in the tangent."""
    comptime A = wide[T]
    var window = cell_of(p, p.z.count, p.y.count, p.x.count)
    if window.n < 0:
        return
    var best = Scalar[A].MIN
    var found = Int64(-1)
    var image = x.unsafe_offset(Cell(window.n, window.c, 0, 0, 0).place(p.big))
    var planes, lines, row = p.z.reads(window.z), p.y.reads(window.y), p.x.reads(window.x)
    var at_z = planes.first
    while at_z < planes.last:
        var at_y = lines.first
        while at_y < lines.last:
            var at_x = row.first
            while at_x < row.last:
                var place = Cell(0, 0, at_z, at_y, at_x).place(p.big)
                var value = image[unsafe_offset=place].cast[A]()
                # The first one wins whatever it is, and NaN; an equal loses, after a NaN all others do.
                var loses = value <= best
                if found < 0 or not loses:
                    found = p.position(at_z, at_y, at_x)
                if not loses:
                    best = value if value > best else Scalar[A].MAX
                at_x += p.x.pace
            at_y += p.y.pace
        at_z += p.z.pace
    var value = Scalar[T].MIN
    if found >= 0:
        value = named[T](x, p.big, p, window, found)
    y[unsafe_offset=window.place(p.small)] = value
    if p.indexed != 0:
        indices[unsafe_offset=window.place(p.indices)] = found
    if p.tangent != 0:
        y_dot[unsafe_offset=window.place(p.small_dot)] = named[T](x_dot, p.big_dot, p, window, found)


@__name("convref_picked")
def picked[T: DType](y: Numbers[T], x: Numbers[T], indices: Indices, p: Pool):
    """Write what a window's index names."""
    var window = cell_of(p, p.z.count, p.y.count, p.x.count)
    if window.n < 0:
        return
    var index = indices[unsafe_offset=window.place(p.indices)]
    y[unsafe_offset=window.place(p.small)] = named[T](x, p.big, p, window, index)


@__name("convref_means")
def means[T: DType](y: Numbers[T], x: Numbers[T], p: Pool):
    """Write the mean of a window."""
    comptime A = wide[T]
    var window = cell_of(p, p.z.count, p.y.count, p.x.count)
    if window.n < 0:
        return
    var sum = Scalar[A](0)
    var image = x.unsafe_offset(Cell(window.n, window.c, 0, 0, 0).place(p.big))
    var planes, lines, row = p.z.reads(window.z), p.y.reads(window.y), p.x.reads(window.x)
    var at_z = planes.first
    while at_z < planes.last:
        var at_y = lines.first
        while at_y < lines.last:
            var at_x = row.first
            while at_x < row.last:
                var place = Cell(0, 0, at_z, at_y, at_x).place(p.big)
                sum += image[unsafe_offset=place].cast[A]()
                at_x += p.x.pace
            at_y += p.y.pace
        at_z += p.z.pace
    sum *= Shares[A](p).at(p, window.z, window.y, window.x)
    y[unsafe_offset=window.place(p.small)] = sum.cast[T]()


@__name("convref_returned")
def returned[T: DType, by_index: Bool](x: Numbers[T], y: Numbers[T], indices: Indices, p: Pool):
    """Write what a position gets back from those who read it: all if its is their index, or a share."""
    comptime A = wide[T]
    var here = cell_of(p, p.z.size, p.y.size, p.x.size)
    if here.n < 0:
        return
    var sum = Scalar[A](0)
    var mine = p.position(here.z, here.y, here.x)
    var shares = Shares[A](p)
    var planes, lines, row = p.z.readers(here.z), p.y.readers(here.y), p.x.readers(here.x)
    for z in range(planes.first, planes.last):
        for y_ in range(lines.first, lines.last):
            for x_ in range(row.first, row.last):
                var window = Cell(here.n, here.c, z, y_, x_)
                var reads = p.z.meets(z, here.z) and p.y.meets(y_, here.y) and p.x.meets(x_, here.x)
                comptime if by_index:
                    reads = reads and indices[unsafe_offset=window.place(p.indices)] == mine
                if reads:
                    var value = y[unsafe_offset=window.place(p.small)].cast[A]()
                    comptime if by_index:
                        sum += value
                    else:
                        sum = value.fma(shares.at(p, z, y_, x_), sum)
    x[unsafe_offset=here.place(p.big)] = sum.cast[T]()
