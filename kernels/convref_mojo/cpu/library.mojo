"""The C functions of the shared library.

`convref_plan` completes a struct that Python filled in. `convref_compute` computes units `low` to `high` of
the work of a kernel, with `scratch` bytes of memory of its thread; the caller starts the threads. Kernels and
number types are selected by their index in `KERNELS` and `DTYPES`.

`convref_pass` computes a pass of an op from its sizes and attributes alone; see passes/run.mojo.
"""

from std.memory import stack_allocation
from std.sys import size_of

from launch import DTYPES, KERNELS, compute, plan
from passes.run import PASSES, run_pass
from passes.sizes import ARRAYS, Attributes, Sizes
from passes.xla import XlaFrame
from simd import Table, lanes
from tile import MR, NV
from windows import Conv


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
                compute[k, DTYPES[i]](p, scratch, low, high)


@export("convref_pass")
def convref_pass(
    which: Int, dtype: Int, arrays: Table, sizes: Pointer[Sizes, MutAnyOrigin],
    attributes: Pointer[Attributes, MutAnyOrigin], scratch: Int
) abi("C") -> Int:
    """Compute pass `which` of `PASSES` for `DTYPES[dtype]`; return the bytes of scratch memory of the call.

    `arrays` has the addresses of operands and results in the order of `PASSES`, 0 for an absent one.
    Without `arrays` nothing is computed. With `scratch` 0 the memory is allocated.
    """
    comptime for k in range(len(PASSES)):
        comptime for i in range(len(DTYPES)):
            if which == k and dtype == i:
                return run_pass[PASSES[k], DTYPES[i]](arrays, sizes[], attributes[], scratch)
    return -1


@export("convref_xla")
def convref_xla(address: Int) abi("C") -> Int:
    """Compute the pass of a frame of XLA's foreign function interface; return 0 for no error."""
    var frame = XlaFrame(address)
    if frame.writes_version() or not frame.executes():
        return 0
    var words = frame.words()
    var arrays = stack_allocation[ARRAYS, Int]()
    for i in range(ARRAYS):
        arrays[unsafe_offset=i] = frame.array(words[unsafe_offset=2 + i])
    var sizes = Int(words.unsafe_offset(2 + ARRAYS))
    _ = convref_pass(
        words[], words[unsafe_offset=1], Table(unsafe_from_address=Int(arrays)),
        Pointer[Sizes, MutAnyOrigin](unsafe_from_address=sizes),
        Pointer[Attributes, MutAnyOrigin](unsafe_from_address=sizes + size_of[Sizes]()), 0
    )
    return 0
