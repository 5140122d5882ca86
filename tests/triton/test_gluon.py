"""Kernels in Gluon: the compiled code, how they are launched, when they are chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from convref.case import Spec, parse
from convref.errors import ConvrefError

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

import triton
from forced import nightly
from test_plan import card, records  # noqa: F401
from test_specialize import TYPES
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.jit import create_function_from_signature

from convref_triton.backend import backend, cached_plan
from convref_triton.common.epilogue import ACTIVATIONS
from convref_triton.common.geometry import Tensor, layout_of, operands
from convref_triton.compile import aot, classes, inspection, versions
from convref_triton.compile.expectations import shortfalls
from convref_triton.compile.specialize import specialize
from convref_triton.hopper import gluon, ring
from convref_triton.plan import archs
from convref_triton.plan.choose import EXCLUDED, offered, plan
from convref_triton.plan.kernels import BY_NAME
from convref_triton.plan.launch import Descriptor, Slot
from convref_triton.plan.spec import KernelSpec
from convref_triton.plan.task import UNFUSED, Fusion
from convref_triton.run import gpu

pytestmark = pytest.mark.skipif(
    not gluon.KERNELS, reason=f"the kernels are not for the Gluon of Triton {triton.__version__}"
)
NAMES = sorted(spec.name for spec in gluon.KERNELS)
UNPROVEN = {"gluon_fprop", "gluon_halo"}  # in tests that ask for `unproven`
SHARED = 227 * 1024  # bytes of a block
MARK = 56  # instructions of a step in every kernel
# Where it is missed: uniform registers are copied to where a product reads its descriptors.
OVER = {("gluon_fprop", "256x128"): 3, ("gluon_wgrad", "256x128"): 2, ("wgrad 1x1", "128x128"): 1}

# A side is read into registers once for several taps, while the other group multiplies.
WEAKER = {"gluon_halo_wgrad": ("RS", 0)}

LINES = {
    "fprop by 16": "conv.fprop:n8c256k256_i28x28_f3x3_p1:dt=bf16:mem=nhwc",
    "fprop by 8": "conv.fprop:n8c72k104_i28x28_f3x3_p1:dt=bf16:mem=nhwc",
    "fprop wide": "conv.fprop:n2c128k128_i6000x6000_f3x3_p1:dt=bf16:mem=nhwc",
    "dgrad by 16": "conv.dgrad:n8c256k256_i28x28_f3x3_p1:dt=f16:mem=nhwc",
    "dgrad by 8": "conv.dgrad:n8c72k104_i28x28_f3x3_p1:dt=bf16:mem=nhwc",
    "1x1": "conv.fprop:n8c256k256_i28x28_f1x1:dt=f16:mem=nhwc",
    "strided": "conv.fprop:n8c128k128_i28x28_f3x3_s2_p1:dt=bf16:mem=nhwc",
    "dgrad strided": "conv.dgrad:n8c128k72_i28x28_f3x3_s2_p1:dt=bf16:mem=nhwc",
    "1d": "conv.fprop:n8c64k128_i900_f5_p2,3_d2:dt=bf16:mem=nhwc",
    "3d": "conv.fprop:n2c64k128_i9x12x13_f3x3x3_p1:dt=f16:mem=nhwc",
    "groups": "conv.fprop:n8c256k256g2_i28x28_f3x3_p1:dt=bf16:mem=nhwc",
    "jvp": "conv.jvp:n8c128k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc",
    "wgrad by 16": "conv.wgrad:n8c256k256_i28x28_f3x3_p1:dt=bf16:mem=nhwc",
    "wgrad by 8": "conv.wgrad:n8c72k104_i28x28_f3x3_p1:dt=f16:mem=nhwc",
    "wgrad strided": "conv.wgrad:n8c128k256_i32x32_f3x3_s2_p1:dt=bf16:mem=nhwc",
    "wgrad 1x1": "conv.wgrad:n8c256k64_i56x56_f1x1:dt=bf16:mem=nhwc",
    "wgrad wide": "conv.wgrad:n1c32768k32776_i8x8_f3x3_p1:dt=bf16:mem=nhwc",
}
EACH = ("fprop by 16", "wgrad by 16")  # on every tile; one for others
# Compiled nightly: other ranks and vectors of the same loops.
LATER = ("1d", "3d", "dgrad by 8", "wgrad by 8", "wgrad wide")


@pytest.fixture
def unproven(monkeypatch):
    """Kernels that no card has run, among others that one has, with any Triton."""
    marked = property(lambda spec: spec.name in UNPROVEN)
    monkeypatch.setattr(KernelSpec, "unproven", marked)


def rows(name):
    """Return the call of a line, and choices: all that a few lines have, else one a kernel."""
    call = on_gpu(LINES[name])
    found = [[c for c in gluon_choices(call) if c.kernel == kernel] for kernel in NAMES]
    some = [rows if name in EACH else rows[len(name) % len(rows) :][:1] for rows in found if rows]
    return call, [choice for rows in some for choice in rows]


def on_gpu(line):
    """Return the call of a line with operands on a GPU."""
    return parse(f"{line}:dev=cuda").call


def gluon_choices(call, arch="sm_90"):
    """Return the choices for a call that are written in Gluon."""
    return [c for c in offered(call, operands(call), arch) if c.kernel in NAMES]


def launch_of(call, choice):
    """Return the launch of a choice."""
    launches = plan(call, operands(call), choice).launches
    return next(s for s in launches if s.kernel.__name__ == choice.kernel)


@pytest.mark.parametrize("name", [nightly(n) if n in LATER else n for n in LINES])
def test_every_tile_uses_wgmma_without_spills(name):
    call, choices = rows(name)
    assert choices
    launches = [launch_of(call, choice) for choice in choices]
    made = [aot.compile(specialize(launch), "sm_90") for launch in launches]
    for choice, launch, found in zip(choices, launches, inspection.inspect_all(made)):
        if name in EACH:
            shape, _, size = name.replace(" 16", "_16").partition(" ")
            example = classes.Example("", shape, size, "bf16", LINES[name])
            assert not shortfalls(classes.Specimen(example, choice, launch, "sm_90"), found)
        operands_, wait = WEAKER.get(choice.kernel, ("SS", 1))
        assert (found.operands, found.spills) == (operands_, 0), choice
        assert found.wait >= wait
        assert not found.serialised
        assert found.shared <= SHARED
        assert set(found.stores) <= {"STG 16", "STG 8"}
        assert any("TMA" in load for load in found.loads)
        assert all(load.startswith("TMA") or load == "LDG 16" for load in found.loads)
        assert all("wgmma" in product for product in found.mma)
        assert len(found.steps) == ring.GROUPS
        size = f"{choice.tile.bm}x{choice.tile.bn}"
        over = max(OVER.get((where, size), 0) for where in (choice.kernel, name))
        of = launch.constants["CONFIG"].shared  # steps of a loop
        assert max(found.steps) <= (MARK + over) * of, choice


def test_each_kernel_is_compiled_on_each_tile():
    assert {choice.kernel for name in EACH for choice in rows(name)[1]} == set(NAMES)


@pytest.mark.parametrize("activation", [a if a == "gelu" else nightly(a) for a in ACTIVATIONS[1:]])
def test_epilogues_do_not_spill(activation):
    """Gelu takes the most registers."""
    call = on_gpu(LINES["fprop by 16"])
    y = call.problem.shape("y")
    known = operands(call) | {"z": layout_of("z", y, "nkpq", Spec("bf16", "npqk"))}
    known |= {name: Tensor(name, y[1:2], (1,), "bf16") for name in ("scale", "shift")}
    fusion = Fusion("scale", "shift", "z", activation)
    for choice in gluon_choices(call)[1:3]:  # a group of each has 128 rows of 128 sums
        made = plan(call, known, choice, fusion=fusion)
        launch = made.launches[0]
        found = inspection.inspect(aot.compile(specialize(launch), "sm_90"))
        assert (found.operands, found.spills) == ("SS", 0)
        assert set(found.stores) == {"STG 16"}


def test_odd_result_channels_do_not_spill():
    call = on_gpu("conv.fprop:n2c64k65_i30_f3:dt=f16:mem=nhwc")
    choice = gluon_choices(call)[0]
    found = inspection.inspect(aot.compile(specialize(launch_of(call, choice)), "sm_90"))
    assert (found.operands, found.spills) == ("SS", 0)


@pytest.mark.parametrize("name", LINES)
def test_specialization_matches_triton(name):
    call, found = rows(name)
    for choice in found:
        launch = launch_of(call, choice)
        ours, kernel = specialize(launch), launch.kernel
        target = make_backend(GPUTarget("cuda", 90, 32))
        bind = create_function_from_signature(kernel.signature, kernel.params, target)
        given = launch.constants | {n: argument(v) for n, v in launch.arguments.items()}
        options = {"num_warps": launch.warps, "num_stages": launch.stages}
        bound, specialization, rest = bind(**given, **options)
        _, signature, constants, attributes = kernel._pack_args(
            target, {**rest}, bound, specialization, rest
        )
        assert ours.signature == signature
        assert repr(list(ours.constants.values())) == repr(list(constants.values()))
        assert ours.attributes == {p: m for p, m in attributes.items() if m and p not in constants}


def argument(value):
    """Return an argument of a launch in the form of Triton's launcher."""
    if isinstance(value, Slot):
        return torch.empty(64, dtype=TYPES[value.dtype])
    if not isinstance(value, Descriptor):
        return value
    kind = {"bf16": gl.bfloat16, "f16": gl.float16}[value.slot.dtype]
    layout = gl.NVMMASharedLayout.get_default_for(list(value.block), kind)
    base = torch.empty(64, dtype=TYPES[value.slot.dtype])
    return TensorDescriptor(base, list(value.shape), list(value.strides), list(value.block), layout)


