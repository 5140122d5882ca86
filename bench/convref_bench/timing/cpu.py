"""The CPU: its clock, the threads of its libraries, and backends on operands in its memory."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from convref.arrays import to_torch
from convref.case import Call, Case
from convref.conformance.operands import operands
from convref.judge import judge

from ..records import Record
from .measure import Device, Stop, Work
from .point import Prepared, configured

STOP = Stop(samples=8, noise=0.02, timeout_s=3.0, turn=2)
SPIN_S = 0.12  # OpenBLAS and OpenMP threads spin for about so long after their last task


class Cpu(Device):
    """The processor; it pauses `spin_s` between arms, until the threads of the last one sleep."""

    name = "cpu"

    def __init__(
        self, spin_s: float = SPIN_S, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.spin_s, self._clock = spin_s, clock

    def settle(self) -> None:
        time.sleep(self.spin_s)

    def sample(self, work: Work, calls: int, cold: bool) -> float:
        """Return the seconds one of `calls` calls took; there is no cold sample here."""
        assert not cold
        start = self._clock()
        for _ in range(calls):
            work()
        return (self._clock() - start) / calls


@contextmanager
def threads(count: int, *backends: Any) -> Iterator[None]:
    """Let torch, BLAS and those backends that have threads of their own compute on `count`."""
    import torch

    before = torch.get_num_threads()
    with ExitStack() as stack:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            pass
        else:
            stack.enter_context(threadpool_limits(count, user_api="blas"))
        for one in backends:
            if hasattr(one, "threads"):
                stack.enter_context(one.threads(count))
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def machine(count: int) -> Record:
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


class CpuPlace:
    """Backends on NumPy operands; the judge checks each result with the oracle."""

    cold = False
    references = ("torch",)

    def __init__(self, stop: Stop = STOP, spin_s: float = SPIN_S) -> None:
        self.stop, self.device = stop, Cpu(spin_s)

    def prepare(self, call: Call, names: Sequence[str]) -> Prepared:
        ready, given = Prepared(), operands(Case(call, fill="normal"))
        for name in names:
            backend, options = configured(name, call)
            if (reason := backend.supports(call)) is not None:
                ready.absent[name] = reason
                continue
            work = partial(backend.run, call, *given, **options)
            if not (found := judge(call, given, work(), backend.numerics(call))):
                ready.refused[name] = found.reason
                continue
            ready.works[name] = (name == "torch" and aten(call, given)) or work
        return ready


def aten(call: Call, given: Sequence[Any]) -> Work | None:
    """Return ATen's own call on the operands, as users write it, if there is one."""
    from convref.backends.torch.direct import direct

    run = direct(call)
    return run and partial(run, *(None if array is None else to_torch(array) for array in given))
