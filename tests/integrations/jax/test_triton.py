"""Triton kernels in JAX programs for CUDA: lowered without a GPU, their PTX run by an emulator."""

import re
import struct
import zlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
pytest.importorskip("jax_triton", reason="jax-triton is not installed", exc_type=ImportError)
import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402
from jax.extend.core import Literal  # noqa: E402

import convref  # noqa: E402
from convref.conformance.examine import examine  # noqa: E402
from convref.errors import UnsupportedError  # noqa: E402
from convref.integrations.jax import run_recorded  # noqa: E402
from convref_driver.manifest import Manifest  # noqa: E402
from convref_ptx import launches  # noqa: E402
from convref_triton.backend import TritonBackend  # noqa: E402
from convref_triton.common.geometry import operands  # noqa: E402
from convref_triton.plan.choose import offered, plan  # noqa: E402
from convref_triton.run import jax as module  # noqa: E402

CALL = "triton_kernel_call_ffi"
PARAMETERS = {2: "bool", 3: "i32", 4: "u32", 5: "i64", 6: "u64", 7: "f32", 8: "f64"}


def lowered(function, *arrays):
    """Return the text of a program for CUDA."""
    return jax.jit(function).trace(*arrays).lower(lowering_platforms=("cuda",)).as_text()


def kernels(text):
    """Yield the protocol buffer of each kernel call of a program."""
    for found in re.finditer(r'opaque = "((?:[^"\\]|\\.)*)"', text):
        escaped = found[1].encode("latin1").replace(rb"\\", rb"\5C")
        raw = re.sub(rb"\\([0-9A-F]{2})", lambda byte: bytes([int(byte[1], 16)]), escaped)
        (call,) = fields(zlib.decompress(raw))[1]
        yield fields(call)


def fields(message):
    """Return the values of a protocol buffer by the number of their field."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value, at = message[at : at + size], at + size
        found.setdefault(number, []).append(value)
    return found


def number(kind, value):
    if isinstance(value, bytes):
        return struct.unpack({"f32": "<f", "f64": "<d"}[kind], value)[0]
    return value - (1 << 64) if kind in ("i32", "i64") and value >> 63 else value


def run_kernel(call, arrays):
    """Run a kernel call: its pointers are the arrays, in order."""
    kernel = fields(call[1][0])
    given, kinds, arguments = iter(arrays), [], []
    for parameter in call[5]:
        ((field, (value,)),) = fields(parameter).items()
        kinds.append("ptr" if field == 1 else PARAMETERS[field])
        arguments.append(next(given) if field == 1 else number(PARAMETERS[field], value))
    text, name = kernel[4][0].decode(), kernel[1][0].decode()
    hidden = 1 + max(map(int, re.findall(rf"{name}_param_(\d+)", text))) - len(kinds)
    threads, shared = (32 * kernel[2][0], 1, 1), kernel.get(3, [0])[0]
    manifest = Manifest(name, (*kinds, *["ptr"] * hidden), threads, shared)
    grid = [call[axis][0] for axis in (2, 3, 4)]
    launches.run(text, manifest, grid, [*arguments, *[None] * hidden])


def emulated(function, *arrays):
    """Return a function's results: kernel calls as they are lowered, the rest by XLA on the CPU."""
    closed = jax.make_jaxpr(function)(*arrays)
    known = dict(zip(closed.jaxpr.constvars, closed.consts))
    known |= dict(zip(closed.jaxpr.invars, arrays))

    def value(operand):
        return operand.val if isinstance(operand, Literal) else known[operand]

    def evaluated(equation):
        primitive, of, given = equation.primitive, equation.params, map(value, equation.invars)
        if primitive.name == "triton_kernel_call":
            return kernel_call(equation, list(given))
        if primitive.name.startswith("convref_"):
            return emulated(of["step"].evaluate_on_cuda, *given)
        if primitive.name == "empty":
            return [poisoned(v.aval) for v in equation.outvars]
        found = jax.jit(lambda *a: primitive.bind(*a, **of))(*given)
        return found if primitive.multiple_results else [found]

    for equation in closed.jaxpr.eqns:
        known |= dict(zip(equation.outvars, evaluated(equation)))
    return [np.asarray(value(v)) for v in closed.jaxpr.outvars]


