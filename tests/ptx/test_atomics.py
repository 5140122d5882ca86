"""Atomic operations: their values, the order that they make between blocks, votes of a warp."""

import numpy as np
import pytest
from micro import COUNT, RNG, patterns, run

from convref_ptx import Allocation, Fault, launch, parse

BLOCKS, THREADS = 8, 64


def updated(op, value, start, dtype, form="atom"):
    """Return the word that BLOCKS x THREADS threads update, and what each got back."""
    bits = np.dtype(dtype).itemsize * 8
    register = {16: "%rs1", 32: "%r9", 64: "%rd9"}[bits]
    operand = register.replace("1", "2").replace("9", "8")
    got = f"st.global.b{bits} [%rd3], {register};" if form == "atom" else ""
    target = f"{register}, " if form == "atom" else ""
    text = f""".visible .entry f(.param .u64 f_0, .param .u64 f_1) {{ .reg .b32 %r<10>;
    .reg .b64 %rd<10>; .reg .b16 %rs<4>; ld.param.b64 %rd1, [f_0]; ld.param.b64 %rd2, [f_1];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.s32 %r3, %r2, {THREADS}, %r1;
    mul.wide.s32 %rd3, %r3, {bits // 8}; add.s64 %rd3, %rd3, %rd2; {value}
    {form}.global.{op} {target}[%rd1], {operand}; {got} ret; }}"""
    word, old = np.array([start], dtype), np.zeros(BLOCKS * THREADS, dtype)
    launch(parse(text), (BLOCKS,), (THREADS,), [Allocation(word, True), Allocation(old, True)])
    return word[0], old


def test_additions_of_all_threads_are_made_one_after_another():
    word, old = updated("gpu.acq_rel.add.u32", "mov.u32 %r8, 1;", 5, np.uint32)
    assert word == 5 + BLOCKS * THREADS
    assert sorted(old.tolist()) == list(range(5, 5 + BLOCKS * THREADS))


EXACT = {
    "add.u32": (np.uint32, "mov.u32 %r8, %r3;", sum),
    "relaxed.gpu.add.f32": (np.float32, "cvt.rn.f32.u32 %r8, %r3;", sum),
    "add.u64": (np.uint64, "cvt.u64.u32 %rd8, %r3;", sum),
    "add.f64": (np.float64, "cvt.rn.f64.u32 %rd8, %r3;", sum),
    "max.s32": (np.int32, "mov.u32 %r8, %r3;", max),
    "min.u32": (np.uint32, "mov.u32 %r8, %r3;", min),
    "or.b32": (np.uint32, "mov.u32 %r8, %r3;", np.bitwise_or.reduce),
    "and.b32": (np.uint32, "mov.u32 %r8, %r3;", np.bitwise_and.reduce),
    "xor.b32": (np.uint32, "mov.u32 %r8, %r3;", np.bitwise_xor.reduce),
    "inc.u32": (np.uint32, "mov.u32 %r8, 700;", len),
}


@pytest.mark.parametrize("form", ["atom", "red"])
@pytest.mark.parametrize("op", EXACT)
def test_updates_of_all_threads(op, form):
    dtype, value, whole = EXACT[op]
    start = (1 << 30) if op.startswith(("min", "and")) else 0
    word, _ = updated(op, value, start, dtype, form)
    terms = range(BLOCKS * THREADS)
    terms = [*terms, start] if op.startswith(("min", "and")) else terms
    assert word == whole(terms)


def test_sums_of_16_bits_round_to_16_bits():
    word, _ = updated("add.noftz.f16", "mov.b16 %rs2, 0x3C00;", 0, np.float16)
    assert word == BLOCKS * THREADS
    word, _ = updated("add.noftz.f16", "mov.b16 %rs2, 0x3C00;", 2048, np.float16)
    assert word == 2048  # float16 has no 2049


def test_exchange_gives_each_value_to_one_thread():
    word, old = updated("exch.b32", "mov.u32 %r8, %r3;", 999, np.uint32)
    assert sorted([int(word), *old.tolist()]) == [*range(BLOCKS * THREADS), 999]


def test_comparison_succeeds_once():
    body = """setp.lt.u32 %p1, %r30, 1; mov.b32 %r20, s; @%p1 st.shared.b32 [%r20], 3; bar.sync 0;
    add.s32 %r21, %r30, 100; atom.shared.cas.b32 y, [%r20], 3, %r21;"""
    got = run(body, [patterns(32)], 32, shared=".shared .align 16 .b8 s[16];")
    assert sorted(got.tolist())[0] == 3
    (first,) = np.flatnonzero(got == 3)
    assert set(np.delete(got, first).tolist()) == {100 + first}


