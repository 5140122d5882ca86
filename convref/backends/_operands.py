"""Operands as a library gets them, for backends whose library would bend or ignore wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..case import Call
from ..dtypes import code_of
from ..errors import ConvrefError, message

Array = np.ndarray[Any, Any]


def contiguous(call: Call, operands: tuple[Any, ...]) -> list[Array | None]:
    """Return the operands as contiguous NumPy arrays, None where absent.

    Raises
    ------
    ConvrefError
        If the presence, shape or dtype of one disagrees with the call.
    """
    arrays = [None if a is None else np.asarray(to_numpy(a), order="C") for a in operands]
    for role, array in zip(call.roles, arrays, strict=True):
        need = (call.problem.shape(role), call.dtype_of(role)) if call.is_present(role) else None
        got = None if array is None else (array.shape, code_of(array.dtype))
        if got != need:
            where = f"{call.op}.{call.pass_}"
            raise ConvrefError(message(where, f"{role} is {got}, needs {need}", call))
    return arrays
