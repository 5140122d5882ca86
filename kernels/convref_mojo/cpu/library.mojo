"""The C functions of the shared library.

`convref_pass` computes a pass of an op from its sizes and attributes; see passes/run.mojo. `convref_numpy` does
the same with arrays of NumPy, of any strides, and `convref_xla` with a frame of XLA. Passes and number types
are selected by their index in `PASSES` and `DTYPES`.
"""

from std.memory import stack_allocation
from std.sys import size_of

from launch import DTYPES
from passes.numpy import OTHER_OPERANDS, STRIDES_OF_ARRAYS, UNALIGNED, NumpyCall
from passes.run import PASSES, run_pass
from passes.sizes import ARRAYS, Arrays, Attributes, Sizes
from passes.xla import XlaFrame
from simd import Table, lanes
from tile import MR, NV


@export("convref_tile")
def convref_tile(tile: Pointer[Int, MutAnyOrigin]) abi("C"):
    """Write the register tile of float32: rows, vectors, elements of a vector."""
    tile[] = MR
    tile[unsafe_offset=1] = NV
    tile[unsafe_offset=2] = lanes[DType.float32]()


@export("convref_pass")
def convref_pass(
    which: Int, dtype: Int, arrays: Table, sizes: Pointer[Sizes, MutAnyOrigin],
    attributes: Pointer[Attributes, MutAnyOrigin], scratch: Int
) abi("C") -> Int:
    """Compute pass `which` of `PASSES` for `DTYPES[dtype]` on C-contiguous arrays.

    `arrays` has the addresses of operands and results in the order of `PASSES`, 0 for an absent one.
    Without `arrays` nothing is computed. With `scratch` 0 the memory is allocated, and its bytes are returned.
    """
    return run_any(which, dtype, Arrays(Int(arrays), 0), sizes[], attributes[], scratch)


@no_inline
def run_any(which: Int, dtype: Int, of: Arrays, sizes: Sizes, attributes: Attributes, scratch: Int) -> Int:
    comptime for k in range(len(PASSES)):
        comptime for i in range(len(DTYPES)):
            if which == k and dtype == i:
                return run_pass[PASSES[k], DTYPES[i]](of, sizes, attributes, scratch)
    return -1


@export("convref_numpy")
def convref_numpy(words: Int, arrays: Int, scratch: Int) abi("C") -> Int:
    """Compute a pass on a tuple of NumPy arrays; return a negative number if an operand is not aligned, or not an
    array that the words were computed for.

    Without `arrays` nothing is computed. With `scratch` 0 the memory is allocated, and its bytes are returned.
    """
    var call = NumpyCall(words)
    var addresses = stack_allocation[ARRAYS, Int]()
    var of = Arrays(0, call.after(STRIDES_OF_ARRAYS))
    if arrays != 0:
        of.addresses = Int(addresses)
        if not call.fits(arrays):
            return OTHER_OPERANDS
        if not call.read(arrays, Table(unsafe_from_address=of.addresses)):
            return UNALIGNED
    return run_any(call[0], call[1], of, call.sizes()[], call.attributes()[], scratch)


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
