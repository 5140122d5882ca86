"""Arithmetic of a GPU, where Triton's interpreter computes something else.

Triton 3.6 with NumPy 2.4 has three faults that make it useless for tests: a loop with a runtime
bound raises, `tl.dot` multiplies the bit patterns of bf16, and f32 -> bf16 truncates. Also fixed:
bf16 operators that work on bit patterns, NaN and subnormal numbers of fp8 in products, `umulhi` of
negative ints, minima and maxima that ignore NaN in PTX, sums of booleans, input_precision.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import triton.language as tl

from .programs import ProgramsBuilder, uniform_value
from .triton_internals import (
    NO_NAN,
    TF32,
    TF32X3,
    InterpreterOptions,
    TensorHandle,
    numpy_dtype,
)

Array = np.ndarray[Any, Any]
FP8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
_MOD_2 = {np.add: np.bitwise_xor, np.subtract: np.bitwise_xor, np.multiply: np.bitwise_and}


def from_bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(values: Array) -> Array:
    """Return the bf16 bit patterns nearest to f32 or f64 values, ties to even."""
    bits = _to_odd(values).view(np.uint32)
    up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    nearest = ((bits + up) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), nearest)


def _to_odd(values: Array) -> Array:
    """Return f64 as f32, rounded to odd, so that a second rounding breaks ties correctly."""
    near = np.ascontiguousarray(values, dtype=np.float32)
    if values.dtype != np.float64:
        return near
    wide = near.astype(np.float64)
    cut = np.where(np.abs(wide) > np.abs(values), np.nextafter(near, np.float32(0)), near)
    inexact = (wide != values) & np.isfinite(values)
    return (cut.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)


def cut_to_tf32(values: Array) -> Array:
    """Return f32 values without their last 13 bits, as wgmma reads them; NaN stays NaN."""
    cut = (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isnan(values), values, cut)


def three_products(a: Array, b: Array) -> Array:
    """Return a b from the leading and the next 10 bits of each, smallest product first."""
    high_a, high_b = cut_to_tf32(a), cut_to_tf32(b)
    low_a, low_b = cut_to_tf32(a - high_a), cut_to_tf32(b - high_b)
    small = np.matmul(low_a, high_b) + np.matmul(high_a, low_b)
    return np.where(np.isnan(small), np.float32(0), small) + np.matmul(high_a, high_b)


def is_bf16(handle: Any) -> bool:
    """Return whether `handle` holds bf16, which NumPy sees as uint16."""
    return handle.data.dtype == np.uint16 and handle.dtype.scalar == tl.bfloat16


def is_fp8(handle: Any) -> bool:
    """Return whether `handle` holds 8-bit floats, which NumPy sees as uint8."""
    return handle.data.dtype == np.uint8 and handle.dtype.scalar in FP8


def numbers(handle: Any) -> Array:
    if is_fp8(handle):
        bits = torch.from_numpy(np.ascontiguousarray(handle.data))
        found: Array = bits.view(FP8[handle.dtype.scalar]).float().numpy()
        return found
    return from_bf16(handle.data) if is_bf16(handle) else handle.data


def scalar(value: int | float, dtype: Any) -> Any:
    return tl.tensor(TensorHandle(np.array([value], dtype=numpy_dtype(dtype)), dtype), dtype)


def integer(value: int) -> Any:
    """Return an int as a scalar of the type that a launch gives it."""
    fits = next(t for t in (tl.int32, tl.int64, tl.uint64) if _holds(t, value))
    return scalar(value, fits)


def _holds(dtype: Any, value: int) -> bool:
    info = np.iinfo(numpy_dtype(dtype))
    return bool(info.min <= value <= info.max)


def index_of(value: Any) -> int:
    """Return a scalar as a Python int, which NumPy 2.4 refuses for an array of one element."""
    return int(uniform_value(value.handle.data))


def loop(first: Any, last: Any = None, step: Any = 1, **_options: Any) -> Iterator[Any]:
    """Yield the induction variable of a runtime loop: a scalar of the bounds' type, not an int."""
    ends = (0, first, step) if last is None else (first, last, step)
    every = np.broadcast_arrays(*(_bound(end) for end in ends))
    ranges = [range(*bounds) for bounds in zip(*(each.tolist() for each in every))]
    wide = any(isinstance(end, tl.tensor) and end.dtype.int_bitwidth == 64 for end in ends)
    narrow_enough = not wide and all(_all_hold(tl.int32, each) for each in every)
    kind = tl.int32 if narrow_enough else tl.int64
    for number in range(uniform_value(np.array([len(each) for each in ranges]))):
        values = np.array([each[number] for each in ranges], numpy_dtype(kind))
        yield tl.tensor(TensorHandle(values, kind), kind)


