"""The property list: many sizes of few specializations, each kernel compared with the oracle.

A GPU compiles for each filter, stride, dilation, type and divisibility by 16; sizes are free.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any, NamedTuple

from convref import dispatch
from convref.arrays import like, to_torch
from convref.case import Call, Case, parse

from .. import options
from ..records import Record

CHUNK = 40  # lines between checks of the time
LIMIT_S = 20.0  # for one line, its compilation included
MEMORY = 32 << 30  # bytes: the libraries of CUDA alone fill the limit of a CPU
PASSES = ("fprop", "dgrad", "wgrad")
FILLS = ("int", "normal", "positive", "int", "nan", "ramp")


class Geometry(NamedTuple):
    """The part of a problem that a kernel is compiled for: filter, stride ..., rank, groups."""

    text: str
    rank: int = 2
    groups: int = 1  # 0: as many as channels


GEOMETRIES = (
    Geometry("f3x3_p1"),
    Geometry("f1x1"),
    Geometry("f3x3_s2_p1"),
    Geometry("f5x3_s1x2_p2x1_d1x2"),
    Geometry("f7x7_s2_p3"),
    Geometry("f3x3_p1", groups=4),
    Geometry("f3x3_p1", groups=0),
    Geometry("f9_p8_d2", rank=1),
)
# (n, c, k, spatial extents, the first ones used): all divisible by 16, then anything.
ALIGNED = ((1, 16, 16, (16, 16)), (2, 32, 48, (16, 32)), (1, 128, 64, (32, 16)))
RAGGED = ((1, 4, 4, (7, 7)), (3, 12, 20, (9, 13)), (2, 8, 68, (31, 5)), (1, 24, 40, (14, 11)))
TYPES = {"bf16": GEOMETRIES, "fp32": GEOMETRIES, "fp16": GEOMETRIES[:3], "tf32": GEOMETRIES[:3]}


# Not in the classes above: tangents, both directions, long sums, columns.
OTHERS = (
    "conv.bgrad:n3c12k20_i9x13_f3x3_p1",
    "conv.jvp:n2c24k40_i9x13_f3x3_p1",
    "conv.double_backward:n2c24k40_i9x13_f3x3_p1",
    "conv.fprop:n2c24k40_i9x7_f3x3_s2_p1:t=1",
    "conv.fprop:n1c1280k320_i4x4_f3x3_p1",
    "unfold.fprop:n2c12_i9x13_f3x3_p1",
    "fold.fprop:n2c12_i9x13_f3x3_s2_p1",
)
ANY = ("bf16", "fp32")


def others() -> tuple[str, ...]:
    return tuple(f"{line}:{options.keys(dtype, 'cuda')}" for dtype in ANY for line in OTHERS)


def lines() -> tuple[str, ...]:
    """Return the cases of the list, bf16 first, the others last."""
    fills, found = cycle(FILLS), []
    for dtype, geometries in TYPES.items():
        for geometry in geometries:
            for pass_ in PASSES:
                for size in (*ALIGNED, *RAGGED):
                    call = _call(pass_, dtype, geometry, *size)
                    found.append(str(Case(call, next(fills), len(found))))
    found += (str(Case(parse(line).call, next(fills), 0)) for line in others())
    return tuple(found)


def _call(
    pass_: str, dtype: str, geometry: Geometry, n: int, c: int, k: int, extents: tuple[int, ...]
) -> Call:
    groups = geometry.groups or c
    k = c if groups == c else k
    sizes = "x".join(map(str, extents[: geometry.rank]))
    keys = options.keys(dtype, "cuda")
    if geometry.rank != 2:
        keys = keys.replace("mem=nhwc:", "")
    shape = f"n{n}c{c}k{k}" + (f"g{groups}" if groups > 1 else "")
    return parse(f"conv.{pass_}:{shape}_i{sizes}_{geometry.text}:{keys}").call


def check(step: Any, name: str, where: str = "cuda") -> Iterator[Record]:
    """Run the list on a backend, in another process; yield findings worse than a refusal.

    The step gets a record per chunk; chunks that it has already are not run again.
    """
    from convref.conformance.workers.engine import Engine, Limits

    mine = [row for row in step.before if row.get("backend") == name and "chunk" in row]
    done = {row["chunk"]: row["findings"] for row in mine}
    target = f"{__name__}:on_{where}.{name}"
    with Engine(target, limits=Limits(LIMIT_S, MEMORY), method="spawn") as engine:
        every = lines()
        for chunk in range(-(-len(every) // CHUNK)):
            if chunk in done:
                yield from done[chunk]  # report findings of earlier runs again
                continue
            counts, findings = _run(engine, every[chunk * CHUNK : (chunk + 1) * CHUNK])
            step.add("properties", backend=name, chunk=chunk, counts=counts, findings=findings)
            yield from findings
            step.check_time()


def _run(engine: Any, part: tuple[str, ...]) -> tuple[dict[str, int], list[Record]]:
    from convref.conformance.examine import HARMLESS
    from convref.conformance.workers.worker import Report, Task

    counts: dict[str, int] = {}
    findings: list[Record] = []

    def receive(task: Task, report: Report) -> None:
        for key, count in report.counts.items():
            counts[key[3]] = counts.get(key[3], 0) + count
        found = (one.as_dict() for one in report.findings if one.verdict not in HARMLESS)
        findings.extend(found)

    engine.run(iter([Task(lines=part)]), receive)
    return counts, findings


class OnCuda:
    """A backend whose operands are copied to the CUDA device first, for the court."""

    def __init__(self, inner: Any, where: str = "cuda") -> None:
        self.inner, self.where, self.name = inner, where, inner.name

    def _there(self, call: Call) -> Call:
        return replace(call, specs=tuple(replace(one, device=self.where) for one in call.specs))

    def supports(self, call: Call) -> str | None:
        return self.inner.supports(self._there(call))

    def numerics(self, call: Call) -> Any:
        return self.inner.numerics(self._there(call))

    def fingerprint(self) -> dict[str, str]:
        return self.inner.fingerprint()

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results as NumPy arrays; a lost device ends this process."""
        template = next(one for one in operands if one is not None)
        try:
            given = [None if one is None else self._copy(to_torch(one)) for one in operands]
            results = self.inner.run(self._there(call), *given)
            results = tuple(None if one is None else one.cpu() for one in results)
        except RuntimeError:
            from .cuda import is_lost

            if self.where == "cuda" and is_lost():
                os._exit(70)  # every later call would fail too
            raise
        return tuple(None if one is None else like(one, template) for one in results)

    def _copy(self, tensor: Any) -> Any:
        """Return a copy on the device with the same strides, NaN in the gaps and around."""
        import torch

        span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()) if n)
        poison = float("nan") if tensor.is_floating_point() else 0
        guard = 64  # elements, so that alignment stays
        buffer = torch.full((span + 2 * guard,), poison, dtype=tensor.dtype, device=self.where)
        view = buffer.as_strided(tensor.shape, tensor.stride(), guard)
        once = tuple(slice(None) if step else slice(0, 1) for step in tensor.stride())
        view[once].copy_(tensor[once])  # elements of an expanded axis are one
        return view


class _Registered:
    def __init__(self, where: str) -> None:
        self._where = where

    def __getattr__(self, name: str) -> OnCuda:
        if name.startswith("__"):
            raise AttributeError(name)
        backend = dispatch.load(name)
        return OnCuda(getattr(backend, "raw", backend), self._where)


# "convref_bench.gpu.properties:on_cuda.NAME" names a backend
on_cuda, on_cpu = _Registered("cuda"), _Registered("cpu")
