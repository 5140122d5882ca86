"""What users call: arrays in, arrays of the same kind, dtype and device out.

Each function builds a Call once, keeps it under the raw shapes, strides and arguments, and hands
the arrays to the backend that `convref.dispatch` planned for it.
"""

from . import activation, conv, norm, pool
from .activation import *  # noqa: F403 - the many names that its __all__ lists
from .conv import *  # noqa: F403
from .norm import *  # noqa: F403
from .pool import *  # noqa: F403 - the many names that its __all__ lists
from .resize import (
    interpolate,
    interpolate_backward,
    interpolate_double_backward,
    interpolate_jvp,
    resize,
    resize_backward,
)
from .testing import assert_correct, case_of
from .unfold import fold, unfold

__all__ = [
    "assert_correct",
    "case_of",
    "fold",
    "interpolate",
    "interpolate_backward",
    "interpolate_double_backward",
    "interpolate_jvp",
    "resize",
    "resize_backward",
    "unfold",
]
__all__ += [*conv.__all__, *pool.__all__, *norm.__all__, *activation.__all__]
