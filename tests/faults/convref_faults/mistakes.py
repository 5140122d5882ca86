"""Mistakes of convolution kernels, and predicates on a call that say where they occur."""

import ctypes
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from convref import dtypes, oracle
from convref.case import Call, axis_letters, channels_last
from convref.conformance.mutations import (
    Array,
    Change,
    Operands,
    Results,
    Wrong,
    oracle_results,
    reshaped,
)
from convref.conformance.operands import poison
from convref.ops import Problem


def by_group(x: Array, call: Call) -> Array:
    """Return x with the channels of each group on an axis of their own."""
    return x.reshape(len(x), call.conv.groups, per_group(call), *x.shape[2:])


def channels_from(first: int) -> Change:
    """Return a change that drops the channels of each group from `first` on."""

    def change(x: Array, call: Call, role: str) -> Array:
        split = by_group(x, call)
        split[:, :, first:] = 0
        return split.reshape(x.shape)

    return change


def tail_channels(x: Array, call: Call, role: str) -> Array:
    """Drop the channels of each group beyond a multiple of eight."""
    return channels_from(per_group(call) // 8 * 8)(x, call, role)


def first_group(x: Array, call: Call, role: str) -> Array:
    """Take the first group's channels for all groups."""
    split = by_group(x, call)
    split[:, 1:] = split[:, :1]
    return split.reshape(x.shape)


def as_contiguous(w: Array, call: Call, role: str) -> Array:
    """Return the memory read in logical order."""
    letters = axis_letters(call.problem, role)
    order = [letters.index(axis) for axis in call.spec(role).order or letters]
    return np.ascontiguousarray(w.transpose(order)).reshape(w.shape)


def steps_ignored(x: Array, call: Call, role: str) -> Array:
    """Return x as it is read without its first step: elements between, then the early ones."""
    letter, step = call.spec(role).step[0]
    axis = axis_letters(call.problem, role).index(letter)
    result = np.full(x.shape, poison(call.dtype), x.dtype)
    places = np.arange(0, x.shape[axis], step)
    where: list[Any] = [slice(None)] * x.ndim
    where[axis] = places
    result[tuple(where)] = np.take(x, places // step, axis)
    return result


def offset_ignored(dy: Array, call: Call, role: str) -> Array:
    """Poison as many elements as are before the first."""
    flat = dy.reshape(-1)
    flat[: call.spec(role).offset] = poison(call.dtype)
    return flat.reshape(dy.shape)


def first_slice_only(dy: Array, call: Call, role: str) -> Array:
    """Drop all but the first slice of an expanded axis."""
    axis = axis_letters(call.problem, role).index(call.spec(role).expand[0])
    np.moveaxis(dy, axis, 0)[1:] = 0
    return dy


def taps_beyond_image(w: Array, call: Call, role: str) -> Array:
    """Drop taps that no extent of the image reaches."""
    for axis, size in enumerate(call.problem.input):
        np.moveaxis(w, 2 + axis, 0)[size:] = 0
    return w


def windows_in_padding(y: Array, call: Call, role: str) -> Array:
    """Leave windows wholly in low padding at zero."""
    for axis, (geometry, span) in enumerate(zip(call.problem.axes, spans(call))):
        unread = -(-max(0, geometry.lo - span + 1) // geometry.stride)
        np.moveaxis(y, 2 + axis, 0)[:unread] = 0
    return y


def output_padding_unwritten(y: Array, call: Call, role: str) -> Array:
    """Leave what output padding adds at zero."""
    for axis, extra in enumerate(call.conv.output_padding):
        np.moveaxis(y, 2 + axis, 0)[y.shape[2 + axis] - extra :] = 0
    return y


def last_product_dropped(call: Call, operands: Operands) -> Results:
    """Return y whose last element lacks the last tap of the last channel."""
    (y,) = oracle_results(call, operands)
    x, w, b = operands
    assert y is not None
    assert w is not None
    short = w.copy()
    short[(-1,) * w.ndim] = 0
    (other,) = oracle_results(call, (x, short, b))
    assert other is not None
    last = (-1,) * y.ndim
    y[last] = other[last]
    return (y,)


def sum_by_channel(call: Call, operands: Operands) -> Results:
    """Round the sum to the type of the operands after each channel and after the bias."""
    x, w, b = operands
    assert x is not None
    total: Array = np.zeros(call.problem.shape("y"))
    channel = np.arange(call.problem.c).reshape(-1, *(1,) * call.problem.rank)
    for c in range(per_group(call)):
        one = np.where(channel % per_group(call) == c, x, x.dtype.type(0))
        (part,) = oracle.evaluate(call, one, w, None, out="f64")
        total = dtypes.rounded(total + part, call.dtype).astype(np.float64)
    if b is not None:
        total = total + b.astype(np.float64).reshape(-1, *(1,) * call.problem.rank)
    return (dtypes.rounded(total, call.dtype),)


def narrow_bias_gradient(call: Call, operands: Operands) -> Results:
    """Sum the gradient of the bias in the type of the operands."""
    dx, dw, _ = oracle_results(call, operands)
    dy = operands[0]
    assert dy is not None
    total = np.zeros(call.conv.k)
    for column in np.moveaxis(dy, 1, -1).reshape(-1, call.conv.k).astype(np.float64):
        total = dtypes.rounded(total + column, call.dtype).astype(np.float64)
    return dx, dw, dtypes.rounded(total, call.dtype)


def bias_gradient_axes(call: Call, operands: Operands) -> Results:
    """Sum the gradient of the bias over all axes but a spatial one."""
    dx, dw, _ = oracle_results(call, operands)
    dy = operands[0]
    assert dy is not None
    others = tuple(axis for axis in range(dy.ndim) if axis != 2)
    total = dy.astype(np.float64).sum(axis=others)
    return dx, dw, dtypes.rounded(total, call.dtype)


def first_images(number: int) -> Wrong:
    """Return a kernel whose filter gradient sums only the first images."""

    def wrong(call: Call, operands: Operands) -> Results:
        dx, _, db = oracle_results(call, operands)
        dy, x, w = operands
        assert dy is not None
        few = np.where(np.arange(len(dy)).reshape(-1, *(1,) * (dy.ndim - 1)) < number, dy, 0)
        return dx, oracle_results(call, (few.astype(dy.dtype), x, w))[1], db

    return wrong


def without_second_term(call: Call, operands: Operands) -> Results:
    """Drop the term of ddw from ddy."""
    ddx, _, ddb, *rest = operands
    _, dx, dw = oracle_results(call, operands)
    return oracle_results(call, (ddx, None, ddb, *rest))[0], dx, dw


def bias_twice(call: Call, operands: Operands) -> Results:
    """Add the bias twice."""
    x, w, b, *dots = operands
    assert b is not None
    return oracle_results(call, (x, w, b + b, *dots))


def compute_masked_off(call: Call, operands: Operands) -> Results:
    """Compute results that are masked off, too."""
    return oracle_results(replace(call, mask=(True, True, True)), operands)


def no_bias_gradient(call: Call, operands: Operands) -> Results:
    """Forget the gradient of the bias."""
    return (*oracle_results(call, operands)[:2], None)


def scaled_in_place(call: Call, operands: Operands) -> Results:
    """Write to x after use."""
    results, x = oracle_results(call, operands), operands[1]
    assert x is not None
    x *= 2
    return results


parity = count()


def last_bit_differs(dw: Array, call: Call, role: str) -> Array:
    """Return dw, every second time one unit in the last place larger where it was rounded."""
    larger = np.nextafter(dw, np.inf)
    return np.where((dw == np.rint(dw)) | (next(parity) % 2 == 0), dw, larger)


def flushed(array: Array, call: Call, role: str) -> Array:
    """Flush subnormal numbers to zero."""
    array[np.abs(array) < np.finfo(array.dtype).tiny] = 0
    return array


def through_half(array: Array, call: Call, role: str) -> Array:
    """Pass numbers through float16."""
    return array.astype(np.float16).astype(array.dtype)


def truncated(call: Call, operands: Operands) -> Results:
    """Round to bfloat16 by cutting bits off."""
    (y,) = oracle.evaluate(call, *operands, out="f32")
    assert y is not None
    bits = y.view(np.uint32) & np.uint32(0xFFFF0000)
    return (dtypes.rounded(bits.view(np.float32), "bf16"),)


def nan_to_zero(array: Array, call: Call, role: str) -> Array:
    """Replace NaN by zero."""
    array[array != array] = 0
    return array


def clamped(array: Array, call: Call, role: str) -> Array:
    """Replace infinities by the largest number."""
    top = np.finfo(array.dtype).max
    return np.clip(array, -top, top)


def saturated(call: Call, operands: Operands) -> Results:
    """Saturate where integers wrap."""
    (y,) = oracle.evaluate(call, *operands, out="i64")
    assert y is not None
    return (np.clip(y, -128, 127).astype(np.int8),)


def wide_dtype(array: Array, call: Call, role: str) -> Array:
    """Return float32."""
    return array.astype(np.float32)


def squeezed(array: Array, call: Call, role: str) -> Array:
    """Drop the spatial axes."""
    return array.reshape(array.shape[:2])


def ungrouped(dw: Array, call: Call, role: str) -> Array:
    """Return the gradient of the filter in the shape of one group."""
    rows, columns, *rest = dw.shape
    return dw.reshape(rows // call.conv.groups, columns * call.conv.groups, *rest)


def shuffled(dw: Array, call: Call, role: str) -> Array:
    """Write channels last into an array of channels first."""
    return np.ascontiguousarray(np.moveaxis(dw, 1, -1)).reshape(dw.shape)


def second_image_again(y: Array, call: Call, role: str) -> Array:
    """Write the second image for all that follow."""
    y[2:] = y[1]
    return y


def conjugated(array: Array, call: Call, role: str) -> Array:
    """Conjugate."""
    return array.conj()


def axes_swapped(problem: Problem) -> Problem:
    """Exchange the padding of the axes."""
    return reshaped(problem, lo=tuple(lo for lo, _ in reversed(problem.padding)))


def crop_forgotten(problem: Problem) -> Problem:
    """Take negative padding for none."""
    return reshaped(problem, lo=tuple(max(0, lo) for lo, _ in problem.padding))


def dense(problem: Problem) -> Problem:
    """Take the filter for dense."""
    return reshaped(problem, dilation=(1,) * problem.rank)


def last_stride(problem: Problem) -> Problem:
    """Take the last axis' stride for all."""
    return reshaped(problem, stride=problem.stride[-1:] * problem.rank)


# Predicates on a call: where a mistake occurs.


def per_group(call: Call) -> int:
    """Return the input channels of a group."""
    return call.conv.c // call.conv.groups


def spans(call: Call) -> list[int]:
    """Return the extent of the dilated filter along each axis."""
    problem = call.problem
    return [d * (taps - 1) + 1 for d, taps in zip(problem.dilation, problem.filter)]


def any_axis(call: Call, *conditions: Callable[[Any], bool]) -> bool:
    """Return whether all conditions hold on one axis."""
    return any(all(holds(axis) for holds in conditions) for axis in call.problem.axes)


def strided(axis: Any) -> bool:
    """Return whether the axis has a stride."""
    return axis.stride > 1


def dilated(axis: Any) -> bool:
    """Return whether the axis has a dilation that shows."""
    return axis.dilation > 1 and axis.taps > 1


def is_padded_unevenly(axis: Any) -> bool:
    """Return whether the axis is padded unevenly."""
    return axis.lo != axis.hi


def last_order(call: Call, role: str) -> bool:
    """Return whether the operand is channels last."""
    return call.spec(role).order == channels_last(axis_letters(call.problem, role))


def is_plain_conv(call: Call) -> bool:
    """Return whether this is the forward pass of a plain convolution."""
    return call.pass_ == "fprop" and not call.conv.transposed


def fprop(call: Call) -> bool:
    """Return whether this is a forward pass."""
    return call.pass_ == "fprop"


def computes(call: Call, role: str) -> bool:
    """Return whether a backward pass gives this result."""
    return call.pass_ == "backward" and role in call.wanted


def repeats(call: Call, role: str) -> bool:
    """Return whether the operand repeats a slice."""
    letters = axis_letters(call.problem, role)
    sizes = dict(zip(letters, call.problem.shape(role)))
    return any(sizes[axis] > 1 for axis in call.spec(role).expand[:1])


# Memory and state.


def read_byte_before(address: int) -> None:
    """Read the byte before an address."""
    ctypes.string_at(address - 1, 1)


@contextmanager
def set_within(kept: dict[Hashable, Any], name: str, value: Any) -> Iterator[None]:
    """Keep a value under a name within a block."""
    kept[name] = value
    try:
        yield
    finally:
        del kept[name]
