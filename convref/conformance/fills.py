"""The data of a case: each value a function of (seed, role, logical index) and of nothing else.

Every axis has one random word per coordinate, from a counter-based generator; the words of an
element are added and mixed. Shrinking an extent therefore keeps the rest of the data, and the
bits are the same on every machine: there is no transcendental function here.
"""

from fractions import Fraction
from functools import lru_cache
from math import isqrt, prod
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..arrays import Array
from ..case import FILLS, Call, Case
from ..errors import invalid
from ..ops import BASE_ROLE, OPS, ConvProblem, Sizes

Words = np.ndarray[Any, np.dtype[np.uint64]]

_FLOAT_ONLY = ("nan", "inf", "negzero", "subnormal")
# Largest integer of a narrow type; else 16.
_MOST = dict.fromkeys(("f16", "bf16", "i8", "u8", *dtypes.EIGHT), 4)
_EXPONENTS = {"e4m3": 7}  # "wide" spans 2**-7 to 2**7 of this type, 2**-12 to 2**12 of others
_EIGHT_DIGITS = 12  # of sums of 8-bit floats: 14 that tensor cores keep, less 2 of scales up to 4
_MEAN, _SMALL_MEAN = 1024, 64  # of "shifted", and in 16-bit types and integers
_SEVERAL = 4  # of four seeds one has several NaN


def available(fill: str, dtype: str) -> bool:
    """Return whether the number type has the special values of `fill`.

    >>> available("nan", "bf16"), available("nan", "i8")
    (True, False)
    """
    if dtype in dtypes.EIGHT:
        return fill != "inf" or bool(np.isinf(dtypes.numpy_dtype(dtype).type(np.inf)))
    return fill not in _FLOAT_ONLY or dtype in dtypes.FLOATS + dtypes.COMPLEX


def values(case: Case, role: str) -> Array:
    """Return the data of the operand in `role`, in logical axis order, C-contiguous.

    Its dtype is that of its Spec; "obj" has Fractions. A dtype without the fill is an error.

    >>> from convref.case import parse
    >>> values(parse("conv.fprop:n1c1k1_i4_f1"), "x").shape
    (1, 1, 4)
    >>> np.array_equal(values(parse("conv.fprop:n1c1k1_i4_f1:fill=normal"), "x"),
    ...                values(parse("conv.fprop:n1c1k1_i9_f1:fill=normal"), "x")[:, :, :4])
    True
    """
    dtype = case.call.spec(role).dtype
    if not available(case.fill, dtype):
        has = ", ".join(fill for fill in FILLS if available(fill, dtype))
        raise invalid("fills", f"{dtype} has no fill {case.fill}, needs one of {has}", case)
    if dtype in dtypes.COMPLEX:
        result = np.empty(case.call.problem.shape(role), dtypes.numpy_dtype(dtype))
        with np.errstate(all="ignore"):
            result.real, result.imag = (_part(case, role, dtype, part) for part in (0, 1))
        return result
    return _cast(_part(case, role, dtype, 0), dtype)


def _cast(array: Array, dtype: str) -> Array:
    if dtype == "obj":  # Fractions, non-integers with a small denominator
        result = np.empty(array.shape, object)
        result.ravel()[:] = [Fraction(v).limit_denominator(8) for v in array.ravel().tolist()]
        return result
    with np.errstate(all="ignore"):
        if dtype == "bf16":  # there is no direct cast; which way it rounds does not matter here
            array = array.astype(np.float32)
        return array.astype(dtypes.numpy_dtype(dtype), order="C", copy=False)


def _part(case: Case, role: str, dtype: str, part: int) -> Array:
    """Return the real (0) or imaginary (1) part, before rounding to the dtype."""
    shape = case.call.problem.shape(role)
    axes = _axis_words(case.seed, role, part, shape)
    if case.fill in ("nan", "inf", "impulse"):
        return _PLACED[case.fill](case, role, dtype, axes)
    if case.fill == "ones":
        return np.full(shape, 1.0 - part)
    if case.fill == "ramp":
        return _ramp(case, dtype, shape, part)
    words = _mixed(axes)
    if case.fill == "int":
        return _int(case, role, dtype, words)
    return _SPREAD[case.fill](case, role, dtype, words)


class _Key(np.random.SeedSequence):
    """A seed that is the key itself: with `key=`, NumPy would still ask the system for a seed."""

    def __init__(self, key: Words) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self.key


def _axis_words(seed: int, role: str, part: int, shape: Sizes) -> list[Words]:
    """Return one word per coordinate of each axis; those of a shorter axis are a prefix."""
    name = int.from_bytes(role.encode(), "little") * 2 + part  # at most 8 letters
    key = _Key(np.array([seed, name % 2**64], np.uint64))
    longest = max(shape, default=0)
    table = np.random.Philox(key).random_raw(longest * len(shape))
    table = table.reshape(longest, len(shape))
    return [table[:size, axis] for axis, size in enumerate(shape)]


