"""What the compiler is expected to make of each configuration, in a file for each architecture.

A configuration in the strong form multiplies with the best instruction of the architecture, reads
its operands 16 bytes at a time, a warp at least 64 bytes of a row, and keeps a product in flight.
A weaker one has its reason below. `python -m convref_triton.compile.expected` compiles all and
writes the files; tests hold what the compiler makes today to them.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from ..common.geometry import ITEMSIZE
from ..plan import archs
from . import aot, classes
from .classes import Specimen
from .inspection import Inspection, inspect

FOLDER = Path(__file__).parents[3] / "tests" / "triton" / "expected"
ARCHS = ("sm_90", "sm_80", "gfx942")
BEST = {"sm_90": "wgmma", "sm_80": "mma.sync", "gfx942": "mfma"}
GLUON = ("gluon_fprop", "gluon_halo", "gluon_wgrad", "gluon_halo_wgrad")
DENSE = ("gather", "flat", "dual", "tma", "wgrad", *GLUON)  # kernels that are matrix products


class Columns(NamedTuple):
    """What is expected of a configuration, as `Inspection` names it.

    `loop` is a budget; in Gluon it is the longest of the loops that groups of warps run. There a
    thread's `registers` are what shares are made of, so that they are told.
    """

    mma: str
    operands: str
    loads: str
    wait: int | None
    shared: int
    loop: int | None
    registers: int | None = None


def columns(found: Inspection) -> Columns:
    """Return the columns of a configuration."""
    mma, loads = "+".join(sorted(found.mma)), "+".join(sorted(found.loop_loads))
    shared = found.operands, loads, found.wait, found.shared
    if found.kernel in GLUON:
        return Columns(mma, *shared, max(found.steps), found.registers)
    return Columns(mma, *shared, found.loop)


def weaknesses(specimen: Specimen, found: Inspection) -> list[str]:
    """Return in what a matrix product falls short of the strong form, and why, each as a text."""
    if specimen.launch.kernel.__name__ not in DENSE:
        return []
    weak = []
    if not any(BEST[found.arch] in name for name in found.mma):
        weak.append("instruction")
    if not all(name.endswith(" 16") or "TMA" in name for name in found.loop_loads):
        weak.append("loads")
    if any(access.proven and not access.coalesced for access in found.accesses):
        weak.append("rows")
    if found.arch == "sm_90" and not weak and (found.operands != "SS" or not found.wait):
        weak.append("pipeline")
    return [f"{name}: {reason(specimen, name, found)}" for name in weak]


def reason(specimen: Specimen, weak: str, found: Inspection) -> str:
    """Return the reason of a weakness, empty if there is none."""
    known = (text for what, text, holds in REASONS if what == weak and holds(specimen))
    ptxas = f"ptxas serialises the products {found.serialised}" if found.serialised else ""
    return next(known, ptxas if weak == "pipeline" else "")


def configuration(specimen: Specimen) -> str:
    """Return the choice of a specimen and the kernel that it launches: what a row is of."""
    return f"{specimen.choice}: {specimen.launch.kernel.__name__}"


def _number(specimen: Specimen) -> str:
    return specimen.name.split()[-1]


def _size(specimen: Specimen) -> str:
    return specimen.name.split()[-2]


def _least(specimen: Specimen) -> int:
    """Return the bytes of the smaller operand's tile."""
    size = ITEMSIZE.get(_number(specimen), 4)
    least: int = min(_constant("BM")(specimen), _constant("BN")(specimen))
    return least * _constant("BK")(specimen) * size


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
    (
        "loads",
        "16 bytes a thread are more than a tile",
        lambda s: _least(s) < 16 * s.launch.warps * (64 if s.arch.startswith("gfx") else 32),
    ),
    ("loads", "a group of few channels is a short vector", lambda s: "grouped" in s.name),
    ("loads", "a group of one channel has no vector", lambda s: "depthwise" in s.name),
    (
        "loads",
        "32-bit operands are multiplied along the sum only, and lie across it",
        lambda s: _number(s).startswith("tf32") and ("dgrad" in s.name or "wgrad" in s.name),
    ),
    (
        "pipeline",
        "one side is read once for several taps, while the other group multiplies",
        lambda s: s.launch.kernel.__name__ == "gluon_halo_wgrad",
    ),
    ("pipeline", "two products go into one sum", lambda s: s.launch.kernel.__name__ == "dual"),
    ("pipeline", "the parts are split in registers", lambda s: _number(s) == "tf32x3"),
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


