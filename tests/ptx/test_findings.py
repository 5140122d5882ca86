"""What a finding names: both sides of a race, the state of barriers, the tensor and the offset."""

import re

import numpy as np
import pytest

from convref_ptx import Allocation, Fault, TensorMap, launch, parse

HEAD = """.file 1 "k.cu"
.visible .entry f(.param .u64 f_0, .param .align 64 .b8 f_1[128]) {
.reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>; .shared .align 1024 .b8 s[2048];
mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mov.b32 %r1, s; ld.param.b64 %rd0, [f_0];
mov.b64 %rd1, f_1; shr.u32 %r2, %r0, 5; setp.eq.u32 %p1, %r0, 35; setp.eq.u32 %p2, %r0, 4;
setp.eq.u32 %p3, %r9, 1; setp.eq.u32 %p4, %r0, 0;
"""


def found(lines, blocks=1, threads=64, late=False, seed=0):
    """Return the finding of a kernel whose lines of source are instructions."""
    lines = (" ".join(line.split()) for line in lines)
    body = "\n".join(f".loc 1 {n} 1\n{line}" for n, line in enumerate(lines, 1))
    x = Allocation(np.zeros(64, np.uint32), writable=True, name="x uint32(64)")
    box = Allocation(np.zeros((16, 64), np.uint16), name="box")
    given = [x, TensorMap(box, (16, 64), (64, 1), (4, 8))]
    with pytest.raises(Fault) as fault:
        launch(parse(f"{HEAD}{body}\nret; }}"), (blocks,), (threads,), given, seed, late)
    return str(fault.value)


def at(line, warp, lane, program=0):
    return rf"\(k.cu:{line}, program \({program}, 0, 0\), warp {warp}, lane {lane}\)"


WRITE = "@%p2 st.shared.b32 [%r1+8], %r0;"
FILL = "shl.b32 %r3, %r0, 2; add.s32 %r3, %r3, %r1; st.shared.b32 [%r3], %r0;"
READ = "@%p1 ld.shared.b32 %r5, [%r1+8];"
ISSUE = """@%p4 mbarrier.init.shared::cta.b64 [%r1+1024], 1; bar.sync 0;
    @%p4 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+1024], 64;"""
COPY = """@%p4 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r1], [%rd1, {0, 0}], [%r1+1024];""".replace("{0, 0}", "{%r7, %r7}")
# Lines of a kernel, and what the finding has to say.
RACES = {
    "write and read of warps": (
        [WRITE, READ],
        rf"ld.*: race, another warp wrote there since the last barrier {at(2, 1, 3)}; "
        rf"byte 8 of shared memory, written by @%p2 st.* {at(1, 0, 4)}",
    ),
    "read and write of warps": (
        [FILL, "bar.sync 0;", READ, WRITE],
        rf"st.*: race, another warp read there since the last barrier {at(4, 0, 4)}; "
        rf"byte 8 of shared memory, read by @%p1 ld.* {at(3, 1, 3)}",
    ),
    "two warps in one instruction": (
        ["st.shared.b32 [%r1+16], %r2;"],
        r"st.*: race, two warps write to one address \(k.cu:1, program \(0, 0, 0\), warp ([01]), "
        r"lane \d+\); byte 16 of shared memory, written by st.* \(k.cu:1, .*warp (?!\1)[01].*",
    ),
    "a copy of cp.async": (
        [
            "@%p2 cp.async.ca.shared.global [%r1+8], [%rd0], 4;",
            "@%p2 cp.async.commit_group; bar.sync 0;",
            READ,
        ],
        rf"ld.*: an asynchronous copy has not been waited for {at(3, 1, 3)}; "
        rf"byte 8 of shared memory, written by @%p2 cp.async.* {at(1, 0, 4)}",
    ),
    "a copy of a box": (
        [ISSUE, "mov.b32 %r7, 0;", COPY, "bar.sync 0;", READ],
        rf"ld.*: (an asynchronous copy has not been waited for|race, another warp wrote.*) "
        rf"{at(5, 1, 3)}; byte 8 of shared memory, written by @%p4 cp.async.bulk.* {at(3, 0, 0)}",
    ),
    "two programs write": (
        ["@%p1 st.global.b32 [%rd0+12], %r9;"],
        r"st.*: race, (two threads write to one address|writes what another thread wrote) "
        r"\(k.cu:1, program \(([01]), 0, 0\), warp 1, lane 3\); byte 12 of x uint32\(64\), "
        r"written by @%p1 st.* \(k.cu:1, program \((?!\2)[01], 0, 0\), warp 1, lane 3\)",
    ),
    "a program reads what another one wrote": (
        [
            "@!%p3 bra $R;",
            "@%p2 st.global.b32 [%rd0+8], 7; bra.uni $E;",
            "$R: @%p1 ld.global.b32 %r5, [%rd0+8];",
            "@%p1 st.global.b32 [%rd0+16], %r5; $E:",
        ],
        rf"(ld.*: race, reads what another thread wrote {at(3, 1, 3)}; byte 8 of x uint32\(64\), "
        rf"written by @%p2 st.* {at(2, 0, 4, 1)}|st.*: race, writes what another thread read "
        rf"{at(2, 0, 4, 1)}; byte 8 of x uint32\(64\), read by @%p1 ld.* {at(3, 1, 3)})"
        rf"; used by @%p1 st.* {at(4, 1, 3)}",
    ),
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", RACES)
def test_a_race_names_both_sides(name, late):
    lines, expected = RACES[name]
    text = found(lines, blocks=2 if "program" in name else 1, late=late)
    assert re.fullmatch(rf"(?:@%p\d )?(?:{expected})", text), text


def test_a_race_in_another_vector_of_blocks():
    """The second thousand of blocks runs after the first: each has shared memory of its own."""
    alone = "setp.eq.u32 %p5, %r9, 9; and.pred %p2, %p2, %p5;"
    text = found([alone, FILL, "bar.sync 0;", READ, WRITE], blocks=1000)
    assert re.search(rf"last barrier {at(5, 0, 4, 9)}; .* by @%p1 ld.* {at(4, 1, 3, 9)}$", text), (
        text
    )


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("ld.global.b32 %r5, [%rd0+6];", r"6 of x uint32\(64\)"),
        ("@%p1 ld.shared.v2.b32 {%r5, %r6}, [%r1+12];", "12 of shared memory"),
        ("cp.async.ca.shared.global [%r1], [%rd0+4], 8;", r"4 of x uint32\(64\)"),
        ("ld.global.b32 %r5, [%rd0+-9999];", "every allocation"),
    ],
)
def test_a_misaligned_access_names_its_place(line, where):
    assert re.search(
        rf"an address is not a multiple of [48]: (byte|before) {where} \(", found([line])
    )


