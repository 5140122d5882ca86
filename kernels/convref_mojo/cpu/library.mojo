"""The C functions of the shared library.

Each takes a number type, by its index in `DTYPES`, and the address of a struct that Python filled in
(structures.py mirrors them). `plan_*` completes the struct. The others compute units `low` to `high`
of the work, with `scratch` bytes of memory of their thread; the caller starts the threads.
"""

from conv import correlate, gather, plan_correlate, plan_gather
from correlate import Correlate
from correlate_padded import merge
from depthwise import (
    depthwise,
    depthwise_wgrad,
    pack_depthwise,
    plan_depthwise,
    plan_depthwise_wgrad,
)
from gather import Gather, pack_filter
from norm import Norm, affine, channel_sums
from pool import FPROP_AVG, FPROP_MAX, SELECT, Pool, pool_backward, pool_forward
from simd import lanes
from tile import MR, NV

comptime DTYPES = (DType.float32, DType.float64, DType.bfloat16)  # DTYPES of library.py
comptime Struct[S: AnyType] = Pointer[S, MutAnyOrigin]


@export("convref_tile")
def convref_tile(tile: Pointer[Int, MutAnyOrigin]) abi("C"):
    """Write the register tile of float32: rows, vectors, elements of a vector."""
    tile[] = MR
    tile[unsafe_offset=1] = NV
    tile[unsafe_offset=2] = lanes[DType.float32]()


@export("convref_plan_gather")
def c_plan_gather(dtype: Int, p: Struct[Gather]) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            plan_gather[DTYPES[i]](p[])


@export("convref_plan_depthwise")
def c_plan_depthwise(dtype: Int, p: Struct[Gather]) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            plan_depthwise[DTYPES[i]](p[])


@export("convref_plan_correlate")
def c_plan_correlate(dtype: Int, p: Struct[Correlate]) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            plan_correlate[DTYPES[i]](p[])


@export("convref_plan_depthwise_wgrad")
def c_plan_depthwise_wgrad(dtype: Int, p: Struct[Correlate]) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            plan_depthwise_wgrad[DTYPES[i]](p[])


@export("convref_pack_filter")
def c_pack_filter(dtype: Int, p: Struct[Gather], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            pack_filter[DTYPES[i]](p[], low, high)


@export("convref_gather")
def c_gather(dtype: Int, p: Struct[Gather], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            gather[DTYPES[i]](p[], scratch, low, high)


@export("convref_pack_depthwise")
def c_pack_depthwise(dtype: Int, p: Struct[Gather], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            pack_depthwise[DTYPES[i]](p[], low, high)


@export("convref_depthwise")
def c_depthwise(dtype: Int, p: Struct[Gather], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            depthwise[DTYPES[i]](p[], scratch, low, high)


@export("convref_correlate")
def c_correlate(dtype: Int, p: Struct[Correlate], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            correlate[DTYPES[i]](p[], scratch, low, high)


@export("convref_merge")
def c_merge(dtype: Int, p: Struct[Correlate], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            merge[DTYPES[i]](p[], low, high)


@export("convref_depthwise_wgrad")
def c_depthwise_wgrad(dtype: Int, p: Struct[Correlate], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            depthwise_wgrad[DTYPES[i]](p[], scratch, low, high)


@export("convref_max_pool_fprop")
def c_max_pool_fprop(dtype: Int, p: Struct[Pool], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            pool_forward[DTYPES[i], FPROP_MAX](p[], low, high)


@export("convref_avg_pool_fprop")
def c_avg_pool_fprop(dtype: Int, p: Struct[Pool], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            pool_forward[DTYPES[i], FPROP_AVG](p[], low, high)


@export("convref_max_pool_select")
def c_max_pool_select(dtype: Int, p: Struct[Pool], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            pool_forward[DTYPES[i], SELECT](p[], low, high)


@export("convref_max_pool_backward")
def c_max_pool_backward(dtype: Int, p: Struct[Pool], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            pool_backward[DTYPES[i], True](p[], scratch, low, high)


@export("convref_avg_pool_backward")
def c_avg_pool_backward(dtype: Int, p: Struct[Pool], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            pool_backward[DTYPES[i], False](p[], scratch, low, high)


@export("convref_channel_sums")
def c_channel_sums(dtype: Int, p: Struct[Norm], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            channel_sums[DTYPES[i]](p[], low, high)


@export("convref_affine")
def c_affine(dtype: Int, p: Struct[Norm], scratch: Int, low: Int, high: Int) abi("C"):
    comptime for i in range(len(DTYPES)):
        if dtype == i:
            affine[DTYPES[i]](p[], low, high)
