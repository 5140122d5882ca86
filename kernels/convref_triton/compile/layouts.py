"""Which elements of a tensor the threads of a warp access, read from Triton's ttgir."""

import re
from collections.abc import Sequence
from typing import NamedTuple

BYTES = {
    **{f"i{bits}": bits // 8 for bits in (8, 16, 32, 64)},
    **{f"f{bits}": bits // 8 for bits in (16, 32, 64)},
    "bf16": 2,
    "i1": 1,
    "f8E4M3FN": 1,
    "f8E5M2": 1,
}


class Access(NamedTuple):
    op: str  # "load", "cp.async" or "store"
    shape: tuple[int, ...]
    dtype: str
    axis: int  # the axis of neighbouring threads, which should be contiguous in memory
    vector: int  # contiguous bytes of a thread along it; a mask may make its loads narrower
    row: int  # contiguous bytes of a warp along it

    @property
    def proven(self) -> bool:
        """Return whether the compiler proved that memory is contiguous along the axis."""
        return self.vector > BYTES[self.dtype]

    @property
    def coalesced(self) -> bool:
        """Return whether a warp accesses whole rows, or at least 64 bytes of each."""
        whole = self.shape[self.axis] * BYTES[self.dtype]
        return self.proven and self.row >= min(64, whole)

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.shape))
        doubt = " (short rows)" if self.proven else " (neighbours unproven)"
        doubt = "" if self.coalesced else doubt
        return f"{self.op} {sizes} {self.dtype}: {self.row} B by {self.vector} B{doubt}"


OPS = {"tt.load": "load", "ttg.async_copy_global_to_local": "cp.async", "tt.store": "store"}
ACCESS = re.compile(
    rf"({'|'.join(map(re.escape, OPS))}) .*? : tensor<((?:\d+x)+)!tt\.ptr<(\w+)>, ([^\n]*)"
)
ALIAS = re.compile(r"^(#\w+) = (#\S+<.*>)\s*$", re.M)


def accesses(ttgir: str) -> tuple[Access, ...]:
    """Return the accesses of a module, each kind once, without those of unknown layouts."""
    aliases = dict(ALIAS.findall(ttgir))
    found: dict[Access, None] = {}
    for op, sizes, dtype, rest in ACCESS.findall(ttgir):
        shape = tuple(map(int, sizes.rstrip("x").split("x")))
        run = _run(_resolved(rest, aliases), shape)
        if run is not None and dtype in BYTES:
            axis, vector, row = run
            size = BYTES[dtype]
            found[Access(OPS[op], shape, dtype, axis, size * vector, size * row)] = None
    return tuple(found)


def _resolved(text: str, aliases: dict[str, str]) -> str:
    """Return the layout at the head of `text`, with names replaced by their definitions."""
    if head := re.match(r"#\w+(?![\w.])", text):
        return aliases.get(head[0], "")
    parent = re.match(r"#ttg\.slice<\{dim = (\d+), parent = (#\w+)\}>", text)
    if parent and parent[2] in aliases:
        return f"slice {parent[1]} of {aliases[parent[2]]}"
    return ""


def _run(layout: str, shape: Sequence[int]) -> tuple[int, int, int] | None:
    """Return (axis, elements of a thread, elements of a warp) one after the other, or None.

    >>> _run("#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], order = [1, 0]}>",
    ...      (128, 64))
    (1, 8, 64)
    """
    cut = re.match(r"slice (\d+) of ", layout)
    if "#ttg.blocked" in layout:
        each, threads, order = (
            _numbers(layout, name) for name in ("sizePerThread", "threadsPerWarp", "order")
        )
        if cut:
            gone = int(cut[1])
            each, threads = ([*v[:gone], *v[gone + 1 :]] for v in (each, threads))
            order = [axis - (axis > gone) for axis in order if axis != gone]
        axis = order[0]
        thread = min(each[axis], shape[axis])
        return axis, thread, min(each[axis] * threads[axis], shape[axis])
    if "#ttg.nvidia_mma" in layout and not cut:
        axis = len(shape) - 1
        return axis, min(2, shape[axis]), min(8, shape[axis])  # a quad of threads, two each
    if "#ttg.linear" in layout and not cut:
        return _linear(layout, shape)
    return None


def _numbers(layout: str, name: str) -> list[int]:
    found = re.search(rf"{name} = \[([\d, ]*)\]", layout)
    assert found is not None, f"{name} is missing in {layout}"
    return [int(number) for number in found[1].split(",")]


def _linear(layout: str, shape: Sequence[int]) -> tuple[int, int, int]:
    """Follow the basis vectors of registers, then of lanes, as long as they double one axis."""
    parts = dict(re.findall(r"(register|lane) = \[((?:\[[\d, ]*\](?:, )?)*)\]", layout))
    registers, lanes = (
        [[int(n) for n in basis.split(",")] for basis in re.findall(r"\[([\d, ]+)\]", parts[name])]
        for name in ("register", "lane")
    )
    first = next((basis for basis in (*registers, *lanes) if sum(basis) == 1), None)
    axis = first.index(1) if first else len(shape) - 1
    thread = _doubled(registers, axis, 1)
    return axis, thread, _doubled(lanes, axis, thread)


def _doubled(bases: Sequence[Sequence[int]], axis: int, start: int) -> int:
    """Return `start`, doubled for each basis vector that continues the range covered so far."""
    covered = start
    for basis in bases:
        if basis[axis] == covered == sum(basis):
            covered *= 2
    return covered
