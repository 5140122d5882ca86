"""Work in chunks, each of them prepared by a thread while the chunks before it are used."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")


def ahead(
    items: Sequence[Item], prepare: Callable[[Sequence[Item]], object], size: int
) -> Iterator[Item]:
    """Yield `items`, those of a chunk once `prepare` has returned for it.

    The first chunk has `size` items, and each other one twice those of the one before: the first
    comes soon, and what a chunk costs beside its items is paid a few times.

    What `prepare` raises is printed, and its items come nevertheless: they are made ready when they
    are used. A caller that takes no more ends the thread after its present chunk.

    Examples
    --------
    >>> list(ahead([1, 2, 3], lambda chunk: None, 2))
    [1, 2, 3]
    """
    starts = [0]
    while starts[-1] < len(items):
        starts.append(starts[-1] + (size << len(starts) - 1))
    chunks = [items[start:end] for start, end in pairwise(starts)]
    ready, left = [Event() for _ in chunks], Event()

    def work() -> None:
        for chunk, done in zip(chunks, ready):
            try:
                if not left.is_set():
                    prepare(chunk)
            except Exception:
                traceback.print_exc(file=sys.stdout)
            finally:
                done.set()

    Thread(target=work, daemon=True).start()
    try:
        for chunk, done in zip(chunks, ready):
            done.wait()
            yield from chunk
    finally:
        left.set()
