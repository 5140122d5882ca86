"""ONNX Runtime's Resize against the oracle, except for an axis that keeps its size."""

from __future__ import annotations

import pytest

from convref import parse
from convref.conformance.examine import examine
from convref.conformance.generate import Axes, chunk_cases

module = pytest.importorskip(
    "convref.backends.onnxruntime.adapter",
    reason="needs convref[onnx]: onnx and onnxruntime",
    exc_type=ImportError,
)


def keeps_a_size(problem):
    """Return whether a frame or a scale is ignored, as the axis keeps its size."""
    kept = any(axis.size == axis.out for axis in problem.axes)
    return kept and bool(problem.roi or (problem.scale and problem.antialias))


def test_forward_is_right():
    axes = Axes(3, ("resize",), ("fprop",), ("f32", "u8", "i8"), size=800)
    verdicts = [
        (str(case), examine(case, module.backend))
        for case in chunk_cases(axes, 0)
        if not keeps_a_size(case.call.problem) and module.backend.supports(case.call) is None
    ]
    assert len(verdicts) >= 150
    assert not [f"{line}: {f.reason}" for line, f in verdicts if f.verdict != "pass"]


@pytest.mark.parametrize(
    "line",
    [
        "resize.fprop:n1c1_i4_o4:mode=nearest:coord=tf_crop_and_resize:near=round_prefer_floor:roi=0.25,0.75",
        "resize.fprop:n1c1_i4x2_o4x1:mode=cubic:aa=1:xo=1:scale=1.2x0.5",
    ],
)
def test_an_axis_that_keeps_its_size_is_copied_whatever_is_asked_for(line):
    assert examine(parse(line), module.backend).verdict == "wrong"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("resize.backward:n1c1_i4_o8:mode=nearest:near=floor", "the forward pass of resize"),
        ("resize.fprop:n1c1_i4x4_o8x8:mode=area", "ONNX has no mode area"),
        ("resize.fprop:n1c1_i4_o8:mode=nearest", "ONNX has no near=float32"),
        ("resize.fprop:n1c1_i4x4_o8x8:dt=f64", "no Resize of mode linear for f64"),
        (
            "resize.fprop:n1c1_i4_o8:mode=nearest:coord=tf_crop_and_resize:near=floor:roi=0.0,1.0",
            "may round beyond the image",
        ),
    ],
)
def test_unsupported_resizes_have_a_reason(line, reason):
    assert reason in module.backend.supports(parse(line).call)
