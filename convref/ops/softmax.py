"""Softmax along an axis, and the losses of a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

from ..errors import invalid
from .activation import POINTWISE, ActivationProblem
from .base import BASE_ROLE, Field, Positions
from .sizes import SPATIAL, Sizes
from .spec import SMOOTH, OpSpec, Pass, Terms, formula, smooth


@dataclass(frozen=True, kw_only=True)
class SoftmaxProblem(ActivationProblem):
    """Softmax and its logarithm along one axis.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    dim : int
        The axis out of (N, C, spatial), 0 to rank + 1.

    Examples
    --------
    >>> SoftmaxProblem(n=1, c=2, input=(3,), dim=2).count
    3
    """

    name: ClassVar[str] = "softmax"
    KEYS: ClassVar[dict[str, Field]] = {"dim": Field("dim", "integer")}

    dim: int = 1

    def _validate(self, where: str, rank: int) -> None:
        if not 0 <= self.dim < rank + 2:
            raise invalid(where, f"dim is {self.dim}, needs 0 to {rank + 1}")

    @property
    def independent(self) -> str:
        return "nc".replace(self.letters("x")[self.dim], "")

    @property
    def count(self) -> int:
        """Return how many elements a sum has."""
        return (self.n, self.c, *self.input)[self.dim]

    def products(self, role: str) -> int:
        return 2 * self.count + POINTWISE


class HardmaxProblem(SoftmaxProblem):
    """1 at the first maximum along one axis, 0 elsewhere: numbers with an order.

    Examples
    --------
    >>> HardmaxProblem(n=1, c=2, input=(3,)).count
    2
    """

    name: ClassVar[str] = "hardmax"
    REFUSES: ClassVar[dict[str, str]] = {"c": "complex numbers have no order"}


_WEIGHT = {"weight": Field("weight", "flag", draws=(False, False, False, True, True))}
_IGNORE = {"ignore": Field("ignore_index", "integer")}
_SMOOTH = {"smooth": Field("label_smoothing", "float", draws=(0.0, 0.0, 0.1, 0.5, 1.0), least=0.0)}
_REDUCTION = {"red": Field("reduction", "word", draws=("mean", "sum", "none"))}


@dataclass(frozen=True, kw_only=True)
class LossProblem(ActivationProblem):
    """The base of the losses of a classifier of C classes at every position of a batch.

    Parameters
    ----------
    n, c, input
        As in `Problem`; at least one class.
    weight : bool
        Whether classes have weights.
    reduction : str
        "mean", "sum" or "none".
    """

    LEAST: ClassVar[dict[str, int]] = {"n": 0, "c": 1}
    INDEPENDENT: ClassVar[str] = ""

    weight: bool = False
    reduction: str = "mean"

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        target = (self.n, *self.input)
        y = target if self.reduction == "none" else (1,)
        x = (self.n, self.c, *self.input)
        return {"x": x, "p": x, "w": (self.c,), "target": target, "y": y}

    def letters(self, role: str) -> str:
        space, base = SPATIAL[self.rank], BASE_ROLE[role]
        if base == "y" and self.reduction != "none":
            return "l"
        return {"x": "nc" + space, "p": "nc" + space, "w": "c"}.get(base, "n" + space)

    def _validate(self, where: str, rank: int) -> None:
        smoothing = getattr(self, "label_smoothing", 0.0)
        if smoothing > 1:
            raise invalid(where, f"label_smoothing is {smoothing}, needs 0 to 1")

    def products(self, role: str) -> int:
        return 4 * self.c + 2 * self.n * prod(self.input) + POINTWISE


@dataclass(frozen=True, kw_only=True)
class NllLossProblem(LossProblem):
    """The negative log likelihood of one of C classes at every position of a batch.

    Parameters
    ----------
    n, c, input, weight, reduction
        As in `LossProblem`; a mean is over the weights of the targets.
    ignore_index : int
        Positions with this target are ignored.

    Examples
    --------
    >>> NllLossProblem(n=2, c=5, input=(3, 3), reduction="none").shape("y")
    (2, 3, 3)
    """

    name: ClassVar[str] = "nll_loss"
    KEYS: ClassVar[dict[str, Field]] = {**_WEIGHT, **_IGNORE, **_REDUCTION}
    label_smoothing: ClassVar[float] = 0.0

    ignore_index: int = -100

    def positions(self, role: str) -> Positions | None:
        return Positions(self.c, self.ignore_index, "a class") if role == "target" else None


@dataclass(frozen=True, kw_only=True)
class CrossEntropyProblem(NllLossProblem):
    """The cross entropy of C classes at every position of a batch, against one class for each.

    Parameters
    ----------
    n, c, input, weight, ignore_index, reduction
        As in `NllLossProblem`.
    label_smoothing : float
        The share, 0 to 1, that all classes have in each target.

    Examples
    --------
    >>> CrossEntropyProblem(n=2, c=5, input=(3, 3), reduction="none").shape("y")
    (2, 3, 3)
    """

    name: ClassVar[str] = "cross_entropy"
    KEYS: ClassVar[dict[str, Field]] = {**_WEIGHT, **_IGNORE, **_SMOOTH, **_REDUCTION}

    label_smoothing: float = 0.0  # type: ignore[misc]


@dataclass(frozen=True, kw_only=True)
class SoftCrossEntropyProblem(LossProblem):
    """The cross entropy of C classes at every position of a batch, against a probability for each.

    Parameters
    ----------
    n, c, input, weight, reduction
        As in `LossProblem`; a mean is over all positions.
    label_smoothing : float
        As in `CrossEntropyProblem`.

    Examples
    --------
    >>> SoftCrossEntropyProblem(n=2, c=5, input=(3, 3)).shape("p")
    (2, 5, 3, 3)
    """

    name: ClassVar[str] = "soft_cross_entropy"
    KEYS: ClassVar[dict[str, Field]] = {**_WEIGHT, **_SMOOTH, **_REDUCTION}

    label_smoothing: float = 0.0


_TARGETS = ("target",)
_NLL_LOSS = {
    "fprop": Pass(("x", "w", "target"), {"y": formula("x", "w", by=_TARGETS)}),
    "backward": Pass(("dy", "x", "w", "target"), {"dx": formula("dy", "w", by=_TARGETS)}),
    "jvp": Pass(
        ("x", "w", "target", "x_dot"),
        {"y": formula("x", "w", by=_TARGETS), "y_dot": formula("x_dot", "w", by=_TARGETS)},
    ),
    "double_backward": Pass(("ddx", "w", "target"), {"ddy": formula("ddx", "w", by=_TARGETS)}),
}
_SOFT = {
    "fprop": Pass(("x", "p", "w"), {"y": formula("x", "p", "w")}),
    "backward": Pass(
        ("dy", "x", "p", "w"),
        {"dx": formula("dy", "x", "p", "w"), "dp": formula("dy", "x", "w")},
        maskable=True,
    ),
    "jvp": Pass(
        ("x", "p", "w", "x_dot", "p_dot"),
        {"y": formula("x", "p", "w"), "y_dot": formula("x", "p", "w", "x_dot", "p_dot")},
    ),
    "double_backward": Pass(
        ("ddx", "ddp", "dy", "x", "p", "w"),
        {
            "ddy": formula("ddx", "ddp", "x", "p", "w"),
            "dx": formula("ddx", "ddp", "dy", "x", "p", "w"),
            "dp": formula("ddx", "dy", "x", "w"),
        },
        maskable=True,
    ),
}
OPS = {
    "softmax": OpSpec(SoftmaxProblem, SMOOTH),
    "log_softmax": OpSpec(SoftmaxProblem, SMOOTH),
    # Piecewise constant: it has no derivative but 0.
    "hardmax": OpSpec(
        HardmaxProblem, {"fprop": Pass(("x",), {"y": Terms(by=("x",), kind="copy")})}
    ),
    # Sums of subnormal weights divide.
    "nll_loss": OpSpec(NllLossProblem, _NLL_LOSS, unsuitable_fills=("subnormal",)),
    "cross_entropy": OpSpec(
        CrossEntropyProblem, smooth("w", by=_TARGETS), unsuitable_fills=("subnormal",)
    ),
    "soft_cross_entropy": OpSpec(SoftCrossEntropyProblem, _SOFT),
}
