"""Instructions that kernels of other packages need, alone, against Python's integers and fractions.

Expected results follow the PTX manual; a GPU that runs the same PTX confirms them.
"""

from fractions import Fraction

import numpy as np
import pytest
from micro import COUNT, floats, patterns
from micro import run as interpreted

from convref_ptx import Allocation, Fault, launch, parse

LOCAL = ".local .align 16 .b8 depot[32]; .reg .b64 %l<9>;"


def test_local_memory_is_one_for_each_thread(run):
    a = patterns(32)
    body = """mov.b64 %l1, depot; cvta.local.u64 %l2, %l1; not.b32 %r20, x0;
    st.local.v2.b32 [%l1+8], {x0, %r20}; st.b32 [%l2+16], %r30;
    ld.b32 %r21, [%l2+12]; ld.local.b32 %r22, [%l1+16]; add.s32 y, %r21, %r22;"""
    assert np.array_equal(run(body, [a], 32, shared=LOCAL), ~a + np.arange(COUNT, dtype=a.dtype))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("ld.local.b32 y, [%l1];", "undefined bits"),
        ("st.local.b32 [%l1], %r25; ld.local.b32 y, [%l1];", "undefined bits"),
        ("ld.local.b32 y, [%l1+32];", "outside of local memory"),
        ("ld.local.b32 y, [%l1+2];", "not a multiple of 4"),
    ],
)
def test_local_memory_is_checked(body, reason, run):
    with pytest.raises(Fault, match=reason):
        run(f"mov.b64 %l1, depot; {body}", [patterns(32)], 32, shared=LOCAL)


def test_narrow_and_several_parameters():
    text = """.visible .entry f(.param .u8 f_0, .param .align 8 .b8 f_1[8], .param .u64 f_2) {
    .reg .b16 %rs<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.s8 %rs1, [f_0]; ld.param.v2.b32 {%r1, %r2}, [f_1]; ld.param.b64 %rd1, [f_2];
    cvt.s32.s16 %r3, %rs1; sub.s32 %r4, %r1, %r2; add.s32 %r4, %r4, %r3;
    st.global.b32 [%rd1], %r4; ret; }"""
    out = np.zeros(1, np.int32)
    pair = np.array([50, 8], np.int32).tobytes()
    launch(parse(text), (1,), (1,), [b"\xfe", pair, Allocation(out, writable=True)])
    assert out.tolist() == [40]


def rounded(exact, mode):
    """Return a fraction as float32, rounded toward zero, -infinity or +infinity."""
    toward = {"z": 0.0, "m": -np.inf, "p": np.inf}[mode]
    near = np.float32(float(exact))
    far = {"z": abs, "m": lambda n: n, "p": lambda n: -n}[mode]
    while far(Fraction(float(near))) > far(exact):
        near = np.nextafter(near, np.float32(toward))
    return near


@pytest.mark.parametrize("mode", "zmp")
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_sums_and_products_rounded_in_a_direction(name, mode, run):
    drawn = np.random.default_rng(1).standard_normal((3, COUNT)).astype(np.float32)
    a, b, c = drawn.view(np.uint32)
    third = ", x2" if name == "fma" else ""
    got = run(f"{name}.r{mode}.f32 y, x0, x1{third};", [a, b, c], 32).view(np.float32)
    for n, (x, y, z) in enumerate(zip(*(map(Fraction, row.tolist()) for row in drawn))):
        exact = {"add": x + y, "sub": x - y, "mul": x * y, "fma": x * y + z}[name]
        assert got[n] == rounded(exact, mode)


def test_saturated_sums_and_exact_zeros(run):
    a = floats(32)
    got = run("add.rn.sat.f32 y, x0, x0;", [a], 32).view(np.float32)
    twice = 2 * a.view(np.float32).astype(np.float64)
    assert np.array_equal(got, np.clip(np.nan_to_num(twice, nan=0), 0, 1).astype(np.float32))
    one = np.full(COUNT, 1, np.float32).view(np.uint32)
    minus = run("sub.rm.f32 y, x0, x0;", [one], 32)
    assert set(minus.tolist()) == {1 << 31}


def test_carries_make_a_wide_product(run):
    a, b, c, d = (patterns(32) for _ in range(4))
    body = """mad.lo.cc.u32 %r20, x0, x1, x2; madc.hi.u32 y, x0, x1, x3;"""
    got = run(body, [a, b, c, d], 32)
    for x, y, low, high, z in zip(*(row.tolist() for row in (a, b, c, d, got))):
        assert z == (x * y + (high << 32) + low >> 32) % (1 << 32)
    body = "sub.cc.u32 %r20, x0, x1; subc.u32 y, x2, x3;"
    got = run(body, [a, b, c, d], 32)
    for x, y, p, q, z in zip(*(row.tolist() for row in (a, b, c, d, got))):
        assert z == ((p << 32) + x - (q << 32) - y >> 32) % (1 << 32)


