"""The JAX backend: every pass against the oracle, refusals, 64-bit types."""

import numpy as np
import pytest

from convref import ConvrefError, parse
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.judge import Numerics, judge

module = pytest.importorskip(
    "convref.backends.jax.adapter", reason="needs jax", exc_type=ImportError
)
backend = module.backend

LINES = (
    "conv.fprop:n2c4k6g2_i5x7_f3x2_s2x1_p1,0x0,2_d1x2:fill=normal",
    "conv.fprop:n1c4k6g2_i5x3_f2x3_s3x2_p1x0_d1x2:t=1:op=2x1:flip=1",
    "conv.fprop:n1c3k2_i9_f3_p-1,-2:dt=f64:fill=normal",
    "conv.fprop:n1c2k2_i4x4x2_f2_p1:dt=bf16",
    "conv.fprop:n0c2k2_i4_f2",
    "conv.fprop:n1c0k2_i4_f2",
    "conv.fprop:n2c3k2_i4_f2:dt=i8",
    "conv.fprop:n1c2k2_i6_f2:dt=c64:fill=normal",
    "conv.backward:n2c4k2g2_i6x5_f3x2_s2x3_p2,1x0,0:fill=normal",
    "conv.backward:n1c2k4_i4_f3_s2_p1:t=1:op=1:dt=f16:mask=011",
    "conv.jvp:n1c2k3_i6_f3:fill=normal:tan=xb",
    "conv.jvp:n1c2k3_i6_f3:tan=0",
    "conv.double_backward:n2c4k2g2_i6_f3_s2_p1:dt=f64:fill=normal",
    "conv.double_backward:n1c2k4_i4_f3_s2:t=1:tan=w:mask=110",
    "conv.double_backward:n1c2k4_i4_f3:tan=x:fill=inf",
    "conv.double_backward:n1c2k4_i4_f3:tan=0",
)


@pytest.mark.parametrize("line", LINES)
def test_each_pass_is_right(line):
    found = examine(parse(line), backend, repeat=True)
    assert (found.verdict, found.reason) == ("pass", "")


REFUSED = {
    "unfold.fprop:n1c1_i3_f2": "the adapter has no unfold",
    "conv.dgrad:n1c1k1_i3_f2:dt=i32": "no derivatives for",
    "conv.dgrad:n1c1k1_i3_f2:dt=c64": "does not conjugate",
    "conv.fprop:n1c1k1_i3_f2:dt=f80": "no dtype",
    "conv.fprop:n1c1k1_i3_f2:math=tf32": "is not supported on the CPU",
    "conv.fprop:n1c1k1_i3_f2:dev=cuda": "only the CPU",
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_unsupported_calls_have_a_reason(line, reason):
    assert reason in (backend.supports(parse(line).call) or "")


def test_no_stage_is_declared_that_is_not_taken():
    """A 16-bit sum rounds its bias; float32 never rounds twice."""
    assert backend.numerics(parse(LINES[0]).call) == Numerics("rn32", ftz=True)
    assert backend.numerics(parse(LINES[3]).call).stages == 1
    assert backend.numerics(parse("conv.dgrad:n1c1k1_i3_f2:dt=bf16").call).stages == 0


def test_one_rounding_is_too_little_for_a_16_bit_bias_gradient():
    """The declared stages are needed: XLA sums the bias gradient in the 16-bit type."""
    case = parse("conv.backward:n2c16k3_i6x3_f6x2_p1x0:t=1:flip=1:dt=bf16:fill=positive:seed=54495")
    given = operands(case)
    results = [None if r is None else np.asarray(r) for r in backend.run(case.call, *given)]
    assert judge(case.call, given, results, backend.numerics(case.call)).kind == "pass"
    assert judge(case.call, given, results, Numerics("rn32", ftz=True)).kind == "wrong"


def test_64_bits_stay_so_without_touching_the_process():
    import jax

    before = jax.config.jax_enable_x64
    (y,) = backend.run(*(lambda case: (case.call, *operands(case)))(parse(LINES[2])))
    assert y.dtype == np.float64
    assert jax.config.jax_enable_x64 == before


def test_compiled_programs_are_dropped_in_time(monkeypatch):
    import jax

    calls = []
    monkeypatch.setattr(jax, "clear_caches", lambda: calls.append(1))
    monkeypatch.setattr(module, "CACHED", 2)
    first, second = (parse(f"conv.fprop:n1c1k1_i{size}_f2") for size in (3, 4))
    for case in (first, first, second, second, first, second):  # four programs: one repeats
        backend.run(case.call, *operands(case))
    assert len(calls) == 2


def test_a_call_that_repeats_runs_the_program_on_its_own_data():
    first, second = (parse(f"conv.fprop:n1c1k1_i3_f2:seed={seed}") for seed in (1, 2))
    for case in (first, second):
        assert examine(case, backend).verdict == "pass"


def test_the_fingerprint_names_versions():
    assert set(backend.fingerprint()) == {"jax", "jaxlib", "platform"}


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


def test_float16_keeps_its_subnormals():
    """They are normal in float32: to allow a flush to 6e-5 for each product would hide mistakes."""
    case = parse("conv.fprop:n1c9k1_i4_f1:dt=f16:bias=0:fill=subnormal")
    given, numerics = operands(case), backend.numerics(case.call)
    (y,) = backend.run(case.call, *given)
    assert judge(case.call, given, (np.asarray(y),), numerics)
    flushed = np.zeros(case.call.problem.shape("y"), np.float16)
    assert judge(case.call, given, (flushed,), numerics).kind == "wrong"
