"""The builder that a kernel's operations end in: mended arithmetic over a checked memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from .errors import StrictError
from .memory import Memory
from .mend import MendedBuilder
from .private import TensorHandle, numpy_dtype

Array = np.ndarray[Any, Any]
_PATTERN = 0x7AD1_BEEF_7AD1_BEEF  # an index of this size is out of bounds of everything


def _poison(dtype: Any) -> Any:
    """Return what a masked lane holds that nobody gave a value."""
    number = numpy_dtype(dtype)
    if dtype == tl.bfloat16:
        return np.uint16(0x7FC0)
    if number.kind == "f":
        return number.type("nan")
    return number.type(_PATTERN >> (64 - 8 * number.itemsize)) if number.kind != "b" else True


def _whether(mask: Any) -> Array | None:
    """Return a mask as an array: descriptors hand over bare ones."""
    if mask is None or isinstance(mask, np.ndarray):
        return mask
    return mask.data


class Builder(MendedBuilder):
    """What interprets one program after another of a launch."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory({})

    def create_load(self, ptr: Any, *_: Any) -> Any:
        """Load everywhere."""
        return self.create_masked_load(ptr, None, None)

    def create_store(self, ptr: Any, value: Any, *_: Any) -> None:
        """Store everywhere."""
        self.create_masked_store(ptr, value, None)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *_: Any, **__: Any) -> Any:
        """Load where `mask` says so."""
        dtype = ptrs.get_element_ty()
        poison = _poison(dtype) if self.memory.strict else 0
        filler = None if other is None else other.data
        data = self.memory.load(ptrs.data, _whether(mask), filler, numpy_dtype(dtype), poison)
        return TensorHandle(data, dtype)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *_: Any, **__: Any) -> None:
        """Store where `mask` says so."""
        self.memory.store(ptrs.data, _whether(mask), value.data)

    def create_assume(self, condition: Any) -> None:
        """Check what the compiler is told to take for granted."""
        if not condition.data.all():
            raise StrictError("assumption", self.memory.where, "tl.assume does not hold")

    def create_atomic_rmw(self, *_: Any) -> Any:
        """Refuse: sums in no fixed order are not repeatable."""
        raise StrictError("atomic", self.memory.where, "an atomic operation, needs a fixed order")

    create_atomic_cas = create_atomic_rmw
    create_atomic_load = create_atomic_store = create_atomic_poll = create_atomic_rmw