def encoded(box):
    """Return the driver's arguments of a tensor map: innermost axis first, lines of 128 bytes."""
    sizes, (_, *steps) = box.shape[::-1], box.strides[::-1]
    every = (box.every or (1,) * len(sizes))[::-1]
    spans = zip((min(box.block[-1], 64), *box.block[-2::-1]), every)
    edges = [f"{(edge - 1) * step + 1}/{step}" for edge, step in spans]
    return (
        f"dim {' '.join(map(str, sizes))} strides {' '.join(str(2 * step) for step in steps)} "
        f"box {' '.join(edges)} 0 3 2 0"
    )


@pytest.mark.parametrize(
    "name", ["fprop by 8", "dgrad by 16", "1x1", "strided", "3d", "wgrad strided"]
)
def test_launch_through_the_driver(device, name):
    call, found = rows(name)
    for choice in found:
        made = plan(call, operands(call), choice)
        ready, launch = gpu.prepare(made, device), launch_of(call, choice)
        known = [operands(call)[role] for role in ready.roles]
        given = [torch.empty_strided(t.shape, t.strides, dtype=TYPES[t.dtype]) for t in known]
        device.driver.log()
        ready(given)
        log = device.driver.log()
        threads = 32 * (ring.GROUPS * ring.WARPS + 4)  # the warp that loads takes a group's place
        assert sum(f" block {threads} 1 1 " in line for line in log) == 1
        maps = [line for line in log if line.startswith("map ")]
        boxes = [v for v in launch.arguments.values() if isinstance(v, Descriptor)]
        assert len(maps) == len(boxes) > 0
        for line, box in zip(maps, boxes):
            assert line.endswith(encoded(box))


