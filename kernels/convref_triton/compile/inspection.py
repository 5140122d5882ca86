"""Properties of a compiled kernel: its matrix instructions, load widths, hot loop and resources.

They are read from the machine code and from Triton's last own stage (ttgir), without a GPU.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convref.backends import Inspected

from ..hopper.precompiled import assembler, assembler_version
from ..plan.launch import KernelPlan
from . import amdgcn, aot, hazards, layouts, sass
from .aot import Compiled
from .machine_code import MachineInstruction, Mma, count_accesses, hot_loop, matrix_loops
from .specialize import specialize

SCHEDULERS = 4  # of an SM: each issues one instruction of one warp per cycle
# Dense peak multiply-adds of an SM per cycle, by architecture and type of the operands.
RATES = {
    "sm_90": {"F16": 2048, "BF16": 2048, "TF32": 1024, "E4M3": 4096, "S8": 4096, "FFMA": 128},
    "sm_80": {"F16": 1024, "BF16": 1024, "TF32": 512, "S8": 2048, "FFMA": 64},
}


@dataclass(frozen=True, kw_only=True)
class Inspection:
    kernel: str
    arch: str
    # Multiply-add instructions in the hot loop (in all the code where there is no loop).
    mma: Mapping[str, int]
    # Where wgmma reads from: "SS" both from shared memory, "RS" the left one from registers.
    operands: str = ""
    # Instructions to global memory in all the code, by kind and bytes a thread: "cp.async 16".
    loads: Mapping[str, int]
    stores: Mapping[str, int]
    loop_loads: Mapping[str, int]  # those loads that are in the hot loop
    registers: int  # of a thread
    spills: int  # loads and stores of local memory, arrays included
    shared: int  # bytes of shared memory of a block, static and dynamic
    wait: int | None = None  # wgmma groups in flight at the loop's wait; None if it does not wait
    overwritten: tuple[str, ...] = ()  # writes to registers of a wgmma in flight
    assembler: str = ""  # version of ptxas
    serialised: str = ""  # why ptxas serialises wgmma, in its own words; empty if it does not
    # Instructions of the innermost loop around the multiply-adds; None if there is none.
    loop: int | None
    program: int  # instructions of all the code
    # Those of every innermost loop around matrix instructions, one per multiplying group.
    steps: tuple[int, ...]
    # Issue slots of the loop per cycle of its products at peak; above 1, issue is the bound.
    issue: float | None = None
    accesses: tuple[layouts.Access, ...]  # how a warp's accesses to tensors are laid out in memory
    seconds: float  # compile time
    from_disk: bool  # whether it was in Triton's cache

    def facts(self) -> dict[str, str]:
        operands = f" from {self.operands}" if self.operands else ""
        wait = "" if self.wait is None else f", {self.wait} in flight at the wait"
        issue = "" if self.issue is None else f", {self.issue:.2f} issue slots a cycle of products"
        where = "" if self.loop is None else f"{self.loop} instructions{issue}"
        cached = " (from the cache)" if self.from_disk else ""
        assembled = {"assembler": f"ptxas {self.assembler}"} if self.assembler else {}
        return assembled | {
            "products": (_counted(self.mma) or "none") + operands + wait,
            "hot loop": where or "none",
            "loads": _counted(self.loads) or "none",
            "loads in the loop": _counted(self.loop_loads) or "none",
            "stores": _counted(self.stores) or "none",
            "rows of a warp": "; ".join(map(str, self.accesses)) or "unknown",
            "registers": f"{self.registers}, {self.spills} accesses to local memory",
            "shared memory": f"{self.shared:,} B",
            "compiled in": f"{self.seconds:.2f} s{cached}",
        }


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def inspect_all(compiled: Sequence[Compiled]) -> list[Inspection]:
    """Return `inspect` of each; kernels for NVIDIA are disassembled together."""
    sass.disassemble(one for one in compiled if "cubin" in one.asm)
    return [inspect(one) for one in compiled]


def inspect(compiled: Compiled) -> Inspection:
    reader: Any = amdgcn if "hsaco" in compiled.asm else sass
    code = reader.parse(reader.text(compiled))
    loop, products = hot_loop(code, reader.read_mma)
    loads, stores = count_accesses(code, reader.read_access)
    nvidia = {} if reader is amdgcn else _nvidia(compiled, code, loop, products)
    return Inspection(
        kernel=compiled.name,
        arch=compiled.arch,
        mma=Counter(product.name for product in products),
        loads=loads,
        stores=stores,
        loop_loads=count_accesses(loop or [], reader.read_access)[0],
        registers=reader.registers(compiled),
        spills=reader.spills(code),
        shared=shared_bytes(compiled),
        loop=None if loop is None else len(loop),
        program=len(code),
        steps=matrix_loops(code, reader.read_mma),
        accesses=layouts.accesses(compiled.asm.get("ttgir", "")),
        seconds=compiled.seconds,
        from_disk=compiled.from_disk,
        **nvidia,
    )


def _nvidia(
    compiled: Compiled,
    code: Sequence[MachineInstruction],
    loop: Sequence[MachineInstruction] | None,
    products: Sequence[Mma],
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operands": sass.left_operands(code if loop is None else loop),
        "overwritten": hazards.overwritten(code),
        "assembler": assembler_version(assembler(compiled.arch)),
    }
    if loop is None:
        return found
    warps, rate = compiled.metadata["num_warps"], RATES.get(compiled.arch, {})
    cycles = sum(warps / p.warps * p.products / rate[p.kind] for p in products if p.kind in rate)
    wait = min(sass.waits(loop), default=None)
    return found | {
        "wait": wait,
        "serialised": sass.serialised(compiled) if wait == 0 else "",
        "issue": len(loop) * warps / SCHEDULERS / cycles if cycles else None,
    }


def shared_bytes(compiled: Compiled) -> int:
    dynamic: int = compiled.metadata["shared"]
    return dynamic if "hsaco" in compiled.asm else dynamic + sass.resources(compiled)["SHARED"]


def inspect_plan(plan: KernelPlan, arch: str) -> list[Inspected]:
    """Return every launch of a plan, compiled for `arch`, as `convref inspect` shows it."""
    every = [aot.compile_or_refuse(specialize(launch), arch) for launch in plan.launches]
    rows = []
    for launch, compiled, inspection in zip(plan.launches, every, inspect_all(every)):
        texts = {kind: assembly(compiled, kind) for kind in (*compiled.asm, "sass")}
        tile = f"{launch.warps} warps, {launch.stages} stages"
        title = f"{compiled.name}, grid {'x'.join(map(str, launch.grid))}, {tile}"
        found = {kind: text for kind, text in texts.items() if text is not None}
        rows.append(Inspected(title, inspection.facts(), found))
    return rows


def assembly(compiled: Compiled, kind: str) -> str | None:
    """Return the text of a stage ("sass", "ptx", "ttgir", "amdgcn" ...), None without one."""
    if kind == "sass" and "cubin" in compiled.asm:
        return sass.text(compiled)
    text: Any = compiled.asm.get(kind)
    return text if isinstance(text, str) else None
