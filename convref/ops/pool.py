"""The problems of pooling: the maximum, the mean or a norm of each window."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple

from .base import INPUT_AND_OUTPUT, Field, Positions, Problem
from .sizes import Sizes
from .spec import SMOOTH, OpSpec, Pass, Terms, linear
from .window import WindowProblem

NO_MAXIMUM = {"c": "complex numbers have no maximum"}
_INTEGRAL = ("i", "u", "o")  # first letters of the types that divide or root inexactly


class AdaptiveAxis(NamedTuple):
    """One spatial axis cut into `small` windows that cover all `big` positions.

    Window p reads from floor(p * big / small) up to, not including, ceil((p + 1) * big / small).
    """

    big: int
    small: int

    def bounds(self, p: Any) -> tuple[Any, Any]:
        """Return the first position of window p (or of each in an array) and the end of it."""
        return p * self.big // self.small, -(-(p + 1) * self.big // self.small)

    @property
    def taps(self) -> int:
        """Return a size that no window exceeds."""
        whole, rest = divmod(self.big, self.small)
        return whole + 2 if rest else whole

    @property
    def windows_per_position(self) -> int:
        """Return an upper bound of how many windows share one position."""
        return -(-self.small // max(1, self.big)) + 1


@dataclass(frozen=True, kw_only=True)
class PoolProblem(WindowProblem):
    """Max pooling of rank 1 to 3; also the base of the other sliding pools.

    Parameters
    ----------
    n, c, input, filter, stride, padding, dilation
        As in `WindowProblem`; padding is not read, never a number.
    ceil : bool
        Round the output size up. The last window must start inside the input or the low padding.

    Examples
    --------
    >>> PoolProblem(n=1, c=1, input=(6,), filter=(3,), stride=2, ceil=True).output
    (3,)
    """

    name: ClassVar[str] = "max_pool"
    KEYS: ClassVar[dict[str, Field]] = {"ceil": Field("ceil", "flag")}
    REFUSES: ClassVar[dict[str, str]] = NO_MAXIMUM
    include_pad, divisor = False, 0  # average pools have fields of these names

    ceil: bool = False

    @cached_property
    def counts(self) -> tuple[Sizes, ...]:
        """Return, for each axis, the factor of each window's divisor: 1 unless it is a mean."""
        return tuple((1,) * axis.small for axis in self.axes)

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        y = (self.n, self.c, *self.output)
        return {"x": (self.n, self.c, *self.input), "y": y, "indices": y}

    def letters(self, role: str) -> str:
        return Problem.letters(self, role)

    def products(self, role: str) -> int:
        if role == "dx":
            return prod(axis.windows_per_position for axis in self.axes)
        return 1

    def padded_image(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class AvgPoolProblem(PoolProblem):
    """Average pooling: the sum of a window over a divisor that is known beforehand.

    Parameters
    ----------
    n, c, input, filter, stride, padding, dilation, ceil
        As in `PoolProblem`.
    include_pad : bool
        Divide by the taps that fall on the input or its padding; else by those on the input.
        Taps that ceil_mode lets run beyond the padding never count.
    divisor : int
        Divide by this; 0 for none.

    Examples
    --------
    >>> AvgPoolProblem(n=1, c=1, input=(4,), filter=(3,), padding=1).products("y")
    4
    """

    name: ClassVar[str] = "avg_pool"
    KEYS: ClassVar[dict[str, Field]] = {
        "ceil": Field("ceil", "flag"),
        "cip": Field("include_pad", "flag", draws=(True, True, True, False, False)),
        "div": Field("divisor", "integer", draws=(0, 0, 0, 0, 0, 1, 2, 3, 7, -2)),
    }

    REFUSES: ClassVar[dict[str, str]] = {}  # integers have a mean that is cut toward zero

    include_pad: bool = True
    divisor: int = 0

    @cached_property
    def counts(self) -> tuple[Sizes, ...]:
        found = []
        for axis in self.axes:
            least, most = (-axis.lo, axis.big + axis.hi) if self.include_pad else (0, axis.big)
            most = min(most, axis.big + axis.hi)
            found.append(tuple(_taps_within(axis, p, least, most) for p in range(axis.small)))
        return tuple(found)

    def is_exact(self, code: str) -> bool:
        divisors = [abs(self.divisor)] if self.divisor else [n for c in self.counts for n in c]
        return all(n & (n - 1) == 0 for n in divisors)

    def products(self, role: str) -> int:
        if role == "dx":
            return prod(axis.windows_per_position for axis in self.axes) + 1
        return prod(self.filter) + 1


def _taps_within(axis: Any, p: int, least: int, most: int) -> int:
    reads = range(axis.taps)
    first = p * axis.stride - axis.lo
    return sum(least <= first + r * axis.dilation < most for r in reads)


@dataclass(frozen=True, kw_only=True)
class LpPoolProblem(PoolProblem):
    """Power-average pooling: the p-norm of each window.

    Parameters
    ----------
    n, c, input, filter, stride, padding, dilation, ceil
        As in `PoolProblem`; absent taps add nothing.
    norm : float
        The p of the norm, at least 1 and finite.

    Examples
    --------
    >>> LpPoolProblem(n=1, c=1, input=(4,), filter=(2,), norm=3).output
    (3,)
    """

    name: ClassVar[str] = "lp_pool"
    REFUSES: ClassVar[dict[str, str]] = {"c": "complex numbers are not pooled by norm"}
    KEYS: ClassVar[dict[str, Field]] = {
        "ceil": Field("ceil", "flag"),
        "norm": Field("norm", "float", draws=(2.0, 2.0, 1.0, 3.0, 4.0, 1.5, 2.5), least=1.0),
    }

    norm: float = 2.0

    def refuses(self, code: str, pass_: str = "fprop") -> str | None:
        if code[0] in _INTEGRAL and self.norm != 1:
            return f"roots of {code} are not rational, needs floats or norm 1"
        return super().refuses(code)

    def products(self, role: str) -> int:
        """Return the most roundings on the path to one element of the result `role`.

        Those of the sum, of powers and of roots: docs/pool.md counts them.
        """
        gathered = prod(self.filter)
        powers = 8 + round(self.norm)
        if role in ("y", "y_dot", "ddy"):
            return 2 * gathered + 2 * powers
        return prod(axis.windows_per_position for axis in self.axes) + 3 * gathered + 4 * powers


@dataclass(frozen=True, kw_only=True)
class AdaptivePoolProblem(Problem):
    """Average pooling whose windows are cut so that the output has a given size.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    output : int or tuple of int
        Spatial sizes of the output.

    Examples
    --------
    >>> AdaptivePoolProblem(n=1, c=2, input=(7,), output=(3,)).counts
    ((3, 3, 3),)
    """

    name: ClassVar[str] = "adaptive_avg_pool"
    PARTS: ClassVar[dict[str, Field]] = INPUT_AND_OUTPUT
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1), ("output", 1))
    include_pad, divisor, adaptive = False, 0, True

    output: Sizes

    @cached_property
    def axes(self) -> tuple[AdaptiveAxis, ...]:
        return tuple(map(AdaptiveAxis, self.input, self.output))

    @cached_property
    def counts(self) -> tuple[Sizes, ...]:
        """Return, for each axis, how many positions each window reads."""
        return tuple(
            tuple(end - start for start, end in map(axis.bounds, range(axis.small)))
            for axis in self.axes
        )

    def is_exact(self, code: str) -> bool:
        return all(n & (n - 1) == 0 for count in self.counts for n in count)

    def products(self, role: str) -> int:
        if role == "dx":
            return prod(axis.windows_per_position for axis in self.axes) + 1
        return prod(axis.taps for axis in self.axes) + 1

    def work(self) -> int:
        return self.n * self.c * prod(axis.taps * axis.small for axis in self.axes)


