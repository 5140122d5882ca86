"""Asynchronous operations, each alone: copies, mbarriers, boxes, products.

Expected results are computed after the PTX manual; each runs at the earliest and
at the latest moment, and on a GPU, which confirms it. Then faults are
seeded into the same texts: all are found.
"""

import re
from itertools import product

import numpy as np
import pytest

from convref_ptx import Allocation, Fault, Im2colMap, TensorMap, launch, parse

RNG = np.random.default_rng(0)


def module(body, buffers, shared=16, bound=""):
    """Return a kernel with pointers %rd0, %rd1 ...; %r0 is the thread, %r1 shared memory."""
    parameters = ", ".join(f".param .u64 f_{i}" for i in range(buffers))
    loads = "".join(f"ld.param.b64 %rd{i}, [f_{i}]; " for i in range(buffers))
    return f""".visible .entry f({parameters}) {bound} {{
    .reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<400>; .reg .b64 %rd<40>;
    .shared .align 1024 .b8 s[{shared}];
    mov.u32 %r0, %tid.x; mov.b32 %r1, s; {loads}
    {body}
    ret; }}"""


def words(*shape):
    return RNG.integers(0, 1 << 32, shape, np.uint32)


SIZES = (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16))
LAST = {"all": "cp.async.wait_all;", "group": "cp.async.commit_group; cp.async.wait_group 0;"}


