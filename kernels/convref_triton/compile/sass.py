"""Instructions and resources of a kernel in NVIDIA's machine code (SASS).

The disassembler ships with Triton, so that neither a GPU nor a CUDA toolkit is needed.
"""

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import triton
from triton.runtime.cache import get_cache_manager

from ..hopper.precompiled import assembler
from . import cubin
from .aot import Compiled
from .machine_code import MachineInstruction, Mma

PRINTED = "printed.txt"  # in Triton's cache
FUNCTION_TITLE = "\t\tFunction : "  # the disassembler's, before a name
WARP, GROUP = 1, 4  # warps that execute one instruction together: mma.sync and FMA, wgmma


def text(compiled: Compiled) -> str:
    return _cuobjdump("-sass", compiled.binary)


def disassemble(compiled: Iterable[Compiled]) -> None:
    """Disassemble kernels for NVIDIA in one process for each architecture; `text` returns the code.

    To start, such a process takes as long as for twenty kernels.
    """
    command = _cuobjdump_command("-sass")
    alike: dict[Any, dict[bytes, cubin.Function]] = {}
    for binary in dict.fromkeys(one.binary for one in compiled):
        found = cubin.function(binary)
        if found is not None and _store(command, binary).get_file(PRINTED) is None:
            alike.setdefault(found.file, {})[binary] = found
    for functions in (some for some in alike.values() if len(some) > 1):
        printed = _run(command, cubin.merged(list(functions.values())))
        head, *codes = printed.split(FUNCTION_TITLE)
        for (binary, function), code in zip(functions.items(), codes, strict=True):
            code = f"{head}{FUNCTION_TITLE}{function.name}\n{code.partition(chr(10))[2]}"
            _store(command, binary).put(code, PRINTED)


def resources(compiled: Compiled) -> dict[str, int]:
    """Return the resources that the cubin declares, by name: REG, STACK, SHARED ...

    That takes a hundredth of the time of disassembling it. A kernel that spills has a STACK.
    """
    printed = _cuobjdump("-res-usage", compiled.binary)
    return {name: int(count) for name, count in re.findall(r"(\w+):(\d+)", printed)}


@cache
def _cuobjdump(flag: str, binary: bytes) -> str:
    return _printed(_cuobjdump_command(flag), binary)


def _cuobjdump_command(flag: str) -> list[str]:
    return [triton.knobs.nvidia.cuobjdump.path, flag]


def _printed(command: list[str], data: bytes) -> str:
    """Return the output of one of Triton's tools on a file with these bytes.

    Triton's cache on disk stores it with the binary: disassembling takes as long as compiling.
    """
    store = _store(command, data)
    if path := store.get_file(PRINTED):
        return Path(path).read_text()
    printed = _run(command, data)
    store.put(printed, PRINTED)
    return printed


def _store(command: list[str], data: bytes) -> Any:
    """Return the part of Triton's cache for the output of a command on these bytes."""
    words = " ".join((triton.__version__, *command)).encode()
    return get_cache_manager(hashlib.sha256(words + b"\0" + data).hexdigest())


def _run(command: list[str], data: bytes) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        done = subprocess.run([*command, file.name], check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


LINE = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);", re.MULTILINE
)


def parse(code: str) -> list[MachineInstruction]:
    """Return the instructions of a kernel's SASS.

    >>> parse("        /*1d90*/              @!P5 BRA 0x1020 ;    /* 0xff */")
    [MachineInstruction(position=7568, opcode='BRA', operands='0x1020', target=4128, falls=True)]
    """
    found = []
    for position, predicate, opcode, operands in LINE.findall(code):
        operands = re.sub(r"\s+[&?].*", "", operands)  # of sm_120: how it is scheduled
        jump = re.search(r"0x([0-9a-f]+)\s*$", operands) if opcode.startswith("BRA") else None
        target = int(jump[1], 16) if jump else None
        leaves = opcode in ("EXIT", "RET") or (jump is not None and "," not in operands)
        falls = bool(predicate) or not leaves
        found.append(MachineInstruction(int(position, 16), opcode, operands.strip(), target, falls))
    return found


