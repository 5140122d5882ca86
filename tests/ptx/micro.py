"""Kernels of one instruction: operands in registers, a result stored by each thread."""

import re
from itertools import pairwise

import numpy as np

from convref_ptx import Allocation, launch, parse

RNG = np.random.default_rng(0)
LETTER = {16: "rs", 32: "r", 64: "rd"}
SIZE = {1: 4, 16: 2, 32: 4, 64: 8}  # bytes of a result; a predicate is stored as a word
COUNT = 96


def kernel(body, inputs, out, shared=""):
    """Return a kernel that loads input i into %x{i}, runs `body` and stores %y."""
    names = {f"x{i}": f"%{LETTER[n]}{i}" for i, n in enumerate(inputs)}
    names["y"] = "%p9" if out == 1 else f"%{LETTER[out]}9"
    body = re.sub(r"\b(x\d|y)\b", lambda word: names.get(word[0], word[0]), body)
    loads = "".join(
        f"ld.param.b64 %a1, [f_{i}]; mad.lo.s64 %a2, %i1, {n // 8}, %a1;"
        f"ld.global.b{n} %{LETTER[n]}{i}, [%a2];"
        for i, n in enumerate(inputs)
    )
    store = f"st.global.b{out} [%a4], %{LETTER.get(out)}9;"
    if out == 1:
        store = "selp.b32 %r9, 1, 0, %p9; st.global.b32 [%a4], %r9;"
    size = SIZE[out]
    parameters = ", ".join(f".param .u64 .ptr .align 1 f_{i}" for i in range(len(inputs) + 1))
    return f""".visible .entry f({parameters}) {{
        .reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .b64 %a<9>;
        .reg .b64 %i<2>; {shared}
        mov.u32 %r30, %tid.x; cvt.u64.u32 %i1, %r30;
        {loads}
        {body}
        ld.param.b64 %a3, [f_{len(inputs)}]; mad.lo.s64 %a4, %i1, {size}, %a3;
        {store} ret; }}"""


def interpreted(text, grid, threads, arguments):
    launch(parse(text), grid, threads, arguments)


def run(body, inputs, out, execute=interpreted, **more):
    """Return the patterns that `body` makes of arrays of patterns."""
    widths = [a.dtype.itemsize * 8 for a in inputs]
    result = np.zeros(COUNT, f"u{SIZE[out]}")
    buffers = [*map(Allocation, inputs), Allocation(result, writable=True)]
    execute(kernel(body, widths, out, **more), (1,), (COUNT,), buffers)
    return result


def patterns(bits):
    """Return edges and random patterns."""
    edge = [0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 31, 33]
    drawn = [int(n) for n in RNG.integers(0, 1 << 32, 2 * COUNT, np.uint64)]
    found = edge + [(a << 32 | b) & ((1 << bits) - 1) for a, b in pairwise(drawn)]
    found = np.array(found[:COUNT], f"u{bits // 8}")
    return RNG.permutation(found)


def floats(bits):
    """Return patterns of numbers, zeros, subnormals, infinities and NaN."""
    kind = f"f{bits // 8}"
    tiny, huge = np.finfo(kind).smallest_subnormal, np.finfo(kind).max
    edge = [0.0, -0.0, 1.0, -1.5, tiny, -3 * tiny, huge, -huge, np.inf, -np.inf, np.nan]
    drawn = RNG.standard_normal(COUNT) * 2.0 ** RNG.integers(-12, 12, COUNT)
    return RNG.permutation(np.array([*edge, *drawn][:COUNT], kind)).view(f"u{bits // 8}")
