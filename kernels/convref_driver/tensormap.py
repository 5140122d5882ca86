"""Tensor maps for the bulk copy engine of sm_90; positions outside of the tensor read as zero."""

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_uint32, c_uint64
from typing import NamedTuple

from convref.errors import invalid

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
ARRAYS = {"cuuint64_t": c_uint64, "cuuint32_t": c_uint32, "int": c_int}
L2_PROMOTION_128B = 2
ALIGN = 64  # bytes, of the map itself
# Bytes of a tensor and versions of drivers for which `_without_bit` corrects a map.
SMALL, FAULTY = 128 << 10, 13010


def encode(
    driver: Driver,
    dtype: str,
    pointer: int,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
    every: Sequence[int] = (),
    lower: Sequence[int] = (),
    upper: Sequence[int] = (),
    device: int = 0,
) -> bytes:
    """Return the 128 bytes of a tensor map; with corners, in im2col mode.

    Parameters
    ----------
    driver : Driver
    dtype : str
        A code of `convref.dtypes`.
    pointer : int
        Address of the first element, a multiple of 16.
    shape, strides : sequence of int
        In elements, one to five of each; the last stride is 1. Im2col: (n, spatial axes, channels).
    box : sequence of int
        Elements of a copy along each axis; im2col: its pixels and channels, at most 256 of either.
    swizzle : int
        0 none, 1, 2, 3 for spans of 32, 64, 128 bytes; as in the compiled kernel.
    every : sequence of int, optional
        Element strides of a box along each axis, at most 8; the last one is 1.
    lower, upper : sequence of int, optional
        Of each spatial axis: the corners of the bounding box of the pixels, relative to the tensor.
    device : int
        The device of the tensor.

    Raises
    ------
    ConvrefError
        If the sequences disagree or the last stride is not 1.
    CudaError
        If the driver refuses the geometry; the message repeats it.
    """
    what = f"{dtype}{tuple(shape)} strides {tuple(strides)}"
    what += _corners_text(box, pointer, lower, upper)
    form = geometry(dtype, shape, strides, box, swizzle, every, lower, upper, what)
    made = _encoded(driver, device, form, pointer, what)
    return _without_bit(made) if form.small and driver.version() <= FAULTY else made


class Numbers(NamedTuple):
    """An array that the driver takes, innermost axis first."""

    type: str  # in C, one of `ARRAYS`
    values: tuple[int, ...]


class Geometry(NamedTuple):
    """The arguments of a driver's function, apart from the map and the tensor's address."""

    function: str
    before: tuple[int, int]  # those before the address: type and axes
    after: tuple[int | Numbers, ...]
    small: bool  # whether the tensor is one whose map `_without_bit` corrects


def geometry(
    dtype: str,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
    every: Sequence[int] = (),
    lower: Sequence[int] = (),
    upper: Sequence[int] = (),
    what: str = "",
) -> Geometry:
    """Return how the driver is told of the geometry of a tensor map, as `encode` takes it."""
    im2col = bool(lower or upper)
    rank, every = len(shape), tuple(every) or (1,) * len(shape)
    lengths = [len(strides), len(every), *((len(lower) + 2, len(upper) + 2) if im2col else ())]
    equal = lengths == [rank] * len(lengths) and len(box) == (2 if im2col else rank)
    if dtype not in TYPES or not equal or strides[-1] != 1:
        needs = f"needs equal lengths, a last stride of 1 and one of {', '.join(TYPES)}"
        raise invalid("tensor map", f"{what}, {needs}")
    code, size = TYPES[dtype]
    steps = [0, *(size * stride for stride in strides[:-1])]  # the driver takes no innermost stride
    tensor = _reversed("cuuint64_t", shape), _reversed("cuuint64_t", steps)
    if im2col:
        copies = [_reversed("int", lower), _reversed("int", upper), box[1], box[0]]
    else:
        copies = [_reversed("cuuint32_t", [(n - 1) * e + 1 for n, e in zip(box, every)])]
    options = _reversed("cuuint32_t", every), 0, swizzle, L2_PROMOTION_128B, 0
    span = size * (1 + sum((n - 1) * step for n, step in zip(shape, strides)))
    name = f"cuTensorMapEncode{'Im2col' if im2col else 'Tiled'}"
    return Geometry(name, (code, rank), (*tensor, *copies, *options), span < SMALL)


def _without_bit(made: bytes) -> bytes:
    """Return a tensor map with bit 85 cleared.

    The release notes of driver 595.71.05 ask for that on Blackwell: the map of a small tensor that
    is not dense otherwise leads to illegal accesses.
    """
    return made[:10] + bytes([made[10] & ~(1 << 5)]) + made[11:]


def _corners_text(
    box: Sequence[int], pointer: int, lower: Sequence[int], upper: Sequence[int]
) -> str:
    if not (lower or upper):
        return f" box {tuple(box)} at {pointer:#x}"
    return f" pixels {tuple(box)} at {pointer:#x} from {tuple(lower)} to {tuple(upper)}"


def _encoded(driver: Driver, device: int, form: Geometry, pointer: int, what: str) -> bytes:
    storage = ctypes.create_string_buffer(TENSORMAP + ALIGN)
    start = -ctypes.addressof(storage) % ALIGN
    place = ctypes.addressof(storage) + start
    after = [
        (ARRAYS[value.type] * len(value.values))(*value.values)
        if isinstance(value, Numbers)
        else value
        for value in form.after
    ]
    with driver.use_context(driver.context(device)):  # some drivers need a context for it
        driver.call(
            form.function, place, *form.before, pointer, *after, why=f"tensor map of {what}"
        )
    return storage.raw[start : start + TENSORMAP]


def _reversed(kind: str, values: Sequence[int]) -> Numbers:
    return Numbers(kind, tuple(reversed(values)))
