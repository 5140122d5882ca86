"""Export the planned kernels of a call: cubin and PTX, a description in JSON, a C header.

`convref_driver` launches them without Triton, the header without Python.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import triton

from convref.case import Call, axis_letters, channels_last, parse
from convref.errors import UnsupportedError, invalid, message, shorten
from convref_driver.exported import ALIGN, Address, Export, Invocation, Map, Memory, itemsize
from convref_driver.header import header

from .backend import TritonBackend, ranked_configurations
from .common.geometry import operands
from .compile import aot, hazards
from .compile.specialize import specialize
from .hopper.precompiled import assembler, assembler_version
from .plan import archs
from .plan.builder import NEW
from .plan.launch import Descriptor, KernelPlan, Launch, Slot, flatten
from .run import gpu


def main(words: list[str]) -> int:
    """Write the files that `convref export` is asked for, and print their names."""
    parser = argparse.ArgumentParser(
        prog="convref export",
        description="Write the kernels of a line with a description and a C header.",
    )
    parser.add_argument("line", help="a case line; its mem= sets the strides of operands")
    parser.add_argument("--arch", default=archs.DEFAULT, help="sm_90 (default), sm_80 ...")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the files")
    parser.add_argument("--name", default="", help="prefix of the C functions and files")
    parser.add_argument("--kernel", default="", help="kernel and tile, by how its name begins")
    parser.add_argument("--sms", type=int, default=archs.SMS, help="multiprocessors of the card")
    parser.add_argument("--unproven", action="store_true", help="allow kernels that no card ran")
    given = parser.parse_args(words)
    for path in export(**vars(given)):
        print(path)
    return 0


def export(
    line: str | Call,
    out: str | Path,
    arch: str = archs.DEFAULT,
    name: str = "",
    kernel: str = "",
    sms: int = archs.SMS,
    unproven: bool = False,
) -> list[Path]:
    """Write the kernels of a call, compiled for an architecture; return the files.

    Parameters
    ----------
    line : str or Call
        The call; `mem=` in a line sets memory order and strides of operands.
    out : str or Path
        A folder, made if it does not exist.
    arch : str
        An NVIDIA architecture, such as "sm_90".
    name : str
        Prefix of the files and of the functions in C; by default that of the pass: "conv_fprop".
    kernel : str
        How the name of a kernel and tile begins, instead of the default.
    sms : int
        Multiprocessors of the card, which the choice depends on.
    unproven : bool
        Whether kernels may be chosen that no card has run.

    Returns
    -------
    list of Path
        The description, the header, and for each binary a cubin and its PTX.

    Raises
    ------
    UnsupportedError
        If there is no kernel, nothing to launch, or the plan copies an operand.
    """
    call = parse(line).call if isinstance(line, str) else line
    name = name or str(call).partition(":")[0].replace(".", "_")
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise invalid("export", f"name is {shorten(repr(name))}, needs an identifier of C")
    if not arch.startswith("sm_"):
        raise UnsupportedError(message("export", f"{arch} has no CUDA driver, needs sm_90 or like"))
    made, binaries = compile_export(call, name, arch, kernel, sms, unproven)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str | bytes] = {f"{name}.json": made.to_json(), f"{name}.h": header(made)}
    for image, compiled in binaries.items():
        files |= {f"{image}.cubin": compiled.binary, f"{image}.ptx": compiled.asm["ptx"]}
    for file, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / file).write_bytes(data)
    return [folder / file for file in files]


def compile_export(
    call: Call, name: str, arch: str, kernel: str = "", sms: int = archs.SMS, unproven: bool = False
) -> tuple[Export, dict[str, aot.Compiled]]:
    """Return the export of a call, and its binaries by image."""
    if sms < 1:
        raise invalid("export", f"sms is {sms}, needs a positive number")
    call = replace(call, specs=tuple(replace(spec, device="cuda") for spec in call.specs))
    backend = TritonBackend(unproven=unproven)
    plan = backend.plan_for(call, arch, kernel, sms)
    if plan.copies:
        raise UnsupportedError(message("export", _copied(backend, call, plan, arch, sms), call))
    if not plan.launches:
        raise UnsupportedError(message("export", "an empty result, nothing is launched", call))
    if plan.tables:
        raise UnsupportedError(message("export", "the plan has tables of numbers", call))
    binaries: dict[str, aot.Compiled] = {}
    launches = tuple(_invocations(plan, name, arch, binaries))
    version = assembler_version(assembler(arch))
    kernels = "; ".join(re.findall(r"(\w[\w, ]*: \w+ \d+x[^(]*) \(", plan.reason))
    made_by = f"{kernels}; compiled by Triton {triton.__version__} and ptxas {version}"
    tensors = dict(_tensors(call, plan, launches))
    return Export(name, str(call), arch, made_by, tensors, launches), binaries


def _copied(backend: TritonBackend, call: Call, plan: KernelPlan, arch: str, sms: int) -> str:
    """Return which operand a plan copies, and a kernel or a memory order without a copy."""
    copy = plan.copies[0]
    used = {launch.kernel.__name__ for launch in plan.launches}
    choices = sorted(ranked_configurations(call, arch, sms), key=lambda c: c.kernel not in used)
    fits = (c for c in map(str, choices) if not backend.plan_for(call, arch, c, sms).copies)
    role, strides = copy.source.partition(".")[0], plan.buffers[copy.target].strides
    letters = axis_letters(call.problem, role)
    order = "".join(letter for _, letter in sorted(zip(strides, letters), key=lambda s: -s[0]))
    needed = "mem=nhwc" if order == channels_last(letters) else f"mem={role}.{order}"
    if one := next(fits, ""):
        needed = f'--kernel "{one}"'
    return f"{copy.source} is copied before the first launch, needs {needed}"


def _invocations(
    plan: KernelPlan, name: str, arch: str, binaries: dict[str, aot.Compiled]
) -> Iterator[Invocation]:
    """Yield the launches of a plan, and add their binaries, each once."""
    images: dict[Any, str] = {}
    for launch in plan.launches:
        specialization = specialize(launch)
        compiled = aot.compile_or_refuse(specialization, arch)
        hazards.guard(compiled)
        image = images.setdefault(specialization.key, f"{name}.{len(images)}")
        binaries[image] = compiled
        manifest = gpu.manifest(compiled)
        hidden = len(manifest.scratch)  # null pointers
        assert not any(entry.bytes_per_block for entry in manifest.scratch), manifest.name
        kinds = *manifest.parameters, *("ptr",) * hidden
        values = *_arguments(compiled, launch), *(0,) * hidden
        yield Invocation(
            image, replace(manifest, parameters=kinds, scratch=()), launch.grid, values
        )


def _arguments(compiled: aot.Compiled, step: Launch) -> Iterator[Any]:
    boxes = iter(compiled.metadata["tensordesc_meta"] or ())
    for value in gpu.arguments(compiled, step):
        if isinstance(value, Descriptor):
            box = next(boxes)
            form = value.shape, value.strides, tuple(box["block_size"]), box["swizzle"], value.every
            yield Map(value.slot.role, value.slot.dtype, *form, *value.corners)
        else:
            yield Address(value.role) if isinstance(value, Slot) else value


def _tensors(
    call: Call, plan: KernelPlan, launches: tuple[Invocation, ...]
) -> Iterator[tuple[str, Memory]]:
    """Yield the operands that are read, in the order of the call, and the plan's buffers."""
    values = flatten(tuple(tuple(step.arguments.values()) for step in plan.steps))
    slots = [value.slot if isinstance(value, Descriptor) else value for value in values]
    aligned = {slot.role: slot.aligned for slot in slots if isinstance(slot, Slot)}
    for role, tensor in operands(call).items():
        if role in aligned:
            align = ALIGN if aligned[role] else itemsize(tensor.dtype)
            yield role, Memory("operand", tensor.dtype, tensor.shape, tensor.strides, align)
    for name, made in plan.buffers.items():
        use = "result" if name.removesuffix(NEW) in call.wanted else "workspace"
        yield name, Memory(use, made.dtype, made.shape, made.strides, ALIGN)
