"""The tables: which passes an op has, what goes in and comes out, and what a result is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .activation import (
    ActivationProblem,
    CrossEntropyProblem,
    GeluProblem,
    LeakyReluProblem,
    ReluProblem,
    SoftmaxProblem,
)
from .base import Problem
from .conv import ConvProblem
from .norm import BatchNormProblem, FrozenNormProblem, GroupNormProblem, LayerNormProblem
from .pool import (
    AdaptiveMaxPoolProblem,
    AdaptivePoolProblem,
    AvgPoolProblem,
    LpPoolProblem,
    PoolProblem,
    UnpoolProblem,
)
from .resize import ResizeProblem
from .window import WindowProblem

FAMILY: dict[str, type[Problem]] = {
    "conv": ConvProblem,
    "unfold": WindowProblem,
    "fold": WindowProblem,
    "max_pool": PoolProblem,
    "avg_pool": AvgPoolProblem,
    "lp_pool": LpPoolProblem,
    "adaptive_max_pool": AdaptiveMaxPoolProblem,
    "adaptive_avg_pool": AdaptivePoolProblem,
    "max_unpool": UnpoolProblem,
    "resize": ResizeProblem,
    "batch_norm": BatchNormProblem,
    "batch_norm_eval": FrozenNormProblem,
    "group_norm": GroupNormProblem,
    "layer_norm": LayerNormProblem,
    "relu": ReluProblem,
    "leaky_relu": LeakyReluProblem,
    "silu": ActivationProblem,
    "gelu": GeluProblem,
    "hardswish": ActivationProblem,
    "sigmoid": ActivationProblem,
    "tanh": ActivationProblem,
    "softmax": SoftmaxProblem,
    "log_softmax": SoftmaxProblem,
    "cross_entropy": CrossEntropyProblem,
}


class Signature(NamedTuple):
    """Roles of a pass in positional order; `maskable` results are the ones a mask selects."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    maskable: bool = False


