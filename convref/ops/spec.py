"""The definition of an op: its problem and, for each pass, operands, results and their terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .base import Problem


class Signature(NamedTuple):
    """Roles of a pass in positional order; `maskable` results are the ones a mask selects."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    maskable: bool = False


class Terms(NamedTuple):
    """The operands of one result, which also decide how it is judged."""

    # pairs of operands whose products are summed: the one that slides or is scattered first; both
    # factors of a filter cotangent do
    products: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()  # operands summed as they are, perhaps each with a constant weight
    by: tuple[str, ...] = ()  # operands that only select elements: their values enter no sum
    # "sum"; "weighted": a sum with constant weights of either sign that are rounded too; "copy":
    # elements of an operand, bit for bit; "formula": anything else, judged by the magnitude that
    # the oracle gives for it, non-finite where the formula itself is
    kind: str = "sum"
    signed: bool = True  # whether the sign of a copied zero is judged

    @property
    def reads(self) -> set[str]:
        """Return the operands that the result needs."""
        return {role for pair in (*self.products, self.added, self.by) for role in pair}


class Pass(NamedTuple):
    """One pass of an op: operand roles in positional order, results with their terms."""

    operands: tuple[str, ...]
    results: dict[str, Terms]
    maskable: bool = False

    @property
    def signature(self) -> Signature:
        """Return the roles alone."""
        return Signature(self.operands, tuple(self.results), self.maskable)


class OpSpec(NamedTuple):
    """One row of the table of ops."""

    problem: type[Problem]  # the class of its problems
    passes: Mapping[str, Pass]  # its passes, "fprop" first
    # fills that make no useful case of it: the court draws others
    unsuitable_fills: tuple[str, ...] = ()
    # an op whose formulas are those of this one too, which has fewer operands and results
    like: str = ""

    @property
    def multiplies(self) -> bool:
        """Return whether results are sums of products of operands, which `math` applies to."""
        results = [terms for pass_ in self.passes.values() for terms in pass_.results.values()]
        return any(terms.products for terms in results)


def formula(*operands: str, by: tuple[str, ...] = ()) -> Terms:
    """Return the terms of a result that is not a sum of operands or products."""
    return Terms(added=operands, by=by, kind="formula")


def linear(kind: str = "sum") -> dict[str, Pass]:
    """Return the passes of an op that is linear in x, with constant weights."""
    return {
        "fprop": Pass(("x",), {"y": Terms(added=("x",), kind=kind)}),
        "backward": Pass(("dy",), {"dx": Terms(added=("dy",), kind=kind)}),
        "jvp": Pass(("x_dot",), {"y_dot": Terms(added=("x_dot",), kind=kind)}),
        "double_backward": Pass(("ddx",), {"ddy": Terms(added=("ddx",), kind=kind)}),
    }


def piecewise(kind: str, signed: bool) -> dict[str, Pass]:
    """Return the passes of a function of x whose second derivative is zero."""

    def moved(role: str) -> Terms:
        return Terms(added=(role,), by=("x",), kind=kind, signed=signed)

    return {
        "fprop": Pass(("x",), {"y": moved("x")}),
        "backward": Pass(("dy", "x"), {"dx": moved("dy")}),
        "jvp": Pass(("x", "x_dot"), {"y": moved("x"), "y_dot": moved("x_dot")}),
        "double_backward": Pass(("ddx", "x"), {"ddy": moved("ddx")}),
    }


def smooth(*constants: str, by: tuple[str, ...] = ()) -> dict[str, Pass]:
    """Return the passes of a smooth function of x, which also reads operands without tangents."""

    def of(*roles: str) -> Terms:
        return formula(*roles, *constants, by=by)

    given = ("x", *constants, *by)
    return {
        "fprop": Pass(given, {"y": of("x")}),
        "backward": Pass(("dy", *given), {"dx": of("dy", "x")}),
        "jvp": Pass((*given, "x_dot"), {"y": of("x"), "y_dot": of("x", "x_dot")}),
        "double_backward": Pass(
            ("ddx", "dy", *given),
            {"ddy": of("ddx", "x"), "dx": of("ddx", "dy", "x")},
            maskable=True,
        ),
    }


SMOOTH = smooth()  # of one element or of several
