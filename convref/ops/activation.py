"""Activations: functions of one element."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from ..errors import invalid
from .base import BASE_ROLE, INEXACT, Field, Problem
from .sizes import Sizes, real
from .spec import SMOOTH, OpSpec, Pass, formula, piecewise

POINTWISE = 16  # roundings of a function of one element, as docs/judge.md counts them


class ReluProblem(Problem):
    """The rectifier: any real numbers, nothing is rounded.

    >>> ReluProblem(n=1, c=2, input=(3,)).shape("dx")
    (1, 2, 3)
    """

    name: ClassVar[str] = "relu"
    REFUSES: ClassVar[dict[str, str]] = {"c": "complex numbers have no order"}


class ActivationProblem(Problem):
    """A smooth function of one element: silu, hardswish, sigmoid, tanh.

    >>> ActivationProblem(n=1, c=2, input=(3,)).products("y")
    16
    """

    name: ClassVar[str] = "activation"
    REFUSES: ClassVar[dict[str, str]] = INEXACT

    def products(self, role: str) -> int:
        return POINTWISE


@dataclass(frozen=True, kw_only=True)
class LeakyReluProblem(ActivationProblem):
    """The leaky rectifier: x where it is positive, a fraction of x elsewhere.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    slope : float
        The fraction.

    Examples
    --------
    >>> LeakyReluProblem(n=1, c=2, input=(3,), slope=0.2).slope
    0.2
    """

    name: ClassVar[str] = "leaky_relu"
    KEYS: ClassVar[dict[str, Field]] = {
        "slope": Field(
            "slope", "float", draws=(0.01, 0.01, 0.2, 0.0, 1.5, -0.1), label="negative_slope"
        )
    }

    slope: float = 0.01


@dataclass(frozen=True, kw_only=True)
class PreluProblem(ActivationProblem):
    """The rectifier with a learnt slope: x where it is positive, a multiple of x elsewhere.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    shared : bool
        Whether all channels have one slope, else each has its own; False of one channel.

    Examples
    --------
    >>> PreluProblem(n=1, c=2, input=(3,)).shape("w")
    (2,)
    """

    name: ClassVar[str] = "prelu"
    KEYS: ClassVar[dict[str, Field]] = {
        "shared": Field("shared", "flag", draws=(False, False, True))
    }
    OF_OPERANDS: ClassVar[tuple[str, ...]] = (*ActivationProblem.OF_OPERANDS, "shared")

    shared: bool = False

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        return {**super().of_operands(pass_, shapes, given), "shared": shapes["w"] == (1,)}

    def _validate(self, where: str, rank: int) -> None:
        self._put("shared", self.shared and self.c != 1)

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        return {**super()._shapes, "w": (1,) if self.shared else (self.c,)}

    def letters(self, role: str) -> str:
        slope = "l" if self.shared else "c"
        return slope if BASE_ROLE[role] == "w" else super().letters(role)

    def products(self, role: str) -> int:
        summed = self.n * prod(self.input) * (self.c if self.shared else 1)
        return POINTWISE + (summed if role == "dw" else 0)


@dataclass(frozen=True, kw_only=True)
class GeluProblem(ActivationProblem):
    """x times the normal distribution function, or its approximation by tanh.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    approximate : str
        "none" or "tanh".

    Examples
    --------
    >>> GeluProblem(n=1, c=2, input=(3,)).approximate
    'none'
    """

    name: ClassVar[str] = "gelu"
    KEYS: ClassVar[dict[str, Field]] = {
        "approx": Field("approximate", "word", draws=("none", "tanh"))
    }

    approximate: str = "none"

    def refuses(self, code: str, pass_: str = "fprop") -> str | None:
        if code == "f80" and self.approximate == "none":
            return "the error function is known to float64, needs f64 or approximate='tanh'"
        return super().refuses(code)


@dataclass(frozen=True, kw_only=True)
class HardtanhProblem(ActivationProblem):
    """x, clamped to two bounds.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    min_val, max_val : float
        The bounds, the lower one first.

    Examples
    --------
    >>> HardtanhProblem(n=1, c=2, input=(3,), max_val=6).max_val
    6.0
    """

    name: ClassVar[str] = "hardtanh"
    KEYS: ClassVar[dict[str, Field]] = {
        "min": Field("min_val", "float", draws=(-1.0, -1.0, 0.0, -2.5)),
        "max": Field("max_val", "float", draws=(1.0, 1.0, 6.0, 2.0)),
    }

    min_val: float = -1.0
    max_val: float = 1.0

    def _validate(self, where: str, rank: int) -> None:
        self._put("max_val", real(where, "max_val", self.max_val, self.min_val))


@dataclass(frozen=True, kw_only=True)
class HardshrinkProblem(ActivationProblem):
    """x where it is farther from 0 than a bound, else 0.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    lambd : float
        The bound.

    Examples
    --------
    >>> HardshrinkProblem(n=1, c=2, input=(3,)).lambd
    0.5
    """

    name: ClassVar[str] = "hardshrink"
    KEYS: ClassVar[dict[str, Field]] = {
        "lambd": Field("lambd", "float", draws=(0.5, 0.5, 1.0, 2.0, 0.0))
    }

    lambd: float = 0.5


class SoftshrinkProblem(HardshrinkProblem):
    """x, moved towards 0 by a bound, and 0 where it is nearer; the bound is not negative.

    >>> SoftshrinkProblem(n=1, c=2, input=(3,), lambd=2).lambd
    2.0
    """

    name: ClassVar[str] = "softshrink"
    KEYS: ClassVar[dict[str, Field]] = {
        "lambd": HardshrinkProblem.KEYS["lambd"]._replace(least=0.0)
    }


@dataclass(frozen=True, kw_only=True)
class ThresholdProblem(ActivationProblem):
    """x where it is above a threshold, else a number.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    threshold, value : float
        What x has to exceed, and what stands for it where it does not.

    Examples
    --------
    >>> ThresholdProblem(n=1, c=2, input=(3,), threshold=1).value
    0.0
    """

    name: ClassVar[str] = "threshold"
    KEYS: ClassVar[dict[str, Field]] = {
        "threshold": Field("threshold", "float", draws=(0.0, 1.0, 1.0, -2.0)),
        "value": Field("value", "float", draws=(0.0, 0.0, 2.0, -0.5)),
    }

    threshold: float = 0.0
    value: float = 0.0


@dataclass(frozen=True, kw_only=True)
class EluProblem(ActivationProblem):
    """x where it is positive, alpha (exp(x) - 1) elsewhere.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    alpha : float
        The limit is -alpha.

    Examples
    --------
    >>> EluProblem(n=1, c=2, input=(3,), alpha=0.5).alpha
    0.5
    """

    name: ClassVar[str] = "elu"
    KEYS: ClassVar[dict[str, Field]] = {
        "alpha": Field("alpha", "float", draws=(1.0, 1.0, 0.5, 2.0, 0.0, -1.0))
    }

    alpha: float = 1.0

    @property
    def constants(self) -> tuple[float, float, float]:
        """Return (a, c, d) of the family c x for x > 0, else c a (exp(x / d) - 1)."""
        return self.alpha, 1.0, 1.0


@dataclass(frozen=True, kw_only=True)
class CeluProblem(EluProblem):
    """x where it is positive, alpha (exp(x / alpha) - 1) elsewhere.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    alpha : float
        Not 0. The slope at 0 is 1, the limit -alpha.

    Examples
    --------
    >>> CeluProblem(n=1, c=2, input=(3,), alpha=0.5).constants
    (0.5, 1.0, 0.5)
    """

    name: ClassVar[str] = "celu"
    KEYS: ClassVar[dict[str, Field]] = {
        "alpha": Field("alpha", "float", draws=(1.0, 1.0, 0.5, 2.0))
    }

    def _validate(self, where: str, rank: int) -> None:
        _check_not_zero(where, "alpha", self.alpha)

    @property
    def constants(self) -> tuple[float, float, float]:
        return self.alpha, 1.0, self.alpha


class SeluProblem(ActivationProblem):
    """elu times a constant; with its alpha, layers keep mean 0 and variance 1.

    >>> SeluProblem(n=1, c=2, input=(3,)).constants
    (1.6732632423543772, 1.0507009873554805, 1.0)
    """

    name: ClassVar[str] = "selu"
    constants: ClassVar[tuple[float, float, float]] = (1.6732632423543772, 1.0507009873554805, 1.0)


@dataclass(frozen=True, kw_only=True)
class SoftplusProblem(ActivationProblem):
    """log(1 + exp(beta x)) / beta, and x itself where beta x is above a threshold.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    beta : float
        Not 0.
    threshold : float
        beta x beyond it is taken for the function's value, as PyTorch does.

    Examples
    --------
    >>> SoftplusProblem(n=1, c=2, input=(3,), beta=2).threshold
    20.0
    """

    name: ClassVar[str] = "softplus"
    KEYS: ClassVar[dict[str, Field]] = {
        "beta": Field("beta", "float", draws=(1.0, 1.0, 2.0, 0.5)),
        "threshold": Field("threshold", "float", draws=(20.0, 20.0, 2.0)),
    }

    beta: float = 1.0
    threshold: float = 20.0

    def _validate(self, where: str, rank: int) -> None:
        _check_not_zero(where, "beta", self.beta)


def _check_not_zero(where: str, name: str, value: float) -> None:
    if not value:
        raise invalid(where, f"{name} is {value}, needs a non-zero number")


_PRELU = {
    "fprop": Pass(("x", "w"), {"y": formula("x", "w")}),
    "backward": Pass(
        ("dy", "x", "w"), {"dx": formula("dy", "x", "w"), "dw": formula("dy", "x")}, maskable=True
    ),
    "jvp": Pass(
        ("x", "w", "x_dot", "w_dot"),
        {"y": formula("x", "w"), "y_dot": formula("x", "w", "x_dot", "w_dot")},
    ),
    "double_backward": Pass(
        ("ddx", "ddw", "dy", "x", "w"),
        {
            "ddy": formula("ddx", "ddw", "x", "w"),
            "dx": formula("ddw", "dy", "x"),
            "dw": formula("ddx", "dy", "x"),
        },
        maskable=True,
    ),
}
OPS = {
    "relu": OpSpec(ReluProblem, piecewise("copy", signed=False)),
    "leaky_relu": OpSpec(LeakyReluProblem, piecewise("formula", signed=True)),
    "prelu": OpSpec(PreluProblem, _PRELU),
    "silu": OpSpec(ActivationProblem, SMOOTH),
    "gelu": OpSpec(GeluProblem, SMOOTH),
    "hardswish": OpSpec(ActivationProblem, SMOOTH),
    "hardtanh": OpSpec(HardtanhProblem, piecewise("formula", signed=True)),
    "hardshrink": OpSpec(HardshrinkProblem, piecewise("copy", signed=False)),
    "softshrink": OpSpec(SoftshrinkProblem, piecewise("formula", signed=True)),
    "threshold": OpSpec(ThresholdProblem, piecewise("formula", signed=True)),
    "hardsigmoid": OpSpec(ActivationProblem, piecewise("formula", signed=True)),
    "elu": OpSpec(EluProblem, SMOOTH),
    "celu": OpSpec(CeluProblem, SMOOTH),
    "selu": OpSpec(SeluProblem, SMOOTH),
    "softplus": OpSpec(SoftplusProblem, SMOOTH),
    "logsigmoid": OpSpec(ActivationProblem, SMOOTH),
    "softsign": OpSpec(ActivationProblem, SMOOTH),
    "mish": OpSpec(ActivationProblem, SMOOTH),
    "sigmoid": OpSpec(ActivationProblem, SMOOTH),
    "tanh": OpSpec(ActivationProblem, SMOOTH),
    "tanhshrink": OpSpec(ActivationProblem, SMOOTH),
}
