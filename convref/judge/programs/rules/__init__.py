"""The rules: for each ATen operation, how errors of its operands reach its result.

A rule takes an `Op` and the operands, tensors as `Pair`, and returns a `Pair` for each result.
docs/programs.md proves them. A family of operations is a file.
"""

from . import (
    arithmetic,
    attention,
    choices,
    moves,
    norms,
    pointwise,
    pools,
    products,
    reductions,
    softmax,
)
from .choices import AMBIGUOUS
from .table import RULES

__all__ = [
    "AMBIGUOUS",
    "RULES",
    "arithmetic",
    "attention",
    "choices",
    "moves",
    "norms",
    "pointwise",
    "pools",
    "products",
    "reductions",
    "softmax",
]
