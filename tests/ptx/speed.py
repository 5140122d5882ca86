"""Measure the interpreter of PTX: `speed.py seconds`, or `speed.py profile matmul`.

`seconds` runs the kernels, with TRITON_INTERPRET=1 in Triton's own interpreter. Times are the
processor's, in one thread.
"""

import sys
import time
from collections import Counter
from contextlib import nullcontext
from unittest import mock

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def layer_norm(x, w, b, out, N, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * N + i, i < N, other=0.0)
    mean = tl.sum(value, 0) / N
    far = tl.where(i < N, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(far * far, 0) / N + 1e-5)
    tl.store(out + row * N + i, far * scale * tl.load(w + i, i < N) + tl.load(b + i, i < N), i < N)


@triton.jit
def matmul(
    a, b, c, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + first + k[None])
        right = tl.load(b + (first + k)[:, None] * N + n[None])
        sums = tl.dot(left, right, sums)
    tl.store(c + m[:, None] * N + n[None], sums.to(tl.float16))


@triton.jit
def product_of_a_tile(a, b, c, N: tl.constexpr):
    """a @ b.T of contiguous matrices, in the type of c."""
    i = tl.arange(0, N)
    places = i[:, None] * N + i[None]
    kind: tl.constexpr = c.dtype.element_ty
    found = tl.dot(tl.load(a + places), tl.load(b + places).T, out_dtype=kind)
    tl.store(c + places, found)


@triton.jit
def attention(
    q, k, v, out, scale,
    N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    head, i, d = tl.program_id(1) * N * D, tl.arange(0, BM), tl.arange(0, D)
    rows = head + (tl.program_id(0) * BM + i)[:, None] * D + d[None]
    query = tl.load(q + rows)
    top, total = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for first in range(0, N, BN):
        columns = head + (first + tl.arange(0, BN))[:, None] * D + d[None]
        scores = tl.dot(query, tl.load(k + columns).T) * scale
        higher = tl.maximum(top, tl.max(scores, 1))
        weights, decay = tl.exp2(scores - higher[:, None]), tl.exp2(top - higher)
        sums = sums * decay[:, None]
        sums = tl.dot(weights.to(tl.float16), tl.load(v + columns), sums)
        total, top = total * decay + tl.sum(weights, 1), higher
    tl.store(out + rows, (sums / total[:, None]).to(tl.float16))


def _add():
    x = torch.randn(1 << 20)
    add[(1024,)](x, x, torch.empty_like(x), len(x), 1024)


def _layer_norm():
    x, w = torch.randn(4096, 1024), torch.randn(1024)
    layer_norm[(4096,)](x, w, w, torch.empty_like(x), 1024, 1024)


def _matmul():
    a = torch.randn(1024, 1024).half()
    sizes = 1024, 1024, 1024, 128, 128, 64
    matmul[(8, 8)](a, a, torch.empty_like(a), *sizes, num_warps=8, num_stages=3)


def _attention():
    q = torch.randn(8, 256, 64).half()
    attention[(4, 8)](q, q, q, torch.empty_like(q), 0.18, 256, 64, 64, 64)


RUNS = {"add": _add, "layer norm": _layer_norm, "matmul": _matmul, "attention": _attention}


def _least(function, rounds=3):
    times = []
    for _ in range(rounds):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def seconds():
    """Print the seconds of each kernel: the least of three runs, the first of which compiles."""
    from convref_ptx import device

    for name, run in RUNS.items():
        with nullcontext() if triton.knobs.runtime.interpret else device("sm_90", cuda=False):
            print(f"{name:12} {_least(run):8.2f} s", flush=True)


def profile(name="matmul", arch="sm_90"):
    """Print where the time of a kernel goes: by part of the interpreter, then by opcode.

    The rest is the choice of threads, barriers, and the operands of the launch.
    """
    from convref_ptx import device
    from convref_ptx.state.machine import Machine

    spent, calls, made = Counter(), Counter(), Machine.__init__

    def init(machine, *args):
        made(machine, *args)
        machine.code = [
            (s._replace(function=timed(s.function, ".".join(i.op.split(".")[:2]))), i)
            for s, i in machine.code
        ]

    def timed(function, op):
        key = function.__module__.split(".")[1], op

        def run(*args):
            start = time.process_time()
            function(*args)
            spent[key] += time.process_time() - start
            calls[key] += 1

        return run

    with device(arch, cuda=False):
        RUNS[name]()  # compiles
        with mock.patch.object(Machine, "__init__", init):
            start = time.process_time()
            RUNS[name]()
            total = time.process_time() - start
    spent["rest", ""] = total - sum(spent.values())
    rooms = Counter()
    for (room, _), seconds in spent.items():
        rooms[room] += seconds
    for room, seconds in rooms.most_common():
        print(f"{seconds / total:6.1%} {room}")
    for (room, op), seconds in spent.most_common():
        print(f"{seconds / total:6.1%} {seconds:7.3f} s {calls[room, op]:7} {room:12} {op}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"seconds": seconds, "profile": profile}[sys.argv[1]](*sys.argv[2:])
