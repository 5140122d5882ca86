"""Plans on a device: on a stand-in for the driver here, on a GPU where there is one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from math import prod
from pathlib import Path
from types import SimpleNamespace

import aot_kernels
import pytest
import torch

from convref import dispatch
from convref.case import parse
from convref.errors import ConvrefError, UnsupportedError
from convref_driver.manifest import FORMATS
from convref_triton.backend import TritonBackend, backend
from convref_triton.common.geometry import operands
from convref_triton.compile import aot
from convref_triton.compile.specialize import specialize
from convref_triton.plan.choose import plan
from convref_triton.plan.launch import Buffer, Copy, Descriptor, KernelPlan, Launch, Slot
from convref_triton.run import gpu

SIZES = {"M": 64, "N": 48, "K": 32, "a_row": 32, "b_row": 48, "c_row": 48}
PRODUCT = Launch(
    aot_kernels.product,
    (1, 1, 1),
    {**{name: Slot(name, "f32") for name in "abc"}, **SIZES, "factor": 0.5},
    {"TM": 64, "TN": 64, "TK": 32},
)
MADE = {"c": Buffer((64, 48), (48, 1), "f32")}
WHOLE = {"c": Buffer((64, 64), (64, 1), "f32")}
PLAN = KernelPlan(MADE, (PRODUCT,))
BOXES = Launch(
    aot_kernels.product_of_boxes,
    (1, 1, 1),
    {
        "a": Descriptor(Slot("a", "f32"), (64, 32), (32, 1), (64, 32)),
        "b": Descriptor(Slot("b", "f32"), (32, 48), (48, 1), (32, 64)),
        "c": Slot("c", "f32"),
        **{"c_row": 64, "K": 32},
    },
    {"TM": 64, "TN": 64, "TK": 32},
)


def matrices():
    return torch.ones(64, 32), torch.ones(32, 48)


def launches(driver):
    return [line for line in driver.log() if line.startswith("launch")]


def declared(ptx):
    """Return the bytes of each parameter that PTX declares."""
    head = ptx[ptx.index(".entry") : ptx.index("{", ptx.index(".entry"))]
    found = re.findall(
        r"\.param (?:\.align (\d+) )?\.([a-z])(\d+)[^,\n]*?(?:\[(\d+)\])?[,\n]", head
    )
    return [int(bits) // 8 * int(count or 1) for _, _, bits, count in found]


EVERY_KIND = {"plain": None, "wide": 2, "scale": 1.0, "flag": True, "low": 3, "n": 16, "step": 3}


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize(
    "launch",
    [
        PRODUCT,
        replace(PRODUCT, arguments={**PRODUCT.arguments, "M": 1, "N": 2**40}),
        BOXES,
        Launch(
            aot_kernels.every_kind,
            (1, 1, 1),
            {**{name: Slot(name, "f32") for name in "xyz"}, **EVERY_KIND},
            {},
        ),
    ],
)
def test_a_manifest_has_the_parameters_that_the_code_declares(launch, arch):
    compiled = aot.compile(specialize(launch), arch)
    made = gpu.manifest(compiled)
    sizes = [
        128 if k == "tensormap" else struct.calcsize(f"<{FORMATS[k]}") for k in made.parameters
    ]
    assert sizes + [8] * len(made.scratch) == declared(compiled.asm["ptx"])
    assert len(gpu.arguments(compiled, launch)) == len(made.parameters)
    assert made.threads == (32 * launch.warps, 1, 1)
    assert made.shared == compiled.metadata["shared"]


def test_a_plan_is_launched_with_the_addresses_of_its_tensors(device):
    a, b = matrices()
    ready = gpu.prepare(PLAN, device)
    assert ready.roles == ("a", "b")
    device.driver.log()
    device.driver.layout([8, 8, 8, 4, 4, 4])
    (c,) = ready([a, b])
    assert (c.shape, c.stride(), c.dtype) == ((64, 48), (48, 1), torch.float32)
    (line,) = launches(device.driver)
    assert "grid 1 1 1 block 128 1 1" in line
    assert "stream 0x77" in line
    words = [word.partition("@")[2] for word in line.split()[14:]]
    addresses = [tensor.data_ptr().to_bytes(8, "little").hex() for tensor in (a, b, c)]
    assert words == [*addresses, "40000000", "30000000", "20000000"]


def test_a_call_seen_before_compiles_and_loads_nothing(device, monkeypatch):
    first = gpu.prepare(PLAN, device)
    monkeypatch.setattr(aot, "compile", None)
    device.driver.log()
    assert gpu.prepare(PLAN, device) is first
    first(matrices())
    assert [line.split()[0] for line in device.driver.log()] == ["launch"]


def test_plans_of_a_class_share_a_kernel(device):
    gpu.prepare(PLAN, device)
    device.driver.log()
    other = replace(PRODUCT, arguments={**PRODUCT.arguments, "M": 32})
    gpu.prepare(KernelPlan(MADE, (other,)), device)
    assert not [line for line in device.driver.log() if line.startswith("cuModuleLoad")]


def test_a_misaligned_tensor_is_refused_by_an_aligned_binary(device):
    a, b = matrices()
    view = torch.ones(64 * 32 + 1)[1:].view(64, 32)
    with pytest.raises(ConvrefError, match="triton: a does not begin at a multiple of 16 bytes"):
        gpu.prepare(PLAN, device)([view, b])
    assert not launches(device.driver)
    slot = {"a": Slot("a", "f32", aligned=False)}
    launch = replace(PRODUCT, arguments={**PRODUCT.arguments, **slot})
    for left in (view, a):
        gpu.prepare(KernelPlan(MADE, (launch,)), device)([left, b])
    assert len(launches(device.driver)) == 2


def test_nothing_is_compiled_under_capture(device):
    recording = replace(device, capturing=lambda: True)
    with pytest.raises(UnsupportedError, match=r"needs plan\(\.\.\.\) or a call first"):
        gpu.prepare(KernelPlan(MADE, (PRODUCT,)), recording)
    assert not [line for line in device.driver.log() if line.startswith("cuModuleLoad")]


def test_tables_of_a_plan_are_on_the_device(device):
    """They are passed by address, keep their numbers, and are not copied during a capture."""
    call = parse("resize.fprop:n1c16_i5x5_o9x9:mode=cubic:mem=nhwc").call
    made, state = plan(call, operands(call)), []
    recording = replace(device, capturing=lambda: bool(state))
    ready = gpu.prepare(made, recording)
    device.driver.log()
    device.driver.layout([8] * 4)
    x = torch.zeros(1, 16, 5, 5).contiguous(memory_format=torch.channels_last)
    (y,) = ready([x])
    (line,) = launches(device.driver)
    words = [word.partition("@")[2] for word in line.split()[14:]]
    tables = ready._tables
    given = [tensor.data_ptr().to_bytes(8, "little").hex() for tensor in (x, *tables, y)]
    assert words == given
    for tensor, table in zip(tables, made.tables.values()):
        assert tensor.numpy().tobytes() == table.data
    state.append("recording")
    with pytest.raises(UnsupportedError, match="its tables were not copied to the device"):
        gpu.prepare(plan(call, operands(call)), recording)


def test_a_plan_of_kernels_that_are_there_is_made_under_capture(device):
    state = []
    recording = replace(device, capturing=lambda: bool(state))
    gpu.prepare(PLAN, recording)
    state.append("recording")
    smaller = replace(PRODUCT, arguments={**PRODUCT.arguments, "M": 32})
    gpu.prepare(KernelPlan(MADE, (smaller,)), recording)(matrices())
    assert len(launches(device.driver)) == 1


def test_prepared_plan_runs_under_capture(device):
    state = []
    recording = replace(device, capturing=lambda: bool(state))
    ready = gpu.prepare(PLAN, recording)
    state.append("recording")
    assert gpu.prepare(PLAN, recording) is ready
    ready(matrices())
    assert len(launches(device.driver)) == 1


def test_another_current_device_is_changed_for_the_call(device):
    entered = []

    @contextlib.contextmanager
    def made_current():
        entered.append("in")
        yield
        entered.append("out")

    other = replace(device, is_current=lambda: False, made_current=made_current)
    ready = gpu.prepare(PLAN, other)
    assert entered == ["in", "out"]
    ready(matrices())
    assert entered == ["in", "out"] * 2


def test_copies_and_launches_keep_their_order(device):
    """What is copied before the launch is there; a longer target ends in zeros."""
    made = {"packed": Buffer((64, 40), (40, 1), "f32"), **MADE}
    launch = replace(PRODUCT, arguments={**PRODUCT.arguments, "a": Slot("packed", "f32")})
    ready = gpu.prepare(KernelPlan(made, (Copy("a", "packed"), launch)), device)
    a, b = matrices()
    assert ready.roles == ("a", "b")
    packed, c = ready([a, b])
    assert packed[:, :32].eq(1).all()
    assert packed[:, 32:].eq(0).all()
    assert c.shape == (64, 48)


def test_tensor_maps_are_made_once_for_an_address(device):
    ready = gpu.prepare(KernelPlan(WHOLE, (BOXES,)), device)
    a, b = matrices()
    device.driver.log()
    ready([a, b])
    first = device.driver.log()
    ready([a, b])
    again = device.driver.log()
    ready([a.clone(), b])
    moved = device.driver.log()
    counts = [sum(line.startswith("map") for line in lines) for lines in (first, again, moved)]
    assert counts == [2, 0, 1]
    assert f"map 7@0 {a.data_ptr():#x} dim 32 64 strides 128 box 32/1 64/1 0 3 2 0" in first


def test_kernels_and_tensor_maps_belong_to_the_device_of_the_operands(device):
    """Another one is current and stays so; the stand-in refuses launches elsewhere."""
    driver = device.driver
    second = replace(device, place=torch.device("cpu", 1))
    driver.call("cuCtxSetCurrent", 0xC0)
    driver.log()
    gpu.prepare(KernelPlan(WHOLE, (BOXES,)), second)(matrices())
    lines, inside, done = driver.log(), "", []
    for line in lines:
        inside = line.split()[1] if line.startswith("cuCtxSetCurrent") else inside
        done += [inside] * line.startswith(("cuModuleLoad", "map", "launch"))
    assert done == ["0xc1"] * 4
    assert driver.current() == 0xC0


def test_scratch_memory_is_a_buffer_of_the_call(device, monkeypatch):
    """A kernel with 256 bytes of scratch per block receives them in its hidden pointer."""
    made = aot.compile(specialize(PRODUCT), "sm_90")
    wants = replace(made, metadata={**made.metadata, "global_scratch_size": 256})
    monkeypatch.setattr(aot, "compile", lambda specialization, arch: wants)
    monkeypatch.setattr(gpu, "_kernels", {})
    ready = gpu.prepare(KernelPlan(MADE, (replace(PRODUCT, grid=(2, 3, 1)),)), device)
    count = len(gpu.manifest(made).parameters)
    device.driver.log()
    device.driver.layout([8, 8, 8, *[4] * (count - 3), 8, 8])
    (_,) = ready(matrices())
    *_, scratch, profile = (word.partition("@")[2] for word in launches(device.driver)[0].split())
    assert int(scratch, 16) != 0
    assert int(profile, 16) == 0


def test_a_plan_of_another_size_is_another_plan(device):
    """A plan is known by its identity, which no other may take over while it is kept."""
    for rows in (8, 16, 24):
        made = {"c": Buffer((rows, 48), (48, 1), "f32")}
        (c,) = gpu.prepare(KernelPlan(made, (PRODUCT,)), device)(matrices())
        assert c.shape == (rows, 48)


LINES = [
    "conv.fprop:n2c64k64_i14x14_f3x3_p1x1:dt=bf16:mem=nhwc",
    "conv.dgrad:n2c32k48_i9x9_f3x3_s2x2_p1x1:dt=f16:mem=nhwc",
    "conv.fprop:n1c3k8_i17_f5:dt=f32",
    "conv.fprop:n32c128k128_i28x28_f3x3_p1x1:dt=bf16:mem=nhwc",  # through tensor maps
]


@pytest.mark.parametrize("line", LINES)
def test_a_convolution_is_prepared_and_launched(device, line):
    call = parse(line).call
    known = operands(call)
    made = plan(call, known)
    ready = gpu.prepare(made, device)
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[call.dtype]
    tensors = [
        torch.empty_strided(known[role].shape, known[role].strides, dtype=dtype)
        for role in ready.roles
    ]
    results = dict(zip(made.buffers, ready(tensors)))
    assert [tuple(results[role].shape) for role in call.wanted] == [
        call.problem.shape(role) for role in call.wanted
    ]
    assert len(launches(device.driver)) == len(made.launches)


@pytest.mark.parametrize("line", LINES)
def test_kernels_of_a_plan_compile_ahead_of_time(line):
    call = parse(line).call
    wanted = gpu.specializations(plan(call, operands(call)))
    assert wanted
    for specialization in wanted:
        assert aot.compile(specialization, "sm_90").binary


BACKEND = "convref_triton.backend:backend"


def test_planning_ahead_prepares_and_explaining_does_not(monkeypatch):
    prepared = []
    monkeypatch.setattr(TritonBackend, "prepare", lambda self, call: prepared.append(call))
    call = parse(LINES[0]).call
    dispatch.explain(call, BACKEND, "torch")
    assert prepared == []
    dispatch.plan(call, BACKEND, "torch")
    assert prepared == [call]


def test_a_call_on_a_card_is_prepared_by_its_specs(device, monkeypatch):
    """The first run on tensors of these layouts then finds its plan and its kernels."""
    monkeypatch.setattr(gpu, "cuda", lambda index: device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    call = parse(LINES[0]).call
    backend.prepare(call)
    assert not [line for line in device.driver.log() if "launch" in line]
    on_card = call.on("cuda")
    before = len(gpu._ready)
    backend.prepare(on_card)
    assert len(gpu._ready) == before + 1
    backend.prepare(on_card)
    assert len(gpu._ready) == before + 1


class OnCard(torch.Tensor):
    """A tensor on the CPU whose `device` is a CUDA device."""

    index = 0
    is_cuda = True
    device = property(lambda self: torch.device("cuda", self.index))


def on_cards(*indices):
    """Return a call on CUDA devices and its operands, an image and filters on these devices."""
    call = parse("conv.fprop:n1c16k16_i4x4_f1x1:bias=0:dt=bf16:mem=nhwc:dev=cuda").call
    tensors = []
    for index, tensor in zip(indices, (torch.zeros(1, 16, 4, 4), torch.zeros(16, 16, 1, 1))):
        tensors.append(tensor.bfloat16().as_subclass(OnCard))
        tensors[-1].index = index
    return call, (*tensors, None)


def test_operands_stay_on_their_device(device, monkeypatch):
    """Cards of one machine may differ: architecture and multiprocessors are those of the device."""
    cards = [replace(device, name=f"card {i}", sms=7 + i) for i in range(2)]
    asked, planned = [], []
    monkeypatch.setattr(gpu, "cuda", lambda index: asked.append(index) or cards[index])
    monkeypatch.setattr(gpu, "run", lambda made, tensors: planned.append(made) or {})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for index in (1, 0, 1):
        call, tensors = on_cards(index, index)
        backend.run(call, *tensors)
    assert asked == [1, 0, 1]
    assert planned[0] is planned[2]
    assert planned[0] is not planned[1]
    call, tensors = on_cards(0, 1)
    with pytest.raises(ConvrefError, match="x is on cuda:0 and w on cuda:1, needs one device"):
        backend.run(call, *tensors)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch finds fewer than two devices")
def test_a_call_on_a_device_that_is_not_current():
    call, _ = on_cards()
    x, w = (torch.randn(16, n, device="cuda:1").bfloat16() for n in (16, 16))
    x, w = x.reshape(1, 16, 4, 4), w.reshape(16, 16, 1, 1)
    found = backend.run(call, x, w, None)[0]
    (others,) = backend.run(call, x.to("cuda:0"), w.to("cuda:0"), None)
    assert found.device == x.device
    assert torch.equal(found.cpu(), others.cpu())


@pytest.mark.nightly(reason="measured under the nightly profile")
def test_a_call_seen_before_costs_the_host_less_than_tritons_own_launch(tmp_path, library):
    """In a process of its own, whose libcuda is the stub."""
    import host_cost

    folder = str(library.parent)
    code = "import json, sys, pathlib, host_cost as h; "
    code += "print(json.dumps(h.measured(pathlib.Path(sys.argv[1]), h.LINE)))"
    env = {**os.environ, "LD_LIBRARY_PATH": folder, "TRITON_CACHE_DIR": str(tmp_path)}
    path = filter(None, (str(Path(host_cost.__file__).parent), env.get("PYTHONPATH")))
    env["PYTHONPATH"] = os.pathsep.join(path)
    command = [sys.executable, "-c", code, folder]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout.splitlines()[-1])
    assert host_cost.SEEN in cost
    assert cost[host_cost.SEEN] < cost[host_cost.TRITONS]


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")


@pytest.fixture
def integers():
    """Return small integers, whose products and sums are exact in any order, on the GPU."""
    a, b = (torch.randint(-4, 5, shape, device="cuda").float() for shape in ((64, 32), (32, 48)))
    return {"a": a, "b": b}


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("launch", [PRODUCT, BOXES], ids=["pointers", "boxes"])
def test_on_a_gpu_the_sums_are_exact(integers, launch):
    if launch is BOXES and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("tensor maps need compute capability 9.0")
    factor = 0.5 if launch is PRODUCT else 1.0
    buffers = WHOLE if launch is BOXES else MADE
    made = gpu.run(KernelPlan(buffers, (launch,)), integers)["c"][:, :48]
    expected = factor * (integers["a"].double() @ integers["b"].double())
    assert torch.equal(made.double(), expected)


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_streams_and_graphs(integers):
    prepared = KernelPlan(MADE, (PRODUCT,))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        first = gpu.run(prepared, integers)["c"]
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = gpu.run(prepared, integers)["c"]
    integers["a"].neg_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(recorded, -first)


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_an_unseen_plan_is_refused_under_capture(integers):
    graph = torch.cuda.CUDAGraph()
    gpu.run(PLAN, integers)
    unseen = replace(PRODUCT, constants={**PRODUCT.constants, "TN": 32}, grid=(1, 2, 1))
    with torch.cuda.graph(graph):
        gpu.run(PLAN, integers)  # torch warns of a graph that is empty
        with pytest.raises(UnsupportedError, match=r"needs plan\(\.\.\.\) or a call first"):
            gpu.run(KernelPlan(MADE, (unseen,)), integers)


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_a_new_thread_has_the_context_too(integers):
    expected = gpu.run(PLAN, integers)["c"]
    results = []
    thread = threading.Thread(target=lambda: results.append(gpu.run(PLAN, integers)["c"]))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(results[0], expected)
    assert prod(results[0].shape) == 64 * 48


AMD_LINES = (
    "conv.fprop:n8c64k64_i28x28_f3x3_p1:dt=bf16:mem=nhwc",
    "conv.wgrad:n8c64k64g64_i28x28_f3x3_p1:dt=f32",
    "max_pool.backward:n8c64_i28x28_f3x3_s2_p1:dt=f16",
    "group_norm.fprop:n8c64g8_i28x28:dt=bf16",
)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("line", AMD_LINES)
def test_manifests_agree_with_the_arguments_of_amd_binaries(line, arch):
    """The code object lists offset, size and kind of each argument, the hidden ones included."""
    call = parse(line).call
    for launch in (
        step for step in plan(call, operands(call), arch=arch).steps if type(step) is Launch
    ):
        made = aot.compile(specialize(launch), arch)
        found = gpu.manifest(made)
        kinds = (*found.parameters, *("ptr" for _ in found.scratch))
        listed = made.asm["amdgcn"].partition(".args:")[2].partition(".group_segment")[0]
        sizes = [int(size) for size in re.findall(r"\.size: +(\d+)", listed)]
        pointers = [kind == "global_buffer" for kind in re.findall(r"\.value_kind: +(\w+)", listed)]
        assert sizes == [struct.calcsize(FORMATS[kind]) for kind in kinds]
        assert pointers == [kind == "ptr" for kind in kinds]
        threads = re.search(r"\.max_flat_workgroup_size: +(\d+)", made.asm["amdgcn"])
        assert found.threads == (int(threads[1]), 1, 1)


def test_a_device_of_amd_has_its_architecture_and_the_driver_of_hip(monkeypatch):
    properties = SimpleNamespace(
        gcnArchName="gfx942:sramecc+:xnack-", multi_processor_count=304, name="AMD Instinct MI300X"
    )
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 4))
    for name in ("_cuda_getDevice", "_cuda_getCurrentRawStream"):
        monkeypatch.setattr(torch._C, name, lambda *index: 0, raising=False)
    monkeypatch.setattr(gpu, "hip_driver", lambda: "hip")
    found = gpu.cuda.__wrapped__(1)
    assert (found.arch, found.driver, found.sms, found.place.index) == ("gfx942", "hip", 304, 1)
