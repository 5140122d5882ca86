"""The operands of a case, in the memory layout of each Spec."""

import mmap
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..arrays import Array
from ..case import Call, Case, Spec, axis_letters
from ..errors import invalid
from ..ops import STATISTICS
from .families import GENERATED
from .fills import values

SPARSE = 2**26  # elements; of a larger buffer, memory is used only for the pages that are written
_NO_RESERVE = 0x4000  # of Linux; not in Python's mmap before 3.13


def operands(case: Case) -> tuple[Array | None, ...]:
    """Return the operands of `case` in signature order, None for those that are absent.

    Each has logical axis order and shape; its strides follow the Spec. Elements of a buffer
    that no index reaches (between steps, before the offset) hold NaN, or for integers the
    largest value, so that a kernel that reads them fails. An expanded axis repeats its first slice
    with stride 0. With "alias" around the case, operands that could be one array are one.

    Examples
    --------
    >>> from convref.case import parse
    >>> x, w, b = operands(parse("conv.fprop:n1c2k1_i3_f1:bias=0:mem=x.nwc.step2w"))
    >>> x.shape, x.strides, b
    ((1, 2, 3), (48, 4, 16), None)
    """
    call, given = case.call, dict[str, Array]()
    for role in filter(call.is_present, call.roles):
        if "alias" in case.around and (other := _twin(call, role, given)):
            given[role] = given[other]
            continue
        made = GENERATED[role](case, given) if role in GENERATED else values(case, role)
        given[role] = lay_out(made, call.spec(role), axis_letters(call.problem, role))
    return tuple(map(given.get, call.roles))


def _twin(call: Call, role: str, given: dict[str, Array]) -> str:
    """Return an earlier operand that could be the same array, or an empty text."""
    if role in GENERATED or role in STATISTICS:
        return ""
    same = (r for r in given if r not in GENERATED and r not in STATISTICS)
    shape, spec = call.problem.shape(role), call.spec(role)
    return next((r for r in same if call.problem.shape(r) == shape and call.spec(r) == spec), "")


def lay_out(array: Array, spec: Spec, letters: str) -> Array:
    """Return `array`, in logical order, as a view of a buffer with the layout of `spec`.

    The letters are the names of its axes in logical order, from `convref.case.axis_letters`.
    """
    order = spec.order or letters
    if not (spec.step or spec.expand or spec.offset):
        if order == letters:
            return np.ascontiguousarray(array)
        # not ascontiguousarray: it leaves the strides of axes of extent 1 as they were
        laid = np.empty([array.shape[letters.index(axis)] for axis in order], array.dtype)
        laid = laid.transpose([order.index(axis) for axis in letters])
        laid[...] = array
        return laid
    sizes = dict(zip(letters, array.shape))
    slices = tuple(slice(0, 1) if axis in spec.expand else slice(None) for axis in letters)
    view = _view(sizes, order, spec, array.dtype)
    view = view.transpose([order.index(axis) for axis in letters])
    view[...] = array[slices]
    strides = [stride * view.itemsize for stride in spec.strides(array.shape, letters)]
    bits = view.view(np.uint8) if view.itemsize == 1 else view  # it fails for e5m2
    return np.lib.stride_tricks.as_strided(bits, array.shape, strides).view(view.dtype)


def _view(sizes: dict[str, int], order: str, spec: Spec, dtype: np.dtype[Any]) -> Array:
    """Return a view, in memory order, of a new poisoned buffer; expanded axes have extent 1.

    In a sparse buffer only the elements that follow those of the view hold poison.
    """
    steps = dict(spec.step)
    kept = [min(sizes[axis], 1) if axis in spec.expand else sizes[axis] for axis in order]
    wide = [size * abs(steps.get(axis, 1)) for size, axis in zip(kept, order)]
    used = tuple(slice(None, None, steps.get(axis)) for axis in order)
    count = spec.offset + prod(wide)
    if count <= SPARSE:
        return np.full(count, poison(spec.dtype), dtype)[spec.offset :].reshape(wide)[used]
    laid = _sparse(count, dtype)[spec.offset :].reshape(wide)
    laid[tuple(slice(steps.get(a) and 1, None, steps.get(a)) for a in order)] = poison(spec.dtype)
    return laid[used]


def _sparse(count: int, dtype: np.dtype[Any]) -> Array:
    """Return zeros that take no memory until they are written."""
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        return np.frombuffer(mmap.mmap(-1, count * dtype.itemsize, flags=flags), dtype)
    except (AttributeError, OSError, ValueError) as error:
        raise invalid("operands", f"no buffer of {count} elements of {dtype}: {error}") from None


def poison(dtype: str) -> Any:
    """Return the value of elements that no kernel may read: NaN, or the largest integer.

    >>> poison("f32"), poison("i8")
    (nan, 127)
    """
    if dtype == "obj":
        return Fraction(10**30)
    if dtype in dtypes.INTEGERS:
        return np.iinfo(dtypes.numpy_dtype(dtype)).max
    return float("nan")
