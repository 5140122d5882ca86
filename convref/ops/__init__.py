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
    HardshrinkProblem,
    HardtanhProblem,
    LeakyReluProblem,
    PreluProblem,
    ReluProblem,
    SeluProblem,
    SoftplusProblem,
    SoftshrinkProblem,
    ThresholdProblem,
)
from .attention import AttentionProblem
from .base import BASE_ROLE, OWN_TYPE, STATISTICS, Field, Problem, role_dtype
from .conv import ConvProblem
from .matmul import MatmulProblem
from .norm import (
    BatchNormProblem,
    FrozenNormProblem,
    GroupNormProblem,
    InstanceNormProblem,
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
from .quantized import ConvIntegerProblem, QuantizedConvProblem, ScaledConvProblem
from .reduce import CumsumProblem, MeanProblem, SumProblem
from .resize import PixelShuffleProblem, PixelUnshuffleProblem, ResizeProblem
from .resize_axis import ResizeAxis
from .sample import DeformConvProblem, GridSampleProblem, RoiAlignProblem
from .scaling import LocalResponseNormProblem, NormalizeProblem
from .sizes import (
    FILTER_AXES,
    OUTPUT_AXES,
    RANKS,
    SPATIAL,
    Pads,
    Sizes,
    integer,
    integers,
    items,
    pads,
    to_builtins,
)
from .softmax import (
    CrossEntropyProblem,
    HardmaxProblem,
    LossProblem,
    NllLossProblem,
    SoftCrossEntropyProblem,
    SoftmaxProblem,
)
from .spec import OpSpec, Pass, Signature, Terms
from .table import FAMILY, GROUPS, MASK_NAMES, OPS, SIGNATURE, TERMS, mask_names, ops_of, passes
from .window import Axis, WindowProblem

__all__ = [
    "BASE_ROLE",
    "FAMILY",
    "FILTER_AXES",
    "GROUPS",
    "MASK_NAMES",
    "OPS",
    "OUTPUT_AXES",
    "OWN_TYPE",
    "RANKS",
    "SIGNATURE",
    "SPATIAL",
    "STATISTICS",
    "TERMS",
    "ActivationProblem",
    "AdaptiveAxis",
    "AdaptiveMaxPoolProblem",
    "AdaptivePoolProblem",
    "AttentionProblem",
    "AvgPoolProblem",
    "Axis",
    "BatchNormProblem",
    "CeluProblem",
    "ConvIntegerProblem",
    "ConvProblem",
    "CrossEntropyProblem",
    "CumsumProblem",
    "DeformConvProblem",
    "EluProblem",
    "Field",
    "FrozenNormProblem",
    "GeluProblem",
    "GridSampleProblem",
    "GroupNormProblem",
    "HardmaxProblem",
    "HardshrinkProblem",
    "HardtanhProblem",
    "InstanceNormProblem",
    "LayerNormProblem",
    "LeakyReluProblem",
    "LocalResponseNormProblem",
    "LossProblem",
    "LpPoolProblem",
    "MatmulProblem",
    "MeanProblem",
    "NllLossProblem",
    "NormProblem",
    "NormalizeProblem",
    "OpSpec",
    "Pads",
    "Pass",
    "PixelShuffleProblem",
    "PixelUnshuffleProblem",
    "PoolProblem",
    "PreluProblem",
    "Problem",
    "QuantizedConvProblem",
    "ReluProblem",
    "ResizeAxis",
    "ResizeProblem",
    "RmsNormProblem",
    "RoiAlignProblem",
    "ScaledConvProblem",
    "SeluProblem",
    "Signature",
    "Sizes",
    "SoftCrossEntropyProblem",
    "SoftmaxProblem",
    "SoftplusProblem",
    "SoftshrinkProblem",
    "SumProblem",
    "Terms",
    "ThresholdProblem",
    "UnpoolProblem",
    "WindowProblem",
    "integer",
    "integers",
    "items",
    "mask_names",
    "ops_of",
    "pads",
    "passes",
    "role_dtype",
    "to_builtins",
]
