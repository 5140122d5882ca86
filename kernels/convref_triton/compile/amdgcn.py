"""Instructions and resources of a kernel in AMD's assembly (amdgcn)."""

import re
from collections.abc import Iterable

from .aot import Compiled
from .machine_code import MachineInstruction, Mma

WARP = 1  # warps that execute one instruction together


LINE = re.compile(r"^(?:(\.LBB\w+):|[ \t]+([a-z]\w+)[ \t]*([^;\n]*))", re.MULTILINE)
BYTES = {"ubyte": 1, "sbyte": 1, "ushort": 2, "sshort": 2, "short": 2, "byte": 1, "dword": 4}


def text(compiled: Compiled) -> str:
    return compiled.asm["amdgcn"]


def parse(code: str) -> list[MachineInstruction]:
    labels: dict[str, int] = {}
    found: list[tuple[str, str]] = []
    for label, opcode, operands in LINE.findall(code):
        if label:
            labels[label] = len(found)
        else:
            found.append((opcode, operands.strip()))
    ends = ("s_branch", "s_endpgm")
    return [
        MachineInstruction(position, opcode, operands, labels.get(operands), opcode not in ends)
        for position, (opcode, operands) in enumerate(found)
    ]


def read_mma(instruction: MachineInstruction) -> Mma | None:
    """Return the multiply-add that an instruction is, or None.

    >>> read_mma(MachineInstruction(0, "v_mfma_f32_32x32x8_bf16", "v[18:33], v[0:1]")).name
    'mfma 32x32x8 bf16'
    """
    if shape := re.match(r"v_mfma_[a-z]+\d+_(\d+)x(\d+)x(\d+)_?(\w+)", instruction.opcode):
        m, n, k = (int(size) for size in shape.groups()[:3])
        return Mma(f"mfma {m}x{n}x{k} {shape[4]}", m * n * k, WARP, shape[4])
    if re.match(r"v_(pk_)?(fma|fmac)_f32", instruction.opcode):
        return Mma("FFMA", 64, WARP, "FFMA")
    return None


def read_access(instruction: MachineInstruction) -> tuple[str, str] | None:
    """Return ("load" or "store", kind and bytes) of an access to global memory, else None."""
    found = re.match(
        r"(global|buffer)_(load|store)_(?:lds_)?(ubyte|sbyte|ushort|sshort|short|byte|dword)(?:x(\d))?",
        instruction.opcode,
    )
    if found:
        return found[2], f"{found[1]} {BYTES[found[3]] * int(found[4] or 1)}"
    if re.match(r"(global|buffer)_atomic", instruction.opcode):
        return "store", instruction.opcode.split("_")[0] + " atomic"
    return None


def registers(compiled: Compiled) -> int:
    found = re.search(r"^\s+\.vgpr_count:\s+(\d+)\s*$", text(compiled), re.M)
    assert found is not None, compiled.name
    return int(found[1])


def spills(code: Iterable[MachineInstruction]) -> int:
    """Return the accesses to scratch memory; scalars spill to vector registers instead."""
    return sum(i.opcode.startswith(("scratch_load", "scratch_store")) for i in code)