class AdaptiveMaxPoolProblem(AdaptivePoolProblem):
    """Adaptive max pooling: the windows of `AdaptivePoolProblem`, for numbers with an order."""

    name: ClassVar[str] = "adaptive_max_pool"
    REFUSES: ClassVar[dict[str, str]] = NO_MAXIMUM

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        shapes = super()._shapes
        return {**shapes, "indices": shapes["y"]}

    def is_exact(self, code: str) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class UnpoolProblem(Problem):
    """Max unpooling: each element goes to the position that its index names, the rest is zero.

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    output : int or tuple of int
        Spatial sizes of the output.

    Examples
    --------
    >>> UnpoolProblem(n=1, c=2, input=(3, 3), output=(6, 6)).shape("y")
    (1, 2, 6, 6)
    """

    name: ClassVar[str] = "max_unpool"
    PARTS: ClassVar[dict[str, Field]] = INPUT_AND_OUTPUT
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 0), ("output", 1))

    output: Sizes

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        shapes = super()._shapes
        return {**shapes, "indices": shapes["x"]}

    def positions(self, role: str) -> Positions | None:
        return Positions(prod(self.output), -1) if role == "indices" else None


def _picks(source: str, by: str) -> Terms:
    return Terms(added=(source,), by=(by,), kind="copy")


_WINDOW_MAX = {
    "fprop": Pass(("x",), {"y": _picks("x", "x"), "indices": Terms(by=("x",), kind="copy")}),
    "backward": Pass(("dy", "x", "indices"), {"dx": Terms(added=("dy",), by=("indices",))}),
    "jvp": Pass(("x", "x_dot"), {"y": _picks("x", "x"), "y_dot": _picks("x_dot", "x")}),
    "double_backward": Pass(("ddx", "x", "indices"), {"ddy": _picks("ddx", "indices")}),
}
_UNPOOL = {
    "fprop": Pass(("x", "indices"), {"y": _picks("x", "indices")}),
    "backward": Pass(("dy", "indices"), {"dx": _picks("dy", "indices")}),
    "jvp": Pass(("x_dot", "indices"), {"y_dot": _picks("x_dot", "indices")}),
    "double_backward": Pass(("ddx", "indices"), {"ddy": _picks("ddx", "indices")}),
}
OPS = {
    "max_pool": OpSpec(PoolProblem, _WINDOW_MAX),
    "avg_pool": OpSpec(AvgPoolProblem, linear()),
    # Powers of subnormal numbers are zero.
    "lp_pool": OpSpec(LpPoolProblem, SMOOTH, unsuitable_fills=("subnormal",)),
    "adaptive_max_pool": OpSpec(AdaptiveMaxPoolProblem, _WINDOW_MAX),
    "adaptive_avg_pool": OpSpec(AdaptivePoolProblem, linear()),
    "max_unpool": OpSpec(UnpoolProblem, _UNPOOL),
}
