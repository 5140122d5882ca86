"""The sizes and geometry of a call, validated once, and everything computed from them.

A Problem has no dtype, memory order or device; those belong to `convref.case.Call`.
Capital letters in comments and docs: N batch, C input channels, K output channels, G groups,
D H W input, T R S filter, O P Q output.
"""

from .activation import (
    ActivationProblem,
    CeluProblem,
    EluProblem,
    GeluProblem,
    HardtanhProblem,
    LeakyReluProblem,
    PreluProblem,
    ReluProblem,
    SeluProblem,
    SoftplusProblem,
)
from .base import BASE_ROLE, INDICES, STATISTICS, Field, Problem
from .conv import ConvProblem
from .norm import (
    BatchNormProblem,
    FrozenNormProblem,
    GroupNormProblem,
    LayerNormProblem,
    NormProblem,
    RmsNormProblem,
)
from .pool import (
    AdaptiveAxis,
    AdaptiveMaxPoolProblem,
    AdaptivePoolProblem,
    AvgPoolProblem,
    LpPoolProblem,
    PoolProblem,
    UnpoolProblem,
)
from .resize import PixelShuffleProblem, PixelUnshuffleProblem, ResizeProblem
from .sampling import ResizeAxis
from .sizes import (
    FILTER_AXES,
    MAX_ELEMENTS,
    MAX_SIZE,
    OUTPUT_AXES,
    RANKS,
    SPATIAL,
    Pads,
    Sizes,
    integer,
    integers,
    items,
    pads,
    plain,
)
from .softmax import CrossEntropyProblem, SoftmaxProblem
from .spec import OpSpec, Pass, Signature, Terms
from .table import FAMILY, GROUPS, MASK_NAMES, OPS, SIGNATURE, TERMS, mask_names, ops_of, passes
from .window import Axis, WindowProblem

__all__ = [
    "BASE_ROLE",
    "FAMILY",
    "FILTER_AXES",
    "GROUPS",
    "INDICES",
    "MASK_NAMES",
    "MAX_ELEMENTS",
    "MAX_SIZE",
    "OPS",
    "OUTPUT_AXES",
    "RANKS",
    "SIGNATURE",
    "SPATIAL",
    "STATISTICS",
    "TERMS",
    "ActivationProblem",
    "AdaptiveAxis",
    "AdaptiveMaxPoolProblem",
    "AdaptivePoolProblem",
    "AvgPoolProblem",
    "Axis",
    "BatchNormProblem",
    "CeluProblem",
    "ConvProblem",
    "CrossEntropyProblem",
    "EluProblem",
    "Field",
    "FrozenNormProblem",
    "GeluProblem",
    "GroupNormProblem",
    "HardtanhProblem",
    "LayerNormProblem",
    "LeakyReluProblem",
    "LpPoolProblem",
    "NormProblem",
    "OpSpec",
    "Pads",
    "Pass",
    "PixelShuffleProblem",
    "PixelUnshuffleProblem",
    "PoolProblem",
    "PreluProblem",
    "Problem",
    "ReluProblem",
    "ResizeAxis",
    "ResizeProblem",
    "RmsNormProblem",
    "SeluProblem",
    "Signature",
    "Sizes",
    "SoftmaxProblem",
    "SoftplusProblem",
    "Terms",
    "UnpoolProblem",
    "WindowProblem",
    "integer",
    "integers",
    "items",
    "mask_names",
    "ops_of",
    "pads",
    "passes",
    "plain",
]
