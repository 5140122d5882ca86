"""Instructions that kernels of CUDA C++ need and Triton's do not, each alone.

Expected results follow the PTX manual; a GPU that runs the same PTX confirms them.
"""

import operator

import numpy as np
import pytest
from micro import COUNT, RNG, floats, patterns
from micro import run as interpreted

from convref_ptx import Allocation, Fault, launch, parse


def signed(pattern, kind):
    bits = int(kind[1:])
    return int(pattern) - (kind[0] == "s" and int(pattern) >> bits - 1) * (1 << bits)


@pytest.mark.parametrize("shift", ["", ".shiftamt"])
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_the_highest_bit_that_is_not_the_sign(kind, shift, run):
    bits, a = int(kind[1:]), patterns(int(kind[1:]))
    a[:2] = 0, (1 << bits) - 1
    got = run(f"bfind{shift}.{kind} y, x0;", [a], 32)
    for x, z in zip(a, got):
        value = signed(x, kind)
        top = (value if value >= 0 else ~value).bit_length() - 1
        assert int(z) == (2**32 - 1 if top < 0 else bits - 1 - top if shift else top)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_sums_of_absolute_differences(kind, run):
    bits = int(kind[1:])
    a, b, c = (patterns(bits) for _ in range(3))
    got = run(f"sad.{kind} y, x0, x1, x2;", [a, b, c], bits)
    for x, y, z, found in zip(a, b, c, got):
        far = abs(signed(x, kind) - signed(y, kind))
        assert int(found) == (int(z) + far) % (1 << bits)


@pytest.mark.parametrize("right", "su")
@pytest.mark.parametrize("left", "su")
def test_products_of_bytes(left, right, run):
    a, b, c = (patterns(32) for _ in range(3))
    got = {"dp4a": run(f"dp4a.{left}32.{right}32 y, x0, x1, x2;", [a, b, c], 32)}
    for half in ("lo", "hi"):
        got[half] = run(f"dp2a.{half}.{left}32.{right}32 y, x0, x1, x2;", [a, b, c], 32)

    def part(x, n, kind):
        bits = int(kind[1:])
        return signed(int(x) >> n * bits & (1 << bits) - 1, kind)

    for n, (x, y, z) in enumerate(zip(a, b, c)):
        four = sum(part(x, i, f"{left}8") * part(y, i, f"{right}8") for i in range(4))
        assert int(got["dp4a"][n]) == (int(z) + four) % 2**32
        for half, first in (("lo", 0), ("hi", 2)):
            two = [part(x, i, f"{left}16") * part(y, first + i, f"{right}8") for i in range(2)]
            assert int(got[half][n]) == (int(z) + sum(two)) % 2**32


UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
JOIN = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_comparisons(name, run):
    a, b = patterns(32), patterns(32)
    got = run(f"setp.{name}.u32 y, x0, x1;", [a, b], 1)
    assert got.tolist() == UNSIGNED[name](a, b).tolist()


@pytest.mark.parametrize("third", ["%p1", "!%p1"])
@pytest.mark.parametrize("join", JOIN)
def test_a_comparison_is_combined_with_a_predicate(join, third, run):
    """The second result combines the negated comparison."""
    a, b = patterns(32), RNG.permutation(patterns(32))
    body = f"""setp.gt.u32 %p1, x0, 99999; setp.lt.{join}.s32 %p2|%p3, x0, x1, {third};
    selp.b32 %r20, 1, 0, %p2; selp.b32 %r21, 2, 0, %p3; or.b32 y, %r20, %r21;"""
    got = run(body, [a, b], 32)
    c = (a > 99999) ^ (third[0] == "!")
    holds = a.view(np.int32) < b.view(np.int32)
    assert got.tolist() == (JOIN[join](holds, c) + 2 * JOIN[join](~holds, c)).tolist()


def test_a_comparison_of_floats_has_a_negation_that_holds_for_nan(run):
    a, b = floats(32), floats(32)
    body = """setp.lt.ftz.f32 %p2|%p3, x0, x1; selp.b32 %r20, 1, 0, %p2;
    selp.b32 %r21, 2, 0, %p3; or.b32 y, %r20, %r21;"""
    x, y = (np.where(abs(v) < np.finfo("f4").tiny, 0, v) for v in (a.view("f4"), b.view("f4")))
    assert run(body, [a, b], 32).tolist() == np.where(x < y, 1, 2).tolist()


