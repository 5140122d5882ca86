"""The CPU: the oracle against torch in float64 on ResNet-50, and what calling costs the host."""

from __future__ import annotations

import os
import platform
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from convref import dispatch, oracle
from convref.case import Call, parse
from convref.ops import ConvProblem

from .. import records
from ..suites import suite
from .measure import Stop, Timing, Work, measure, verdict

BATCH = 4
LAYER = Stop(samples=8, noise=0.02, timeout_s=2.2, turn=4)
HOST = Stop(samples=20, noise=0.02, timeout_s=2.0, turn=5, batch_s=0.005)
SPIN_S = 0.12  # OpenBLAS and OpenMP threads spin for about so long after their last task
STEM = "conv1"
TINY = "conv.fprop:n2c4k4_i6x6_f3x3:dt=f64"


class Cpu:
    """The processor this runs on.

    Parameters
    ----------
    spin_s : float
        Pause before an arm's turn, until the other library's threads sleep.
    """

    name = "cpu"

    def __init__(self, spin_s: float = SPIN_S) -> None:
        self.spin_s = spin_s

    def now(self) -> float:
        """Return wall time in seconds."""
        return time.perf_counter()

    def settle(self) -> None:
        """Let the other arm's threads go to sleep."""
        time.sleep(self.spin_s)

    def sample(self, work: Work, calls: int, cold: bool) -> float:
        """Return the seconds one of `calls` calls took; there is no cold sample here."""
        assert not cold
        start = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - start) / calls

    def clock_mhz(self) -> float | None:
        """Return None: unknown from here."""
        return None


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let NumPy's and torch's libraries use `count` threads each."""
    import torch

    before = torch.get_num_threads()
    with ExitStack() as stack:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            pass
        else:
            stack.enter_context(threadpool_limits(count, user_api="blas"))
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def arms(problem: ConvProblem, seed: int = 0) -> dict[str, tuple[Work, Work]]:
    """Return, by pass, what the oracle and torch are asked to do with the same float64 data."""
    import torch

    rng = np.random.default_rng(seed)
    x, w, dy = (rng.standard_normal(problem.shape(role)) for role in ("x", "w", "dy"))
    x_t, w_t, dy_t = map(torch.from_numpy, (x, w, dy))
    padding = [lo for lo, _ in problem.padding]
    shape = (problem.stride, padding, problem.dilation, False, [0] * problem.rank, problem.groups)

    def backward(*mask: bool) -> Callable[[], Any]:
        slot = mask.index(True)
        run = torch.ops.aten.convolution_backward
        return lambda: run(dy_t, x_t, w_t, None, *shape, [*mask])[slot]

    return {
        "fprop": (
            lambda: oracle.conv_fprop(x, w, None, problem),
            lambda: torch.convolution(x_t, w_t, None, *shape),
        ),
        "dgrad": (lambda: oracle.conv_dgrad(dy, w, problem), backward(True, False, False)),
        "wgrad": (lambda: oracle.conv_wgrad(dy, x, problem), backward(False, True, False)),
    }


def agree(call: Call, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Raise unless two float64 results differ by no more than rounding explains.

    The bound holds for data below 8 in absolute value: gamma_n of each side times n times 64.
    """
    n = call.products(call.wanted[0])
    limit = 2 * (n * 2.0**-53) * n * 64
    off = float(np.abs(ours - theirs).max(initial=0.0))
    if off > limit:
        raise ArithmeticError(f"{call}: oracle and torch differ by {off:.3g}, at most {limit:.3g}")


def peak_ratio(call: Call, work: Work) -> float:
    """Return the most memory that `work` held, result included, over operands plus result."""
    tracemalloc.start()
    try:
        work()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # only two of the three arrays of a backward pass are operands of a one-bit mask
    return peak / (8 * sum(int(np.prod(call.problem.shape(role))) for role in ("x", "w", "y")))


def layers(stop: Stop = LAYER, spin_s: float = SPIN_S) -> Iterator[records.Record]:
    """Yield a record per layer and pass of ResNet-50: the oracle against torch, float64."""
    for layer in suite.load("resnet50"):
        ready = arms(layer.problem(BATCH))
        for pass_, (ours, theirs) in ready.items():
            call = layer.call(pass_, BATCH, "dt=f64")
            agree(call, np.asarray(ours()), np.asarray(theirs()))
            memory = peak_ratio(call, ours)
            found = measure({"oracle": ours, "torch": theirs}, Cpu(spin_s), stop)
            for arm, timing in found.items():
                row = _row("layer", str(call), arm, timing)
                row |= {"suite": "resnet50", "layer": layer.name, "times": layer.times}
                if arm == "oracle":
                    row |= {"verdict": verdict(timing, found["torch"]), "memory": round(memory, 3)}
                yield row


def host(stop: Stop = HOST) -> Iterator[records.Record]:
    """Yield what one tiny convolution costs through each door, from the formula to dispatch."""
    import torch

    call = parse(TINY).call
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(call.problem.shape(role)) for role in ("x", "w", "b"))
    tensors = tuple(map(torch.from_numpy, (x, w, b)))
    doors: dict[str, Work] = {
        "formula": lambda: oracle.conv_fprop(x, w, b, call.conv),
        "oracle.evaluate": lambda: oracle.evaluate(call, x, w, b),
        "dispatch.run numpy": lambda: dispatch.run(call, x, w, b),
        "dispatch.run torch": lambda: dispatch.run(call, *tensors),
        "torch.convolution": lambda: torch.convolution(
            *tensors, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        ),
        "dispatch.plan": lambda: dispatch.plan(call),
        "parse a line": lambda: parse(TINY),
    }
    for door, timing in measure(doors, Cpu(0.0), stop).items():
        yield _row("host", TINY, door, timing)


def _row(what: str, line: str, arm: str, timing: Timing) -> records.Record:
    return {"what": what, "line": line, "arm": arm, **timing.record()}


def machine(count: int) -> records.Record:
    """Return what the timings depend on."""
    import torch

    return {
        "what": "machine",
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "threads": count,
        "torch": torch.__version__,
    }


def geometric_means(rows: list[records.Record], time: str = "median_ms") -> dict[str, float]:
    """Return torch time over oracle time by pass: layers weighted by count, the stem left out.

    `time` is the field compared: "low_ms" is what neighbours on a shared machine disturb least.
    """
    pairs: dict[str, dict[str, records.Record]] = {}
    for row in rows:
        if row["what"] == "layer" and row["layer"] != STEM:
            pairs.setdefault(row["line"], {})[row["arm"]] = row
    logs: dict[str, list[tuple[int, float]]] = {}
    for line, pair in pairs.items():
        ratio = pair["torch"][time] / pair["oracle"][time]
        pass_ = line.partition(":")[0].partition(".")[2]
        logs.setdefault(pass_, []).append((pair["oracle"]["times"], log(ratio)))
    return {
        pass_: exp(sum(n * value for n, value in found) / sum(n for n, _ in found))
        for pass_, found in logs.items()
    }


def run(out: Path, count: int = 2) -> list[records.Record]:
    """Write the records of this machine to `out` as they come, and return them."""
    from ..report.tables import LiveTable

    found = [machine(count)]
    records.append(out, found[0])
    with threads(count), LiveTable() as table:
        for source in (host(), layers()):
            for row in source:
                records.append(out, row)
                found.append(row)
                table.add(row)
        table.summary(found)
    return found
