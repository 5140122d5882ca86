"""The tables: which passes an op has, what goes in and comes out, and what a result is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .base import Problem
from .conv import ConvProblem
from .pool import (
    AdaptiveMaxPoolProblem,
    AdaptivePoolProblem,
    AvgPoolProblem,
    LpPoolProblem,
    PoolProblem,
    UnpoolProblem,
)
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
        "sum"; "copy": elements of an operand, bit for bit; "formula": anything else, judged by
        the magnitude that the oracle gives for it, non-finite where the formula itself is.
    """

    products: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    kind: str = "sum"

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
}


def ops_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the ops that `words` name, each an op or a family of ops."""
    return tuple(op for word in words for op in GROUPS.get(word, (word,)))
