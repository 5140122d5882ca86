"""A cache of filters that were packed into the memory order that a kernel reads best.

The key of a packed copy is the tensor object it was made from, its address, its version, which
PyTorch increments with every write in place, and the stream that made the copy, so that no other
stream reads an incomplete one. The copy is freed with its tensor.

PyTorch does not count writes through `tensor.data` or by third-party kernels. The cache is
therefore empty until the caller enables it with `keep`, in a program without such writes.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch

from convref.errors import invalid

Key = tuple[int, Hashable]


class Entry(NamedTuple):
    """A packed copy, and the tensor that it was made from."""

    source: weakref.ref[torch.Tensor]
    address: int
    version: int
    packed: torch.Tensor

    def is_of(self, source: torch.Tensor) -> bool:
        same = self.source() is source and self.version == source._version
        return same and self.address == source.data_ptr()


class Cache:
    """The most recently used packed copies, at most `limit` bytes in total.

    Threads may share it. Dropped copies return to the caching allocator of their stream.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit, self.bytes = limit, 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._lock = threading.RLock()  # any allocation may free a tensor and call back

    def __len__(self) -> int:
        return len(self._entries)

    def get(
        self, source: torch.Tensor, form: Hashable, pack: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        """Return `source` packed into `form`, by `pack` unless a valid copy is cached.

        `form` is what the copy depends on other than the values, including the stream.
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
        """Drop the least recently used copies until the rest is within the limit."""
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
    """Keep packed filters between calls, at most `limit` bytes on all devices; 0 keeps none."""
    if limit < 0:
        raise invalid("keep", f"limit is {limit} bytes, needs 0 or more")
    filters.limit = limit
    filters.trim()
