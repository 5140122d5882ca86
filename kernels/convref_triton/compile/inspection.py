"""What the compiler made of a kernel: which matrix instructions, how wide its loads, its hot loop.

Everything is read from the machine code and from Triton's last own stage, on any machine; the
disassemblers come with Triton. Rates are the published dense peaks of a multiprocessor.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import triton

from convref.backends import Inspected

from ..hopper.carried import assembler
from ..plan.launch import KernelPlan, Launch
from . import aot, layouts
from .aot import Compiled
from .specialise import specialise

SCHEDULERS = 4  # of an SM: each issues one instruction of one warp a cycle
WARP, GROUP = 1, 4  # warps that execute one instruction together: mma.sync and FMA, wgmma

# Multiply-adds of an SM a cycle, by architecture and type of the operands.
RATES = {
    "sm_90": {"F16": 2048, "BF16": 2048, "TF32": 1024, "E4M3": 4096, "S8": 4096, "FFMA": 128},
    "sm_80": {"F16": 1024, "BF16": 1024, "TF32": 512, "S8": 2048, "FFMA": 64},
}


class Instruction(NamedTuple):
    """An instruction of machine code; `target` is the position that it may continue at."""

    position: int
    opcode: str
    operands: str
    target: int | None = None
    falls: bool = True  # whether it may continue at the next instruction


class Mma(NamedTuple):
    """A multiply-add instruction: its name, multiply-adds, warps it takes, type of its operands."""

    name: str
    products: int
    warps: int
    kind: str


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Parameters
    ----------
    kernel, arch : str
    mma : mapping of str to int
        Multiply-add instructions in the hot loop (in all the code where there is no loop).
    operands : str
        Where wgmma reads from: "SS" both from shared memory, "RS" the left one from registers.
    loads, stores : mapping of str to int
        Instructions to global memory in all the code, by kind and bytes a thread: "cp.async 16".
    loop_loads : mapping of str to int
        Those loads that are in the hot loop.
    registers : int
        Of a thread.
    spills : int
        Loads and stores of local memory, arrays included.
    shared : int
        Bytes of shared memory of a block, static and dynamic.
    wait : int or None
        wgmma groups still in flight at the loop's wait; None where it does not wait.
    serialised : str
        Why ptxas lets one wgmma wait for the other, in its own words; empty where it does not.
    loop : int or None
        Instructions of the innermost loop around the multiply-adds; None where there is none.
    steps : tuple of int
        Those of every innermost loop around matrix instructions: one a warp group that multiplies.
    issue : float or None
        Issue slots of that loop by cycles of its products at peak: above 1, issue is the bound.
    accesses : tuple of layouts.Access
        How a warp's accesses to tensors lie in memory.
    seconds : float
        What compiling took.
    from_disk : bool
        Whether it was in Triton's cache.
    """

    kernel: str
    arch: str
    mma: Mapping[str, int]
    operands: str
    loads: Mapping[str, int]
    stores: Mapping[str, int]
    loop_loads: Mapping[str, int]
    registers: int
    spills: int
    shared: int
    wait: int | None
    serialised: str
    loop: int | None
    steps: tuple[int, ...]
    issue: float | None
    accesses: tuple[layouts.Access, ...]
    seconds: float
    from_disk: bool

    def facts(self) -> dict[str, str]:
        """Return what a table shows, as text by name."""
        operands = f" from {self.operands}" if self.operands else ""
        wait = "" if self.wait is None else f", {self.wait} in flight at the wait"
        issue = "" if self.issue is None else f", {self.issue:.2f} issue slots a cycle of products"
        where = "" if self.loop is None else f"{self.loop} instructions{issue}"
        told = " (from the cache)" if self.from_disk else ""
        return {
            "products": (_counted(self.mma) or "none") + operands + wait,
            "hot loop": where or "none",
            "loads": _counted(self.loads) or "none",
            "loads in the loop": _counted(self.loop_loads) or "none",
            "stores": _counted(self.stores) or "none",
            "rows of a warp": "; ".join(map(str, self.accesses)) or "unknown",
            "registers": f"{self.registers}, {self.spills} accesses to local memory",
            "shared memory": f"{self.shared:,} B",
            "compiled in": f"{self.seconds:.2f} s{told}",
        }


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def inspect(compiled: Compiled) -> Inspection:
    """Return what the compiler made of a kernel."""
    return (_inspect_amd if "hsaco" in compiled.asm else _inspect_nvidia)(compiled)


# What follows reads NVIDIA's machine code, SASS.