def _all_hold(dtype: Any, values: Array) -> bool:
    return _holds(dtype, int(values.min())) and _holds(dtype, int(values.max()))


def _bound(end: Any) -> Array:
    """Return the bound of a loop in each program."""
    return end.handle.data.ravel() if isinstance(end, tl.tensor) else np.array([int(end)])


class FixedBuilder(ProgramsBuilder):
    def __init__(self) -> None:
        super().__init__()
        self.options = dataclasses.replace(
            InterpreterOptions(),
            sanitize_overflow=False,
            debug=True,  # device_assert raises
        )
        self.codegen_fns["min_dot_size"] = lambda lhs, rhs: (
            (1, 1, 32) if lhs.scalar.primitive_bitwidth == 8 else (1, 1, 16)
        )

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        """Convert between number types, rounding to nearest even."""
        target = dst_type.scalar
        values = numbers(src)
        if target == tl.bfloat16:
            wide = values if values.dtype.kind == "f" else values.astype(np.float32)
            return TensorHandle(to_bf16(wide), target)
        return TensorHandle(values.astype(numpy_dtype(target)), target)

    def binary_op(self, lhs: Any, rhs: Any, op: Callable[..., Array]) -> Any:
        """Apply `op` to numbers, not to the bit patterns of bf16; booleans wrap at 2."""
        if is_bf16(lhs):
            output = op(numbers(lhs), numbers(rhs))
            if output.dtype != np.bool_:
                return TensorHandle(to_bf16(output), tl.bfloat16)
            return TensorHandle(output, tl.int1)
        if lhs.data.dtype == np.bool_ and rhs.data.dtype == np.bool_:
            op = _MOD_2.get(op, op)
        result = super().binary_op(lhs, rhs, op)
        if result.data.dtype == np.bool_:  # otherwise a scalar condition cannot mask a block
            result.dtype = tl.int1
        return result

    def unary_op(self, arg: Any, op: Callable[..., Array]) -> Any:
        """Apply `op` to numbers: newer versions of Triton negate bf16 with it."""
        if is_bf16(arg):
            return TensorHandle(to_bf16(op(numbers(arg))), tl.bfloat16)
        return super().unary_op(arg, op)

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        """Return the smaller of two, a number rather than a NaN, as min.f32 does."""
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        """Return the larger of two, a number rather than a NaN, as max.f32 does."""
        return self.binary_op(lhs, rhs, np.fmax)

    def create_clampf(self, arg: Any, low: Any, high: Any, propagate_nans: Any) -> Any:
        least, most = (np.fmin, np.fmax) if propagate_nans == NO_NAN else (np.minimum, np.maximum)
        return self.binary_op(self.binary_op(arg, low, most), high, least)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """Return x y + z: the product of two f32 is exact in f64."""
        product = numbers(x).astype(np.float64) * numbers(y).astype(np.float64)
        total = TensorHandle(product + numbers(z), tl.float64)
        return self.cast_impl(total, z.dtype)

    def create_umulhi(self, lhs: Any, rhs: Any) -> Any:
        """Return the high half of an unsigned product, whatever the sign of the type."""
        dtype = lhs.data.dtype
        unsigned = np.dtype(f"u{dtype.itemsize}")
        a, b = lhs.data.view(unsigned), rhs.data.view(unsigned)
        if unsigned == np.uint64:
            high = _high_64(a, b)
        else:
            wide = np.dtype(f"u{2 * dtype.itemsize}")
            high = (a.astype(wide) * b.astype(wide) >> wide.type(8 * dtype.itemsize)).astype(
                unsigned
            )
        return TensorHandle(high.view(dtype), lhs.dtype.scalar)

    def create_ashr(self, lhs: Any, rhs: Any) -> Any:
        """Shift right with the sign; Triton modifies its operands."""
        return super().create_ashr(
            TensorHandle(lhs.data, lhs.dtype), TensorHandle(rhs.data, rhs.dtype)
        )

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, _max_imprecise: Any) -> Any:
        """Return a b + d, summed in f32: products of 16 or 8 bits are exact there."""
        if a.dtype.scalar.is_int():
            return super().create_dot(a, b, d, input_precision, _max_imprecise)
        left, right = numbers(a), numbers(b)
        if a.dtype.scalar == tl.float32 and input_precision == TF32X3:
            product = three_products(left, right)
        elif a.dtype.scalar == tl.float32 and input_precision == TF32:
            product = np.matmul(cut_to_tf32(left), cut_to_tf32(right))
        else:
            wide = np.float64 if left.dtype == np.float64 else np.float32
            product = np.matmul(left.astype(wide, copy=False), right.astype(wide, copy=False))
        return TensorHandle((product + d.data).astype(d.data.dtype, copy=False), d.dtype.scalar)