def faults(specimen: Specimen, found: Inspection | aot.CompileError) -> list[str]:
    """Return what no configuration may have, each as a text."""
    if isinstance(found, aot.CompileError):
        return [str(found)]
    wrong = [f"{found.spills} accesses to local memory"] if found.spills else []
    if found.shared > archs.shared(specimen.arch):
        wrong.append(f"{found.shared} bytes of shared memory")
    weak = weaknesses(specimen, found)
    return wrong + [f"{text}no reason is known" for text in weak if text.endswith(": ")]


Rows = dict[str, dict[Columns, list[str]]]  # by configuration and columns: names of specimens


def read(arch: str) -> dict[tuple[str, str], set[Columns]]:
    """Return what the file of an architecture expects, by configuration and specimen's name.

    A plan may launch a kernel more than once: a set has the columns of each.
    """
    found = defaultdict(set)
    rows = json.loads((FOLDER / f"{arch}.json").read_text("utf-8"))
    for configured, texts in rows.items():
        for text, *names in texts:
            for name in itertools.chain.from_iterable(map(unfold, names)):
                found[configured, name].add(Columns(*text))
    return dict(found)


def write(arch: str, rows: Rows) -> None:
    """Write the file of an architecture, a line for what differs."""
    lines = []
    for configured, columns_of in rows.items():
        texts = ",\n".join(json.dumps([told(found), *fold(n)]) for found, n in columns_of.items())
        lines.append(f"{json.dumps(configured)}: [\n{texts}\n]")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{arch}.json").write_text("{" + ",\n".join(lines) + "}\n", "utf-8")


def told(found: Columns) -> tuple[Any, ...]:
    """Return the columns without a last one that says nothing."""
    return found if found.registers is not None else found[:-1]


def fold(names: Iterable[str]) -> list[str]:
    """Return names of the form "shape size number" with those that differ in one word as one.

    >>> fold(["jvp odd f16", "jvp odd bf16", "depthwise jvp odd f16"])
    ['jvp odd f16|bf16', 'depthwise jvp odd f16']
    """
    words = [tuple(name.rsplit(" ", 2)) for name in dict.fromkeys(names)]
    for place in (2, 1, 0):
        alike: dict[tuple[str, ...], list[str]] = {}
        for found in words:
            alike.setdefault(found[:place] + found[place + 1 :], []).append(found[place])
        words = [(*rest[:place], "|".join(own), *rest[place:]) for rest, own in alike.items()]
    return [" ".join(found) for found in words]


def unfold(text: str) -> Iterator[str]:
    """Yield the names that `fold` made one."""
    for words in itertools.product(*(part.split("|") for part in text.rsplit(" ", 2))):
        yield " ".join(words)


def specimens(arch: str) -> Iterator[Specimen]:
    """Yield all that the file of an architecture has rows for."""
    yield from classes.specimens(classes.lines(), every=True, arch=arch)
    yield from classes.raced(arch=arch)


def main(wanted: list[str]) -> int:
    """Write the rows of every configuration; exit status 1 if one has faults."""
    bad = 0
    for arch in wanted or ARCHS:
        rows: Rows = defaultdict(lambda: defaultdict(list))
        for specimen, found in inspected(specimens(arch), arch):
            wrong = faults(specimen, found)
            if wrong:
                print(specimen.name, configuration(specimen), arch, *wrong)
                bad += 1
            if not isinstance(found, aot.CompileError):
                rows[configuration(specimen)][columns(found)].append(specimen.name)
        write(arch, rows)
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
