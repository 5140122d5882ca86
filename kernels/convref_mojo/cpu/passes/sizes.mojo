"""The sizes and attributes of a problem, which its caller fills in, and arrays laid out by them."""

from simd import Table
from windows import Source


@fieldwise_init
struct Extent(ImplicitlyCopyable):
    """A number for each spatial axis."""

    var z: Int
    var y: Int
    var x: Int

    @always_inline
    def total(self) -> Int:
        return self.z * self.y * self.x


struct Sizes(ImplicitlyCopyable):
    """All spatial sizes are 1 along axes that the rank does not have; norms read `n`, `c` and `input`."""

    var n: Int
    var c: Int
    var k: Int
    var groups: Int
    var input: Extent
    var filter: Extent
    var output: Extent


struct Attributes(ImplicitlyCopyable):
    var stride: Extent
    var dilation: Extent
    var low: Extent  # padding, negative to crop
    var high: Extent  # read by pools only
    var transposed: Int
    var flip: Int
    var channels_last: Int  # images N...C, filters ...IO (transposed ...OI)
    var adaptive: Int  # windows of a pool are cut from the input
    var include_pad: Int
    var divisor: Int
    var threads: Int  # at most; 0 is 1
    var frozen: Int  # mean and variance of a batch norm are operands
    var eps: Float64
    var momentum: Float64


@fieldwise_init
struct Addresses(ImplicitlyCopyable):
    """The addresses of the arrays of a call; all are 0 without arrays."""

    var table: Int

    @always_inline
    def __getitem__(self, i: Int) -> Int:
        return Table(unsafe_from_address=self.table)[unsafe_offset=i] if self.table != 0 else 0


comptime ARRAYS = 10
"""Operands and results of a pass, at most."""
comptime ONE_THREAD = 10**7
"""Products of a call that one thread computes before a second one has started."""


@always_inline
def threads_of(a: Attributes, products: Int) -> Int:
    return max(1, a.threads) if products >= ONE_THREAD else 1


@always_inline
def stride_of(size: Int, stride: Int) -> Int:
    """Return a stride, 0 along an axis of one element."""
    return 0 if size == 1 else stride


@always_inline
def set_image(mut to: Source, n: Int, channels: Int, size: Extent, channels_last: Int):
    """Set the strides of an image, and its address to 0."""
    var pixel = channels if channels_last == 1 else 1
    to.data = 0
    to.n = stride_of(n, channels * size.total())
    to.c = 1 if channels == 1 or channels_last == 1 else size.total()
    to.z = stride_of(size.z, size.y * size.x * pixel)
    to.y = stride_of(size.y, size.x * pixel)
    to.x = stride_of(size.x, pixel)