def of_copies(cache, size, last):
    """Return a module in which each of 64 threads copies, and reads what another has copied."""
    reads = "".join(
        f"ld.shared.b32 %r9, [%r6+{4 * n}]; st.global.b32 [%rd6+{4 * n}], %r9; "
        for n in range(size // 4)
    )
    body = f"""mul.wide.u32 %rd3, %r0, {size}; add.s64 %rd4, %rd0, %rd3;
    mad.lo.s32 %r2, %r0, {size}, %r1; rem.u32 %r4, %r0, {size + 1};
    cp.async.{cache}.shared.global [%r2], [%rd4], {size}, %r4; {LAST[last]} bar.sync 0;
    sub.s32 %r5, 63, %r0; mad.lo.s32 %r6, %r5, {size}, %r1; add.s64 %rd6, %rd1, %rd3; {reads}"""
    return module(body, 2, 64 * size)


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize(("cache", "size"), SIZES)
def test_a_copy_of_a_thread(cache, size, last, execute_later):
    """The rest of a source that is too short is zeros."""
    text = of_copies(cache, size, last)
    given, found = words(64, size // 4).view(np.uint8), np.zeros((64, size), np.uint8)
    execute_later(text, (1,), (64,), [Allocation(given), Allocation(found, writable=True)])
    want = given.copy()
    for thread in range(64):
        want[thread, thread % (size + 1) :] = 0
    assert (found == want[::-1]).all()


GROUPS = """shl.b32 %r2, %r0, 4; add.s32 %r2, %r2, %r1; mul.wide.u32 %rd3, %r0, 16;
    add.s64 %rd4, %rd0, %rd3; shl.b32 %r3, %r0, 2; add.s32 %r4, %r3, %r1; mul.wide.u32 %rd5, %r0, 4;
    cp.async.cg.shared.global [%r2], [%rd4], 16; cp.async.commit_group;
    cp.async.cg.shared.global [%r2+1024], [%rd4+1024], 16; cp.async.commit_group;
    cp.async.cg.shared.global [%r2+2048], [%rd4+2048], 16; cp.async.commit_group;
    cp.async.wait_group 1; bar.sync 0;
    ld.shared.b32 %r5, [%r4]; ld.shared.b32 %r6, [%r4+1024]; cp.async.wait_group 0; bar.sync 0;
    ld.shared.b32 %r7, [%r4+2048]; add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7;
    add.s64 %rd6, %rd1, %rd5; st.global.b32 [%rd6], %r5;"""


def test_groups_of_copies(execute_later):
    given, found = words(3, 256), np.zeros(64, np.uint32)
    text = module(GROUPS, 2, 3072)
    execute_later(text, (1,), (64,), [Allocation(given), Allocation(found, writable=True)])
    assert (found == given[:, :64].sum(0, dtype=np.uint32)).all()


# A ring of one place: warp 0 writes three numbers a lane, one after the other, and warp 1 reads.
RING = """setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1], 32;
    @%p1 mbarrier.init.shared.b64 [%r1+8], 1; bar.sync 0;
    and.b32 %r2, %r0, 31; shl.b32 %r3, %r2, 2; add.s32 %r3, %r3, %r1; mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd0, %rd3; add.s64 %rd5, %rd1, %rd3; mov.b32 %r4, 0; mov.b32 %r5, 0;
    mov.b32 %r8, 0; setp.ge.u32 %p2, %r0, 32; @%p2 bra $READ;
    $WRITE: xor.b32 %r7, %r5, 1;
    { .reg .pred done; again: mbarrier.test_wait.parity.shared.b64 done, [%r1+8], %r7;
    @!done bra.uni again; }
    ld.global.b32 %r6, [%rd4]; st.shared::cta.b32 [%r3+16], %r6; add.s64 %rd4, %rd4, 128;
    mbarrier.arrive.shared::cta.b64 _, [%r1]; add.u32 %r4, %r4, 1; xor.b32 %r5, %r5, 1;
    setp.lt.u32 %p3, %r4, 3; @%p3 bra $WRITE; bra.uni $END;
    $READ: { .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%r1], %r5;
    @!done bra.uni again; }
    ld.shared::cta.b32 %r6, [%r3+16]; mad.lo.u32 %r8, %r8, 3, %r6; bar.warp.sync -1;
    elect.sync %r9|%p4, -1; @%p4 mbarrier.arrive.shared::cta.b64 _, [%r1+8], 1;
    add.u32 %r4, %r4, 1; xor.b32 %r5, %r5, 1; setp.lt.u32 %p3, %r4, 3; @%p3 bra $READ;
    st.global.b32 [%rd5], %r8;
    $END: barrier.sync 1; @%p1 mbarrier.inval.shared::cta.b64 [%r1];
    @%p1 mbarrier.inval.shared.b64 [%r1+8];"""


def test_a_ring_between_two_warps(execute_later):
    given, found = words(3, 32), np.zeros(32, np.uint32)
    text = module(RING, 2, 256)
    execute_later(text, (1,), (64,), [Allocation(given), Allocation(found, writable=True)])
    assert (found == given[0] * 9 + given[1] * 3 + given[2]).all()


# Two pairs of warps meet at barriers of their own, then all; a table of branches; registers move.
MEET = """setmaxnreg.dec.sync.aligned.u32 40; shr.u32 %r2, %r0, 5; shl.b32 %r3, %r0, 2;
    add.s32 %r3, %r3, %r1; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd4, %rd0, %rd3;
    add.s64 %rd5, %rd1, %rd3; ld.global.b32 %r4, [%rd4]; st.shared.b32 [%r3], %r4;
    xor.b32 %r5, %r3, 128; shr.u32 %r6, %r2, 1; $TABLE: .branchtargets $LOW, $HIGH;
    brx.idx %r6, $TABLE;
    $LOW: bar.sync 1, 64; ld.shared.b32 %r7, [%r5]; bra.uni $ALL;
    $HIGH: barrier.sync 2, 64; ld.shared.b32 %r7, [%r5]; add.u32 %r7, %r7, 1;
    $ALL: barrier.sync 3; xor.b32 %r8, %r3, 256; ld.shared.b32 %r9, [%r8];
    mad.lo.u32 %r7, %r7, 5, %r9; st.global.b32 [%rd5], %r7; setmaxnreg.inc.sync.aligned.u32 64;"""


def test_named_barriers(execute):
    given, found = words(4, 32), np.zeros((4, 32), np.uint32)
    text = module(MEET, 2, 512, ".reqntid 128 .maxnreg 64")
    execute(text, (1,), (128,), [Allocation(given), Allocation(found, writable=True)])
    one = np.uint32([[0], [0], [1], [1]])
    assert (found == (given[[1, 0, 3, 2]] + one) * 5 + given[[2, 3, 0, 1]]).all()


SPANS = (16, 32, 64, 128)


def exchanged(row, chunk, span):
    """Return the swizzled place of the 16 bytes `chunk` of a line of `span` bytes."""
    return chunk ^ {16: 0, 32: row // 4 % 2, 64: row // 2 % 4, 128: row % 8}[span]


BOXES = {1: ((40,), (0,)), 2: ((5, 40), (-2, 8)), 3: ((3, 4, 72), (1, 2, -8)),
         4: ((2, 3, 4, 40), (0, -1, 3, 24)), 5: ((2, 2, 3, 2, 72), (1, 1, -1, 0, 64))}  # fmt: skip


def box_of(rank, swizzle, every=(), start=None):
    """Return (tensor, box, start, lines): a 16-bit box, partly outside, and its contents."""
    every, start = every or (1,) * rank, start or BOXES[rank][1]
    shape = BOXES[rank][0]
    tensor = RNG.integers(0, 1 << 16, shape).astype(np.uint16)
    box = (*(2 if rank > 3 else 4,) * (rank - 1), SPANS[swizzle] // 2)
    places = list(product(*map(range, box)))
    position = [tuple(s + p * e for s, p, e in zip(start, place, every)) for place in places]
    real = [all(0 <= p < n for p, n in zip(at, shape)) for at in position]
    return tensor, box, start, (places, position, real)


def scattered(places, box, span):
    """Return the position in shared memory of each element of a box, in elements."""
    found = []
    for n, place in enumerate(places):
        row, column = divmod(n, box[-1])
        chunk, rest = divmod(column, 8)
        found.append(row * box[-1] + 8 * exchanged(row, chunk, span) + rest if span > 16 else n)
        assert place[-1] == column
    return found


LOAD = """setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1+{top}], 1;
    bar.sync 0; mov.b64 %rd9, f_1; cvta.param.u64 %rd9, %rd9;
    @!%p1 bra $WAIT; mbarrier.arrive.expect_tx.shared.b64 _, [%r1+{top}], {bytes};
    {start} cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r1], [%rd9, {{{coordinates}}}], [%r1+{top}];
    $WAIT: {{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%r1+{top}], 0;
    @!done bra.uni again; }}
    mov.b32 %r2, %r0; shl.b32 %r3, %r0, 2; add.s32 %r4, %r3, %r1; mul.wide.u32 %rd3, %r0, 4;
    add.s64 %rd4, %rd0, %rd3;
    $COPY: setp.ge.u32 %p2, %r2, {words}; @%p2 bra $END; ld.shared.b32 %r5, [%r4];
    st.global.b32 [%rd4], %r5; add.s32 %r2, %r2, 64; add.s32 %r4, %r4, 256;
    add.s64 %rd4, %rd4, 256; bra $COPY; $END:"""
STORE = """mov.b32 %r2, %r0; shl.b32 %r3, %r0, 2; add.s32 %r4, %r3, %r1; mul.wide.u32 %rd3, %r0, 4;
    add.s64 %rd4, %rd0, %rd3; mov.b64 %rd9, f_1; cvta.param.u64 %rd9, %rd9;
    $COPY: setp.ge.u32 %p2, %r2, {words}; @%p2 bra $DONE; ld.global.b32 %r5, [%rd4];
    st.shared.b32 [%r4], %r5; add.s32 %r2, %r2, 64; add.s32 %r4, %r4, 256;
    add.s64 %rd4, %rd4, 256; bra $COPY; $DONE: fence.proxy.async.shared::cta; bar.sync 0;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra $END; {start}
    cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%rd9, {{{coordinates}}}], [%r1];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group{read} 0; $END:"""


def of_box(text, rank, box, start, **more):
    """Return a module of LOAD or STORE; its second parameter is a tensor map."""
    size = 2 * int(np.prod(box))
    body = text.format(
        rank=rank,
        start=" ".join(f"mov.b32 %r{20 + i}, {at};" for i, at in enumerate(start[::-1])),
        coordinates=", ".join(f"%r{20 + i}" for i in range(rank)),
        bytes=size, words=size // 4, top=size, **more,
    )  # fmt: skip
    plain, both = ".param .u64 f_0", ".param .u64 f_0, .param .align 64 .b8 f_1[128]"
    return module(body, 1, size + 16).replace(plain, both)


def mapped(tensor, box, swizzle, writable=False, every=()):
    strides = tuple(s // 2 for s in tensor.strides)
    return TensorMap(Allocation(tensor, writable), tensor.shape, strides, box, swizzle, every)


STEPS = ((), (3, 1), (2, 1, 1), (1, 3, 2, 1), (2, 1, 1, 2, 1))  # between elements of a box
LOADS = [(rank, every) for rank in BOXES for every in STEPS if len(every) in (0, rank)]


@pytest.mark.parametrize("swizzle", range(4))
@pytest.mark.parametrize(("rank", "every"), LOADS)
def test_a_box_is_loaded(rank, every, swizzle, execute_later):
    tensor, box, start, (places, position, real) = box_of(rank, swizzle, every)
    found = np.full(int(np.prod(box)), 7, np.uint16)
    text = of_box(LOAD, rank, box, start)
    buffers = [Allocation(found, writable=True), mapped(tensor, box, swizzle, every=every)]
    execute_later(text, (1,), (64,), buffers)
    want = np.zeros_like(found)
    for to, at, there in zip(scattered(places, box, SPANS[swizzle]), position, real):
        want[to] = tensor[at] if there else 0
    assert (found == want).all()


# What the driver refuses to encode: (arguments of a map of (5, 40) numbers of 16 bits, reason).
WRONG_MAPS = (
    ({"offset": 8}, "starts 8 bytes after a multiple of 16"),
    ({"strides": (40, 2)}, "an innermost stride of 2 elements"),
    ({"strides": (36, 1)}, "a stride of 72 bytes, needs a multiple of 16"),
    ({"strides": (-40, 1)}, "a stride of -80 bytes, needs one below"),
    ({"strides": (1 << 39, 1)}, "needs one below 1099511627776"),
    ({"box": (257, 8)}, "a box of 257 elements, needs 1 to 256"),
    ({"box": (0, 8)}, "a box of 0 elements|a box of -"),
    ({"box": (100, 8), "every": (3, 1)}, "a box of 298 elements, needs 1 to 256"),
    ({"box": (1, 12)}, "lines of 24 bytes, needs a multiple of 16"),
    ({"box": (1, 24), "swizzle": 1}, "lines of 48 bytes, which do not fit into a swizzle of 32"),
    ({"every": (9, 1)}, "an element stride of 9, needs 1 to 8"),
    ({"every": (0, 1)}, "an element stride of 0, needs 1 to 8"),
    ({"every": (1, 2)}, "an innermost element stride of 2, which is ignored"),
)


@pytest.mark.parametrize(("change", "reason"), [({}, None), *WRONG_MAPS])
def test_a_map_that_no_driver_encodes_is_refused(change, reason):
    tensor, found = np.zeros((5, 40), np.uint16), np.zeros(32, np.uint16)
    given = {"shape": (5, 40), "strides": (40, 1), "box": (4, 8)} | change
    buffers = [Allocation(found, writable=True), TensorMap(Allocation(tensor), **given)]
    text = of_box(LOAD, 2, (4, 8), (0, 0))
    if reason is None:
        launch(parse(text), (1,), (64,), buffers)
        return
    with pytest.raises(Fault, match=f"f: the tensor map f_1: .*({reason})"):
        launch(parse(text), (1,), (64,), buffers)


@pytest.mark.parametrize("text", ["load", "store"])
@pytest.mark.parametrize("start", [(2, -4), (2, 4), (0, 66), (1, 2, -4), (1, 2, 1)])
def test_a_box_that_does_not_start_at_16_bytes_is_refused(start, text):
    """An H200 ends such a load with an illegal instruction, and other people's cards a store."""
    shape = (4, 72) if len(start) == 2 else (3, 4, 72)
    tensor, box = np.zeros(shape, np.uint16), (*(4,) * (len(start) - 1), 8)
    found = np.zeros(int(np.prod(box)), np.uint16)
    buffers = [Allocation(found, writable=True), mapped(tensor, box, 0, writable=True)]
    body = LOAD if text == "load" else STORE
    with pytest.raises(Fault, match=f"starts {2 * start[-1]} bytes into the innermost axis"):
        launch(parse(of_box(body, len(start), box, start, read="")), (1,), (64,), buffers)


@pytest.mark.parametrize("wrong", [(), (2, 1)])
def test_a_wrong_element_stride_reads_another_box(wrong):
    tensor, box, start, _ = box_of(2, 2)
    found = {}
    for every in (wrong, (3, 1)):
        result = np.zeros(int(np.prod(box)), np.uint16)
        buffers = [Allocation(result, writable=True), mapped(tensor, box, 2, every=every)]
        launch(parse(of_box(LOAD, 2, box, start)), (1,), (64,), buffers)
        found[result.tobytes()] = every
    assert len(found) == 2


@pytest.mark.parametrize("read", ["", ".read"])
@pytest.mark.parametrize("swizzle", range(4))
@pytest.mark.parametrize("rank", BOXES)
def test_a_box_is_stored(rank, swizzle, read, execute_later):
    start = tuple(max(0, at) for at in BOXES[rank][1])
    check_store(start, swizzle, read, execute_later)


@pytest.mark.parametrize(("rank", "axis"), [(n, axis) for n in (2, 3, 4, 5) for axis in range(n)])
def test_a_box_that_begins_before_the_tensor_is_stored(rank, axis, execute_later):
    """Along one axis, the innermost one by 16 bytes."""
    start = tuple(-8 * (n == rank - 1) - (n < rank - 1) if n == axis else 0 for n in range(rank))
    check_store(start, 0, "", execute_later)


def check_store(start, swizzle, read, execute):
    tensor, box, start, (places, position, real) = box_of(len(start), swizzle, start=start)
    given, want = RNG.integers(0, 1 << 16, int(np.prod(box))).astype(np.uint16), tensor.copy()
    text = of_box(STORE, len(start), box, start, read=read)
    buffers = [Allocation(given), mapped(tensor, box, swizzle, writable=True)]
    for from_, at, there in zip(scattered(places, box, SPANS[swizzle]), position, real):
        if there:
            want[at] = given[from_]
    execute(text, (1,), (64,), buffers)
    assert (tensor == want).all()


MATRICES = """shl.b32 %r2, %r0, 4; add.s32 %r2, %r2, %r1; mul.wide.u32 %rd3, %r0, 16;
    add.s64 %rd4, %rd0, %rd3; add.s64 %rd5, %rd1, %rd3;
    ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd4];
    st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {regs}, [%r2]; bar.sync 0;
    stmatrix.sync.aligned.m8n8.x{n}{back}.shared::cta.b16 [%r2], {regs}; bar.sync 0;
    ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r2]; st.global.v4.b32 [%rd5], {{%r4, %r5, %r6, %r7}};
    {keep}"""


@pytest.mark.parametrize("back", ["", ".trans"])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_matrices_of_8_by_8(n, trans, back, execute):
    """Lane 4r + c holds columns 2c and 2c + 1 of row r, or of column r, of each matrix."""
    registers = "{" + ", ".join(f"%r{10 + i}" for i in range(n)) + "}"
    keep = "mul.wide.u32 %rd6, %r0, 4; add.s64 %rd7, %rd2, %rd6; " + " ".join(
        f"st.global.b32 [%rd7+{128 * i}], %r{10 + i};" for i in range(n)
    )
    body = MATRICES.format(n=n, trans=trans, back=back, regs=registers, keep=keep)
    given = RNG.integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    moved, held = np.zeros_like(given), np.zeros((n, 32, 2), np.uint16)
    out = [Allocation(moved, writable=True), Allocation(held, writable=True)]
    execute(module(body, 3, 512), (1,), (32,), [Allocation(given), *out])
    want = given.copy()
    for i in range(n):
        seen = given[i].T if trans else given[i]
        for lane in range(32):
            r, c = divmod(lane, 4)
            assert held[i, lane].tolist() == [seen[r, 2 * c], seen[r, 2 * c + 1]]
        want[i] = given[i].T if trans != back else given[i]
    assert (moved == want).all()


def test_modifiers_of_ldmatrix_come_in_either_order(execute):
    given = RNG.integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    found = []
    for modifiers in ("m8n8.x4", "x4.m8n8"):
        body = MATRICES.format(n=4, trans="", back="", regs="{%r10, %r11, %r12, %r13}", keep="")
        text = module(
            body.replace("ldmatrix.sync.aligned.m8n8.x4", f"ldmatrix.sync.aligned.{modifiers}"),
            3,
            512,
        )
        found.append(np.zeros_like(given))
        out = [Allocation(found[-1], writable=True), Allocation(np.zeros(4), writable=True)]
        execute(text, (1,), (32,), [Allocation(given), *out])
    assert (found[0] == given).all()
    assert (found[1] == given).all()


def bits_of(values, kind):
    """Return small integers as patterns of a type."""
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f16": np.float16, "tf32": np.float32}[kind]).view(
        np.uint16 if kind == "f16" else np.uint32
    )


def laid(matrix, span, across):
    """Return (bytes, leading and stride offsets) of a matrix (rows, 32 bytes of depth).

    A core matrix is eight rows of 16 bytes; with `across` its rows are contiguous, and a line has
    as many of them as fit into a span.
    """
    size = matrix.itemsize
    rows, depth = matrix.shape
    per = 16 // size
    image = np.full(rows * max(span, depth * size), 0xEE, np.uint8).view(matrix.dtype)
    if across and span > 16:
        wide = span // size
        lead, stride = 8 * span * (depth // 8), 8 * span
    elif span > 16:
        lead, stride = 16, 8 * span
    else:
        lead, stride = (128, 256) if not across else (128, 128 * (depth // 8))
    for row, k in product(range(rows), range(depth)):
        if not across and span == 16:
            at = row // 8 * stride + k // per * lead + row % 8 * 16 + k % per * size
        elif not across:
            chunk = exchanged(row % 8, k // per, span)
            at = row // 8 * stride + row % 8 * span + chunk * 16 + k % per * size
        elif span == 16:
            at = row // 8 * stride + k // 8 * lead + k % 8 * 16 + row % 8 * size
        else:
            chunk = exchanged(k % 8, row % wide // per, span)
            at = row // wide * lead + k // 8 * stride + k % 8 * span + chunk * 16 + row % per * size
        image[at // size] = matrix[row, k]
    return image, lead, stride


SUMMED = ["numpy", "model", pytest.param("gpu", marks=pytest.mark.gpu)]  # integers: one result


@pytest.mark.parametrize("kind", ["bf16", "f16", "tf32"])
@pytest.mark.parametrize("execute", SUMMED, indirect=True)
def test_a_product_of_one_warp(kind, execute):
    """Elements by the tables of the manual: row and column of each register of each lane."""
    depth, each = (8, 1) if kind == "tf32" else (16, 2)
    a, b = RNG.integers(-8, 9, (16, depth)), RNG.integers(-8, 9, (8, depth))
    c = RNG.integers(-99, 99, (16, 8))
    left, right, sums = (np.zeros((32, n), np.uint32) for n in (4, 2, 4))
    for lane in range(32):
        g, t = divmod(lane, 4)
        for r in range(4):
            k = each * t + depth // 2 * (r // 2)
            piece = a[g + 8 * (r % 2), k : k + each]
            left[lane, r] = bits_of(piece, kind).view(np.uint32)[0]
            if r < 2:
                k = each * t + depth // 2 * r
                right[lane, r] = bits_of(b[g, k : k + each], kind).view(np.uint32)[0]
            sums[lane, r] = np.float32(c[g + 8 * (r // 2), 2 * t + r % 2]).view(np.uint32)
    names = ["{%r10, %r11, %r12, %r13}", "{%r14, %r15}", "{%r16, %r17, %r18, %r19}"]
    loads = "".join(
        f"mad.wide.u32 %rd9, %r0, {4 * n}, %rd{i}; ld.global.v{n}.b32 {name}, [%rd9]; "
        for i, (n, name) in enumerate(zip((4, 2, 4), names))
    )
    body = f"""{loads} mad.wide.u32 %rd9, %r0, 16, %rd3;
    mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32
    {names[2]}, {names[0]}, {names[1]}, {names[2]}; st.global.v4.b32 [%rd9], {names[2]};"""
    found = np.zeros((32, 4), np.float32)
    buffers = [*map(Allocation, (left, right, sums)), Allocation(found, writable=True)]
    execute(module(body, 4), (1,), (32,), buffers)
    want = a @ b.T + c
    for lane in range(32):
        g, t = divmod(lane, 4)
        assert found[lane].tolist() == [want[g + 8 * (r // 2), 2 * t + r % 2] for r in range(4)]


CODES = {16: 0, 128: 1, 64: 2, 32: 3}
PRODUCT = """shl.b32 %r2, %r0, 2; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd4, %rd0, %rd3;
    add.s32 %r3, %r2, %r1; mov.b32 %r4, %r0;
    $COPY: setp.ge.u32 %p2, %r4, {words}; @%p2 bra $DONE; ld.global.b32 %r5, [%rd4];
    st.shared.b32 [%r3], %r5; add.s32 %r4, %r4, 128; add.s32 %r3, %r3, 512;
    add.s64 %rd4, %rd4, 512; bra $COPY; $DONE: fence.proxy.async; bar.sync 0;
    bfe.u32 %r6, %r1, 4, 14; cvt.u64.u32 %rd6, %r6; add.s64 %rd7, %rd6, {a};
    add.s32 %r8, %r1, {above}; bfe.u32 %r9, %r8, 4, 14; cvt.u64.u32 %rd8, %r9;
    add.s64 %rd8, %rd8, {b};
    mul.wide.u32 %rd10, %r0, 16; add.s64 %rd11, %rd1, %rd10;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd11]; mov.pred %p3, {scale}; {zero}
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind}
    {sums}, {left}, %rd8, %p3, 1, 1{turned};
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %rd12, %r0, {row}; add.s64 %rd13, %rd2, %rd12; {stores}"""

PRODUCTS = [
    *((kind, n, sa, sb, False, False, False)
      for kind, n, sa, sb in (("bf16", 8, 16, 128), ("f16", 64, 32, 64), ("tf32", 24, 64, 32),
                              ("tf32", 256, 128, 16), ("bf16", 128, 128, 128))),
    *((kind, n, sa, sb, True, True, False)
      for kind, n, sa, sb in (("bf16", 8, 16, 16), ("f16", 64, 128, 64), ("bf16", 128, 64, 128),
                              ("bf16", 64, 32, 32))),
    ("bf16", 64, 128, 128, False, True, False), ("bf16", 64, 128, 128, True, False, False),
    ("bf16", 32, 0, 64, False, False, True), ("tf32", 16, 0, 128, False, False, True),
    ("f16", 64, 0, 128, False, True, True),
]  # fmt: skip


def of_product(form, scale):
    """Return (module, buffers, a, b) of a product of small integers."""
    kind, n, span_a, span_b, across_a, across_b, held = form
    depth = 8 if kind == "tf32" else 16
    a, b = RNG.integers(-8, 9, (64, depth)), RNG.integers(-8, 9, (n, depth))
    image_a, lead_a, stride_a = laid(bits_of(a, kind), span_a or 16, across_a)
    image_b, lead_b, stride_b = laid(bits_of(b, kind), span_b, across_b)
    above = -(-image_a.nbytes // 1024) * 1024
    image = np.zeros((above + image_b.nbytes) // 4, np.uint32)
    image[: image_a.nbytes // 4], image[above // 4 :] = image_a.view("u4"), image_b.view("u4")
    pieces = np.zeros((128, 4), np.uint32)
    for thread, r in product(range(128), range(4)):
        g, t = thread // 32 * 16 + thread % 32 // 4, thread % 4
        k = depth // 8 * t + depth // 2 * (r // 2)
        piece = a[g + 8 * (r % 2), k : k + depth // 8]
        pieces[thread, r] = bits_of(piece, kind).view(np.uint32)[0]

    def described(lead, stride, span):
        code = CODES[span] << 62 | stride >> 4 << 32 | lead >> 4 << 16
        return code - (1 << 64 if code >> 63 else 0)

    names = [f"%r{100 + i}" for i in range(n // 2)]
    turned = () if depth == 8 else (across_b,) if held else (across_a, across_b)
    body = PRODUCT.format(
        words=len(image), above=above, n=n, k=depth, kind=kind, scale=scale, row=2 * n,
        a=described(lead_a, stride_a, span_a or 16), b=described(lead_b, stride_b, span_b),
        zero=" ".join(f"mov.b32 {name}, 0f3F800000;" for name in names),
        sums="{" + ", ".join(names) + "}", left="{%r10, %r11, %r12, %r13}" if held else "%rd7",
        turned="".join(f", {int(across)}" for across in turned),
        stores=" ".join(f"st.global.b32 [%rd13+{4 * i}], {x};" for i, x in enumerate(names)),
    )  # fmt: skip
    found = np.zeros((128, n // 2), np.float32)
    buffers = [Allocation(image), Allocation(pieces), Allocation(found, writable=True)]
    return module(body, 3, 4 * len(image)), buffers, a, b


@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("form", PRODUCTS, ids=lambda form: "-".join(map(str, form)))
@pytest.mark.parametrize("execute_later", ["early", "late", *SUMMED[1:]], indirect=True)
def test_a_product_of_four_warps(form, scale, execute_later):
    """Each warp has 16 rows; a lane two columns of eight, in rows 8 apart."""
    text, buffers, a, b = of_product(form, scale)
    execute_later(text, (1,), (128,), buffers)
    found, want = buffers[2].array, (a @ b.T + scale).astype(np.float32)
    for thread, i in product(range(128), range(len(b) // 2)):
        g, t = thread // 32 * 16 + thread % 32 // 4, thread % 4
        assert found[thread, i] == want[g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2]


def test_ptxas_assembles_every_body(assemble):
    assert "error" not in assemble()


# Faults seeded into the texts: (kind, text, replacement, message).
AWAITED, UNFENCED, DEADLOCK = (
    "not been waited for",
    "without a fence.proxy.async",
    "all threads wait",
)
FAULTS = {
    "a group too many is left": ("groups", "wait_group 1", "wait_group 2", AWAITED),
    "the last group is left": ("groups", "wait_group 0", "wait_group 1", AWAITED),
    "no commit": ("copy", "cp.async.commit_group;", "", AWAITED),
    "a barrier is missing": ("copy", "bar.sync 0;", "", "race"),
    "a copy during a read": (
        "groups",
        "ld.shared.b32 %r5, [%r4];",
        "ld.shared.b32 %r5, [%r4]; cp.async.cg.shared.global [%r2], [%rd4], 16;",
        "race",
    ),
    "a constant parity": ("ring", "[%r1+8], %r7;", "[%r1+8], 1;", f"race|{DEADLOCK}"),
    "no wait for a turn": ("ring", "@!done bra.uni again; }\n    ld.sh", "}\n ld.sh", "race"),
    "the other phase": ("ring", "$READ: {", "$READ: xor.b32 %r5, %r5, 1; {", f"race|{DEADLOCK}"),
    "an arrival is missing": ("ring", "[%r1], 32;", "[%r1], 33;", DEADLOCK),
    "an arrival too many": ("ring", "[%r1], 32;", "[%r1], 31;", "more arrivals"),
    "no mbarrier.init": ("ring", "@%p1 mbarrier.init.shared.b64", "// ", "no mbarrier"),
    "init is not synchronized": ("ring", "bar.sync 0;", "", "race|no mbarrier"),
    "another barrier": ("meet", "sync 2, 64", "sync 1, 64", "more threads|race"),
    "a warp is missing": ("meet", "bar.sync 1, 64", "bar.sync 1, 96", DEADLOCK),
    "bytes too few": ("load", "_, [%r1+512], 512", "_, [%r1+512], 256", DEADLOCK),
    "bytes too many": ("load", "_, [%r1+512], 512", "_, [%r1+512], 528", DEADLOCK),
    "no wait for a box": ("load", "@!done bra.uni again;", "", f"{AWAITED}|race"),
    "a store without a proxy fence": ("store", "fence.proxy.async.shared::cta;", "", UNFENCED),
    "a store before the barrier": ("store", "bar.sync 0;", "", f"race|{UNFENCED}"),
    "no wait for a store": ("store", "cp.async.bulk.wait_group 0;", "", "exits without"),
    "factors without a proxy fence": ("product", "fence.proxy.async;", "", UNFENCED),
    "accumulators without a fence": (
        "product",
        "wgmma.fence.sync.aligned;",
        "",
        "not ordered by a wgmma.fence",
    ),
    "no wait for a product": ("product", "wgmma.wait_group.sync.aligned 0;", "", AWAITED),
    "a wait too short": ("product", "aligned 0;", "aligned 1;", AWAITED),
    "no commit of a product": ("product", "wgmma.commit_group.sync.aligned;", "", AWAITED),
    "a part of a box is not written": (
        "store",
        "st.shared.b32 [%r4], %r5;",
        "setp.ne.u32 %p3, %r0, 7; @%p3 st.shared.b32 [%r4], %r5;",
        "bulk_group .*reads unwritten memory",
    ),
    "a part of a factor is not written": (
        "product",
        "st.shared.b32 [%r3], %r5;",
        "setp.ne.u32 %p3, %r0, 7; @%p3 st.shared.b32 [%r3], %r5;",
        "mma_async.*reads unwritten memory",
    ),
    "a write during a product": (
        "product",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.commit_group.sync.aligned; st.shared.b32 [%r1], %r0;",
        "race",
    ),
}


def example(kind):
    """Return (text, threads, arguments) of a test above, which passes."""
    if kind == "product":
        text, buffers, *_ = of_product(PRODUCTS[4], 1)
        return text, 128, buffers
    if kind in ("load", "store"):
        tensor, box, start, _ = box_of(2, 3)
        of = of_box(LOAD if kind == "load" else STORE, 2, box, start, read="")
        out = Allocation(np.zeros(256, np.uint16), writable=True)
        return of, 64, [out, mapped(tensor, box, 3, writable=True)]
    text = {
        "copy": of_copies("cg", 16, "group"),
        "groups": module(GROUPS, 2, 3072),
        "ring": module(RING, 2, 256),
        "meet": module(MEET, 2, 512, ".reqntid 128 .maxnreg 64"),
    }[kind]
    out = Allocation(np.zeros(768, np.uint32), writable=True)
    return text, 128 if kind == "meet" else 64, [Allocation(words(768)), out]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_found(name, late):
    kind, right, wrong, reason = FAULTS[name]
    text, threads, arguments = example(kind)
    assert right in text, "the fault names text that no longer exists"

    def run(text):
        for seed in range(4):
            launch(parse(text), (1,), (threads,), arguments, seed, late)

    run(text)
    with pytest.raises(Fault, match=reason):
        run(text.replace(right, wrong, 1))


# (sizes, lower, upper, every, first pixel, offsets): rows that begin within a line, strides that
# leave a rest, corners inside and outside of the tensor, offsets over its edges, images beyond it.
IM2COL = {
    "1d": ((3, 9, 16), (-1,), (0,), (1, 2, 1), (0, 1, 0), (1,)),
    "padding": ((2, 5, 6, 24), (-1, -1), (-1, -1), (1, 1, 1, 1), (0, 1, 2, 0), (2, 0)),
    "strides": ((2, 7, 8, 24), (-2, -1), (0, 1), (1, 3, 2, 1), (0, 1, 3, 8), (1, 2)),
    "inside": ((2, 6, 6, 16), (1, 2), (-2, -1), (1, 1, 2, 1), (0, 2, 2, 0), (0, 0)),
    "far": ((2, 4, 4, 16), (-9, -3), (-3, 5), (1, 8, 1, 1), (0, -9, -2, 0), (10, 3)),
    "beyond": ((2, 3, 3, 16), (0, 0), (0, 0), (1, 1, 1, 1), (1, 2, 1, 8), (0, 0)),
    "3d": ((2, 3, 4, 3, 24), (-1, -1, -1), (-1, 0, 0), (1, 2, 1, 2, 1), (0, 1, 0, -1, 16),
           (1, 0, 2)),
}  # fmt: skip
PIXELS = 24


def walked(shape, lower, upper, every, start, offsets):
    """Return the position of each pixel of a copy, inside the tensor or not."""
    axes, at, found = range(1, len(shape) - 1), [*start[:-1]], []
    for _ in range(PIXELS):
        found.append((at[0], *(at[axis] + offsets[axis - 1] for axis in axes)))
        for axis in reversed(axes):
            at[axis] += every[axis]
            if at[axis] < shape[axis] + upper[axis - 1]:
                break
            at[axis] = lower[axis - 1]
        else:
            at[0] += 1
    return found


def of_walk(walk, channels):
    """Return a module that loads one column of pixels."""
    *_, start, offsets = walk
    text = of_box(LOAD, len(start), (PIXELS, channels), start)
    text = text.replace("shared::cluster.global", "shared::cta.global.im2col")
    narrow = "mov.b32 %r9, f_1; cvt.u64.u32 %rd9, %r9;"  # as newer compilers have it
    text = text.replace("mov.b64 %rd9, f_1;", narrow)
    words = "".join(f"mov.b16 %rs{i}, {aside}; " for i, aside in enumerate(offsets[::-1]))
    names = ", ".join(f"%rs{i}" for i in range(len(offsets)))
    text = text.replace("cp.async.bulk", f"{words} cp.async.bulk")
    return re.sub(r"(\[%r1\+\d+\]);(\s+\$WAIT)", rf"\1, {{{names}}};\2", text)


def walks_over(walk, tensor, channels, swizzle):
    _, lower, upper, every, *_ = walk
    strides = tuple(step // 2 for step in tensor.strides)
    box = PIXELS, channels
    return Im2colMap(Allocation(tensor), tensor.shape, strides, box, swizzle, every, lower, upper)


@pytest.mark.parametrize("swizzle", [0, 3])
@pytest.mark.parametrize("name", IM2COL)
def test_rows_of_pixels_are_loaded(name, swizzle, execute_later):
    walk = IM2COL[name]
    shape, *_, start, _ = walk
    channels = SPANS[swizzle] // 2
    tensor = RNG.integers(0, 1 << 16, shape).astype(np.uint16)
    found = np.full(PIXELS * channels, 7, np.uint16)
    execute_later(
        of_walk(walk, channels),
        (1,),
        (64,),
        [Allocation(found, writable=True), walks_over(walk, tensor, channels, swizzle)],
    )
    want, box = np.zeros_like(found), (PIXELS, channels)
    places = [(row, c) for row in range(PIXELS) for c in range(channels)]
    pixels = walked(*walk)
    for to, (row, c) in zip(scattered(places, box, SPANS[swizzle]), places):
        at = (*pixels[row], start[-1] + c)
        if all(0 <= p < n for p, n in zip(at, shape)):
            want[to] = tensor[at]
    assert (found == want).all()
    assert 0 < np.count_nonzero(want) < want.size


REFUSED = [
    ({"start": (0, 1, 9, 0)}, "start at a pixel of the bounding box"),
    ({"start": (0, -2, 0, 0)}, "start at a pixel of the bounding box"),
    ({"every": (1, 2, 2, 1), "start": (0, 0, 1, 0)}, "start at a pixel of the bounding box"),
    ({"offsets": (256, 0)}, "needs 2 offsets of 8 bits"),
    ({"offsets": (1,)}, "needs 2 offsets of 8 bits"),
    ({"lower": (-129, -1)}, "needs more than 8 bits"),
    ({"upper": (128, -1)}, "needs more than 8 bits"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_an_invalid_im2col_copy_is_refused(change, reason):
    names = "shape", "lower", "upper", "every", "start", "offsets"
    walk = tuple((dict(zip(names, IM2COL["padding"])) | change).values())
    tensor, found = np.zeros(walk[0], np.uint16), np.zeros(PIXELS * 8, np.uint16)
    arguments = [Allocation(found, writable=True), walks_over(walk, tensor, 8, 0)]
    with pytest.raises(Fault, match=reason):
        launch(parse(of_walk(walk, 8)), (1,), (64,), arguments)


def test_each_kind_of_map_has_loads_of_its_own():
    walk = IM2COL["padding"]
    tensor, found = np.zeros(walk[0], np.uint16), np.zeros(PIXELS * 8, np.uint16)
    pixels, out = walks_over(walk, tensor, 8, 0), Allocation(found, writable=True)
    box = TensorMap(pixels.allocation, pixels.shape, pixels.strides, (1, 4, 6, 8))
    text = of_walk(walk, 8)
    for mode, wrong in ((text, box), (re.sub(r"\.im2col|, \{%rs[^}]*\}", "", text), pixels)):
        with pytest.raises(Fault, match="no tensor map of 4 axes there"):
            launch(parse(mode), (1,), (64,), [out, wrong])
