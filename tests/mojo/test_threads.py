"""Threads: the same bits for any number, concurrent callers, a pool that survives a fork."""

import os
import subprocess
import sys
import threading
from concurrent.futures import wait

import numpy as np
import pytest

from convref import parse
from convref.conformance.operands import operands
from convref_mojo import library
from convref_mojo.backend import MojoBackend

LINES = (
    "conv.fprop:n2c40k70_i13x11_f3_s2_p1:mem=nhwc:fill=normal",
    "conv.backward:n2c40k70_i13x11_f3_p1:mem=nhwc:fill=normal",
    "conv.backward:n2c64k64g64_i13x11_f3_p1:mem=nhwc:fill=normal:dt=bf16",
    "conv.wgrad:n1c3k16_i60x61_f3_p1:mem=nhwc:fill=normal",
    "conv.dgrad:n1c3k16_i60x61_f3_s2_p1:mem=nhwc:fill=normal",
    "conv.jvp:n1c20k10_i40_f5:t=1:fill=normal:dt=f64",
)


@pytest.mark.parametrize("line", LINES)
def test_results_do_not_depend_on_the_number_of_threads(line):
    case, backend = parse(line), MojoBackend()
    given = operands(case)
    found = []
    for count in (1, 2, 3, 5, 17):
        with backend.threads(count):
            results = backend.run(case.call, *given)
        found.append([r.tobytes() for r in results if r is not None])
    assert all(one == found[0] for one in found)
    assert (backend.count, backend.always) == (None, False)


def test_each_unit_is_computed_once():
    for units in (0, 1, 2, 3, 7, 100):
        for threads in (1, 2, 3, 8):
            seen, lock = [], threading.Lock()

            def note(low, high, seen=seen, lock=lock):
                with lock:
                    seen.extend(range(low, high))

            library.spread(note, units, threads)
            assert sorted(seen) == list(range(units))


def test_an_error_in_a_thread_reaches_the_caller():
    def fail(low, high):
        if low:
            raise ArithmeticError("in a thread")

    with pytest.raises(ArithmeticError, match="in a thread"):
        library.spread(fail, 4, 2)


PROCESSORS = getattr(os, "sched_getaffinity", lambda of: ())(0)


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="needs two processors whose threads can be placed")
def test_workers_do_not_run_on_the_callers_processor():
    workers = library.Workers()
    wait(workers.start([threading.get_native_id]))
    try:
        for processor in sorted(PROCESSORS)[:2]:
            os.sched_setaffinity(0, {processor})  # the caller moves there
            os.sched_setaffinity(0, PROCESSORS)
            (found,) = workers.start([lambda: os.sched_getaffinity(0)])
            assert found.result() == PROCESSORS - {workers._excluded}
    finally:
        os.sched_setaffinity(0, PROCESSORS)


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="needs two processors whose threads can be placed")
def test_workers_share_the_only_processor_of_the_caller():
    workers, (processor, *_) = library.Workers(), sorted(PROCESSORS)
    try:
        os.sched_setaffinity(0, {processor})
        (found,) = workers.start([lambda: os.sched_getaffinity(0)])
        assert found.result() == {processor}
    finally:
        os.sched_setaffinity(0, PROCESSORS)


def test_concurrent_callers_do_not_interfere():
    backend = MojoBackend()
    lines = [f"conv.backward:n1c{c}k{c + 3}_i12x9_f3_p1:mem=nhwc" for c in range(8, 24)]
    work = [(parse(line).call, operands(parse(line))) for line in lines]
    want = [backend.run(call, *given) for call, given in work]
    wrong = []

    def run(order):
        with MojoBackend().threads(2):
            for i in order:
                call, given = work[i]
                got = backend.run(call, *given)
                wrong.extend(i for a, b in zip(got, want[i]) if a.tobytes() != b.tobytes())

    rng = np.random.default_rng(0)
    callers = [threading.Thread(target=run, args=(rng.permutation(16),)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested
from convref import parse
from convref.conformance.operands import operands
from convref_mojo.backend import backend
case = parse("conv.fprop:n2c40k70_i13x11_f3_p1")
given = operands(case)
with backend.threads(2):
    (want,) = backend.run(case.call, *given)
    child = os.fork()
    (got,) = backend.run(case.call, *given)
    same = got.tobytes() == want.tobytes()
    if child == 0:
        os._exit(0 if same else 1)
    sys.exit(os.waitpid(child, 0)[1] or not same)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_forked_child_starts_new_threads():
    done = subprocess.run([sys.executable, "-c", FORK], timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_large_scratch_memory_is_not_kept():
    address, owner = library.scratch(library.SCRATCH_KEPT + 1, "test")
    assert address % library.ALIGNMENT == 0
    assert 0 <= address - owner.ctypes.data < library.ALIGNMENT
    assert not hasattr(library._local, "test")
    assert library.scratch(100, "test") == library.scratch(50, "test")
    assert library.scratch(0, "test") == (0, None)


def test_large_requests_of_one_call_do_not_share_memory():
    size = library.SCRATCH_KEPT + 1
    (first, _kept), (second, _too) = (library.scratch(size, slot) for slot in ("one", "two"))
    assert abs(first - second) >= size
