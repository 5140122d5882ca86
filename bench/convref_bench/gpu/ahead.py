"""Work in chunks: a thread prepares each chunk while the chunks before it are used."""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")
EVERY_S = 0.5


def no_check() -> None:
    pass


def prefetch(
    items: Sequence[Item],
    prepare: Callable[[Sequence[Item]], object],
    size: int,
    check: Callable[[], object] = no_check,
) -> Iterator[Item]:
    """Yield `items`, those of a chunk once `prepare` has returned for it.

    The first chunk has `size` items and each other one twice as many as the one before: the first
    items come soon, and the fixed cost of a chunk is paid a few times.

    An exception of `prepare` is printed, and its items are yielded nevertheless. If the caller
    stops, or `check` raises, which is called every EVERY_S of a wait, the thread ends after its
    present chunk.

    >>> list(prefetch([1, 2, 3], lambda chunk: None, 2))
    [1, 2, 3]
    """
    starts = [0]
    while starts[-1] < len(items):
        starts.append(starts[-1] + (size << len(starts) - 1))
    chunks = [items[start:end] for start, end in pairwise(starts)]
    pool = ThreadPoolExecutor(1)
    try:
        for chunk, done in zip(chunks, [pool.submit(prepare, chunk) for chunk in chunks]):
            while wait([done], EVERY_S).not_done:
                check()
            if error := done.exception():
                traceback.print_exception(error, file=sys.stdout)
            yield from chunk
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
