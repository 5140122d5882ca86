"""Convolutions on the CPU: the struct of each launch, and the kernels that take it."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from convref.case import Call

from ..geometry import ArrayLayout, conv_launches
from ..library import STRUCTS, plan, run, scratch
from ..strides import Strides, elements
from ..structs import struct
from .norm import channel_sums

Conv = struct("cpu", "Conv")

# Bytes of a packed filter below which one thread has packed it before a second one has started.
PACKED_ALONE = 1 << 17


class Kernels(NamedTuple):
    """The kernel of a launch, and those that run before and after it if it has a workspace."""

    main: str
    pack: str = ""
    merge: str = ""


# By kind of launch, and whether the convolution is depthwise.
KERNELS = {
    ("gather", False): Kernels("gather", pack="pack_filter"),
    ("gather", True): Kernels("depthwise", pack="pack_depthwise"),
    ("correlate", False): Kernels("correlate", merge="merge"),
    ("correlate", True): Kernels("depthwise_wgrad"),
}


class Planned(NamedTuple):
    """A launch: its kernels, its planned struct, and the role and first byte of each field."""

    kernels: Kernels | None  # None for a bgrad
    struct: Any
    addresses: dict[str, tuple[str, int]]


@lru_cache(STRUCTS)
def _launches(
    call: Call, memory: tuple[tuple[str, Strides, Strides, int], ...], threads: int
) -> tuple[Planned, ...]:
    """Return the launches of a call on arrays of a role, shape, strides in bytes and item size."""
    layouts = {
        role: ArrayLayout(role, shape, elements(shape, strides, size))
        for role, shape, strides, size in memory
    }
    sizes = {role: size for role, _, _, size in memory}
    problem, found = call.conv, []
    depthwise = problem.groups > 1 and problem.c == problem.k == problem.groups
    for kind, geometry, arrays, windows in conv_launches("cpu", call, layouts):
        p = Conv(geometry=geometry, min_units=2 * threads)
        kernels = KERNELS.get((kind, depthwise))
        if kernels and windows:
            plan(kernels.main, call.dtype, p)
        places = {name: (a.role, start * sizes[a.role]) for name, (a, start) in arrays.items()}
        found.append(Planned(kernels, p, places))
    return tuple(found)


def compute(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    arrays = {role: a for role, a in (given | outputs).items() if a is not None}
    memory = tuple([(role, a.shape, a.strides, a.itemsize) for role, a in arrays.items()])
    for kernels, template, addresses in _launches(call, memory, threads):
        if kernels is None:
            b, dy = (arrays[addresses[field][0]] for field in ("bias", "small"))
            with np.errstate(all="ignore"):  # sums may overflow when they are rounded
                b[...] = channel_sums(call.dtype, dy, threads)
        elif template.units == 0:  # a filter gradient without operands, or of no windows
            arrays[addresses["filter"][0]][...] = 0
        else:
            p = Conv.from_buffer_copy(template)
            for field, (role, start) in addresses.items():
                getattr(p.geometry, field).data = arrays[role].ctypes.data + start
            _run(kernels, call.dtype, p, threads)


def _run(kernels: Kernels, dtype: str, p: Any, threads: int) -> None:
    p.workspace, _owner = scratch(p.workspace_bytes, "workspace")
    if kernels.pack and p.workspace_bytes:
        packers = threads if p.workspace_bytes > PACKED_ALONE else 1
        run(kernels.pack, dtype, p, p.workspace_units, packers)
    run(kernels.main, dtype, p, p.units, threads, p.scratch_bytes)
    if kernels.merge and p.workspace_bytes:
        run(kernels.merge, dtype, p, p.workspace_units, threads)
