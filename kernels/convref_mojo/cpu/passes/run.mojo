"""The passes by name: their arrays, and their scratch memory."""

from std.ffi import external_call
from std.memory import stack_allocation
from std.sys import CompilationTarget
from std.sys.intrinsics import llvm_intrinsic

from passes import norm
from passes.conv import Arrays, correlate_pass, gather_pass
from passes.pool import pool_pass
from passes.sizes import Addresses, Attributes, Sizes
from passes.threads import ALIGNMENT
from simd import Table

# The arrays of each, operands then results, are in ROLES of passes.py.
comptime PASSES = (
    "conv_fprop", "conv_dgrad", "conv_wgrad", "conv_bgrad", "conv_jvp", "max_pool_fprop",
    "max_pool_backward", "max_pool_select", "avg_pool_fprop", "avg_pool_backward", "batch_norm_fprop",
    "batch_norm_backward", "batch_norm_jvp"
)


def run_pass[name: StaticString, T: DType](arrays: Table, s: Sizes, a: Attributes, scratch: Int) -> Int:
    """Return the bytes of scratch memory of a pass; compute it unless `arrays` is null."""
    var bytes = compute_pass[name, T](arrays, s, a, 0) + ALIGNMENT
    if Int(arrays) == 0:
        return bytes
    var memory = scratch
    if scratch == 0:
        memory = external_call["malloc", Int](bytes)
    var mode = exchange_float_mode(KEEP_SUBNORMALS)
    _ = compute_pass[name, T](arrays, s, a, (memory + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
    _ = exchange_float_mode(mode)
    if scratch == 0:
        external_call["free", NoneType](memory)
    return bytes


comptime KEEP_SUBNORMALS = UInt32(0x1F80)
"""The initial value of the register MXCSR."""


def exchange_float_mode(mode: UInt32) -> UInt32:
    """Set the floating-point mode of this thread, and return the one before: XLA and MAX flush subnormals."""
    comptime if CompilationTarget.is_x86():
        var word = stack_allocation[2, UInt32]()
        word[unsafe_offset=1] = mode
        llvm_intrinsic["llvm.x86.sse.stmxcsr", NoneType](word)
        llvm_intrinsic["llvm.x86.sse.ldmxcsr", NoneType](word.unsafe_offset(1))
        return word[]
    return mode


def compute_pass[name: StaticString, T: DType](arrays: Table, s: Sizes, a: Attributes, scratch: Int) -> Int:
    var of = Addresses(Int(arrays))
    comptime if name == "max_pool_fprop":
        return pool_pass[T, name](s, a, of[0], of[1], of[2], scratch)
    elif name == "max_pool_select":
        return pool_pass[T, name](s, a, of[0], of[2], of[1], scratch)
    elif name == "max_pool_backward":
        return pool_pass[T, name](s, a, of[2], of[0], of[1], scratch)
    elif name == "avg_pool_fprop":
        return pool_pass[T, name](s, a, of[0], of[1], 0, scratch)
    elif name == "avg_pool_backward":
        return pool_pass[T, name](s, a, of[1], of[0], 0, scratch)
    elif name == "batch_norm_fprop":
        return norm.fprop_pass[T](s, a, of, scratch)
    elif name == "batch_norm_backward":
        return norm.backward_pass[T](s, a, of, scratch)
    elif name == "batch_norm_jvp":
        return norm.jvp_pass[T](s, a, of, scratch)
    elif name == "conv_bgrad":
        return norm.channel_sums_pass[T](s, a, of[0], of[1], scratch)
    else:
        return conv_pass[name, T](of, s, a, scratch)


def conv_pass[name: StaticString, T: DType](of: Addresses, s: Sizes, a: Attributes, scratch: Int) -> Int:
    var transposed = a.transposed == 1
    var pairs = 1 if of.table == 0 or of[1] != 0 else 0
    comptime if name == "conv_fprop":
        return gather_pass[T](s, a, transposed, Arrays(of[0], of[1], of[3], of[2], 1, 0, 0), scratch)
    elif name == "conv_dgrad":
        return gather_pass[T](s, a, not transposed, Arrays(of[0], of[1], of[2], 0, pairs, 0, 0), scratch)
    elif name == "conv_wgrad":
        var big = of[0] if transposed else of[1]
        var small = of[1] if transposed else of[0]
        return correlate_pass[T](s, a, Arrays(big, of[2], small, 0, pairs, 0, 0), scratch)
    else:
        return tangent[T](s, a, of, scratch)


def tangent[T: DType](s: Sizes, a: Attributes, of: Addresses, scratch: Int) -> Int:
    """Compute y_dot = conv(x_dot, w) + conv(x, w_dot) + b_dot, without absent terms."""
    var arrays = Arrays(of[2], of[1], of[5], of[4], 0, of[0], of[3])
    if of[2] == 0:
        arrays.big = of[0]
        arrays.filter = of[3]
    if of.table != 0:
        arrays.pairs = (1 if of[2] != 0 else 0) + (1 if of[3] != 0 else 0)
        return gather_pass[T](s, a, a.transposed == 1, arrays, scratch)
    var most = 0
    for pairs in range(3):
        arrays.pairs = pairs
        most = max(most, gather_pass[T](s, a, a.transposed == 1, arrays, 0))
    return most
