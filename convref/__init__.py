"""Reference formulas, kernels and a court for convolutional networks.

>>> import numpy as np, convref
>>> convref.conv1d(np.arange(4.).reshape(1, 1, 4), np.ones((1, 1, 3)), padding=1)
array([[[1., 3., 6., 5.]]])
"""

from . import api as _api
from .case import Call, Case, Spec, parse, parse_problem
from .dispatch import explain, plan, run
from .errors import ConvrefError, UnsupportedError
from .judge import Numerics, Verdict, judge
from .ops import SIGNATURE

__version__ = "0.1.0"

globals().update({name: getattr(_api, name) for name in _api.__all__})
__all__ = [
    "SIGNATURE",
    "Call",
    "Case",
    "ConvrefError",
    "Numerics",
    "Spec",
    "UnsupportedError",
    "Verdict",
    "explain",
    "judge",
    "parse",
    "parse_problem",
    "plan",
    "run",
]
__all__ += _api.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