LINE = LINES["fprop by 16"]


@pytest.mark.parametrize("name", ["fprop by 16", "dgrad strided", "wgrad by 16"])
def test_grid_has_one_program_per_multiprocessor(name, device):
    call, found = rows(name)
    facts, grids = tuple(operands(call).values()), {}
    for sms in (7, 0, 2**20):  # 0: as many as plans assume
        made = cached_plan(call, facts, found[0], UNFUSED, replace(device, sms=sms), False)
        ours = [s for s in made.launches if s.kernel.__name__ in NAMES]
        grids[sms] = [step.grid[0] for step in ours]
    assert grids[7] == [min(n, 7) for n in grids[2**20]]
    assert grids[0] == [min(n, archs.SMS) for n in grids[2**20]]
    assert max(grids[2**20]) > 7


@pytest.mark.usefixtures("unproven")
def test_unproven_kernels_are_not_chosen_and_the_reason_is_given():
    for line in LINES.values():
        call = on_gpu(line)
        made = plan(call, operands(call))
        kernels = {s.kernel.__name__ for s in made.launches}
        assert not kernels & UNPROVEN
        assert (EXCLUDED in made.reason) == (call.wanted != ("dw",))


@pytest.mark.usefixtures("unproven")
def test_unproven_kernels_are_chosen_by_the_estimate_if_allowed():
    taken = set()
    for line in LINES.values():
        call = on_gpu(line)
        reason = plan(call, operands(call), unproven=True).reason
        taken |= {reason.split()[1]} & set(NAMES)
        assert EXCLUDED not in reason
        assert ("; no card has run it" in reason) == (reason.split()[1] in UNPROVEN)
    assert len(taken) >= 2


