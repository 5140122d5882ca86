"""Checks of a kernel's hints to the compiler against the actual values.

As in the compiler, `multiple_of` applies to the first of each run of consecutive values, which the
idiom `max_contiguous(multiple_of(offsets, BLOCK), BLOCK)` requires.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from .errors import StrictError

Array = np.ndarray[Any, Any]


def _groups(values: Array, axis: int, size: int) -> Array:
    """Return `values` with `axis` split into aligned groups of `size`, the group last."""
    moved = np.moveaxis(values, axis, -1)
    return moved.reshape(*moved.shape[:-1], -1, size)


def _in_runs(values: Array, axis: int, size: int, step: int) -> bool:
    grouped = _groups(values, axis, size).astype(np.int64)
    return bool((np.diff(grouped, axis=-1) == step).all())


def is_multiple(values: Array, axis: int, factor: int, step: int) -> bool:
    """Return whether each run of consecutive values along `axis` begins at a multiple."""
    size = values.shape[axis]
    while size > 1 and not _in_runs(values, axis, size, step):
        size //= 2
    return not (_groups(values, axis, size)[..., 0] % np.asarray(factor, values.dtype)).any()


def is_contiguous(values: Array, axis: int, size: int, step: int) -> bool:
    return _in_runs(values, axis, min(size, values.shape[axis]), step)


def is_constant(values: Array, axis: int, size: int, step: int) -> bool:
    return _in_runs(values, axis, min(size, values.shape[axis]), 0)


HINTS = {
    "multiple_of": (is_multiple, "not-a-multiple", "multiples of"),
    "max_contiguous": (is_contiguous, "not-contiguous", "consecutive, in groups of"),
    "max_constancy": (is_constant, "not-constant", "equal, in groups of"),
}


def checked(name: str, builder: Any) -> Callable[..., Any]:
    """Return the hint `name` as a function that checks it."""
    holds, kind, needed = HINTS[name]

    def hint(input: Any, values: Any, **_: Any) -> Any:
        factors = [getattr(v, "value", v) for v in (values if isinstance(values, list | tuple)
                   else [values])]  # fmt: skip
        data = input.handle.data if isinstance(input, tl.tensor) else np.array([input])
        data = data if data.ndim > 1 else data[:, None]
        rank = data.ndim - 1  # after the axis of programs
        if len(factors) != rank:
            raise ValueError(f"tl.{name}: {len(factors)} values for a block of rank {rank}")
        if not builder.memory.strict:
            return input
        pointer = isinstance(input, tl.tensor) and input.dtype.is_ptr()
        step = input.dtype.element_ty.primitive_bitwidth // 8 if pointer else 1
        for axis, factor in enumerate(factors):
            if not holds(data, axis + 1, factor, step):
                raise StrictError(
                    kind, builder.memory.where, f"values of tl.{name} need to be {needed} {factor}"
                )
        return input

    return hint
