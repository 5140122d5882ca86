"""Passes of batch norm, and the bias gradient of a convolution: one launch each (see ../norm.mojo)."""

from std.memory import stack_allocation
from std.sys import size_of

from norm import VECTORS, Norm
from passes.sizes import Arrays, Attributes, Extent, Sizes, set_image, threads_of
from passes.threads import spread
from simd import Table, lanes, wide
from windows import Source

comptime NORM_WORDS = size_of[Norm]() // 8
comptime OUTER = ((3, 4), (2, 3), (0, 1))
"""Words of y, z and n: of their sizes in a Norm, and of their strides in a Source, whose last word is that of x."""
comptime SOURCES = 4
comptime SOURCE_WORDS = size_of[Source]() // 8


@fieldwise_init
struct Images(ImplicitlyCopyable):
    """Places of the images of a pass, -1 for an absent one."""

    var x: Int
    var u: Int
    var out: Int
    var out_dot: Int


def norm_pass[T: DType, kernel: StaticString](
    s: Sizes, a: Attributes, of: Arrays, images: Images, scratch: Int
) -> Int:
    """Compute a pass on images of the size of the input, unless `scratch` is 0; it uses none."""
    if scratch != 0:
        launch[T, kernel](s.n, s.c, s.input, a, of, images)
    return 0


def channel_sums_pass[T: DType](s: Sizes, a: Attributes, of: Arrays, scratch: Int) -> Int:
    """Write the sum of each channel of the output of a convolution, unless `scratch` is 0."""
    if scratch != 0:
        launch[T, "channel_sums"](s.n, s.k, s.output, a, of, Images(0, -1, -1, -1))
    return 0


def launch[T: DType, kernel: StaticString](
    n: Int, channels: Int, extent: Extent, a: Attributes, of: Arrays, images: Images
):
    var memory = stack_allocation[NORM_WORDS, Int]()
    ref p = Pointer[Norm, MutAnyOrigin](unsafe_from_address=Int(memory))[]
    p.images = n
    p.channels = channels
    p.size_z = extent.z
    p.size_y = extent.y
    p.size_x = extent.x
    set_image(p.x, of, images.x, n, channels, extent, a.channels_last)
    set_image(p.u, of, images.u, n, channels, extent, a.channels_last)
    set_image(p.out, of, images.out, n, channels, extent, a.channels_last)
    set_image(p.out_dot, of, images.out_dot, n, channels, extent, a.channels_last)
    p.x.data = of[images.x]
    p.u.data = of[images.u]
    p.out.data = of[images.out]
    p.out_dot.data = of[images.out_dot]
    p.of = of
    p.frozen = a.frozen == 1
    p.eps = a.eps
    p.momentum = a.momentum
    merge_axes(p)
    var threads = threads_of(a, n * channels * extent.total())
    set_block[T](p, threads)
    spread[kernel, T](Int(memory), (channels + p.block - 1) // p.block, threads)


def merge_axes(mut p: Norm):
    """Make lines longer by the axes that continue them in all arrays."""
    var sizes = Table(unsafe_from_address=Int(Pointer(to=p.images)))
    var sources = Table(unsafe_from_address=Int(Pointer(to=p.x)))
    comptime for i in range(len(OUTER)):
        comptime size, stride = OUTER[i]
        var count = sizes[unsafe_offset=size]
        var merges = True
        for j in range(SOURCES):
            var source = sources.unsafe_offset(j * SOURCE_WORDS)
            if count > 1 and p.size_x == 1:
                source[unsafe_offset=SOURCE_WORDS - 1] = source[unsafe_offset=stride]
            elif source[] != 0 and source[unsafe_offset=stride] != p.size_x * source[unsafe_offset=SOURCE_WORDS - 1]:
                merges = False
        if count > 1 and not merges:
            return
        p.size_x *= count
        sizes[unsafe_offset=size] = 1


def set_block[T: DType](mut p: Norm, threads: Int):
    """Set the channels of a unit: few enough that all threads have one."""
    comptime W = lanes[wide[T]]()
    var vectors = VECTORS
    while vectors > 1 and p.channels < threads * vectors * W:
        vectors //= 2
    p.block = vectors * W
