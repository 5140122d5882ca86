"""Pairs of a value and a bound of its error, and one operation on them."""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from ..numerics import TF32_ETA, UNITS, Numerics

Tensor = Any  # torch.Tensor, which mypy does not know where torch is not installed

_FLOAT64 = torch.finfo(torch.float64)
_FAR = 2.0**900  # the smallest difference of two float64 numbers is then larger than their sizes
ERROR_OF_ERRORS = 2.0**-40  # the bound itself is computed in float64


class SumTerms(NamedTuple):
    """The terms of a sum, which candidates may add to those of other sums before they round.

    `size` is the sum of the absolute values of the terms, `n` how many roundings a term has at most
    and `owed` how many of these are not part of the error. All terms are multiples of `step`, 0 if
    that is not known. `products` is the largest operand of a matrix product, 0 for other sums.
    """

    size: Tensor
    n: float
    owed: int = 0
    step: float = 0.0
    products: float = 0.0


class Pair(NamedTuple):
    """A tensor: its value in float64 and how far an admissible candidate's value may be from it.

    Integers and booleans keep their type. `error` is None where the value is exact, `stored` says
    whether rounding to the dtype of the tensor is already part of the error, `terms` are those of
    the last sum.
    """

    value: Tensor
    error: Tensor | None = None
    stored: bool = True
    terms: SumTerms | None = None

    @property
    def wide(self) -> Tensor:
        """Return the value in float64."""
        return self.value.to(torch.float64)

    @property
    def slack(self) -> Any:
        """Return the error, 0.0 where the value is exact."""
        return 0.0 if self.error is None else self.error

    @property
    def magnitude(self) -> Tensor:
        """Return the largest absolute value of a candidate."""
        return self.wide.abs() if self.error is None else self.wide.abs() + self.error

    @property
    def reach(self) -> Tensor:
        """Return the sum of the absolute values of the terms, or of the value as one term."""
        size = self.magnitude
        return size if self.terms is None else torch.maximum(size, self.terms.size)

    def map(self, f: Any) -> "Pair":
        """Return the pair with its tensors moved by f."""
        error = None if self.error is None else f(self.error)
        terms = None if self.terms is None else self.terms._replace(size=f(self.terms.size))
        return Pair(f(self.value), error, self.stored, terms)


def is_stored(value: Tensor, dtype: Any) -> Tensor:
    """Return where a value in float64 is a number of `dtype`, or NaN."""
    same = value.to(dtype).to(value.dtype) == value
    return same if _is_finite(value) else same | (value != value)


def gap(x: Tensor, y: Tensor) -> Tensor:
    """Return |x - y|, 0 for equal infinities and for NaN."""
    found = (x - y).abs_()
    if _is_finite(found):
        return found
    return torch.where((x == y) | (x.isnan() & y.isnan()), 0.0, found)


def _is_finite(t: Tensor) -> bool:
    """Return whether all elements are finite, and their sum: in one pass over memory."""
    return math.isfinite(float(t.sum()))


def _is_positive(error: Any) -> bool:
    error = torch.as_tensor(error)
    return bool(error.numel()) and float(error.amin()) > 0


def times(size: Tensor, error: Any) -> Any:
    """Return how far an error reaches by a factor of this size; no error stays none."""
    if isinstance(error, float):
        return 0.0
    found = size * error
    return found if _is_finite(found) else torch.where(error == 0, 0.0, found)


def _unbounded_at_nan(value: Tensor, error: Any, is_finite: bool = False) -> Tensor | None:
    """Return the error of a value, unbounded where it is NaN; `error` is changed in place."""
    if isinstance(error, float):
        return None if error == 0 else torch.full_like(value, error)
    error = error.mul_(1 + ERROR_OF_ERRORS)
    if not is_finite and not _is_finite(error):
        error = torch.where(error.isnan(), torch.inf, error)
    return error.expand(value.shape)


def store(pair: Pair, dtype: Any, numerics: Numerics) -> Pair:
    """Return a pair whose error includes rounding to `dtype`."""
    if pair.stored or not dtype.is_floating_point or not pair.value.numel():
        return pair._replace(stored=True)
    info, size = torch.finfo(dtype), pair.magnitude
    last = info.tiny if numerics.ftz else info.smallest_normal * info.eps / 2
    error = pair.slack + (info.eps / 2 * size + last)
    exact = is_stored(pair.value, dtype)
    if pair.error is not None:
        exact &= pair.error == 0
    error = torch.where(exact, 0.0, error)
    if not _is_finite(size) or not float(size.max()) < info.max * (1 - info.eps):
        error = torch.where(size < info.max * (1 - info.eps), error, torch.inf)  # overflow
        error = torch.where(pair.value.isfinite(), error, torch.as_tensor(pair.slack).to(error))
    return Pair(pair.value, _unbounded_at_nan(pair.value, error), True, pair.terms)


