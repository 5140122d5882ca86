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
    var always: Int  # threads for small calls too
    var frozen: Int  # mean and variance of a batch norm are operands
    var eps: Float64
    var momentum: Float64


@fieldwise_init
struct Arrays(ImplicitlyCopyable):
    """The arrays of a pass by their place in `PASSES`; place -1 is an absent one.

    Both tables are 0 without arrays. Without strides the arrays are C-contiguous.
    """

    var addresses: Int
    var strides: Int

    @always_inline
    def __getitem__(self, i: Int) -> Int:
        """Return the address of an array, 0 if it is absent."""
        if self.addresses == 0 or i < 0:
            return 0
        return Table(unsafe_from_address=self.addresses)[unsafe_offset=i]

    @always_inline
    def row(self, i: Int) -> Table:
        """Return the strides of the axes of an array in elements: two axes, then z, y and x."""
        return Table(unsafe_from_address=self.strides).unsafe_offset(STRIDES * i)

    @always_inline
    def step(self, i: Int) -> Int:
        """Return the stride of a vector."""
        return self.row(i)[] if self.strides != 0 and i >= 0 else 1


comptime ARRAYS = 10
"""Operands and results of a pass, at most."""
comptime STRIDES = 5
"""Strides of an array."""
comptime ONE_THREAD = 10**7
"""Products of a call that one thread computes before a second one has started."""


@always_inline
def threads_of(a: Attributes, products: Int) -> Int:
    return max(1, a.threads) if products >= ONE_THREAD or a.always == 1 else 1


@always_inline
def stride_of(size: Int, stride: Int) -> Int:
    """Return a stride, 0 along an axis of one element."""
    return 0 if size == 1 else stride


@always_inline
def set_image(
    mut to: Source, arrays: Arrays, i: Int, n: Int, channels: Int, size: Extent, channels_last: Int
):
    """Set the strides of image `i`, and its address to 0."""
    to.data = 0
    if arrays.strides != 0:
        if i >= 0:
            var row = arrays.row(i)
            to.n = row[]
            to.c = row[unsafe_offset=1]
            to.z = row[unsafe_offset=2]
            to.y = row[unsafe_offset=3]
            to.x = row[unsafe_offset=4]
        return
    var pixel = channels if channels_last == 1 else 1
    to.n = stride_of(n, channels * size.total())
    to.c = 1 if channels == 1 or channels_last == 1 else size.total()
    to.z = stride_of(size.z, size.y * size.x * pixel)
    to.y = stride_of(size.y, size.x * pixel)
    to.x = stride_of(size.x, pixel)
