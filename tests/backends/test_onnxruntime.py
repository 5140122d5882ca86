"""The ONNX Runtime backend: forward passes against the oracle, and refusals."""

import pytest

from convref import ConvrefError, parse
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.dispatch import load

module = pytest.importorskip(
    "convref.backends.onnxruntime.adapter",
    reason="needs onnx and onnxruntime",
    exc_type=ImportError,
)
backend = module.backend
OLD = tuple(map(int, module.onnxruntime.__version__.split(".")[:2])) < (1, 28)

LINES = (
    "conv.fprop:n2c4k6g2_i5x7_f3x2_s2x1_p1,0x0,2_d1x2:fill=normal",
    "conv.fprop:n1c16k16_i9x9_f3_p1:mem=nhwc:fill=normal",
    "conv.fprop:n1c4k6g2_i5x3_f2x3_s3x2_p1x0_d1x2:t=1:op=2x1",
    "conv.fprop:n1c2k2_i4x4x2_f2_p1:bias=0",
    "conv.fprop:n1c3k2_i9_f3_p0,2:fill=nan",
    "conv.fprop:n2c3k2_i5_f3_p1:dt=f16",
)


@pytest.mark.parametrize("line", LINES)
def test_the_forward_pass_is_right(line):
    found = examine(parse(line), backend, repeat=True)
    assert (found.verdict, found.reason) == ("pass", "")


REFUSED = {
    "conv.dgrad:n1c1k1_i3_f2": "forward pass",
    "unfold.fprop:n1c1_i3_f2": "no node for unfold",
    "conv.fprop:n1c1k1_i3_f2:dt=f64": "no Conv for f64",
    "conv.fprop:n1c1k1_i3_f2:t=1:dt=f16": "no ConvTranspose for f16",
    "conv.fprop:n1c1k1_i3_f2:math=tf32": "is not supported on the CPU",
    "conv.fprop:n1c1k1_i3_f2:dev=cuda": "only the CPU",
    "conv.fprop:n1c1k1_i3_f2:flip=1": "flipped",
    "conv.fprop:n1c1k1_i3_f2_p-1,1": "negative padding",
    "conv.fprop:n1c1k1_i3_f2_s2_d3:t=1:op=2": "as large as the stride",
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_unsupported_calls_have_a_reason(line, reason):
    assert reason in (backend.supports(parse(line).call) or "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("conv.fprop:n1c1k1_i3_f2:dt=f64", "Could not find an implementation"),
        pytest.param(
            "conv.fprop:n1c1k1_i3_f2_s2_d3:t=1:op=2",
            "may be too large",
            marks=pytest.mark.skipif(OLD, reason="ONNX Runtime computes it before 1.28"),
        ),
    ],
)
def test_a_refusal_is_the_librarys_own(line, message, monkeypatch):
    """Each call fails without our refusal: no call is refused that would have worked."""
    monkeypatch.setattr(backend, "supports", lambda call: None)
    found = examine(parse(line), backend)
    assert found.verdict == "rejects-valid"
    assert message.lower() in found.reason.lower()


def test_unoptimized_graphs_compute_the_same():
    plain = module.OnnxRuntimeBackend("plain", optimized=False)
    assert examine(parse(LINES[1]), plain).verdict == "pass"


def test_the_backend_is_found_by_name():
    assert load("onnxruntime") is backend
    assert set(backend.fingerprint()) == {"onnxruntime", "onnx", "device"}


@pytest.mark.parametrize(
    "change",
    [lambda w: w[..., None], lambda w: w[:1], lambda w: w * 1j, lambda w: w[:1, :1, 0].reshape(())],
)
def test_operands_that_do_not_fit_are_refused(change):
    case = parse("conv.fprop:n1c2k2_i3_f2")
    x, w, b = operands(case)
    with pytest.raises(ConvrefError, match=r"weight has .*, needs"):
        backend.run(case.call, x, change(w), b)
    with pytest.raises(ConvrefError, match="bias is None, needs"):
        backend.run(case.call, x, w, None)
