"""Convolutions on the GPU: the launches of a call, as data.

cuda.py passes them to the CUDA driver or to the PTX interpreter.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from convref.case import Call

from ..geometry import ArrayLayout, ConvLaunch, conv_launches

THREADS = 128
TILE = 64  # rows and columns of a block of mma.mojo
VECTOR = 8  # elements of a copy of mma.mojo

PointerArgument = tuple[str, int]
NULL: PointerArgument = "", 0


class GpuLaunch(NamedTuple):
    """A kernel, its grid, its pointers as (role, offset in elements), and its struct.

    The kernel writes the first `results` pointers.
    """

    kernel: str
    grid: tuple[int, int]
    pointers: tuple[PointerArgument, ...]
    geometry: Any
    results: int = 1

    @property
    def written(self) -> frozenset[str]:
        return frozenset(role for role, _ in self.pointers[: self.results])


# The fields of the geometry that each kind of kernel has pointers of, in order.
POINTERS = {
    "gather": ("small", "big", "filter", "bias", "second_big", "second_filter"),
    "gather_mma": ("small", "big", "filter", "bias"),
    "correlate": ("filter", "big", "small"),
    "bgrad": ("bias", "small"),
}


def launches(
    call: Call, arrays: dict[str, ArrayLayout], kinds: Sequence[str]
) -> Iterator[GpuLaunch]:
    """Yield the launches of a call on arrays by role, with "direct", "mma" or "wgmma" kernels."""
    for launch in conv_launches("gpu", call, arrays):
        launch.geometry.bias.given = launch.kind == "gather" and "bias" in launch.arrays
        name, grid = _kernel(call, launch, kinds)
        fields = POINTERS["gather_mma" if "gather" in name and "mma" in name else launch.kind]
        used = (launch.arrays.get(field) for field in fields)
        pointers = tuple(NULL if one is None else (one[0].role, one[1]) for one in used)
        yield GpuLaunch(name, grid, pointers, launch.geometry)


def _kernel(call: Call, launch: ConvLaunch, kinds: Sequence[str]) -> tuple[str, tuple[int, int]]:
    g, kind = launch.geometry, launch.kind
    matrix = call.dtype == "bf16" and "mma" in kinds
    columns = g.channels * g.z.taps * g.y.taps * g.x.taps  # of a filter
    if kind == "bgrad":
        return f"bgrad_{call.dtype}", (call.conv.k, 1)
    if matrix and kind == "correlate":
        wide = _image_admits(launch, "small", g.results) and _image_admits(
            launch, "big", g.channels
        )
        return f"correlate_mma_v{VECTOR if wide else 1}", _tiles(columns, g)
    if matrix and kind == "gather" and g.pairs == 1:
        vectors = _vectors(launch)
        wide = "wgmma" in kinds and vectors == "v8f8"
        return "gather_wgmma" if wide else f"gather_mma_{vectors}", _tiles(launch.windows, g)
    threads = g.groups * g.results * (launch.windows if kind == "gather" else columns)
    return f"{kind}_{call.dtype}", (-(-threads // THREADS), 1)


def _tiles(rows: int, g: Any) -> tuple[int, int]:
    return -(-rows // TILE), g.groups * -(-g.results // TILE)


def _vectors(launch: ConvLaunch) -> str:
    """Return the widths of the copies of both operands, as in the name of a kernel."""
    g, (w, start) = launch.geometry, launch.arrays["filter"]
    f, big = g.filter, _image_admits(launch, "big", g.channels)
    factor = _admits(w, f.channel, (f.group, f.result, f.z, f.y, f.x, start, g.channels))
    return "v8f8" if big and factor else "v8f1" if big else "v1f1"


def _admits(array: ArrayLayout, inner: int, others: Sequence[int]) -> bool:
    return array.aligned and inner == 1 and all(n % VECTOR == 0 for n in others)


def _image_admits(launch: ConvLaunch, field: str, channels: int) -> bool:
    if field not in launch.arrays:
        return False
    array, strides = launch.arrays[field][0], getattr(launch.geometry, field)
    others = strides.n, strides.z, strides.y, strides.x, channels
    return _admits(array, strides.c, others)
