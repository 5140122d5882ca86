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
REACHED = {name: 0.3 + 0.03 * i for i, name in enumerate(sorted(BY_NAME))}  # of `fit.REACHED`
REACHED |= {
    "gluon_halo": 0.14,
    "gluon_halo_wgrad": 0.14,
}  # not the fastest, as estimated
TRUE = cost.Rates(l2=35.0, fill=3000.0, mhz=1700.0, memory=2.5e6, reached=REACHED)


def matrix(noise, networks=("one",)):
    """Return the records of a tuner on a card that follows the estimate with other rates."""
    drawn = random.Random(1)
    rows = [{"what": "tuning", "sms": 132}, {"what": "peaks", "bytes_s": 2.5e12}]
    for number, line in enumerate(LINES):
        call, network = parse(line).call, networks[number % len(networks)]
        task = Task(Builder(call, operands(call)), geometry(call.conv), *call.wanted)
        for index, choice in enumerate(choices(task)):
            us = BY_NAME[choice.kernel].us(task, choice.tile, TRUE)
            ms = us / 1e3 * drawn.uniform(1 - noise, 1 + noise)
            row = {"what": "tuned", "line": line, "arm": f"triton@{index}", "median_ms": ms}
            row["suite"] = network
            rows.append(row | {"configuration": tuner.describe(choice), "mhz": 1700.0})
        rows.append({"what": "tuned", "line": line, "arm": "torch", "median_ms": 1.0})
    return rows


def test_fit_recovers_rates_from_noisy_times():
    rows = matrix(0.03)
    found, rates = fit.timed_configurations(rows), fit.rates_of(rows)
    assert (rates.mhz, rates.memory) == (1700.0, 2.5e6)
    best = fit.fit_rates(found, 132, rates)
    assert best.l2 == pytest.approx(TRUE.l2, rel=max(fit.FACTORS) - 1)
    used = {one.work.kernel for one in found}
    step = fit.REACHED[1] - fit.REACHED[0]
    assert best.reached == pytest.approx({name: REACHED[name] for name in used}, abs=2 * step)
    guessed, after, true = (loss_of(found, one) for one in (rates, best, TRUE))
    assert after.lines == len(LINES)
    assert after.error <= true.error < guessed.error
    assert 1 <= after.few <= after.first <= true.first < guessed.first
    assert guessed.worst >= guessed.first


def loss_of(found, rates):
    return fit.loss([(one, cost.us(one.work, one.moved, 132, rates)) for one in found])


def test_times_of_the_estimate_have_no_loss():
    found = fit.timed_configurations(matrix(0.0))
    assert loss_of(found, TRUE) == fit.Loss(len(LINES), 1.0, 1.0, 1.0, 1.0)
    other = replace(TRUE, reached={name: 1 - share for name, share in REACHED.items()})
    assert loss_of(found, other).worst > loss_of(found, other).first > 1.0
    slow = [one._replace(us=3 * one.us) for one in found]
    assert loss_of(slow, TRUE).error == pytest.approx(3.0)


def test_outliers_move_no_rate():
    found = fit.timed_configurations(matrix(0.0))
    odd = [one._replace(us=9 * one.us) if i % 9 == 0 else one for i, one in enumerate(found)]
    plain, moved = (fit.fit_rates(some, 132, TRUE) for some in (found, odd))
    assert plain == replace(TRUE, reached=plain.reached)
    assert moved.l2 == pytest.approx(plain.l2, rel=fit.FACTORS[5] - 1)
    assert loss_of(found, moved).first == 1.0


def test_a_network_is_estimated_by_the_others():
    found = fit.timed_configurations(matrix(0.0, ("one", "other")))
    slow = [one._replace(us=3 * one.us) if one.network == "one" else one for one in found]
    before, after = (dict(fit.left_out(some, 132, TRUE)) for some in (found, slow))
    same = [(one, late) for one, late in zip(found, slow) if one.network == "one"]
    assert 0 < len(same) < len(found)
    assert all(before[one] == after[late] for one, late in same)
    assert list(before.values()) != list(after.values())


def test_command_prints_the_fitted_rates(tmp_path, capsys):
    out = tmp_path / "m.jsonl"
    assert bench.main(["fit", str(out)]) == 2
    for row in matrix(0.0, ("one", "other")):
        records.append(out, row)
    assert bench.main(["fit", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Rates(l2=35, " in text
    assert "mhz=1.7e+03, memory=2.5e+06)" in text
    assert "'gather'" in text
    assert "as estimated" in text
    assert "fitted to the other networks" in text
