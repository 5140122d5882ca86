"""ONNX Runtime as a backend: one node a model, forward, on its CPU provider.

Conv and ConvTranspose are here, Resize and the other ops in modules of their own.
"""

from __future__ import annotations

from typing import Any

from ...arrays import like
from ...case import Call
from ...errors import missing_extra
from ...judge import Numerics
from .._operands import contiguous

try:
    import onnx
    import onnxruntime
    from onnx import helper
except ImportError as error:
    raise missing_extra("onnx", error) from None

from . import ops as _ops
from . import resize as _resize

OPSET, IR_VERSION = 13, 8  # old enough for every release since 1.8; neither op changed
TYPES = {
    "f16": onnx.TensorProto.FLOAT16,
    "f32": onnx.TensorProto.FLOAT,
    "f64": onnx.TensorProto.DOUBLE,
    "bf16": onnx.TensorProto.BFLOAT16,
}
KERNELS = {"Conv": ("f16", "f32"), "ConvTranspose": ("f32",)}  # dtypes of the CPU provider


class OnnxRuntimeBackend:
    """Computes forward passes with ONNX Runtime's CPU execution provider.

    Parameters
    ----------
    optimized : bool
        Whether graph optimisations may choose another layout (NCHWc) and kernel.
    """

    def __init__(self, name: str = "onnxruntime", *, optimized: bool = True) -> None:
        self.name = name
        self.optimized = optimized

    def supports(self, call: Call) -> str | None:
        """Return None, or why ONNX or its CPU provider has no such node."""
        if {spec.device for spec in call.specs} != {"cpu"}:
            return "only the CPU is called here"
        if call.op != "conv":
            return (_resize if call.op == "resize" else _ops).supports(call)
        if call.pass_ != "fprop":
            return "ONNX Runtime computes the forward pass of conv"
        problem = call.conv
        node = "ConvTranspose" if problem.transposed else "Conv"
        if call.dtype not in KERNELS[node]:
            return f"the CPU provider has no {node} for {call.dtype}"
        if call.math != "ieee":
            return f"the CPU has no math={call.math}"
        if problem.flip:
            return "ONNX has no flipped convolution"
        if min(edge for pair in problem.padding for edge in pair) < 0:
            return "ONNX has no negative padding"
        extra = zip(problem.output_padding, problem.stride)
        if problem.transposed and any(size >= stride for size, stride in extra if size):
            return "ONNX Runtime has no output padding as large as the stride"
        return None

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        template = next(a for a in operands if a is not None)
        arrays = zip(call.roles, contiguous(call, operands))
        feeds = {role: array for role, array in arrays if array is not None}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if not self.optimized:
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        build = {"conv": model, "resize": _resize.model}.get(call.op, _ops.model)
        session = onnxruntime.InferenceSession(
            build(call).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found = _ops.finished(call, session.run(None, feeds))
        return tuple(like(result, template) for result in found)

    def numerics(self, call: Call) -> Numerics:
        """Return the declared model: docs/judge.md says where each number comes from."""
        models = {"f64": "rn64", "f16": "rn32", "bf16": "rn32", "f32": "rn32"}
        return Numerics(models.get(call.dtype, "exact"))

    def fingerprint(self) -> dict[str, str]:
        """Return the version and the provider."""
        return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__, "device": "cpu"}


def model(call: Call) -> Any:
    """Return the call as an ONNX model of one node."""
    problem = call.conv
    attributes: dict[str, Any] = {
        "kernel_shape": problem.filter,
        "strides": problem.stride,
        "dilations": problem.dilation,
        "pads": [*(lo for lo, _ in problem.padding), *(hi for _, hi in problem.padding)],
        "group": problem.groups,
    }
    if problem.transposed:
        attributes["output_padding"] = problem.output_padding
    given = [role for role in call.roles if call.is_present(role)]
    node = helper.make_node(
        "ConvTranspose" if problem.transposed else "Conv", given, ["y"], **attributes
    )
    number = TYPES[call.dtype]
    graph = helper.make_graph(
        [node],
        "convref",
        [helper.make_tensor_value_info(r, number, problem.shape(r)) for r in given],
        [helper.make_tensor_value_info("y", number, problem.shape("y"))],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


backend = OnnxRuntimeBackend()
