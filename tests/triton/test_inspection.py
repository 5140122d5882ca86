"""What inspection finds in machine code, against expectations worked out by hand."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import aot_kernels
import pytest
import triton
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from convref.case import parse
from convref.cli.commands import app
from convref.errors import UnsupportedError
from convref_triton.common.geometry import operands
from convref_triton.compile import aot, hazards, inspection, layouts, sass
from convref_triton.compile.inspection import inspect, shared_bytes
from convref_triton.compile.machine_code import MachineInstruction, hot_loop, loops
from convref_triton.compile.specialize import specialize
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.launch import Descriptor, Launch, Slot

SIZES = ("M", "N", "K", "a_row", "b_row", "c_row")


def product(dtype="bf16", tile=(128, 128, 64), precision="ieee", warps=8, stages=4, **sizes):
    values = {**{n: Slot(n, dtype) for n in "abc"}, **dict.fromkeys(SIZES, 1024), "factor": 0.5}
    constants = dict(zip(("TM", "TN", "TK"), tile)) | {"PRECISION": precision}
    launch = Launch(aot_kernels.product, (8, 8, 1), {**values, **sizes}, constants, warps, stages)
    return specialize(launch)


def inspected(specialization, arch="sm_90"):
    return inspect(aot.compile(specialization, arch))


def test_a_product_on_hopper():
    """128 x 128 x 64 by 8 warps: each of two warpgroups does 64 rows in four steps of 16."""
    found = inspected(product())
    assert found.mma == {"wgmma m64n128k16": 4}
    assert found.operands == "SS"
    assert found.wait == 1
    assert set(found.loads) == {"cp.async 16"}
    assert found.loop_loads == {"cp.async 16": 8}  # 2 x 16 KiB by 256 threads of 16 bytes
    assert found.spills == 0
    stages = 4 * 2 * 128 * 64 * 2
    assert stages <= found.shared <= stages + 2048
    # Two warps a scheduler; 128 * 128 * 64 products at 2,048 a cycle take 512.
    assert found.issue == found.loop * 2 / 512
    assert 50 < found.loop < 200
    assert {str(access) for access in found.accesses} == {
        "cp.async 128x64 bf16: 128 B by 16 B",
        "cp.async 64x128 bf16: 256 B by 16 B",
        "store 128x128 bf16: 256 B by 16 B",
    }
    assert all(access.coalesced for access in found.accesses)


def test_a_product_on_ampere():
    """Each of 8 warps does 128 * 128 * 64 / (16 * 8 * 16) / 8 = 64 products."""
    found = inspected(product(), "sm_80")
    assert found.mma == {"mma.sync m16n8k16": 64}
    assert (found.operands, found.wait) == ("", None)
    assert found.loop_loads == {"cp.async 16": 8}
    assert found.issue == found.loop * 2 / 1024


def test_a_product_on_amd():
    """Each of 8 waves does 128 * 128 * 64 / (32 * 32 * 8) / 8 = 16 products."""
    found = inspected(product(), "gfx942")
    assert found.mma == {"mfma 32x32x8 bf16": 16}
    assert found.loop_loads == {"global 16": 4}  # 2 x 16 KiB by 512 threads of 16 bytes
    assert 0 < found.registers <= 512
    assert (found.spills, found.issue) == (0, None)
    assert found.loop > 16


def test_a_stride_without_a_promise_is_loaded_element_by_element():
    found = inspected(product(N=1003, b_row=1003))
    assert found.loop_loads == {"LDG 2": 32, "cp.async 16": 4}
    assert found.wait == 0
    assert found.serialised == ""  # Triton itself asked for it
    (narrow,) = [access for access in found.accesses if access.op == "load"]
    assert (narrow.shape, narrow.vector, narrow.proven) == ((64, 128), 2, False)
    assert not narrow.coalesced
    assert str(narrow) == "load 64x128 bf16: 64 B by 2 B (neighbours unproven)"
    assert found.issue > 1


@pytest.mark.parametrize(
    ("options", "mma"),
    [
        ({"dtype": "f16"}, {"wgmma m64n128k16": 4}),
        ({"dtype": "f32", "precision": "tf32", "tile": (128, 128, 32)}, {"wgmma m64n128k8": 4}),
        ({"tile": (64, 256, 64), "warps": 4, "stages": 3}, {"wgmma m64n256k16": 4}),
        ({"tile": (16, 64, 32), "warps": 4}, {"mma.sync m16n8k16": 4}),
    ],
)
def test_which_instruction_a_tile_gets(options, mma):
    assert inspected(product(**options)).mma == mma


def test_fp32_by_ieee_has_no_matrix_instruction():
    """64 x 64 x 16 products by 128 threads are 512 a thread."""
    found = inspected(product("f32", (64, 64, 16), warps=4, stages=2))
    assert found.mma == {"FFMA": 512}
    assert found.issue == found.loop / (64 * 64 * 16 / 128)


def test_boxes_come_by_tma():
    box = {"shape": (1024, 1024), "strides": (1024, 1)}
    arguments = {
        "a": Descriptor(Slot("a", "bf16"), block=(128, 64), **box),
        "b": Descriptor(Slot("b", "bf16"), block=(64, 128), **box),
        "c": Slot("c", "bf16"),
        **{"c_row": 1024, "K": 1024},
    }
    tile = {"TM": 128, "TN": 128, "TK": 64}
    launch = Launch(aot_kernels.product_of_boxes, (8, 8, 1), arguments, tile, 8, 3)
    found = inspected(specialize(launch))
    assert set(found.loop_loads) == {"TMA 2d"}
    assert found.operands == "SS"


def test_spills_are_counted():
    """128 threads hold 256 x 256 sums: 512 registers, where there are 255."""
    large = product(tile=(256, 256, 32), warps=4, stages=2)
    found = inspected(large, "sm_80")
    assert found.registers == 255
    assert found.spills > 512
    assert sass.resources(aot.compile(large, "sm_80"))["STACK"] > 4 * 256


@pytest.mark.parametrize("arch", ["sm_90", "sm_80", "gfx942"])
def test_shared_memory_needs_no_disassembler(arch, monkeypatch):
    found = inspected(product(), arch)
    monkeypatch.setattr(sass, "text", None)
    made = aot.compile(product(), arch)
    assert shared_bytes(made) == found.shared >= made.metadata["shared"] > 0
    assert arch == "gfx942" or sass.resources(made)["STACK"] == found.spills == 0


def test_kernels_are_disassembled_together(monkeypatch, tmp_path):
    """One process for each architecture gives the instructions that one for each kernel gives."""
    other = product(tile=(64, 256, 64), warps=4, stages=3)
    made = [aot.compile(one, "sm_90") for one in (product(), other)]
    made.append(aot.compile(product(), "sm_80"))
    alone = [sass.parse(sass.text(one)) for one in made]
    assert len({tuple(code) for code in alone}) == len(made)
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    sass._cuobjdump.cache_clear()
    runs = Mock(wraps=subprocess.run)
    monkeypatch.setattr(subprocess, "run", runs)
    for _ in range(2):
        sass.disassemble(made)
        assert [sass.parse(sass.text(one)) for one in made] == alone
    assert runs.call_count == 2
    assert all(f"Function : {one.name}\n" in sass.text(one) for one in made)


def test_a_kernel_without_products_or_loop():
    slots = {"x": Slot("x", "f32"), "y": Slot("y", "f32"), "n": 4096}
    found = inspected(specialize(Launch(aot_kernels.double, (1, 1, 1), slots, {"SIZE": 512})))
    assert (found.mma, found.loop, found.issue) == ({}, None, None)
    assert (found.loads, found.stores) == ({"LDG 16": 1}, {"STG 16": 1})
    assert found.facts()["hot loop"] == "none"


@pytest.mark.parametrize(("kind", "needle"), [("sass", "HGMMA"), ("ptx", "wgmma"), ("ttgir", "#")])
def test_the_text_of_a_stage(kind, needle):
    assert needle in inspection.assembly(aot.compile(product(), "sm_90"), kind)
    assert inspection.assembly(aot.compile(product(), "sm_90"), "amdgcn") is None


def test_where_a_left_operand_comes_from():
    line = "        /*0010*/   HGMMA.64x128x16.F32.BF16 R24, {}gdesc[UR8].tnspB, R24, gsb0 ;\n"
    for register, name in (("", "SS"), ("R4, ", "RS")):
        assert sass.left_operands(sass.parse(line.format(register))) == name


def test_blackwell_is_read():
    """Products of tensor memory, and instructions of sm_120 with notes on their schedule."""
    text = """
        /*0010*/                   UTCHMMA gdesc[UR6], gdesc[UR8], tmem[UR16], tmem[UR36], idesc[UR37], !UPT ;
        /*0020*/                   UTCHMMA tmem[UR6], gdesc[UR8], tmem[UR16], tmem[UR36], idesc[UR37], UPT ;
        /*0030*/                   BRA.U UP0, 0x10                         &req={0}         ?WAIT5_END_GROUP;
        /*0040*/                   EXIT                                                     ?trans5;
    """  # noqa: E501
    loop, products = hot_loop(sass.parse(text), sass.read_mma)
    assert [i.position for i in loop] == [0x10, 0x20, 0x30]
    assert {p.name for p in products} == {"tcgen05 UTCHMMA"}
    assert sass.left_operands(loop) == "SS, TS"


WGMMA = "HGMMA.64x64x16.F32.BF16 R24, R4, gdesc[UR8], R24, gsb0"
SHARED = "HGMMA.64x64x16.F32.BF16 R88, gdesc[UR4], gdesc[UR8], R88, gsb0"
WAIT, WAIT_1 = (f"WARPGROUP.DEPBAR.LE gsb0, {n:#x}" for n in (0, 1))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ((WGMMA, "MOV R4, R9", WAIT), "MOV R4, R9 at 0x10"),
        ((WGMMA, WAIT, "MOV R4, R9"), ""),
        ((WGMMA, "MOV R8, R9", WAIT), ""),
        ((WGMMA, "LDS.128 R0, [R9]", "LDS.128 R4, [R9]", WAIT), "LDS.128 R4, [R9] at 0x20"),
        ((WGMMA, "LDSM.16.MT88.4 R2, [R9]", WAIT), "LDSM.16.MT88.4 R2, [R9] at 0x10"),
        ((WGMMA, "SHFL.BFLY PT, R7, R9, 0x1", WAIT), "SHFL.BFLY PT, R7, R9, 0x1 at 0x10"),
        ((WGMMA, "ISETP.GE.AND P0, PT, R4, R9, PT", "STS [R4], R5", WAIT), ""),
        ((WGMMA, "FADD R55, R9, R9", WAIT), "FADD R55, R9, R9 at 0x10"),
        ((SHARED, "MOV R4, R9", WAIT), ""),
        ((WGMMA, SHARED, WAIT_1, "MOV R4, R9"), ""),
        ((WGMMA, WAIT_1, "MOV R4, R9"), "MOV R4, R9 at 0x20"),
        (("MOV R4, R9", WGMMA, "@P0 BRA 0x0", WAIT), "MOV R4, R9 at 0x0"),
        (("MOV R4, R9", WGMMA, WAIT, "@P0 BRA 0x0"), ""),
    ],
)
def test_writes_to_registers_of_a_wgmma_in_flight(rows, found):
    text = "".join(f"        /*{16 * i:04x}*/   {row} ;\n" for i, row in enumerate(rows))
    assert hazards.overwritten(sass.parse(text)) == ((found,) if found else ())


@pytest.mark.parametrize("release", ["13.2", "13.3", None])
def test_a_kernel_that_overwrites_them_is_refused(release, monkeypatch, tmp_path):
    """Only where a left operand is in registers, which its PTX shows, is it disassembled."""
    ptxas = tmp_path / "nvidia" / "cu13" / "bin" / "ptxas"
    if release:
        ptxas.parent.mkdir(parents=True)
        ptxas.write_text(f"#!/bin/sh\necho V{release}.1\n", "utf-8")
        ptxas.chmod(0o755)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    call = parse("conv.fprop:n8c64k64_i28x28_f1x1:bias=0:math=tf32x3:mem=nhwc").call
    made = aot.compile(specialize(plan(call, operands(call)).steps[0]), "sm_90")
    hazards.guard(made)
    texts = iter([re.sub("WARPGROUP.DEPBAR", "WARPGROUP.ARRIVE", sass.text(made))])
    monkeypatch.setattr(sass, "text", lambda compiled: next(texts))
    hazards.guard(aot.compile(product(), "sm_90"))
    advised = str(ptxas) if release == "13.3" else "that of `pip install nvidia-cuda-nvcc`"
    refused = rf"triton: gather: ptxas \d+.* overwrites .* TRITON_PTXAS_PATH to {advised}$"
    with pytest.raises(UnsupportedError, match=refused):
        hazards.guard(made)


def code(*rows):
    """Return instructions, each as (opcode, target or None, falls through)."""
    return [
        MachineInstruction(at, op, "", target, falls) for at, (op, target, falls) in enumerate(rows)
    ]


def test_a_backward_branch_is_a_loop_only_if_it_returns():
    """Out-of-line code at the end returns to the middle of earlier code."""
    straight = code(
        ("ISETP", None, True), ("BRA", 4, True), ("FFMA", None, True), ("EXIT", None, False),
        ("MOV", None, True), ("BRA", 2, False),
    )  # fmt: skip
    assert loops(straight) == set()
    body = code(
        ("MOV", None, True), ("FFMA", None, True), ("BRA", 5, True), ("BRA", 1, True),
        ("EXIT", None, False), ("FADD", None, True), ("BRA", 3, False), ("BRA", 7, False),
    )  # fmt: skip
    assert loops(body) == {frozenset({1, 2, 3, 5, 6}), frozenset({7})}


def test_the_innermost_loop_around_the_products():
    nested = code(
        ("FFMA", None, True), ("FFMA", None, True), ("BRA", 1, True), ("LDG", None, True),
        ("BRA", 3, True), ("BRA", 0, True), ("EXIT", None, False),
    )  # fmt: skip
    loop, products = hot_loop(nested, sass.read_mma)
    assert [i.position for i in loop] == [1, 2]
    assert len(products) == 1


def test_matrix_instructions_count_before_the_adds_around_them():
    mixed = code(("HMMA.16816.F32.BF16", None, True), ("FFMA", None, True), ("BRA", 0, True))
    assert [p.name for p in hot_loop(mixed, sass.read_mma)[1]] == ["mma.sync m16n8k16"]


POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def blocked_layouts(draw):
    """Return a blocked layout, the same by basis vectors, and a shape that it covers."""
    rank = draw(st.integers(1, 3))
    sizes = st.lists(POWERS, min_size=rank, max_size=rank)
    each, threads = draw(sizes), draw(sizes)
    order = draw(st.permutations(range(rank)))
    each[order[0]] *= 2  # else basis vectors do not tell which axis comes first
    bases = {"register": [], "lane": []}
    covered = [1] * rank
    for name, counts in (("register", each), ("lane", threads)):
        for axis in order:
            for _ in range(counts[axis].bit_length() - 1):
                bases[name].append([covered[axis] if a == axis else 0 for a in range(rank)])
                covered[axis] *= 2
    text = f"sizePerThread = {each}, threadsPerWarp = {threads}, warpsPerCTA = {each}"
    blocked = f"#ttg.blocked<{{{text}, order = {list(order)}}}>"
    linear = f"#ttg.linear<{{register = {bases['register']}, lane = {bases['lane']}, warp = []}}>"
    return blocked, linear, tuple(2 * n for n in covered)


@given(drawn=blocked_layouts())
def test_a_blocked_layout_and_its_basis_vectors_agree(drawn):
    blocked, linear, shape = drawn
    assert layouts._run(linear, shape) == layouts._run(blocked, shape)


TTGIR = """
#blocked = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], order = [1, 0]}>
#mma = #ttg.nvidia_mma<{versionMajor = 3, instrShape = [16, 128, 16]}>
  %0 = tt.load %p, %m, %c : tensor<32x64x!tt.ptr<f32>, #blocked> loc(#loc1)
  %0 = tt.load %p, %m, %c : tensor<32x64x!tt.ptr<f32>, #blocked> loc(#loc2)
  %1 = tt.load %q : tensor<64x!tt.ptr<f32>, #ttg.slice<{dim = 0, parent = #blocked}>> loc(#loc1)
  %2 = tt.load %q : !tt.ptr<f32>
  tt.store %p, %v, %m : tensor<64x128x!tt.ptr<bf16>, #mma> loc(#loc1)
  tt.store %p, %v, %m : tensor<64x128x!tt.ptr<bf16>, #new_fangled> loc(#loc1)