# The only place where arity lives: laws, command line, court and bench loop over this table.
SIGNATURE: dict[tuple[str, str], Signature] = {
    ("conv", "fprop"): Signature(("x", "w", "b"), ("y",)),
    ("conv", "backward"): Signature(("dy", "x", "w"), ("dx", "dw", "db"), maskable=True),
    ("conv", "jvp"): Signature(("x", "w", "b", "x_dot", "w_dot", "b_dot"), ("y", "y_dot")),
    ("conv", "double_backward"): Signature(
        ("ddx", "ddw", "ddb", "dy", "x", "w"), ("ddy", "dx", "dw"), maskable=True
    ),
    ("unfold", "fprop"): Signature(("x",), ("cols",)),
    ("unfold", "backward"): Signature(("dcols",), ("dx",)),
    ("unfold", "jvp"): Signature(("x_dot",), ("cols_dot",)),
    ("fold", "fprop"): Signature(("cols",), ("x",)),
    ("fold", "backward"): Signature(("dx",), ("dcols",)),
    ("fold", "jvp"): Signature(("cols_dot",), ("x_dot",)),
    ("max_pool", "fprop"): Signature(("x",), ("y", "indices")),
    ("max_pool", "backward"): Signature(("dy", "x", "indices"), ("dx",)),
    ("max_pool", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("max_pool", "double_backward"): Signature(("ddx", "x", "indices"), ("ddy",)),
    ("adaptive_max_pool", "fprop"): Signature(("x",), ("y", "indices")),
    ("adaptive_max_pool", "backward"): Signature(("dy", "x", "indices"), ("dx",)),
    ("adaptive_max_pool", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("adaptive_max_pool", "double_backward"): Signature(("ddx", "x", "indices"), ("ddy",)),
    ("avg_pool", "fprop"): Signature(("x",), ("y",)),
    ("avg_pool", "backward"): Signature(("dy",), ("dx",)),
    ("avg_pool", "jvp"): Signature(("x_dot",), ("y_dot",)),
    ("avg_pool", "double_backward"): Signature(("ddx",), ("ddy",)),
    ("adaptive_avg_pool", "fprop"): Signature(("x",), ("y",)),
    ("adaptive_avg_pool", "backward"): Signature(("dy",), ("dx",)),
    ("adaptive_avg_pool", "jvp"): Signature(("x_dot",), ("y_dot",)),
    ("adaptive_avg_pool", "double_backward"): Signature(("ddx",), ("ddy",)),
    ("lp_pool", "fprop"): Signature(("x",), ("y",)),
    ("lp_pool", "backward"): Signature(("dy", "x"), ("dx",)),
    ("lp_pool", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("lp_pool", "double_backward"): Signature(("ddx", "dy", "x"), ("ddy", "dx"), maskable=True),
    ("max_unpool", "fprop"): Signature(("x", "indices"), ("y",)),
    ("max_unpool", "backward"): Signature(("dy", "indices"), ("dx",)),
    ("max_unpool", "jvp"): Signature(("x_dot", "indices"), ("y_dot",)),
    ("max_unpool", "double_backward"): Signature(("ddx", "indices"), ("ddy",)),
    ("resize", "fprop"): Signature(("x",), ("y",)),
    ("resize", "backward"): Signature(("dy",), ("dx",)),
    ("resize", "jvp"): Signature(("x_dot",), ("y_dot",)),
    ("resize", "double_backward"): Signature(("ddx",), ("ddy",)),
    ("batch_norm", "fprop"): Signature(
        ("x", "w", "b", "rmean", "rvar"), ("y", "mean", "rstd", "rmean", "rvar")
    ),
    ("batch_norm", "backward"): Signature(
        ("dy", "x", "w", "mean", "rstd"), ("dx", "dw", "db"), maskable=True
    ),
    ("batch_norm", "jvp"): Signature(("x", "w", "b", "x_dot", "w_dot", "b_dot"), ("y", "y_dot")),
    ("batch_norm", "double_backward"): Signature(
        ("ddx", "ddw", "ddb", "dy", "x", "w", "mean", "rstd"), ("ddy", "dx", "dw"), maskable=True
    ),
    ("group_norm", "fprop"): Signature(("x", "w", "b"), ("y", "mean", "rstd")),
    ("group_norm", "backward"): Signature(
        ("dy", "x", "w", "mean", "rstd"), ("dx", "dw", "db"), maskable=True
    ),
    ("group_norm", "jvp"): Signature(("x", "w", "b", "x_dot", "w_dot", "b_dot"), ("y", "y_dot")),
    ("group_norm", "double_backward"): Signature(
        ("ddx", "ddw", "ddb", "dy", "x", "w", "mean", "rstd"), ("ddy", "dx", "dw"), maskable=True
    ),
    ("layer_norm", "fprop"): Signature(("x", "w", "b"), ("y", "mean", "rstd")),
    ("layer_norm", "backward"): Signature(
        ("dy", "x", "w", "mean", "rstd"), ("dx", "dw", "db"), maskable=True
    ),
    ("layer_norm", "jvp"): Signature(("x", "w", "b", "x_dot", "w_dot", "b_dot"), ("y", "y_dot")),
    ("layer_norm", "double_backward"): Signature(
        ("ddx", "ddw", "ddb", "dy", "x", "w", "mean", "rstd"), ("ddy", "dx", "dw"), maskable=True
    ),
    ("batch_norm_eval", "fprop"): Signature(("x", "w", "b", "rmean", "rvar"), ("y",)),
    ("batch_norm_eval", "backward"): Signature(
        ("dy", "x", "w", "rmean", "rvar"), ("dx", "dw", "db"), maskable=True
    ),
    ("batch_norm_eval", "jvp"): Signature(
        ("x", "w", "b", "rmean", "rvar", "x_dot", "w_dot", "b_dot"), ("y", "y_dot")
    ),
    ("batch_norm_eval", "double_backward"): Signature(
        ("ddx", "ddw", "ddb", "dy", "x", "w", "rmean", "rvar"), ("ddy", "dx", "dw"), maskable=True
    ),
    ("relu", "fprop"): Signature(("x",), ("y",)),
    ("relu", "backward"): Signature(("dy", "x"), ("dx",)),
    ("relu", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("relu", "double_backward"): Signature(("ddx", "x"), ("ddy",)),
    ("leaky_relu", "fprop"): Signature(("x",), ("y",)),
    ("leaky_relu", "backward"): Signature(("dy", "x"), ("dx",)),
    ("leaky_relu", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("leaky_relu", "double_backward"): Signature(("ddx", "x"), ("ddy",)),
    ("silu", "fprop"): Signature(("x",), ("y",)),
    ("silu", "backward"): Signature(("dy", "x"), ("dx",)),
    ("silu", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("silu", "double_backward"): Signature(("ddx", "dy", "x"), ("ddy", "dx"), maskable=True),
    ("gelu", "fprop"): Signature(("x",), ("y",)),
    ("gelu", "backward"): Signature(("dy", "x"), ("dx",)),
    ("gelu", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("gelu", "double_backward"): Signature(("ddx", "dy", "x"), ("ddy", "dx"), maskable=True),
    ("hardswish", "fprop"): Signature(("x",), ("y",)),
    ("hardswish", "backward"): Signature(("dy", "x"), ("dx",)),
    ("hardswish", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("hardswish", "double_backward"): Signature(("ddx", "dy", "x"), ("ddy", "dx"), maskable=True),
    ("sigmoid", "fprop"): Signature(("x",), ("y",)),
    ("sigmoid", "backward"): Signature(("dy", "x"), ("dx",)),
    ("sigmoid", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("sigmoid", "double_backward"): Signature(("ddx", "dy", "x"), ("ddy", "dx"), maskable=True),
    ("tanh", "fprop"): Signature(("x",), ("y",)),
    ("tanh", "backward"): Signature(("dy", "x"), ("dx",)),
    ("tanh", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("tanh", "double_backward"): Signature(("ddx", "dy", "x"), ("ddy", "dx"), maskable=True),
    ("softmax", "fprop"): Signature(("x",), ("y",)),
    ("softmax", "backward"): Signature(("dy", "x"), ("dx",)),
    ("softmax", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("softmax", "double_backward"): Signature(("ddx", "dy", "x"), ("ddy", "dx"), maskable=True),
    ("log_softmax", "fprop"): Signature(("x",), ("y",)),
    ("log_softmax", "backward"): Signature(("dy", "x"), ("dx",)),
    ("log_softmax", "jvp"): Signature(("x", "x_dot"), ("y", "y_dot")),
    ("log_softmax", "double_backward"): Signature(("ddx", "dy", "x"), ("ddy", "dx"), maskable=True),
    ("cross_entropy", "fprop"): Signature(("x", "w", "target"), ("y",)),
    ("cross_entropy", "backward"): Signature(("dy", "x", "w", "target"), ("dx",)),
    ("cross_entropy", "jvp"): Signature(("x", "w", "target", "x_dot"), ("y", "y_dot")),
    ("cross_entropy", "double_backward"): Signature(
        ("ddx", "dy", "x", "w", "target"), ("ddy", "dx"), maskable=True
    ),
}


class Terms(NamedTuple):
    """What one result is made of, and by that how it is judged.

    Attributes
    ----------
    products : tuple of (str, str)
        Pairs of operands whose products are summed: what slides or is scattered stands first;
        both factors of a filter cotangent do.
    added : tuple of str
        Operands summed as they are, perhaps each with a constant weight.
    by : tuple of str
        Operands that only choose which elements are meant: their values enter no sum.
    kind : str
        "sum"; "weighted": a sum with constant weights of either sign, found by rounding too;
        "copy": elements of an operand, bit for bit; "formula": anything else, judged by
        the magnitude that the oracle gives for it, non-finite where the formula itself is.
    signed : bool
        Whether the sign of a copied zero is judged.
    """

    products: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    kind: str = "sum"
    signed: bool = True

    @property
    def reads(self) -> set[str]:
        """Return the operands that the result needs."""
        return {role for pair in (*self.products, self.added, self.by) for role in pair}


TERMS: dict[tuple[str, str, str], Terms] = {
    ("conv", "fprop", "y"): Terms((("x", "w"),), ("b",)),
    ("conv", "backward", "dx"): Terms((("dy", "w"),)),
    ("conv", "backward", "dw"): Terms((("dy", "x"),)),
    ("conv", "backward", "db"): Terms((), ("dy",)),
    ("conv", "jvp", "y"): Terms((("x", "w"),), ("b",)),
    ("conv", "jvp", "y_dot"): Terms((("x_dot", "w"), ("x", "w_dot")), ("b_dot",)),
    ("conv", "double_backward", "ddy"): Terms((("ddx", "w"), ("x", "ddw")), ("ddb",)),
    ("conv", "double_backward", "dx"): Terms((("dy", "ddw"),)),
    ("conv", "double_backward", "dw"): Terms((("dy", "ddx"),)),
    ("unfold", "fprop", "cols"): Terms((), ("x",)),
    ("unfold", "backward", "dx"): Terms((), ("dcols",)),
    ("unfold", "jvp", "cols_dot"): Terms((), ("x_dot",)),
    ("fold", "fprop", "x"): Terms((), ("cols",)),
    ("fold", "backward", "dcols"): Terms((), ("dx",)),
    ("fold", "jvp", "x_dot"): Terms((), ("cols_dot",)),
    ("max_pool", "fprop", "y"): Terms(added=("x",), by=("x",), kind="copy"),
    ("max_pool", "fprop", "indices"): Terms(by=("x",), kind="copy"),
    ("max_pool", "backward", "dx"): Terms(added=("dy",), by=("indices",)),
    ("max_pool", "jvp", "y"): Terms(added=("x",), by=("x",), kind="copy"),
    ("max_pool", "jvp", "y_dot"): Terms(added=("x_dot",), by=("x",), kind="copy"),
    ("max_pool", "double_backward", "ddy"): Terms(added=("ddx",), by=("indices",), kind="copy"),
    ("adaptive_max_pool", "fprop", "y"): Terms(added=("x",), by=("x",), kind="copy"),
    ("adaptive_max_pool", "fprop", "indices"): Terms(by=("x",), kind="copy"),
    ("adaptive_max_pool", "backward", "dx"): Terms(added=("dy",), by=("indices",)),
    ("adaptive_max_pool", "jvp", "y"): Terms(added=("x",), by=("x",), kind="copy"),
    ("adaptive_max_pool", "jvp", "y_dot"): Terms(added=("x_dot",), by=("x",), kind="copy"),
    ("adaptive_max_pool", "double_backward", "ddy"): Terms(
        added=("ddx",), by=("indices",), kind="copy"
    ),
    ("avg_pool", "fprop", "y"): Terms(added=("x",)),
    ("avg_pool", "backward", "dx"): Terms(added=("dy",)),
    ("avg_pool", "jvp", "y_dot"): Terms(added=("x_dot",)),
    ("avg_pool", "double_backward", "ddy"): Terms(added=("ddx",)),
    ("adaptive_avg_pool", "fprop", "y"): Terms(added=("x",)),
    ("adaptive_avg_pool", "backward", "dx"): Terms(added=("dy",)),
    ("adaptive_avg_pool", "jvp", "y_dot"): Terms(added=("x_dot",)),
    ("adaptive_avg_pool", "double_backward", "ddy"): Terms(added=("ddx",)),
    ("lp_pool", "fprop", "y"): Terms(added=("x",), kind="formula"),
    ("lp_pool", "backward", "dx"): Terms(added=("dy", "x"), kind="formula"),
    ("lp_pool", "jvp", "y"): Terms(added=("x",), kind="formula"),
    ("lp_pool", "jvp", "y_dot"): Terms(added=("x", "x_dot"), kind="formula"),
    ("lp_pool", "double_backward", "ddy"): Terms(added=("ddx", "x"), kind="formula"),
    ("lp_pool", "double_backward", "dx"): Terms(added=("ddx", "dy", "x"), kind="formula"),
    ("max_unpool", "fprop", "y"): Terms(added=("x",), by=("indices",), kind="copy"),
    ("max_unpool", "backward", "dx"): Terms(added=("dy",), by=("indices",), kind="copy"),
    ("max_unpool", "jvp", "y_dot"): Terms(added=("x_dot",), by=("indices",), kind="copy"),
    ("max_unpool", "double_backward", "ddy"): Terms(added=("ddx",), by=("indices",), kind="copy"),
    ("resize", "fprop", "y"): Terms(added=("x",), kind="weighted"),
    ("resize", "backward", "dx"): Terms(added=("dy",), kind="weighted"),
    ("resize", "jvp", "y_dot"): Terms(added=("x_dot",), kind="weighted"),
    ("resize", "double_backward", "ddy"): Terms(added=("ddx",), kind="weighted"),
    ("batch_norm", "fprop", "y"): Terms(added=("x", "w", "b"), kind="formula"),
    ("batch_norm", "fprop", "mean"): Terms(added=("x",), kind="formula"),
    ("batch_norm", "fprop", "rstd"): Terms(added=("x",), kind="formula"),
    ("batch_norm", "fprop", "rmean"): Terms(added=("rmean", "x"), kind="formula"),
    ("batch_norm", "fprop", "rvar"): Terms(added=("rvar", "x"), kind="formula"),
    ("batch_norm", "backward", "dx"): Terms(added=("dy", "x", "w", "mean", "rstd"), kind="formula"),
    ("batch_norm", "backward", "dw"): Terms(added=("dy", "x", "mean", "rstd"), kind="formula"),
    ("batch_norm", "backward", "db"): Terms(added=("dy",), kind="formula"),
    ("batch_norm", "jvp", "y"): Terms(added=("x", "w", "b"), kind="formula"),
    ("batch_norm", "jvp", "y_dot"): Terms(
        added=("x", "w", "x_dot", "w_dot", "b_dot"), kind="formula"
    ),
    ("batch_norm", "double_backward", "ddy"): Terms(
        added=("ddx", "ddw", "ddb", "x", "w", "mean", "rstd"), kind="formula"
    ),
    ("batch_norm", "double_backward", "dx"): Terms(
        added=("ddx", "ddw", "dy", "x", "w", "mean", "rstd"), kind="formula"
    ),
    ("batch_norm", "double_backward", "dw"): Terms(
        added=("ddx", "dy", "x", "mean", "rstd"), kind="formula"
    ),
    ("group_norm", "fprop", "y"): Terms(added=("x", "w", "b"), kind="formula"),
    ("group_norm", "fprop", "mean"): Terms(added=("x",), kind="formula"),
    ("group_norm", "fprop", "rstd"): Terms(added=("x",), kind="formula"),
    ("group_norm", "backward", "dx"): Terms(added=("dy", "x", "w", "mean", "rstd"), kind="formula"),
    ("group_norm", "backward", "dw"): Terms(added=("dy", "x", "mean", "rstd"), kind="formula"),
    ("group_norm", "backward", "db"): Terms(added=("dy",), kind="formula"),
    ("group_norm", "jvp", "y"): Terms(added=("x", "w", "b"), kind="formula"),
    ("group_norm", "jvp", "y_dot"): Terms(
        added=("x", "w", "x_dot", "w_dot", "b_dot"), kind="formula"
    ),
    ("group_norm", "double_backward", "ddy"): Terms(
        added=("ddx", "ddw", "ddb", "x", "w", "mean", "rstd"), kind="formula"
    ),
    ("group_norm", "double_backward", "dx"): Terms(
        added=("ddx", "ddw", "dy", "x", "w", "mean", "rstd"), kind="formula"
    ),
    ("group_norm", "double_backward", "dw"): Terms(
        added=("ddx", "dy", "x", "mean", "rstd"), kind="formula"
    ),
    ("layer_norm", "fprop", "y"): Terms(added=("x", "w", "b"), kind="formula"),
    ("layer_norm", "fprop", "mean"): Terms(added=("x",), kind="formula"),
    ("layer_norm", "fprop", "rstd"): Terms(added=("x",), kind="formula"),
    ("layer_norm", "backward", "dx"): Terms(added=("dy", "x", "w", "mean", "rstd"), kind="formula"),
    ("layer_norm", "backward", "dw"): Terms(added=("dy", "x", "mean", "rstd"), kind="formula"),
    ("layer_norm", "backward", "db"): Terms(added=("dy",), kind="formula"),
    ("layer_norm", "jvp", "y"): Terms(added=("x", "w", "b"), kind="formula"),
    ("layer_norm", "jvp", "y_dot"): Terms(
        added=("x", "w", "x_dot", "w_dot", "b_dot"), kind="formula"
    ),
    ("layer_norm", "double_backward", "ddy"): Terms(
        added=("ddx", "ddw", "ddb", "x", "w", "mean", "rstd"), kind="formula"
    ),
    ("layer_norm", "double_backward", "dx"): Terms(
        added=("ddx", "ddw", "dy", "x", "w", "mean", "rstd"), kind="formula"
    ),
    ("layer_norm", "double_backward", "dw"): Terms(
        added=("ddx", "dy", "x", "mean", "rstd"), kind="formula"
    ),
    ("batch_norm_eval", "fprop", "y"): Terms(
        added=("x", "w", "b", "rmean", "rvar"), kind="formula"
    ),
    ("batch_norm_eval", "backward", "dx"): Terms(added=("dy", "w", "rvar"), kind="formula"),
    ("batch_norm_eval", "backward", "dw"): Terms(
        added=("dy", "x", "rmean", "rvar"), kind="formula"
    ),
    ("batch_norm_eval", "backward", "db"): Terms(added=("dy",), kind="formula"),
    ("batch_norm_eval", "jvp", "y"): Terms(added=("x", "w", "b", "rmean", "rvar"), kind="formula"),
    ("batch_norm_eval", "jvp", "y_dot"): Terms(
        added=("x", "w", "rmean", "rvar", "x_dot", "w_dot", "b_dot"), kind="formula"
    ),
    ("batch_norm_eval", "double_backward", "ddy"): Terms(
        added=("ddx", "ddw", "ddb", "x", "w", "rmean", "rvar"), kind="formula"
    ),
    ("batch_norm_eval", "double_backward", "dx"): Terms(
        added=("ddw", "dy", "rvar"), kind="formula"
    ),
    ("batch_norm_eval", "double_backward", "dw"): Terms(
        added=("ddx", "dy", "rvar"), kind="formula"
    ),
    ("relu", "fprop", "y"): Terms(added=("x",), by=("x",), kind="copy", signed=False),
    ("relu", "backward", "dx"): Terms(added=("dy",), by=("x",), kind="copy", signed=False),
    ("relu", "jvp", "y"): Terms(added=("x",), by=("x",), kind="copy", signed=False),
    ("relu", "jvp", "y_dot"): Terms(added=("x_dot",), by=("x",), kind="copy", signed=False),
    ("relu", "double_backward", "ddy"): Terms(added=("ddx",), by=("x",), kind="copy", signed=False),
    ("leaky_relu", "fprop", "y"): Terms(added=("x",), by=("x",), kind="formula"),
    ("leaky_relu", "backward", "dx"): Terms(added=("dy",), by=("x",), kind="formula"),
    ("leaky_relu", "jvp", "y"): Terms(added=("x",), by=("x",), kind="formula"),
    ("leaky_relu", "jvp", "y_dot"): Terms(added=("x_dot",), by=("x",), kind="formula"),
    ("leaky_relu", "double_backward", "ddy"): Terms(added=("ddx",), by=("x",), kind="formula"),
    ("silu", "fprop", "y"): Terms(added=("x",), kind="formula"),
    ("silu", "backward", "dx"): Terms(added=("dy", "x"), kind="formula"),
    ("silu", "jvp", "y"): Terms(added=("x",), kind="formula"),
    ("silu", "jvp", "y_dot"): Terms(added=("x", "x_dot"), kind="formula"),
    ("silu", "double_backward", "ddy"): Terms(added=("ddx", "x"), kind="formula"),
    ("silu", "double_backward", "dx"): Terms(added=("ddx", "dy", "x"), kind="formula"),
    ("gelu", "fprop", "y"): Terms(added=("x",), kind="formula"),
    ("gelu", "backward", "dx"): Terms(added=("dy", "x"), kind="formula"),
    ("gelu", "jvp", "y"): Terms(added=("x",), kind="formula"),
    ("gelu", "jvp", "y_dot"): Terms(added=("x", "x_dot"), kind="formula"),
    ("gelu", "double_backward", "ddy"): Terms(added=("ddx", "x"), kind="formula"),
    ("gelu", "double_backward", "dx"): Terms(added=("ddx", "dy", "x"), kind="formula"),
    ("hardswish", "fprop", "y"): Terms(added=("x",), kind="formula"),
    ("hardswish", "backward", "dx"): Terms(added=("dy", "x"), kind="formula"),
    ("hardswish", "jvp", "y"): Terms(added=("x",), kind="formula"),
    ("hardswish", "jvp", "y_dot"): Terms(added=("x", "x_dot"), kind="formula"),
    ("hardswish", "double_backward", "ddy"): Terms(added=("ddx", "x"), kind="formula"),
    ("hardswish", "double_backward", "dx"): Terms(added=("ddx", "dy", "x"), kind="formula"),
    ("sigmoid", "fprop", "y"): Terms(added=("x",), kind="formula"),
    ("sigmoid", "backward", "dx"): Terms(added=("dy", "x"), kind="formula"),
    ("sigmoid", "jvp", "y"): Terms(added=("x",), kind="formula"),
    ("sigmoid", "jvp", "y_dot"): Terms(added=("x", "x_dot"), kind="formula"),
    ("sigmoid", "double_backward", "ddy"): Terms(added=("ddx", "x"), kind="formula"),
    ("sigmoid", "double_backward", "dx"): Terms(added=("ddx", "dy", "x"), kind="formula"),
    ("tanh", "fprop", "y"): Terms(added=("x",), kind="formula"),
    ("tanh", "backward", "dx"): Terms(added=("dy", "x"), kind="formula"),
    ("tanh", "jvp", "y"): Terms(added=("x",), kind="formula"),
    ("tanh", "jvp", "y_dot"): Terms(added=("x", "x_dot"), kind="formula"),
    ("tanh", "double_backward", "ddy"): Terms(added=("ddx", "x"), kind="formula"),
    ("tanh", "double_backward", "dx"): Terms(added=("ddx", "dy", "x"), kind="formula"),
    ("softmax", "fprop", "y"): Terms(added=("x",), kind="formula"),
    ("softmax", "backward", "dx"): Terms(added=("dy", "x"), kind="formula"),
    ("softmax", "jvp", "y"): Terms(added=("x",), kind="formula"),
    ("softmax", "jvp", "y_dot"): Terms(added=("x", "x_dot"), kind="formula"),
    ("softmax", "double_backward", "ddy"): Terms(added=("ddx", "x"), kind="formula"),
    ("softmax", "double_backward", "dx"): Terms(added=("ddx", "dy", "x"), kind="formula"),
    ("log_softmax", "fprop", "y"): Terms(added=("x",), kind="formula"),
    ("log_softmax", "backward", "dx"): Terms(added=("dy", "x"), kind="formula"),
    ("log_softmax", "jvp", "y"): Terms(added=("x",), kind="formula"),
    ("log_softmax", "jvp", "y_dot"): Terms(added=("x", "x_dot"), kind="formula"),
    ("log_softmax", "double_backward", "ddy"): Terms(added=("ddx", "x"), kind="formula"),
    ("log_softmax", "double_backward", "dx"): Terms(added=("ddx", "dy", "x"), kind="formula"),
    ("cross_entropy", "fprop", "y"): Terms(added=("x", "w"), by=("target",), kind="formula"),
    ("cross_entropy", "backward", "dx"): Terms(
        added=("dy", "x", "w"), by=("target",), kind="formula"
    ),
    ("cross_entropy", "jvp", "y"): Terms(added=("x", "w"), by=("target",), kind="formula"),
    ("cross_entropy", "jvp", "y_dot"): Terms(
        added=("x", "w", "x_dot"), by=("target",), kind="formula"
    ),
    ("cross_entropy", "double_backward", "ddy"): Terms(
        added=("ddx", "x", "w"), by=("target",), kind="formula"
    ),
    ("cross_entropy", "double_backward", "dx"): Terms(
        added=("ddx", "dy", "x", "w"), by=("target",), kind="formula"
    ),
}

_GRADIENTS = ("dx", "dw", "db")
MASK_NAMES: dict[str, tuple[bool, ...]] = {
    "dgrad": (True, False, False),
    "wgrad": (False, True, False),
    "bgrad": (False, False, True),
}


def mask_names(op: str) -> dict[str, tuple[bool, ...]]:
    """Return the names of one-bit masks of backward, for an op that has those three results."""
    row = SIGNATURE.get((op, "backward"))
    return MASK_NAMES if row is not None and row.results == _GRADIENTS else {}


def passes(op: str) -> Iterator[str]:
    """Yield the passes of `op` in the order of the table."""
    return (name for family, name in SIGNATURE if family == op)


# Words for several ops, as the command line takes them.
GROUPS: dict[str, tuple[str, ...]] = {
    "pool": (
        "max_pool",
        "avg_pool",
        "lp_pool",
        "adaptive_max_pool",
        "adaptive_avg_pool",
        "max_unpool",
    ),
    "norm": ("batch_norm", "batch_norm_eval", "group_norm", "layer_norm"),
    "activation": (
        "relu",
        "leaky_relu",
        "silu",
        "gelu",
        "hardswish",
        "sigmoid",
        "tanh",
        "softmax",
        "log_softmax",
        "cross_entropy",
    ),
}


def ops_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the ops that `words` name, each an op or a family of ops."""
    return tuple(op for word in words for op in GROUPS.get(word, (word,)))
