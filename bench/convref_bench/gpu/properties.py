"""The property list: many sizes of few specializations, each kernel compared with the oracle.

A GPU compiles for each filter, stride, dilation, type and divisibility by 16; sizes are free.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from convref.case import Call, Case, parse

from .. import options
from ..records import Record

CHUNK = 40  # lines between checks of the time
LIMIT_S = 20.0  # for one line, its compilation included
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
KINDS = {
    ("bf16", "ieee"): GEOMETRIES,
    ("f32", "ieee"): GEOMETRIES,
    ("f16", "ieee"): GEOMETRIES[:3],
    ("f32", "tf32"): GEOMETRIES[:3],
}


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


def other_lines() -> tuple[str, ...]:
    kinds = options.keys("bf16,f32", device="cuda")
    return tuple(f"{line}:{keys}" for keys in kinds for line in OTHERS)


def lines() -> tuple[str, ...]:
    """Return the cases of the list, bf16 first, the others last."""
    fills, found = cycle(FILLS), []
    for kind, geometries in KINDS.items():
        (keys,) = options.keys(*kind, "cuda")
        for geometry in geometries:
            for pass_ in PASSES:
                for size in (*ALIGNED, *RAGGED):
                    call = _call(pass_, keys, geometry, *size)
                    found.append(str(Case(call, next(fills), len(found))))
    found += (str(Case(parse(line).call, next(fills), 0)) for line in other_lines())
    return tuple(found)


def _call(
    pass_: str, keys: str, geometry: Geometry, n: int, c: int, k: int, extents: tuple[int, ...]
) -> Call:
    groups = geometry.groups or c
    k = c if groups == c else k
    sizes = "x".join(map(str, extents[: geometry.rank]))
    if geometry.rank != 2:
        keys = keys.replace("mem=nhwc:", "")
    shape = f"n{n}c{c}k{k}" + (f"g{groups}" if groups > 1 else "")
    return parse(f"conv.{pass_}:{shape}_i{sizes}_{geometry.text}:{keys}").call


def check(step: Any, name: str, where: str = "cuda") -> Iterator[Record]:
    """Run the list on a backend, in another process; yield findings worse than a refusal.

    The step gets a record per chunk; chunks that it has already are not run again.
    """
    from convref.conformance.workers.device import MEMORY
    from convref.conformance.workers.engine import Engine, Limits

    mine = [row for row in step.before if row.get("backend") == name and "chunk" in row]
    done = {row["chunk"]: row["findings"] for row in mine}
    with Engine(name, limits=Limits(LIMIT_S, MEMORY[where]), method="spawn") as engine:
        every = [str(parse(line).on(where)) for line in lines()]
        for chunk in range(-(-len(every) // CHUNK)):
            if chunk in done:
                yield from done[chunk]  # report findings of earlier runs again
                continue
            counts, findings = _run(engine, every[chunk * CHUNK : (chunk + 1) * CHUNK])
            step.add("properties", backend=name, chunk=chunk, counts=counts, findings=findings)
            yield from findings
            step.check_time()


def _run(engine: Any, part: Sequence[str]) -> tuple[dict[str, int], list[Record]]:
    from convref.conformance.examine import HARMLESS
    from convref.conformance.workers.worker import ChunkReport, Task

    counts: dict[str, int] = {}
    findings: list[Record] = []

    def receive(task: Task, report: ChunkReport) -> None:
        for key, count in report.counts.items():
            counts[key[3]] = counts.get(key[3], 0) + count
        found = (one.as_dict() for one in report.findings if one.verdict not in HARMLESS)
        findings.extend(found)

    engine.run(iter([Task(lines=tuple(part))]), receive)
    return counts, findings
