"""Blocks in several processes: the same results and findings as in one."""

from unittest import mock

import numpy as np
import pytest

from convref_ptx import Allocation, Fault, launch, parse
from convref_ptx.state import processes
from convref_ptx.state.launch import _Run

BLOCKS, THREADS = 9, 32
KERNEL = """.visible .entry f(.param .u64 f_0, .param .u64 f_1) {{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.b64 %rd0, [f_0]; ld.param.b64 %rd1, [f_1];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mad.lo.s32 %r2, %r0, 32, %r1;
    mad.wide.s32 %rd2, %r2, 4, %rd0; mad.wide.s32 %rd3, %r2, 4, %rd1;
    {body}
    ret; }}"""
DOUBLE = "ld.global.b32 %r3, [%rd2]; add.s32 %r3, %r3, %r3; st.global.b32 [%rd3], %r3;"
PLACES = "setp.eq.s32 %p1, %r0, {0}; setp.eq.s32 %p2, %r0, {1};"
EVERY = [(n, (n + 1) % BLOCKS) for n in range(BLOCKS)]  # pairs of blocks


def ran(body, jobs, same=False, **more):
    x = np.arange(BLOCKS * THREADS, dtype=np.int32)
    y = np.full_like(x, -1)
    given = Allocation(x, writable=True, name="x")
    buffers = [given, given if same else Allocation(y, writable=True, name="y", **more)]
    text = ""
    try:
        launch(parse(KERNEL.format(body=body)), (BLOCKS,), (THREADS,), buffers, jobs=jobs)
    except Fault as fault:
        text = str(fault)
    return text, (x if same else y).tolist()


@pytest.fixture
def alone():
    """Count the runs of all blocks in this process."""
    with mock.patch.object(_Run, "execute", autospec=True, side_effect=_Run.execute) as execute:
        yield execute


@pytest.mark.parametrize("jobs", [2, 3, 100])
@pytest.mark.parametrize("same", [False, True])
def test_results_are_those_of_one_process(jobs, same, alone):
    """Also where each element is read and then written."""
    found = ran(DOUBLE, jobs, same)
    assert not alone.called
    assert found == ("", [2 * n for n in range(BLOCKS * THREADS)])


def test_what_was_undefined_is_defined():
    undefined = np.full(4 * BLOCKS * THREADS, 0xFF, np.uint8)
    text, _ = ran(DOUBLE, 3, undefined=undefined)
    assert not text
    assert not undefined.any()


RACES = {
    "two programs write": "@%p1 st.global.b32 [%rd1], %r2; @%p2 st.global.b32 [%rd1], %r2;",
    "one reads what another writes": (
        "@%p1 st.global.b32 [%rd1], %r2; @%p2 ld.global.b32 %r3, [%rd1];"
        "@%p2 st.global.b32 [%rd1+64], %r3;"
    ),
    "one only reads": (
        "@%p1 st.global.b32 [%rd1], %r2; @%p2 ld.global.b32 %r3, [%rd1];"
        "@%p2 st.global.b32 [%rd2], %r3;"
    ),
}


@pytest.mark.parametrize("pair", EVERY)
@pytest.mark.parametrize("name", RACES)
def test_races_of_programs_are_found(name, pair, alone):
    """Whichever processes the programs run in."""
    body = "setp.eq.s32 %p0, %r1, 0; @!%p0 ret;" + PLACES.format(*pair) + RACES[name]
    found = [ran(body, jobs) for jobs in (1, 2, 3)]
    assert "race" in found[0][0]
    assert found[1:] == found[:1] * 2
    assert alone.call_count >= 3


def test_a_fault_of_a_program_is_found():
    body = PLACES.format(5, 6) + "@%p1 add.s64 %rd3, %rd3, 4096;" + DOUBLE
    found = [ran(body, jobs) for jobs in (1, 2, 3)]
    assert "outside of every allocation" in found[0][0]
    assert found[1:] == found[:1] * 2


@pytest.mark.parametrize("body", [
    "atom.global.add.u32 %r3, [%rd1], 1;", "red.global.add.u32 [%rd1], 1;",
    "ld.volatile.global.b32 %r3, [%rd1];", "ld.acquire.gpu.global.b32 %r3, [%rd1];",
    "st.release.gpu.global.b32 [%rd3], %r2;",
])  # fmt: skip
def test_programs_that_exchange_values_run_in_one_process(body, alone):
    assert not processes.are_independent(parse(KERNEL.format(body=body)))
    assert not ran(body, 3)[0]
    assert alone.called


def test_a_process_that_ends_has_no_result():
    def work(n):
        if n:
            raise SystemExit

    assert processes.run(work, 2) == [None, None]