"""


def test_accesses_of_a_module():
    assert [str(access) for access in layouts.accesses(TTGIR)] == [
        "load 32x64 f32: 256 B by 16 B",
        "load 64 f32: 256 B by 16 B",
        "store 64x128 bf16: 16 B by 4 B (short rows)",
    ]


def test_facts_are_text():
    facts = replace(inspected(product()), from_disk=True, seconds=0.5).facts()
    assert facts["products"] == "4 wgmma m64n128k16 from SS, 1 in flight at the wait"
    assert facts["compiled in"] == "0.50 s (from the cache)"
    assert all(isinstance(text, str) for text in facts.values())


LINE = "conv.fprop:n32c64k64_i56x56_f3x3_p1x1:dt=bf16:mem=nhwc"


def command_line(*arguments):
    result = CliRunner().invoke(
        app, ["inspect", *arguments], env={"COLUMNS": "200", "TERM": "dumb"}
    )
    return result.exit_code, re.sub(r"\x1b\[[0-9;]*m", "", result.output), result.exception


BACKEND = ("--backend", "convref_triton.backend:backend")


@pytest.mark.parametrize(
    ("arch", "needle"), [("sm_90", "wgmma m64"), ("sm_80", "mma.sync m16n8k16"), ("gfx942", "mfma")]
)
def test_inspect_command_shows_the_compiled_kernels(arch, needle):
    status, output, _ = command_line(LINE, "--arch", arch, *BACKEND)
    assert status == 0
    for text in (arch, needle, "registers", "shared memory", "hot loop"):
        assert text in output


@pytest.mark.parametrize(
    ("asm", "needle"), [("ptx", ".target sm_90a"), ("ttgir", "ttg."), ("sass", "BRA")]
)
def test_the_command_prints_a_stage(asm, needle):
    status, output, _ = command_line(LINE, "--asm", asm, *BACKEND)
    assert status == 0
    assert needle in output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((LINE, "--asm", "elf", *BACKEND), "inspect: --asm is 'elf', needs one of llir"),
        ((LINE, "--arch", "sm90", *BACKEND), "arch: is 'sm90', needs sm_90"),
        ((LINE, "--arch", "gfx9zz", *BACKEND), "gather for gfx9zz: unsupported target: 'gfx9zz'"),
        ((LINE, "--backend", "numpy"), "inspect: numpy: it has no code to show"),
        ((LINE.replace("bf16", "f64"), *BACKEND), "inspect: convref_triton.backend:backend: "),
    ],
)
def test_inspect_command_refuses_unknown_input(arguments, text):
    status, _, error = command_line(*arguments)
    assert status != 0
    assert str(error).startswith(text)


@pytest.mark.skipif(
    not triton.__version__.startswith("3.6."), reason="another Triton's products need not wait"
)
def test_serialised_products_show_the_warning_of_ptxas():
    """Triton asks for one product in flight; ptxas finds the sums touched in between."""
    line = "conv.fprop:n8c128k128_i28x28_f1x1:bias=0:dt=bf16:mem=nhwc"
    call = parse(line).call
    choices = {(c.kernel, c.tile[:3]): c for c in offered(call, operands(call))}
    choice = choices["gather", (128, 256, 64)]
    (launch,) = plan(call, operands(call), choice).launches
    found = inspect(aot.compile(specialize(launch), "sm_90"))
    assert found.wait == 0
    assert re.search(r"accumulator registers .*\(C7515\)", found.serialised)