def _mixed(axes: list[Words]) -> Words:
    """Return a word per element: the sum of its axes' words, through the splitmix64 finaliser."""
    total = axes[0]
    for words in axes[1:]:
        total = total[..., None] + words
    return _mix(total)


def _mix(words: Words) -> Words:
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _integers_below(words: Words, bound: int) -> Array:
    """Return integers in [0, bound), bound <= 2**31, from the low half of each word."""
    low = words & np.uint64(0xFFFFFFFF)
    return ((low * np.uint64(bound)) >> np.uint64(32)).astype(np.float64)


def _signs(words: Words) -> Array:
    return 1.0 - 2.0 * (words >> np.uint64(63)).astype(np.float64)


class IntegerLimits(NamedTuple):
    """Limits that keep integer sums exact: the largest magnitude, and the sparsity if that is 1.

    One in `filter` elements of a filter is not zero, and one in `batch` of those summed over batch
    and space.
    """

    magnitude: int
    filter: int
    batch: int


@lru_cache(maxsize=64)
def integer_limits(call: Call) -> IntegerLimits:
    """Return the limits under which no result of `call` can exceed 2**digits of its dtype.

    Magnitudes shrink first; where even ones are too many, zeros are placed.

    >>> from convref.case import parse
    >>> integer_limits(parse("conv.fprop:n1c512k8_i3x3_f3x3").call)
    IntegerLimits(magnitude=16, filter=1, batch=1)
    >>> integer_limits(parse("conv.fprop:n1c512k8_i3x3_f3x3:dt=bf16").call)
    IntegerLimits(magnitude=1, filter=19, batch=1)
    """
    most = _MOST.get(call.dtype, 16)
    limit = 2 ** dtypes.number(call.dtype).digits
    if call.dtype in dtypes.EIGHT:
        limit = 2**_EIGHT_DIGITS
    if call.dtype in dtypes.COMPLEX:
        limit //= 2  # each part of a product is two products
    if not OPS[call.op].multiplies:
        longest = max(map(call.products, call.wanted))
        return IntegerLimits(max(1, min(most, limit // max(1, longest))), 1, 1)
    long = {role: call.products(role) for role in call.wanted}
    longest = max(long.values(), default=1)
    if magnitude := min(most, isqrt(limit // max(1, longest))):
        return IntegerLimits(magnitude, 1, 1)
    thins = isinstance(call.problem, ConvProblem)
    return IntegerLimits(1, *(_thinning(call, long, limit) if thins else (1, 1)))


def _thinning(call: Call, long: dict[str, int], limit: int) -> tuple[int, int]:
    """Return `filter` and `batch` of the limits of a call with sums too long for ones."""
    problem, taps = call.conv, prod(call.conv.filter)
    by_filter = by_batch = 1
    for role in long:
        base = BASE_ROLE[role]
        if base in ("w", "b"):
            thinned = problem.shape(_summed_role(call))
            by_batch = max(by_batch, -(-thinned[0] * prod(thinned[2:]) // limit))
        else:  # a strided scatter meets few taps, perhaps the very ones that are kept: count all
            channels = (problem.c if base == "y" else problem.k) // problem.groups
            terms = 2 if role in ("y_dot", "ddy") else 1
            room = (limit - 1) // terms
            by_filter = max(by_filter, -(-channels * taps // room))
    return by_filter, by_batch


def _int(case: Case, role: str, dtype: str, words: Words) -> Array:
    """Return integers without zeros, except those placed to keep sums exact."""
    magnitude, by_filter, by_batch = integer_limits(case.call)
    result = _integers_below(words, magnitude) + 1.0
    if dtype[0] != "u":
        result *= _signs(words)
    base = BASE_ROLE[role]
    if by_filter == by_batch == 1:
        return result
    first, second, *space = words.shape if len(words.shape) > 1 else (1, 1)
    rows, columns, places = np.arange(first), np.arange(second), prod(space)
    if base == "w" and by_filter > 1:  # evenly in each row and in each column of the filter
        result *= _one_in(np.add.outer(rows, columns) * places, words.shape, by_filter)
    if by_batch > 1 and base == _summed_role(case.call):  # evenly in each channel
        result *= _one_in(np.add.outer(rows * places, columns), words.shape, by_batch)
    return result


def _summed_role(call: Call) -> str:
    """Return the base role thinned over batch and space: dy, which alone db sums.

    Without db, wgrad of a transposed convolution counts fewer places in its input.
    """
    return "x" if call.conv.transposed and "db" not in call.wanted else "y"


def _one_in(lead: Array, shape: Sizes, every: int) -> Array:
    """Return 1.0 at one in `every` elements, counted over space from `lead`, which has two axes."""
    index = np.add.outer(lead, np.arange(prod(shape[2:])))
    return (index % every == 0).reshape(shape).astype(np.float64)


def _leads(call: Call, role: str) -> bool:
    """Return whether exactly one factor of each product has this role: it gets special values."""
    if not OPS[call.op].multiplies:
        return True
    return BASE_ROLE[role] == ("y" if call.pass_ == "backward" else "x")


def _ramp(case: Case, dtype: str, shape: Sizes, part: int) -> Array:
    """Return small positive integers that count up along the last axis and differ along all."""
    magnitude = integer_limits(case.call).magnitude
    index = np.zeros((1,) * len(shape), np.int64)
    for axis, size in enumerate(shape):
        weight = (1, 3, 7, 11, 13)[len(shape) - 1 - axis]
        coordinate = weight * np.arange(size)
        index = index + coordinate.reshape(-1, *(1,) * (len(shape) - 1 - axis))
    return (1.0 + (index + part) % magnitude).astype(np.float64)


def _impulse(case: Case, role: str, dtype: str, axes: list[Words]) -> Array:
    """Return one 1 in zeros for the leading operand, integers for those it picks from."""
    if not _leads(case.call, role):
        return _int(case, role, dtype, _mixed(axes))
    result = np.zeros([len(words) for words in axes])
    if result.size:
        result[tuple(int(words.argmin()) for words in axes)] = 1.0
    return result


def _special(case: Case, role: str, dtype: str, axes: list[Words]) -> Array:
    """Return normal data; in the operand that the seed chooses NaN, or -inf and inf.

    Of NaN there is one, or for one seed of four one in four elements is NaN.
    """
    words = _mixed(axes)
    result = _normal(case, role, dtype, words)
    if result.size and role == _special_role(case):
        if case.fill == "nan" and case.seed % _SEVERAL == 2:
            result[words % np.uint64(4) == 0] = np.nan
        if case.fill == "inf":
            result[tuple(int(words.argmax()) for words in axes)] = -np.inf
        special = np.inf if case.fill == "inf" else np.nan
        result[tuple(int(words.argmin()) for words in axes)] = special
    return result


def _special_role(case: Case) -> str:
    present = [role for role in case.call.roles if case.call.is_present(role)]
    return present[case.seed % len(present)]


def _normal(case: Case, role: str, dtype: str, words: Words) -> Array:
    """Return sums of four uniforms, all bits random: zero mean, variance 1, below 2 sqrt(3)."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    again = _mix(words + np.uint64(0x9E3779B97F4A7C15))
    total = (words & low) + (words >> high) + (again & low) + (again >> high)
    centred = total.astype(np.float64) - 2.0 * (2**32 - 1)
    result: Array = centred * (np.sqrt(3.0) / 2**32)
    return np.rint(4.0 * result) if dtype in dtypes.INTEGERS else result


def _shifted(case: Case, role: str, dtype: str, words: Words) -> Array:
    """Return normal data about a large mean: a variance taken as a difference loses its digits."""
    narrow = dtype in (*dtypes.SIXTEEN, *dtypes.EIGHT) or dtype in dtypes.INTEGERS
    return _normal(case, role, dtype, words) + (_SMALL_MEAN if narrow else _MEAN)


def _positive(case: Case, role: str, dtype: str, words: Words) -> Array:
    """Return uniform values in (0, 1], or integers from 1 to 16: sums without cancellation."""
    if dtype in dtypes.INTEGERS:
        return _integers_below(words, _MOST.get(dtype, 16)) + 1.0
    return ((words >> np.uint64(11)).astype(np.float64) + 1.0) / 2**53


def _wide(case: Case, role: str, dtype: str, words: Words) -> Array:
    """Return normal data times powers of two, or integers over the whole range."""
    if dtype in dtypes.INTEGERS:
        return words.view(np.int64)
    most = _EXPONENTS.get(dtype, 12)
    exponents = _integers_below(_mix(words + np.uint64(1)), 2 * most + 1) - most
    return np.ldexp(_normal(case, role, dtype, words), exponents.astype(np.int64))


def _subnormal(case: Case, role: str, dtype: str, words: Words) -> Array:
    """Return data near the smallest normal number, for one factor of each product and the bias."""
    result = _normal(case, role, dtype, words)
    if not _leads(case.call, role) and BASE_ROLE[role] != "b":
        return result
    # float has no such small numbers as longdouble
    tiny = np.finfo(np.longdouble).tiny if dtype == "f80" else np.float64(dtypes.number(dtype).tiny)
    exponents = _integers_below(_mix(words + np.uint64(1)), 9) - 6.0
    wide = result.astype(np.promote_types(np.float64, tiny.dtype))
    return np.ldexp(wide, exponents.astype(np.int32)) * tiny


_PLACED = {"nan": _special, "inf": _special, "impulse": _impulse}
_SPREAD = {
    "normal": _normal,
    "positive": _positive,
    "wide": _wide,
    "shifted": _shifted,
    "ties": lambda case, role, dtype, w: (
        _integers_below(w, 3) if dtype[0] == "u" else _integers_below(w, 4) - 1.0
    ),
    "negzero": lambda case, role, dtype, w: np.copysign(_integers_below(w, 2), _signs(w)),
    "subnormal": _subnormal,
}
assert {*_PLACED, *_SPREAD, "int", "ones", "ramp"} == set(FILLS)
