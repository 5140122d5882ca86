"""Images times a function of a sum over neighbours: vectors of norm 1, local response norm."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from ..errors import invalid
from .activation import POINTWISE, ActivationProblem
from .base import Field
from .softmax import SoftmaxProblem
from .spec import SMOOTH, OpSpec
from .window import Axis


@dataclass(frozen=True, kw_only=True)
class NormalizeProblem(SoftmaxProblem):
    """x over its p-norm along one axis.

    Parameters
    ----------
    n, c, input, dim
        As in `SoftmaxProblem`.
    p : float
        Of the norm, at least 1 and finite.
    eps : float
        The least divisor, at least 0.

    Examples
    --------
    >>> NormalizeProblem(n=1, c=2, input=(3,), dim=2).count
    3
    """

    name: ClassVar[str] = "normalize"
    KEYS: ClassVar[dict[str, Field]] = {
        "p": Field("p", "float", draws=(2.0, 2.0, 1.0, 3.0, 2.5), least=1.0),
        **SoftmaxProblem.KEYS,
        "eps": Field("eps", "float", draws=(1e-12, 1e-12, 1e-12, 0.5, 3.0), least=0.0),
    }

    p: float = 2.0
    eps: float = 1e-12

    @property
    def exponent(self) -> float:
        """Return the power of the sum that divides."""
        return 1 / self.p

    def products(self, role: str) -> int:
        return (2 if role == "y" else 5) * (self.count + 2 * POINTWISE)


@dataclass(frozen=True, kw_only=True)
class LocalResponseNormProblem(ActivationProblem):
    """x over (k + alpha / size * the sum of squares of neighbouring channels)^beta.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    size : int
        Channels in a sum: channel c reads c - size // 2 to c + (size - 1) // 2.
    alpha, k : float
        At least 0.
    beta : float

    Examples
    --------
    >>> LocalResponseNormProblem(n=1, c=9, input=(3,), size=4).window.lo
    2
    """

    name: ClassVar[str] = "local_response_norm"
    KEYS: ClassVar[dict[str, Field]] = {
        "size": Field("size", "integer", draws=(3, 5, 2, 1, 4)),
        "alpha": Field("alpha", "float", draws=(1e-4, 1e-4, 1.0, 0.5), least=0.0),
        "beta": Field("beta", "float", draws=(0.75, 0.75, 0.5, 1.0, 2.0)),
        "k": Field("k", "float", draws=(1.0, 1.0, 2.0, 0.5), least=0.0),
    }
    INDEPENDENT: ClassVar[str] = "n"
    dim: ClassVar[int] = 1

    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def _validate(self, where: str, rank: int) -> None:
        if self.size < 1:
            raise invalid(where, f"size is {self.size}, needs at least 1")

    @property
    def window(self) -> Axis:
        """Return the windows over channels, without taps that are beyond all of them."""
        lo, hi = (min(side, self.c) for side in (self.size // 2, (self.size - 1) // 2))
        return Axis(self.c, self.c, lo + 1 + hi, 1, 1, lo, hi)

    @property
    def exponent(self) -> float:
        """Return the power of the sum that divides."""
        return self.beta

    def products(self, role: str) -> int:
        """Return the most roundings: powers of -beta and less multiply the error of their base."""
        powers = (1 if role == "y" else 4) + ceil(abs(self.beta))
        return powers * (min(self.size, self.c) + 2 * POINTWISE)


OPS = {
    # Powers of subnormal numbers are 0; over an infinite norm, forms of a derivative are 0 or NaN.
    "normalize": OpSpec(NormalizeProblem, SMOOTH, unsuitable_fills=("subnormal", "inf")),
    "local_response_norm": OpSpec(LocalResponseNormProblem, SMOOTH),
}
