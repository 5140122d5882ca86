"""Tensor maps for the bulk copy engine of sm_90; positions outside of the tensor read as zero."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_uint32, c_uint64
from typing import Any

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
    device: int = 0,
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
        Element strides of a box along each axis, at most 8; the last one is 1.
    device : int
        The device of the tensor.

    Raises
    ------
    ConvrefError
        If the sequences disagree or the last stride is not 1.
    CudaError
        If the driver refuses the geometry; the message repeats it.
    """
    what = f"{dtype}{tuple(shape)} strides {tuple(strides)} box {tuple(box)} at {pointer:#x}"
    every = tuple(every) or (1,) * len(shape)
    tensor = _tensor(what, dtype, pointer, shape, strides, every, len(box) == len(shape))
    spans = _reversed(c_uint32, [(n - 1) * e + 1 for n, e in zip(box, every)])
    boxes = spans, _reversed(c_uint32, every)
    return _encoded(driver, device, "Tiled", what, swizzle, *tensor, *boxes)


def encode_im2col(
    driver: Driver,
    dtype: str,
    pointer: int,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    every: Sequence[int],
    lower: Sequence[int],
    upper: Sequence[int],
    device: int = 0,
) -> bytes:
    """Return the 128 bytes of a tensor map (n, spatial axes, channels) in im2col mode.

    Parameters
    ----------
    driver, dtype, pointer, shape, strides, swizzle, every, device
        As of `encode`; three to five axes.
    box : sequence of 2 int
        Pixels and channels of a copy, at most 256 of either.
    lower, upper : sequence of int
        Of each spatial axis: the corners of the bounding box of the pixels, relative to the tensor.

    Raises
    ------
    ConvrefError
        If the sequences disagree or the last stride is not 1.
    CudaError
        If the driver refuses the geometry; the message repeats it.
    """
    what = f"{dtype}{tuple(shape)} strides {tuple(strides)} pixels {tuple(box)} at {pointer:#x}"
    what += f" from {tuple(lower)} to {tuple(upper)}"
    every = tuple(every) or (1,) * len(shape)
    equal = len(lower) == len(upper) == len(shape) - 2 and len(box) == 2
    tensor = _tensor(what, dtype, pointer, shape, strides, every, equal)
    corners = _reversed(c_int, lower), _reversed(c_int, upper)
    column = box[1], box[0], _reversed(c_uint32, every)
    return _encoded(driver, device, "Im2col", what, swizzle, *tensor, *corners, *column)


def _reversed(kind: Any, values: Sequence[int]) -> Any:
    """Return a C array in the driver's order, innermost axis first."""
    return (kind * len(values))(*reversed(values))


def _tensor(
    what: str, dtype: str, pointer: int, shape: Sequence[int], strides: Sequence[int],
    every: Sequence[int], equal: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the arguments of both kinds of map: type, rank, address, sizes, strides in bytes."""
    equal = equal and len(shape) == len(strides) == len(every)
    if dtype not in TYPES or not equal or strides[-1] != 1:
        needs = f"needs equal lengths, a last stride of 1 and one of {', '.join(TYPES)}"
        raise ConvrefError(message("tensor map", f"{what}, {needs}"))
    code, size = TYPES[dtype]
    steps = [0, *(size * stride for stride in strides[:-1])]  # the driver takes no innermost stride
    return (
        code, len(shape), pointer, _reversed(c_uint64, shape), _reversed(c_uint64, steps)
    )  # fmt: skip


def _encoded(
    driver: Driver, device: int, kind: str, what: str, swizzle: int, *geometry: Any
) -> bytes:
    """Return the map that the driver encodes; some drivers need a context for it."""
    storage = ctypes.create_string_buffer(TENSORMAP + ALIGN)
    start = -ctypes.addressof(storage) % ALIGN
    place = ctypes.addressof(storage) + start
    arguments = (*geometry, 0, swizzle, L2_PROMOTION_128B, 0)
    with driver.inside(driver.context(device)):
        driver.call(f"cuTensorMapEncode{kind}", place, *arguments, why=f"tensor map of {what}")
    return storage.raw[start : start + TENSORMAP]
