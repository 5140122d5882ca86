"""Scaled dot-product attention."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from ..errors import invalid
from .activation import POINTWISE
from .base import BASE_ROLE, INEXACT, Field, Problem
from .sizes import Sizes, integer
from .spec import OpSpec, Pass, formula


@dataclass(frozen=True, kw_only=True)
class AttentionProblem(Problem):
    """Weights that a softmax makes of queries and keys, times values.

    Parameters
    ----------
    n, c : int
        Batch, and heads of the queries.
    groups : int
        Neighbouring heads of the queries that share a head of keys and values; divides `c`.
    input : (int, int)
        L queries of length E, each size at least 1.
    source : (int, int)
        S keys, and the length V of their values, each at least 1.
    causal : bool
        Whether query i attends to the keys 0 to i alone.
    bias : bool
        Whether a number is added to each score; minus infinity leaves a key out.
    full : bool
        Whether the bias is (N, C, L, S), else (L, S).
    scale : float or None
        Factor of the products; None is 1 / sqrt(E).

    Examples
    --------
    >>> AttentionProblem(n=1, c=4, groups=2, input=(3, 8), source=(5, 6)).shape("k")
    (1, 2, 5, 8)
    """

    name: ClassVar[str] = "sdpa"
    HEAD: ClassVar[dict[str, str]] = {"n": "n", "c": "c", "g": "groups"}
    PARTS: ClassVar[dict[str, Field]] = {
        "i": Field("input", "extents"),
        "o": Field("source", "extents"),
    }
    KEYS: ClassVar[dict[str, Field]] = {
        "causal": Field("causal", "flag", draws=(False, True)),
        "bias": Field("bias", "flag", draws=(False, False, True)),
        "full": Field("full", "flag", draws=(False, True)),
        "scale": Field("scale", "float", draws=(None, None, 1.0, 0.5, -0.25)),
    }
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1), ("source", 1))
    HAS_RANKS: ClassVar[tuple[int, ...]] = (2,)
    INDEPENDENT: ClassVar[str] = "n"
    REFUSES: ClassVar[dict[str, str]] = INEXACT
    OF_OPERANDS: ClassVar[tuple[str, ...]] = (*Problem.OF_OPERANDS, "groups", "source", "full")

    source: Sizes
    groups: int = 1
    causal: bool = False
    bias: bool = False
    full: bool = False
    scale: float | None = None

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        x, k, v = (shapes[role] for role in "xkv")
        where = f"sdpa.{pass_}"
        for name, shape in (("key", k), ("value", v)):
            if len(shape) != 4:
                raise invalid(where, f"{name} has {len(shape)} axes, needs 4")
        heads = max(1, k[1])
        if x[1] % heads:
            raise invalid(where, f"input has C={x[1]}, needs a multiple of key's H={heads}")
        found = {"groups": max(1, x[1] // heads), "source": (k[2], v[3])}
        found["full"] = len(shapes.get("b", ())) == 4
        return {**super().of_operands(pass_, shapes, given), **found}

    def _validate(self, where: str, rank: int) -> None:
        groups = self._at_least("groups", integer(where, "groups", self.groups), 1)
        self._put("groups", groups)
        if self.c % groups:
            raise invalid(where, f"C is {self.c}, needs a multiple of groups={groups}")
        self._put("full", self.full and self.bias)

    @property
    def factor(self) -> float:
        """Return the factor of the products of queries and keys."""
        return float(self.input[1]) ** -0.5 if self.scale is None else self.scale

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        (length, size), (keys, values) = self.input, self.source
        heads = self.n, self.c // self.groups
        scores = length, keys
        return {
            "x": (self.n, self.c, length, size),
            "k": (*heads, keys, size),
            "v": (*heads, keys, values),
            "b": (self.n, self.c, *scores) if self.full else scores,
            "y": (self.n, self.c, length, values),
        }

    def letters(self, role: str) -> str:
        bias = "ncls" if self.full else "ls"
        return {"x": "ncle", "k": "ngse", "v": "ngsv", "b": bias, "y": "nclv"}[BASE_ROLE[role]]

    def products(self, role: str) -> int:
        (length, size), (keys, values) = self.input, self.source
        summed = {"k": length * self.groups, "v": length * self.groups}
        summed["b"] = 1 if self.full else self.n * self.c
        return 4 * (size + keys + values + POINTWISE) + summed.get(BASE_ROLE[role], 0)

    def macs(self, role: str) -> int:
        (length, size), (keys, values) = self.input, self.source
        return self.n * self.c * length * keys * (size + values)

    def work(self) -> int:
        return self.macs("y")

    def scratch(self) -> int:
        return 4 * self.n * self.c * prod((self.input[0], self.source[0]))


_GIVEN = ("x", "k", "v", "b")
_DOTS = tuple(f"{role}_dot" for role in _GIVEN)
_SECOND = tuple(f"dd{role}" for role in _GIVEN)
_BY = ("dx", "dk", "dv", "db")
_ALL = (*_SECOND, "dy", *_GIVEN)
OPS = {
    # A NaN or an infinity behind the causal mask may reach a row or not.
    "sdpa": OpSpec(
        AttentionProblem,
        {
            "fprop": Pass(_GIVEN, {"y": formula(*_GIVEN)}),
            "backward": Pass(
                ("dy", *_GIVEN), dict.fromkeys(_BY, formula("dy", *_GIVEN)), maskable=True
            ),
            "jvp": Pass(
                (*_GIVEN, *_DOTS), {"y": formula(*_GIVEN), "y_dot": formula(*_GIVEN, *_DOTS)}
            ),
            "double_backward": Pass(
                _ALL, dict.fromkeys(("ddy", *_BY), formula(*_ALL)), maskable=True
            ),
        },
        unsuitable_fills=("nan", "inf"),
    )
}
