"""Work in chunks, each of them prepared by a thread while the chunks before it are used."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")


def ahead(
    items: Sequence[Item], prepare: Callable[[Sequence[Item]], object], size: int
) -> Iterator[Item]:
    """Yield `items`, those of a chunk once `prepare` has returned for it.

    What `prepare` raises is printed, and its items come nevertheless: they are made ready when they
    are used. A caller that takes no more ends the thread after its present chunk.

    Examples
    --------
    >>> list(ahead([1, 2, 3], lambda chunk: None, 2))
    [1, 2, 3]
    """
    chunks = [items[start : start + size] for start in range(0, len(items), size)]
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