@pytest.mark.parametrize("sign", "us")
def test_fields_of_64_bits(sign, run):
    a, start, length = patterns(64), patterns(32) % 70, patterns(32) % 70
    got = run(f"bfe.{sign}64 y, x0, x1, x2;", [a, start, length], 64)
    for x, low, count, y in zip(*(row.tolist() for row in (a, start, length, got))):
        bits = [x >> n & 1 if n < 64 else 0 for n in range(low, low + count)]
        if sign == "s":
            last = x >> 63 if low + count > 64 else (bits or [0])[-1]
            bits = [*(x >> n & 1 for n in range(low, min(64, low + count))), *[last] * 64][:64]
            bits = bits if count else [0]
        assert y == sum(bit << n for n, bit in enumerate(bits[:64]))


def test_pairs_of_16_bit_integers(run):
    a, b = patterns(32), patterns(32)
    halves = [word.view(np.int16) for word in (a, b)]
    for name, wanted in (("add", halves[0] + halves[1]), ("max", np.maximum(*halves))):
        got = run(f"{name}.s16x2 y, x0, x1;", [a, b], 32)
        assert np.array_equal(got.view(np.int16), wanted)


def test_kinds_of_numbers(run):
    a = floats(32)
    x, tiny = a.view(np.float32), np.finfo(np.float32).tiny
    for name, wanted in {
        "finite": np.isfinite(x), "infinite": np.isinf(x), "notanumber": np.isnan(x),
        "subnormal": (x != 0) & (abs(x) < tiny), "normal": np.isfinite(x) & (abs(x) >= tiny),
    }.items():  # fmt: skip
        assert np.array_equal(run(f"testp.{name}.f32 y, x0;", [a], 1), wanted), name


def test_decimal_constants(run):
    a = np.linspace(0, 2, COUNT, dtype=np.float32)
    got = run("mul.f32 %r20, x0, 1.5; setp.gt.f32 y, %r20, -2.5e-1;", [a.view(np.uint32)], 1)
    assert got.all()
    assert np.array_equal(
        run("mul.f32 y, x0, 1.5;", [a.view(np.uint32)], 32).view(np.float32), a * np.float32(1.5)
    )


SHARED = ".shared .align 16 .b8 s[16];"


@pytest.mark.parametrize(("lane", "reason"), [("and.b32 %r20, x0, 1;", ""), ("", "two warps|race")])
def test_lanes_of_a_warp_may_write_one_place_and_warps_may_not(lane, reason, run):
    body = f"""mov.b32 %r21, s; setp.lt.s32 %p1, %r30, {32 if lane else 64};
    @!%p1 bra $E; st.shared.b32 [%r21], x0; ld.shared.b32 y, [%r21]; $E: bar.sync 0;
    ld.shared.b32 y, [%r21];"""
    a = np.arange(COUNT, dtype=np.uint32)
    if reason:
        with pytest.raises(Fault, match=reason):
            run(body, [a], 32, shared=SHARED)
    else:
        assert set(run(body, [a], 32, shared=SHARED).tolist()) <= set(range(32))


@pytest.mark.parametrize("stores", [32, 64])
def test_branch_on_a_racing_read(stores):
    """Warps read what warp 0 writes; the others may branch on it if they store nothing."""
    text = f""".visible .entry f(.param .u64 f_0, .param .u64 f_1) {{
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;
    ld.param.b64 %rd1, [f_0]; ld.param.b64 %rd2, [f_1]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4; add.s64 %rd3, %rd2, %rd3;
    ld.global.b32 %r2, [%rd1]; setp.lt.s32 %p2, %r1, {stores}; setp.ge.s32 %p3, %r1, 32;
    setp.eq.s32 %p1, %r2, 7; @%p1 bra $A; mov.b32 %r3, 1; bra $B; $A: mov.b32 %r3, 2; $B:
    @%p2 st.global.b32 [%rd3], %r3; @%p3 bra $E; st.global.b32 [%rd1], 9; $E: ret; }}"""
    x, out = np.full(1, 7, np.int32), np.zeros(64, np.int32)
    arguments = [Allocation(x, writable=True), Allocation(out, writable=True)]
    if stores == 64:
        with pytest.raises(Fault, match=r"race.*after a branch on a value that was read in a race"):
            launch(parse(text), (1,), (64,), arguments)
    else:
        launch(parse(text), (1,), (64,), arguments)
        assert out.tolist() == [2] * 32 + [0] * 32


def test_generic_addresses_of_shared_memory(run):
    body = """mov.b64 %l1, tile; cvta.shared.u64 %l2, %l1; mad.wide.u32 %l3, %r30, 4, %l2;
    st.b32 [%l3], x0; bar.sync 0; atom.add.u32 %r20, [%l3], 1; cvta.to.shared.u64 %l4, %l3;
    ld.shared.b32 %r21, [%l4]; ld.b32 %r22, [%l3]; sub.s32 %r23, %r22, %r20;
    mad.lo.s32 y, %r21, 2, %r23;"""
    a = patterns(32)
    shared = ".shared .align 16 .b8 tile[384]; .reg .b64 %l<9>;"
    assert np.array_equal(run(body, [a], 32, shared=shared), 2 * a + 3)