def poisoned(aval):
    return np.full(
        aval.shape, np.nan if jnp.issubdtype(aval.dtype, jnp.floating) else -1, aval.dtype
    )


def kernel_call(equation, given):
    """Return the results of a kernel call, each of which has the memory of an operand."""

    def alone(*arrays):
        return equation.primitive.bind(*arrays, **equation.params)

    text = lowered(alone, *given)
    (call,) = kernels(text)
    stored = [np.array(a, order="C") for a in given]
    run_kernel(call, [a.view(f"u{a.itemsize}") for a in stored])
    return [stored[int(index)] for index in re.findall(r"operand_index = (\d+)", text)]


class Lowered(TritonBackend):
    """The backend triton in a JAX program for CUDA."""

    def run(self, call, *operands):
        present = [i for i, a in enumerate(operands) if a is not None]

        def program(*arrays):
            given = dict(zip(present, arrays))
            found = run_recorded("triton", call, *(given.get(i) for i in range(len(operands))))
            return [a for a in found if a is not None]

        with jax.enable_x64(True):
            found = iter(emulated(program, *(jnp.asarray(operands[i]) for i in present)))
        return call.results(lambda role: next(found))


LINES = [
    "conv.fprop:n2c16k32_i6x5_f3x3_p1:bias=0:dt=bf16",
    "conv.fprop:n1c3k8_i7_f3_s2",
    "conv.fprop:n1c64k64_i5x6_f3x3_p1:bias=0:dt=f16",
    "conv.fprop:n1c8k16g2_i4x5x3_f2x1x2_p1:bias=0:dt=bf16",
    "conv.fprop:n1c8k8g8_i6x6_f3x3:bias=0:dt=f16",
    "conv.fprop:n2c4k6_i4x3_f3x2_s2_p1:t=1:op=1",
    "conv.backward:n2c16k32_i6x5_f3x3_p1_d1x2:dt=bf16:mask=110",
    "conv.backward:n2c16k32_i6x5_f3x3_p1_s2:dt=f16:mask=110",
    "conv.backward:n1c32k32_i9_f1:mask=111",
    "conv.backward:n1c8k8g8_i6x6_f3x3:dt=f16:mask=110",
    "conv.jvp:n1c8k8_i5x4_f3x3",
    "conv.double_backward:n1c8k8_i5x4_f3x3",
    "max_pool.fprop:n1c8_i6x5_f2x2",
    "avg_pool.backward:n1c8_i6x5_f2x2_s2:dt=bf16",
    "batch_norm.fprop:n2c8_i3x4:dt=bf16",
    "layer_norm.backward:n4c24_i1:dt=f16",
    "silu.backward:n3c5_i2:dt=bf16",
    "resize.fprop:n1c4_i3x3_o5x4",
    "resize.backward:n1c4_i3x3_o5x4:mode=cubic",  # by a table
    "lp_pool.backward:n1c4_i6x5_f2x2:norm=3.0",
    "max_unpool.fprop:n1c4_i3x3_o5x4",
]


@pytest.mark.parametrize("line", LINES)
def test_lowered_kernels_are_right(line):
    found = examine(convref.parse(line), Lowered())
    assert found.verdict == "pass", f"{found.verdict}: {found.reason}"


def convolved(x, w):
    """Return a convolution and its gradients, images and filters with channels last."""
    conv = partial(convref.conv2d, stride=2, padding=1, layout="NHWC", backend="triton")
    y, pull = jax.vjp(conv, x, w)
    return y, *pull(y)


