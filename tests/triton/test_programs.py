"""Programs that run together compute what they compute one by one, and no error is lost."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from forced import facts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.ops import OPS

pytest.importorskip("triton", reason="triton is not installed")

import toy_kernels as toys
import triton
import triton.language as tl

from convref_triton.backend import backend
from convref_triton.interpreter import StrictError, execute, interpreter, programs
from convref_triton.interpreter.memory import CheckedMemory
from convref_triton.interpreter.operators import OPERATORS, REFLECTED
from convref_triton.interpreter.triton_internals import (
    TensorHandle,
    language_patches,
    numpy_dtype,
)
from convref_triton.plan.choose import plan
from convref_triton.run import interpreted

DTYPES = ("f32", "bf16", "f16")
SMALL = {"max_elements": 400, "max_macs": 4_000}


def bits(buffers):
    """Return the bit patterns of buffers by name."""
    return {n: t.flatten().clone().view(torch.uint8).tolist() for n, t in buffers.items()}


@pytest.fixture
def undone(monkeypatch):
    """Count what was undone and what was split, as often without an error; and programs at once."""
    counts = {"undone": 0, "split": 0, "together": 0}

    def counting(owner, name, key):
        theirs = getattr(owner, name)

        def method(*arguments):
            counts[key] += 1
            return theirs(*arguments)

        monkeypatch.setattr(owner, name, method)

    start = CheckedMemory.start

    def started(memory, numbers, where):
        counts["together"] = max(counts["together"], len(numbers))
        start(memory, numbers, where)

    monkeypatch.setattr(CheckedMemory, "start", started)
    counting(CheckedMemory, "undo", "undone")
    counting(programs.Split, "parts", "split")
    counting(programs.TooMany, "parts", "split")
    return counts


def both(case):
    """Return the buffers of a case's plan, of programs that run together and one by one."""
    tensors, known = facts(case.call, operands(case))
    made = plan(case.call, known)
    alone = functools.partial(execute, at_most=1)
    return interpreted.run(made, tensors), interpreted.run(made, tensors, executor=alone)


@given(cases(dtypes=DTYPES, maths=("ieee", "tf32", "tf32x3"), **SMALL))
def test_convolutions_have_the_same_bits_one_by_one(undone, case):
    assume(backend.supports(case.call) is None)
    together, alone = both(case)
    assert bits(together) == bits(alone)
    assert undone["undone"] == undone["split"]


@given(cases(ops=tuple(OPS), dtypes=DTYPES, **SMALL))
def test_all_ops_have_the_same_bits_one_by_one(undone, case):
    assume(backend.supports(case.call) is None)
    together, alone = both(case)
    assert bits(together) == bits(alone)
    assert undone["undone"] == undone["split"]


# Control flow