COUNTED = """.visible .entry f(.param .u64 f_0, .param .u64 f_1, .param .u64 f_2) {
    .reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .pred %p<9>;
    ld.param.b64 %rd1, [f_0]; ld.param.b64 %rd2, [f_1]; ld.param.b64 %rd3, [f_2];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mul.wide.s32 %rd4, %r2, 4; add.s64 %rd4, %rd4, %rd1;
    setp.eq.u32 %p1, %r1, WRITER; @%p1 st.global.b32 [%rd4], 3; BARRIER
    setp.eq.u32 %p2, %r1, 0; mov.u32 %r3, 0;
    @%p2 atom.ORDER.gpu.global.add.u32 %r3, [%rd2], 1;
    setp.eq.u32 %p3, %r3, 7;
    @!%p3 bra $END;
    ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd1]; add.s32 %r4, %r4, %r5; add.s32 %r4, %r4, %r6;
    add.s32 %r4, %r4, %r7; st.global.b32 [%rd3], %r4;
    $END: ret; }""".replace("setp.eq.and.u32 %p3, %r3, 7, %p2;", "setp.eq.u32 %p3, %r3, 7;")


@pytest.mark.parametrize(
    ("order", "barrier", "writer", "races"),
    [
        ("acq_rel", "bar.sync 0;", 40, False),
        ("acq_rel", "", 0, False),
        ("relaxed", "bar.sync 0;", 40, True),
        ("acquire", "bar.sync 0;", 40, True),
        ("acq_rel", "", 40, True),
    ],
)
def test_last_block_reads_what_the_others_released(order, barrier, writer, races):
    """Each block writes a word and counts; the one that counts last adds the first four."""
    text = COUNTED
    for name, value in (("ORDER", order), ("BARRIER", barrier), ("WRITER", str(writer))):
        text = text.replace(name, value)
    words, count, out = (np.zeros(n, np.uint32) for n in (8, 1, 1))
    given = [Allocation(a, writable=True) for a in (words, count, out)]
    if races:
        both = r"race, reads what another thread wrote .*, written by @%p1 st.global.*; used by"
        with pytest.raises(Fault, match=both):
            launch(parse(text), (8,), (64,), given)
        return
    launch(parse(text), (8,), (64,), given)
    assert out.tolist() == [12]


def test_updates_of_shared_memory():
    body = """mov.b32 %r20, s; setp.lt.u32 %p1, %r30, 4; shl.b32 %r21, %r30, 2;
    add.s32 %r21, %r21, %r20; @%p1 st.shared.b32 [%r21], 0; bar.sync 0; and.b32 %r22, %r30, 3;
    shl.b32 %r22, %r22, 2; add.s32 %r22, %r22, %r20; atom.shared.add.u32 %r23, [%r22], 1;
    bar.sync 0; ld.shared.b32 y, [%r22];"""
    shared = ".shared .align 16 .b8 s[64];"
    assert set(run(body, [patterns(32)], 32, shared=shared).tolist()) == {COUNT // 4}
    with pytest.raises(Fault, match="updates unwritten memory"):
        run(
            body.replace("setp.lt.u32 %p1, %r30, 4", "setp.lt.u32 %p1, %r30, 3"),
            [patterns(32)],
            32,
            shared=shared,
        )


REDUCED = {
    "add.u32": lambda a: sum(a) % (1 << 32),
    "min.s32": lambda a: min(a),
    "max.u32": max,
    "and.b32": np.bitwise_and.reduce,
    "or.b32": np.bitwise_or.reduce,
    "xor.b32": np.bitwise_xor.reduce,
}


@pytest.mark.parametrize("op", REDUCED)
def test_reductions_of_a_warp(op):
    a = patterns(32)
    got = run(f"redux.sync.{op} y, x0, -1;", [a], 32)
    for n in range(0, COUNT, 32):
        part = a[n : n + 32].view(np.int32) if ".s" in op else a[n : n + 32]
        want = int(REDUCED[op](part.tolist())) % (1 << 32)
        assert set(got[n : n + 32].tolist()) == {want}


def test_votes_of_a_warp():
    a = RNG.integers(0, 2, COUNT).astype(np.uint32)
    a[:32], a[32:64] = 1, 0
    holds = "setp.ne.u32 %p1, x0, 0;"
    got = run(f"{holds} vote.sync.ballot.b32 y, %p1, -1;", [a], 32)
    for n in range(0, COUNT, 32):
        want = sum(int(bit) << i for i, bit in enumerate(a[n : n + 32]))
        assert set(got[n : n + 32].tolist()) == {want}
    assert (
        run(f"{holds} vote.sync.any.pred y, %p1, -1;", [a], 1)[:64].tolist() == [1] * 32 + [0] * 32
    )
    assert (
        run(f"{holds} vote.sync.all.pred y, %p1, -1;", [a], 1)[:64].tolist() == [1] * 32 + [0] * 32
    )


@pytest.mark.parametrize("mode", ["up", "down"])
def test_shuffles_up_and_down_keep_the_value_at_the_end(mode):
    a, clamp, sign = patterns(32), {"up": 0, "down": 31}[mode], {"up": -1, "down": 1}[mode]
    for by in (1, 16, 31):
        got = run(f"shfl.sync.{mode}.b32 y, x0, {by}, {clamp}, -1;", [a], 32)
        for i in range(COUNT):
            inside = 0 <= i % 32 + sign * by < 32
            assert got[i] == a[i + sign * by if inside else i]
