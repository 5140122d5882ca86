"""Small kernels, right and wrong, that the interpreter is tested with."""

import triton
import triton.language as tl

from convref_triton.interpreter import execute
from convref_triton.plan.launch import Descriptor, Launch, Slot

CODES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"} | {
    f"{name}{bits}": f"{name[0]}{bits}" for name in ("int", "uint") for bits in (8, 16, 32, 64)
}


def run(kernel, grid, arguments, *, boxes=(), shapes=(), constants=None, aligned=True, **options):
    """Interpret `kernel`: its tensors become Slots, those in `boxes` Descriptors."""
    tensors = {n: a for n, a in arguments.items() if hasattr(a, "data_ptr")}
    slots = {n: Slot(n, CODES[str(t.dtype)[6:]], aligned) for n, t in tensors.items()}
    for name, block in dict(boxes).items():
        t = tensors[name]
        shape = dict(shapes).get(name, tuple(t.shape))
        slots[name] = Descriptor(slots[name], shape, t.stride(), block)
    grid = (*grid, 1, 1)[:3]
    execute(Launch(kernel, grid, {**arguments, **slots}, constants or {}), tensors, **options)


@triton.jit
def copy(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < N, other=0), mask=i < N)


@triton.jit
def apply(x, z, y, N, F: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < N, other=0)
    b = tl.load(z + i, mask=i < N, other=0)
    tl.store(y + i, F(a, b), mask=i < N)


@triton.jit
def explicit_cast(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < N, other=0).to(y.dtype.element_ty), mask=i < N)


@triton.jit
def accumulate(a, b, acc, PRECISION: tl.constexpr):
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def matmul(
    x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        a = tl.load(x + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(w + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
        acc = accumulate(a, b, acc, PRECISION)
    tl.store(y + m * N + n, acc, mask=(m < M) & (n < N))


@triton.jit
def partial_sums(x, ws, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(ws + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < N, other=0.0), 0))


@triton.jit
def total(ws, y, SPLITS, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y, tl.sum(tl.load(ws + i, mask=i < SPLITS, other=0.0), 0))


@triton.jit
def unmasked(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i), mask=i < N)


@triton.jit
def off_by_one(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i + 1, tl.load(x + i, mask=i < N, other=0), mask=i < N)


@triton.jit
def before_the_start(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i - 1, mask=i < N, other=0), mask=i < N)


@triton.jit
def wrapping(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    far = i * 1_073_741_824  # from i = 2 on this wraps, to -2**31 and to multiples of 2**30
    tl.store(y + i, tl.load(x + far, mask=i < N, other=0), mask=i < N)


@triton.jit
def wrapped(y):
    p = tl.program_id(0)
    tl.store(y + p, p * 1_073_741_824)


@triton.jit
def wrapped_address(x, y, N, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x + tl.program_id(0) * 1_073_741_824))


@triton.jit
def bytewise(x, y):
    odd = (x.to(tl.int64) + 2).to(tl.pointer_type(tl.float32))
    tl.store(y, tl.load(odd))


@triton.jit
def scalar_other(x, y):
    p = tl.program_id(0)
    tl.store(y + p, tl.load(x + p, mask=p < 0, other=0.0))


@triton.jit
def copy_onto_one(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i * 0, tl.load(x + i, mask=i < N, other=0), mask=i < N)


@triton.jit
def all_read_last_writes(y):
    a = tl.load(y)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(y, a)


@triton.jit
def read_back(y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, i, mask=i < N)
    tl.debug_barrier()
    tl.device_assert(tl.load(y + i, mask=i < N, other=0) == tl.where(i < N, i, 0))


@triton.jit
def failing(x, y, N, BLOCK: tl.constexpr):
    tl.device_assert(tl.program_id(0) != 1)


@triton.jit
def twice_in_a_program(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i // 2, tl.load(x + i, mask=i < N, other=0), mask=i < N)


@triton.jit
def twice_across_programs(x, y, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < N, other=0), mask=i < N)


@triton.jit
def half(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < N // 2, other=0), mask=i < N // 2)


@triton.jit
def onto_operand(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < N, other=0)
    tl.store(x + i, a, mask=i < N)
    tl.store(y + i, a, mask=i < N)


@triton.jit
def in_place(y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(y + i, mask=i < N, other=0) * 2, mask=i < N)


@triton.jit
def neighbour(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < N, other=0), mask=i < N)
    tl.load(y + i - BLOCK, mask=(i >= BLOCK) & (i < N), other=0)


@triton.jit
def no_other(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < N)
    tl.store(y + tl.program_id(0), tl.sum(a, 0).to(y.dtype.element_ty))


@triton.jit
def indirect(x, z, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(z + i, mask=i < N)
    tl.store(y + i, tl.load(x + where), mask=i < N)


@triton.jit
def hinted(y, FIRST, N, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    i = FIRST + tl.arange(0, BLOCK)
    i = tl.max_contiguous(tl.multiple_of(i % N, A), B)
    group = tl.max_constancy(tl.arange(0, BLOCK) // 4, C)
    tl.store(y + tl.arange(0, BLOCK), i + group)


@triton.jit
def hinted_scalar(y, N, A: tl.constexpr):
    tl.store(y, tl.multiple_of(N, A))


@triton.jit
def hinted_pointer(x, y, A: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = tl.max_contiguous(tl.multiple_of(x + i, A), BLOCK)
    tl.store(y + i, tl.load(p))


@triton.jit
def assuming(y, N):
    tl.assume(N > 4)
    tl.store(y, N)


@triton.jit
def atomic(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y + i, tl.load(x + i, mask=i < N, other=0), mask=i < N)


@triton.jit
def box(x, y, row, column, BM: tl.constexpr, BN: tl.constexpr):
    block = x.load([row, column])
    m, n = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    tl.store(y + m * BN + n, block)


@triton.jit
def box_store(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    y.store([m, n], x.load([m, n]))


@triton.jit
def chained(y):
    p = tl.program_id(0)
    before = tl.load(y + p - 1, mask=p > 0, other=0)
    tl.store(y + p, before + 1)


@triton.jit
def scalar_in_mask(y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for row in range(3):
        tl.store(y + (row - 1) * BLOCK + i, i, mask=(i >= 0) & (row >= 1) & (row < 2))
