"""A PTX interpreter in NumPy: the results of a kernel and its errors, without a GPU.

The threads of several blocks are one vector. Every access is checked (bounds, alignment, writes to
operands, races in shared memory), warps run in random order between barriers, shared memory and
results start as NaN, and an unknown instruction is an error. `device` runs Triton kernels.

>>> text = '''
... .visible .entry twice(.param .u64 twice_0) {
... .reg .b32 %r<4>; .reg .b64 %rd<4>;
... ld.param.b64 %rd1, [twice_0];
... mov.u32 %r1, %tid.x;
... mul.wide.s32 %rd2, %r1, 4;
... add.s64 %rd3, %rd1, %rd2;
... ld.global.b32 %r2, [%rd3];
... add.s32 %r3, %r2, %r2;
... st.global.b32 [%rd3], %r3;
... ret;
... }'''
>>> import numpy as np
>>> x = np.arange(4, dtype=np.int32)
>>> launch(parse(text), (1,), (4,), [Allocation(x, writable=True)])
>>> x
array([0, 2, 4, 6], dtype=int32)
"""

from typing import Any

from .asynchronous.maps import Im2colMap, TensorMap
from .decode.program import Fault, PtxProgram, parse
from .memory.allocations import Allocation
from .state.launch import launch, launch_all

__all__ = [
    "Allocation",
    "Fault",
    "Im2colMap",
    "PtxProgram",
    "TensorMap",
    "device",
    "launch",
    "launch_all",
    "parse",
]


def __getattr__(name: str) -> Any:
    """Import the device of Triton kernels where it is used: it needs torch and triton."""
    if name != "device":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .triton.device import device

    return device