def read_mma(instruction: MachineInstruction) -> Mma | None:
    """Return the multiply-add that an instruction is, or None.

    >>> read_mma(MachineInstruction(0, "HGMMA.64x128x16.F32.BF16", "R24, gdesc[UR16].tnspB, R24"))
    Mma(name='wgmma m64n128k16', products=131072, warps=4, kind='BF16')
    >>> read_mma(MachineInstruction(0, "UTCHMMA", "gdesc[UR6], gdesc[UR8], tmem[UR16]")).name
    'tcgen05 UTCHMMA'
    >>> read_mma(MachineInstruction(0, "HMMA.1688.F32.TF32", "R8, R4, R6, R8")).name
    'mma.sync m16n8k8'
    >>> read_mma(MachineInstruction(0, "QMMA.16832.F32.E4M3.E4M3", "R8, R4, R6, RZ")).kind
    'E4M3'
    """
    opcode = instruction.opcode
    kind = opcode.rsplit(".", 1)[-1]
    if shape := re.match(r"[HIQB]GMMA\.(?:SP\.)?(\d+)x(\d+)x(\d+)", opcode):
        m, n, k = map(int, shape.groups())
        return Mma(f"wgmma m{m}n{n}k{k}", m * n * k, GROUP, "F16" if kind == "F32" else kind)
    if shape := re.match(r"[HIDQ]MMA\.(16|8)8(\d+)", opcode):
        m, k = map(int, shape.groups())
        return Mma(f"mma.sync m{m}n8k{k}", m * 8 * k, WARP, "F16" if kind == "F32" else kind)
    if re.match(r"UTC[HQI]MMA", opcode):  # its shape is in a register
        return Mma(f"tcgen05 {opcode}", 0, WARP, opcode)
    if opcode.startswith("FFMA"):
        return Mma("FFMA", 32, WARP, "FFMA")
    return None


BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


def read_access(instruction: MachineInstruction) -> tuple[str, str] | None:
    """Return ("load" or "store", kind and bytes) of an access to global memory, else None.

    >>> read_access(MachineInstruction(0, "LDGSTS.E.BYPASS.128", "[R25], desc[UR22][R12.64]"))
    ('load', 'cp.async 16')
    >>> read_access(MachineInstruction(0, "LDG.E.U16", "R112, desc[UR22][R92.64]"))
    ('load', 'LDG 2')
    """
    name, *rest = instruction.opcode.split(".")
    if name in ("UTMALDG", "UTMASTG", "UTMAREDG"):
        return "load" if name == "UTMALDG" else "store", f"TMA {rest[0].lower()}"
    size = next((BYTES[part] for part in rest if part in BYTES), 4)
    kinds = {"LDGSTS": "cp.async", "LDG": "LDG", "STG": "STG", "RED": "RED", "ATOMG": "ATOM"}
    if name not in kinds:
        return None
    return "load" if name in ("LDGSTS", "LDG") else "store", f"{kinds[name]} {size}"


def serialised(compiled: Compiled) -> str:
    """Return why ptxas serialises wgmma, in its own words; empty if it does not."""
    arch = f"--gpu-name={compiled.arch}a"  # wgmma is a feature of this very architecture
    command = [assembler(compiled.arch), "-v", arch, "-o", os.devnull]
    printed = _printed(command, compiled.asm["ptx"].encode())
    found = re.search(
        r"\((C\d+)\)[^\n]*?serialized (due to [^\n]*?)( in the function|$)", printed, re.M
    )
    return f"{found[2]} ({found[1]})" if found else ""


def registers(compiled: Compiled) -> int:
    return resources(compiled)["REG"]


def spills(code: Iterable[MachineInstruction]) -> int:
    return sum(i.opcode.startswith(("LDL", "STL")) for i in code)


def waits(code: Iterable[MachineInstruction]) -> list[int]:
    """Return how many wgmma groups may be in flight after each wait."""
    found = (i for i in code if i.opcode.startswith("WARPGROUP.DEPBAR"))
    return [int(i.operands.rsplit(",", 1)[-1], 16) for i in found]


def left_operands(code: Iterable[MachineInstruction]) -> str:
    """Return "SS", "RS", "TS" or several, by where wgmma's or tcgen05's left operand is."""
    found = set()
    for instruction in code:
        if re.match(r"[HIQB]GMMA", instruction.opcode):
            left = instruction.operands.split(",")[1].strip()
            found.add("RS" if re.match(r"R\d+|RZ", left) else "SS")
        if re.match(r"UTC[HQI]MMA", instruction.opcode):
            found.add("TS" if instruction.operands.startswith("tmem") else "SS")
    return ", ".join(sorted(found))
