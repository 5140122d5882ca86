"""The tensors of a launch as allocations; tensors that share memory are one.

Memory of torch.empty is NaN, and undefined until an operation of torch or a kernel writes to it.
The bytes that are undefined are kept with the storage, which all views of it share.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..arithmetic.numbers import Array
from ..asynchronous.maps import TensorMap
from ..decode.program import Fault
from ..memory.allocations import Allocation, Pointer
from .cuda import on_host

PAGE = 4096
SCRATCH = "scratch"  # the name of memory that a launch brings along


class Address(NamedTuple):
    """A pointer argument, until it is known which tensors share its memory."""

    address: int


class Descriptor(NamedTuple):
    """A tensor map argument."""

    address: int
    width: int  # bytes of an element
    geometry: tuple[Any, ...]  # as `TensorMap` takes it: shape, strides, box, swizzle


class Operands:
    """The tensors of a launch: their elements, or with "storage" all memory behind them.

    Kernels may write to the operands that `writable` names, None for all.
    """

    def __init__(self, bounds: str = "tensor", writable: Collection[str] | None = None) -> None:
        self._bounds, self._writable = bounds, writable
        self._spans: list[_Span] = []

    def add(self, value: Any, name: str) -> Address | None:
        """Return the pointer of a tensor, or of what has a `data_ptr`, None for a null pointer.

        An object that is not a tensor, such as a view with negative strides, has the tensor that it
        views as its `base` or `_base`.
        """
        if value is None:
            return None
        owner = value
        while not isinstance(owner, torch.Tensor | None):
            owner = getattr(owner, "base", getattr(owner, "_base", None))
        if on_host(owner):
            raise Fault(f"{name} is a tensor on the CPU: the program has placed it there")
        if owner is not None and owner.numel():
            self._spans.append(self._span(owner, name))
        start = int(value.data_ptr())
        return Address(start) if start else None

    def _span(self, tensor: Any, name: str) -> _Span:
        low, storage = tensor.data_ptr(), tensor.untyped_storage()
        last = sum(s * (n - 1) for n, s in zip(tensor.shape, tensor.stride()))
        high = low + tensor.element_size() * (1 + last)
        elements = [tensor]
        if self._bounds == "storage":
            low, high, elements = storage.data_ptr(), storage.data_ptr() + storage.nbytes(), []
        shape = ", ".join(map(str, tensor.shape))
        kind = str(tensor.dtype).removeprefix("torch.")
        written = self._writable is None or name in (*self._writable, SCRATCH)
        return _Span(low, high, [f"{name} {kind}({shape})"], storage, written, elements)

    def arguments(self, given: Sequence[Any]) -> list[Any]:
        """Return the arguments of a launch, with pointers into allocations."""
        made = []
        for span in self._merged():
            low, high, storage = span.low, span.high, span.storage
            memory, name = _memory(low, high), " and ".join(span.names)
            if (undefined := shadow(storage)) is not None:
                undefined = undefined[low - storage.data_ptr() :][: high - low]
            known = memory, span.written, 0, low % PAGE, name, undefined, _gaps(span)
            made.append((low, Allocation(*known)))

        def found(address: int) -> tuple[int, Allocation]:
            near = [pair for pair in made if pair[0] <= address]
            return max(near, key=lambda pair: pair[0]) if near else (address, Allocation(_NONE))

        def argument(value: Any) -> Any:
            if isinstance(value, Address):
                low, allocation = found(value.address)
                return Pointer(allocation, value.address - low)
            if isinstance(value, Descriptor):
                low, allocation = found(value.address)
                offset = value.address - low
                return TensorMap(allocation, *value.geometry, offset=offset, width=value.width)
            return value

        return [argument(value) for value in given]

    def _merged(self) -> list[_Span]:
        """Return the spans in the order of memory; those that share bytes are one."""
        merged: list[_Span] = []
        for span in sorted(self._spans, key=lambda span: (span.low, span.high, span.names)):
            if merged and span.low < merged[-1].high:
                merged[-1].join(span)
            else:
                merged.append(span)
        return merged


@dataclass
class _Span:
    """Bytes of memory, and the tensors there."""

    low: int
    high: int
    names: list[str]
    storage: Any
    written: bool  # whether kernels may write to it
    elements: list[Any]  # the tensors whose elements may be accessed; none if all bytes may

    def join(self, other: _Span) -> None:
        self.high = max(self.high, other.high)
        self.names = list(dict.fromkeys([*self.names, *other.names]))
        self.written |= other.written
        self.elements = [*self.elements, *other.elements]


def _gaps(span: _Span) -> Array | None:
    """Return which bytes of a span belong to no element, None if all belong to one."""
    if not span.elements or (span.elements[0].is_contiguous() and len(span.elements) == 1):
        return None
    gaps = np.ones(span.high - span.low, bool)
    for tensor in span.elements:
        _bytes_of(gaps[tensor.data_ptr() - span.low :], tensor)[...] = False
    return gaps if gaps.any() else None


def _bytes_of(mask: Array, tensor: torch.Tensor) -> Array:
    """Return the bytes of a tensor's elements in a mask that begins at its first element."""
    size = tensor.element_size()
    strides = (*(n * size for n in tensor.stride()), 1)
    return np.lib.stride_tricks.as_strided(mask, (*tensor.shape, size), strides)


_NONE: Array = np.zeros(0, np.uint8)


def _memory(low: int, high: int) -> Array:
    return np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)


_SHADOW = "convref_undefined"  # attribute of a storage: 0xFF for each undefined byte
_EMPTY = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided",
          "empty_permuted")  # fmt: skip


class Tracked(TorchDispatchMode):
    """Marks memory of torch.empty as undefined, and what operations write to as defined."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        made = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in _EMPTY and function.namespace == "aten":
            _poison(made)
        for n, name in _written_arguments(function):
            define(args[n] if n < len(args) else (kwargs or {}).get(name))
        return made


@cache
def _written_arguments(function: Any) -> list[tuple[int, str]]:
    """Return the positions and names of the arguments that an operation writes to."""
    given = enumerate(function._schema.arguments)
    return [(n, a.name) for n, a in given if a.alias_info is not None and a.alias_info.is_write]


def _poison(tensor: torch.Tensor) -> None:
    storage = tensor.untyped_storage()
    if storage.device.type == "cpu" and storage.nbytes():
        pattern = 1 if tensor.dtype == torch.bool else 0xFF
        ctypes.memset(storage.data_ptr(), pattern, storage.nbytes())
        setattr(storage, _SHADOW, np.full(storage.nbytes(), 0xFF, np.uint8))


def shadow(storage: Any) -> Array | None:
    """Return a mask of the undefined bytes of a storage, None if there are none."""
    found = getattr(storage, _SHADOW, None)
    return found if found is not None and len(found) == storage.nbytes() else None


def define(value: Any) -> None:
    """Mark the elements of a tensor, or of several, as defined."""
    if isinstance(value, (list, tuple)):
        for each in value:
            define(each)
    elif isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel():
        if (mask := shadow(value.untyped_storage())) is None:
            return
        _bytes_of(mask[value.storage_offset() * value.element_size() :], value)[...] = 0


@contextlib.contextmanager
def track_undefined() -> Iterator[None]:
    """Follow the undefined memory of the tensors that are made within this context."""

    def defining(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            define(tensor)  # others may write to it from now on
            return method(tensor, *args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for name in ("numpy", "__array__", "__dlpack__"):
            method = defining(getattr(torch.Tensor, name))
            stack.enter_context(mock.patch.object(torch.Tensor, name, method))
        stack.enter_context(Tracked())
        yield
