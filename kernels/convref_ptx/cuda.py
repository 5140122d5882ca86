"""torch.cuda on the CPU: programs that place their tensors on "cuda" run, and compute here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

SMS = 132  # multiprocessors of an H100


def _is_cuda(value: Any) -> bool:
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    return isinstance(value, torch.device) and value.type == "cuda"


_DEVICE = torch.Tensor.device.__get__
_IDENTITIES = (torch.Tensor.cuda, torch.Tensor.pin_memory, torch.Tensor.record_stream)


class Placed(TorchFunctionMode):
    """Functions of torch with "cuda" for the device use the CPU, and every tensor is on "cuda"."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        if function == _DEVICE:
            found = function(args[0])
            return torch.device("cuda", 0) if found.type == "cpu" else found
        if function in _IDENTITIES:
            return args[0]
        if function is torch.device:  # used in another call
            return function(*args, **(kwargs or {}))
        given = {name: _moved(value) for name, value in (kwargs or {}).items()}
        given.pop("pin_memory", None)
        return function(*map(_moved, args), **given)


def _moved(value: Any) -> Any:
    return torch.device("cpu") if _is_cuda(value) else value


class _Stream:
    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def synchronize(self) -> None: ...
    def wait_stream(self, other: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any:
        return event

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None: ...


class _Event(_Stream):
    def record(self, stream: Any = None) -> None: ...
    def wait(self, stream: Any = None) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1.0


def _patches(arch: int) -> dict[str, Any]:
    properties = SimpleNamespace(
        name="PTX on the CPU", major=arch // 10, minor=arch % 10, total_memory=80 << 30,
        multi_processor_count=SMS, warp_size=32, max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536, shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472, L2_cache_size=50 << 20, gcnArchName="",
    )  # fmt: skip
    null = contextlib.nullcontext
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: properties.name,
        "get_device_capability": lambda device=None: divmod(arch, 10),
        "get_device_properties": lambda device=None: properties,
        "is_bf16_supported": lambda *_, **__: True,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "device": lambda device=None: null(),
        "device_of": lambda tensor=None: null(),
        "stream": lambda stream=None: null(),
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "Stream": _Stream,
        "Event": _Event,
    }


@contextlib.contextmanager
def on_cpu(arch: int = 90) -> Iterator[None]:
    """Let programs that ask for "cuda" use the CPU within this context."""
    with contextlib.ExitStack() as stack:
        for name, value in _patches(arch).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        is_cuda = property(lambda tensor: True)
        stack.enter_context(mock.patch.object(torch.Tensor, "is_cuda", is_cuda, create=True))
        stack.enter_context(Placed())
        yield
