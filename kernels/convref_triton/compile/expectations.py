"""Invariants of the code that the compiler generates for each configuration.

A matrix product has the strong form: the best matrix instruction of the architecture, operands in
shared memory, 16-byte loads, as many stages in shared memory as the configuration asks for and, on
Hopper, a product in flight at the wait. Its kernel's `Expectation` and `WEAKER` say which
configurations fall short, in what, and why. No kernel may spill, exceed shared memory, read rows
that are not coalesced or exceed its budget of instructions in the hot loop.

`python -m convref_triton.compile.expectations sm_90` compiles every configuration and prints those
that fall short.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from convref.case.call import MATHS

from ..plan import archs
from ..plan.kernels import KERNELS
from ..plan.launch import Descriptor
from ..plan.spec import NOTHING, Expectation
from . import aot, classes, layouts
from .classes import Specimen
from .inspection import Inspection, inspect_all

LANES = {"sm_90": 32, "sm_80": 32, "gfx942": 64}
BEST = {"sm_90": "wgmma", "sm_80": "mma.sync", "gfx942": "mfma"}
VECTOR = 16  # bytes of the widest load
ASYNC = 4  # bytes of the narrowest cp.async
MARGIN = 2048  # bytes of shared memory besides the stages: barriers, a reduction
DIVISORS = {"by_16": 16, "by_8": 8, "odd": 1, "ones": 1, "wide": 16}  # of channels, by size
NEIGHBOURS = {"": 16, "grouped": 4, "depthwise": 1}  # channels of a group that are contiguous
TOGETHER = 64  # kernels that one process disassembles
NUMBERS = ("16", "f32", "tf32", "tf32x3")  # in the order of a budget


class Form(NamedTuple):
    """The least that a matrix product must have."""

    instruction: str  # how its name begins
    operands: str = ""  # where wgmma reads from; empty for other instructions
    in_flight: int = 0  # products in flight at the wait of the loop
    stages: int = 0  # stages in shared memory; 0 where tiles pass through registers


class Weaker(NamedTuple):
    """Configurations that fall short of the strong form, the properties, and the reason."""

    reason: str
    applies: Callable[[Specimen], bool]
    change: Callable[[Specimen], dict[str, Any]]


# By the name of a device kernel and the type of operands; a kernel that several specs launch on a
# type belongs to the first of them.
EXPECTED = {
    (kernel.__name__, dtype): spec.expects
    for spec in reversed(KERNELS)
    for kernel in spec.kernels
    for dtype in spec.dtypes
}
EXPECTED |= {(spec.name, dtype): spec.expects for spec in KERNELS for dtype in spec.dtypes}


def expectation(specimen: Specimen) -> Expectation:
    number = specimen.example.number
    return EXPECTED.get((specimen.kernel, "f32" if number in MATHS else number), NOTHING)


def _constant(specimen: Specimen, name: str, default: Any = None) -> Any:
    constants = specimen.launch.constants
    return constants.get(name, getattr(constants.get("CONFIG"), name.lower(), default))


def _rows(specimen: Specimen) -> int:
    return _constant(specimen, "BN" if _constant(specimen, "SWAP") else "BM")


def configuration(specimen: Specimen) -> str:
    """Return how `Expectation.serialised` names a configuration."""
    example, launch = specimen.example, specimen.launch
    size = "x".join(str(_constant(specimen, name)) for name in ("BM", "BN", "BK"))
    tile = f"{size} w{launch.warps} s{launch.stages}"
    return f"{example.groups} {example.shape} {8 * specimen.itemsize} {tile}".strip()


def _has_arch_and_numbers(arch: str, *numbers: str) -> Callable[[Specimen], bool]:
    return lambda s: s.arch == arch and s.example.number in numbers


MMA_SYNC = {"instruction": "mma.sync", "operands": "", "in_flight": 0}
FFMA = MMA_SYNC | {"instruction": "FFMA"}
WEAKER = (
    Weaker(
        "NVIDIA has no matrix instruction for float32",
        lambda s: s.example.number == "f32" and s.arch != "gfx942",
        lambda s: FFMA | {"stages": s.launch.stages - 1},
    ),
    Weaker(
        "a warp group multiplies at least 64 rows",
        lambda s: s.arch == "sm_90" and s.example.number != "f32" and _rows(s) < 64,
        lambda s: MMA_SYNC | {"stages": s.launch.stages - 1},
    ),
    Weaker(
        "the parts of a tf32x3 product are split in registers",
        _has_arch_and_numbers("sm_90", "tf32x3"),
        lambda s: {"operands": "RS", "in_flight": 0, "stages": s.launch.stages - 1},
    ),
    Weaker(
        "wgmma takes 32-bit values across the sum from registers only",
        lambda s: _has_arch_and_numbers("sm_90", "tf32")(s) and _constant(s, "ALIKE"),
        lambda s: {"operands": "RS", "in_flight": 0, "stages": s.launch.stages - 1},
    ),
    Weaker(
        "cp.async moves at least 4 bytes, so that narrower loads pass through registers",
        lambda s: width(s) < ASYNC,
        lambda s: {"in_flight": 0, "stages": 0},
    ),
    Weaker(
        "ptxas serialises the products",
        lambda s: configuration(s) in expectation(s).serialised,
        lambda s: {"in_flight": 0},
    ),
)


def width(specimen: Specimen) -> int:
    """Return the bytes of a thread's narrowest load: 16, or as many as sizes and tile allow."""
    if any(isinstance(value, Descriptor) for value in specimen.launch.arguments.values()):
        return VECTOR
    row, example = expectation(specimen), specimen.example
    divisor, run = DIVISORS[example.size], specimen.choice.tile.run if specimen.choice else 1
    if not row.products:
        vector = divisor if row.across_groups and _constant(specimen, "ALONE", True) else 1
    elif specimen.kernel in ("flat", "planes_wgrad"):  # runs of channels of a tap, or of pixels
        vector = 1 if example.size == "ones" else _constant(specimen, "RUN")
    elif _has_arch_and_numbers("sm_90", "tf32")(specimen) and example.shape.startswith(
        ("dgrad", "wgrad")
    ):
        vector = 1  # wgmma takes 32-bit operands along the sum only; here they are across it
    else:
        vector = max(min(divisor, NEIGHBOURS[example.groups]), run)  # packed to full runs
        if _constant(specimen, "ALIKE"):  # vectors of pixels
            vector = min(vector, _constant(specimen, "VEC")[0])
    return min(VECTOR, specimen.itemsize * vector, _share(specimen))