def test_votes_that_agree_and_votes_on_negated_predicates(run):
    a = np.repeat(np.uint32([0, 7, 7]), 32)
    a[70] = 0
    warp = a.reshape(3, 32) == 7
    holds = "setp.eq.u32 %p1, x0, 7;"
    got = run(f"{holds} vote.sync.uni.pred y, %p1, -1;", [a], 1)
    assert got.tolist() == np.repeat([1, 1, 0], 32).tolist()
    got = run(f"{holds} vote.sync.any.pred y, !%p1, -1;", [a], 1)
    assert got.tolist() == np.repeat(~warp.all(1), 32).tolist()
    got = run(f"{holds} vote.sync.ballot.b32 y, !%p1, -1;", [a], 32)
    assert got[64] == 1 << 6
    assert got[0] == 2**32 - 1


@pytest.mark.parametrize("bits", [32, 64])
def test_lanes_with_the_same_value(bits, run):
    a = RNG.integers(0, 5, COUNT).astype(f"u{bits // 8}") << np.uint8(bits - 3)
    a[32:64] = 1
    got = run(f"match.any.sync.b{bits} y, x0, -1;", [a], 32)
    for i in range(COUNT):
        warp = a[i // 32 * 32 :][:32]
        assert int(got[i]) == sum(1 << n for n in range(32) if warp[n] == a[i])
    body = f"""match.all.sync.b{bits} %r20|%p1, x0, -1; selp.b32 %r21, 1, 0, %p1;
    and.b32 %r20, %r20, 6; or.b32 y, %r20, %r21;"""
    assert run(body, [a], 32).tolist() == np.repeat([0, 7, 0], 32).tolist()


def test_active_lanes_and_masks_of_lanes(run):
    """Of a warp in which some lanes have left, the others are active."""
    a = RNG.integers(0, 2, COUNT).astype(np.uint32)
    body = """mov.b32 y, 0; setp.eq.u32 %p1, x0, 0; @%p1 bra $E; activemask.b32 y; $E:"""
    got = run(body, [a], 32)
    for i in range(COUNT):
        warp = a[i // 32 * 32 :][:32]
        assert int(got[i]) == (sum(1 << n for n in range(32) if warp[n]) if a[i] else 0)
    for name, holds in (("eq", "eq"), *((n, n) for n in ("lt", "le", "gt", "ge"))):
        got = run(f"mov.u32 y, %lanemask_{name};", [a], 32)
        lanes = [n for n in range(32) if getattr(operator, holds)(n, 5)]
        assert int(got[37]) == sum(1 << n for n in lanes)


def test_registers_of_128_bits(execute):
    """They are loaded, copied, taken apart, put together and stored."""
    text = """.visible .entry f(.param .u64 f_0, .param .u64 f_1) {
    .reg .b128 %q<4>; .reg .b32 %r<3>; .reg .b64 %rd<9>;
    ld.param.b64 %rd1, [f_0]; ld.param.b64 %rd2, [f_1]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 16; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.b128 %q1, [%rd4]; mov.b128 %q2, %q1; mov.b128 {%rd6, %rd7}, %q2;
    add.s64 %rd6, %rd6, 1; mov.b128 %q3, {%rd7, %rd6}; st.global.b128 [%rd5], %q3; ret; }"""
    given = RNG.integers(0, 1 << 63, (40, 2)).astype(np.uint64)
    found = np.zeros_like(given)
    execute(text, (1,), (40,), [Allocation(given), Allocation(found, writable=True)])
    assert found.tolist() == np.stack([given[:, 1], given[:, 0] + 1], 1).tolist()


CONSTANTS = """.const .align 4 .u32 table[6] = {5, 6, 0x7, 8};
.const .f32 one = 0f3F800000; .const .align 16 .b8 bytes[16] = {1, 2, 255};
"""


def ones(start, length, bits):
    return (((1 << min(length, bits)) - 1) << min(start, bits)) % (1 << bits)


@pytest.mark.parametrize("bits", [32, 64])
def test_bits_are_inserted(bits, run):
    a, b = patterns(bits), patterns(bits)
    start, length = (RNG.integers(0, 70, COUNT).astype(np.uint32) for _ in range(2))
    got = run(f"bfi.b{bits} y, x0, x1, x2, x3;", [a, b, start, length], bits)
    for x, y, s, n, z in zip(*(v.tolist() for v in (a, b, start, length, got))):
        mask = ones(s, n, bits)
        assert z == (y & ~mask | (x << s) & mask)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_masks_and_extensions(mode, run):
    a = patterns(32)
    start, length = (RNG.integers(0, 70, COUNT).astype(np.uint32) for _ in range(2))
    masks = run(f"bmsk.{mode}.b32 y, x0, x1;", [start, length], 32)
    zeros = run(f"szext.{mode}.u32 y, x0, x1;", [a, length], 32)
    signs = run(f"szext.{mode}.s32 y, x0, x1;", [a, length], 32)
    for s, n, x, *got in zip(*(v.tolist() for v in (start, length, a, masks, zeros, signs))):
        s, n = (s % 32, n % 32) if mode == "wrap" else (min(s, 32), min(n, 32))
        low = x & ones(0, n, 32)
        minus = n > 0 and low >> n - 1 == 1
        assert got == [ones(s, n, 32), low, low | (2**32 - (1 << n)) * minus]


PERMUTED = {
    "f4e": lambda k: [k, k + 1, k + 2, k + 3],
    "b4e": lambda k: [k, (k - 1) % 8, (k - 2) % 8, (k - 3) % 8],
    "rc8": lambda k: [k] * 4,
    "ecl": lambda k: [max(k, n) for n in range(4)],
    "ecr": lambda k: [min(k, n) for n in range(4)],
    "rc16": lambda k: [k % 2 * 2, k % 2 * 2 + 1] * 2,
}


@pytest.mark.parametrize("mode", PERMUTED)
def test_modes_of_permutations(mode, run):
    a, b, selector = patterns(32), patterns(32), patterns(32)
    got = run(f"prmt.b32.{mode} y, x0, x1, x2;", [a, b, selector], 32)
    for x, y, s, z in zip(*(v.tolist() for v in (a, b, selector, got))):
        both = [*x.to_bytes(4, "little"), *y.to_bytes(4, "little")]
        assert z == int.from_bytes(bytes(both[n] for n in PERMUTED[mode](s % 4)), "little")


def test_funnel_shifts_of_at_most_32_bits(run):
    a, b, count = patterns(32), patterns(32), RNG.integers(0, 70, COUNT).astype(np.uint32)
    left = run("shf.l.clamp.b32 y, x0, x1, x2;", [a, b, count], 32)
    right = run("shf.r.clamp.b32 y, x0, x1, x2;", [a, b, count], 32)
    for x, y, n, *got in zip(*(v.tolist() for v in (a, b, count, left, right))):
        both, n = y << 32 | x, min(n, 32)
        assert got == [(both << n >> 32) % 2**32, (both >> n) % 2**32]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logical_negation_and_selection_by_sign(bits, run):
    a = patterns(bits)
    assert run(f"cnot.b{bits} y, x0;", [a], bits).tolist() == (a == 0).tolist()
    b, c = patterns(bits), patterns(32)
    want = np.where(c.view(np.int32) >= 0, a, b)
    assert run(f"slct.b{bits}.s32 y, x0, x1, x2;", [a, b, c], bits).tolist() == want.tolist()


@pytest.mark.parametrize("third", ["%p1", "!%p1"])
@pytest.mark.parametrize("name", ["popc", "and", "or"])
def test_reductions_at_a_barrier(name, third, execute):
    """Of the threads of a block, and of the first two warps at a barrier of their own."""
    kind, to = ("u32", "%r5") if name == "popc" else ("pred", "%p4")
    keep = "" if name == "popc" else "selp.b32 %r5, 1, 0, %p4;"
    text = f""".visible .entry f(.param .u64 f_0, .param .u64 f_1) {{
    .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.b64 %rd1, [f_0];
    ld.param.b64 %rd2, [f_1]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
    mad.lo.s32 %r3, %r2, 96, %r1; mul.wide.s32 %rd3, %r3, 4; add.s64 %rd4, %rd1, %rd3;
    ld.global.b32 %r4, [%rd4]; setp.ne.s32 %p1, %r4, 0; add.s64 %rd5, %rd2, %rd3;
    bar.red.{name}.{kind} {to}, 0, {third}; {keep} st.global.b32 [%rd5], %r5;
    setp.ge.u32 %p2, %r1, 64; @%p2 bra $E;
    bar.red.{name}.{kind} {to}, 1, 64, {third}; {keep} st.global.b32 [%rd5+1536], %r5;
    $E: ret; }}"""
    given = np.uint32([[0] * 96, [1] * 96, [*[0] * 70, 1, *[0] * 25], RNG.integers(0, 2, 96)])
    found = np.zeros((2, 4, 96), np.uint32)
    execute(text, (4,), (96,), [Allocation(given), Allocation(found, writable=True)])
    holds = (given != 0) ^ (third[0] == "!")
    reduce = {"popc": np.sum, "and": np.all, "or": np.any}[name]
    for part, threads in enumerate((96, 64)):
        want = reduce(holds[:, :threads], axis=1)[:, None]
        assert (found[part, :, :threads] == want).all()


def test_constant_memory(execute):
    """What has no initial value is zero; a generic address finds it too."""
    text = f"""{CONSTANTS} .visible .entry f(.param .u64 f_0) {{
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %w<3>; .reg .b16 %h<3>;
    ld.param.b64 %rd1, [f_0]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
    mov.u64 %rd3, table; add.s64 %rd4, %rd3, %rd2; ld.const.u32 %r2, [%rd4];
    add.s64 %rd5, %rd1, %rd2; st.global.u32 [%rd5], %r2;
    ld.const.f32 %w1, [one]; st.global.f32 [%rd5+24], %w1;
    ld.const.s8 %h1, [bytes+2]; cvt.s32.s16 %r4, %h1; st.global.u32 [%rd5+48], %r4;
    cvta.const.u64 %rd6, %rd4; ld.u32 %r5, [%rd6]; st.global.u32 [%rd5+72], %r5; ret; }}"""
    found = np.zeros((4, 6), np.uint32)
    execute(text, (1,), (6,), [Allocation(found, writable=True)])
    table = [5, 6, 7, 8, 0, 0]
    assert found.tolist() == [table, [0x3F800000] * 6, [2**32 - 1] * 6, table]
    for wrong in ("[%rd4+48]", "[one+4096]"):
        past = text.replace("ld.const.u32 %r2, [%rd4]", f"ld.const.u32 %r2, {wrong}")
        with pytest.raises(Fault, match="outside of constant memory"):
            launch(parse(past), (1,), (6,), [Allocation(found, writable=True)])


def test_state_spaces_of_generic_addresses(execute):
    text = """.const .u32 c = 3; .visible .entry f(.param .u64 f_0) {
    .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .shared .align 4 .b8 s[16]; .local .align 4 .b8 l[16];
    ld.param.b64 %rd1, [f_0]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 16;
    mov.u64 %rd3, s; cvta.shared.u64 %rd4, %rd3; mov.u64 %rd3, l; cvta.local.u64 %rd5, %rd3;
    mov.u64 %rd3, c; cvta.const.u64 %rd6, %rd3;
    """
    spaces = ("global", "shared", "local", "const")
    for n, space in enumerate(spaces):
        for k, address in enumerate(("%rd1", "%rd4", "%rd5", "%rd6")):
            text += f"""isspacep.{space} %p1, {address}; selp.b32 %r2, 1, 0, %p1;
            st.global.b32 [%rd1+{16 * n + 4 * k}], %r2;"""
    found = np.zeros((4, 4), np.uint32)
    execute(f"{text} ret; }}", (1,), (1,), [Allocation(found, writable=True)])
    assert found.tolist() == np.eye(4, dtype=int).tolist()


# Two warps write, arrive and go on; two wait, and read what both have written.
ARRIVE = """.visible .entry f(.param .u64 f_0, .param .u64 f_1) {
    .reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>; .shared .align 4 .b8 s[512];
    ld.param.b64 %rd1, [f_0]; ld.param.b64 %rd2, [f_1]; mov.u32 %r1, %tid.x; mov.b32 %r2, s;
    mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; shl.b32 %r3, %r1, 2;
    add.s32 %r4, %r2, %r3; setp.ge.u32 %p1, %r1, 64; mov.b32 %r9, 0; @%p1 bra $READ;
    $WRITE: ld.global.b32 %r5, [%rd4]; add.s32 %r5, %r5, %r9; st.shared.b32 [%r4], %r5;
    bar.arrive 1, 128; bar.sync 2, 128; add.s32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 3;
    @%p2 bra $WRITE; bra $E;
    $READ: mov.b32 %r7, 0;
    $MORE: bar.sync 1, 128; ld.shared.b32 %r5, [%r4+-256]; ld.shared.b32 %r6, [%r2];
    mad.lo.s32 %r7, %r7, 5, %r5; add.s32 %r7, %r7, %r6; bar.arrive 2, 128;
    add.s32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 3; @%p2 bra $MORE;
    add.s64 %rd5, %rd2, %rd3; st.global.b32 [%rd5+-256], %r7; $E: ret; }"""


def arrived(text, execute):
    given, found = np.arange(7, 71, dtype=np.uint32), np.zeros(64, np.uint32)
    execute(text, (3,), (128,), [Allocation(given), Allocation(found, writable=True)])
    want = np.zeros_like(found)
    for n in range(3):
        want = want * 5 + (given + n) + (given[0] + n)
    return (found == want).all()


def test_threads_that_arrive_without_waiting(execute):
    """Producers and consumers with a barrier for each way, three times."""
    assert arrived(ARRIVE, execute)


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("bar.arrive 1, 128;", "", "deadlock|race"),
        ("bar.sync 2, 128;", "", "race|more threads|deadlock"),
        ("bar.arrive 2, 128;", "", "deadlock"),
        ("bar.arrive 1, 128;", "bar.arrive 1, 160;", "deadlock|more threads|disagree"),
        ("bar.arrive 1, 128;", "bar.arrive 1, 100;", "not whole warps"),
    ],
)
def test_a_wrong_arrival_is_found(right, wrong, reason):
    with pytest.raises(Fault, match=reason):
        arrived(ARRIVE.replace(right, wrong), lambda t, *more: launch(parse(t), *more))