IMAGES = jax.ShapeDtypeStruct((8, 28, 28, 128), jnp.bfloat16)
FILTERS = jax.ShapeDtypeStruct((3, 3, 128, 256), jnp.bfloat16)


def test_a_program_for_cuda_has_the_planned_kernels_for_sm_90():
    text = lowered(convolved, IMAGES, FILTERS)
    assert "callback" not in text
    found = [fields(call[1][0]) for call in kernels(text)]
    lines = ("fprop", "backward", "backward")
    planned = []
    for pass_, mask in zip(lines, ((), (0, 1, 0), (1, 0, 0))):
        call = convref.parse(
            f"conv.{pass_}:n8c128k256_i28x28_f3x3_p1_s2:bias=0:dt=bf16:mem=nhwc:dev=cuda"
        ).call
        call = replace(call, mask=tuple(map(bool, mask)))
        planned += [step.kernel.__name__ for step in plan(call, operands(call)).steps]
    assert [kernel[1][0].decode() for kernel in found] == planned
    assert all(b".target sm_90a" in kernel[4][0] for kernel in found)


def test_a_program_is_exported_without_a_gpu():
    checks = [export.DisabledSafetyCheck.custom_call(CALL)]
    made = export.export(jax.jit(convolved), platforms=["cuda"], disabled_checks=checks)
    module = made(IMAGES, FILTERS)
    assert module.mlir_module().count(f"@{CALL}") == 3
    assert module.platforms == ("cuda",)


def results_by(kernel, monkeypatch):
    """Return the text of a convolution for CUDA whose first plan has a kernel."""
    call = convref.parse("conv.fprop:n1c64k64_i6x7_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda").call
    choice = next(c for c in offered(call, operands(call), "sm_90") if c.kernel == kernel)

    def planned(call, tensors, other, *_, **__):
        return plan(call, tensors, other or choice)

    monkeypatch.setattr(module, "plan", planned)
    given = {role: tensor.shape for role, tensor in operands(call).items()}
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in given.values()]
    return lowered(lambda *a: module.results(call, dict(zip(given, a))), *arrays)


@pytest.mark.skipif(module.RELEASE < (3, 8), reason="jax-triton takes the maps of Triton 3.8")
def test_a_tensor_map_is_a_parameter(monkeypatch):
    (kernel,) = kernels(results_by("tma", monkeypatch))
    assert set(fields(kernel[5][0])) == {9}


def test_no_tensor_maps_with_triton_3_7(monkeypatch):
    monkeypatch.setattr(module, "RELEASE", (3, 7))
    (kernel,) = kernels(results_by("tma", monkeypatch))
    assert fields(kernel[1][0])[1] == [b"gather"]


def test_a_kernel_that_jax_triton_cannot_launch_gives_place_to_the_next(monkeypatch):
    (kernel,) = kernels(results_by("im2col", monkeypatch))
    assert fields(kernel[1][0])[1] == [b"gather"]


def test_a_call_without_another_kernel_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(module, "ranked", lambda task, choices: [])
    with pytest.raises(UnsupportedError, match="kernel is precompiled, which jax-triton cannot"):
        results_by("im2col", monkeypatch)


@pytest.mark.gpu
def test_a_gpu_executes_the_kernels():
    if not any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("JAX finds no GPU")
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-2, 3, s.shape).astype(np.float32) for s in (IMAGES, FILTERS))
    x, w = jnp.asarray(x[:2, :9, :9], jnp.bfloat16), jnp.asarray(w, jnp.bfloat16)
    y, dx, dw = jax.jit(convolved)(x, w)
    of = {"stride": 2, "padding": 1, "layout": "NHWC"}
    convref.assert_correct(y, "conv2d", (x, w), accuracy="mma32", **of)
    dy = np.asarray(y)
    for found, mask in ((dx, (1, 0, 0)), (dw, (0, 1, 0))):
        convref.assert_correct(
            found, "conv2d_backward", (dy, x, w), output_mask=mask, accuracy="mma32", **of
        )
