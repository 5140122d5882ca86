"""Judge a suite on backends of a device, then time them side by side."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from convref import dispatch
from convref.errors import invalid

from .. import options, records
from ..timing import cpu
from ..timing.point import Place, point
from . import suite


def place_of(device: str, threads: int | None = None) -> Place:
    if device.startswith("cpu"):
        place = cpu.CpuPlace()
        if threads == 1:  # processor time, which other processes do not disturb
            place.device = cpu.Cpu(0.0, time.thread_time)
        return place
    import torch

    from ..gpu.cuda import Cuda, CudaPlace

    if not torch.cuda.is_available():
        raise invalid("bench", "--device is 'cuda', needs one that torch sees")
    return CudaPlace(Cuda())


def rows(
    layers: Sequence[suite.Layer],
    backends: Sequence[str],
    place: Place,
    passes: Sequence[str] = suite.PASSES,
    keys: Sequence[str] = ("",),
    batch: int = 1,
) -> Iterator[records.Record]:
    """Yield a record per number type, layer, pass and arm; a wrong result is refused, not timed."""
    for key in keys:
        for layer in layers:
            for pass_ in layer.passes(passes):
                call = layer.call(pass_, batch, layer.keys(key))
                for row in point(place, call, backends):
                    yield {**row, "layer": layer.name, "times": layer.times}


def run(
    suite_: str,
    *,
    backend: str = "numpy,torch",
    pass_: str = suite.ALL_PASSES,
    op: str = "conv",
    dtype: str = "f32",
    math: str = "ieee",
    device: str = "cpu",
    batch: int = 1,
    threads: int | None = None,
    out: Path = records.RESULTS / "network.jsonl",
) -> int:
    """Time a suite, judged first; append and print each record.

    Lists have commas. --backend names arms; the torch arms are the reference. --pass: of conv
    fprop, dgrad, wgrad, of others fprop, backward. --op: ops or families of ops (conv, pool).
    --dtype: bf16, f16, f32, f64; --math, of f32: ieee, tf32, tf32x3. --device: cpu, cpu-nhwc or
    cuda. --threads limits each arm on the CPU; with 1, times are of the processor. Exit status 1 if
    a result was refused.
    """
    from ..report.summary import print_means, print_record

    keys = options.keys(dtype, math, device)
    chosen = options.parse_choices(pass_, suite.PASSES, "pass")
    layers, arms = suite.load(suite_, options.ops(op)), options.words(backend)
    backends = [dispatch.load(arm) for arm in arms if "+" not in arm and "." not in arm]
    found: list[records.Record] = []
    with ExitStack() as stack:
        if threads is not None:
            stack.enter_context(cpu.threads(threads, *backends))
        stack.callback(print_means, suite_, found)  # also of a run that was cut off
        for row in rows(layers, arms, place_of(device, threads), chosen, keys, batch):
            records.append(out, {**row, "suite": suite_})
            found.append(row)
            print_record(row)
    return int(any(row["what"] == "refused" for row in found))
