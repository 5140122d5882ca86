"""Timing on a CUDA device: events around graph replays, operands rotated through the cache."""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from convref import dispatch
from convref.arrays import torch_dtype
from convref.case import Call
from convref.conformance.workers.device import is_lost
from convref.ops import OWN_TYPE, SIGNATURE, STATISTICS

from ..records import Record
from ..timing.measure import Device, Stop, Work
from ..timing.point import PLAIN, Prepared
from . import sampled, sums
from .arms import LAYOUTS, Absent, Arm, Results, arm, residual

ROTATED_CACHES = 3  # operands of one sample fill the L2 cache 3 times
MOST_BYTES = 8e9  # memory that rotated operands may take
MOST_COPIES = 64
POINT = Stop(samples=7, noise=0.01, timeout_s=0.25)  # at most about 60 ms of GPU time an arm


class Cuda(Device):
    """The current CUDA device; `copies` of a work is the number of calls in one replay."""

    def __init__(self) -> None:
        card = torch.cuda.get_device_properties(0)
        self.name, self.where, self.cache_bytes = card.name, "cuda", card.L2_cache_size

    def settle(self) -> None:
        torch.cuda.synchronize()

    def sample(self, work: Work, calls: int, cold: bool) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / calls / getattr(work, "copies", 1)

    def clock_mhz(self) -> float | None:
        clock = nvml_clock()
        return clock() if clock else None


@cache
def nvml_clock() -> Callable[[], float | None] | None:
    """Return a function that reads the SM clock of device 0, None without NVML."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        handle, mhz = ctypes.c_void_p(), ctypes.c_uint()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)):
            return None
    except (OSError, AttributeError):
        return None

    def read() -> float | None:
        status = nvml.nvmlDeviceGetClockInfo(handle, 1, ctypes.byref(mhz))  # 1: NVML_CLOCK_SM
        return None if status else float(mhz.value)

    return read


@dataclass
class Rotation:
    """A call on several sets of operands, as one CUDA graph if it can be captured."""

    replay: Callable[[], Any]  # runs every set once
    copies: int
    how: str  # "graph", or "eager: ..." with the reason
    result: Callable[[], Results]  # of the first set in the last replay; eager runs compute it anew

    def __call__(self) -> None:
        self.replay()


def operands(call: Call, seed: int, where: str = "cuda") -> tuple[torch.Tensor, ...]:
    """Return the present operands, normal or from fprop, in the memory order of the call."""
    generator = torch.Generator(where).manual_seed(seed)
    found: dict[str, torch.Tensor] = {}
    made = SIGNATURE[call.op, "fprop"].results if call.pass_ != "fprop" else ()
    for role in filter(call.is_present, call.roles):
        if role in made and role in (*OWN_TYPE, *STATISTICS):
            found[role] = _of_fprop(call, role, found)
            continue
        shape = call.problem.shape(role)
        tensor = torch.randn(shape, generator=generator, device=where, dtype=torch.float32)
        tensor = tensor.abs() if role in STATISTICS else tensor  # no variance is negative
        found[role] = tensor.to(torch_dtype(call.spec(role).dtype))
    return tuple(LAYOUTS["nhwc" if call.spec(r).order else "nchw"](t) for r, t in found.items())


def _of_fprop(call: Call, role: str, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return a result that the forward pass saves for the others, computed by torch."""
    fprop = replace(call, pass_="fprop", mask=(), specs=(replace(call.specs[0], order=""),))
    others = {name: given["x"].new_ones(call.problem.shape(name)) for name in fprop.roles}
    present = [(others | given)[name] for name in filter(fprop.is_present, fprop.roles)]
    absent = [None] * (len(fprop.roles) - len(present))
    results = dispatch.load("torch").run(fprop, *present, *absent)
    return results[fprop.signature.results.index(role)]


def copies(call: Call, cache_bytes: int) -> int:
    moved = max(1, call.bytes_moved())
    wanted = int(ROTATED_CACHES * cache_bytes / moved) + 1
    return max(1, min(wanted, int(MOST_BYTES / moved), MOST_COPIES))


