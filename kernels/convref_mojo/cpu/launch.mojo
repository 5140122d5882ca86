"""The kernels by name: the plan of a launch, and the computation of some of its units."""

from conv import correlate, gather, plan_correlate, plan_gather
from correlate_padded import merge
from depthwise import (depthwise, depthwise_wgrad, pack_depthwise, plan_depthwise, plan_depthwise_wgrad)
from gather import pack_filter
from norm import BACKWARD, CHANNEL_SUMS, FPROP, JVP, Norm, norm_pass
from pool import FPROP_AVG, FPROP_MAX, SELECT, Pool, pool_backward, pool_forward
from windows import Conv

comptime DTYPES = (DType.float32, DType.float64, DType.bfloat16)  # DTYPES of library.py
comptime KERNELS = (
    "gather", "pack_filter", "depthwise", "pack_depthwise", "correlate", "merge", "depthwise_wgrad",
    "max_pool_fprop", "avg_pool_fprop", "max_pool_select", "max_pool_backward", "avg_pool_backward",
    "channel_sums", "batch_norm_fprop", "batch_norm_backward", "batch_norm_jvp"
)


def plan[name: StaticString, T: DType](mut conv: Conv):
    comptime if name == "gather":
        plan_gather[T](conv)
    elif name == "depthwise":
        plan_depthwise[T](conv)
    elif name == "correlate":
        plan_correlate[T](conv)
    elif name == "depthwise_wgrad":
        plan_depthwise_wgrad[T](conv)


def index_of(name: StaticString) -> Int:
    comptime for k in range(len(KERNELS)):
        if name == KERNELS[k]:
            return k
    return -1


@no_inline
def compute[kernel: Int, T: DType](address: Int, scratch: Int, low: Int, high: Int):
    """Compute units of a kernel; with its name as parameter, each caller would have a copy of its code."""
    comptime name = KERNELS[kernel]
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
        norm_pass[T, CHANNEL_SUMS](norm, low, high)
    elif name == "batch_norm_fprop":
        norm_pass[T, FPROP](norm, low, high)
    elif name == "batch_norm_backward":
        norm_pass[T, BACKWARD](norm, low, high)
    elif name == "batch_norm_jvp":
        norm_pass[T, JVP](norm, low, high)
