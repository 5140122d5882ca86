"""The C functions of the shared library.

`convref_plan` completes a struct that Python filled in. `convref_compute` computes units `low` to `high` of
the work of a kernel, with `scratch` bytes of memory of its thread; the caller starts the threads. Kernels and
number types are selected by their index in `KERNELS` and `DTYPES`.
"""

from conv import correlate, gather, plan_correlate, plan_gather
from correlate_padded import merge
from depthwise import (depthwise, depthwise_wgrad, pack_depthwise, plan_depthwise, plan_depthwise_wgrad)
from gather import pack_filter
from norm import Norm, affine, channel_sums
from pool import FPROP_AVG, FPROP_MAX, SELECT, Pool, pool_backward, pool_forward
from simd import lanes
from tile import MR, NV
from windows import Conv

comptime DTYPES = (DType.float32, DType.float64, DType.bfloat16)  # DTYPES of library.py
comptime KERNELS = (
    "gather", "pack_filter", "depthwise", "pack_depthwise", "correlate", "merge", "depthwise_wgrad",
    "max_pool_fprop", "avg_pool_fprop", "max_pool_select", "max_pool_backward", "avg_pool_backward",
    "channel_sums", "affine"
)


@export("convref_tile")
def convref_tile(tile: Pointer[Int, MutAnyOrigin]) abi("C"):
    """Write the register tile of float32: rows, vectors, elements of a vector."""
    tile[] = MR
    tile[unsafe_offset=1] = NV
    tile[unsafe_offset=2] = lanes[DType.float32]()


@export("convref_plan")
def convref_plan(kernel: Int, dtype: Int, p: Pointer[Conv, MutAnyOrigin]) abi("C"):
    comptime for k in range(len(KERNELS)):
        comptime for i in range(len(DTYPES)):
            if kernel == k and dtype == i:
                plan[KERNELS[k], DTYPES[i]](p[])


@export("convref_compute")
def convref_compute(kernel: Int, dtype: Int, p: Int, scratch: Int, low: Int, high: Int) abi("C"):
    comptime for k in range(len(KERNELS)):
        comptime for i in range(len(DTYPES)):
            if kernel == k and dtype == i:
                compute[KERNELS[k], DTYPES[i]](p, scratch, low, high)


def plan[name: StaticString, T: DType](mut conv: Conv):
    comptime if name == "gather":
        plan_gather[T](conv)
    elif name == "depthwise":
        plan_depthwise[T](conv)
    elif name == "correlate":
        plan_correlate[T](conv)
    elif name == "depthwise_wgrad":
        plan_depthwise_wgrad[T](conv)


def compute[name: StaticString, T: DType](address: Int, scratch: Int, low: Int, high: Int):
    ref conv = Pointer[Conv, MutAnyOrigin](unsafe_from_address=address)[]
    ref pool = Pointer[Pool, MutAnyOrigin](unsafe_from_address=address)[]
    ref norm = Pointer[Norm, MutAnyOrigin](unsafe_from_address=address)[]
    comptime if name == "gather":
        gather[T](conv, scratch, low, high)
    elif name == "pack_filter":
        pack_filter[T](conv, low, high)
    elif name == "depthwise":
        depthwise[T](conv, scratch, low, high)
    elif name == "pack_depthwise":
        pack_depthwise[T](conv, low, high)
    elif name == "correlate":
        correlate[T](conv, scratch, low, high)
    elif name == "merge":
        merge[T](conv, low, high)
    elif name == "depthwise_wgrad":
        depthwise_wgrad[T](conv, scratch, low, high)
    elif name == "max_pool_fprop":
        pool_forward[T, FPROP_MAX](pool, low, high)
    elif name == "avg_pool_fprop":
        pool_forward[T, FPROP_AVG](pool, low, high)
    elif name == "max_pool_select":
        pool_forward[T, SELECT](pool, low, high)
    elif name == "max_pool_backward":
        pool_backward[T, True](pool, scratch, low, high)
    elif name == "avg_pool_backward":
        pool_backward[T, False](pool, scratch, low, high)
    elif name == "channel_sums":
        channel_sums[T](norm, low, high)
    elif name == "affine":
        affine[T](norm, low, high)
