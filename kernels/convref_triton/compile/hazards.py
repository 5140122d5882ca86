"""Writes to registers that a wgmma in flight still reads, in NVIDIA's machine code.

wgmma reads a left operand in registers while later instructions run. Before CUDA 13.3, ptxas may
reuse these registers too early. The emulation of PTX does not show that; the machine code does.
"""

import re
from collections.abc import Iterator, Sequence

from convref.errors import UnsupportedError, message

from ..hopper.precompiled import assembler, assembler_version, installed_assembler
from . import sass
from .aot import Compiled
from .machine_code import MachineInstruction

FIXED = (13, 3)  # the CUDA whose ptxas waits
WGMMA = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")
LEFT = 4  # registers of the left operand, of each type
MOST = 8  # groups in flight that are counted
READERS = r"[IFHD]SETP|PLOP3|BAR|WARPSYNC|RET|CALL|BRX|JMX|NANOSLEEP|R2P"  # write no register
WIDTHS = {"64": 2, "128": 4, "WIDE": 2}  # registers of a result, by a part of the opcode
# A wgmma of PTX whose left operand is a list of registers: after its accumulators in braces.
FROM_REGISTERS = r"wgmma\.mma_async[^;{]*\{[^}]*\}\s*,\s*\{"


def registers_written(instruction: MachineInstruction) -> range:
    """Return the numbers of the registers that an instruction writes, other than a wgmma.

    >>> registers_written(MachineInstruction(0, "LDS.128", "R4, [R2+0x10]"))
    range(4, 8)
    >>> registers_written(MachineInstruction(0, "HMMA.16816.F32.BF16", "R8, R4, R2, R8"))
    range(8, 12)
    >>> registers_written(MachineInstruction(0, "STS.128", "[R2], R4"))
    range(0, 0)
    """
    name, *parts = instruction.opcode.split(".")
    words = (word.strip() for word in instruction.operands.split(","))
    first = next((word for word in words if not re.fullmatch(r"!?U?P[T\d]", word)), "")
    found = re.match(r"R(\d+)", first)
    if found is None or re.match(READERS, name):
        return range(0)
    count = max((WIDTHS.get(part, 1) for part in parts), default=1)
    if name == "LDSM":
        count = int(parts[-1]) if parts[-1].isdigit() else 1
    if re.fullmatch("[HIBDQ]MMA", name):
        count = 2 if "F16" in parts[1:2] else 4
    if re.match("D(ADD|MUL|FMA)|CS2R", name) and "32" not in parts:
        count = 2
    return range(int(found[1]), int(found[1]) + count)


def in_flight(code: Sequence[MachineInstruction], start: int) -> Iterator[MachineInstruction]:
    """Yield the instructions that may execute before the wgmma at index `start` is complete.

    A wait for at most n groups completes it if more than n ended since, its own included.
    """
    index = {instruction.position: i for i, instruction in enumerate(code)}
    seen, todo = set(), [(start, 0)]
    while todo:
        here, groups = todo.pop()
        one = code[here]
        if any(groups > left for left in sass.waits([one])):
            continue
        ends = one.opcode.startswith(WGMMA) and "gsb0" in one.operands
        after = [here + 1] if one.falls and here + 1 < len(code) else []
        after += [index[one.target]] if one.target in index else []
        for state in {(i, min(groups + ends, MOST)) for i in after} - seen:
            seen.add(state)
            todo.append(state)
            yield code[state[0]]


def overwritten(code: Sequence[MachineInstruction]) -> tuple[str, ...]:
    """Return the writes to left operands and accumulators of wgmmas in flight."""
    found = set()
    for start, one in enumerate(code):
        if not one.opcode.startswith(WGMMA):
            continue
        accumulator, left, *_ = (word.strip() for word in one.operands.split(","))
        used = {*_registers(accumulator, int(one.opcode.split("x")[1]) // 2)}
        used |= {*_registers(left, LEFT)}
        for other in in_flight(code, start):
            if not other.opcode.startswith(WGMMA) and used & {*registers_written(other)}:
                found.add(f"{other.opcode} {other.operands} at {other.position:#x}")
    return tuple(sorted(found))


def _registers(word: str, count: int) -> range:
    found = re.match(r"R(\d+)", word)
    return range(int(found[1]), int(found[1]) + count) if found else range(0)


def guard(compiled: Compiled) -> None:
    """Raise UnsupportedError if a kernel overwrites registers of a wgmma in flight.

    Only kernels with left operands in registers are disassembled.
    """
    if not re.search(FROM_REGISTERS, compiled.asm.get("ptx", "")):
        return
    if found := overwritten(sass.parse(sass.text(compiled))):
        version = assembler_version(assembler(compiled.arch))
        what = f"ptxas {version} overwrites a register of a wgmma in flight ({found[0]}), "
        what += "needs one of CUDA 13.3 or later: set TRITON_PTXAS_PATH to "
        what += installed_assembler(FIXED) or "that of `pip install nvidia-cuda-nvcc`"
        raise UnsupportedError(message(f"triton: {compiled.name}", what))
