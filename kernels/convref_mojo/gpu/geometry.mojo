"""The parameters of a convolution kernel: sizes and strides, all in elements.

Windows slide over `big`; `small` has one element for each. Window j of an axis reads, at its r-th tap,
position ``j * step + shift + r * tap_step``; positions outside of the axis read as zero. A scatter is
one such gather per class of its result (../geometry.py).
"""


@fieldwise_init
struct Axis(ImplicitlyCopyable, TrivialRegisterPassable):
    var count: Int32  # windows
    var size: Int32  # positions
    var step: Int32
    var taps: Int32
    var shift: Int32
    var tap_step: Int32

    @always_inline
    def at(self, window: Int32, tap: Int32) -> Int32:
        return window * self.step + self.shift + tap * self.tap_step

    @always_inline
    def has(self, position: Int32) -> Bool:
        return UInt32(position) < UInt32(self.size)


@fieldwise_init
struct Strides(ImplicitlyCopyable, TrivialRegisterPassable):
    """Strides of an array (n, channel, z, y, x)."""

    var n: Int32
    var c: Int32
    var z: Int32
    var y: Int32
    var x: Int32


@fieldwise_init
struct Filter(ImplicitlyCopyable, TrivialRegisterPassable):
    """Strides of a filter; z, y, x from one tap to the next one read, perhaps negative."""

    var group: Int32
    var channel: Int32  # of big
    var result: Int32  # of small
    var z: Int32
    var y: Int32
    var x: Int32


@fieldwise_init
struct Bias(ImplicitlyCopyable, TrivialRegisterPassable):
    """A vector of one element per channel of `small`."""

    var given: Int32  # 0 for none
    var c: Int32  # its stride


@fieldwise_init
struct Geometry(ImplicitlyCopyable, TrivialRegisterPassable):
    var images: Int32
    var groups: Int32
    var channels: Int32  # of big, per group
    var results: Int32  # of small, per group
    var bias: Bias
    var z: Axis
    var y: Axis
    var x: Axis
    var big: Strides
    var small: Strides
    var filter: Filter
    var pairs: Int32  # of big and filter in a sum; with 0 pairs it is the bias
    var second_big: Strides
    var second_filter: Filter

    @always_inline
    def of_second(self) -> Self:
        var g = self
        g.big = self.second_big
        g.filter = self.second_filter
        return g

    @always_inline
    def windows(self) -> Int32:
        return self.images * self.z.count * self.y.count * self.x.count

    @always_inline
    def taps(self) -> Int32:
        return self.z.taps * self.y.taps * self.x.taps


@always_inline
def split(value: Int32, by: Int32) -> Tuple[Int32, Int32]:
    """Return quotient and remainder of non-negative integers."""
    var quotient = Int32(UInt32(value) // UInt32(by))
    return quotient, value - quotient * by


@fieldwise_init
struct Window(ImplicitlyCopyable, TrivialRegisterPassable):
    """A window: its image and its index along each axis."""

    var n: Int32
    var z: Int32
    var y: Int32
    var x: Int32

    @always_inline
    def offset(self, s: Strides) -> Int32:
        return self.n * s.n + self.z * s.z + self.y * s.y + self.x * s.x


@always_inline
def window_of(g: Geometry, index: Int32) -> Window:
    var lines, x = split(index, g.x.count)
    var planes, y = split(lines, g.y.count)
    var n, z = split(planes, g.z.count)
    return Window(n, z, y, x)


@fieldwise_init
struct Tap(ImplicitlyCopyable, TrivialRegisterPassable):
    """A tap of a window: its index along each axis of the filter."""

    var z: Int32
    var y: Int32
    var x: Int32

    @always_inline
    def offset(self, f: Filter) -> Int32:
        return self.z * f.z + self.y * f.y + self.x * f.x


@always_inline
def tap_of(g: Geometry, index: Int32) -> Tap:
    var lines, x = split(index, g.x.taps)
    var z, y = split(lines, g.y.taps)
    return Tap(z, y, x)


@always_inline
def read_at(g: Geometry, window: Window, tap: Tap) -> Int32:
    """Return the offset that a window's tap reads in one channel of `big`, -1 outside."""
    var z = g.z.at(window.z, tap.z)
    var y = g.y.at(window.y, tap.y)
    var x = g.x.at(window.x, tap.x)
    if not (g.z.has(z) and g.y.has(y) and g.x.has(x)):
        return -1
    return window.n * g.big.n + z * g.big.z + y * g.big.y + x * g.big.x