@pytest.mark.parametrize("body", ["ld.b32 y, [%l1];", "st.b32 [%l1], x0;", "red.add.u32 [%l1], 1;"])
def test_null_pointer_is_not_shared_memory(body):
    shared = ".shared .align 16 .b8 tile[384]; .reg .b64 %l<9>;"
    with pytest.raises(Fault, match="null pointer"):
        interpreted(
            f"st.shared.b32 [tile], 1; mov.b64 %l1, 0; {body}", [patterns(32)], 32, shared=shared
        )


MODULE = """.extern .shared .align 16 .b8 dynamic[];
.shared .align 4 .u32 word;
.visible .entry first() { .shared .align 16 .b8 mine[4096]; ret; }
.weak .entry second(.param .u64 p0) {
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 4 .f32 tile[2][4];
    ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; mov.b32 %r2, tile;
    st.shared.b32 [%r2+28], 5; st.shared.b32 [word], 7; st.shared.b32 [dynamic], 9;
    ld.shared.b32 %r3, [%r2+28]; ld.shared.b32 %r4, [word]; ld.shared.b32 %r5, [dynamic];
    mad.lo.s32 %r6, %r3, %r4, %r5; st.global.b32 [%rd1], %r6; ret; }"""


def test_shared_variables_are_those_of_the_entry_and_dynamic_memory_follows_them():
    program, out = parse(MODULE, "second"), np.zeros(1, np.int32)
    assert program.sizes["shared"] == 48
    launch(program, (1,), (1,), [Allocation(out, writable=True)], shared=16)
    assert out[0] == 44


@pytest.mark.parametrize("store", ["st", "st.global.L1::no_allocate"])
def test_neighbours_that_two_blocks_write_do_not_race(store):
    """The size of each write counts, also with a generic address and with a cache hint."""
    text = f""".visible .entry f(.param .u64 f_0) {{ .reg .b32 %r<4>; .reg .b64 %rd<4>;
    .reg .pred %p<2>; ld.param.b64 %rd1, [f_0]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0;
    @%p1 {store}.b32 [%rd1], 5; @!%p1 {store}.b32 [%rd1+4], %r1; ret; }}"""
    out = np.zeros(2, np.int32)
    launch(parse(text), (2,), (1,), [Allocation(out, writable=True)])
    assert out.tolist() == [5, 1]


@pytest.mark.parametrize("saturates", [False, True])
def test_products_of_bytes_wrap_or_saturate(saturates):
    """A warp's product of s8; the layouts of fragments are those of the manual."""
    mode = ".satfinite" if saturates else ""
    text = f""".visible .entry f(.param .u64 f_0, .param .u64 f_1, .param .u64 f_2) {{
    .reg .b32 %r<30>; .reg .b64 %rd<9>;
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 16; mul.wide.u32 %rd2, %r1, 8;
    ld.param.b64 %rd3, [f_0]; ld.param.b64 %rd4, [f_1]; ld.param.b64 %rd5, [f_2];
    add.s64 %rd3, %rd3, %rd1; add.s64 %rd4, %rd4, %rd2; add.s64 %rd5, %rd5, %rd1;
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%rd3]; ld.global.v2.b32 {{%r6, %r7}}, [%rd4];
    ld.global.v4.b32 {{%r8, %r9, %r10, %r11}}, [%rd5];
    mma.sync.aligned.m16n8k32.row.col{mode}.s32.s8.s8.s32
        {{%r8, %r9, %r10, %r11}}, {{%r2, %r3, %r4, %r5}}, {{%r6, %r7}}, {{%r8, %r9, %r10, %r11}};
    st.global.v4.b32 [%rd5], {{%r8, %r9, %r10, %r11}}; ret; }}"""
    draw = np.random.default_rng(3)
    a, b = draw.integers(-128, 128, (16, 32)), draw.integers(-128, 128, (32, 8))
    sums = draw.choice([-(2**31), 2**31 - 1, 5], (16, 8))
    lane, register, byte = np.ogrid[:32, :4, :4]
    depth = lane % 4 * 4 + byte
    left = a[lane // 4 + 8 * (register & 1), depth + 16 * (register >> 1)].astype(np.int8)
    right = b[depth + 16 * register[:, :2], lane // 4 + 0 * register[:, :2]].astype(np.int8)
    at = (lane // 4 + 8 * (register >> 1))[..., 0], (lane % 4 * 2 + (register & 1))[..., 0]
    held = sums[at].astype(np.int32)
    arrays = [
        np.ascontiguousarray(part).reshape(-1).view(np.uint32) for part in (left, right, held)
    ]
    operands = [Allocation(part, writable=n == 2) for n, part in enumerate(arrays)]
    launch(parse(text), (1,), (32,), operands)
    exact = a @ b + sums
    assert np.any(abs(exact) > 2**31)
    if saturates:
        exact = exact.clip(-(2**31), 2**31 - 1)
    assert np.array_equal(arrays[2].view(np.int32).reshape(32, 4), exact[at].astype(np.int32))
