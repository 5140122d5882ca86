"""The custom ops of MAX as a backend: one compiled graph for each number type serves every call.

The graph has every op, of three axes, on inputs of symbolic sizes. A call gives arrays to one op,
and arrays without elements to the others.
"""

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from convref import dtypes
from convref.case import Call, check_count
from convref.errors import UnsupportedError, message, pip_command
from convref.judge import Numerics

from .. import backend as cpu
from .. import build, passes
from .kinds import DTYPES, KINDS, OPS, VECTORS, WORDS


class Slot(NamedTuple):
    """An input of the graph: an operand of an op, or an array as large as a result."""

    name: str
    kind: str
    result: bool


def slots() -> Iterator[Slot]:
    for name, (operands, results) in KINDS.items():
        yield from (Slot(name, kind, False) for kind in operands)
        yield from (Slot(name, kind, True) for kind in results)


def why_missing() -> str | None:
    if find_spec("max") is None or find_spec("max.graph") is None:
        return f"MAX is not installed: {pip_command('max')}"
    return build.why_missing()


@cache
def model(dtype: str) -> Any:
    """Return the compiled graph for a number type."""
    from max.driver import CPU
    from max.dtype import DType
    from max.engine import InferenceSession
    from max.graph import DeviceRef, Graph, TensorType, ops

    of_image = {"f32": DType.float32, "bf16": DType.bfloat16}[dtype]
    types = {"i": of_image, "v": of_image, "s": DType.float32, "p": DType.int64, "f": DType.int8}
    host = DeviceRef.CPU()
    inputs = [TensorType(DType.int64, [WORDS], host)]
    for i, slot in enumerate(slots()):
        sizes = [f"a{i}_{axis}" for axis in range(1 if slot.kind in VECTORS else 5)]
        inputs.append(TensorType(DType.int8 if slot.result else types[slot.kind], sizes, host))
    with Graph("convref", input_types=inputs, custom_extensions=[OPS]) as graph:
        words, *values = [value.tensor for value in graph.inputs]
        rest, outputs = iter(values), []
        for name, (operands, results) in KINDS.items():
            given = [next(rest) for _ in operands]
            made = [TensorType(types[kind], next(rest).shape, host) for kind in results]
            parameters = {"library": str(build.library())}
            outputs += ops.custom(f"convref_{name}", host, [*given, words], made, parameters)
        graph.output(*outputs)
    return InferenceSession(devices=[CPU()]).load(graph)


class MaxBackend:
    """Computes convolutions, pools and batch norm by custom ops in a MAX graph."""

    name = "max"

    def supports(self, call: Call) -> str | None:
        if call.dtype not in DTYPES:
            return f"no custom op for {call.dtype}, only for {', '.join(DTYPES)}"
        return cpu.backend.supports(call) or why_missing()

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role, contiguous."""
        check_count(call, operands)
        spec = cpu.spec_of(call)
        given = {
            role: array if array is None else np.ascontiguousarray(array)
            for (role, need), a in zip(spec.operands.items(), operands)
            for array in [cpu.checked(call, role, a, need)]
        }
        found: dict[str, Any] = {}
        for native in passes.native_passes(call):
            found |= execute(call, native, {**found, **given})
        return call.results(lambda role: found[role])

    def numerics(self, call: Call) -> Numerics:
        """Return the accuracy model of the kernels."""
        return cpu.backend.numerics(call)

    @property
    def graph(self) -> Any:
        """The functions that add ops to a graph."""
        if (reason := why_missing()) is not None:
            raise UnsupportedError(message(self.name, reason))
        from . import graph

        return graph

    def fingerprint(self) -> dict[str, str]:
        if (reason := why_missing()) is not None:
            return {"missing": reason}
        from importlib.metadata import version

        return {**cpu.backend.fingerprint(), "max": version("max")}


def execute(call: Call, native: passes.NativePass, given: dict[str, Any]) -> dict[str, Any]:
    """Return the results of one pass by role; an absent image has the sizes of x, and no images."""
    inputs, wanted = [], []
    roles = iter((*native.operands, *native.results))
    for slot in slots():
        active = slot.name == native.name
        role = next(roles, None) if active and slot.kind != "f" else None
        if slot.result:
            wanted.append(role)
        if slot.kind == "f" and active:
            inputs.append(np.empty((1, 1, *native.sizes[7:10]), np.int8))
        elif role is None or (not slot.result and given[role] is None):
            absent = (0, *native.sizes[1:2], *native.sizes[4:7]) if active else (0,) * 5
            inputs.append(_buffer(slot, np.empty((0,) if slot.kind in VECTORS else absent), call))
        elif slot.result:
            inputs.append(np.empty(_shape(call, role), np.int8))
        else:
            inputs.append(_buffer(slot, given[role].reshape(_shape(call, role)), call))
    words = np.array([native.sizes[3], *native.attributes], np.int64)
    outputs = model(call.dtype).execute(words, *inputs)
    return {r: _array(call, r, out) for r, out in zip(wanted, outputs) if r is not None}


def _shape(call: Call, role: str) -> tuple[int, ...]:
    """Return the shape of an array of three axes."""
    first, *rest = call.problem.shape(role)
    return (first, rest[0], *(1,) * (4 - len(rest)), *rest[1:]) if rest else (first,)


def _buffer(slot: Slot, array: Any, call: Call) -> Any:
    """Return an array as an input of the graph."""
    from max.driver import Buffer
    from max.dtype import DType

    kinds = {"s": np.float32, "p": np.int64, "f": np.int8}
    code = kinds.get(slot.kind, dtypes.numpy_dtype(call.dtype))
    array = np.ascontiguousarray(array, np.int8 if slot.result else code)
    if array.dtype != dtypes.numpy_dtype("bf16"):
        return Buffer.from_numpy(array)
    return Buffer.from_numpy(array.view(np.uint16)).view(DType.bfloat16, array.shape)


def _array(call: Call, role: str, out: Any) -> Any:
    from max.dtype import DType

    code = np.dtype(np.int64 if role == "indices" else dtypes.numpy_dtype(call.dtype_of(role)))
    found = out.view(DType.uint16, out.shape) if code.itemsize == 2 else out
    return found.to_numpy().view(code).reshape(call.problem.shape(role))


backend = MaxBackend()
