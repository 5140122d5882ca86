"""A device whose memory is the host's: works run synchronously."""

import time

from convref_bench.gpu import cuda


class Card:
    """A device whose memory is main memory."""

    name, where, cache_bytes = "stub", "cpu", 20_000

    def now(self):
        return time.perf_counter()

    def settle(self):
        pass

    def clock_mhz(self):
        return 1000.0

    def sample(self, work, calls, cold):
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) / getattr(work, "copies", 1)


def eager(run, sets):
    """Replace a captured graph."""
    kept = []

    def replay():
        kept[:] = [run(*one) for one in sets]

    replay()
    return cuda.Rotation(replay, len(sets), "graph", lambda: kept[0])
