"""What a backend declares about the arithmetic of one call."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, inf, log1p
from typing import Any

from .. import dtypes
from ..ops.sizes import one_of

# Unit roundoff of one addition: to nearest in binary32 or binary64, or the truncating
# tensor-core sum, which also loses up to one more unit per 16 products and per split.
UNITS = {
    "rn32": 2.0**-24,
    "rn64": 2.0**-53,
    "rn80": dtypes.number("f80").u,
    "mma32": 2.0**-22,  # of 23 bits; `Numerics.unit` is that of others
    "exact": 0.0,
}
_ACCUMULATOR = {"rn32": "f32", "rn64": "f64", "rn80": "f80", "mma32": "f32", "exact": "i64"}
_UNDECLARED = {"f64": "rn64", "c128": "rn64", "f80": "rn80", "c160": "rn80"}  # else rn32
TF32_UNIT = 2.0**-10  # one operand cut to 10 bits, truncation allowed
TF32_ETA = 2.0**-136  # and a subnormal one to a multiple of this


@dataclass(frozen=True)
class Numerics:
    """What a backend declares about the arithmetic of one call.

    Parameters
    ----------
    model : str
        "rn32", "rn64" (round to nearest), "mma32" (truncating tensor-core sums), "exact"
        (integers) or "undeclared", which can never be proven wrong outside exact data.
    tf32 : bool
        Operands are cut to 10 mantissa bits.
    tf32x3 : bool
        Operands are split in two such parts, of whose products the smallest is left out.
    stages : int
        How often a value on the path is rounded to the output type before the last rounding;
        at least half of all values that are so rounded on the way to one result.
    splits : int
        Partial sums that are added at the end (mma32 only).
    bits : int
        Bits after the leading one that tensor cores keep of a sum (mma32 only): 23, or 13 of 8-bit
        floats on sm_89 and sm_90.
    promoted : int
        Products after which such a sum is added to one in float32, rounded to nearest, and begins
        again; 0 for never.
    ftz : bool
        Subnormal operands and results may be flushed to zero.
    growth : float
        Factor by which intermediates exceed S (3-multiplication complex products: 4).
    normwise : float
        For Winograd and FFT: error relative to the largest S of the tensor; 0 is componentwise.
    positions : float, optional
        Unit roundoff of the positions at which a resize or a sample reads; by default the model's.
    weights : float
        Unit roundoff of the type to which its weights are rounded besides; 0 for none.
    strict_nonfinite : bool
        Non-finite operands behind absent taps never leak as NaN.

    Examples
    --------
    >>> 2**-14 < Numerics("rn32").gamma(1 << 10) < 2**-14 * (1 + 2**-14)
    True
    >>> Numerics("mma32", bits=13, promoted=128).gamma(4608) < 0.04 < Numerics(
    ...     "mma32", bits=13).gamma(4608)
    True
    """

    model: str = "rn32"
    tf32: bool = False
    tf32x3: bool = False
    stages: int = 0
    splits: int = 1
    bits: int = 23
    promoted: int = 0
    ftz: bool = False
    growth: float = 1.0
    normwise: float = 0.0
    strict_nonfinite: bool = False
    positions: float | None = None
    weights: float = 0.0

    def __post_init__(self) -> None:
        one_of("numerics", "model", self.model, (*UNITS, "undeclared"))

    @property
    def accumulator(self) -> str | None:
        """Return the type that holds the partial sums, or None if undeclared."""
        return _ACCUMULATOR.get(self.model)

    def held_to(self, dtype: str) -> Numerics:
        """Return the arithmetic whose bound holds on data of a type: itself, if it is declared."""
        return Numerics(_UNDECLARED.get(dtype, "rn32")) if self.model == "undeclared" else self

    @property
    def cut(self) -> float:
        """Return the relative error of a product whose operands are cut."""
        v = TF32_UNIT
        if self.tf32x3:
            return 3 * v**2 + v**4
        return 2 * v + v**2 if self.tf32 else 0.0

    def roundings(self, n: Any) -> Any:
        """Return how many roundings count for n products and additions."""
        if self.tf32x3:
            n = 3 * n + n // 128 + 1  # three products for one, of which two are small
        if self.model == "mma32":
            n = n + n // 16 + self.splits
        return n

    @property
    def unit(self) -> float:
        """Return the unit roundoff of one addition."""
        return 2.0 ** (1 - self.bits) if self.model == "mma32" else UNITS[self.model]

    @property
    def digits(self) -> float:
        """Return the largest p such that `bits` keep all integers up to 2**p."""
        return self.bits + 1 if self.model == "mma32" else inf

    def gamma(self, n: int) -> float:
        """Return (1 + u)**n - 1, the relative error of n roundings in any order.

        Where sums are promoted, that of as many as one has, and then of n in float32.
        """
        if self.model == "mma32" and 0 < self.promoted < n:
            part = gamma(self.roundings(self.promoted), self.unit)
            return (1 + part) * (1 + gamma(n, UNITS["rn32"])) - 1
        return gamma(self.roundings(n), self.unit)


def gamma(n: int, u: float) -> float:
    """Return (1 + u)**n - 1, the relative error of n roundings of unit u; lemma 1 of the page."""
    return expm1(n * log1p(u))
