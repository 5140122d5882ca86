"""Reference formulas, kernels and a court for convolutional networks.

>>> import numpy as np, convref
>>> convref.conv1d(np.arange(4.).reshape(1, 1, 4), np.ones((1, 1, 3)), padding=1)
array([[[1., 3., 6., 5.]]])
"""

from .api import activation as _activation
from .api import (
    assert_correct,
    case_of,
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
    fold,
    interpolate,
    interpolate_backward,
    interpolate_double_backward,
    interpolate_jvp,
    resize,
    resize_backward,
    unfold,
)
from .api import norm as _norm
from .api import pool as _pool
from .api.activation import *  # noqa: F403 - the many names that its __all__ lists
from .api.norm import *  # noqa: F403
from .api.pool import *  # noqa: F403 - the many names that its __all__ lists
from .case import Call, Case, Spec, parse, parse_problem
from .dispatch import explain, plan, run
from .errors import ConvrefError, UnsupportedError
from .judge import Numerics, Verdict, judge
from .ops import (
    SIGNATURE,
    ActivationProblem,
    AdaptiveMaxPoolProblem,
    AdaptivePoolProblem,
    AvgPoolProblem,
    BatchNormProblem,
    ConvProblem,
    CrossEntropyProblem,
    FrozenNormProblem,
    GeluProblem,
    GroupNormProblem,
    LayerNormProblem,
    LeakyReluProblem,
    LpPoolProblem,
    PoolProblem,
    ReluProblem,
    ResizeProblem,
    SoftmaxProblem,
    UnpoolProblem,
    WindowProblem,
)

__version__ = "0.1.0"

__all__ = [
    "SIGNATURE",
    "ActivationProblem",
    "AdaptiveMaxPoolProblem",
    "AdaptivePoolProblem",
    "AvgPoolProblem",
    "BatchNormProblem",
    "Call",
    "Case",
    "ConvProblem",
    "ConvrefError",
    "CrossEntropyProblem",
    "FrozenNormProblem",
    "GeluProblem",
    "GroupNormProblem",
    "LayerNormProblem",
    "LeakyReluProblem",
    "LpPoolProblem",
    "Numerics",
    "PoolProblem",
    "ReluProblem",
    "ResizeProblem",
    "SoftmaxProblem",
    "Spec",
    "UnpoolProblem",
    "UnsupportedError",
    "Verdict",
    "WindowProblem",
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
    "explain",
    "fold",
    "interpolate",
    "interpolate_backward",
    "interpolate_double_backward",
    "interpolate_jvp",
    "judge",
    "parse",
    "parse_problem",
    "plan",
    "resize",
    "resize_backward",
    "run",
    "unfold",
]
__all__ += [*_pool.__all__, *_norm.__all__, *_activation.__all__]