# Block 0 writes and sets a flag; the others wait for the flag and read.
PASSED = """.visible .entry f(.param .u64 f_0, .param .u64 f_1, .param .u64 f_2) {
    .reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>;
    ld.param.b64 %rd1, [f_0]; ld.param.b64 %rd2, [f_1]; ld.param.b64 %rd3, [f_2];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0;
    mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %rd1, %rd4; @%p1 bra $WAIT;
    add.s32 %r3, %r1, 7; st.global.b32 [%rd5], %r3; bar.sync 0; setp.ne.u32 %p2, %r1, 0;
    @%p2 bra $E; FENCE st.relaxed.gpu.global.b32 [%rd2], 1; bra $E;
    $WAIT: setp.ne.u32 %p2, %r1, 0; @%p2 bra $READ;
    $AGAIN: ld.relaxed.gpu.global.b32 %r4, [%rd2]; setp.eq.u32 %p3, %r4, 0; @%p3 bra $AGAIN; FENCE2
    $READ: bar.sync 0; ld.global.b32 %r5, [%rd5]; mad.lo.s32 %r6, %r2, 64, %r1;
    mul.wide.s32 %rd6, %r6, 4; add.s64 %rd7, %rd3, %rd6; st.global.b32 [%rd7], %r5; $E: ret; }"""


