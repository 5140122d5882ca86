"""The initial value of every sum."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return zeros of the dtype of `like`; Python's own in an object array."""
    return np.full(shape, like.dtype.type(0) if like.dtype != object else 0, like.dtype)
