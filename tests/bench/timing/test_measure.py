"""The method, on a device that is a script: stop, interleaving, verdicts, the roof."""

from itertools import cycle

import pytest

from convref.case import parse
from convref_bench.timing import point as points
from convref_bench.timing.measure import Stop, Timing, measure, verdict
from convref_bench.timing.roofline import Roof, RoofError


class Stub:
    """A device whose samples are given by arm; each sample also moves the wall clock."""

    name = "stub"

    def __init__(self, seconds, mhz=None):
        self.seconds = {arm: cycle(values) for arm, values in seconds.items()}
        self.mhz, self.wall, self.order, self.settled = mhz, 0.0, [], 0

    def work(self, arm):
        def call():
            return arm

        return call

    def now(self):
        return self.wall

    def settle(self):
        self.settled += 1

    def sample(self, work, calls, cold):
        arm = work()
        self.order.append((arm, calls, cold))
        took = next(self.seconds[arm])
        self.wall += took * calls
        return took

    def clock_mhz(self):
        return self.mhz

    def measure(self, stop, cold=False, droppable=()):
        arms = {arm: self.work(arm) for arm in self.seconds}
        return measure(arms, self, stop, cold=cold, droppable=droppable)


def test_quiet_arms_stop_at_the_fewest_samples_and_take_turns_abba():
    device = Stub({"a": [0.010], "b": [0.020]})
    found = device.measure(Stop(samples=4), cold=True)
    assert [arm for arm, _, _ in device.order] == list("abbaabba")
    assert all(cold for _, _, cold in device.order)
    assert found["a"] == Timing(10.0, 10.0, 10.0, 4, 1, 0.0)
    assert device.settled == 8


def test_a_noisy_arm_is_sampled_until_its_median_is_known():
    noisy = [0.010, 0.014]
    device = Stub({"a": noisy, "b": [0.020]})
    found = device.measure(Stop(samples=4, noise=0.02, timeout_s=1e9))
    assert found["a"].samples == found["b"].samples > 100
    assert found["a"].noise <= 0.02
    assert found["a"].unmet == ""


def test_noise_above_the_limit_is_recorded_at_the_timeout():
    device = Stub({"a": [0.01, 0.02], "b": [0.02]})
    found = device.measure(Stop(samples=4, noise=1e-6, timeout_s=0.5))
    assert "noise" in found["a"].unmet
    assert "0.00% required after 0.5" in found["a"].unmet
    assert found["b"].unmet == ""
    assert found["a"].record()["unmet"] == found["a"].unmet
    assert "unmet" not in found["b"].record()


def test_too_few_samples_are_recorded_at_the_timeout():
    found = Stub({"a": [1.0]}).measure(Stop(samples=10, timeout_s=2.5), cold=True)
    assert found["a"].unmet == "3 samples, 10 required after 3.0 s"


def test_hot_samples_are_batches_of_calls():
    device = Stub({"a": [0.001]})
    found = device.measure(Stop(samples=2, batch_s=0.005))
    assert found["a"].calls == 5
    assert found["a"].median_ms == pytest.approx(1.0)


def test_slow_droppable_arms_are_dropped():
    device = Stub({"a": [0.010], "slow": [0.016], "near": [0.014], "kept": [0.030]})
    stop = Stop(samples=6, at_most=1.5)
    found = device.measure(stop, cold=True, droppable=("a", "slow", "near"))
    assert [found[arm].samples for arm in ("a", "slow", "near", "kept")] == [6, 2, 6, 6]
    assert found["slow"].unmet == "1.60 of the fastest after 2 samples"
    assert found["slow"].median_ms == 16.0
    assert not any(found[arm].unmet for arm in ("a", "near", "kept"))
    once_slow = Stub({"a": [0.010], "b": [0.030, 0.011]})  # one good sample is enough to stay
    assert once_slow.measure(stop, cold=True, droppable=("b",))["b"].samples > 2


def test_timings_round_trip_through_their_record():
    timing = Timing(1.0, 1.5, 2.0, 10, 3, 0.01, "noise", 1980.0)
    assert Timing.of({**timing.record(), "line": "x"}) == timing


def of(low, q3, mhz=None):
    return Timing(low, (low + q3) / 2, q3, 10, 1, 0.0, mhz=mhz)


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        (of(1.0, 1.2), of(1.3, 1.5), "faster"),
        (of(1.3, 1.5), of(1.0, 1.2), "slower"),
        (of(1.0, 1.4), of(1.3, 1.5), "ambiguous"),
        (of(1.0, 1.2, 1000), of(1.3, 1.5, 1000), "faster"),
        (of(1.0, 1.2, 1500), of(1.3, 1.5, 1000), "ambiguous"),  # same cycles, higher clock
        (of(1.0, 1.2, 1500), of(1.3, 1.5), "faster"),
    ],
)
def test_the_verdict_needs_a_gap_in_time_and_in_cycles(ours, theirs, says):
    assert verdict(ours, theirs) == says


def test_fused_arms_have_only_fused_references():
    eager, ours, cudnn = of(2.0, 2.1), of(1.0, 1.1), of(1.5, 1.6)
    found = {"torch": cudnn, "eager+relu": eager, "triton+relu": ours}
    assert points.reference_of("triton+relu", found) is None
    found |= {"cudnn+relu": cudnn, "compile+relu": eager, "cudnn+add_relu": ours}
    assert points.reference_of("triton+relu", found) == "cudnn+relu"
    assert points.reference_of("eager+relu", found) == "cudnn+relu"
    assert points.reference_of("compile+relu", found) is None


@pytest.mark.parametrize(("arms", "samples"), [(1, 3), (4, 3), (6, 5)])
def test_more_arms_get_a_longer_time_limit(arms, samples):
    """A tuner has dozens: each needs as many samples as one of a few."""
    device = Stub({str(i): [0.25 / arms] for i in range(arms)})

    class Here:
        references, cold, stop = (), True, Stop(samples=100, timeout_s=0.7)

        def prepare(self, call, names):
            return points.Prepared({name: device.work(name) for name in names})

    here = Here()
    here.device = device
    rows = list(points.point(here, CALL, list(device.seconds)))
    assert {row["samples"] for row in rows} == {samples}


ROOF = Roof({"bf16": 1e12, "tf32": 5e11}, 1e11)
CALL = parse("conv.fprop:n1c64k64_i56x56_f3x3_p1:bias=0:dt=bf16").call


def test_a_time_above_the_roof_is_refused():
    least = ROOF.seconds(CALL, cold=True)
    assert ROOF.fraction(CALL, 2 * least, cold=True) == pytest.approx(0.5)
    with pytest.raises(RoofError, match=r"conv.fprop:n1c64.*: 2.00 of the roof"):
        ROOF.fraction(CALL, least / 2, cold=True)


def test_only_cold_operands_cost_memory_bandwidth():
    slow_memory = Roof({"bf16": 1e18}, 1e9)
    assert slow_memory.seconds(CALL, cold=True) == pytest.approx(CALL.bytes_moved() / 1e9)
    assert slow_memory.fraction(CALL, 1e-6, cold=False) < 1


def test_float32_has_a_roof_of_its_own_for_each_math():
    tf32 = parse("conv.fprop:n1c64k64_i56x56_f3x3_p1:bias=0:math=tf32").call
    ieee = parse("conv.fprop:n1c64k64_i56x56_f3x3_p1:bias=0").call
    assert ROOF.seconds(tf32, cold=False) == pytest.approx(tf32.flop() / 5e11)
    assert ROOF.seconds(ieee, cold=False) == 0.0  # not measured: no roof, no refusal
