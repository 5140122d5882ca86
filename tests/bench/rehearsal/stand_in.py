"""A CPU in the place of the card, with all that the steps need, on layers of a few numbers.

Kernels are interpreted, compiled ahead of time and judged as they are; only the device is not one.
"""

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from card import Card, eager

from convref_bench import options
from convref_bench.gpu import accumulate, cuda, properties, steps
from convref_bench.suites import suite
from convref_bench.timing import training
from convref_bench.timing.measure import Stop

QUICK = Stop(samples=2, noise=9.0, timeout_s=0.1)
LAYERS = suite.read(
    "conv:nNc8k16_i5x5_f3x3_p1:bias=0 *2 a\nconv:nNc16k8_i4x4_f1x1:bias=0 *1 b\n"
    "conv:nNc8k8g8_i5x5_f3x3_p1:bias=0 *3 c\nmax_pool:nNc8_i5x5_f3x3_s2_p1 *1 d",
    "rehearsal",
)
CARD = SimpleNamespace(
    name="Stand-in", multi_processor_count=7, L2_cache_size=0, total_memory=2**30
)


class Uncached(Card):
    """It has no cache, so operands are not rotated."""

    name, cache_bytes = CARD.name, CARD.L2_cache_size


class Profiler:
    def __init__(self, activities):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def events(self):
        return [SimpleNamespace(name="kernel", device_type="DeviceType.CUDA")]


def nothing_to_compile(function, dynamic):
    raise LookupError("no compiler in a rehearsal")


def install():
    """Replace the card by this CPU, and the networks by small layers."""
    torch.set_num_threads(1)
    torch.cuda.get_device_properties = lambda index: CARD
    torch.cuda.get_device_capability = lambda: (9, 0)
    torch.cuda.synchronize = lambda: None
    torch.profiler.profile, torch.compile = Profiler, nothing_to_compile
    options.DEVICES["cuda"] = "mem=nhwc"
    suite.names = lambda: ("resnet50",)
    suite.load = lambda name, ops=("conv",): tuple(one for one in LAYERS if one.op in ops)
    steps.TUNED, steps.BATCHES, steps.JOBS, steps.ANCHORS = ("resnet50",), {}, 4, 2
    steps.COPIED, steps.MULTIPLIED, steps.ACCUMULATED = 1000, 64, (512,)
    cuda.Cuda = Uncached
    cuda.CudaPlace = partial(cuda.CudaPlace, stop=QUICK, capture=eager)
    cuda.launched.__defaults__ = ("cpu",)
    _probes()
    tests = Path(os.environ["CONVREF_REHEARSED_TESTS"])
    steps.TESTS, steps.marked.__defaults__ = tests, (tests,)
    steps.PROOF = {"tests/test_proof.py": ("gluon_fprop",)}


def _probes():
    every = properties.lines()
    few = [one for one in every if "dt=bf16" in one and "c4k4_" in one][:6]
    properties.lines = lambda: tuple(few)
    properties.check.__defaults__ = ("cpu",)
    product = {"cublas": lambda a, b, dtype: torch.mm(a.float(), b.float())}
    accumulate.SIZE, accumulate.rows.__defaults__ = 16, (product, "cpu")
    setting, rows = training.Setting, training.rows
    training.Setting = lambda where, dtype, size, batch: setting("cpu", torch.float32, 32, 2)
    training.JUDGED = 32
    training.rows = lambda device, given, arms: rows(device, given, ("auto",), QUICK)
    steps.TRAINED = steps.TRAINED[:1]
