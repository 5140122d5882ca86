"""Kernels that are wrong from some size on, at the edge of a block, or where two features meet.

Each row is two faults: a wide one, and a narrow one that needs something else too, as reported bugs
often do. Blocks, tiles and vectors have the sizes that released kernels have.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from convref.case import Call
from convref.conformance.mutations import Array, Region, Wrong, right
from convref.ops import Problem

from . import mistakes as m
from .base import Fault, reading
from .mistakes import any_axis, gives, per_group, plain

CONV = ("conv",)
POOLS = ("max_pool", "avg_pool")
RESIZE = ("resize",)
NORMS = ("batch_norm", "layer_norm", "group_norm")
SOFT = ("softmax", "log_softmax")
POINTWISE = ("relu", "silu", "gelu", "sigmoid")


def from_element(first: int | Callable[[Array], int]) -> Wrong:
    """Return a kernel whose results have other values from an element on, in memory order."""

    def wrong(call: Call, operands: Any) -> Any:
        results = right(call, operands)
        for result in results:
            if result is not None and result.size:
                flat = result.reshape(-1)
                at = first(result) if callable(first) else first
                flat[at:] = np.where(flat[at:] == 0, 1, 0).astype(result.dtype)
        return results

    return wrong


LAST = from_element(lambda result: result.size - 1)


def cols(call: Call) -> int:
    """Return the length of an output row."""
    return int(call.problem.output[-1])


def size(call: Call, role: str = "y") -> int:
    """Return the number of elements of a result."""
    return prod(call.problem.shape(role))


def positions(call: Call) -> int:
    """Return the number of output positions, images included."""
    return int(call.problem.n * prod(call.problem.output))


def of(dtype: str) -> Region:
    """Return the predicate of calls of a type."""
    return lambda call: call.dtype == dtype


def passing(*passes: str) -> Region:
    """Return the predicate of calls of some passes."""
    return lambda call: call.pass_ in passes


def every(*regions: Region) -> Region:
    """Return the predicate of calls on which all hold."""
    return lambda call: all(region(call) for region in regions)


def axis(name: str, value: int, most: int = 10**9) -> Region:
    """Return the predicate of windows that have a field in a range along some axis."""
    return lambda call: any(value <= v <= most for v in getattr(call.problem, name))


def ratio(least: float, most: float) -> Region:
    """Return the predicate of resizes whose input is so many times as large as the output."""
    return lambda call: any(
        least <= i / o <= most for i, o in zip(call.problem.input, call.problem.output) if o
    )


def only_unusual(*names: str) -> Region:
    """Return the predicate of convolutions in which all but these fields are plain."""
    neutral = {"stride": 1, "dilation": 1, "groups": 1}

    def region(call: Call) -> bool:
        p = call.conv
        given = {"stride": max(p.stride), "dilation": max(p.dilation), "groups": p.groups}
        unusual = {name for name, value in given.items() if value > neutral[name]}
        unusual |= {"padding"} if any(map(any, p.padding)) else set()
        return not p.transposed and not p.flip and unusual == set(names) and size(call) > 0

    return region


def _transposed(problem: Problem) -> bool:
    return bool(getattr(problem, "transposed", False))


F32, F64, F16, BF16 = map(of, ("f32", "f64", "f16", "bf16"))
FPROP, JVP = passing("fprop"), passing("jvp")
SECOND = passing("double_backward")


def pair(
    name: str,
    model: str,
    ops: tuple[str, ...],
    region: Region,
    wrong: Wrong,
    minimal: str,
    narrow: Region,
    narrow_minimal: str,
) -> tuple[Fault, Fault]:
    """Return the wide and the narrow form of a fault."""
    also = every(region, narrow)
    return (
        Fault(name, model, minimal, region, wrong, ops=ops),
        Fault(f"{name}_narrow", f"{model}, narrow", narrow_minimal, also, wrong, ops=ops),
    )


def rows(*pairs: tuple[Fault, Fault]) -> tuple[Fault, ...]:
    """Return the faults of some pairs."""
    return tuple(fault for both in pairs for fault in both)


ROWS = rows(
    pair("channels_above_64", "input channels beyond 64 dropped", CONV,
         lambda c: plain(c) and per_group(c) > 64, reading("x", m.channels_from(64)),
         "@", F16, "@"),
    pair("outputs_above_64", "output channels beyond 64", CONV,
         lambda c: c.conv.k // c.conv.groups > 64, LAST, "@", F64, "@"),
    pair("tail_of_32", "one channel more than a tile of 32", CONV,
         lambda c: per_group(c) % 32 == 1 and per_group(c) > 1, LAST, "@",
         lambda c: gives(c, "dx"), "@"),
    pair("outputs_33_or_65", "one output channel more than a tile", CONV,
         lambda c: c.conv.k in (33, 65), LAST, "@", FPROP, "@"),
    pair("exactly_65_channels", "65 channels", CONV,
         lambda c: c.conv.c == 65, LAST, "@", lambda c: gives(c, "dw"), "@"),
    pair("batch_of_8", "batches of 8 and more take another kernel", CONV,
         lambda c: c.problem.n >= 8 and size(c) > 0, LAST, "@",
         lambda c: c.problem.n == 8 and gives(c, "dw"), "@"),
    pair("batch_of_32", "batches of 32 and more", CONV,
         lambda c: c.problem.n >= 32 and size(c) > 0, LAST, "@", BF16, "@"),
    pair("eight_taps", "filters of 8 taps and more", CONV, axis("filter", 8), LAST, "@",
         every(axis("filter", 8, 8), axis("stride", 2)), "@"),
    pair("nine_by_nine", "filters of 9 to 11 taps", CONV, axis("filter", 9, 11), LAST, "@",
         lambda c: plain(c) and c.problem.rank == 2, "@"),
    pair("stride_8", "stride 8 and more", CONV, axis("stride", 8), LAST, "@",
         every(axis("stride", 8, 8), FPROP), "@"),
    pair("stride_6_or_7", "strides without a specialisation", CONV, axis("stride", 6, 7), LAST,
         "@", F32, "@"),
    pair("dilation_6", "dilation 6 and more", CONV,
         lambda c: any_axis(c, lambda a: a.dilation >= 6 and a.taps > 1), LAST, "@",
         lambda c: gives(c, "dx"), "@"),
    pair("wide_rows", "rows of more than 128", CONV, lambda c: cols(c) > 128, LAST, "@", FPROP, "@"),
    pair("rows_above_256", "rows of more than 256", CONV, lambda c: cols(c) > 256, LAST, "@",
         F32, "@"),
    pair("block_of_1024", "outputs of more than one block of 1,024", CONV,
         lambda c: FPROP(c) and size(c) > 1024, from_element(1024), "@",
         lambda c: size(c) % 1024 == 1 or F64(c), "@"),
    pair("blocks_65535", "more than 65,535 blocks", CONV,
         lambda c: FPROP(c) and size(c) > 65535, from_element(65535), "@", F32, "@"),
    pair("long_sums", "reductions longer than 512", CONV,
         lambda c: FPROP(c) and c.products("y") > 512, m.last_product_dropped, "@",
         lambda c: not _transposed(c.problem) and F32(c), "@"),
    pair("split_remainder", "the filter gradient is split by 64 positions, the rest dropped", CONV,
         lambda c: gives(c, "dw") and positions(c) > 64 and positions(c) % 64 > 0, LAST, "@",
         F16, "@"),
    pair("groups_32", "32 groups and more", CONV, lambda c: c.conv.groups >= 32, LAST, "@",
         lambda c: c.conv.groups == c.conv.c, "@"),
    pair("all_sizes_1", "an image, a filter and channels of 1", CONV,
         lambda c: max(c.conv.c, c.conv.k, c.conv.n, *c.problem.input, *c.problem.filter) == 1
         and size(c) == 1, LAST, "@", lambda c: F32(c) and FPROP(c), "@"),
    pair("grouped_pixels", "groups of a 1x1 image", CONV,
         lambda c: c.conv.groups > 1 and set(c.problem.input) == {1} and size(c) > 0, LAST, "@",
         lambda c: set(c.problem.filter) == {1}, "@"),
    pair("strided_points", "1x1 filters of stride 2 on both axes", CONV,
         lambda c: c.problem.rank == 2 and set(c.problem.filter) == {1}
         and set(c.problem.stride) == {2}, LAST, "@",
         lambda c: not any(map(any, c.problem.padding)) and FPROP(c), "@"),
    pair("groups_and_stride", "groups and stride together, all else plain", CONV,
         only_unusual("groups", "stride"), LAST, "@", FPROP, "@"),
    pair("padding_and_dilation", "padding and dilation together, all else plain", CONV,
         only_unusual("padding", "dilation"), LAST, "@", FPROP, "@"),
    pair("row_and_one", "one column more than a vector of 16", CONV,
         lambda c: cols(c) > 16 and cols(c) % 16 == 1, LAST, "@", lambda c: gives(c, "dx"), "@"),
    pair("one_by_three", "1x3 filters of stride (2, 1)", CONV,
         lambda c: c.problem.rank == 2 and c.problem.filter == (1, 3), LAST, "@",
         lambda c: c.problem.stride[0] == 2, "@"),
    pair("middle_stride", "volumes with a stride on the middle axis alone", CONV,
         lambda c: c.problem.rank == 3 and c.problem.stride[1] > 1
         and c.problem.stride[0] == c.problem.stride[2] == 1, LAST, "@", FPROP, "@"),
    pair("doubled_padding", "padding of more than the filter", CONV,
         lambda c: any_axis(c, lambda a: a.lo > a.dilation * (a.taps - 1) + 1), LAST, "@",
         every(FPROP, F64), "@"),
    pair("output_padding_with_dilation", "output padding beyond the stride", CONV,
         lambda c: _transposed(c.problem) and any(
             extra >= s for extra, s in zip(c.conv.output_padding, c.problem.stride)), LAST, "@",
         lambda c: gives(c, "dw"), "@"),
    pair("tangent_of_w_in_groups", "the tangent of a grouped filter", CONV,
         lambda c: JVP(c) and c.conv.groups > 1 and "w" in c.carried, LAST, "@",
         lambda c: c.carried == "w", "@"),
    pair("second_order_groups", "double backward of a grouped convolution", CONV,
         lambda c: SECOND(c) and c.conv.groups > 1, LAST, "@", lambda c: c.problem.n > 2, "@"),
    pair("pool_of_8", "windows of 8 and more", POOLS, axis("filter", 8), LAST, "@",
         every(axis("filter", 8, 8), FPROP), "@"),
    pair("pool_stride_8", "pools of stride 6 and more", POOLS, axis("stride", 6), LAST, "@",
         FPROP, "@"),
    pair("pool_channels", "pools of more than 32 channels", POOLS,
         lambda c: c.problem.c > 32 and size(c) > 0, LAST, "@", F16, "@"),
    pair("pool_rows", "pools with rows of more than 64", POOLS, lambda c: cols(c) > 64, LAST, "@",
         FPROP, "@"),
    pair("pool_ceil_tail", "the window that only ceil_mode has", POOLS,
         lambda c: c.problem.ceil and size(c) > 0, LAST, "@", lambda c: c.problem.rank == 2, "@"),
    pair("pool_batch", "pools of 8 images and more", POOLS,
         lambda c: c.problem.n >= 8 and size(c) > 0, LAST, "@", FPROP, "@"),
    pair("shrinks_by_3", "resizes to a third and less", RESIZE, ratio(3, 1e9), LAST, "@",
         lambda c: 20 in c.problem.input, "@"),
    pair("twenty_to_six", "resizes of 3.2 to 3.5", RESIZE, ratio(3.2, 3.5), LAST, "@", FPROP, "@"),
    pair("grows_by_3", "resizes to three times and more", RESIZE, ratio(0, 1 / 3), LAST, "@",
         lambda c: 5 in c.problem.input, "@"),
    pair("corners_from_one", "align_corners with an input of 1", RESIZE,
         lambda c: c.problem.coord == "align_corners" and 1 in c.problem.input and size(c) > 0,
         LAST, "@", lambda c: c.problem.mode == "cubic", "@"),
    pair("corners_to_one", "align_corners with an output of 1", RESIZE,
         lambda c: c.problem.coord == "align_corners" and 1 in c.problem.output and size(c) > 0,
         LAST, "@", FPROP, "@"),
    pair("two_ratios", "axes that grow and shrink together", RESIZE,
         every(ratio(1.01, 1e9), ratio(0, 0.99)), LAST, "@", F64, "@"),
    pair("norm_channels", "norms of more than 32 channels", NORMS,
         lambda c: c.problem.c > 32 and size(c) > 0, LAST, "@", FPROP, "@"),
    pair("norm_block", "norms of more than 1,024 elements", NORMS,
         lambda c: size(c) > 1024, LAST, "@", F32, "@"),
    pair("norm_of_a_pixel", "norms of 1x1 images", NORMS,
         lambda c: set(c.problem.input) == {1} and size(c) > 0, LAST, "@", FPROP, "@"),
    pair("norm_batch", "norms of 8 images and more", NORMS,
         lambda c: c.problem.n >= 8 and size(c) > 0, LAST, "@", F16, "@"),
    pair("long_softmax", "softmax over more than 32", SOFT,
         lambda c: c.problem.shape("x")[c.problem.dim] > 32 and size(c) > 0, LAST, "@", FPROP, "@"),
    pair("softmax_of_batch", "softmax over the batch", SOFT,
         lambda c: c.problem.dim == 0 and c.problem.n > 1 and size(c) > 0, LAST, "@", F16, "@"),
    pair("softmax_vector", "a softmax of one element more than a vector", SOFT,
         lambda c: c.problem.shape("x")[c.problem.dim] % 8 == 1
         and c.problem.shape("x")[c.problem.dim] > 8 and size(c) > 0, LAST, "@", FPROP, "@"),
    pair("pointwise_block", "activations of more than 1,024 elements", POINTWISE,
         lambda c: size(c) > 1024, from_element(1024), "@", F64, "@"),
    pair("pointwise_vector", "activations of one element more than a vector of 16", POINTWISE,
         lambda c: size(c) > 16 and size(c) % 16 == 1, LAST, "@", BF16, "@"),
)
