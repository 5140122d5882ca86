"""The pairs of the tensors that a reference makes, kept by storage.

A view needs no rule: it reads its part of the pair of its storage, and an operation in place writes
that part. A storage without a pair holds exact values.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ...errors import UnsupportedError
from ..numerics import Numerics
from .pair import Pair, Tensor, store
from .pieces import Later, evaluated


def storage_of(tensor: Tensor) -> int:
    """Return what identifies the storage of a tensor while it lives."""
    return int(tensor.untyped_storage()._cdata)


def _is_whole(tensor: Tensor) -> bool:
    """Return whether a tensor shows all of its storage, in order."""
    return tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes()


def _geometry(tensor: Tensor) -> Any:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


@dataclass
class _Shadow:
    alive: Any  # keeps the identity of the storage from being used again
    dtype: Any
    geometry: Any  # of the tensor that has this pair; None if the pair is that of the storage
    pair: Pair | Later


class Shadows:
    """The pairs of all tensors of a trace."""

    def __init__(self, numerics: Numerics) -> None:
        self._numerics = numerics
        self._of: dict[int, _Shadow] = {}
        self._flat: set[int] = set()  # storages of pairs that are written in place
        self._most = 64

    def __contains__(self, tensor: Tensor) -> bool:
        return storage_of(tensor) in self._of

    def read(self, tensor: Tensor) -> Pair:
        """Return the pair of an operand, which includes the rounding to its dtype."""
        return store(self.unrounded(tensor), tensor.dtype, self._numerics)

    def unrounded(self, tensor: Tensor) -> Pair:
        """Return the pair of a tensor as its rule made it."""
        shadow = self._of.get(storage_of(tensor))
        if shadow is None:
            tensor = tensor.detach()
            return Pair(tensor.clone() if tensor.dtype == torch.float64 else tensor)
        shadow.pair = evaluated(shadow.pair)
        if shadow.dtype != tensor.dtype:
            what = f"reads the memory of a tensor of {shadow.dtype} as {tensor.dtype}"
            raise UnsupportedError(f"the reference {what}; convert it with .to()")
        if shadow.geometry == _geometry(tensor):
            return shadow.pair
        self._flatten(shadow, tensor)
        return shadow.pair.map(lambda part: part.as_strided(*_geometry(tensor)))

    def output_pair(self, tensor: Tensor) -> Pair | Later:
        """Return the pair of a tensor that no operation will read."""
        shadow = self._of.get(storage_of(tensor))
        same = shadow is not None and shadow.geometry == _geometry(tensor)
        if shadow is None or not same or shadow.dtype != tensor.dtype:
            return self.unrounded(tensor)
        return shadow.pair

    def make(self, tensor: Tensor, pair: Pair | Later) -> None:
        """Keep the pair of a new tensor."""
        if len(self._of) >= self._most:
            self._of = {key: each for key, each in self._of.items() if not each.alive.expired()}
            self._most = 2 * len(self._of) + 64
        if isinstance(pair, Pair) and pair.value.shape != tensor.shape:
            pair = pair.map(lambda part: part.expand(tensor.shape))
        if isinstance(pair, Pair) and self._flat:
            pair = pair.map(lambda t: t.clone() if storage_of(t) in self._flat else t)
        alive = StorageWeakRef(tensor.untyped_storage())
        self._of[storage_of(tensor)] = _Shadow(alive, tensor.dtype, _geometry(tensor), pair)

    def expect(self, tensor: Tensor) -> None:
        """Keep the pair of a storage that an operation is about to write to."""
        for other in self._of.values():  # which may be evaluated from what is overwritten
            if isinstance(other.pair, Later) and not other.alive.expired():
                other.pair = evaluated(other.pair)
        if tensor not in self:
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            flat.set_(tensor.untyped_storage())
            wide = torch.float64 if flat.dtype.is_floating_point else flat.dtype
            self.make(flat, Pair(flat.to(wide, copy=True)))
        shadow = self._of[storage_of(tensor)]
        shadow.pair = store(evaluated(shadow.pair), shadow.dtype, self._numerics)

    def write(self, tensor: Tensor, pair: Pair) -> None:
        """Write the part of an expected storage that a tensor shows."""
        if _is_whole(tensor) and pair.value.shape == tensor.shape:
            return self.make(tensor, pair)
        shadow, place = self._of[storage_of(tensor)], _geometry(tensor)
        self._flatten(shadow, tensor)
        pair = store(pair, tensor.dtype, self._numerics)
        value, error, *_ = evaluated(shadow.pair)
        value.as_strided(*place).copy_(pair.value)
        if pair.error is not None and error is None:
            error = torch.zeros_like(value, dtype=torch.float64)
        if error is not None:
            error.as_strided(*place).copy_(torch.as_tensor(pair.slack))
        shadow.pair = Pair(value, error)

    def _flatten(self, shadow: _Shadow, tensor: Tensor) -> None:
        """Lay the pair out as the storage is, so that any view can read and write it."""
        if shadow.geometry is None:
            return
        size, place = tensor.untyped_storage().nbytes() // tensor.itemsize, shadow.geometry

        def laid_out(part: Tensor) -> Tensor:
            flat = part.new_zeros(size)
            flat.as_strided(*place).copy_(part)
            self._flat.add(storage_of(flat))
            return flat

        shadow.pair, shadow.geometry = evaluated(shadow.pair).map(laid_out), None
