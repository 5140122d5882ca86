"""Threads: the same bits for any number, concurrent callers, a pool that survives a fork."""

import os
import subprocess
import sys
import threading

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


PROCESSORS = getattr(os, "sched_getaffinity", lambda of: ())(0)


PLACES = """
import os, sys
from convref import parse
from convref.conformance.operands import operands
from convref_mojo.backend import backend

def workers():
    call = parse("conv.fprop:n2c40k70_i13x11_f3_p1").call
    given = operands(parse(str(call)))
    with backend.threads(2):
        backend.run(call, *given)
    threads = {int(name) for name in os.listdir("/proc/self/task")} - before
    return [os.sched_getaffinity(thread) for thread in threads]

before = {int(name) for name in os.listdir("/proc/self/task")}
places = os.sched_getaffinity(0)
for processor in sorted(places)[:2]:
    os.sched_setaffinity(0, {processor})  # the caller moves there
    assert workers() == [{processor}], "they share the only processor of the caller"
    os.sched_setaffinity(0, places)
    (found,) = workers()
    assert found < places and len(found) == len(places) - 1, found
"""


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="needs two processors whose threads can be placed")
def test_workers_do_not_run_on_the_callers_processor():
    words = [sys.executable, "-c", PLACES]
    done = subprocess.run(words, timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
    address, owner = library.scratch(library.SCRATCH_KEPT + 1)
    assert address == owner.ctypes.data
    kept, other = library.scratch(library.SCRATCH_KEPT)
    assert other is not owner
    assert library.scratch(50)[0] == kept