def sass(compiled: Compiled) -> str:
    """Return the disassembled cubin."""
    return _said("-sass", compiled.binary)


def resources(compiled: Compiled) -> dict[str, int]:
    """Return what the cubin says of itself, by name: REG, STACK, SHARED ...

    That takes a hundredth of the time of disassembling it. What spills has a STACK.
    """
    said = _said("-res-usage", compiled.binary)
    return {name: int(count) for name, count in re.findall(r"(\w+):(\d+)", said)}


def shared(compiled: Compiled) -> int:
    """Return the bytes of shared memory of a block, static and dynamic."""
    dynamic: int = compiled.metadata["shared"]
    return dynamic if "hsaco" in compiled.asm else dynamic + resources(compiled)["SHARED"]


@cache
def _said(flag: str, binary: bytes) -> str:
    """Return what cuobjdump, which ships with Triton, prints of a cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, flag, file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


SASS_LINE = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);", re.MULTILINE
)


def parse_sass(text: str) -> list[Instruction]:
    """Return the instructions of a kernel's SASS.

    >>> parse_sass("        /*1d90*/              @!P5 BRA 0x1020 ;    /* 0xff */")
    [Instruction(position=7568, opcode='BRA', operands='0x1020', target=4128, falls=True)]
    """
    found = []
    for position, predicate, opcode, operands in SASS_LINE.findall(text):
        jump = re.search(r"0x([0-9a-f]+)\s*$", operands) if opcode.startswith("BRA") else None
        target = int(jump[1], 16) if jump else None
        leaves = opcode in ("EXIT", "RET") or (jump is not None and "," not in operands)
        falls = bool(predicate) or not leaves
        found.append(Instruction(int(position, 16), opcode, operands.strip(), target, falls))
    return found


def sass_mma(instruction: Instruction) -> Mma | None:
    """Return the multiply-add that an instruction is, or None.

    >>> sass_mma(Instruction(0, "HGMMA.64x128x16.F32.BF16", "R24, gdesc[UR16].tnspB, R24"))
    Mma(name='wgmma m64n128k16', products=131072, warps=4, kind='BF16')
    >>> sass_mma(Instruction(0, "HMMA.1688.F32.TF32", "R8, R4, R6, R8")).name
    'mma.sync m16n8k8'
    """
    opcode = instruction.opcode
    kind = opcode.rsplit(".", 1)[-1]
    if shape := re.match(r"[HIQB]GMMA\.(?:SP\.)?(\d+)x(\d+)x(\d+)", opcode):
        m, n, k = map(int, shape.groups())
        return Mma(f"wgmma m{m}n{n}k{k}", m * n * k, GROUP, "F16" if kind == "F32" else kind)
    if shape := re.match(r"[HID]MMA\.(16|8)8(\d+)", opcode):
        m, k = map(int, shape.groups())
        return Mma(f"mma.sync m{m}n8k{k}", m * 8 * k, WARP, "F16" if kind == "F32" else kind)
    if opcode.startswith("FFMA"):
        return Mma("FFMA", 32, WARP, "FFMA")
    return None


SASS_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


def sass_access(instruction: Instruction) -> tuple[str, str] | None:
    """Return ("load" or "store", kind and bytes) of an access to global memory, else None.

    >>> sass_access(Instruction(0, "LDGSTS.E.BYPASS.128", "[R25], desc[UR22][R12.64]"))
    ('load', 'cp.async 16')
    >>> sass_access(Instruction(0, "LDG.E.U16", "R112, desc[UR22][R92.64]"))
    ('load', 'LDG 2')
    """
    name, *rest = instruction.opcode.split(".")
    if name in ("UTMALDG", "UTMASTG", "UTMAREDG"):
        return "load" if name == "UTMALDG" else "store", f"TMA {rest[0].lower()}"
    size = next((SASS_BYTES[part] for part in rest if part in SASS_BYTES), 4)
    kinds = {"LDGSTS": "cp.async", "LDG": "LDG", "STG": "STG", "RED": "RED", "ATOMG": "ATOM"}
    if name not in kinds:
        return None
    return "load" if name in ("LDGSTS", "LDG") else "store", f"{kinds[name]} {size}"


def _inspect_nvidia(compiled: Compiled) -> Inspection:
    code = parse_sass(sass(compiled))
    loop, products = _hot(code, sass_mma)
    inner = loop if loop is not None else code
    waits = [int(i.operands.rsplit(",", 1)[-1], 16) for i in inner if _waits(i)]
    warps, rate = compiled.metadata["num_warps"], RATES.get(compiled.arch, {})
    cycles = sum(warps / p.warps * p.products / rate[p.kind] for p in products if p.kind in rate)
    slots = len(inner) * warps / SCHEDULERS
    wait = min(waits) if waits and loop is not None else None
    return Inspection(
        compiled.name,
        compiled.arch,
        Counter(product.name for product in products),
        _operands(inner),
        *_accessed(code, sass_access),
        _accessed(inner, sass_access)[0] if loop is not None else {},
        resources(compiled)["REG"],
        sum(i.opcode.startswith(("LDL", "STL")) for i in code),
        shared(compiled),
        wait,
        _serialised(compiled) if wait == 0 else "",
        None if loop is None else len(loop),
        _steps(code, sass_mma),
        slots / cycles if cycles and loop is not None else None,
        layouts.accesses(compiled.asm.get("ttgir", "")),
        compiled.seconds,
        compiled.from_disk,
    )


def _serialised(compiled: Compiled) -> str:
    """Return what ptxas says about wgmma when it assembles the kernel again."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(compiled.asm["ptx"])
        file.flush()
        arch = f"--gpu-name={compiled.arch}a"  # wgmma is a feature of this very architecture
        call = [assembler(compiled.arch), "-v", arch, file.name, "-o", os.devnull]
        said = subprocess.run(call, check=True, capture_output=True, text=True).stderr
    found = re.search(
        r"\((C\d+)\)[^\n]*?serialized (due to [^\n]*?)( in the function|$)", said, re.M
    )
    return f"{found[2]} ({found[1]})" if found else ""


