"""What the compiler is expected to make of each configuration: the columns of `expected.json`.

A configuration in the strong form multiplies with the best instruction of the architecture, reads
its operands 16 bytes at a time and keeps a product in flight. A weaker one has its reason below.
`python -m convref_triton.expected` compiles everything and writes the file; tests hold what the
compiler makes today to it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import aot, classes
from .classes import Specimen
from .inspection import Inspection, inspect

FILE = Path(__file__).parent / "expected.json"
ARCHS = ("sm_90", "sm_80", "gfx942")
SHARED = {"sm_90": 227 * 1024, "sm_80": 163 * 1024, "gfx942": 64 * 1024}  # bytes of a block
BEST = {"sm_90": "wgmma", "sm_80": "mma.sync", "gfx942": "mfma"}
DENSE = ("gather", "flat", "dual", "tma", "wgrad")  # kernels that are matrix products

Columns = Mapping[str, Any]


def columns(found: Inspection) -> Columns:
    """Return the columns of a configuration."""
    return {
        "mma": sorted(found.mma),
        "operands": found.operands,
        "loads": sorted(found.loop_loads),
        "wait": found.wait,
        "loop": found.loop,
        "registers": found.registers,
        "shared": found.shared,
    }


def weaknesses(specimen: Specimen, found: Inspection) -> list[str]:
    """Return in what a matrix product falls short of the strong form, and why, each as a text."""
    if specimen.launch.kernel.__name__ not in DENSE:
        return []
    weak = []
    if not any(BEST[found.arch] in name for name in found.mma):
        weak.append("instruction")
    if not all(name.endswith(" 16") or "TMA" in name for name in found.loop_loads):
        weak.append("loads")
    if found.arch == "sm_90" and not weak and (found.operands != "SS" or not found.wait):
        weak.append("pipeline")
    return [f"{name}: {reason(specimen, name, found)}" for name in weak]


def reason(specimen: Specimen, weak: str, found: Inspection) -> str:
    """Return the reason of a weakness, empty if there is none."""
    known = (text for what, text, holds in REASONS if what == weak and holds(specimen))
    ptxas = f"ptxas serialises the products {found.serialised}" if found.serialised else ""
    return next(known, ptxas if weak == "pipeline" else "")


def key(specimen: Specimen, arch: str) -> str:
    """Return the row of a specimen on an architecture."""
    kernel = specimen.launch.kernel.__name__
    chosen = "" if specimen.choice is None else f" {specimen.choice}"
    return f"{specimen.name}{chosen} {kernel} {arch}"


def _number(specimen: Specimen) -> str:
    return specimen.name.split()[-1]


def _size(specimen: Specimen) -> str:
    return specimen.name.split()[-2]


def _constant(name: str) -> Callable[[Specimen], Any]:
    return lambda specimen: specimen.launch.constants.get(name)


# (weakness, its reason, where it holds); the first that holds is given.
REASONS: tuple[tuple[str, str, Callable[[Specimen], bool]], ...] = (
    ("instruction", "float32 as it is has no matrix instruction", lambda s: _number(s) == "f32"),
    (
        "instruction",
        "a warp group multiplies 64 rows or none",
        lambda s: min(_constant("BM")(s), _constant("BN")(s)) < 64,
    ),
    ("loads", "odd sizes share no vector", lambda s: _size(s) in ("odd", "ones")),
    ("loads", "a row for shorter vectors", lambda s: _constant("RUN")(s) in (1, 2, 4)),
    ("loads", "a group of few channels is a short vector", lambda s: "grouped" in s.name),
    ("loads", "a group of one channel has no vector", lambda s: "depthwise" in s.name),
    (
        "loads",
        "32-bit operands are multiplied along the sum only, and lie across it",
        lambda s: _number(s).startswith("tf32") and ("dgrad" in s.name or "wgrad" in s.name),
    ),
    ("pipeline", "two products go into one sum", lambda s: s.launch.kernel.__name__ == "dual"),
    ("pipeline", "the parts are split in registers", lambda s: _number(s) == "tf32x3"),
    (
        "pipeline",
        "two sums of three products, of which the compiler awaits all",
        lambda s: s.launch.kernel.__name__ == "dual",
    ),
)


def inspected(
    specimens: Iterable[Specimen], arch: str, jobs: int | None = None
) -> list[tuple[Specimen, Inspection | aot.CompileError]]:
    """Return what the compiler makes of each specimen, or its refusal."""
    wanted = list(specimens)
    compiled = aot.compile_all([specimen.specialisation for specimen in wanted], arch, jobs)
    distinct = {specimen.specialisation.key: made for specimen, made in zip(wanted, compiled)}
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as threads:
        found = dict(zip(distinct, threads.map(_inspect, distinct.values())))
    return [(specimen, found[specimen.specialisation.key]) for specimen in wanted]


def _inspect(made: aot.Compiled | aot.CompileError) -> Inspection | aot.CompileError:
    return made if isinstance(made, aot.CompileError) else inspect(made)


def read() -> dict[str, Columns]:
    """Return the rows of the file."""
    rows: dict[str, Columns] = json.loads(FILE.read_text("utf-8"))
    return rows


def main(archs: list[str]) -> int:
    """Write the rows of every configuration; exit status 1 if one does not compile or spills."""
    rows, bad = dict(read()) if FILE.exists() else {}, 0
    for arch in archs or ARCHS:
        specimens = classes.specimens(classes.lines(), every=True, arch=arch)
        for specimen, found in inspected(specimens, arch):
            name = key(specimen, arch)
            if isinstance(found, aot.CompileError) or found.spills:
                print(name, found if isinstance(found, Exception) else f"{found.spills} spills")
                bad += 1
            else:
                rows[name] = columns(found)
    FILE.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n", "utf-8")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
