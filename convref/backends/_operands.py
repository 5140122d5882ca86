"""Check operands for libraries that would cast, broadcast or ignore wrong ones."""

from typing import Any

import numpy as np

from ..arrays import Array, to_numpy
from ..case import Call, check_operands


def contiguous(call: Call, operands: tuple[Any, ...]) -> list[Array | None]:
    """Return the operands as contiguous NumPy arrays, None where absent.

    Raises
    ------
    ConvrefError
        If the presence, shape or dtype of one disagrees with the call.
    """
    arrays = [None if a is None else np.asarray(to_numpy(a), order="C") for a in operands]
    check_operands(call, arrays)
    return arrays