@dataclass(frozen=True)
class Op:
    """One operation of the reference.

    Parameters
    ----------
    name : str
        "aten.mm"
    dtype : torch.dtype
        Of its first result.
    numerics : Numerics
        The declared arithmetic.
    rounds : bool
        Whether its own roundings count; False to find what other operations contribute.
    results : tuple of tensor
        What the reference computed, for the shapes and dtypes.
    numbers : torch.dtype, optional
        To which Python numbers are rounded; by default `dtype`.
    is_read : bool
        Whether other operations read the results; the terms of sums are left out if none does.
    """

    name: str
    dtype: Any
    numerics: Numerics
    rounds: bool = True
    results: tuple[Tensor, ...] = ()
    numbers: Any = None
    is_read: bool = True

    @property
    def accumulator(self) -> Any:
        """Return the dtype of accumulators: float32, or float64 for data of that type."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    def with_dtype(self, dtype: Any) -> "Op":
        """Return the same operation with an intermediate result of another dtype."""
        return replace(self, dtype=dtype, numbers=self.numbers or self.dtype)

    def pair(self, number: Any) -> Pair:
        """Return an operand as a pair; a Python number may be rounded to the dtype."""
        if isinstance(number, Pair):
            return number
        value = torch.tensor(float(number), dtype=torch.float64)
        dtype = self.numbers or self.dtype
        if not dtype.is_floating_point or bool(is_stored(value, dtype)):
            return Pair(value)
        info = torch.finfo(dtype)
        return Pair(value, (value.abs() + info.smallest_normal) * info.eps)

    def gamma(self, n: Any, products: bool = False) -> Any:
        """Return the relative error of n roundings in the accumulator, and those of the value."""
        wide = n.to(torch.float64) if isinstance(n, torch.Tensor) else float(n)
        if self.accumulator == torch.float64:
            return 2 * compound_error(wide + 8, UNITS["rn64"])
        if products:
            roundings, unit = self.numerics.roundings(wide), self.numerics.unit
        else:
            roundings, unit = wide, max(UNITS["rn32"], self.numerics.unit)
        return compound_error(roundings, unit) + compound_error(wide + 8, UNITS["rn64"])

    def rounded(
        self,
        value: Tensor,
        error: Any,
        size: Tensor | None = None,
        n: Any = 1,
        exact: Any = False,
        products: float = 0.0,
        stages: int = 0,
    ) -> Pair:
        """Return the pair of a result that is rounded n times relative to `size`.

        By default that is the largest absolute value of a candidate before these roundings.
        `error` is what the errors of the operands cause. `exact` marks results that are not rounded
        in any order of evaluation, if they are numbers of the dtype. `products` is the largest
        operand of a matrix product, to which the declared arithmetic applies. `stages` is how often
        intermediate results are rounded to the dtype, in correct implementations of this function.
        """
        stored = self.dtype in (torch.float32, torch.float64)
        if not self.rounds or not self.dtype.is_floating_point:
            return Pair(value, _unbounded_at_nan(value, error + 0.0))
        is_exact, of_value = isinstance(error, float) and error == 0, size is None
        if size is None:
            size = value.abs() if is_exact else value.abs().add_(error)
        is_small = self._is_small(size)
        own = self.gamma(n, products > 0) * size
        least = self.underflow_error(n, products)
        own = own.add_(least) if isinstance(least, float) else own + least
        if products and self.numerics.cut and self.accumulator == torch.float32:
            own = own + (self.numerics.cut * size + n * (TF32_ETA * max(1.0, products)))
        if not stored and (stages or self.numerics.stages):
            stages = max(stages, self.numerics.stages)
            info = torch.finfo(self.dtype)
            own = own + compound_error(stages, info.eps / 2) * (size + own)
            own = own + stages * info.smallest_normal * info.eps
        is_finite = (is_small and of_value) or (exact is True and _is_finite(value))
        if exact is True and self.accumulator == torch.float32 and is_finite:
            # 0 where neither the value nor an operand is rounded: masks are slower than products
            far = value.to(self.accumulator).to(torch.float64).sub_(value).abs_()
            far = (far if is_exact else far.add_(error)).mul_(_FAR)
            own = torch.minimum(own, far)
        elif exact is not False and not _is_positive(error):
            certain = torch.as_tensor(exact) & torch.as_tensor(error == 0)
            if bool(certain.any()):
                own = torch.where(certain & self._is_held(value), 0.0, own)
        own = own if is_small else self.bounded(own, size, value)
        if not is_exact:
            same = isinstance(error, torch.Tensor) and error.shape == own.shape
            own = own.add_(error) if same else own + error
        return Pair(value, _unbounded_at_nan(value, own, is_small and is_exact), stored)

    def underflow_error(self, n: Any, products: float = 0.0) -> Any:
        """Return the error of n products that are too small to be normal numbers."""
        return n * (self._smallest * max(1.0, products))

    def bounded(self, own: Tensor, size: Tensor, value: Tensor) -> Tensor:
        """Return own roundings, unbounded where a sum overflows; infinities and NaN stay."""
        if not self._is_small(size):
            own = torch.where(size < self._huge, own, torch.inf)
            own = torch.where(value.isfinite(), own, 0.0)
        return own

    def _is_small(self, size: Tensor) -> bool:
        """Return whether no sum of this size overflows or is NaN."""
        return not size.numel() or float(size.amax()) < self._huge

    def _is_held(self, value: Tensor) -> Tensor:
        """Return where a value is a number of the accumulator; float64 itself cannot tell."""
        if self.accumulator == torch.float64:
            return (value == value.round()) & (value.abs() < 2.0**52) | ~value.isfinite()
        return is_stored(value, self.accumulator)

    @property
    def _huge(self) -> float:
        info = torch.finfo(self.accumulator)
        return float(info.max * (1 - info.eps))

    @property
    def _smallest(self) -> float:
        info = torch.finfo(self.accumulator)
        return float(info.tiny if self.numerics.ftz else info.smallest_normal * info.eps)


def compound_error(n: Any, unit: float) -> Any:
    """Return (1 + unit)**n - 1, lemma 1 of docs/judge.md."""
    exponent = n * math.log1p(unit)
    return math.expm1(exponent) if isinstance(exponent, float) else torch.expm1(exponent)
