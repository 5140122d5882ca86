"""Trees of tensors as bytes. Reading them executes nothing, as reading a pickle would."""

import json
import math
from typing import Any

import torch

from ..errors import a_kind

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_PLAIN = (bool, int, float, str, type(None))


class WireError(ValueError):
    """Bytes are no tree of tensors, or a tree has something else in it."""


def pack(tree: Any) -> bytes:
    """Return a tree of tensors, numbers and text as bytes."""
    buffers: list[bytes] = []
    head = json.dumps(_described(tree, buffers)).encode()
    return b"".join((len(head).to_bytes(8, "little"), head, *buffers))


def _described(tree: Any, buffers: list[bytes]) -> Any:
    if isinstance(tree, torch.Tensor):
        return {"tensor": _tensor(tree, buffers)}
    if isinstance(tree, torch.dtype) and tree in _NAMES:
        return {"dtype": _NAMES[tree]}
    if isinstance(tree, (list, tuple)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_described(part, buffers) for part in tree]}
    if isinstance(tree, dict) and all(type(key) is str for key in tree):
        return {"dict": {key: _described(part, buffers) for key, part in tree.items()}}
    if type(tree) not in _PLAIN:
        raise WireError(f"{a_kind(tree)}, needs tensors, numbers or text")
    return {"plain": tree}


def _tensor(t: Any, buffers: list[bytes]) -> list[Any]:
    if t.dtype not in _NAMES or t.layout != torch.strided:
        raise WireError(f"a tensor of {t.dtype} and {t.layout}, needs a plain one")
    flat = t.detach().cpu().contiguous().reshape(-1)
    buffers.append(flat.view(torch.uint8).numpy().tobytes())
    return [_NAMES[t.dtype], list(t.shape)]


def unpack(data: bytes) -> Any:
    """Return the tree that these bytes hold; they may come from anyone."""
    try:
        end = 8 + int.from_bytes(data[:8], "little")
        reader = _Reader(data, end)
        tree = reader.read(json.loads(data[8:end]))
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise WireError(f"cannot be read: {error}") from None
    if reader.place != len(data):
        raise WireError("cannot be read: more bytes than tensors")
    return tree


class _Reader:
    def __init__(self, data: bytes, place: int) -> None:
        self.data, self.place = data, place

    def read(self, node: Any) -> Any:
        ((kind, part),) = node.items()
        if kind == "tensor":
            return self._tensor(*part)
        if kind == "dtype":
            return _DTYPES[part]
        if kind == "dict":
            return {str(key): self.read(value) for key, value in part.items()}
        if kind in ("list", "tuple"):
            return (list if kind == "list" else tuple)(self.read(each) for each in part)
        if kind != "plain" or type(part) not in _PLAIN:
            raise WireError(f"unknown kind {kind}")
        return part

    def _tensor(self, name: str, shape: list[int]) -> Any:
        dtype = _DTYPES[name]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise WireError("a shape of other than whole numbers")
        start, self.place = self.place, self.place + math.prod(shape) * dtype.itemsize
        if self.place > len(self.data):
            raise WireError("fewer bytes than a tensor needs")
        if start == self.place:
            return torch.empty(shape, dtype=dtype)
        part = bytearray(self.data[start : self.place])
        return torch.frombuffer(part, dtype=dtype).reshape(shape)
