"""ONNX Runtime as a backend: one model per call, forward, on its CPU provider."""

from typing import Any

from ...arrays import like
from ...case import Call, first_array
from ...errors import missing_extra
from ...judge import Numerics
from .._operands import contiguous

try:
    import onnx
    import onnxruntime
except ImportError as error:
    raise missing_extra("onnx", error) from None

from . import ops as _ops
from . import resize


class OnnxRuntimeBackend:
    """Computes forward passes with ONNX Runtime's CPU execution provider.

    Where it is `optimized`, graph optimisations may choose another layout (NCHWc) and kernel.
    """

    def __init__(self, name: str = "onnxruntime", *, optimized: bool = True) -> None:
        self.name = name
        self.optimized = optimized

    def supports(self, call: Call) -> str | None:
        """Return None, or why ONNX or its CPU provider has no such node."""
        if {spec.device for spec in call.specs} != {"cpu"}:
            return "the adapter supports only the CPU"
        return _ops.supports(call)

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        template = first_array(call, operands)
        arrays = zip(call.roles, contiguous(call, operands))
        feeds = {role: array for role, array in arrays if array is not None}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if not self.optimized:
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(
            _ops.model(call).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found = _ops.convert_results(call, session.run(None, feeds))
        return tuple(like(result, template) for result in found)

    def numerics(self, call: Call) -> Numerics:
        """Return the declared model: docs/judge.md says where each number comes from."""
        models = {"f64": "rn64", "f16": "rn32", "bf16": "rn32", "f32": "rn32"}
        unit = resize.UNIT if call.op == "resize" else None
        return Numerics(models.get(call.dtype, "exact"), positions=unit)

    def fingerprint(self) -> dict[str, str]:
        """Return the version and the provider."""
        return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__, "device": "cpu"}


backend = OnnxRuntimeBackend()