def test_versions_are_compiled_or_refused_with_a_reason(monkeypatch, capsys):
    shown = (BY_NAME["bgrad"], gluon.absent("gluon_halo", ""))
    monkeypatch.setattr(versions, "KERNELS", shown)
    monkeypatch.setattr(gluon, "ABSENT", shown[1:])
    monkeypatch.setattr(gluon, "lacks", lambda name: "another Gluon")
    assert versions.main([]) == 0
    assert (
        "| bgrad | compiled |\n| gluon_halo | refused: another Gluon |" in capsys.readouterr().out
    )
    broken = aot.CompileError("no such instruction")
    monkeypatch.setattr(aot, "compile", Mock(side_effect=broken))
    assert versions.main([]) == 1
    assert "| bgrad | failed: no such instruction |" in capsys.readouterr().out


def test_measured_row_chooses_one(card):  # noqa: F811
    call = on_gpu(LINE.replace(":dt", ":bias=0:dt"))
    choice = gluon_choices(call)[0]
    name = card(records(choice, 1.0, 2.0, line=str(call)))
    assert plan(call, operands(call), card=name).reason == f"y: {choice} (measured)"


@pytest.mark.parametrize(
    ("line", "arch", "reason"),
    [
        (f"{LINE}:dev=cuda", "sm_80", "sm_80 has no wgmma"),
        (f"{LINE}:dev=cuda", "sm_100", "sm_100 has no wgmma"),
        (LINE, "sm_90", "the interpreter has no Gluon"),
        (
            f"{LINE.replace('p1', 's9_p1')}:dev=cuda",
            "sm_90",
            "boxes hold pixels that are at",
        ),
        (
            f"{LINES['dgrad by 8'].replace('p1', 's5_p1')}:dev=cuda",
            "sm_90",
            "more than 16 parity classes",
        ),
    ],
)
def test_gluon_fprop_is_not_offered(line, arch, reason):
    call = parse(line).call
    assert gluon_choices(call, arch) == []
    assert f"no gluon_fprop: {reason}" in plan(call, operands(call), arch=arch).reason


@pytest.mark.usefixtures("unproven")
def test_tuner_on_a_gpu_is_offered_them(device, monkeypatch):
    monkeypatch.setattr(gpu, "cuda", lambda index: device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for line in (LINE, LINES["dgrad by 8"], LINES["wgrad 1x1"]):
        kernels = [choice.kernel for choice in backend.configurations(on_gpu(line))]
        assert set(kernels) & set(NAMES)
        assert all(
            c.unproven == (c.kernel in UNPROVEN) for c in backend.configurations(on_gpu(line))
        )
    assert not {c.kernel for c in backend.configurations(parse(LINE).call)} & set(NAMES)


@pytest.mark.usefixtures("unproven")
def test_inspect_by_kernel_and_tile():
    call = parse(LINE).call
    (shown,) = backend.inspect(call, "sm_90", "gluon_fprop 128x128")
    assert "wgmma m64n128k16 from SS" in shown.facts["products"]
    assert shown.title.startswith("gluon_fprop, grid 98x1x1")
    with pytest.raises(ConvrefError, match="'glue' begins no choice, needs one of columns, im2col"):
        backend.inspect(call, "sm_90", "glue")


def test_other_triton_versions_have_no_gluon_kernels():
    """The package works without Gluon, and what is precompiled is considered."""
    code = """
import sys, triton
triton.__version__ = "3.10.0"
sys.modules["triton.experimental.gluon"] = None
from convref.case import Spec
from convref.errors import ConvrefError
from convref.case import parse
from convref_triton.hopper import gluon
from convref_triton import backend
assert gluon.KERNELS == ()
backend._current = lambda call: None
call = parse(sys.argv[1]).call
print(backend.TritonBackend().describe(call), backend.backend.describe(call), sep="\\n")
"""
    command = [sys.executable, "-c", code, f"{LINE}:dev=cuda"]
    env = {**os.environ, "CONVREF_UNPROVEN": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr
    for text in done.stdout.splitlines()[::2]:
        assert "im2col" in text.partition("; no ")[0]
        for name in ("gluon_fprop", "gluon_halo"):
            assert f"no {name}: it is written for the Gluon of Triton 3.6 to 3.9" in text
