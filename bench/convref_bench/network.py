"""A suite on any backends of this CPU: judged, then timed side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from convref import dispatch, dtypes
from convref.case import Call
from convref.judge import judge

from . import records, suite
from .cpu import SPIN_S, Cpu
from .timing import Stop, Work, measure, verdict

STOP = Stop(samples=8, noise=0.02, timeout_s=3.0, turn=2)


def rows(
    layers: Sequence[suite.Layer],
    backends: Sequence[str],
    passes: Sequence[str] = suite.PASSES,
    dtype: str = "f32",
    batch: int = 1,
    stop: Stop = STOP,
    spin_s: float = SPIN_S,
) -> Iterator[records.Record]:
    """Yield a record per layer, pass and backend; the first backend is the one compared.

    A result that the judge finds wrong is recorded as refused and not timed.
    """
    for layer in layers:
        for pass_ in passes:
            call = layer.call(pass_, batch, f"dt={dtype}")
            works, refused = _judged(call, backends)
            for name, why in refused.items():
                yield {"what": "refused", "line": str(call), "arm": name, "why": why}
            found = measure(works, Cpu(spin_s), stop) if works else {}
            for name, timing in found.items():
                row = {"what": "network", "line": str(call), "arm": name, **timing.record()}
                row |= {"layer": layer.name, "times": layer.times}
                if name == backends[0] and backends[-1] in found and len(found) > 1:
                    row["verdict"] = verdict(timing, found[backends[-1]])
                yield row


def _judged(call: Call, backends: Sequence[str]) -> tuple[dict[str, Work], dict[str, str]]:
    """Return what can be timed, and why the others cannot."""
    rng = np.random.default_rng(0)
    dtype = dtypes.numpy_dtype(call.dtype)
    given = [
        rng.standard_normal(call.problem.shape(role)).astype(dtype)
        if call.is_present(role)
        else None
        for role in call.roles
    ]
    works: dict[str, Work] = {}
    refused: dict[str, str] = {}
    for name in backends:
        backend = dispatch.load(name)
        reason = backend.supports(call)
        if reason is None:
            found = judge(call, given, backend.run(call, *given), backend.numerics(call))
            reason = None if found else found.reason
        if reason is not None:
            refused[name] = reason
            continue
        works[name] = lambda backend=backend: backend.run(call, *given)
    return works, refused


def run(
    name: str, backends: list[str], passes: list[str], dtype: str, batch: int, out: Path
) -> int:
    """Time a suite, print and append each record; exit status 1 if a result was refused."""
    from rich.console import Console

    from .tables import spread

    console, bad = Console(highlight=False), 0
    for row in rows(suite.load(name), backends, passes, dtype, batch):
        records.append(out, row)
        bad += row["what"] == "refused"
        text = row["why"] if row["what"] == "refused" else spread(row)
        said = f"{row['line']:<60} {row['arm']:<10} {text}  {row.get('verdict', '')}"
        console.print(said, markup=False, soft_wrap=True)
    return int(bad > 0)