TRY = """{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%r1+1024], PARITY;
    @!done bra.uni again; }"""
INIT = "@%p4 mbarrier.init.shared::cta.b64 [%r1+1024], 3; bar.sync 0;"
EXPECT = "@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+1024], 96;"
PLACE = "mbarrier at byte 1024 of shared memory"
# Lines of a kernel that never ends, and what the finding says of each barrier.
DEADLOCKS = {
    "arrivals and bytes are missing": (
        [INIT, EXPECT, TRY.replace("PARITY", "0")],
        rf"mbarrier.try_wait.*: warps \[0, 1\] \(k.cu:3\); {PLACE}: in phase 0, 2 of 3 arrivals "
        rf"and 96 bytes pending, last arrival by {EXPECT[:4]}.* {at(2, 0, 4)}, waits for parity 0",
    ),
    "nothing arrives": (
        [INIT, TRY.replace("PARITY", "0")],
        rf"{PLACE}: in phase 0, 3 of 3 arrivals and 0 bytes pending, no arrival, waits for",
    ),
    "the parity is wrong": (
        ["mov.b32 %r7, 0;", ISSUE, COPY, TRY.replace("PARITY", "1"), TRY.replace("PARITY", "1")],
        rf"{PLACE}: in phase 1, 1 of 1 arrivals and 0 bytes pending, last arrival by @%p4 "
        rf"mbarrier.* {at(2, 0, 0)}, last bytes by @%p4 cp.async.bulk.*, waits for parity 1",
    ),
    "a barrier needs more threads": (
        ["bar.sync 2, 96;"],
        r"bar.sync 2, 96: warps \[0, 1\] \(k.cu:1\); barrier 2: 64 of 96 threads arrived",
    ),
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_a_deadlock_has_the_history_of_its_barriers(name):
    lines, expected = DEADLOCKS[name]
    text = found(lines)
    assert re.fullmatch(rf"f: deadlock, all threads wait; .*{expected}.*", text), text


def test_an_arrival_too_many_has_the_history_of_its_barrier():
    text = found([INIT, EXPECT.replace("@%p2 ", "")])
    assert re.search(rf"more arrivals than .*; {PLACE}: in phase 0, -\d+ of 3 arrivals", text), text
