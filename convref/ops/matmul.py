"""Products of matrices, one pair for each element of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from ..errors import invalid
from .base import BASE_ROLE, Field, Problem
from .sizes import Sizes, integer
from .spec import OpSpec, Pass, Terms


@dataclass(frozen=True, kw_only=True)
class MatmulProblem(Problem):
    """N products of a (C, W) and a (W, K) matrix.

    Parameters
    ----------
    n, c : int
        Batch, and rows of the first matrix.
    k : int
        Columns of the second matrix.
    input : (int,)
        W, the terms of each sum.
    shared : bool
        Whether the whole batch has one second matrix, else each element has its own.

    Examples
    --------
    >>> MatmulProblem(n=2, c=3, k=5, input=(4,), shared=True).shape("w")
    (4, 5)
    """

    name: ClassVar[str] = "matmul"
    HEAD: ClassVar[dict[str, str]] = {"n": "n", "c": "c", "k": "k"}
    KEYS: ClassVar[dict[str, Field]] = {
        "shared": Field("shared", "flag", draws=(False, False, True))
    }
    HAS_RANKS: ClassVar[tuple[int, ...]] = (1,)
    INDEPENDENT: ClassVar[str] = "nck"
    OF_OPERANDS: ClassVar[tuple[str, ...]] = (*Problem.OF_OPERANDS, "k", "shared")

    k: int
    shared: bool = False

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        w = shapes["w"]
        if len(w) not in (2, 3):
            raise invalid(f"matmul.{pass_}", f"weight has {len(w)} axes, needs 2 or 3")
        return {**super().of_operands(pass_, shapes, given), "k": w[-1], "shared": len(w) == 2}

    def _validate(self, where: str, rank: int) -> None:
        self._put("k", self._at_least("k", integer(where, "k", self.k), 0))

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        w = (*self.input, self.k)
        return {
            "x": (self.n, self.c, *self.input),
            "w": w if self.shared else (self.n, *w),
            "y": (self.n, self.c, self.k),
        }

    def letters(self, role: str) -> str:
        return {"x": "ncw", "w": "wk" if self.shared else "nwk", "y": "nck"}[BASE_ROLE[role]]

    def products(self, role: str) -> int:
        rows = self.c * self.n if self.shared else self.c
        return {"y": self.input[0], "x": self.k, "w": rows}[BASE_ROLE[role]]

    def macs(self, role: str) -> int:
        return self.n * self.c * self.k * prod(self.input)

    def work(self) -> int:
        return self.macs("y")


_FORWARD = Terms((("x", "w"),))
OPS = {
    "matmul": OpSpec(
        MatmulProblem,
        {
            "fprop": Pass(("x", "w"), {"y": _FORWARD}),
            "backward": Pass(
                ("dy", "x", "w"),
                {"dx": Terms((("dy", "w"),)), "dw": Terms((("dy", "x"),))},
                maskable=True,
            ),
            "jvp": Pass(
                ("x", "w", "x_dot", "w_dot"),
                {"y": _FORWARD, "y_dot": Terms((("x_dot", "w"), ("x", "w_dot")))},
            ),
            "double_backward": Pass(
                ("ddx", "ddw", "dy", "x", "w"),
                {
                    "ddy": Terms((("ddx", "w"), ("x", "ddw"))),
                    "dx": Terms((("dy", "ddw"),)),
                    "dw": Terms((("dy", "ddx"),)),
                },
                maskable=True,
            ),
        },
    )
}
