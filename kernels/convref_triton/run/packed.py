"""Filters in the order that a kernel reads best, kept between calls: what packs them once.

A packed copy is known by the very tensor that it was made of, by where that one's memory lies, by
its version, which PyTorch counts up with every write in place, and by the stream that made it, so
that no other stream meets it half done. It goes when its tensor goes.

What PyTorch does not count it cannot tell: writes through `tensor.data` or by somebody's kernel.
Nothing is kept, therefore, until `keep` is called by whoever knows that there are none.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch

from convref.errors import ConvrefError, message

Key = tuple[int, Hashable]


class Entry(NamedTuple):
    """A packed copy, and what it was made of."""

    source: weakref.ref[torch.Tensor]
    address: int
    version: int
    packed: torch.Tensor

    def is_of(self, source: torch.Tensor) -> bool:
        """Return whether the copy is what `source` would be packed into now."""
        same = self.source() is source and self.version == source._version
        return same and self.address == source.data_ptr()


class Cache:
    """Packed copies, those that were used last, of at most `limit` bytes in total.

    Threads may share one. A copy that nobody holds any more is memory of the caching allocator of
    the stream that it was made on.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit, self.bytes = limit, 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._lock = threading.RLock()  # a tensor may die, and say so, in any allocation

    def __len__(self) -> int:
        return len(self._entries)

    def get(
        self, source: torch.Tensor, form: Hashable, pack: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        """Return `source` packed into `form`, by `pack` unless an equal one is kept.

        Parameters
        ----------
        source : torch.Tensor
        form : hashable
            What the copy depends on besides the values, the stream included.
        pack : callable
            Returns a new copy.
        """
        if source.is_inference():  # its versions are not counted
            return pack()
        key = id(source), form
        with self._lock:
            found = self._entries.get(key)
            if found is not None and found.is_of(source):
                self._entries.move_to_end(key)
                return found.packed
        address, version = source.data_ptr(), source._version
        packed = pack()
        reference = weakref.ref(source, lambda _: self._forget(key))
        with self._lock:
            self._drop(key)
            self._entries[key] = Entry(reference, address, version, packed)
            self.bytes += packed.nbytes
        self.trim()
        return packed

    def trim(self) -> None:
        """Drop what was used longest ago until the rest is within the limit."""
        with self._lock:
            while self.bytes > self.limit and self._entries:
                self._drop(next(iter(self._entries)))

    def _forget(self, key: Key) -> None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None and found.source() is None:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self.bytes -= found.packed.nbytes


filters = Cache()


def keep(limit: int) -> None:
    """Keep packed filters between calls, of at most `limit` bytes on all devices; 0 keeps none.

    Parameters
    ----------
    limit : int
        In bytes.

    Raises
    ------
    ConvrefError
        If it is negative.
    """
    if limit < 0:
        raise ConvrefError(message("keep", f"limit is {limit} bytes, needs 0 or more"))
    filters.limit = limit
    filters.trim()
