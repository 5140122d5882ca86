"""The C functions of the shared library: plan and compute, for each number type.

Each takes the address of a struct that Python filled in (structures.py mirrors them), and where it
computes, the units of work `low` to `high` that it shall do, so that threads are the caller's.
"""

from conv import correlate, gather, plan_correlate, plan_gather
from correlate import Correlate
from correlate_padded import merge
from depthwise import (
    depthwise,
    depthwise_filter,
    pack_depthwise,
    plan_depthwise,
    plan_depthwise_filter,
)
from gather import Gather, pack_filter
from norm import Norm, combine, norm_sums
from simd import lanes
from pool import MAXIMA, MEANS, PICKED, Pool, gathered, scattered
from tile import MR, NV
from bias import Total, total


@export("convref_tile")
def convref_tile(rows: Pointer[Int, MutAnyOrigin]) abi("C"):
    """Write the register tile of float32: rows, vectors, numbers in a vector."""
    rows[] = MR
    rows[unsafe_offset=1] = NV
    rows[unsafe_offset=2] = lanes[DType.float32]()


@export("convref_plan_gather_f32")
def plan_gather_f32(g: Pointer[Gather, MutAnyOrigin]) abi("C"):
    plan_gather[DType.float32](g[])


@export("convref_pack_filter_f32")
def pack_filter_f32(g: Pointer[Gather, MutAnyOrigin], low: Int, high: Int) abi("C"):
    pack_filter[DType.float32](g[], low, high)


