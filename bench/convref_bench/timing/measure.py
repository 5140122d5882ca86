"""Timing: arms interleaved until the noise is low, and a verdict that may be "ambiguous".

The device is an argument, so tests pass a stub.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import exp, inf, log, sqrt
from statistics import fmean, quantiles
from typing import Any

Work = Callable[[], Any]


class Device:
    """A device that times work: `now` decides when to stop, `sample` is reported."""

    name: str

    def now(self) -> float:
        return time.perf_counter()

    def settle(self) -> None:
        """Wait until queues are empty and the threads of the last arm sleep."""

    def sample(self, work: Work, calls: int, cold: bool) -> float:
        """Return the seconds one of `calls` calls took; cold: caches flushed before each."""
        raise NotImplementedError

    def clock_mhz(self) -> float | None:
        """Return the clock of the processor that does the work, None where unknown."""
        return None


@dataclass(frozen=True)
class Stop:
    """When an experiment has enough samples."""

    samples: int = 10  # at least, per arm
    noise: float = 0.005  # relative error of the median, from the quartiles
    timeout_s: float = 15.0  # wall time after which an unmet criterion is recorded instead
    turn: int = 1  # samples of an arm before the next arm
    batch_s: float = 0.0  # a hot sample is a batch of calls of about this duration
    at_most: float = inf  # drop a droppable arm above this multiple of the fastest sample


@dataclass(frozen=True)
class Timing:
    """The time of one arm, in milliseconds per call; verdicts compare [low_ms, q3_ms]."""

    low_ms: float
    median_ms: float
    q3_ms: float
    samples: int
    calls: int  # in each sample
    noise: float  # interquartile range over median and square root of samples
    unmet: str = ""  # the criterion that the time limit cut off
    mhz: float | None = None  # median clock during the samples

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}

    @staticmethod
    def of(record: Mapping[str, Any]) -> Timing:
        return Timing(**{name: record[name] for name in Timing.__annotations__ if name in record})


@dataclass(eq=False)
class _Arm:
    work: Work
    calls: int = 1
    seconds: list[float] = field(default_factory=list)
    mhz: list[float] = field(default_factory=list)
    dropped: str = ""

    def noise(self) -> float:
        if len(self.seconds) < 2:
            return inf
        q1, median, q3 = quantiles(self.seconds, n=4, method="inclusive")
        return (q3 - q1) / (median * sqrt(len(self.seconds))) if median else inf


def measure(
    arms: Mapping[str, Work],
    device: Device,
    stop: Stop = Stop(),
    *,
    cold: bool = False,
    droppable: Collection[str] = (),
) -> dict[str, Timing]:
    """Return a Timing per arm, the arms taking turns in the order A B, B A, A B, ...

    A cold sample is one call after a flush of the caches. `droppable` arms are dropped by
    `Stop.at_most`.
    """
    running = {name: _Arm(work) for name, work in arms.items()}
    start = device.now()
    for arm in running.values():
        arm.calls = 1 if cold else _calls(arm.work, device, stop)
    order = list(running.values())
    while True:
        for arm in order:
            _time_turn(arm, device, stop, cold)
        order.reverse()
        _drop(order, [arm for name, arm in running.items() if name in droppable], stop)
        elapsed = device.now() - start
        if (unmet := _unmet(order, stop)) == "" or elapsed >= stop.timeout_s:
            late = f"{unmet} after {elapsed:.1f} s" if unmet else ""
            return {name: _timing(arm, stop, late) for name, arm in running.items()}


def _drop(order: list[_Arm], droppable: list[_Arm], stop: Stop) -> None:
    """Remove the arms from `order` that are above `stop.at_most` after two samples."""
    least = min(min(arm.seconds) for arm in order)
    for arm in droppable:
        ratio = min(arm.seconds) / least if least else 1.0
        if arm in order and len(arm.seconds) > 1 and ratio > stop.at_most:
            arm.dropped = f"{ratio:.2f} of the fastest after {len(arm.seconds)} samples"
            order.remove(arm)


def _calls(work: Work, device: Device, stop: Stop) -> int:
    """Return how many calls fill a batch, from one warm call."""
    work()
    once = device.sample(work, 1, False)
    return max(1, min(1000, round(stop.batch_s / once))) if once > 0 else 1


def _time_turn(arm: _Arm, device: Device, stop: Stop, cold: bool) -> None:
    device.settle()
    arm.work()
    for _ in range(stop.turn):
        arm.seconds.append(device.sample(arm.work, arm.calls, cold))
    if (mhz := device.clock_mhz()) is not None:
        arm.mhz.append(mhz)


def _unmet(arms: list[_Arm], stop: Stop) -> str:
    fewest = min(len(arm.seconds) for arm in arms)
    if fewest < stop.samples:
        return f"{fewest} samples, {stop.samples} required"
    noise = max(arm.noise() for arm in arms)
    return f"noise {noise:.2%}, {stop.noise:.2%} required" if noise > stop.noise else ""


def _timing(arm: _Arm, stop: Stop, late: str) -> Timing:
    seconds = sorted(arm.seconds)
    q3 = median = seconds[0]
    if len(seconds) > 1:
        _, median, q3 = quantiles(seconds, n=4, method="inclusive")
    met = len(seconds) >= stop.samples and arm.noise() <= stop.noise
    noise = arm.noise() if len(seconds) > 1 else 1.0
    mhz = sorted(arm.mhz)[len(arm.mhz) // 2] if arm.mhz else None
    ms = (1e3 * value for value in (seconds[0], median, q3))
    unmet = arm.dropped or ("" if met else late)
    return Timing(*ms, len(seconds), arm.calls, noise, unmet, mhz)


def geometric_mean(values: Iterable[float], weights: Iterable[float] | None = None) -> float:
    """Return the geometric mean, by default with equal weights.

    >>> round(geometric_mean([1.0, 8.0], [1, 2]), 6)
    4.0
    """
    return exp(fmean(map(log, values), weights))


def verdict(ours: Timing, theirs: Timing) -> str:
    """Return "faster", "slower" or "ambiguous" for `ours`, by the intervals [low, q3].

    Where both clocks are known, the same must be true in cycles.

    >>> fast, slow = Timing(1.0, 1.1, 1.2, 10, 1, 0.0), Timing(1.3, 1.4, 1.5, 10, 1, 0.0)
    >>> verdict(fast, slow), verdict(slow, fast), verdict(fast, fast)
    ('faster', 'slower', 'ambiguous')
    """
    found = _comparison(ours, theirs, 1.0, 1.0)
    if ours.mhz and theirs.mhz and _comparison(ours, theirs, ours.mhz, theirs.mhz) != found:
        return "ambiguous"
    return found


def _comparison(ours: Timing, theirs: Timing, our_clock: float, their_clock: float) -> str:
    if ours.q3_ms * our_clock < theirs.low_ms * their_clock:
        return "faster"
    if ours.low_ms * our_clock > theirs.q3_ms * their_clock:
        return "slower"
    return "ambiguous"
