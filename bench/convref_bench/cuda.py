"""A CUDA device as a stop-watch: events around graph replays, operands rotated past the cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from convref.arrays import torch_dtype
from convref.case import Call

from .timing import Work

ROTATED_CACHES = 3  # operands of one sample fill the L2 cache so many times
MOST_BYTES = 8e9  # memory that rotated operands may take


class Cuda:
    """The current CUDA device; a work's `copies` says how many calls one replay holds."""

    def __init__(self) -> None:
        self.name = torch.cuda.get_device_name()

    def now(self) -> float:
        """Return wall time in seconds."""
        return time.perf_counter()

    def settle(self) -> None:
        """Wait for the queue to run empty."""
        torch.cuda.synchronize()

    def sample(self, work: Work, calls: int, cold: bool) -> float:
        """Return the seconds of one of `calls` calls, by events."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / calls / getattr(work, "copies", 1)

    def clock_mhz(self) -> float | None:
        """Return the SM clock, None where it cannot be read."""
        try:
            return float(torch.cuda.clock_rate())
        except (RuntimeError, ModuleNotFoundError, ImportError):
            return None


@dataclass
class Rotation:
    """A convolution on several copies of its operands, as one CUDA graph.

    Parameters
    ----------
    replay : callable
        Runs every copy once.
    copies : int
    how : str
        "graph", or "eager: ..." with the reason why it could not be captured.
    """

    replay: Callable[[], None]
    copies: int
    how: str

    def __call__(self) -> None:
        """Run every copy once."""
        self.replay()


def operands(call: Call, seed: int) -> tuple[torch.Tensor, ...]:
    """Return normal operands on the device, in the memory order of the call."""
    generator = torch.Generator("cuda").manual_seed(seed)
    found = []
    for role in call.roles:
        if not call.is_present(role):
            continue
        shape = call.problem.shape(role)
        tensor = torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32)
        tensor = tensor.to(torch_dtype(call.dtype))
        if call.spec(role).order and len(shape) in (4, 5):
            last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
            tensor = tensor.contiguous(memory_format=last)
        found.append(tensor)
    return tuple(found)


def copies(call: Call) -> int:
    """Return how many copies of the operands fill the cache ROTATED_CACHES times."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    moved = max(1, call.bytes_moved())
    return max(1, min(int(ROTATED_CACHES * cache / moved) + 1, int(MOST_BYTES / moved), 64))


def is_cold(call: Call, count: int) -> bool:
    """Return whether `count` copies are more than the cache holds."""
    cache: int = torch.cuda.get_device_properties(0).L2_cache_size
    return count * call.bytes_moved() >= ROTATED_CACHES * cache


def rotation(run: Callable[..., Any], sets: list[tuple[torch.Tensor, ...]]) -> Rotation:
    """Return `run` over all sets of operands, captured once; eager where that fails."""

    def eager() -> None:
        for one in sets:
            run(*one)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        eager()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            eager()
    except (RuntimeError, NotImplementedError) as error:
        torch.cuda.synchronize()
        return Rotation(eager, len(sets), f"eager: {str(error).splitlines()[0][:80]}")
    return Rotation(graph.replay, len(sets), "graph")
