"""What users call: arrays in, arrays of the same kind, dtype and device out.

Each function builds a Call once, keeps it under the raw shapes, strides and arguments, and hands
the arrays to the backend that `convref.dispatch` planned for it.
"""

from . import activation, norm, pool
from .activation import *  # noqa: F403 - the many names that its __all__ lists
from .conv import (
    conv1d,
    conv1d_backward,
    conv1d_jvp,
    conv2d,
    conv2d_backward,
    conv2d_jvp,
    conv3d,
    conv3d_backward,
    conv3d_jvp,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    convolution,
    convolution_backward,
    convolution_double_backward,
)
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
    "conv1d",
    "conv1d_backward",
    "conv1d_jvp",
    "conv2d",
    "conv2d_backward",
    "conv2d_jvp",
    "conv3d",
    "conv3d_backward",
    "conv3d_jvp",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "convolution_backward",
    "convolution_double_backward",
    "fold",
    "interpolate",
    "interpolate_backward",
    "interpolate_double_backward",
    "interpolate_jvp",
    "resize",
    "resize_backward",
    "unfold",
]
__all__ += [*pool.__all__, *norm.__all__, *activation.__all__]