def passed(first, second, execute):
    """Return what three blocks have read."""
    text = PASSED.replace("FENCE2", second).replace("FENCE", first)
    data, flag, found = (np.zeros(n, np.uint32) for n in (64, 1, 192))
    execute(text, (3,), (64,), [Allocation(a, writable=True) for a in (data, flag, found)])
    return found[64:].tolist()


FENCES = ("fence.acq_rel.gpu;", "fence.sc.gpu;", "membar.gl;", "membar.sys;", "fence.acq_rel.sys;")


@pytest.mark.parametrize("fence", FENCES)
def test_fences_order_what_a_flag_passes_on(fence, execute):
    assert passed(fence, fence, execute) == [*range(7, 71)] * 2


@pytest.mark.parametrize(
    ("first", "second"),
    [("", "membar.gl;"), ("membar.gl;", ""), ("membar.cta;", "membar.gl;"), ("", "")],
)
def test_a_missing_fence_is_a_race(first, second):
    with pytest.raises(
        Fault, match=r"race, reads what another thread wrote.*used by @?.*st\.global"
    ):
        passed(first, second, lambda t, *more: launch(parse(t), *more))


def test_fences_of_other_proxies_do_nothing_here(run):
    a = patterns(32)
    body = "fence.mbarrier_init.release.cluster; fence.proxy.async.global; mov.b32 y, x0;"
    assert run(body, [a], 32).tolist() == a.tolist()