def capture(run: Callable[..., Any], sets: Sequence[tuple[torch.Tensor, ...]]) -> Rotation:
    """Return `run` over all sets of operands, captured once; eager where that fails."""
    kept: list[Results] = []

    def eager() -> None:
        kept[:] = [run(*sets[0])]
        for one in sets[1:]:
            run(*one)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        eager()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            eager()
    except (RuntimeError, NotImplementedError) as error:
        torch.cuda.synchronize()
        why = f"eager: {str(error).splitlines()[0][:80]}"
        return Rotation(eager, len(sets), why, lambda: run(*sets[0]))
    for one in kept[0] if isinstance(kept[0], tuple) else kept:
        one.fill_(float("nan") if one.is_floating_point() else -1)  # the replay must write it all
    graph.replay()
    torch.cuda.synchronize()
    return Rotation(graph.replay, len(sets), "graph", lambda: kept[0])


class CudaPlace:
    """A CUDA device: operands and judge on the device, graphs replayed cold.

    `capture` makes a Rotation and is replaced in rehearsals. `watch` returns the context in which
    an arm first runs, as it may hang or lose the device.
    """

    cold = True
    references = PLAIN

    def __init__(
        self,
        device: Any,
        stop: Stop = POINT,
        capture: Callable[..., Rotation] = capture,
        watch: Callable[[Call, str], AbstractContextManager[object]] = lambda *_: nullcontext(),
    ) -> None:
        self.device, self.stop, self.capture, self.watch = device, stop, capture, watch

    def prepare(self, call: Call, names: Sequence[str]) -> Prepared:
        """Return each arm captured, and judged by the results of its graph."""
        ready = Prepared()
        count = copies(call, self.device.cache_bytes)
        try:
            sets = [operands(call, seed, self.device.where) for seed in range(count)]
            ref = sums.reference(call, sets[0]) if call.op == "conv" else None
        except (sums.JudgedWrong, torch.OutOfMemoryError) as error:
            return Prepared(refused=dict.fromkeys(names, str(error)))
        cold = count * call.bytes_moved() >= ROTATED_CACHES * self.device.cache_bytes
        for name in names:
            with self.watch(call, name):
                try:
                    work, worst, flags = self._judged(name, call, sets, ref)
                except sums.JudgedWrong as error:
                    ready.refused[name] = str(error)
                    continue
                except (Absent, RuntimeError, NotImplementedError, TypeError) as error:
                    ready.absent[name] = _text_unless_lost(error, self.device.settle)
                    continue
            ready.works[name] = work
            ready.facts[name] = {"judged": round(worst, 6), "how": work.how, "cold": cold}
            ready.facts[name] |= {"copies": count, "flags": flags}
        return ready

    def _judged(
        self,
        name: str,
        call: Call,
        sets: list[tuple[torch.Tensor, ...]],
        ref: sums.Reference | None,
    ) -> tuple[Rotation, float, Record]:
        made = arm(name, call)
        given = [made.place(one) for one in sets]
        if made.epilogue.startswith("add_"):
            where = self.device.where
            given = [(*one, residual(call, where, seed)) for seed, one in enumerate(given)]
        with made.set_flags():
            work = self.capture(made.run, given)
        if work.how != "graph":
            work.replay, work.result = (
                _with_flags(made, one) for one in (work.replay, work.result)
            )
        judged = call, made.numerics, given[0], work.result()
        worst = sums.judge(*judged, made.epilogue, ref) if ref else sampled.judge(*judged)
        return work, worst, made.flags


def _with_flags(made: Arm, eager: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that was not captured with its flags set at each call."""

    def run() -> Any:
        with made.set_flags():
            return eager()

    return run


def _text_unless_lost(error: Exception, settle: Callable[[], None]) -> str:
    """Return an error's text, or raise it again if the device is lost."""
    if is_lost(settle):
        raise error
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, Absent) else f"{type(error).__name__}: {text}"


def launched(name: str, call: Call, where: str = "cuda") -> Record:
    from torch.profiler import ProfilerActivity, profile

    try:
        made = arm(name, call)
        given = made.place(operands(call, 0, where))
        with made.set_flags():
            made.run(*given)  # the first call compiles and tunes
            with profile(activities=[ProfilerActivity.CUDA]) as found:
                made.run(*given)
                torch.cuda.synchronize()
    except (Absent, RuntimeError, NotImplementedError, TypeError) as error:
        return {"absent": _text_unless_lost(error, torch.cuda.synchronize)[:300]}
    events = (e.name for e in found.events() or () if str(e.device_type).endswith("CUDA"))
    return {"kernels": [name[:120] for name in dict.fromkeys(events)][:8]}
