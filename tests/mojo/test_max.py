"""The custom ops of MAX; graphs compile for a minute (`pip install '.[max]'`, nightly profile)."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import convref
from convref import parse
from convref.conformance.examine import examine
from convref.conformance.strategies import cases
from convref_mojo import passes
from convref_mojo.max import backend as module
from convref_mojo.structs import table

# Lines of modular/modular: dilation, groups, wide padding, transposed with everything.
ISSUES = {
    5543: "conv.fprop:n1c4k8_i8x8_f3x3_p2_d2",
    5614: "conv.fprop:n1c4k6g2_i8x8_f3x3",
    6461: "conv.fprop:n1c8k8_i16_f8_p7",
    6886: "conv.fprop:n1c4k6g2_i3x4x5_f3x2x3_s2_p1_d2x1x1:t=1:op=1",
}


def test_the_ops_have_the_passes_of_the_library():
    assert table("max/convref_ops/passes.mojo", "PASSES") == passes.PASSES
    assert tuple(module.KINDS) == passes.PASSES


def test_without_max_it_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    reason = module.backend.supports(parse("conv.fprop:n1c1k1_i3_f2").call)
    assert "MAX is not installed" in reason


needs_max = pytest.mark.skipif(module.why_missing() is not None, reason="MAX is not installed")


@pytest.mark.nightly
@needs_max
def test_cases_of_reported_bugs_are_right():
    for number, line in ISSUES.items():
        for dtype in module.DTYPES:
            found = examine(parse(f"{line}:dt={dtype}"), module.backend)
            assert found.verdict == "pass", (number, found.reason)


@pytest.mark.nightly
@needs_max
@settings(max_examples=500, phases=[Phase.generate], deadline=None)
@given(cases(ops=tuple(passes.NATIVE), dtypes=module.DTYPES))
def test_any_case_is_right(case):
    expected = "pass" if module.backend.supports(case.call) is None else "unsupported"
    found = examine(case, module.backend)
    assert found.verdict == expected, f"{found.verdict}: {found.reason}\n{found.line}"


@pytest.mark.nightly
@needs_max
def test_one_compiled_graph_serves_several_shapes():
    from max.driver import CPU
    from max.dtype import DType
    from max.engine import InferenceSession
    from max.graph import DeviceRef, Graph, TensorType

    from convref_mojo.max import graph as ops

    def image(*sizes):
        return TensorType(DType.float32, sizes, DeviceRef.CPU())

    inputs = [image("n", 4, "h"), image(6, 2, 3), image("n", 6, "q")]
    with Graph("conv1d", input_types=inputs, custom_extensions=[ops.OPS]) as graph:
        x, w, dy = (value.tensor for value in graph.inputs)
        of = {"stride": 2, "padding": 1, "groups": 2}
        graph.output(ops.conv(x, w, **of), *ops.conv_backward(dy, x, w, **of))
    model = InferenceSession(devices=[CPU()]).load(graph)
    rng = np.random.default_rng(0)
    for n, h in ((1, 5), (3, 8)):
        shapes = (n, 4, h), (6, 2, 3), (n, 6, (h - 1) // 2 + 1)
        x, w, dy = (rng.integers(-3, 4, s).astype(np.float32) for s in shapes)
        got = [out.to_numpy() for out in model.execute(x, w, dy)]
        gradients = convref.conv1d_backward(dy, x, w, None, **of)
        expected = convref.conv1d(x, w, **of), *gradients
        assert all((a == b).all() for a, b in zip(got, expected))