def test_ptxas_assembles_every_body(assemble):
    errors = assemble()
    assert "error" not in errors, errors


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_values_move_within_segments_of_a_warp(mode, run):
    """Of 8 lanes; c holds the mask of the segment and its last, for `up` its first, lane."""
    a = patterns(32)
    clamp = (32 - 8) << 8 | (0 if mode == "up" else 7)
    body = f"""shfl.sync.{mode}.b32 %r20|%p1, x0, 3, {clamp}, -1; selp.b32 %r21, 1, 0, %p1;
    xor.b32 y, %r20, %r21;"""
    lane = np.arange(COUNT) % 8
    to = {"up": lane - 3, "down": lane + 3, "bfly": lane ^ 3, "idx": 0 * lane + 3}[mode]
    inside = (to >= 0) & (to < 8)
    source = np.arange(COUNT) - lane + np.where(inside, to, lane)
    assert np.array_equal(run(body, [a], 32), a[source] ^ inside)


HALF = """and.b32 %r25, %r30, 31; setp.lt.u32 %p2, %r25, 16;
    mov.b32 y, 0; @!%p2 bra $E; BODY $E:"""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("shfl.sync.down.b32 y, x0, 8, 0x1807, 0xffff;", lambda v: v),
        ("shfl.sync.idx.b32 y, x0, 5, 31, 0xffff;", lambda v: 0 * v + v[:, 5:6]),
        ("redux.sync.max.u32 y, x0, 0xffff;", lambda v: 0 * v + v.max(1, keepdims=True)),
        ("redux.sync.add.u32 y, x0, 0xffff;", lambda v: 0 * v + v.sum(1, "u4", keepdims=True)),
        ("setp.eq.u32 %p1, x0, 7; vote.sync.ballot.b32 y, %p1, 0xffff;", lambda v: 0 * v + 1),
        ("match.any.sync.b32 y, %r25, 0xffff;", lambda v: 0 * v + (1 << np.arange(16))),
        ("elect.sync %r26|%p1, 0xffff; selp.b32 y, 9, %r26, %p1;",
         lambda v: 0 * v + [9, *[0] * 15]),
    ],
)  # fmt: skip
def test_lanes_of_a_mask_exchange_alone(body, wanted, run):
    a = patterns(32)
    a[::32] = 7
    a[1::32], a[2::32] = 1, 2
    values = a.reshape(-1, 32)[:, :16]
    if "vote" in body:
        values = np.where(np.arange(16) == 0, 7, values & ~np.uint32(7)).astype(np.uint32)
        a.reshape(-1, 32)[:, :16] = values
    found = run(HALF.replace("BODY", body), [a], 32).reshape(-1, 32)
    assert np.array_equal(found[:, :16], wanted(values).astype(np.uint32))
    assert not found[:, 16:].any()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("shfl.sync.idx.b32 y, x0, 5, 31, -1;", "threads of its mask are missing"),
        ("vote.sync.any.pred %p1, %p2, 0xff;", "a thread is not in its mask"),
        ("shfl.sync.idx.b32 y, x0, 20, 31, 0xffff;", "undefined bits"),
    ],
)
def test_a_mask_that_does_not_fit_its_threads_is_a_fault(body, reason):
    with pytest.raises(Fault, match=reason):
        interpreted(HALF.replace("BODY", body), [patterns(32)], 32)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pairs_are_compared_to_ones_and_zeros(kind, run):
    a, b = patterns(32), patterns(32)
    b[::2] = a[::2] & 0xFFFF | b[::2] & 0xFFFF0000
    a, b = a & 0x7BFF7BFF, b & 0x7BFF7BFF  # no NaN
    found = run(f"set.eq.{kind}x2.{kind}x2 y, x0, x1;", [a, b], 32).view(np.uint16)
    one = {"f16": 0x3C00, "bf16": 0x3F80}[kind]
    assert np.array_equal(found, np.where(a.view(np.uint16) == b.view(np.uint16), one, 0))


def test_a_comparison_gives_a_number_and_names_of_constants(run):
    a, b = patterns(32), patterns(32)
    body = """set.lt.u32.u32 %r20, x0, x1; set.ge.f32.s32 %r21, x0, x1; xor.b32 y, %r20, %r21;
    add.u32 y, y, WARP_SZ;"""
    less = np.where(a < b, -1, 0).astype(np.int32).view(np.uint32)
    ones = np.where(a.view(np.int32) >= b.view(np.int32), np.float32(1), 0).astype(np.float32)
    assert np.array_equal(run(body, [a, b], 32), (less ^ ones.view(np.uint32)) + 32)
