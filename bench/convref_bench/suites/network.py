"""A suite on any backends of a device: judged, then timed side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from convref import dispatch
from convref.arrays import to_torch
from convref.case import Call, Case
from convref.conformance.operands import operands
from convref.errors import ConvrefError, message
from convref.judge import judge

from .. import options, records
from ..timing import cpu
from ..timing.cpu import SPIN_S, Cpu
from ..timing.measure import Stop, Work
from ..timing.point import Place, Prepared, configured, point
from ..timing.roofline import Roof
from . import suite

STOP = Stop(samples=8, noise=0.02, timeout_s=3.0, turn=2)


class CpuPlace:
    """The CPU: NumPy operands, results judged by the oracle itself.

    Parameters
    ----------
    stop : Stop
    spin_s : float
        Pause between arms.
    """

    cold = False
    references = ("torch",)

    def __init__(self, stop: Stop = STOP, spin_s: float = SPIN_S) -> None:
        self.stop, self.device = stop, Cpu(spin_s)

    def prepare(self, call: Call, names: Sequence[str]) -> Prepared:
        """Return what can be timed, and why the others cannot."""
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
            ready.works[name] = _aten(call, given) if name == "torch" else work
        return ready

    def more(self, name: str) -> records.Record:
        """Return nothing: wall time is all there is."""
        return {}


def _aten(call: Call, given: Sequence[Any]) -> Work:
    """Return ATen's own call on the operands, as users make it, where there is one."""
    from convref.backends.torch.direct import direct

    if (run := direct(call)) is None:
        return partial(dispatch.load("torch").run, call, *given)
    return partial(run, *(None if array is None else to_torch(array) for array in given))


def place_of(device: str, beside: bool = True) -> Place:
    """Return the place of a row of DEVICES; `beside`: hot and wall times on CUDA too."""
    if device.startswith("cpu"):
        return CpuPlace()
    from ..gpu.cuda import Cuda, CudaPlace, is_there

    if not is_there():
        raise ConvrefError(message("bench", "--device is 'cuda', needs one that torch sees"))
    return CudaPlace(Cuda(), beside=beside)


def rows(
    layers: Sequence[suite.Layer],
    backends: Sequence[str],
    place: Place,
    passes: Sequence[str] = suite.PASSES,
    keys: Sequence[str] = ("",),
    batch: int = 1,
    roof: Roof | None = None,
) -> Iterator[records.Record]:
    """Yield a record per number type, layer, pass and arm.

    A result that the judge finds wrong is recorded as refused and not timed.
    """
    for key in keys:
        for layer in layers:
            for pass_ in layer.passes(passes):
                call = layer.call(pass_, batch, layer.keys(key))
                for row in point(place, call, backends, roof):
                    yield {**row, "layer": layer.name, "times": layer.times}


def run(
    name: str,
    backend: str,
    passes: str,
    dtype: str,
    device: str,
    batch: int,
    out: Path | None,
    threads: int | None,
    ops: str,
) -> int:
    """Time a suite, print and append each record; exit status 1 if a result was refused.

    `threads` is how many each arm may use on the CPU; by default as many as it takes.
    """
    from ..report.tables import NetworkTable

    keys = [options.keys(word, device) for word in options.words(dtype)]
    chosen = options.chosen(passes, suite.PASSES, "pass")
    layers, arms = suite.load(name, options.ops(ops)), options.words(backend)
    for arm in arms:
        if "+" not in arm and "." not in arm:
            dispatch.load(arm)
    with ExitStack() as stack:
        if threads is not None:
            _limit(stack, threads, arms)
        table = stack.enter_context(NetworkTable(name))
        for row in rows(layers, arms, place_of(device), chosen, keys, batch):
            records.append(out or records.RESULTS / "network.jsonl", {**row, "suite": name})
            table.add(row)
    return int(table.refused > 0)


def _limit(stack: ExitStack, count: int, arms: Sequence[str]) -> None:
    """Let NumPy, torch and each arm that can be told use `count` threads."""
    stack.enter_context(cpu.threads(count))
    for arm in arms:
        backend = dispatch.load(arm) if "+" not in arm and "." not in arm else None
        if hasattr(backend, "threads"):
            stack.enter_context(backend.threads(count))
