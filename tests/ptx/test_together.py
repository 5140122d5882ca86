"""Launches of one kernel that run as one vector: the same results and findings as alone."""

from unittest import mock

import numpy as np
import pytest

from convref_ptx import Allocation, Fault, launch, launch_all, parse
from convref_ptx.memory.allocations import GAP
from convref_ptx.state import launch as module

THREADS = 32
KERNEL = """.global .align 4 .u32 base = 100;
    .visible .entry f(.param .u64 f_0, .param .u64 f_1, .param .u32 f_2) {{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 16 .b8 s[128];
    ld.param.b64 %rd0, [f_0]; ld.param.b64 %rd1, [f_1]; ld.param.b32 %r0, [f_2];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r1, %r2, %r3, %r1; mad.lo.s32 %r1, %r1, 32, %r4;
    mad.wide.s32 %rd2, %r1, 4, %rd0; mad.wide.s32 %rd3, %r1, 4, %rd1;
    {body}
    ret; }}"""
SUM = """ld.global.b32 %r5, [%rd2]; ld.global.b32 %r6, [base]; add.s32 %r5, %r5, %r6;
    add.s32 %r5, %r5, %r0; st.global.b32 [%rd3], %r5;"""
GRIDS = [(2,), (3, 2), (1, 4)]


def made(grids, gap=0):
    """Return arrays (x, y) and arguments of each launch; y ends `gap` elements too early."""
    arrays, arguments = [], []
    for n, grid in enumerate(grids):
        count = int(np.prod(grid)) * THREADS
        x, y = np.arange(count, dtype=np.int32) + 1000 * n, np.full(count - gap, -1, np.int32)
        arrays.append((x, y))
        buffers = Allocation(x, name="x"), Allocation(y, writable=True, name="y")
        arguments.append([*buffers, (n + 7).to_bytes(4, "little")])
    return arrays, arguments


@pytest.fixture
def alone():
    """Count the launches that run alone."""
    with mock.patch.object(module, "launch", side_effect=launch) as found:
        yield found


def run(body, grids=GRIDS, late=None, **more):
    arrays, arguments = made(grids, **more)
    late = late or [False] * len(grids)
    launch_all(parse(KERNEL.format(body=body)), grids, (THREADS,), arguments, 0, late)
    return arrays


def test_each_launch_has_its_grid_arguments_and_variables(alone):
    found = run(SUM)
    assert not alone.called
    for n, (x, y) in enumerate(found):
        assert y.tolist() == (x + 107 + n).tolist()


def test_variables_that_a_launch_changes_are_its_own(alone):
    body = f"atom.global.add.u32 %r7, [base], 1; {SUM}"
    arrays = run(body.replace("ld.global.b32 %r6, [base];", "mov.u32 %r6, 0;"))
    assert not alone.called
    for n, (x, y) in enumerate(arrays):
        assert y.tolist() == (x + 7 + n).tolist()


def test_memory_of_another_launch_is_out_of_bounds():
    """As alone, although y of the second launch is where only the first one writes."""
    far = GAP + 2 * GAP  # bytes from one small allocation to the next
    body = f"setp.eq.s32 %p1, %r0, 7; @%p1 st.global.b32 [%rd3+{3 * far}], %r0;"
    with pytest.raises(Fault, match=r"outside of every allocation: .* bytes past the last of .* y"):
        run(body, [(1,)] * 2)


def test_a_finding_is_that_of_a_launch_alone(alone):
    with pytest.raises(Fault) as together:
        run(SUM, gap=1)
    with pytest.raises(Fault) as first:
        run(SUM, GRIDS[:1], gap=1)
    assert str(together.value) == str(first.value)
    assert alone.call_count == 2


COPY = """mov.u32 %r7, s; mad.lo.s32 %r7, %r4, 4, %r7;
    cp.async.ca.shared.global [%r7], [%rd2], 4; cp.async.commit_group;
    ld.global.b32 %r8, [%rd3]; st.global.b32 [%rd2], %r0;
    cp.async.wait_group 0; ld.shared.b32 %r8, [%r7]; st.global.b32 [%rd3], %r8;"""


def test_each_launch_copies_late_or_early():
    """The copy takes what its source holds when it is done."""
    arrays, arguments = made([(1,)] * 2)
    for given, (x, y) in zip(arguments, arrays):
        given[0], y[...] = Allocation(x, writable=True), 0
    launch_all(parse(KERNEL.format(body=COPY)), [(1,)] * 2, (THREADS,), arguments, 0, [False, True])
    (_, early), (_, late) = arrays
    assert early.tolist() == list(range(THREADS))
    assert late.tolist() == [8] * THREADS
