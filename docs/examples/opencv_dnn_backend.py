"""OpenCV's DNN module in the court: one ONNX node a model, forward, on the CPU.

    cd docs/examples && convref check opencv_dnn_backend:backend --seconds 300

The models are those of the backend onnxruntime; a library that reads ONNX needs no other adapter.
"""

from math import prod

import cv2
import numpy as np

from convref import Numerics
from convref.backends import contiguous
from convref.backends.onnxruntime import ops
from convref.dtypes import numpy_dtype

cv2.setNumThreads(1)
MISSING = (
    *("lp_pool", "deform_conv", "prelu", "rms_norm", "threshold", "softshrink", "hardshrink"),
    *("celu", "conv_integer", "quantized_conv", "normalize", "hardmax"),
)


def unlike(call):
    """Return why the module has no such node, or None."""
    problem = call.problem
    if call.op in MISSING:
        return f"the DNN module has no {call.op}, or computes it by other rules"
    if call.op == "conv" and not problem.k * problem.c * problem.n:
        return "the DNN module has no convolution without images or channels"
    if call.op == "max_pool" and problem.rank != 2:
        return "the DNN module returns indices for 2d images only"
    if getattr(problem, "ceil", False):
        return "the DNN module keeps windows that begin beyond the image"
    if call.op == "grid_sample" and not prod(problem.output):
        return "the adapter supports no empty results"
    if call.op == "resize" and (problem.rank != 2 or problem.antialias or problem.scale):
        return "the DNN module resizes 2d images, and ignores antialias and a kept scale"
    if call.op == "adaptive_avg_pool" and problem.rank == 3:
        return "the DNN module has no pooling of volumes to one element"
    return None


class OpenCvDnn:
    name = "opencv_dnn"

    def supports(self, call):
        if {spec.device for spec in call.specs} != {"cpu"} or call.dtype != "f32":
            return "the adapter supports float32 on the CPU"
        return ops.supports(call) or unlike(call)

    def run(self, call, *operands):
        text = ops.model(call).SerializeToString()
        net = cv2.dnn.readNetFromONNX(np.frombuffer(text, np.uint8))
        for role, array in zip(call.roles, contiguous(call, operands)):
            if array is not None:
                net.setInput(array, role)
        roles = call.signature.results
        found = net.forward([f"_{role}" for role in roles])
        shaped = [np.reshape(y, call.problem.shape(role)) for y, role in zip(found, roles)]
        return tuple(
            y.astype(numpy_dtype(call.dtype_of(role)))
            for y, role in zip(ops.convert_results(call, shaped), roles)
        )

    def numerics(self, call):
        positions = 2.0**-20 if call.op == "resize" else None
        return Numerics("rn32", ftz=True, positions=positions)

    def fingerprint(self):
        return {"opencv": cv2.__version__, "device": "cpu"}


backend = OpenCvDnn()
