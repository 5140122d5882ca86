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
_TO = (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda)
_HOST = "convref_host"  # attribute of tensors that the program has placed on the CPU


def on_host(tensor: Any) -> bool:
    """Return whether a program has placed a tensor on the CPU, or made it of such tensors."""
    return getattr(tensor, _HOST, False)


class Placed(TorchFunctionMode):
    """Functions of torch with "cuda" for the device use the CPU.

    Every tensor is on "cuda" except those that the program has placed on the CPU by name, and what
    it computes from these alone.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        given = dict(kwargs or {})
        if function == _DEVICE:
            found = function(args[0])
            return (
                torch.device("cuda", 0) if found.type == "cpu" and not on_host(args[0]) else found
            )
        if function in (torch.Tensor.pin_memory, torch.Tensor.record_stream):
            return args[0]
        if function is torch.device:  # used in another call
            return function(*args, **given)
        host = _is_on_cpu(function, [*args, *given.values()])
        given.pop("pin_memory", None)
        copies = False
        if function in _TO:
            copies = host != on_host(args[0])  # on a GPU
            if not copies and function is not torch.Tensor.to:
                return args[0]
            function = torch.Tensor.to
        made = function(
            *map(_to_cpu_device, args), **{name: _to_cpu_device(v) for name, v in given.items()}
        )
        if copies and made is args[0]:
            made = made.clone()
        for each in made if isinstance(made, (tuple, list)) else [made]:
            if host and isinstance(each, torch.Tensor):
                setattr(each, _HOST, True)
        return made


def _is_on_cpu(function: Any, given: Sequence[Any]) -> bool:
    """Return whether the result of a function is on the CPU: as asked, else as its tensors."""
    if function in (torch.Tensor.cpu, torch.Tensor.cuda):
        return function is torch.Tensor.cpu
    for value in given:
        named = isinstance(value, str) and value.partition(":")[0] in ("cpu", "cuda")
        if named or isinstance(value, torch.device):
            return not _is_cuda(value)
    parts = (value if isinstance(value, (tuple, list)) else [value] for value in given)
    tensors = [value for part in parts for value in part if isinstance(value, torch.Tensor)]
    if function is torch.Tensor.to and len(tensors) > 1:
        tensors = tensors[1:]  # x.to(another)
    return bool(tensors) and all(map(on_host, tensors))


def _to_cpu_device(value: Any) -> Any:
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
        places = {
            "is_cuda": property(lambda tensor: not on_host(tensor)),
            "is_cpu": property(on_host),
            "get_device": lambda tensor: -1 if on_host(tensor) else 0,
        }
        for name, value in places.items():
            stack.enter_context(mock.patch.object(torch.Tensor, name, value, create=True))
        # While a mode handles Tensor.backward, it is off in the backward of the functions.
        node, placed = torch.autograd.function.BackwardCFunction, Placed()

        def apply(self: Any, *gradients: Any) -> Any:
            with placed:
                return backward(self, *gradients)

        backward = node.apply
        stack.enter_context(mock.patch.object(node, "apply", apply))
        stack.enter_context(placed)
        yield
