"""A suite on any backends of a device: judged, then timed side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from convref import dispatch, dtypes
from convref.case import Call
from convref.errors import ConvrefError, message
from convref.judge import judge

from . import options, records, suite
from .cpu import SPIN_S, Cpu
from .points import Place, Prepared, configured, point
from .roofline import Roof
from .timing import Stop

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
        ready, given = Prepared(), operands(call)
        for name in names:
            backend, options = configured(name, call)
            if (reason := backend.supports(call)) is not None:
                ready.absent[name] = reason
                continue
            work = partial(backend.run, call, *given, **options)
            if not (found := judge(call, given, work(), backend.numerics(call))):
                ready.refused[name] = found.reason
                continue
            ready.works[name] = work
        return ready

    def more(self, name: str) -> records.Record:
        """Return nothing: wall time is all there is."""
        return {}


def operands(call: Call) -> list[Any]:
    """Return normal operands in the signature's order, None for those that are absent."""
    rng, dtype = np.random.default_rng(0), dtypes.numpy_dtype(call.dtype)
    shapes = [call.problem.shape(role) if call.is_present(role) else None for role in call.roles]
    return [None if s is None else rng.standard_normal(s).astype(dtype) for s in shapes]


def place_of(device: str, beside: bool = True) -> Place:
    """Return the place called "cpu" or "cuda"; `beside`: hot and wall times on the latter too."""
    if device == "cpu":
        return CpuPlace()
    from .cuda import Cuda, CudaPlace, is_there

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
            for pass_ in passes:
                call = layer.call(pass_, batch, layer.keys(key))
                for row in point(place, call, backends, roof):
                    yield {**row, "layer": layer.name, "times": layer.times}


def run(
    name: str, backends: str, passes: str, dtype: str, device: str, batch: int, out: Path
) -> int:
    """Time a suite, print and append each record; exit status 1 if a result was refused."""
    from .tables import NetworkTable

    keys = [options.keys(word, device) for word in options.words(dtype)]
    chosen = options.chosen(passes, suite.PASSES, "pass")
    layers, arms = suite.load(name), options.words(backends)
    for arm in arms:
        if "+" not in arm and "." not in arm:
            dispatch.load(arm)
    with NetworkTable(name) as table:
        for row in rows(layers, arms, place_of(device), chosen, keys, batch):
            records.append(out, {**row, "suite": name})
            table.add(row)
    return int(table.refused > 0)