@export("convref_gather_f32")
def gather_f32(g: Pointer[Gather, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gather[DType.float32](g[], scratch, low, high)


@export("convref_plan_correlate_f32")
def plan_correlate_f32(p: Pointer[Correlate, MutAnyOrigin]) abi("C"):
    plan_correlate[DType.float32](p[])


@export("convref_correlate_f32")
def correlate_f32(p: Pointer[Correlate, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    correlate[DType.float32](p[], scratch, low, high)


@export("convref_merge_f32")
def merge_f32(p: Pointer[Correlate, MutAnyOrigin], low: Int, high: Int) abi("C"):
    merge[DType.float32](p[], low, high)


@export("convref_plan_depthwise_f32")
def plan_depthwise_f32(g: Pointer[Gather, MutAnyOrigin]) abi("C"):
    plan_depthwise[DType.float32](g[])


@export("convref_pack_depthwise_f32")
def pack_depthwise_f32(g: Pointer[Gather, MutAnyOrigin], low: Int, high: Int) abi("C"):
    pack_depthwise[DType.float32](g[], low, high)


@export("convref_depthwise_f32")
def depthwise_f32(g: Pointer[Gather, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    depthwise[DType.float32](g[], scratch, low, high)


@export("convref_plan_depthwise_filter_f32")
def plan_depthwise_filter_f32(p: Pointer[Correlate, MutAnyOrigin]) abi("C"):
    plan_depthwise_filter[DType.float32](p[])


@export("convref_depthwise_filter_f32")
def depthwise_filter_f32(
    p: Pointer[Correlate, MutAnyOrigin], scratch: Int, low: Int, high: Int
) abi("C"):
    depthwise_filter[DType.float32](p[], scratch, low, high)


@export("convref_total_f32")
def total_f32(p: Pointer[Total, MutAnyOrigin], low: Int, high: Int) abi("C"):
    total[DType.float32](p[], low, high)


@export("convref_plan_gather_f64")
def plan_gather_f64(g: Pointer[Gather, MutAnyOrigin]) abi("C"):
    plan_gather[DType.float64](g[])


@export("convref_pack_filter_f64")
def pack_filter_f64(g: Pointer[Gather, MutAnyOrigin], low: Int, high: Int) abi("C"):
    pack_filter[DType.float64](g[], low, high)


@export("convref_gather_f64")
def gather_f64(g: Pointer[Gather, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gather[DType.float64](g[], scratch, low, high)


@export("convref_plan_correlate_f64")
def plan_correlate_f64(p: Pointer[Correlate, MutAnyOrigin]) abi("C"):
    plan_correlate[DType.float64](p[])


@export("convref_correlate_f64")
def correlate_f64(p: Pointer[Correlate, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    correlate[DType.float64](p[], scratch, low, high)


@export("convref_merge_f64")
def merge_f64(p: Pointer[Correlate, MutAnyOrigin], low: Int, high: Int) abi("C"):
    merge[DType.float64](p[], low, high)


@export("convref_plan_depthwise_f64")
def plan_depthwise_f64(g: Pointer[Gather, MutAnyOrigin]) abi("C"):
    plan_depthwise[DType.float64](g[])


@export("convref_pack_depthwise_f64")
def pack_depthwise_f64(g: Pointer[Gather, MutAnyOrigin], low: Int, high: Int) abi("C"):
    pack_depthwise[DType.float64](g[], low, high)


@export("convref_depthwise_f64")
def depthwise_f64(g: Pointer[Gather, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    depthwise[DType.float64](g[], scratch, low, high)


@export("convref_plan_depthwise_filter_f64")
def plan_depthwise_filter_f64(p: Pointer[Correlate, MutAnyOrigin]) abi("C"):
    plan_depthwise_filter[DType.float64](p[])


@export("convref_depthwise_filter_f64")
def depthwise_filter_f64(
    p: Pointer[Correlate, MutAnyOrigin], scratch: Int, low: Int, high: Int
) abi("C"):
    depthwise_filter[DType.float64](p[], scratch, low, high)


@export("convref_total_f64")
def total_f64(p: Pointer[Total, MutAnyOrigin], low: Int, high: Int) abi("C"):
    total[DType.float64](p[], low, high)


@export("convref_plan_gather_bf16")
def plan_gather_bf16(g: Pointer[Gather, MutAnyOrigin]) abi("C"):
    plan_gather[DType.bfloat16](g[])


@export("convref_pack_filter_bf16")
def pack_filter_bf16(g: Pointer[Gather, MutAnyOrigin], low: Int, high: Int) abi("C"):
    pack_filter[DType.bfloat16](g[], low, high)


@export("convref_gather_bf16")
def gather_bf16(g: Pointer[Gather, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gather[DType.bfloat16](g[], scratch, low, high)


@export("convref_plan_correlate_bf16")
def plan_correlate_bf16(p: Pointer[Correlate, MutAnyOrigin]) abi("C"):
    plan_correlate[DType.bfloat16](p[])


@export("convref_correlate_bf16")
def correlate_bf16(p: Pointer[Correlate, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    correlate[DType.bfloat16](p[], scratch, low, high)


@export("convref_merge_bf16")
def merge_bf16(p: Pointer[Correlate, MutAnyOrigin], low: Int, high: Int) abi("C"):
    merge[DType.bfloat16](p[], low, high)


@export("convref_plan_depthwise_bf16")
def plan_depthwise_bf16(g: Pointer[Gather, MutAnyOrigin]) abi("C"):
    plan_depthwise[DType.bfloat16](g[])


@export("convref_pack_depthwise_bf16")
def pack_depthwise_bf16(g: Pointer[Gather, MutAnyOrigin], low: Int, high: Int) abi("C"):
    pack_depthwise[DType.bfloat16](g[], low, high)


@export("convref_depthwise_bf16")
def depthwise_bf16(g: Pointer[Gather, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    depthwise[DType.bfloat16](g[], scratch, low, high)


@export("convref_plan_depthwise_filter_bf16")
def plan_depthwise_filter_bf16(p: Pointer[Correlate, MutAnyOrigin]) abi("C"):
    plan_depthwise_filter[DType.bfloat16](p[])


@export("convref_depthwise_filter_bf16")
def depthwise_filter_bf16(
    p: Pointer[Correlate, MutAnyOrigin], scratch: Int, low: Int, high: Int
) abi("C"):
    depthwise_filter[DType.bfloat16](p[], scratch, low, high)


@export("convref_total_bf16")
def total_bf16(p: Pointer[Total, MutAnyOrigin], low: Int, high: Int) abi("C"):
    total[DType.bfloat16](p[], low, high)


@export("convref_maxima_f32")
def maxima_f32(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.float32, MAXIMA](p[], scratch, low, high)


@export("convref_means_f32")
def means_f32(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.float32, MEANS](p[], scratch, low, high)


@export("convref_picked_f32")
def picked_f32(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.float32, PICKED](p[], scratch, low, high)


@export("convref_spread_f32")
def spread_f32(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    scattered[DType.float32, False](p[], scratch, low, high)


@export("convref_placed_f32")
def placed_f32(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    scattered[DType.float32, True](p[], scratch, low, high)


@export("convref_maxima_f64")
def maxima_f64(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.float64, MAXIMA](p[], scratch, low, high)


@export("convref_means_f64")
def means_f64(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.float64, MEANS](p[], scratch, low, high)


@export("convref_picked_f64")
def picked_f64(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.float64, PICKED](p[], scratch, low, high)


@export("convref_spread_f64")
def spread_f64(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    scattered[DType.float64, False](p[], scratch, low, high)


@export("convref_placed_f64")
def placed_f64(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    scattered[DType.float64, True](p[], scratch, low, high)


@export("convref_maxima_bf16")
def maxima_bf16(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.bfloat16, MAXIMA](p[], scratch, low, high)


@export("convref_means_bf16")
def means_bf16(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.bfloat16, MEANS](p[], scratch, low, high)


@export("convref_picked_bf16")
def picked_bf16(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    gathered[DType.bfloat16, PICKED](p[], scratch, low, high)


@export("convref_spread_bf16")
def spread_bf16(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    scattered[DType.bfloat16, False](p[], scratch, low, high)


@export("convref_placed_bf16")
def placed_bf16(p: Pointer[Pool, MutAnyOrigin], scratch: Int, low: Int, high: Int) abi("C"):
    scattered[DType.bfloat16, True](p[], scratch, low, high)


@export("convref_norm_sums_f32")
def norm_sums_f32(p: Pointer[Norm, MutAnyOrigin], low: Int, high: Int) abi("C"):
    norm_sums[DType.float32](p[], low, high)


@export("convref_combine_f32")
def combine_f32(p: Pointer[Norm, MutAnyOrigin], low: Int, high: Int) abi("C"):
    combine[DType.float32](p[], low, high)


@export("convref_norm_sums_f64")
def norm_sums_f64(p: Pointer[Norm, MutAnyOrigin], low: Int, high: Int) abi("C"):
    norm_sums[DType.float64](p[], low, high)


@export("convref_combine_f64")
def combine_f64(p: Pointer[Norm, MutAnyOrigin], low: Int, high: Int) abi("C"):
    combine[DType.float64](p[], low, high)


@export("convref_norm_sums_bf16")
def norm_sums_bf16(p: Pointer[Norm, MutAnyOrigin], low: Int, high: Int) abi("C"):
    norm_sums[DType.bfloat16](p[], low, high)


@export("convref_combine_bf16")
def combine_bf16(p: Pointer[Norm, MutAnyOrigin], low: Int, high: Int) abi("C"):
    combine[DType.bfloat16](p[], low, high)