@triton.jit
def branching(y, z, N, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(z + p, tl.load(z + p) + p)  # before programs split: undone, and stored again
    total = tl.zeros((BLOCK,), tl.int32)
    for step in range(p // 2, p):
        total += step * i
    if p % 3 == 0:
        total += 100
    elif p > 6 and p != 8:
        total -= tl.sum(total, 0)
    while tl.max(total, 0) < N:
        total += p + 1
    tl.store(y + p * BLOCK + i, total)


@triton.jit
def one_by_one(x, y, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    a = tl.load(x + p * BLOCK + tl.arange(0, BLOCK))
    scan = tl.cumsum(a, 0) + tl.gather(a, (a + p) % BLOCK, 0) + tl.histogram(a % 4, BLOCK)
    order = tl.flip(a, 0) + tl.cumsum(a, 0, reverse=True)
    halves = tl.cat(a, scan, can_reorder=True).reshape(2, BLOCK)
    tl.store(y + p * BLOCK + tl.arange(0, BLOCK), scan + order + tl.sum(halves, 0))


@triton.jit
def shapes(x, y, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    a = tl.load(x + p * BLOCK + i)
    same, _ = tl.split(tl.join(a, i).reshape(BLOCK, 2))
    square = same[:, None] * tl.trans(i[:, None] + p * tl.full((BLOCK, BLOCK), 1, tl.int32))
    cube = tl.permute(square[:, :, None] + tl.join(square, square), (2, 1, 0)).reshape(
        2 * BLOCK, BLOCK
    )
    first = tl.max(square.T, 1, return_indices=True)[1]
    tl.store(y + p * BLOCK + i, tl.sum(cube, 0) - first + tl.sum(square) * tl.min(a, 0))


@triton.jit
def boxes(x, y, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    of_all = tl.make_tensor_descriptor(x, [11, BLOCK], [BLOCK, 1], [1, BLOCK])
    its_own = tl.make_tensor_descriptor(x, [p + 1, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    a = of_all.load([p, 0]).reshape(BLOCK) + tl.sum(its_own.load([0, 0]), 0)
    tl.store(y + p * BLOCK + tl.arange(0, BLOCK), a)


def results(kernel, arguments, grid=(11,), **options):
    """Return what a kernel stores in its tensors, by name."""
    mine = {n: a.clone() if hasattr(a, "clone") else a for n, a in arguments.items()}
    toys.run(kernel, grid, mine, outputs=[n for n in "yz" if n in mine], **options)
    return {n: a.tolist() for n, a in mine.items() if hasattr(a, "tolist")}


KERNELS = {branching: ("y", "z"), one_by_one: ("x", "y"), shapes: ("x", "y"), boxes: ("x", "y")}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("elements", [2**18, 64])
def test_programs_that_differ_compute_what_they_do_one_by_one(
    kernel, elements, undone, monkeypatch
):
    monkeypatch.setattr(programs, "MOST_ELEMENTS", elements)
    generator = torch.Generator().manual_seed(3)
    values = torch.randint(0, 50, (11 * 8,), generator=generator, dtype=torch.int32)
    tensors = {"x": values, "y": torch.full((88,), -1, dtype=torch.int32)}
    tensors["z"] = torch.zeros(11, dtype=torch.int32)
    given = {name: tensors[name] for name in KERNELS[kernel]}
    given |= {"N": 40} if kernel is branching else {}
    together = results(kernel, given, constants={"BLOCK": 8})
    assert undone["undone"] == undone["split"]
    assert undone["together"] > 1
    assert together == results(kernel, given, constants={"BLOCK": 8}, at_most=1)
    assert -1 not in together["y"]


# Rules


@triton.jit
def shared_read(x, y, N, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    a = tl.load(y + p // 2)
    tl.store(y + p // 2, a, mask=p % 2 == BLOCK % 2)


@triton.jit
def all_read_one_writes(x, y, N, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    tl.store(y, tl.load(y), mask=p == BLOCK)


@triton.jit
def all_write_one_element(x, y, N, BLOCK: tl.constexpr):
    tl.store(y, 1.0)


@triton.jit
def one_writes_all_read(x, y, N, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    tl.store(y + p, 1.0, mask=p == 0)
    tl.store(y + 1 + p, tl.load(y))


@triton.jit
def one_assumes_wrongly(x, y, N, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    tl.assume(p != 3)
    tl.store(y + p, 1.0)


@triton.jit
def one_is_no_multiple(x, y, N, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    tl.store(y + p, tl.multiple_of(p * 4 + (p == 3), 4).to(tl.float32))


WRONG = [(shared_read, "cross-program-read", block) for block in (8, 1)]
WRONG += [(all_read_one_writes, "cross-program-read", block) for block in range(5)]
WRONG += [
    (kernel, kind, 8)
    for kernel, kind in (
        (all_write_one_element, "written-twice"),
        (one_writes_all_read, "cross-program-read"),
        (one_assumes_wrongly, "assumption"),
        (one_is_no_multiple, "not-a-multiple"),
        (toys.neighbour, "cross-program-read"),
        (toys.twice_across_programs, "written-twice"),
        (toys.twice_in_a_program, "written-twice"),
        (toys.unmasked, "out-of-bounds"),
        (toys.off_by_one, "out-of-bounds"),
        (toys.half, "never-written"),
        (toys.onto_operand, "not-an-output"),
        (toys.atomic, "atomic"),
    )
]


def refusal(kernel, block, **options):
    x, y = torch.arange(10.0), torch.full((10,), math.nan)
    arguments = {"x": x, "y": y, "N": 10}
    with pytest.raises(StrictError) as caught:
        toys.run(kernel, (5,), arguments, constants={"BLOCK": block}, outputs=["y"], **options)
    return caught.value.kind, str(caught.value)


@pytest.mark.parametrize(("kernel", "kind", "block"), WRONG)
@pytest.mark.parametrize("seed", range(3))
def test_errors_are_those_of_one_program(kernel, kind, block, seed):
    found = refusal(kernel, block, seed=seed)
    assert found == refusal(kernel, block, seed=seed, at_most=1)
    assert found[0] == kind


# Operators

SCALARS = (tl.int1, tl.int8, tl.int32, tl.int64, tl.uint8, tl.uint32, tl.float16, tl.bfloat16,
           tl.float32, tl.float64, tl.pointer_type(tl.float32))  # fmt: skip
SHAPES = st.sampled_from([(), (1,), (4,), (8,), (1, 4), (8, 1), (8, 4)])
TENSORS = st.tuples(st.sampled_from(SCALARS), SHAPES, st.sampled_from([1, 3]), st.integers(0, 99))
NUMBERS = st.sampled_from(
    [0, 1, -1, 5, 127, 128, -129, 2**24 + 1, 2**31 - 1, 2**31, 2**63, -(2**70), True, 0.5, 1e300]
)
NAMES = [f"__{name}__" for name in OPERATORS] + [f"__r{name}__" for name in REFLECTED]


def tensor(dtype, shape, together, seed):
    """Return a drawn tensor of one or of three programs, as the interpreter has it."""
    data = np.random.default_rng(seed).integers(-9, 9, (together, *shape))
    kind = tl.block_type(dtype, list(shape)) if shape else dtype
    return tl.tensor(TensorHandle(data.astype(numpy_dtype(dtype)), dtype), kind)


def outcome(work):
    """Return the types and data of a result, or the error, for comparison."""
    try:
        found = work()
    except Exception as error:  # whatever Triton raises
        return type(error), str(error)
    data = found.handle.data
    return str(found.type), str(found.handle.dtype), str(data.dtype), data.shape, data.tobytes()


@functools.cache
def operators_of_triton():
    builder, functions = interpreter()
    return language_patches(builder, functions.semantic)


@settings(max_examples=20 * settings.default.max_examples)
@given(
    st.sampled_from([*NAMES, "to", "__getitem__"]),
    st.tuples(TENSORS, TENSORS | NUMBERS),
    st.sampled_from(SCALARS[:-1]),
    st.sampled_from([(slice(None), None), (None, slice(None)), (None, slice(None), slice(None))]),
)
def test_operators_have_the_outcomes_of_triton(name, operands, dtype, slices):
    builder, functions = interpreter()
    builder.start(np.arange(3), (3, 1, 1))
    theirs = operators_of_triton()[tl.tensor, name]
    with functions.language(), np.errstate(all="ignore"):
        left, right = (tensor(*each) if isinstance(each, tuple) else each for each in operands)
        other = {"to": dtype, "__getitem__": slices}.get(name, right)
        ours = outcome(lambda: getattr(tl.tensor, name)(left, other))
        assert ours == outcome(lambda: theirs(left, other))
