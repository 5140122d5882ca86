"""The builder that executes a kernel's operations: fixed arithmetic on checked memory."""

from typing import Any

import numpy as np
import triton.language as tl

from .errors import StrictError
from .fixes import FP8, FixedBuilder
from .memory import CheckedMemory
from .triton_internals import TensorHandle, numpy_dtype

Array = np.ndarray[Any, Any]
_PATTERN = 0x7AD1_BEEF_7AD1_BEEF  # an index of this size is out of bounds of everything


def _poison(dtype: Any) -> Any:
    """Return the value of a masked lane without `other`."""
    number = numpy_dtype(dtype)
    if dtype == tl.bfloat16:
        return np.uint16(0x7FC0)
    if dtype in FP8:
        return np.uint8(0x7F)
    if number.kind == "f":
        return number.type("nan")
    return number.type(_PATTERN >> (64 - 8 * number.itemsize)) if number.kind != "b" else True


def _mask(mask: Any) -> Array | None:
    """Return a mask as an array, which it is already if a descriptor passes it."""
    if mask is None or isinstance(mask, np.ndarray):
        return mask
    return mask.data


class Builder(FixedBuilder):
    """The builder of all programs of a launch, on checked memory."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = CheckedMemory({})

    def create_load(self, ptr: Any, *_: Any) -> Any:
        return self.create_masked_load(ptr, None, None)

    def create_store(self, ptr: Any, value: Any, *_: Any) -> None:
        self.create_masked_store(ptr, value, None)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *_: Any, **__: Any) -> Any:
        dtype = ptrs.get_element_ty()
        poison = _poison(dtype) if self.memory.strict else 0
        filler = None if other is None else other.data
        data = self.memory.load(ptrs.data, _mask(mask), filler, numpy_dtype(dtype), poison)
        return TensorHandle(data, dtype)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *_: Any, **__: Any) -> None:
        self.memory.store(ptrs.data, _mask(mask), value.data)

    def create_assume(self, condition: Any) -> None:
        if not condition.data.all():
            raise StrictError("assumption", self.memory.where, "tl.assume does not hold")

    def create_atomic_rmw(self, *_: Any) -> Any:
        """Refuse: sums in an undefined order are not reproducible."""
        raise StrictError("atomic", self.memory.where, "an atomic operation, needs a fixed order")

    create_atomic_cas = create_atomic_rmw
    create_atomic_load = create_atomic_store = create_atomic_poll = create_atomic_rmw
