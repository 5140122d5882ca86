"""Form: presence, shape and type of a result, before any of its numbers is looked at."""

import numpy as np

from .. import dtypes
from ..arrays import Array
from ..case import Call
from ..errors import a_kind


def fault(call: Call, role: str, got: Array | None) -> str:
    """Return the error in presence, shape or type of a result, or an empty text."""
    wanted = role in call.wanted
    if got is None or not wanted:
        if (got is not None) == wanted:
            return ""
        return f"{role} is {'absent' if got is None else 'present'}, the mask requires the opposite"
    if not isinstance(got, np.ndarray):
        return f"{role} is {a_kind(got)}, needs a NumPy array"
    if tuple(got.shape) != call.problem.shape(role):
        return f"{role} has shape {tuple(got.shape)}, needs {call.problem.shape(role)}"
    needs = dtypes.numpy_dtype(call.dtype_of(role))
    if got.dtype != needs:
        return f"{role} has dtype {got.dtype}, needs {needs}"
    return ""
