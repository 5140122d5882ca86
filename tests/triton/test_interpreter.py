"""The interpreter computes what a GPU would, and leaves the kernels fit for the compiler."""

from __future__ import annotations

import itertools
import json
import math
import operator
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convref.judge import TF32_UNIT, UNITS

pytest.importorskip("triton", reason="triton is not installed")

import toy_kernels as toys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from convref_triton.interpreter import interpreter
from convref_triton.interpreter.fixes import cut_to_tf32, from_bf16, to_bf16
from convref_triton.interpreter.triton_internals import TensorHandle, fast_paths, numpy_dtype

THEIRS = {name: getattr(owner, name) for owner, name in fast_paths()}
I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
FLOATS = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
NAN, INF = math.nan, math.inf
REPOSITORY = Path(__file__).parents[2]


def nans(*shape, dtype=torch.float32):
    return torch.full(shape, NAN).to(dtype)


def applied(function, x, z=None, dtype=None, block=128):
    """Return function(x, z), elementwise, from the interpreter."""
    y = torch.empty_like(x, dtype=dtype or x.dtype)
    operands = {"x": x, "z": x if z is None else z, "y": y, "N": x.numel()}
    constants = {"F": function, "BLOCK": block}
    toys.run(toys.apply, (-(-x.numel() // block),), operands, constants=constants, outputs=["y"])
    return y


def product(x, w, precision="ieee", tile=(32, 32, 32), **options):
    """Return x w from the interpreter, in f32."""
    (m, k), n = x.shape, w.shape[1]
    y = nans(m, n)
    arguments = {"x": x, "w": w, "y": y, "M": m, "N": n, "K": k}
    constants = dict(zip(("BM", "BN", "BK"), tile)) | {"PRECISION": precision}
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    toys.run(toys.matmul, grid, arguments, constants=constants, outputs=["y"], **options)
    return y


def random_operands(dtype, seed, m=40, n=50, k=70):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(s, generator=generator).to(dtype) for s in ((m, k), (k, n)))


# The kernels stay unchanged


def ttir(kernel, signature, constants):
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.always_compile = True
        source = ASTSource(kernel, signature, constants)
        options = {"enable_fp_fusion": True}  # what it is by default, until Triton 3.10
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ttir"]


def test_kernels_still_compile():
    signature = dict.fromkeys("xwy", "*bf16") | dict.fromkeys("MNK", "i32")
    tile = {"BM": 64, "BN": 64, "BK": 32, "PRECISION": "ieee"}
    signature |= dict.fromkeys(tile, "constexpr")
    before, names = ttir(toys.matmul, signature, tile), dict(vars(toys))
    product(*random_operands(torch.bfloat16, 0))
    with pytest.raises(AssertionError, match="out-of-bounds"):
        toys.run(toys.copy, (2,), {"x": nans(9), "y": nans(9), "N": 10}, constants={"BLOCK": 8})
    assert vars(toys) == names
    assert isinstance(toys.accumulate, JITFunction)
    assert ttir(toys.matmul, signature, tile) == before


def fresh(program, **environment):
    """Return what `program` prints in an interpreter of its own."""
    paths = [str(REPOSITORY / p) for p in (".", "kernels", "tests/triton")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_triton_language_is_restored():
    program = """
import torch, triton.language as tl, triton.language.semantic
owners = (tl, tl.core, tl.math, tl.standard, tl.random, tl.tensor, tl.dtype, tl.tensor_descriptor)
owners += (tl.core.tensor_descriptor_base, tl.block_type)
def state():
    every = {(o.__name__, n): id(v) for o in owners for n, v in vars(o).items()}
    return {key: v for key, v in every.items() if "annotations" not in key[1]}  # lazy
before = state()
import toy_kernels as toys
x, ws = torch.ones(9), torch.zeros(2)
toys.run(toys.partial_sums, (2,), {"x": x, "ws": ws, "N": 9}, constants={"BLOCK": 8})
print(ws.tolist(), before.keys() ^ state().keys(), before == state())
"""
    assert fresh(program) == "[8.0, 1.0] set() True\n"


_FAULTS = """
import json, sys, warnings
import numpy as np, torch, toy_kernels as toys, triton, triton.language as tl
warnings.simplefilter("ignore")

def loop(dtype):
    x, w, y = torch.ones(16, 16, dtype=dtype), torch.ones(16, 16, dtype=dtype), torch.zeros(16, 16)
    toys.matmul[1, 1, 1](x, w, y, 16, 16, 16, 16, 16, 16, "ieee")
    return float(y[0, 0])

def rounded(kernel):
    x = torch.tensor([1 + 3 * 2**-8, 3.4e38])
    y = torch.zeros(2, dtype=torch.bfloat16)
    kernel[1,](x, y, 2, 2)
    return y.tolist()

found = {}
try:
    found["loop"] = loop(torch.float32)
except Exception as error:
    found["loop"] = str(error)
index = lambda self: int(self.handle.data.item())
patch = triton.runtime.interpreter._patch_lang_tensor
def patched(tensor, scope):
    patch(tensor, scope)
    tensor.__index__ = index
triton.runtime.interpreter._patch_lang_tensor = patched
found["dot"] = loop(torch.bfloat16)
found["store"], found["to"] = rounded(toys.copy), rounded(toys.explicit_cast)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def unfixed():
    """The results of Triton's own interpreter on a loop, a bf16 product and a rounding."""
    return json.loads(fresh(_FAULTS, TRITON_INTERPRET="1").splitlines()[-1])


faults_of_3_6 = pytest.mark.skipif(
    not triton.__version__.startswith("3.6."), reason="the faults were seen with Triton 3.6"
)


@faults_of_3_6
@pytest.mark.skipif(
    tuple(map(int, np.__version__.split(".")[:2])) < (2, 4), reason="needs NumPy 2.4 to be wrong"
)
def test_fault_runtime_loop(unfixed):
    assert "0-dimensional" in unfixed["loop"]  # fixed: each product below


@faults_of_3_6
def test_fault_bf16_dot(unfixed):
    assert unfixed["dot"] != 16.0
    ones = torch.ones(16, 16, dtype=torch.bfloat16)
    assert (product(ones, ones) == 16.0).all()


@faults_of_3_6
@pytest.mark.parametrize("way", ["store", "to"])
def test_fault_bf16_rounding(unfixed, way):
    assert unfixed[way] == [
        1 + 2**-7,
        3.3895313892515355e38,
    ]  # truncated
    x, y = tensor_of([1 + 3 * 2**-8, 3.4e38]), nans(2, dtype=torch.bfloat16)
    kernel = {"store": toys.copy, "to": toys.explicit_cast}[way]
    toys.run(kernel, (1,), {"x": x, "y": y, "N": 2}, constants={"BLOCK": 2})
    assert y.tolist() == [1 + 2**-6, INF]


@faults_of_3_6
@pytest.mark.parametrize(
    ("kind", "pattern", "wrong"), [(tl.float8e4nv, 0x7F, 480.0), (tl.float8e5, 0x01, 0.0)]
)
def test_fault_fp8_products(kind, pattern, wrong):
    """NaN is a number, and subnormal numbers lose a bit; test_scaled.py has each value."""
    bits = np.array([pattern], np.uint8)
    found = triton.runtime.interpreter._convert_float(bits, kind, tl.float16, None)
    assert found.view(np.float16).tolist() == [wrong]


def test_runs_where_triton_interprets():
    program = """
import torch, toy_kernels as toys
x, y = torch.arange(10.), torch.full((10,), torch.nan)
toys.run(toys.partial_sums, (2,), {"x": x, "ws": y[:2], "N": 10}, constants={"BLOCK": 8})
print(y[:2].tolist(), type(toys.copy).__name__)
"""
    assert fresh(program, TRITON_INTERPRET="1") == "[28.0, 17.0] InterpretedFunction\n"


# Rounding


def tensor_of(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


def boundaries(dtype):
    """Return as f32 every value of a 16-bit type and every midpoint, and the f32 beside each."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    bits = every.to(torch.float32).numpy().view(np.uint32)
    exponent = bits >> 23 & 0xFF
    step = np.uint32(1 << 16) if dtype == torch.bfloat16 else np.uint32(1 << 13)
    subnormal = np.clip(113 - exponent.astype(int), 0, 10) if dtype == torch.float16 else 0
    halfway = bits + (step << np.asarray(subnormal, np.uint32)) // np.uint32(2)
    near = [base + np.uint32(off % 2**32) for base in (bits, halfway) for off in (-1, 0, 1)]
    return torch.from_numpy(np.concatenate(near).view(np.int32)).view(torch.float32)


@pytest.mark.parametrize("kernel", [toys.copy, toys.explicit_cast], ids=["store", "to"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_to_16_bits_is_that_of_torch(dtype, kernel):
    x = boundaries(dtype)
    y, want = nans(x.numel(), dtype=dtype), x.to(dtype)
    block = 2**15
    arguments = {"x": x, "y": y, "N": x.numel()}
    toys.run(kernel, (x.numel() // block,), arguments, constants={"BLOCK": block})
    number = ~want.isnan()
    assert torch.equal(y.isnan(), ~number)
    assert torch.equal(y[number].view(torch.int16), want[number].view(torch.int16))


def test_widening_bf16_is_that_of_torch():
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    got = from_bf16(x.view(torch.uint16).numpy())
    assert np.array_equal(got, x.to(torch.float32).numpy(), equal_nan=True)


@given(st.floats(width=64))
@np.errstate(all="ignore")
def test_f64_is_rounded_to_bf16_once(value):
    got = float(from_bf16(to_bf16(np.array([value])))[0])
    if not math.isfinite(value) or not math.isfinite(got):
        largest = float(torch.finfo(torch.bfloat16).max)
        overflows = abs(value) >= largest + 2.0**119
        assert got == value or (math.isnan(value) and math.isnan(got)) or overflows
        return
    bits = int(to_bf16(np.array([abs(value)]))[0])
    below, above = (from_bf16(np.array([max(bits - 1, 0), bits + 1], np.uint16))).tolist()
    distance = abs(Fraction(abs(value)) - Fraction(abs(got)))
    others = [abs(Fraction(abs(value)) - Fraction(b)) for b in (below, above) if math.isfinite(b)]
    assert all(distance <= other for other in others if bits or other)
    assert bits % 2 == 0 or distance not in others


def test_f64_next_to_a_tie_rounds_to_the_nearest():
    even = np.arange(1.0, 1.5, 2**-6)  # midpoints lie 2**-8 above, where ties go down
    for side, want in ((2.0**-40, even + 2**-7), (0.0, even), (-(2.0**-40), even)):
        assert np.array_equal(from_bf16(to_bf16(even + 2**-8 + side)), want)


# Products


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3"])
@pytest.mark.parametrize("seed", range(3))
def test_product_within_bound(dtype, precision, seed):
    x, w = random_operands(dtype, seed)
    k = x.shape[1]
    exact, sums = x.double() @ w.double(), x.double().abs() @ w.double().abs()
    u, v = UNITS["rn32"], TF32_UNIT
    relative = {"ieee": 0.0, "tf32": 2 * v + v**2, "tf32x3": 3 * v**2 + 4 * k * u * v}[precision]
    bound = (math.expm1(k * math.log1p(u)) + (relative if dtype == torch.float32 else 0)) * sums
    got = product(x, w, precision)
    assert ((got.double() - exact).abs() <= bound).all()
    if precision == "tf32" and dtype == torch.float32:
        assert ((got.double() - exact).abs() > bound / 50).any()  # it did round


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_product_of_integers_is_exact(dtype):
    x, w = (torch.round(4 * a) for a in random_operands(dtype, 5))
    assert torch.equal(product(x, w).double(), x.double() @ w.double())


def test_tf32_drops_thirteen_bits_and_keeps_the_kinds():
    values = np.array([1 + 2**-10, 1 + 2**-11, -1 - 2**-11, 2**-136, 2**-137, INF, -INF, NAN])
    want = [1 + 2**-10, 1.0, -1.0, 2**-136, 0.0, INF, -INF, NAN]
    assert np.array_equal(cut_to_tf32(values.astype(np.float32)), want, equal_nan=True)
    nan = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(cut_to_tf32(nan)).all()


def test_infinity_survives_three_products():
    x, w = torch.ones(16, 16), torch.ones(16, 16)
    x[0, 0] = INF
    y = product(x, w, "tf32x3", (16, 16, 16))
    assert (y[0] == INF).all()
    assert (y[1:] == 16).all()


# Arithmetic


@triton.jit
def _umulhi(a, b):
    return tl.umulhi(a, b)


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _divide(a, b):
    return a // b


@triton.jit
def _remainder(a, b):
    return a % b


@given(st.sampled_from([32, 64]), st.data())
def test_umulhi_is_unsigned(bits, data):
    x, z = (data.draw(st.lists(I32 if bits == 32 else I64, min_size=4, max_size=4)) for _ in "xz")
    dtype = {32: torch.int32, 64: torch.int64}[bits]
    got = applied(_umulhi, tensor_of(x, dtype), tensor_of(z, dtype), block=4)
    high = [(a % 2**bits) * (b % 2**bits) >> bits for a, b in zip(x, z)]
    assert got.tolist() == [h - 2**bits if h >= 2 ** (bits - 1) else h for h in high]


@given(st.lists(st.tuples(I32, I32), min_size=4, max_size=4))
def test_int32_wraps(pairs):
    x, z = (tensor_of(v, torch.int32) for v in zip(*pairs))
    want = [(a * b + 2**31) % 2**32 - 2**31 for a, b in pairs]
    assert applied(_multiply, x, z, block=4).tolist() == want


@given(st.integers(-50, 50), st.integers(-50, 50).filter(bool))
def test_division_cuts_towards_zero(a, b):
    x, z = tensor_of([a], torch.int32), tensor_of([b], torch.int32)
    quotient, remainder = applied(_divide, x, z, block=1), applied(_remainder, x, z, block=1)
    assert quotient.item() == math.trunc(Fraction(a, b))
    assert remainder.item() == a - b * quotient.item()


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b)


@triton.jit
def _minimum(a, b):
    return tl.minimum(a, b)


@triton.jit
def _maximum_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _minimum_nan(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _clamp(a, b):
    return tl.clamp(a, -1.0, 1.0)


@triton.jit
def _clamp_nan(a, b):
    return tl.clamp(a, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _where(a, b):
    return tl.where(a > 0, a, b)


@triton.jit
def _largest(a, b):
    return tl.max(a, 0) + tl.zeros_like(a)


@triton.jit
def _smallest(a, b):
    return tl.min(a, 0) + tl.zeros_like(a)


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize(
    ("function", "want"),
    [
        (_maximum, [0, 2, 3, NAN]),
        (_minimum, [0, -1, -5, NAN]),
        (_maximum_nan, [NAN, 2, NAN, NAN]),
        (_minimum_nan, [NAN, -1, NAN, NAN]),
        (_clamp, [-1, 1, -1, -1]),
        (_clamp_nan, [NAN, 1, NAN, NAN]),
        (_where, [0, 2, 3, NAN]),
        (_largest, [2, 2, 2, 2]),
        (_smallest, [2, 2, 2, 2]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_minimum_and_maximum_treat_nan_as_ptx(function, want, dtype):
    x, z = tensor_of([NAN, 2, NAN, NAN], dtype), tensor_of([0, -1, 3, NAN], dtype)
    if function is _minimum:
        x, z = tensor_of([NAN, 2, -5, NAN], dtype), tensor_of([0, -1, NAN, NAN], dtype)
    assert np.array_equal(applied(function, x, z, block=4).tolist(), want, equal_nan=True)


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _subtract(a, b):
    return a - b


@triton.jit
def _quotient(a, b):
    return a / b


@triton.jit
def _less(a, b):
    return (a < b).to(a.dtype)


@triton.jit
def _fma(a, b):
    return tl.fma(a, b, -a)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("function", "same"),
    [
        (_add, operator.add),
        (_subtract, operator.sub),
        (_multiply, operator.mul),
        (_less, lambda a, b: (a < b).to(a.dtype)),
        (_fma, lambda a, b: (a.double() * b.double() - a.double()).to(a.dtype)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_operators_of_16_bits_are_those_of_torch(function, same, dtype):
    x, z = (a.reshape(-1)[:2000] for a in random_operands(dtype, 3))
    assert torch.equal(applied(function, x, z), same(x, z))


@given(st.floats(width=32), st.floats(width=32))
def test_fma_rounds_once(a, b):
    got = applied(_fma, tensor_of([a]), tensor_of([b]), block=1).item()
    if all(map(math.isfinite, (a, b))):
        exact = Fraction(a) * Fraction(b) - Fraction(a)
        near = np.float32(float(exact)) if abs(exact) < 2**128 else math.copysign(INF, exact)
        assert got == near


@triton.jit
def _parity(a, b):
    odd = (a % 2 != 0) ^ (b % 2 != 0)
    both = (a % 2 != 0) + (b % 2 != 0)
    return (odd == both).to(tl.int32)


SCALARS = (tl.int1, tl.int8, tl.int32, tl.int64, tl.uint8, tl.uint32, tl.float16, tl.bfloat16,
           tl.float32, tl.float64, tl.pointer_type(tl.float32))  # fmt: skip
SHAPES = st.sampled_from([(), (1,), (4,), (8,), (1, 4), (8, 1), (8, 4)])
TENSORS = st.tuples(st.sampled_from(SCALARS), SHAPES)
PLAIN = st.sampled_from([0, 1, -1, 127, 128, -129, 2**31 - 1, 2**31, 2**63, -(2**70), True, 0.5])


def operand(drawn):
    """Return a drawn tensor as the interpreter has it; a number is one already."""
    if not isinstance(drawn, tuple):
        return drawn
    dtype, shape = drawn
    data = np.arange(math.prod(shape)).reshape(1, *shape).astype(numpy_dtype(dtype))
    kind = tl.block_type(dtype, list(shape)) if shape else dtype
    return tl.tensor(TensorHandle(data, dtype), kind)


def outcome(work):
    """Return the type and data of a result, or the error, for comparison."""
    try:
        found = work()
    except Exception as error:  # whatever Triton raises
        return type(error), str(error)
    pair = found if isinstance(found, tuple) else (found,)
    return [(str(t.type), str(t.handle.dtype), t.handle.data.tolist()) for t in pair]


@settings(max_examples=10 * settings.default.max_examples)
@given(TENSORS, TENSORS | PLAIN, st.tuples(*[st.booleans()] * 4), st.sampled_from(SCALARS[:-1]))
def test_fast_paths_have_the_outcomes_of_triton(lhs, rhs, flags, goal):
    _, functions = interpreter()
    semantic, cut = functions.semantic, fast_paths()

    def outcomes():
        left, right = operand(lhs), operand(rhs)
        yield outcome(lambda: semantic.binary_op_type_checking_impl(left, right, *flags))
        yield outcome(lambda: semantic.cast(left, goal))

    with functions.language():
        ours = list(outcomes())
        with pytest.MonkeyPatch.context() as patch:
            for (owner, name), function in cut.items():
                patch.setattr(owner, name, THEIRS[name])
                assert function.__code__ is not THEIRS[name].__code__
            theirs = list(outcomes())
    assert ours == theirs


def test_booleans_add_modulo_two():
    x, z = (tensor_of(v, torch.int32) for v in zip(*itertools.product((0, 1), repeat=2)))
    assert applied(_parity, x, z, block=4).tolist() == [1, 1, 1, 1]


def test_a_scalar_condition_masks_a_block():
    y = torch.full((8,), -1, dtype=torch.int32)
    toys.run(toys.scalar_in_mask, (1,), {"y": y}, constants={"BLOCK": 8})
    assert y.tolist() == list(range(8))


# The language


@triton.jit
def _product_combine(a, b):
    return a * b


@triton.jit
def _library(a, b):
    total = tl.sum(a, 0) + a.sum(0) + tl.cdiv(7, 2)
    largest, where = tl.max(a, 0, return_indices=True)
    scan = tl.cumsum(a, 0)
    return total + largest + where + scan + tl.reduce(b, 0, _product_combine)


def test_library_functions_and_reductions():
    x, z = tensor_of([3, -1, 5, 2], torch.int32), tensor_of([1, 2, 3, 4], torch.int32)
    scan = np.cumsum(x.numpy())
    assert applied(_library, x, z, block=4).tolist() == (9 + 9 + 4 + 5 + 2 + scan + 24).tolist()


@triton.jit
def _sums_of_pairs(a, b):
    square = tl.reshape(a, (2, 4)) + tl.zeros((2, 4), a.dtype)
    rows = tl.sum(square, 1)  # (2,)
    columns = tl.max(square, 0, keep_dims=True)  # (1, 4)
    return tl.reshape(rows[:, None] * columns, (8,)) + tl.sum(square)


def test_reductions_along_axes():
    x = tensor_of([3, 1, 4, 1, 5, 9, 2, 6], torch.int32)
    square = x.numpy().reshape(2, 4)
    want = square.sum(1)[:, None] * square.max(0) + square.sum()
    assert applied(_sums_of_pairs, x, block=8).tolist() == want.reshape(-1).tolist()


@triton.jit
def _conditions(a, b, pointer=None):
    first = tl.sum(a, 0)
    if pointer is not None and tl.load(pointer) > 0:
        first += 1
    if pointer is None or tl.load(pointer) > 0:
        first += 0
    steps = 0
    while steps < 3 and first > 0:
        steps += 1
    if not (first == 6) or steps != 3:  # noqa: SIM201 (`not` is what is tested)
        return a * 0
    return (a if steps == 3 else b) + min(steps, 2) + max(steps, first)


def test_conditions_are_those_of_the_compiler():
    x = tensor_of([1, 2, 3, 0], torch.int32)
    assert applied(_conditions, x, block=4).tolist() == [9, 10, 11, 8]


@triton.jit
def _block_condition(a, b):
    if a > 0:
        return a
    return b


@triton.jit
def _chained(a, b):
    return (0 < a < 3).to(tl.int32)


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [(_block_condition, TypeError, "needs a scalar"), (_chained, SyntaxError, "cannot compile")],
)
def test_uncompilable_constructs_are_refused(function, error, said):
    with pytest.raises(error, match=said):
        applied(function, tensor_of([1, 2, 3, 0], torch.int32), block=4)


@triton.jit
def _loop_variable(a, b):
    for i in range(2**30, 2**30 + 1):
        a += i * 4
    for j in tl.range(0, 2, num_stages=2):
        a += j
    for r in tl.static_range(2):
        a += tl.arange(0, r + 4) * 0
    return a


@triton.jit
def _loop_over_too_many(a, b):
    for r in tl.static_range(2):
        a += tl.reshape(tl.arange(0, 4), (4,)) * r
    return a


def test_loop_variables_have_the_type_of_the_bounds():
    with pytest.raises(ValueError, match="power of 2"):
        applied(_loop_variable, tensor_of([7] * 4, torch.int32), block=4)
    assert applied(_loop_over_too_many, tensor_of([7] * 4, torch.int32), block=4)[1] == 8
    assert applied(_wrapping_loop, tensor_of([7] * 4, torch.int32), block=4).tolist() == [13] * 4


@triton.jit
def _wrapping_loop(a, b):
    for i in range(2**30, 2**30 + 1):
        a += tl.where(i * 4 == 0, 1, 0)  # in int32
    for i in range(tl.full((), 2**30, tl.int64), 2**30 + 1):
        a += tl.where(i * 4 == 0, 0, 1)  # in int64
    for i in range(2**31, 2**31 + 3, 2):
        a += tl.where(i > 0, 1, 0)
    for j in tl.range(0, 2, num_stages=2):
        a += j
    for j in range(1, -1, -1):
        a += j
    return a


def test_helpers_are_looked_up_at_each_launch(monkeypatch):
    x, w = random_operands(torch.float32, 1)
    product(x, w)

    @triton.jit
    def nothing(a, b, acc, PRECISION: tl.constexpr):
        return acc

    monkeypatch.setattr(toys, "accumulate", nothing)
    assert not product(x, w).any()
    monkeypatch.undo()
    assert product(x, w).any()


@triton.jit
def _through_a_module(a, b):
    return toys.accumulate(
        tl.reshape(a, (16, 16)), tl.reshape(b, (16, 16)), tl.zeros((16, 16), tl.float32), "ieee"
    ).reshape(256)


@triton.jit
def _outer(a, b):
    return _inner(a, b)


@triton.jit
def _inner(a, b):
    return _multiply(a, b)


def test_helpers_of_helpers_too(monkeypatch):
    x = tensor_of([1, 2, 3, 4], torch.int32)
    assert applied(_outer, x, block=4).tolist() == [1, 4, 9, 16]
    monkeypatch.setitem(globals(), "_multiply", _subtract)
    assert applied(_outer, x, block=4).tolist() == [0, 0, 0, 0]


def test_helpers_of_other_modules():
    x, w = random_operands(torch.float32, 1, 16, 16, 16)
    got = applied(_through_a_module, x.reshape(-1), w.reshape(-1), block=256)
    assert torch.equal(got.reshape(16, 16), product(x, w, tile=(16, 16, 16)))


def test_closures():
    offset = tl.constexpr(3)

    @triton.jit
    def shifted(a, b):
        return a + offset

    assert applied(shifted, tensor_of([1, 2], torch.int32), block=2).tolist() == [4, 5]


@triton.jit
def _arguments(y, bias, FLAG, SMALL, LARGE, RATE, OUT: tl.constexpr):
    tl.static_assert(SMALL.dtype == tl.int32)
    tl.static_assert(LARGE.dtype == tl.int64)
    tl.static_assert(RATE.dtype == tl.float32)
    tl.static_assert(FLAG.dtype == tl.int1)
    result = SMALL + LARGE * FLAG + RATE
    if bias is not None:
        result += tl.load(bias)
    tl.store(y, result.to(OUT))


def test_arguments_have_the_types_of_a_launch():
    y = nans(1)
    arguments = {"y": y, "FLAG": True, "SMALL": 3, "LARGE": 2**31, "RATE": 0.5}
    toys.run(_arguments, (1,), arguments, constants={"OUT": tl.float32, "bias": None})
    assert y.item() == np.float32(3 + 2.0**31 + 0.5)


# Descriptors


def test_box_past_the_edges_is_zero():
    x = torch.arange(1.0, 33).reshape(4, 8)
    for row, column in itertools.product((-3, 0, 2), (-4, 0, 4)):
        y = nans(4, 8)
        arguments = {"x": x, "y": y, "row": row, "column": column}
        constants = {"BM": 4, "BN": 8}
        toys.run(toys.box, (1,), arguments, boxes={"x": (4, 8)}, constants=constants, outputs=["y"])
        padded = torch.nn.functional.pad(x, (8, 8, 4, 4))
        assert torch.equal(y, padded[4 + row : 8 + row, 8 + column : 16 + column])


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_stored_box_is_clipped(dtype):
    x = torch.arange(35 * 24).reshape(35, 24).to(dtype)
    y = nans(35, 24, dtype=dtype)
    boxes = {"x": (16, 16), "y": (16, 16)}
    arguments, constants = {"x": x, "y": y, "M": 35, "N": 24}, {"BM": 16, "BN": 16}
    toys.run(toys.box_store, (3, 2), arguments, boxes=boxes, constants=constants, outputs=["y"])
    assert torch.equal(x, y)


# Order


def test_order_of_programs_shows_where_it_matters():
    results = {}
    for order in ("grid", "reversed", "shuffled"):
        y = torch.zeros(6, dtype=torch.int32)
        toys.run(toys.chained, (6,), {"y": y}, strict=False, order=order)
        results[order] = y.tolist()
    assert results["grid"] == [1, 2, 3, 4, 5, 6]
    assert results["reversed"] == [1] * 6
    assert results["shuffled"] not in (results["grid"], results["reversed"])
    x, w = random_operands(torch.float32, 2)
    first, second = (product(x, w, order="shuffled", seed=seed) for seed in (0, 1))
    assert torch.equal(first, second)


def test_unknown_order():
    with pytest.raises(ValueError, match="needs grid, reversed or shuffled"):
        product(*random_operands(torch.float32, 2), order="random")


def test_split_sum_through_a_workspace():
    x, ws, y = torch.arange(100.0), nans(7), nans(1)
    toys.run(toys.partial_sums, (7,), {"x": x, "ws": ws, "N": 100}, constants={"BLOCK": 16})
    toys.run(toys.total, (1,), {"ws": ws, "y": y, "SPLITS": 7}, constants={"BLOCK": 8})
    assert y.item() == 4950
