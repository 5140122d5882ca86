"""Tensor maps: how the bulk copy engine of sm_90 sees a tensor, in boxes with zeros around."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_uint32, c_uint64

from convref.errors import ConvrefError, message

from .library import Driver
from .manifest import TENSORMAP

# (CUtensorMapDataType, bytes)
TYPES = {
    "u8": (0, 1),
    "i8": (0, 1),
    "u16": (1, 2),
    "u32": (2, 4),
    "i32": (3, 4),
    "u64": (4, 8),
    "i64": (5, 8),
    "f16": (6, 2),
    "f32": (7, 4),
    "f64": (8, 8),
    "bf16": (9, 2),
}
L2_PROMOTION_128B = 2
ALIGN = 64  # bytes, of the map itself


def encode(
    driver: Driver,
    dtype: str,
    pointer: int,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
    every: Sequence[int] = (),
) -> bytes:
    """Return the 128 bytes of a tensor map; positions outside the tensor read as zero.

    Parameters
    ----------
    driver : Driver
    dtype : str
        A code of `convref.dtypes`.
    pointer : int
        Address of the first element, a multiple of 16.
    shape, strides, box : sequence of int
        In elements, one to five of each; the last stride is 1.
    swizzle : int
        0 none, 1, 2, 3 for spans of 32, 64, 128 bytes: what the kernel was compiled for.
    every : sequence of int, optional
        How far apart the elements of a box are along each axis, at most 8; the last one is 1.

    Raises
    ------
    ConvrefError
        If the sequences disagree or the last stride is not 1.
    CudaError
        If the driver refuses the geometry; the message repeats it.
    """
    what = f"{dtype}{tuple(shape)} strides {tuple(strides)} box {tuple(box)} at {pointer:#x}"
    rank, every = len(shape), tuple(every) or (1,) * len(shape)
    equal = rank == len(strides) == len(box) == len(every)
    if dtype not in TYPES or not equal or strides[-1] != 1:
        needs = f"needs equal lengths, a last stride of 1 and one of {', '.join(TYPES)}"
        raise ConvrefError(message("tensor map", f"{what}, {needs}"))
    code, size = TYPES[dtype]
    steps = [size * stride for stride in strides[:-1]]
    storage = ctypes.create_string_buffer(TENSORMAP + ALIGN)
    start = -ctypes.addressof(storage) % ALIGN
    driver.call(
        "cuTensorMapEncodeTiled",
        ctypes.addressof(storage) + start,
        code,
        rank,
        pointer,
        (c_uint64 * rank)(*reversed(shape)),
        (c_uint64 * rank)(*reversed(steps)),  # the innermost one is left out
        (c_uint32 * rank)(*((n - 1) * e + 1 for n, e in zip(reversed(box), reversed(every)))),
        (c_uint32 * rank)(*reversed(every)),
        0,
        swizzle,
        L2_PROMOTION_128B,
        0,
        why=f"tensor map of {what}",
    )
    return storage.raw[start : start + TENSORMAP]
