"""The passes by name: their arrays, and their scratch memory."""

from std.ffi import external_call
from std.memory import stack_allocation
from std.sys import CompilationTarget
from std.sys.intrinsics import llvm_intrinsic

from passes import norm
from passes.conv import Roles, correlate_pass, gather_pass
from passes.pool import pool_pass
from passes.sizes import Arrays, Attributes, Sizes
from passes.threads import ALIGNMENT

# The arrays of each, operands then results, are in ROLES of passes.py.
comptime PASSES = (
    "conv_fprop", "conv_dgrad", "conv_wgrad", "conv_bgrad", "conv_jvp", "max_pool_fprop",
    "max_pool_backward", "max_pool_select", "avg_pool_fprop", "avg_pool_backward", "batch_norm_fprop",
    "batch_norm_backward", "batch_norm_jvp"
)


def run_pass[name: StaticString, T: DType](of: Arrays, s: Sizes, a: Attributes, scratch: Int) -> Int:
    """Compute a pass, unless there are no arrays; return the bytes of scratch memory if `scratch` is 0, or a
    negative status."""
    var bytes = 0
    var memory = scratch
    if scratch == 0:
        bytes = compute_pass[name, T](of, s, a, 0) + ALIGNMENT
        if of.addresses == 0:
            return bytes
        memory = external_call["malloc", Int](bytes)
    var mode = exchange_float_mode(KEEP_SUBNORMALS)
    var status = compute_pass[name, T](of, s, a, (memory + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
    _ = exchange_float_mode(mode)
    if scratch == 0:
        external_call["free", NoneType](memory)
    return bytes if status >= 0 else status


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


def compute_pass[name: StaticString, T: DType](of: Arrays, s: Sizes, a: Attributes, scratch: Int) -> Int:
    """Return the bytes of scratch memory of a pass if `scratch` is 0, else compute it."""
    comptime if name == "max_pool_fprop":
        return pool_pass[T, name](s, a, of, 0, 1, 2, scratch)
    elif name == "max_pool_select":
        return pool_pass[T, name](s, a, of, 0, 2, 1, scratch)
    elif name == "max_pool_backward":
        return pool_pass[T, name](s, a, of, 2, 0, 1, scratch)
    elif name == "avg_pool_fprop":
        return pool_pass[T, name](s, a, of, 0, 1, -1, scratch)
    elif name == "avg_pool_backward":
        return pool_pass[T, name](s, a, of, 1, 0, -1, scratch)
    elif name == "batch_norm_fprop":
        return norm.norm_pass[T, name](s, a, of, norm.Images(0, -1, 5, -1), scratch)
    elif name == "batch_norm_backward":
        return norm.norm_pass[T, name](s, a, of, norm.Images(1, 0, 5, -1), scratch)
    elif name == "batch_norm_jvp":
        return norm.norm_pass[T, name](s, a, of, norm.Images(0, 5, 8, 9), scratch)
    elif name == "conv_bgrad":
        return norm.channel_sums_pass[T](s, a, of, scratch)
    else:
        return conv_pass[name, T](of, s, a, scratch)


def conv_pass[name: StaticString, T: DType](of: Arrays, s: Sizes, a: Attributes, scratch: Int) -> Int:
    var transposed = a.transposed == 1
    var pairs = 1 if of.addresses == 0 or of[1] != 0 else 0
    comptime if name == "conv_fprop":
        return gather_pass[T](s, a, transposed, Roles(of, 0, 1, 3, 2, 1, -1, -1), scratch)
    elif name == "conv_dgrad":
        return gather_pass[T](s, a, not transposed, Roles(of, 0, 1, 2, -1, pairs, -1, -1), scratch)
    elif name == "conv_wgrad":
        var big, small = (0, 1) if transposed else (1, 0)
        return correlate_pass[T](s, a, Roles(of, big, 2, small, -1, pairs, -1, -1), scratch)
    else:
        return tangent[T](s, a, of, scratch)


def tangent[T: DType](s: Sizes, a: Attributes, of: Arrays, scratch: Int) -> Int:
    """Compute y_dot = conv(x_dot, w) + conv(x, w_dot) + b_dot, without absent terms."""
    var roles = Roles(of, 2, 1, 5, 4, 0, 0, 3)
    if of[2] == 0:
        roles.big = 0
        roles.filter = 3
    if of.addresses != 0:
        roles.pairs = (1 if of[2] != 0 else 0) + (1 if of[3] != 0 else 0)
        return gather_pass[T](s, a, a.transposed == 1, roles, scratch)
    var most = 0
    for pairs in range(3):
        roles.pairs = pairs
        most = max(most, gather_pass[T](s, a, a.transposed == 1, roles, 0))
    return most