def _waits(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("WARPGROUP.DEPBAR")


def _operands(code: Iterable[Instruction]) -> str:
    """Return "SS", "RS" or both, by whether wgmma's left operand is a register."""
    found = set()
    for instruction in code:
        if re.match(r"[HIQB]GMMA", instruction.opcode):
            left = instruction.operands.split(",")[1].strip()
            found.add("RS" if re.match(r"R\d+|RZ", left) else "SS")
    return ", ".join(sorted(found))


def _accessed(
    code: Iterable[Instruction], what: Callable[[Instruction], tuple[str, str] | None]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return (loads, stores), counted by kind and bytes."""
    counts: dict[str, Counter[str]] = {"load": Counter(), "store": Counter()}
    for found in filter(None, map(what, code)):
        counts[found[0]][found[1]] += 1
    return dict(counts["load"]), dict(counts["store"])


def _hot(
    code: Sequence[Instruction], mma: Callable[[Instruction], Mma | None]
) -> tuple[list[Instruction] | None, list[Mma]]:
    """Return (the innermost loop around the multiply-adds, those in it).

    Matrix instructions count before FMAs, and among loops that hold no other the one with most.
    Where no loop holds any, all the code is searched.
    """
    found = [(i.position, product) for i in code if (product := mma(i)) is not None]
    matrix = [entry for entry in found if entry[1].name != "FFMA"]
    found = matrix or found
    busy = {body: sum(at in body for at, _ in found) for body in loops(code)}
    inner = [
        body
        for body, count in busy.items()
        if count and not any(other < body and busy[other] for other in busy)
    ]
    if not inner:
        return None, [product for _, product in found]
    best = max(inner, key=lambda body: (busy[body], -len(body)))
    return [i for i in code if i.position in best], [p for at, p in found if at in best]


def _steps(
    code: Sequence[Instruction], mma: Callable[[Instruction], Mma | None]
) -> tuple[int, ...]:
    """Return the lengths of the innermost loops around matrix instructions, in ascending order."""
    found = [i.position for i in code if (product := mma(i)) and product.name != "FFMA"]
    around = [b for b in loops(code) if any(at in b for at in found)] if found else []
    return tuple(sorted(len(body) for body in around if not any(o < body for o in around)))


def loops(code: Sequence[Instruction]) -> set[frozenset[int]]:
    """Return the positions in each natural loop.

    That is an edge back to an instruction which all ways to the edge lead through, with what lies
    between. Code is not laid out as it runs: a branch to an earlier address need not close a loop.
    """
    before: dict[int, list[int]] = {i.position: [] for i in code}
    for here, following in zip(code, (*code[1:], None)):
        if here.falls and following is not None:
            before[following.position].append(here.position)
        if here.target in before:
            before[here.target].append(here.position)
    heads = {i.target for i in code if i.target in before}
    entry = code[0].position if code else 0
    bodies = ((head, _leading_to(end, head, before)) for head in heads for end in before[head])
    return {body for head, body in bodies if head == entry or entry not in body}


def _leading_to(end: int, head: int, before: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """Return `head` and all that reaches `end` without it."""
    body, todo = {head}, [end]
    while todo:
        at = todo.pop()
        if at not in body:
            body.add(at)
            todo += before[at]
    return frozenset(body)


# What follows reads AMD's assembly.

AMD_LINE = re.compile(r"^(?:(\.LBB\w+):|[ \t]+([a-z]\w+)[ \t]*([^;\n]*))", re.MULTILINE)
AMD_BYTES = {"ubyte": 1, "sbyte": 1, "ushort": 2, "sshort": 2, "short": 2, "byte": 1, "dword": 4}


def parse_amd(text: str) -> list[Instruction]:
    """Return the instructions of AMD's assembly, positions counted from 0."""
    labels: dict[str, int] = {}
    found: list[tuple[str, str]] = []
    for label, opcode, operands in AMD_LINE.findall(text):
        if label:
            labels[label] = len(found)
        else:
            found.append((opcode, operands.strip()))
    ends = ("s_branch", "s_endpgm")
    return [
        Instruction(position, opcode, operands, labels.get(operands), opcode not in ends)
        for position, (opcode, operands) in enumerate(found)
    ]


def amd_mma(instruction: Instruction) -> Mma | None:
    """Return the multiply-add that an instruction is, or None.

    >>> amd_mma(Instruction(0, "v_mfma_f32_32x32x8_bf16", "v[18:33], v[0:1], v[46:47]")).name
    'mfma 32x32x8 bf16'
    """
    if shape := re.match(r"v_mfma_[a-z]+\d+_(\d+)x(\d+)x(\d+)_?(\w+)", instruction.opcode):
        m, n, k = (int(size) for size in shape.groups()[:3])
        return Mma(f"mfma {m}x{n}x{k} {shape[4]}", m * n * k, WARP, shape[4])
    if re.match(r"v_(pk_)?(fma|fmac)_f32", instruction.opcode):
        return Mma("FFMA", 64, WARP, "FFMA")
    return None


def amd_access(instruction: Instruction) -> tuple[str, str] | None:
    """Return ("load" or "store", kind and bytes) of an access to global memory, else None."""
    found = re.match(
        r"(global|buffer)_(load|store)_(?:lds_)?(ubyte|sbyte|ushort|sshort|short|byte|dword)(?:x(\d))?",
        instruction.opcode,
    )
    if found:
        return found[2], f"{found[1]} {AMD_BYTES[found[3]] * int(found[4] or 1)}"
    if re.match(r"(global|buffer)_atomic", instruction.opcode):
        return "store", instruction.opcode.split("_")[0] + " atomic"
    return None


def _inspect_amd(compiled: Compiled) -> Inspection:
    text = compiled.asm["amdgcn"]
    code = parse_amd(text)
    noted = dict(re.findall(r"^\s+\.(\w+):\s+(\d+)\s*$", text, re.M))
    loop, products = _hot(code, amd_mma)
    # Scalars that do not fit go to lanes of a vector register, not to memory.
    scratch = sum(i.opcode.startswith(("scratch_load", "scratch_store")) for i in code)
    return Inspection(
        compiled.name,
        compiled.arch,
        Counter(product.name for product in products),
        "",
        *_accessed(code, amd_access),
        _accessed(loop, amd_access)[0] if loop is not None else {},
        int(noted["vgpr_count"]),
        scratch,
        shared(compiled),
        None,
        "",
        None if loop is None else len(loop),
        _steps(code, amd_mma),
        None,
        layouts.accesses(compiled.asm["ttgir"]),
        compiled.seconds,
        compiled.from_disk,
    )


def shown(plan: KernelPlan, arch: str) -> list[Inspected]:
    """Return every launch of a plan, compiled for `arch`, as `convref inspect` shows it."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    rows = []
    for launch in launches:
        compiled = aot.compile(specialise(launch), arch)
        texts = {kind: assembly(compiled, kind) for kind in (*compiled.asm, "sass")}
        tile = f"{launch.warps} warps, {launch.stages} stages"
        title = f"{compiled.name}, grid {'x'.join(map(str, launch.grid))}, {tile}"
        kept = {kind: text for kind, text in texts.items() if text is not None}
        rows.append(Inspected(title, inspect(compiled).facts(), kept))
    return rows


def assembly(compiled: Compiled, kind: str) -> str | None:
    """Return the text of a stage: "sass", "ptx", "ttgir", "amdgcn" ...; None where it has none."""
    if kind == "sass" and "cubin" in compiled.asm:
        return sass(compiled)
    text: Any = compiled.asm.get(kind)
    return text if isinstance(text, str) else None
