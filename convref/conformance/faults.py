"""Wrong kernels, each modelled on a bug that was shipped: what the court has to find.

A fault is the oracle with one mistake, which it makes in its region and nowhere else. Each is a
backend: ``convref check convref.conformance.faults:six_channels``. `MUTATIONS` are mistakes that
any case should notice; a case that notices none of them is vacuous.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from .. import dtypes, oracle
from ..backends.numpy import declared
from ..case import Call, Spec, axis_letters, channels_last
from ..judge import Numerics
from ..problem import BASE_ROLE, ConvProblem, Pads, Problem
from .operands import poison

Array = np.ndarray[Any, Any]
Operands = tuple[Array | None, ...]
Results = tuple[Array | None, ...]
Region = Callable[[Call], bool]
Wrong = Callable[[Call, Operands], Results]
Change = Callable[[Array, Call, str], Array]  # of one array: itself, the call, its role


@dataclass(frozen=True)
class Fault:
    """A backend that is right outside its region.

    Parameters
    ----------
    name : str
    model : str
        The real bug, by tracker and number where it has one.
    minimal : str
        A small case line that shows the fault; a shrunk one is no larger.
    region : callable
        Whether the fault touches a call of op conv.
    wrong : callable
        Results of a call in the region.
    dtypes : tuple of str
        What a campaign must be asked for, where the default types do not show it.
    """

    name: str
    model: str
    minimal: str
    region: Region
    wrong: Wrong
    dtypes: tuple[str, ...] = ()

    checked_by_dispatch = True  # as the oracle, whose mistakes are not about malformed operands

    def reaches(self, call: Call) -> bool:
        """Return whether the fault may show on `call`."""
        return call.op == "conv" and self.region(call)

    def supports(self, call: Call) -> str | None:
        """Return None unless an operand lies on another device."""
        return None if call.specs[0].device == "cpu" else "operands are not on the CPU"

    def run(self, call: Call, *operands: Any) -> Results:
        """Return the results by role, wrong ones in the region."""
        compute = self.wrong if self.reaches(call) else right
        with np.errstate(all="ignore"):
            return compute(call, operands)

    def numerics(self, call: Call) -> Numerics:
        """Return the model of the kernel that this one should have been."""
        return declared(call)

    def fingerprint(self) -> dict[str, str]:
        """Return which fault this is, and the version of NumPy."""
        return {"fault": self.name, "numpy": np.__version__}


def right(call: Call, operands: Operands) -> Results:
    """Return what the oracle returns."""
    return oracle.evaluate(call, *operands)


# How a kernel goes wrong: it misreads an operand, miswrites a result, or solves another problem.


def reading(base: str, change: Change) -> Wrong:
    """Return a kernel that takes each operand of this base role for something else."""

    def wrong(call: Call, operands: Operands) -> Results:
        return right(call, _changed(call, call.roles, operands, base, change))

    return wrong


def writing(base: str, change: Change) -> Wrong:
    """Return a kernel that spoils each result of this base role."""

    def wrong(call: Call, operands: Operands) -> Results:
        return _changed(call, call.signature.results, right(call, operands), base, change)

    return wrong


def _changed(
    call: Call, roles: tuple[str, ...], arrays: Operands, base: str, change: Change
) -> Operands:
    return tuple(
        change(array.copy(), call, role) if array is not None and BASE_ROLE[role] == base else array
        for role, array in zip(roles, arrays)
    )


def elsewhere(change: Callable[[Problem], Problem]) -> Wrong:
    """Return a kernel that solves another problem of the same sizes."""

    def wrong(call: Call, operands: Operands) -> Results:
        changed = change(call.problem)
        plain = tuple(Spec(spec.dtype, device=spec.device) for spec in call.specs)
        return right(replace(call, problem=changed, specs=plain), operands)

    return wrong


def reshaped(problem: Problem, **changes: Any) -> Problem:
    """Return the problem with changes, and high padding that gives it the same output.

    >>> problem = Problem(n=1, c=1, input=(5,), filter=(3,), padding=1)
    >>> reshaped(problem, dilation=(2,)).padding, reshaped(problem, lo=(2,)).output
    (((1, 3),), (5,))
    """
    old_lo = tuple(lo for lo, _ in problem.padding)
    lows, stride = changes.pop("lo", old_lo), changes.get("stride", problem.stride)
    dilation = changes.get("dilation", problem.dilation)
    transposed = isinstance(problem, ConvProblem) and problem.transposed
    padding = []
    for axis, lo in enumerate(lows):
        span = dilation[axis] * (problem.filter[axis] - 1) + 1
        size, out = problem.input[axis], problem.output[axis]
        small = size if transposed else out
        big = (small - 1) * stride[axis] + span - lo
        padding.append((lo, big - (out if transposed else size)))
    if transposed:
        changes["output_padding"] = (0,) * problem.rank
    pads: Pads = tuple(padding)
    return replace(problem, **{"padding": pads, **changes})


def zeroed(at: Callable[[Call], Any], value: float = 0.0) -> Change:
    """Return a change that leaves part of an array unwritten, or what was there before."""

    def change(array: Array, call: Call, role: str) -> Array:
        array[at(call)] = value
        return array

    return change


# What kernels do wrong.


def _flipped(array: Array, call: Call, role: str) -> Array:
    return np.flip(array, tuple(range(2, array.ndim)))


def _by_group(x: Array, call: Call) -> Array:
    return x.reshape(len(x), call.conv.groups, _per_group(call), *x.shape[2:])


def _channels_from(first: int) -> Change:
    """Return a change that drops the channels of each group from `first` on."""

    def change(x: Array, call: Call, role: str) -> Array:
        by_group = _by_group(x, call)
        by_group[:, :, first:] = 0
        return by_group.reshape(x.shape)

    return change


def _tail_channels(x: Array, call: Call, role: str) -> Array:
    return _channels_from(_per_group(call) // 8 * 8)(x, call, role)


def _first_group(x: Array, call: Call, role: str) -> Array:
    by_group = _by_group(x, call)
    by_group[:, 1:] = by_group[:, :1]
    return by_group.reshape(x.shape)


def _as_contiguous(w: Array, call: Call, role: str) -> Array:
    """Return what lies in memory, read in logical order."""
    letters = axis_letters(call.problem, role)
    order = [letters.index(axis) for axis in call.spec(role).order or letters]
    return np.ascontiguousarray(w.transpose(order)).reshape(w.shape)


def _steps_ignored(x: Array, call: Call, role: str) -> Array:
    """Return x as it is read without its steps: elements between the steps, then the early ones."""
    ((letter, step),) = call.spec(role).step
    axis = axis_letters(call.problem, role).index(letter)
    result = np.full(x.shape, poison(call.dtype), x.dtype)
    places = np.arange(0, x.shape[axis], step)
    where: list[Any] = [slice(None)] * x.ndim
    where[axis] = places
    result[tuple(where)] = np.take(x, places // step, axis)
    return result


def _offset_ignored(dy: Array, call: Call, role: str) -> Array:
    flat = dy.reshape(-1)
    flat[: call.spec(role).offset] = poison(call.dtype)
    return flat.reshape(dy.shape)


def _first_slice_only(dy: Array, call: Call, role: str) -> Array:
    axis = axis_letters(call.problem, role).index(call.spec(role).expand[0])
    np.moveaxis(dy, axis, 0)[1:] = 0
    return dy


def _taps_beyond_image(w: Array, call: Call, role: str) -> Array:
    for axis, size in enumerate(call.problem.input):
        np.moveaxis(w, 2 + axis, 0)[size:] = 0
    return w


def _windows_in_padding(y: Array, call: Call, role: str) -> Array:
    for axis, (geometry, span) in enumerate(zip(call.problem.axes, _spans(call))):
        unread = -(-max(0, geometry.lo - span + 1) // geometry.stride)
        np.moveaxis(y, 2 + axis, 0)[:unread] = 0
    return y


def _output_padding_unwritten(y: Array, call: Call, role: str) -> Array:
    for axis, extra in enumerate(call.conv.output_padding):
        np.moveaxis(y, 2 + axis, 0)[y.shape[2 + axis] - extra :] = 0
    return y


def _last_product_dropped(call: Call, operands: Operands) -> Results:
    """Return y whose last element lacks the last tap of the last channel."""
    (y,) = right(call, operands)
    x, w, b = operands
    assert y is not None
    assert w is not None
    short = w.copy()
    short[(-1,) * w.ndim] = 0
    (other,) = right(call, (x, short, b))
    assert other is not None
    last = (-1,) * y.ndim
    y[last] = other[last]
    return (y,)


def _sum_by_channel(call: Call, operands: Operands) -> Results:
    """Round the sum to the type of the operands after each channel and after the bias."""
    x, w, b = operands
    assert x is not None
    total: Array = np.zeros(call.problem.shape("y"))
    channel = np.arange(call.problem.c).reshape(-1, *(1,) * call.problem.rank)
    for c in range(_per_group(call)):
        one = np.where(channel % _per_group(call) == c, x, x.dtype.type(0))
        (part,) = oracle.evaluate(call, one, w, None, out="f64")
        total = dtypes.rounded(total + part, call.dtype).astype(np.float64)
    if b is not None:
        total = total + b.astype(np.float64).reshape(-1, *(1,) * call.problem.rank)
    return (dtypes.rounded(total, call.dtype),)


def _narrow_bias_gradient(call: Call, operands: Operands) -> Results:
    dx, dw, _ = right(call, operands)
    dy = operands[0]
    assert dy is not None
    total = np.zeros(call.conv.k)
    for column in np.moveaxis(dy, 1, -1).reshape(-1, call.conv.k).astype(np.float64):
        total = dtypes.rounded(total + column, call.dtype).astype(np.float64)
    return dx, dw, dtypes.rounded(total, call.dtype)


def _bias_gradient_axes(call: Call, operands: Operands) -> Results:
    dx, dw, _ = right(call, operands)
    dy = operands[0]
    assert dy is not None
    others = tuple(axis for axis in range(dy.ndim) if axis != 2)
    total = dy.astype(np.float64).sum(axis=others)
    return dx, dw, dtypes.rounded(total, call.dtype)


def _first_images(number: int) -> Wrong:
    """Return a kernel whose filter gradient sums only the first images."""

    def wrong(call: Call, operands: Operands) -> Results:
        dx, _, db = right(call, operands)
        dy, x, w = operands
        assert dy is not None
        few = np.where(np.arange(len(dy)).reshape(-1, *(1,) * (dy.ndim - 1)) < number, dy, 0)
        return dx, right(call, (few.astype(dy.dtype), x, w))[1], db

    return wrong


def _without(index: int) -> Wrong:
    """Return a kernel that forgets the operand at `index`, as if it were absent."""

    def wrong(call: Call, operands: Operands) -> Results:
        return right(call, (*operands[:index], None, *operands[index + 1 :]))

    return wrong


def _without_second_term(call: Call, operands: Operands) -> Results:
    ddx, _, ddb, *rest = operands
    _, dx, dw = right(call, operands)
    return right(call, (ddx, None, ddb, *rest))[0], dx, dw


def _bias_twice(call: Call, operands: Operands) -> Results:
    x, w, b, *dots = operands
    assert b is not None
    return right(call, (x, w, b + b, *dots))


def _only(result: int, wrong: Wrong) -> Wrong:
    """Return a kernel that goes wrong in one result."""

    def compute(call: Call, operands: Operands) -> Results:
        good, bad = right(call, operands), wrong(call, operands)
        return (*good[:result], bad[result], *good[result + 1 :])

    return compute


def _everything(call: Call, operands: Operands) -> Results:
    return right(replace(call, mask=(True, True, True)), operands)


def _no_bias_gradient(call: Call, operands: Operands) -> Results:
    return (*right(call, operands)[:2], None)


def _scaled_in_place(call: Call, operands: Operands) -> Results:
    results, x = right(call, operands), operands[1]
    assert x is not None
    x *= 2
    return results


_parity = count()


def _last_bit_differs(dw: Array, call: Call, role: str) -> Array:
    """Return dw, every second time one unit in the last place larger where it was rounded."""
    larger = np.nextafter(dw, np.inf)
    return np.where((dw == np.rint(dw)) | (next(_parity) % 2 == 0), dw, larger)


def _flushed(array: Array, call: Call, role: str) -> Array:
    array[np.abs(array) < np.finfo(array.dtype).tiny] = 0
    return array


def _through_half(array: Array, call: Call, role: str) -> Array:
    return array.astype(np.float16).astype(array.dtype)


def _truncated(call: Call, operands: Operands) -> Results:
    (y,) = oracle.evaluate(call, *operands, out="f32")
    assert y is not None
    bits = y.view(np.uint32) & np.uint32(0xFFFF0000)
    return (dtypes.rounded(bits.view(np.float32), "bf16"),)


def _nan_to_zero(array: Array, call: Call, role: str) -> Array:
    array[array != array] = 0
    return array


def _clamped(array: Array, call: Call, role: str) -> Array:
    top = np.finfo(array.dtype).max
    return np.clip(array, -top, top)


def _saturated(call: Call, operands: Operands) -> Results:
    (y,) = oracle.evaluate(call, *operands, out="i64")
    assert y is not None
    return (np.clip(y, -128, 127).astype(np.int8),)


def _wide_dtype(array: Array, call: Call, role: str) -> Array:
    return array.astype(np.float32)


def _squeezed(array: Array, call: Call, role: str) -> Array:
    return array.reshape(array.shape[:2])


def _ungrouped(dw: Array, call: Call, role: str) -> Array:
    rows, columns, *rest = dw.shape
    return dw.reshape(rows // call.conv.groups, columns * call.conv.groups, *rest)


def _shuffled(dw: Array, call: Call, role: str) -> Array:
    return np.ascontiguousarray(np.moveaxis(dw, 1, -1)).reshape(dw.shape)


def _second_image_again(y: Array, call: Call, role: str) -> Array:
    y[2:] = y[1]
    return y


def _conjugated(array: Array, call: Call, role: str) -> Array:
    return array.conj()


def _sides_swapped(problem: Problem) -> Problem:
    return reshaped(problem, lo=tuple(hi for _, hi in problem.padding))


def _axes_swapped(problem: Problem) -> Problem:
    return reshaped(problem, lo=tuple(lo for lo, _ in reversed(problem.padding)))


def _crop_forgotten(problem: Problem) -> Problem:
    return reshaped(problem, lo=tuple(max(0, lo) for lo, _ in problem.padding))


def _dense(problem: Problem) -> Problem:
    return reshaped(problem, dilation=(1,) * problem.rank)


def _last_stride(problem: Problem) -> Problem:
    return reshaped(problem, stride=problem.stride[-1:] * problem.rank)


# Where: small questions about a call.


def _per_group(call: Call) -> int:
    return call.conv.c // call.conv.groups


def _spans(call: Call) -> list[int]:
    problem = call.problem
    return [d * (taps - 1) + 1 for d, taps in zip(problem.dilation, problem.filter)]


def _any_axis(call: Call, *conditions: Callable[[Any], bool]) -> bool:
    return any(all(holds(axis) for holds in conditions) for axis in call.problem.axes)


def _strided(axis: Any) -> bool:
    return axis.stride > 1


def _dilated(axis: Any) -> bool:
    return axis.dilation > 1 and axis.taps > 1


def _lopsided(axis: Any) -> bool:
    return axis.lo != axis.hi


def _last_order(call: Call, role: str) -> bool:
    return call.spec(role).order == channels_last(axis_letters(call.problem, role))


def _plain(call: Call) -> bool:
    return call.pass_ == "fprop" and not call.conv.transposed


def _fprop(call: Call) -> bool:
    return call.pass_ == "fprop"


def _gives(call: Call, role: str) -> bool:
    return call.pass_ == "backward" and role in call.wanted


def _repeats(call: Call, role: str) -> bool:
    letters = axis_letters(call.problem, role)
    sizes = dict(zip(letters, call.problem.shape(role)))
    return any(sizes[axis] > 1 for axis in call.spec(role).expand[:1])


_ROWS = (
    Fault(
        "six_channels",
        "pytorch#21597: six input channels, taken four at a time",
        "conv.fprop:n1c6k1_i1_f1:fill=ones",
        lambda call: _plain(call) and _per_group(call) == 6,
        reading("x", _channels_from(4)),
    ),
    Fault(
        "tail_channels",
        "modular#6248: more than 8 channels, the tail of a vector dropped",
        "conv.fprop:n1c9k1_i1_f1:fill=ones",
        lambda call: _plain(call) and _per_group(call) > 8 and _per_group(call) % 8 > 0,
        reading("x", _tail_channels),
    ),
    Fault(
        "channels_last_filter",
        "pytorch#82060: channels-last filter of one input channel",
        "conv.fprop:n1c1k1_i2_f2:mem=w.owi",
        lambda call: _plain(call) and _last_order(call, "w") and _per_group(call) == 1,
        reading("w", _flipped),
    ),
    Fault(
        "transposed_channels_last_filter",
        "pytorch#99519: transposed, channels-last filter, output not initialised",
        "conv.fprop:n1c1k2_i1_f1:t=1:mem=w.iwo:fill=ones",
        lambda call: (
            _fprop(call) and call.conv.transposed and _last_order(call, "w") and call.conv.k > 1
        ),
        writing("y", zeroed(lambda call: np.s_[:, call.conv.k // 2 :], np.nan)),
    ),
    Fault(
        "filter_order_ignored",
        "pytorch#55781: non-contiguous filter read as if contiguous",
        "conv.fprop:n1c2k1_i2_f2:mem=w.owi",
        lambda call: _fprop(call) and bool(call.spec("w").order),
        reading("w", _as_contiguous),
    ),
    Fault(
        "input_steps_ignored",
        "strided input read as if dense",
        "conv.fprop:n1c1k1_i2_f1:mem=x.step2w:fill=ones",
        lambda call: _fprop(call) and bool(call.spec("x").step),
        reading("x", _steps_ignored),
    ),
    Fault(
        "cotangent_offset_ignored",
        "view with an offset read from the start of its storage",
        "conv.bgrad:n1c1k1_i1_f1:mem=dy.off1:fill=ones",
        lambda call: call.pass_ == "backward" and call.spec("dy").offset > 0,
        reading("y", _offset_ignored),
    ),
    Fault(
        "expanded_cotangent",
        "stride 0 of an expanded grad_output not understood",
        "conv.bgrad:n2c1k1_i1_f1:mem=dy.expandn:fill=ones",
        lambda call: call.pass_ == "backward" and _repeats(call, "dy"),
        reading("y", _first_slice_only),
    ),
    Fault(
        "negative_low_padding",
        "xla#48713: low padding below 0 with 8 to 16 channels",
        "conv.fprop:n1c8k1_i2_f1_p-1,0",
        lambda call: (
            _plain(call) and 8 <= _per_group(call) <= 16 and _any_axis(call, lambda a: a.lo < 0)
        ),
        elsewhere(_crop_forgotten),
    ),
    Fault(
        "filter_above_image",
        "pytorch#195394, oneDNN#5942: filter larger than the image",
        "conv.fprop:n1c1k1_i1_f2_p1,0:fill=ones",
        lambda call: _plain(call) and _any_axis(call, lambda axis: axis.taps > axis.big),
        reading("w", _taps_beyond_image),
    ),
    Fault(
        "window_in_padding",
        "a window wholly in padding is skipped, and its bias with it",
        "conv.fprop:n1c1k1_i1_f1_p1,0:fill=ones",
        lambda call: _plain(call) and call.conv.bias,
        writing("y", _windows_in_padding),
    ),
    Fault(
        "dilation_with_stride",
        "dilation ignored where there is a stride too",
        "conv.fprop:n1c1k1_i3_f2_s2_d2",
        lambda call: _plain(call) and _any_axis(call, _strided, _dilated),
        elsewhere(_dense),
    ),
    Fault(
        "transposed_dilation_with_stride",
        "onnxruntime#2518: transposed, stride 2 with dilation 3",
        "conv.fprop:n1c1k1_i1_f2_s2_d2:t=1:fill=ones",
        lambda call: _fprop(call) and call.conv.transposed and _any_axis(call, _strided, _dilated),
        elsewhere(_dense),
    ),
    Fault(
        "transposed_bfloat16",
        "pytorch#148973: ConvTranspose1d, bf16, stride 2, dilation 2",
        "conv.fprop:n1c1k1_i1_f2_s2_d2:t=1:dt=bf16:fill=ones",
        lambda call: (
            _fprop(call)
            and call.conv.transposed
            and call.dtype == "bf16"
            and call.problem.rank == 1
            and _any_axis(call, _strided, _dilated)
        ),
        elsewhere(_dense),
    ),
    Fault(
        "grouped_outputs",
        "modular#6129: groups, outputs of each a multiple of the vector; all read the first group",
        "conv.fprop:n1c2k8g2_i1_f1",
        lambda call: (
            _plain(call)
            and call.conv.groups > 1
            and call.conv.k // call.conv.groups % 4 == 0
            and call.conv.k > 0
        ),
        reading("x", _first_group),
    ),
    Fault(
        "filter_gradient_of_many_images",
        "pytorch#96225: filter gradient of a large batch",
        "conv.wgrad:n5c1k1_i1_f1:fill=ones",
        lambda call: _gives(call, "dw") and call.problem.n > 4,
        _first_images(4),
    ),
    Fault(
        "filter_gradient_of_one_image",
        "transposed filter gradient of the first image alone",
        "conv.wgrad:n2c1k1_i1_f1:t=1:fill=ones",
        lambda call: _gives(call, "dw") and call.conv.transposed,
        _first_images(1),
    ),
    Fault(
        "narrow_sums",
        "pytorch#163347: bf16 products summed in bf16",
        "conv.fprop:n1c1k1_i9_f1:dt=bf16:fill=normal:seed=65534",
        lambda call: _fprop(call) and call.dtype == "bf16",
        _sum_by_channel,
    ),
    Fault(
        "stride_three_tail",
        "pytorch#169688: stride 3, the last column",
        "conv.fprop:n1c1k1_i1_f1_s3:fill=ones",
        lambda call: _plain(call) and call.problem.stride[-1] == 3,
        writing("y", zeroed(lambda call: np.s_[..., -1:])),
    ),
    Fault(
        "last_row_unwritten",
        "tt-metal#14260: the last row of an odd number of rows is never written",
        "conv.fprop:n1c1k1_i3x1_f1x1:fill=ones",
        lambda call: (
            _plain(call)
            and call.problem.rank == 2
            and call.problem.output[0] > 1
            and call.problem.output[0] % 2 == 1
        ),
        writing("y", zeroed(lambda call: np.s_[:, :, -1:], np.nan)),
    ),
    Fault(
        "high_padding_for_low",
        "onnxruntime#26708: pads[1] taken for pads[2]",
        "conv.fprop:n1c1k1_i1_f1_p0,1:fill=ones",
        lambda call: _plain(call) and _any_axis(call, _lopsided),
        elsewhere(_sides_swapped),
    ),
    Fault(
        "padding_of_the_other_axis",
        "padding of rows and columns exchanged",
        "conv.fprop:n1c1k1_i1x1_f1x1_p0,0x1,0:fill=ones",
        lambda call: _plain(call) and call.problem.rank == 2,
        elsewhere(_axes_swapped),
    ),
    Fault(
        "strided_volume",
        "mlx#2038: conv3d, stride 2, asymmetric padding",
        "conv.fprop:n1c1k1_i1x1x1_f1x1x1_s2x1x1_p1,0x0,0x0,0:fill=ones",
        lambda call: (
            _plain(call) and call.problem.rank == 3 and _any_axis(call, _strided, _lopsided)
        ),
        elsewhere(_sides_swapped),
    ),
    Fault(
        "bfloat16_volume",
        "pytorch#163539: conv3d in bf16, the last slice of the filter",
        "conv.fprop:n1c1k1_i2x1x1_f2x1x1:dt=bf16:fill=ones",
        lambda call: (
            _plain(call)
            and call.dtype == "bf16"
            and call.problem.rank == 3
            and call.problem.filter[0] > 1
        ),
        reading("w", zeroed(lambda call: np.s_[:, :, -1:])),
    ),
    Fault(
        "output_padding_unwritten",
        "onnxruntime#11927: output padding gets no bias",
        "conv.fprop:n1c1k1_i1_f1_s2:t=1:op=1:fill=ones",
        lambda call: _fprop(call) and any(call.conv.output_padding),
        writing("y", _output_padding_unwritten),
    ),
    Fault(
        "ungrouped_filter_gradient",
        "mlx#2184: shape of the filter gradient with groups",
        "conv.wgrad:n1c2k2g2_i1_f1:fill=ones",
        lambda call: _gives(call, "dw") and call.conv.groups > 1,
        writing("w", _ungrouped),
    ),
    Fault(
        "filter_gradient_shuffled",
        "tensorflow_macos#230: filter gradient shuffled for more than one channel",
        "conv.wgrad:n1c2k1_i2_f2",
        lambda call: _gives(call, "dw") and min(call.problem.shape("w")[1], *_spans(call)) > 1,
        writing("w", _shuffled),
    ),
    Fault(
        "dropped_product",
        "one product of a long sum is left out",
        "conv.fprop:n1c2k1_i5_f5:fill=ones",
        lambda call: _plain(call) and call.products("y") > 9 and bool(call.problem.n * call.conv.k),
        _last_product_dropped,
    ),
    Fault(
        "bias_gradient_axes",
        "bias gradient summed over the wrong axes where both have one length",
        "conv.bgrad:n1c1k2_i2_f1",
        lambda call: _gives(call, "db") and call.conv.k == call.problem.output[0],
        _bias_gradient_axes,
    ),
    Fault(
        "bias_gradient_narrow",
        "bias gradient summed in the 16-bit type of grad_output",
        "conv.bgrad:n1c1k1_i4_f1:dt=f16:fill=normal:seed=65532",
        lambda call: _gives(call, "db") and call.dtype in ("f16", "bf16") and call.conv.k > 0,
        _narrow_bias_gradient,
    ),
    Fault(
        "no_images",
        "filter gradient of an empty batch is not initialised",
        "conv.wgrad:n0c1k1_i1_f1:fill=ones",
        lambda call: _gives(call, "dw") and call.problem.n == 0,
        writing("w", zeroed(lambda call: ..., np.nan)),
    ),
    Fault(
        "tangent_dropped",
        "JVP without the term of the input's tangent",
        "conv.jvp:n1c1k1_i1_f1:tan=x:fill=ones",
        lambda call: call.pass_ == "jvp" and call.is_present("x_dot"),
        _without(3),
    ),
    Fault(
        "bias_twice",
        "bias added by the kernel and once more after it",
        "conv.jvp:n1c1k1_i1_f1:tan=0:fill=ones",
        lambda call: call.pass_ == "jvp" and call.conv.bias,
        _bias_twice,
    ),
    Fault(
        "double_backward_term",
        "double backward without fprop(x, ddw)",
        "conv.double_backward:n1c1k1_i1_f1:tan=w:mask=100:fill=ones",
        lambda call: call.pass_ == "double_backward" and "ddy" in call.wanted,
        _without_second_term,
    ),
    Fault(
        "second_derivative_padding",
        "jax#563: padding of the transpose rule in the second derivative of a strided convolution",
        "conv.double_backward:n1c1k1_i1_f1_s2_p1,0:tan=x:mask=001:fill=ones",
        lambda call: (
            call.pass_ == "double_backward"
            and "dw" in call.wanted
            and _any_axis(call, _strided, _lopsided)
        ),
        _only(2, elsewhere(_sides_swapped)),
    ),
    Fault(
        "conjugate_missing",
        "complex input gradient with the filter instead of its conjugate",
        "conv.dgrad:n1c1k1_i1_f1:dt=c64",
        lambda call: _gives(call, "dx"),
        _only(0, reading("w", _conjugated)),
        ("c64", "c128"),
    ),
    Fault(
        "conjugate_exchanged",
        "complex transposed filter gradient with the conjugate on the wrong factor",
        "conv.wgrad:n1c1k1_i1_f1:t=1:dt=c64",
        lambda call: _gives(call, "dw") and call.conv.transposed,
        writing("w", _conjugated),
        ("c64", "c128"),
    ),
    Fault(
        "saturates",
        "int8 result saturates where it should wrap",
        "conv.fprop:n1c1k1_i1_f1:dt=i8:fill=wide:seed=65535",
        _fprop,
        _saturated,
        ("i8",),
    ),
    Fault(
        "grouped_int8",
        "xla#49123: int8, two groups, four channels, 1x1",
        "conv.fprop:n1c4k4g2_i1_f1:dt=i8",
        lambda call: (
            _plain(call)
            and call.dtype == "i8"
            and call.conv.groups == 2
            and _per_group(call) % 2 == 0
            and set(call.problem.filter) == {1}
        ),
        reading("x", _first_group),
        ("i8",),
    ),
    Fault(
        "flushes_subnormals",
        "subnormal operands and results flushed, which nobody declared",
        "conv.fprop:n1c1k1_i1_f1:fill=subnormal:seed=65535",
        lambda call: _fprop(call) and call.dtype == "f32",
        writing("y", _flushed),
    ),
    Fault(
        "through_half",
        "float32 filter gradient rounded to float16 on its way",
        "conv.wgrad:n1c1k1_i1_f1:fill=normal",
        lambda call: _gives(call, "dw") and call.dtype == "f32",
        writing("w", _through_half),
    ),
    Fault(
        "truncated",
        "bf16 result truncated, not rounded",
        "conv.fprop:n1c1k1_i4_f1:dt=bf16:fill=positive:seed=65534",
        lambda call: _fprop(call) and call.dtype == "bf16",
        _truncated,
    ),
    Fault(
        "nan_swallowed",
        "a maximum with 0 that turns NaN into 0",
        "conv.fprop:n1c1k1_i1_f1_p0,1:fill=inf:seed=65533",
        lambda call: _fprop(call) and call.dtype == "f32",
        writing("y", _nan_to_zero),
    ),
    Fault(
        "infinity_clamped",
        "an infinity becomes the largest number",
        "conv.dgrad:n1c1k1_i1_f1:fill=inf:seed=65535",
        lambda call: _gives(call, "dx") and call.dtype == "f32",
        writing("x", _clamped),
    ),
    Fault(
        "input_scaled_in_place",
        "workspace shared with the input",
        "conv.dgrad:n1c1k1_i1_f1:t=1:fill=ones",
        lambda call: _gives(call, "dx") and call.conv.transposed,
        _scaled_in_place,
    ),
    Fault(
        "depthwise_dtype",
        "depthwise filter gradient comes back in float32",
        "conv.wgrad:n1c2k2g2_i1_f1:dt=f16:fill=ones",
        lambda call: (
            _gives(call, "dw") and call.dtype == "f16" and call.conv.groups == call.problem.c > 1
        ),
        writing("w", _wide_dtype),
    ),
    Fault(
        "squeezed",
        "an output of one position loses its spatial axes",
        "conv.fprop:n1c1k1_i1x1_f1x1:fill=ones",
        lambda call: _plain(call) and call.problem.output == (1, 1),
        writing("y", _squeezed),
    ),
    Fault(
        "nondeterministic_gradient",
        "pytorch#34344: partial sums of the filter gradient added in any order",
        "conv.wgrad:n3c1k1_i1_f1:dt=f64:fill=normal:seed=65535",
        lambda call: _gives(call, "dw") and call.dtype == "f64" and call.products("dw") > 2,
        writing("w", _last_bit_differs),
    ),
    Fault(
        "mask_ignored",
        "filter gradient returned although it is masked off",
        "conv.dgrad:n1c1k1_i1_f1:fill=ones",
        lambda call: call.pass_ == "backward" and not call.mask[1],
        _everything,
    ),
    Fault(
        "bias_gradient_absent",
        "no bias gradient unless the input gradient is wanted too",
        "conv.bgrad:n1c1k1_i1_f1:fill=ones",
        lambda call: _gives(call, "db") and not call.mask[0],
        _no_bias_gradient,
    ),
    Fault(
        "flip_ignored",
        "true convolution computed as cross-correlation",
        "conv.fprop:n1c1k1_i2_f2:flip=1",
        lambda call: _plain(call) and call.conv.flip,
        reading("w", _flipped),
    ),
    Fault(
        "stride_of_the_other_axis",
        "rows take the stride of the columns where the image has one column",
        "conv.fprop:n1c1k1_i3x1_f1x1_s2x1",
        lambda call: _plain(call) and call.problem.rank == 2 and call.problem.input[1] == 1,
        elsewhere(_last_stride),
    ),
    Fault(
        "third_image",
        "images from the third on repeat the second",
        "conv.fprop:n3c1k1_i1_f1",
        lambda call: _plain(call) and call.problem.n > 2,
        writing("y", _second_image_again),
    ),
    Fault(
        "channels_last_filter_in_dgrad",
        "input gradient misreads a channels-last filter",
        "conv.dgrad:n1c1k1_i1_f2_p0,1:mem=w.owi",
        lambda call: _gives(call, "dx") and _last_order(call, "w"),
        _only(0, reading("w", _flipped)),
    ),
    Fault(
        "seventeenth_column",
        "modular#6461: the column after a full vector",
        "conv.fprop:n1c1k1_i17_f1:fill=ones",
        lambda call: _plain(call) and call.problem.output[-1] > 16,
        writing("y", zeroed(lambda call: np.s_[..., 16])),
    ),
)

FAULTS = {fault.name: fault for fault in _ROWS}


def _both(base: str, change: Change) -> Wrong:
    """Return a kernel that treats operands and results of this base role alike."""

    def wrong(call: Call, operands: Operands) -> Results:
        read = _changed(call, call.roles, operands, base, change)
        return _changed(call, call.signature.results, right(call, read), base, change)

    return wrong


# Mistakes that any case should notice, the surest first: where each can be made, and the kernel.
MUTATIONS: dict[str, tuple[Region, Wrong]] = {
    "last column unwritten": (
        lambda call: call.op == "conv",
        _both("y", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "last column of windows unwritten": (
        lambda call: call.op != "conv",
        _both("cols", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "last channel dropped": (lambda call: True, _both("x", zeroed(lambda call: np.s_[:, -1:]))),
    "last tap dropped": (
        lambda call: call.op == "conv",
        _both("w", zeroed(lambda call: np.s_[..., -1:])),
    ),
    "filter flipped": (
        lambda call: call.op == "conv" and max(call.problem.filter) > 1,
        _both("w", _flipped),
    ),
    "padding swapped": (
        lambda call: _any_axis(call, _lopsided),
        elsewhere(_sides_swapped),
    ),
    "bias forgotten": (
        lambda call: call.op == "conv",
        _both("b", zeroed(lambda call: ...)),
    ),
}


def __getattr__(name: str) -> Fault:
    """Return the fault of that name: each is an attribute, as `convref.dispatch.load` wants it."""
    try:
        return FAULTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
