"""The reference in a wider type, and one result to compare with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from .. import dtypes, oracle
from ..arrays import Array
from ..case import Call, check_operands
from ..errors import a_kind, invalid, shorten
from ..ops import OWN_TYPE, TERMS, Terms
from .kinds import Kinds, kinds

Arrays = tuple[Array | None, ...]


@dataclass(frozen=True)
class Reference:
    """Everything the judge needs about one call: values, absolute sums and non-finite kinds."""

    call: Call
    operands: Arrays
    values: Arrays
    discrete: tuple[bool, ...]  # of each result, whether it is a copy or integers
    scale: Callable[[], Arrays]  # returns the formula on absolute values; see `sums`
    integral: bool
    largest: float
    kinds: dict[str, Kinds]
    # what rounded positions may change, by the unit roundoffs of positions and of weights
    moved: dict[tuple[float, float], Arrays] = field(default_factory=dict)

    @cached_property
    def sums(self) -> Arrays:
        """The formula on absolute values; None for discrete results, which need none."""
        pairs = zip(self.discrete, self.scale(), strict=True)
        return tuple(None if discrete else sums for discrete, sums in pairs)


@dataclass(frozen=True)
class Exhibit:
    """One result that a backend returned, with its reference."""

    ref: Reference
    role: str
    got: Array

    @property
    def call(self) -> Call:
        """Return the call that was made."""
        return self.ref.call

    @property
    def terms(self) -> Terms:
        """Return the terms of the result."""
        return TERMS[self.call.op, self.call.pass_, self.role]

    @property
    def value(self) -> Array:
        """Return the reference, not yet rounded."""
        return self._of(self.ref.values)

    @property
    def sums(self) -> Array:
        """Return the formula on absolute values; a discrete result has none."""
        return self._of(self.ref.sums)

    @property
    def kinds(self) -> Kinds | None:
        """Return which kind each output must have, or None where all operands are finite."""
        return self.ref.kinds.get(self.role)

    @property
    def is_discrete(self) -> bool:
        """Return whether the result is a copy or integers, so that nothing is rounded."""
        return self.ref.discrete[self.place]

    @property
    def place(self) -> int:
        """Return the place of the result among those of the pass."""
        return self.call.signature.results.index(self.role)

    def _of(self, arrays: Arrays) -> Array:
        array = arrays[self.place]
        assert array is not None
        return array


def _check(call: Call, operands: Sequence[Array | None]) -> None:
    if not isinstance(call, Call):
        what = f"call is {a_kind(call)}, needs a Call, as parse(line).call is"
        raise invalid("judge", what)
    where = f"judge {call.where}"
    if not isinstance(operands, Sequence) or len(operands) != len(call.roles):
        needs = f"needs {len(call.roles)}: {', '.join(call.roles)}"
        raise invalid(where, f"operands is {shorten(repr(operands))}, {needs}", call)
    check_operands(call, operands, where)


def reference(call: Call, operands: Sequence[Array | None], *, checked: bool = False) -> Reference:
    """Return the reference of `call` on `operands`, in the oracle's wider type.

    `checked` says that the operands are known to fit the call.
    """
    if not checked:
        _check(call, operands)
    wide, raw = dtypes.accumulator(call.dtype), tuple(operands)
    roles, whole = call.signature.results, call.dtype in ("obj", *dtypes.INTEGERS)
    made_as = [TERMS[call.op, call.pass_, role].kind for role in roles]
    absent: Arrays = (None,) * len(roles)
    exact, discrete = absent, tuple(whole or kind == "copy" for kind in made_as)
    if whole or "copy" in made_as:
        exact = oracle.evaluate(call, *raw, out=wide if whole else None)
    if whole or set(made_as) == {"copy"}:
        return Reference(call, raw, exact, discrete, lambda: absent, True, 0.0, {})
    finite, of_kinds = _map_values(call, raw, lambda a: _real_wide(a, wide)), {}
    data = finite
    if not all(a is None or np.isfinite(a).all() for a in finite):
        data = _map_values(call, raw, lambda a: finite_part(a, wide))
        finite = _finite_operands(call, raw)
        of_kinds = {} if call.problem.may_cancel else kinds(call, raw)
    found_values = oracle.evaluate(call, *finite, out=wide)
    scale = partial(oracle.magnitudes, call, *finite, values=found_values)
    values = tuple(e if k == "copy" else v for k, e, v in zip(made_as, exact, found_values))
    numbers = [a for r, a in zip(call.roles, data) if a is not None and r not in OWN_TYPE]
    largest = max((float(np.abs(a).max()) for a in numbers if a.size), default=0.0)
    # Positions are whole; a scale, which has a type of its own too, may not be.
    whole = all(_is_integral(a) for a in data if a is not None and a.dtype.kind != "i")
    return Reference(call, raw, values, discrete, scale, whole, largest, of_kinds)


def _map_values(call: Call, operands: Arrays, function: Callable[[Array], Array]) -> Arrays:
    """Return the operands, those that are numbers and not positions through a function."""
    return tuple(
        a if a is None or role in OWN_TYPE else function(a) for role, a in zip(call.roles, operands)
    )


def finite_part(array: Array, wide: str) -> Array:
    """Return an array in the type `wide`, with zeros for elements that are not finite."""
    array = _real_wide(array, wide)
    return np.where(np.isfinite(array), array, array.dtype.type(0))


def _finite_operands(call: Call, operands: Arrays) -> Arrays:
    """Return the operands with infinities and NaN replaced, except those that choose positions."""
    formula = any(TERMS[call.op, call.pass_, r].kind == "formula" for r in call.signature.results)
    kept = call.roles if formula else oracle.selectors(call)
    wide = dtypes.accumulator(call.dtype)
    return tuple(
        a if a is None or role in kept else finite_part(a, wide)
        for role, a in zip(call.roles, operands)
    )


def _is_integral(array: Array) -> bool:
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    return all(bool((np.rint(part) == part).all()) for part in parts)


def _real_wide(array: Array, wide: str) -> Array:
    return array.astype(dtypes.numpy_dtype(wide), copy=False)
