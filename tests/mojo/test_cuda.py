"""The GPU kernels: their PTX, interpreted, against the oracle; what ptxas makes of it."""

import ctypes
import re
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convref import UnsupportedError, parse
from convref.arrays import to_torch
from convref.case import Call, Case, Spec, axis_letters, channels_last
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.conformance.strategies import cases, problems
from convref.conformance.workers.device import OnDevice
from convref.errors import pip_command
from convref_mojo import cuda, emit, library
from convref_mojo.gpu import pool
from convref_mojo.structs import struct
from convref_ptx import parse as parse_ptx

if (REASON := emit.why_missing()) is not None:
    pytest.skip(REASON, allow_module_level=True)

ARMS = (
    cuda.interpreted,
    cuda.interpreted_sm_80,
    cuda.interpreted_direct,
    cuda.interpreted_wgmma,
)
KERNELS = sorted(emit.texts())
KINDS = ("gather", "correlate", "bgrad", *pool.POINTERS)
SMALL = {"dtypes": library.DTYPES, "max_elements": 900, "max_macs": 9_000}


@settings(max_examples=max(20, settings().max_examples // 4))
@given(cases(**SMALL))
def test_any_case_is_right(case):
    for backend in ARMS if case.call.dtype == "bf16" else ARMS[:1]:
        found = examine(case, backend)
        assert found.verdict == "pass", f"{found.verdict}: {found.reason}\n{found.line}"


@given(cases(ops=pool.OPS, **SMALL))
def test_any_pool_is_right(case):
    for backend in ARMS[:2] if case.call.dtype == "bf16" else ARMS[:1]:
        found = examine(case, backend)
        assert found.verdict == "pass", f"{found.verdict}: {found.reason}\n{found.line}"


@st.composite
def wide_cases(draw):
    """Draw convolutions of multiples of eight contiguous channels, which are copied as vectors."""
    drawn = draw(problems(max_elements=60, max_macs=200, empty=False))
    channels = st.sampled_from([8, 16, 24, 40, 64, 72, 136])
    problem = replace(drawn, c=drawn.groups * draw(channels), k=drawn.groups * draw(channels))
    mask = draw(st.sampled_from([(), (True, False, False), (False, True, False)]))
    plain = Call("conv", "backward" if mask else "fprop", problem, mask)
    letters = {role: axis_letters(problem, role) for role in plain.roles}
    orders = {role: channels_last(word) for role, word in letters.items()}
    orders["w"] = letters["w"].replace(last := "o" if any(mask) else "i", "") + last
    call = replace(plain, specs=tuple(Spec("bf16", orders[role]) for role in plain.roles))
    fill = draw(st.sampled_from(["int", "normal", "inf", "nan"]))
    return Case(call, fill, draw(st.integers(0, 9)))


@settings(max_examples=max(12, settings().max_examples // 8))
@given(wide_cases())
def test_any_case_of_wide_copies_is_right(case):
    for backend in (cuda.interpreted, cuda.interpreted_wgmma):
        found = examine(case, backend)
        assert found.verdict == "pass", f"{found.verdict}: {found.reason}\n{found.line}"


# Each kernel, tiles that are not full, depths beyond one step, classes of a stride, groups.
LINES = (
    "conv.fprop:n2c16k24_i5x6_f3_p1:dt=bf16:mem=nhwc",
    "conv.fprop:n1c40k70_i9x8_f3_p1:dt=bf16:mem=nhwc:fill=normal",
    "conv.fprop:n1c5k70_i9x8_f3_p1:dt=bf16:bias=0",
    "conv.dgrad:n1c16k8_i9x8_f3_s2_p1:dt=bf16:mem=nhwc",
    "conv.backward:n2c12k8g2_i5x6_f3x2_s2_p1,0x1,2_d1x2:dt=bf16:mem=nhwc:fill=normal",
    "conv.wgrad:n2c9k70_i6x5_f3_p1:dt=bf16:mem=nhwc",
    "conv.wgrad:n2c24k72_i6x5_f3_s2_p1:dt=bf16:mem=nhwc",
    "conv.wgrad:n3c16k80g2_i7x6_f3x2_p1:t=1:dt=bf16:mem=nhwc:fill=normal",
    "conv.fprop:n2c8k3_i4x5_f3_s2_p1:t=1:op=1:dt=bf16:mem=nhwc",
    "conv.backward:n1c3k4_i4x5x3_f2_p1:flip=1",
    "conv.backward:n1c3k4_i40_f3_s2:dt=f64:fill=normal",
    "conv.bgrad:n3c1k5_i9x7_f1",
    "conv.jvp:n1c8k9_i5x6_f3_p1:dt=bf16:mem=x.nhwc:fill=normal",
    "conv.jvp:n1c3k4_i5x4x6_f3_s2_p1:t=1:tan=x",
    "conv.jvp:n1c3k4_i7_f3:tan=b",
    "conv.double_backward:n2c12k8g2_i5x6_f3x2_s2_p1,0x1,2_d1x2:mem=ddx.nhwc:fill=normal",
    "conv.double_backward:n1c3k4_i5x6_f3:dt=f64:tan=b",
)
# Windows that overlap, are empty or cut off; ties and NaN.
POOLS = (
    "max_pool.fprop:n2c5_i5x6_f3x2_s2x1_p1,0x1,1:mem=nhwc:fill=ties",
    "max_pool.fprop:n1c3_i5x7x6_f2x3x2_p1_d2x1x1:ceil=1:dt=bf16:fill=nan",
    "max_pool.fprop:n1c2_i5x6_f3x2_p-1,0x0,-2:dt=f64",
    "max_pool.fprop:n1c2_i3_f1_p2",
    "max_pool.backward:n2c5_i7x6_f3_s1_p1:dt=bf16:mem=nhwc",
    "max_pool.backward:n2c2_i9_f3_s2_p1_d2:dt=f64",
    "max_pool.jvp:n1c4_i5x6_f3_s2_p1:mem=x.nhwc:fill=normal",
    "max_pool.double_backward:n1c4_i5x6_f3_s2_p1:mem=nhwc:fill=normal",
    "avg_pool.fprop:n2c3_i5x6_f2x4_s2_p1:ceil=1:cip=0:mem=nhwc:fill=normal",
    "avg_pool.fprop:n1c4_i9x10_f2x4_p-1,2x0,0:dt=bf16:mem=nhwc:fill=normal",
    "avg_pool.backward:n2c3_i5x6_f2x4_s2_p1_d2x1:ceil=1:mem=nhwc:fill=normal",
    "avg_pool.backward:n1c3_i4x5x6_f2x2x4_s1x2x2_p1:div=-2:dt=bf16:fill=normal",
    "adaptive_avg_pool.fprop:n2c3_i7x5_o3x8:fill=normal",
    "adaptive_avg_pool.backward:n2c3_i7x5_o3x8:dt=f64:mem=nhwc:fill=normal",
    "adaptive_max_pool.jvp:n2c3_i7x5_o3x8:mem=nhwc:fill=ties",
    "adaptive_max_pool.backward:n1c5_i7_o16",
)


@pytest.mark.parametrize(
    ("line", "backend"),
    [*product(LINES, ARMS), *product(POOLS, ARMS[:2])],  # pools are the same in the others
    ids=lambda given: getattr(given, "name", given),
)
def test_sizes_around_tile_boundaries(line, backend):
    found = examine(parse(line), backend)
    assert (found.verdict, found.reason) == ("pass", "")


def test_every_kernel_is_run_by_these_lines(monkeypatch):
    seen = set()
    monkeypatch.setattr(
        cuda.Interpreter, "run", lambda self, launch, *_: seen.add((self.arch, launch.kernel))
    )
    for case in map(parse, LINES + POOLS):
        for backend in ARMS:
            backend.run(case.call, *operands(case))
    kinds = {(arch, name.rpartition("_")[0]) for arch, name in seen}
    assert {(arch, kind) for arch in emit.ARCHES for kind in KINDS} <= kinds
    assert {key for key in KERNELS if "mma" in key[1]} <= seen


def ptxas():
    triton = pytest.importorskip("triton", reason="ptxas comes with triton")
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    return path if path.exists() else pytest.skip("this triton came without ptxas")


COPIES = {"gather_mma_v8f8": 4, "gather_mma_v8f1": 2, "gather_wgmma": 8, "correlate_mma_v8": 4}


@pytest.mark.parametrize(("arch", "name"), KERNELS)
def test_ptxas_assembles_without_spills(arch, name, tmp_path):
    text = emit.texts()[arch, name]
    source = tmp_path / "kernel.ptx"
    source.write_text(text, "utf-8")
    words = [ptxas(), "-v", f"-arch={arch}", "-o", tmp_path / "kernel.cubin", source]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", done.stderr)
    assert text.count("mma.sync.aligned.m16n8k16") == (16 if "_mma" in name else 0)
    assert text.count("wgmma.mma_async.sync.aligned.m64n64k16") == (4 if "wgmma" in name else 0)
    assert "wgmma serialized" not in done.stderr.lower()
    assert text.count("cp.async.cg.shared.global") == COPIES.get(name, 0)
    registers = int(re.search(r"Used (\d+) registers", done.stderr)[1])
    blocks = 4 if "mma" in name else 8 if "pool_backward" in name else 12
    assert registers <= 65536 // (128 * blocks)


GEOMETRY, POOL = struct("gpu", "Geometry"), struct("gpu", "Pool")


@pytest.mark.parametrize(("arch", "name"), KERNELS)
def test_the_struct_parameter_has_the_size_of_the_struct(arch, name):
    of_pool = name.rpartition("_")[0] in pool.POINTERS
    size = ctypes.sizeof(POOL if of_pool else GEOMETRY)
    assert parse_ptx(emit.texts()[arch, name]).parameters[-1].size == size


# By seeded fault: a pattern in the PTX, its replacement, and the verdict or kind of fault.
FAULTS = {
    "a barrier is missing": (r"bar\.sync \t0;", "", "race"),
    "fragments of a are exchanged": (
        r"\{(%r\d+), (%r\d+), (%r\d+), (%r\d+)\},(\s+\{%r\d+, %r\d+\},)",
        r"{\1, \3, \2, \4},\5",
        "wrong",
    ),
    "fragments of b are exchanged": (
        r"(\},\s+)\{(%r\d+), (%r\d+)\},",
        r"\1{\3, \2},",
        "wrong",
    ),
    "a row too many is stored": (
        r"setp\.(ge|lt)\.s32 (\t%p\d+, %r\d+, )(%r\d+)",
        r"setp.\1.u32 \g<2>1000000",
        "fault",
    ),
    "a stride is another": (r"_param_4\+144\]", "_param_4+152]", "wrong"),
    "a result is truncated, not rounded": (
        r"cvt\.rn\.bf16\.f32 \t(%rs\d+), (%r\d+);",
        r"mov.b32 {_, \1}, \2;",
        "wrong",
    ),
    "copies are used too early": (
        r"cp\.async\.wait_group \t2;",
        "cp.async.wait_group 3;",
        "awaited",
    ),
    "copies are not committed": (r"cp\.async\.commit_group;", "", "awaited"),
    "elements outside are copied": (
        r"(cp\.async\.cg\S+\s+\[%r\d+\], \[%rd\d+\], 16), %r\d+;",
        r"\1;",
        "wrong",
    ),
}


def seed_fault(monkeypatch, kernels, pattern, text):
    changed, total = dict(emit.texts()), 0
    for key in KERNELS:
        if key[0] == "sm_90a" and kernels in key[1]:
            changed[key], count = re.subn(pattern, text, changed[key])
            total += count
    assert total, "the pattern of the seeded fault is not in the PTX"
    monkeypatch.setattr(cuda, "_program", lambda *key: parse_ptx(changed[key]))


@pytest.mark.parametrize("name", FAULTS)
def test_edited_ptx_fails(name, monkeypatch):
    pattern, text, how = FAULTS[name]
    seed_fault(monkeypatch, "gather_mma", pattern, text)
    assert how in shown(cuda.interpreted, LINES[:3])


KINDS_OF_FAULT = {"race": "race", "waited for": "awaited", "fence": "unfenced"}


def shown(backend, lines):
    """Yield the verdict on each line, or the kind of its fault; the caller stops where it is."""
    for outcome in (examine(parse(line), backend) for line in lines):
        faulty = outcome.reason.startswith("Fault")
        kinds = (kind for words, kind in KINDS_OF_FAULT.items() if words in outcome.reason)
        yield next(kinds, "fault") if faulty else outcome.verdict


WIDE_FAULTS = {
    "gather_wgmma": {
        "sums are used too early": (r"wgmma\.wait_group\.sync\.aligned 0;", "", "awaited"),
        "copies are used too early": (r"(cp\.async\.wait_group\s+)1;", r"\g<1>2;", "awaited"),
        "sums are not fenced": (r"wgmma\.fence\.sync\.aligned;", "", "unfenced"),
        "a barrier is missing": (r"bar\.sync\s+0;", "", "race"),
        "another swizzle": (
            r"\b46116862933\d+",
            lambda code: str(int(code[0]) + (1 << 62)),  # as in spans of 64 bytes
            "wrong",
        ),
    },
    "correlate_mma_v8": {
        "copies are used too early": (r"(cp\.async\.wait_group\s+)2;", r"\g<1>3;", "awaited"),
        "a barrier is missing": (r"bar\.sync\s+0;", "", "race"),
        "fragments are read along lines": (r"\.trans\b", "", "wrong"),
    },
}
WIDE_LINES = {
    "gather_wgmma": LINES[:2],
    "correlate_mma_v8": ["conv.wgrad:n3c24k72_i7x6_f3_p1:dt=bf16:mem=nhwc"],
}


@pytest.mark.parametrize(
    ("kernel", "name"), [(kernel, name) for kernel in WIDE_FAULTS for name in WIDE_FAULTS[kernel]]
)
def test_an_edited_wgmma_kernel_fails(kernel, name, monkeypatch):
    pattern, text, how = WIDE_FAULTS[kernel][name]
    seed_fault(monkeypatch, kernel, pattern, text)
    assert how in shown(cuda.interpreted_wgmma, WIDE_LINES[kernel])


# The kernel, a pattern in its PTX, the faulty text.
POOL_FAULTS = {
    "an equal wins": ("max_pool_fprop", r"setp\.([gl])tu\.", r"setp.\1eu."),
    "a NaN loses": ("max_pool_fprop", r"setp\.([gl])tu\.", r"setp.\1t."),
    "after a NaN a number wins": ("max_pool_fprop", r"(0[fd])7F.(0+),", r"\g<1>000\2,"),
    "an empty window has index 0": (
        "max_pool_fprop",
        r"mov\.b64 (\t%rd\d+), -1;",
        r"mov.b64 \1, 0;",
    ),
    "the index is compared for inequality": ("max_pool_backward", r"setp\.ne\.b64", "setp.eq.b64"),
}


@pytest.mark.parametrize("name", POOL_FAULTS)
def test_an_edited_pool_kernel_fails(name, monkeypatch):
    kernel, pattern, text = POOL_FAULTS[name]
    seed_fault(monkeypatch, kernel, pattern, text)
    lines = [line for line in POOLS if _kernel(line) == kernel]
    assert is_found(lines)


@pytest.mark.parametrize("field", [name for name, _ in struct("gpu", "PoolAxis")._fields_])
def test_every_field_of_an_axis_matters(field, monkeypatch):
    right = pool.pool_axis

    def wrong(*given):
        axis = right(*given)
        setattr(axis, field, getattr(axis, field) + 1)
        return axis

    monkeypatch.setattr(pool, "pool_axis", wrong)
    assert is_found(POOLS)


def _kernel(line):
    case = parse(line)
    kind = "max" if "max" in case.call.op else "avg"
    return pool.KERNELS[kind, case.call.pass_].split()[0]


def is_found(lines):
    """Return whether a line fails; those after it are not computed."""
    return any(examine(parse(line), cuda.interpreted).verdict != "pass" for line in lines)


@pytest.mark.parametrize("name", ["gather_f32", "correlate_mma_v8", "bgrad_f64"])
def test_a_launch_passes_the_struct_to_the_driver(name, driver):
    kernel = cuda.load_kernel("sm_90a", name, 0, driver)
    pointers = len(kernel.manifest.parameters) - 1
    driver.layout([8] * pointers + [ctypes.sizeof(GEOMETRY)])
    driver.log()
    g = GEOMETRY(3, 1, 4)
    g.filter.x = -7
    kernel.launch((5, 2), [*range(1, pointers + 1), bytes(g)], stream=0x99)
    (line,) = [line for line in driver.log() if line.startswith("launch")]
    assert "grid 5 2 1 block 128 1 1 shared 0 stream 0x99" in line
    assert line.endswith(bytes(g).hex())


@pytest.fixture
def runner(driver, monkeypatch):
    """Return a runner that passes CPU tensors to the stand-in for the driver."""
    torch = pytest.importorskip("torch")
    found, loaded = cuda.CudaRunner(), cuda.load_kernel
    found.device, found.why_missing = "cpu", lambda: None
    stream = SimpleNamespace(cuda_stream=0x42)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(cuda, "load_kernel", lambda *key: loaded(*key, driver))
    return found


def test_tensors_are_passed_to_the_driver_without_a_copy(driver, runner):
    torch = pytest.importorskip("torch")
    call = parse("conv.backward:n2c8k16_i5x6_f3_s2_p1:dt=bf16").call
    dy, x, w = (to_torch(a) for a in operands(Case(call)))
    x = x.contiguous(memory_format=torch.channels_last)
    driver.layout([8, 8])
    driver.log()
    dx, dw, db = cuda.GpuBackend("test", runner).run(call, dy, x, w)
    assert dx.is_contiguous(memory_format=torch.channels_last)
    assert (dx.shape, dw.shape, db.shape) == (x.shape, w.shape, (16,))
    lines = [line for line in driver.log() if line.startswith("launch")]
    assert len(lines) == 4 + 1 + 1  # the classes of dx
    assert all("stream 0x42" in line for line in lines)
    pointers = [(dx, dy)] * 4 + [(dw, x), (db, dy)]
    for line, pair in zip(lines, pointers):
        for word, tensor in zip(line.split()[-2:], pair):
            address = int.from_bytes(bytes.fromhex(word.partition("@")[2]), "little")
            # The class of a stride begins some elements after the tensor.
            assert 0 <= address - tensor.data_ptr() < 2 * tensor.numel()


def test_a_pool_writes_tensors_of_two_types(driver, runner):
    torch = pytest.importorskip("torch")
    call = parse("max_pool.fprop:n2c8_i5x6_f3_s2_p1:dt=bf16").call
    (x,) = (to_torch(a) for a in operands(Case(call)))
    driver.layout([8] * 5 + [ctypes.sizeof(POOL)])
    driver.log()
    y, indices = cuda.GpuBackend("test", runner).run(call, x)
    assert (y.dtype, indices.dtype) == (torch.bfloat16, torch.int64)
    assert y.shape == indices.shape == (2, 8, 3, 3)
    (line,) = [line for line in driver.log() if line.startswith("launch")]
    *words, _ = line.split()[-6:]
    given = [int.from_bytes(bytes.fromhex(w.partition("@")[2]), "little") for w in words]
    assert given == [y.data_ptr(), indices.data_ptr(), 0, x.data_ptr(), 0]


@pytest.mark.parametrize("line", ["conv.fprop:n1c1k1_i3x2_f3x3_p1", "avg_pool.fprop:n1c1_i3x2_f2"])
def test_operands_that_span_2_31_elements_have_a_reason(runner, line):
    torch = pytest.importorskip("torch")
    call = parse(f"{line}:dt=bf16").call
    x, *rest = (to_torch(a) for a in operands(Case(call)))
    pages = torch.empty(2**31 + 2, dtype=x.dtype)  # unless touched, free
    far = pages.as_strided(x.shape, (1, 1, 2**30, 1))
    with pytest.raises(UnsupportedError, match=r"an array spans 2\*\*31 elements"):
        cuda.GpuBackend("test", runner).run(call, far, *rest)


REFUSED = {
    "lp_pool.fprop:n1c1_i3_f2": r"no lp_pool.fprop kernel",
    "batch_norm.fprop:n2c1_i3": r"no batch_norm.fprop kernel",
    "avg_pool.fprop:n1c1_i3_f2:div=16777216": r"a divisor of 2\*\*24",
    "adaptive_avg_pool.fprop:n1c1_i99999_o99999": "positions have 32 bits",
    "conv.fprop:n1c1k1_i3_f2:dt=f16": "no kernel for f16",
    "conv.fprop:n1c1k1_i3_f2:math=tf32": "no math=tf32",
    "conv.fprop:n1c1k1_i3_f2:dev=cuda": "only the device cpu",
    "conv.fprop:n1c99999999k99999999g99999999_i1_f1": "tiles of channels",
    "conv.fprop:n70000c1k1_i200x200_f1": r"2\*\*31 elements",
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_unsupported_calls_have_a_reason(line, reason):
    call = parse(line).call
    assert re.search(reason, cuda.interpreted.supports(call))
    with pytest.raises(UnsupportedError, match=reason):
        cuda.interpreted.run(call, *(None,) * len(call.roles))


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [cuda.backend, cuda.wgmma], ids=lambda backend: backend.name)
@pytest.mark.parametrize("line", LINES + POOLS)
def test_a_gpu_computes_what_the_oracle_does(line, backend):
    if (reason := backend.runner.why_missing()) is not None:
        pytest.skip(reason)
    found = examine(parse(f"{line}:dev=cuda"), OnDevice(backend), repeat=True)
    assert (found.verdict, found.reason) == ("pass", "")


def test_without_a_gpu_there_is_a_reason():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA GPU")
    call = parse("conv.fprop:n1c1k1_i3_f2:dev=cuda").call
    assert "needs a CUDA device of sm_80" in cuda.backend.supports(call)
    assert "needs a CUDA device" in cuda.backend.fingerprint()["missing"]


def test_without_ptx_and_compiler_the_reason_has_the_install_command(monkeypatch, tmp_path):
    monkeypatch.setattr(emit, "prebuilt", lambda folder=None: tmp_path / "none")
    monkeypatch.setattr(emit, "version", lambda: None)
    emit.why_missing.cache_clear()
    try:
        assert pip_command("mojo-gpu") in emit.why_missing()
        with pytest.raises(UnsupportedError, match="no compiler to make it"):
            emit.library()
    finally:
        emit.why_missing.cache_clear()


def test_a_prebuilt_file_needs_no_compiler(monkeypatch, tmp_path, capsys):
    assert emit.library().stat().st_size < 60_000
    ready = emit.prebuilt(tmp_path)
    ready.write_bytes(emit.library().read_bytes())
    monkeypatch.setattr(emit, "prebuilt", lambda folder=None: ready)
    monkeypatch.setattr(emit, "version", lambda: None)
    emit.why_missing.cache_clear()
    try:
        assert emit.why_missing() is None
        assert emit.library() == ready
    finally:
        emit.why_missing.cache_clear()


@pytest.mark.parametrize("body", ["echo 'error: no such thing' >&2; exit 1", "echo nothing"])
def test_a_failed_build_reports_the_error_and_leaves_no_file(body, monkeypatch, tmp_path):
    driver = tmp_path / "mojo"
    driver.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    driver.chmod(0o755)
    monkeypatch.setattr(emit.build, "compiler", lambda: (driver, "9.9"))
    with pytest.raises(UnsupportedError, match="the compiler failed"):
        emit.emit_to(tmp_path / "out.ptx.xz")
    assert not (tmp_path / "out.ptx.xz").exists()
