"""The problem of a convolution or transposed convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from ..errors import invalid
from .base import BASE_ROLE, Field
from .sizes import SPATIAL, Sizes, integer
from .spec import OpSpec, Pass, Terms
from .window import WindowProblem


@dataclass(frozen=True, kw_only=True)
class ConvProblem(WindowProblem):
    """A convolution or transposed convolution of rank 1, 2 or 3.

    Parameters
    ----------
    n, c, k : int
        Batch, channels of the input, channels of the output (also when transposed).
    groups : int
        Divides `c` and `k`.
    input, filter, stride, padding, dilation
        As in `WindowProblem`; `input` is the operand of the operator.
    transposed : bool
        Whether the problem is a transposed convolution (the adjoint of a convolution).
    output_padding : int or tuple of int
        Extra output at the high end, in [0, max(stride, dilation)); transposed only.
    flip : bool
        True convolution (the filter is flipped) instead of cross-correlation.
    bias : bool
        Whether a bias of shape (K,) is added.

    Examples
    --------
    >>> problem = ConvProblem(n=2, c=4, k=8, input=(9, 7), filter=(3, 3), stride=2, padding=1)
    >>> problem.output, problem.shape("w"), problem.products("y")
    ((5, 4), (8, 4, 3, 3), 37)
    """

    name: ClassVar[str] = "conv"
    HEAD: ClassVar[dict[str, str]] = {"n": "n", "c": "c", "k": "k", "g": "groups"}
    KEYS: ClassVar[dict[str, Field]] = {
        "t": Field("transposed", "flag"),
        "op": Field("output_padding", "sizes"),
        "flip": Field("flip", "flag"),
        "bias": Field("bias", "flag"),
    }

    OF_OPERANDS: ClassVar[tuple[str, ...]] = (*WindowProblem.OF_OPERANDS, "k", "filter")

    k: int
    groups: int = 1
    transposed: bool = False
    output_padding: Sizes = (0,)
    flip: bool = False
    bias: bool = True

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        x, w = shapes["x"], shapes["w"]
        if len(w) != len(x):
            raise invalid(f"conv.{pass_}", f"weight has {len(w)} axes, needs {len(x)}")
        found = super().of_operands(pass_, shapes, given)
        found["bias"] |= pass_ == "double_backward"  # the tangents decide
        k = w[1] * given["groups"] if given["transposed"] else w[0]
        return {**found, "k": k, "filter": tuple(w[2:])}

    def _validate_family(self, where: str, rank: int) -> None:
        self._put("k", self._at_least("k", integer(where, "k", self.k), 0))
        groups = self._at_least("groups", integer(where, "groups", self.groups), 1)
        self._put("groups", groups)
        for name, size in (("C", self.c), ("K", self.k)):
            if size % groups:
                raise invalid(where, f"{name} is {size}, needs a multiple of groups={groups}")
        extra = self.output_padding
        if not self.transposed and any(extra):
            raise invalid(where, f"output_padding is {extra}, needs 0 unless transposed")
        for axis, size in enumerate(extra):
            limit = max(self.stride[axis], self.dilation[axis])
            if not 0 <= size < limit:
                raise invalid(
                    where,
                    f"output_padding[{axis}] is {size}, needs 0 to {limit - 1} "
                    "(below the larger of stride and dilation)",
                )

    def _validate_output(self, where: str) -> None:
        if self.transposed and not all(self.input):
            raise invalid(where, f"input is {self.input}, needs at least 1 when transposed")
        super()._validate_output(where)

    def _output(self) -> Sizes:
        if not self.transposed:
            return super()._output()
        return tuple(
            (size - 1) * stride + dilation * (taps - 1) + 1 + extra - lo - hi
            for size, taps, stride, dilation, extra, (lo, hi) in zip(
                self.input,
                self.filter,
                self.stride,
                self.dilation,
                self.output_padding,
                self.padding,
                strict=True,
            )
        )

    def _sides(self) -> tuple[Sizes, Sizes]:
        return (self.output, self.input) if self.transposed else (self.input, self.output)

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        c, k = (self.k, self.c) if self.transposed else (self.c, self.k)
        return {
            "x": (self.n, self.c, *self.input),
            "w": (k, c // self.groups, *self.filter),
            "b": (self.k,),
            "y": (self.n, self.k, *self.output),
        }

    def letters(self, role: str) -> str:
        base = BASE_ROLE[role]
        if base == "b":
            return "o"
        lead = ("io" if self.transposed else "oi") if base == "w" else "nc"
        return lead + SPATIAL[self.rank]

    @property
    def independent(self) -> str:
        return "nck" if self.groups == 1 else "n"

    def for_pass(self, pass_: str, code: str) -> ConvProblem:
        """Return the problem of `pass_`: in backward the mask alone decides on the bias."""
        return replace(self, bias=True) if pass_ == "backward" and not self.bias else self

    def has(self, role: str) -> bool:
        return role != "b" or self.bias

    def tangents(self, pass_: str) -> str:
        if pass_ not in ("jvp", "double_backward"):
            return ""
        return "xwb" if self.bias else "xw"

    def products(self, role: str) -> int:
        c, k = self.c // self.groups, self.k // self.groups
        gathered = prod(self.filter)
        scattered = prod(axis.windows_per_position for axis in self.axes)
        if self.transposed:
            gathered, scattered = scattered, gathered
        return {
            "y": c * gathered + self.bias,
            "x": k * scattered,
            "w": self.n * prod(self._sides()[1]),
            "b": self.n * prod(self.output),
        }[BASE_ROLE[role]]

    def macs(self, role: str) -> int:
        """Return the products that the result `role` needs, those with padding left out.

        The count is the same for y, dx and dw (each pairs the same x, w and y); db has none.
        """
        if BASE_ROLE[role] == "b":
            return 0
        pairs = prod(axis.real_taps for axis in self.axes)
        return self.n * self.c * (self.k // self.groups) * pairs

    def work(self) -> int:
        return self.macs("y")

    def scratch(self) -> int:
        return self.n * max(self.c, self.k) * self._padded()

    def elements_read(self, role: str) -> int:
        big = "y" if self.transposed else "x"
        if BASE_ROLE[role] == big:
            channels = self.k if self.transposed else self.c
            return self.n * channels * prod(axis.positions_read for axis in self.axes)
        return prod(self.shape(role))


OPS = {
    "conv": OpSpec(
        ConvProblem,
        {
            "fprop": Pass(("x", "w", "b"), {"y": Terms((("x", "w"),), ("b",))}),
            "backward": Pass(
                ("dy", "x", "w"),
                {
                    "dx": Terms((("dy", "w"),)),
                    "dw": Terms((("dy", "x"),)),
                    "db": Terms(added=("dy",)),
                },
                maskable=True,
            ),
            "jvp": Pass(
                ("x", "w", "b", "x_dot", "w_dot", "b_dot"),
                {
                    "y": Terms((("x", "w"),), ("b",)),
                    "y_dot": Terms((("x_dot", "w"), ("x", "w_dot")), ("b_dot",)),
                },
            ),
            "double_backward": Pass(
                ("ddx", "ddw", "ddb", "dy", "x", "w"),
                {
                    "ddy": Terms((("ddx", "w"), ("x", "ddw")), ("ddb",)),
                    "dx": Terms((("dy", "ddw"),)),
                    "dw": Terms((("dy", "ddx"),)),
                },
                maskable=True,
            ),
        },
    )
}