def _share(specimen: Specimen) -> int:
    """Return the bytes of the smaller operand's tile that a thread loads."""
    sides = [size for name in ("BM", "BN") if (size := _constant(specimen, name))]
    threads = specimen.launch.warps * LANES[specimen.arch]
    return specimen.itemsize * max(1, min(sides) * _constant(specimen, "BK") // threads)


def form(specimen: Specimen) -> Form:
    row, best, stages = expectation(specimen), BEST[specimen.arch], specimen.launch.stages
    if specimen.arch == "sm_90":
        made = Form(best, row.operands, row.in_flight, stages)
    else:
        made = Form(best, stages=stages - 1)
    for weaker in WEAKER:
        if weaker.applies(specimen):
            change = weaker.change(specimen)
            made = made._replace(**change)
    return made


def shortfalls(specimen: Specimen, found: Inspection | aot.CompileError) -> list[str]:
    if isinstance(found, aot.CompileError):
        return [str(found)]
    checks = [_resources, _loop, _program, _vectors]
    if expectation(specimen).products:
        checks += [_rows_of_memory, _product]
        checks += [_stages] if expectation(specimen).staged else []
    return [text for check in checks for text in check(specimen, found)]


def _resources(specimen: Specimen, found: Inspection) -> Iterator[str]:
    if found.spills:
        yield f"{found.spills} accesses to local memory, needs none"
    if found.shared > (most := archs.shared(specimen.arch)):
        yield f"{found.shared} B of shared memory, needs at most {most} B"
    for write in found.overwritten:
        yield f"{write} while a wgmma is in flight that uses the register, needs a wait"
    most = expectation(specimen).registers
    if most and found.registers > most:
        yield f"{found.registers} registers, needs at most {most}"


def _loop(specimen: Specimen, found: Inspection) -> Iterator[str]:
    row = expectation(specimen)
    most = _budget(specimen, row.loop)
    if found.loop is None or most is None:
        return
    length = found.loop if row.staged else max(found.steps)  # of the warps that multiply
    if length > most:
        yield f"{length} instructions in the hot loop, needs at most {most}"
    narrowest = min((bytes_of(name) for name in found.loop_loads), default=VECTOR)
    if narrowest < VECTOR and narrowest < (least := width(specimen)):
        yield f"loads of {narrowest} B in the hot loop, needs {least} B"


def _budget(specimen: Specimen, budgets: Sequence[Sequence[int]]) -> int | None:
    """Return the budget of a specimen's architecture and type, None if it has none."""
    row = dict(zip(aot.ARCHS, budgets)).get(specimen.arch)
    number = "16" if specimen.itemsize <= 2 else specimen.example.number
    return row[NUMBERS.index(number)] if row else None


def _program(specimen: Specimen, found: Inspection) -> Iterator[str]:
    most = _budget(specimen, expectation(specimen).program)
    if most is not None and found.program > most:
        yield f"{found.program} instructions, needs at most {most}"


def _vectors(specimen: Specimen, found: Inspection) -> Iterator[str]:
    if not expectation(specimen).vectors:
        return
    least = min(VECTOR, specimen.itemsize * DIVISORS[specimen.example.size])
    axes = max((len(access.shape) for access in found.accesses), default=0)
    for access in found.accesses:  # those of a value per row or per column have fewer axes
        share = prod(access.shape) // (specimen.launch.warps * LANES[specimen.arch])
        needed = min(least, layouts.BYTES[access.dtype] * max(share, 1))
        if len(access.shape) == axes and access.vector < needed:
            yield f"{access}, needs {needed} B a thread"


def bytes_of(load: str) -> int:
    """Return the bytes that a thread loads: of "cp.async 16" or "TMA 4d"."""
    return VECTOR if "TMA" in load else int(load.split()[-1])


def _rows_of_memory(specimen: Specimen, found: Inspection) -> Iterator[str]:
    for access in found.accesses:
        if access.proven and not access.coalesced:
            yield f"{access}, needs coalesced rows"


def _product(specimen: Specimen, found: Inspection) -> Iterator[str]:
    needed = form(specimen)
    if not found.mma or not all(name.startswith(needed.instruction) for name in found.mma):
        yield f"products by {', '.join(found.mma) or 'nothing'}, needs {needed.instruction}"
    if needed.operands and found.operands != needed.operands:
        yield f"operands {found.operands or 'of no wgmma'}, needs {needed.operands}"
    if (found.wait or 0) < needed.in_flight:
        yield f"{found.wait or 0} products in flight at the wait, needs {needed.in_flight}"


def _stages(specimen: Specimen, found: Inspection) -> Iterator[str]:
    bm, bn, bk = (_constant(specimen, name) for name in ("BM", "BN", "BK"))
    stage = (bm + bn) * bk * specimen.itemsize * expectation(specimen).products
    if found.shared < (stages := form(specimen).stages) * stage:
        yield f"{found.shared} B of shared memory, needs {stages} stages of {stage} B"
    if found.shared > (most := specimen.launch.stages * stage + MARGIN):
        yield f"{found.shared} B of shared memory, needs at most {most} B for its stages"


def inspected(
    specimens: Iterable[Specimen], arch: str
) -> list[tuple[Specimen, Inspection | aot.CompileError]]:
    wanted = list(specimens)
    compiled = aot.compile_all([specimen.specialization for specimen in wanted], arch)
    distinct = {one.specialization.key: made for one, made in zip(wanted, compiled)}
    found: dict[Any, Inspection | aot.CompileError] = {}
    good = {}
    for key, made in distinct.items():
        if isinstance(made, aot.CompileError):
            found[key] = made
        else:
            good[key] = made
    parts = [list(good.values())[i : i + TOGETHER] for i in range(0, len(good), TOGETHER)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        found |= zip(good, chain.from_iterable(threads.map(inspect_all, parts)))
    return [(specimen, found[specimen.specialization.key]) for specimen in wanted]


def main(wanted: list[str]) -> int:
    """Print the configurations that fall short; exit status 1 if there are any."""
    failed = 0
    for arch in wanted or aot.ARCHS:
        for specimen, found in inspected(classes.all_specimens(arch), arch):
            if texts := shortfalls(specimen, found):
                print(f"{specimen}: {'; '.join(texts)}")
                failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
