"""A backend that offers tiles, and the place whose clock knows how fast each of them is."""

import time
from itertools import count

from convref import dispatch
from convref_bench.timing.cpu import CpuPlace
from convref_bench.timing.measure import Stop

NUMPY = dispatch.load("numpy")


class Stub:
    """Offers three tiles; the last one is wrong."""

    name = "stub"
    supports, numerics = staticmethod(NUMPY.supports), staticmethod(NUMPY.numerics)

    def __init__(self):
        self.ran = []

    def configurations(self, call):
        return [{"tile": 64}, {"tile": 128}, {"tile": 0}]

    def run(self, call, *operands, configuration=None):
        self.ran.append(configuration)
        results = NUMPY.run(call, *operands)
        wrong = configuration == {"tile": 0}
        return tuple(None if r is None else r + wrong for r in results)

    def fingerprint(self):
        return {}


class Clock:
    """Time by configuration: a large tile is twice as fast."""

    name = "stub"

    def __init__(self, stub):
        self.stub, self.ticks = stub, count()

    def now(self):
        return float(next(self.ticks))

    def settle(self):
        pass

    def clock_mhz(self):
        return None

    def sample(self, work, calls, cold):
        self.stub.ran.clear()
        work()
        tile = (self.stub.ran or [None])[-1]
        return {None: 0.003, 64: 0.002, 128: 0.001}[tile["tile"] if tile else None]


def place(stub):
    made = CpuPlace(Stop(samples=2, noise=9.0, timeout_s=99.0))
    made.device = Clock(stub)
    return made


backend = Stub()


def place_of(device):
    """Return the place of a node, that takes its time, so that nodes can be lost meanwhile."""
    time.sleep(0.3)
    return place(backend)
