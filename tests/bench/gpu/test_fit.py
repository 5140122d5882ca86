"""The rates of the estimate, fitted to times made with other rates."""

import random
from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from convref.case import parse
from convref_bench import cli as bench
from convref_bench import records
from convref_bench.gpu import fit, tuner
from convref_triton.common.geometry import geometry, operands
from convref_triton.plan import cost
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import choices
from convref_triton.plan.kernels import BY_NAME
from convref_triton.plan.task import Task

NHWC = "dt=bf16:mem=nhwc:dev=cuda"
LINES = (
    f"conv.fprop:n32c256k256_i14x14_f3x3_p1:bias=0:{NHWC}",
    f"conv.dgrad:n32c64k64_i56x56_f3x3_p1:{NHWC}",
    f"conv.wgrad:n32c128k128_i28x28_f3x3_p1:{NHWC}",
    f"conv.fprop:n32c512k512_i7x7_f3x3_p1:bias=0:{NHWC}",
    f"conv.fprop:n1c512k512_i64x64_f3x3_p1:bias=0:{NHWC}",
    f"conv.wgrad:n32c512k512_i14x14_f3x3_s2_p1:{NHWC}",
)
REACHED = {name: 0.3 + 0.04 * i for i, name in enumerate(sorted(BY_NAME))}
REACHED |= {
    "gluon_halo": 0.14,
    "gluon_halo_wgrad": 0.14,
}  # not the fastest, as estimated
TRUE = cost.Rates(l2=28.0, fill=3000.0, mhz=1700.0, memory=2.5e6, reached=REACHED)


def matrix(noise):
    """Return the records of a tuner on a card that follows the estimate with other rates."""
    drawn = random.Random(1)
    rows = [{"what": "tuning", "sms": 132}, {"what": "peaks", "bytes_s": 2.5e12}]
    for line in LINES:
        call = parse(line).call
        task = Task(Builder(call, operands(call)), geometry(call.conv), *call.wanted)
        for index, choice in enumerate(choices(task)):
            us = BY_NAME[choice.kernel].us(task, choice.tile, TRUE)
            ms = us / 1e3 * drawn.uniform(1 - noise, 1 + noise)
            row = {"what": "tuned", "line": line, "arm": f"triton@{index}", "median_ms": ms}
            rows.append(row | {"configuration": tuner.describe(choice), "mhz": 1700.0})
        rows.append({"what": "tuned", "line": line, "arm": "torch", "median_ms": 1.0})
    return rows


def test_fit_recovers_rates_from_noisy_times():
    rows = matrix(0.03)
    found, rates = fit.timed(rows), fit.rates_of(rows)
    assert (rates.mhz, rates.memory) == (1700.0, 2.5e6)
    best = fit.fitted(found, 132, rates)
    assert (best.l2, best.fill) == (28, 3000)
    used = {one.work.kernel for one in found}
    assert best.reached == pytest.approx({name: REACHED[name] for name in used}, abs=0.041)
    guessed, after = (fit.loss(found, 132, one) for one in (rates, best))
    assert after.lines == len(LINES)
    assert 1 <= after.few <= after.first <= 1.03 < guessed.first
    assert guessed.worst >= guessed.first


def test_times_of_the_estimate_have_no_loss():
    rows = matrix(0.0)
    found = fit.timed(rows)
    assert fit.loss(found, 132, TRUE) == fit.Loss(len(LINES), 1.0, 1.0, 1.0)
    other = replace(TRUE, reached={name: 1 - share for name, share in REACHED.items()})
    assert fit.loss(found, 132, other).worst > 1.05


def test_command_prints_the_fitted_rates(tmp_path, capsys):
    out = tmp_path / "m.jsonl"
    assert bench.main(["fit", str(out)]) == 2
    for row in matrix(0.0):
        records.append(out, row)
    assert bench.main(["fit", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Rates(l2=28, fill=3000, mhz=1700, memory=2.5e+06)" in text
    assert "'gather'" in text
    assert "as estimated" in text