def _high_64(a: Array, b: Array) -> Array:
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    return a1 * b1 + (middle >> half) + (((middle & low) + a0 * b1) >> half)


_REDUCTIONS = {"_sum_combine": (np.add, np.add), "_elementwise_max": (np.fmax, np.maximum),
               "_elementwise_min": (np.fmin, np.minimum)}  # fmt: skip


def reduction(semantic: Any) -> Callable[..., Any]:
    """Return `tl.reduce` on whole arrays, which treats NaN as the combining function does."""

    def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **_: Any) -> Any:
        several = isinstance(input, tuple)
        inputs = input if several else (input,)
        rank = len(inputs[0].shape)
        moved = [
            t.handle.data.reshape(len(t.handle.data), -1)
            if axis is None
            else np.moveaxis(t.handle.data, axis % rank + 1, 1)
            for t in inputs
        ]
        dtypes = [t.dtype for t in inputs]
        standard = combine_fn.original.__module__ == "triton.language.standard"
        name = combine_fn.original.__name__ if standard else None
        if name in _REDUCTIONS and not several and not is_bf16(inputs[0].handle):
            ufunc = _REDUCTIONS[name][moved[0].dtype.kind != "f"]
            parts = [ufunc.reduce(moved[0], axis=1, dtype=moved[0].dtype)]
        else:
            parts = _halved(moved, dtypes, combine_fn)
        results = tuple(
            _tensor(_expand_reduced(p, axis, rank) if keep_dims else p, d)
            for p, d in zip(parts, dtypes)
        )
        return results if several else results[0]

    return reduce


def _expand_reduced(data: Array, axis: int | None, rank: int) -> Array:
    if axis is None:
        return data.reshape(-1, *(1,) * rank)
    return np.expand_dims(data, axis % rank + 1)


def _halved(moved: list[Array], dtypes: list[Any], combine_fn: Any) -> list[Array]:
    """Reduce along axis 1 by combining its two halves until one element is left."""
    while (size := moved[0].shape[1]) > 1:
        halves = [half for part in (slice(size // 2), slice(size // 2, None)) for half in
                  (_tensor(m[:, part], d) for m, d in zip(moved, dtypes))]  # fmt: skip
        combined = combine_fn(*halves)
        combined = combined if isinstance(combined, tuple) else (combined,)
        moved = [c.handle.data for c in combined]
    return [m[:, 0] for m in moved]


def _tensor(data: Array, dtype: Any) -> Any:
    kind = tl.block_type(dtype, list(data.shape[1:])) if data.ndim > 1 else dtype
    return tl.tensor(TensorHandle(data, dtype), kind)
