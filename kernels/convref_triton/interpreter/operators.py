"""Operators on two tensors of one type, or on a tensor and a number, as one call of NumPy.

Triton's operators look for a common type, broadcast, and ask the builder. Where the types agree,
and NumPy broadcasts by itself, only the type of the result is needed, which is kept. All other
operands are left to Triton's operators.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl

from .programs import ProgramsBuilder
from .triton_internals import SIGNED, TensorHandle, numpy_dtype

Array = np.ndarray[Any, Any]
EVERY = slice(None)
UNSIGNED = {f"uint{bits}": range(2**bits) for bits in (8, 16, 32, 64)}
INTEGERS = SIGNED | UNSIGNED
# The integers that take the type of a tensor beside them without being rounded.
NUMBERS = INTEGERS | {"fp32": range(-(2**24), 2**24 + 1)}


def _divided(a: Array, b: Array) -> Array:
    """Return the quotients, cut towards zero."""
    result: Array = (a - np.fmod(a, b)) // b
    return result


class Operator(NamedTuple):
    """An operator: what computes it, on which types; those of a tensor that a number takes."""

    function: Callable[..., Array]
    kinds: Collection[str]
    with_number: Collection[str]
    compares: bool = False


WIDE = ("int32", "int64")  # a number beside a narrower type is int32, but not in arithmetic
OPERATORS = {
    "add": Operator(np.add, NUMBERS, NUMBERS),
    "sub": Operator(np.subtract, NUMBERS, NUMBERS),
    "mul": Operator(np.multiply, NUMBERS, NUMBERS),
    "floordiv": Operator(_divided, INTEGERS, INTEGERS),
    "mod": Operator(np.fmod, INTEGERS, INTEGERS),
    "and": Operator(np.bitwise_and, {*INTEGERS, "int1"}, WIDE),
    "or": Operator(np.bitwise_or, {*INTEGERS, "int1"}, WIDE),
    "rshift": Operator(np.right_shift, INTEGERS, ()),
    "lt": Operator(np.less, NUMBERS, NUMBERS, compares=True),
    "le": Operator(np.less_equal, NUMBERS, NUMBERS, compares=True),
    "gt": Operator(np.greater, NUMBERS, NUMBERS, compares=True),
    "ge": Operator(np.greater_equal, NUMBERS, NUMBERS, compares=True),
    "eq": Operator(np.equal, NUMBERS, NUMBERS, compares=True),
    "ne": Operator(np.not_equal, NUMBERS, NUMBERS, compares=True),
}
REFLECTED = ("add", "sub", "mul", "floordiv", "mod")


class Combined(NamedTuple):
    """How operands of two types combine."""

    kind: str  # the type of an element, the wider of two signed integers
    mixed: bool  # whether the types of elements differ
    type: Any  # of the result
    boolean: Any  # the type of the result of a comparison
    spreads: bool  # whether an operand is smaller than the result


class Operators:
    """The operators of tensors, bound to a builder; `theirs` are Triton's, by name."""

    def __init__(self, builder: ProgramsBuilder, theirs: dict[str, Callable[..., Any]]) -> None:
        self._builder, self._theirs = builder, theirs
        self._kinds: dict[tuple[str, str], Combined | None] = {}
        self._attributes: dict[str, dict[str, Any]] = {}

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the methods of a tensor by name."""
        found: dict[str, Callable[..., Any]] = {
            f"__{name}__": self._operator(f"__{name}__", row) for name, row in OPERATORS.items()
        }
        for name in REFLECTED:
            found[f"__r{name}__"] = self._reflected(f"__r{name}__", OPERATORS[name])
        found["__add__"] = self._pointer_sum(found["__add__"])
        return found | {"__getitem__": self._item, "to": self._to}

    def _operator(self, name: str, row: Operator) -> Callable[[Any, Any], Any]:
        function, kinds, with_number, compares = row
        theirs, tensor, constexpr = self._theirs[name], tl.tensor, tl.constexpr
        combined, made, spread = self._combination, self._tensor_of, self._spread

        def method(self: Any, other: Any) -> Any:
            if type(other) is constexpr:
                other = other.value
            if type(other) is tensor:
                both = combined(self.type, other.type)
                if both is not None and both.kind in kinds:
                    a, b = self.handle.data, other.handle.data
                    if a.dtype is b.dtype or both.mixed:
                        if both.spreads:
                            a, b = spread(a, b, both.type)
                        return made(function(a, b), both.boolean if compares else both.type)
            elif is_number(other, with_number, self.type.scalar.name):
                both = combined(self.type, self.type)
                data = function(self.handle.data, other)
                return made(data, both.boolean if compares else both.type)
            return theirs(self, other)

        return method

    def _reflected(self, name: str, row: Operator) -> Callable[[Any, Any], Any]:
        theirs, made, constexpr = self._theirs[name], self._tensor_of, tl.constexpr

        def method(self: Any, other: Any) -> Any:
            if type(other) is constexpr:
                other = other.value
            if is_number(other, row.with_number, self.type.scalar.name):
                return made(row.function(other, self.handle.data), self.type)
            return theirs(self, other)

        return method

    def _pointer_sum(self, numbers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return the sum that, besides `numbers`, adds offsets to a pointer."""
        combined, made, spread, tensor = self._combination, self._tensor_of, self._spread, tl.tensor

        def method(self: Any, other: Any) -> Any:
            if type(other) is tensor and self.type.scalar.is_ptr():
                both = combined(self.type, other.type)
                if both is not None and other.type.scalar.name in SIGNED:
                    size = np.uint64(max(1, self.type.scalar.element_ty.primitive_bitwidth // 8))
                    a, b = self.handle.data, other.handle.data.astype(np.uint64)
                    if both.spreads:
                        a, b = spread(a, b, both.type)
                    return made(a + size * b, both.type)
            return numbers(self, other)

        return method

    @property
    def _item(self) -> Callable[[Any, Any], Any]:
        """Return the index with None and full slices, which adds axes."""
        theirs, made = self._theirs["__getitem__"], self._tensor_of
        kinds: dict[tuple[Any, ...], Any] = {}

        def method(self: Any, slices: Any) -> Any:
            if type(slices) is not tuple or not all(s is None or s == EVERY for s in slices):
                return theirs(self, slices)
            rank = len(self.type.shape) if self.type.is_block() else 0
            if slices.count(EVERY) > rank:
                return theirs(self, slices)
            key = (self.type.name, *(s is None for s in slices))
            if key not in kinds:
                kinds[key] = theirs(self, slices).type
            return made(self.handle.data[EVERY, *slices], kinds[key])

        return method

    @property
    def _to(self) -> Callable[..., Any]:
        """Return the conversion, of which that between integers is short."""
        theirs, made = self._theirs["to"], self._tensor_of
        kinds: dict[tuple[str, str], Any] = {}

        def method(self: Any, dtype: Any, *rest: Any, **more: Any) -> Any:
            if rest or more or type(dtype) is not tl.dtype or dtype.name not in INTEGERS:
                return theirs(self, dtype, *rest, **more)
            if self.type.scalar.name not in INTEGERS:
                return theirs(self, dtype)
            key = self.type.name, dtype.name
            if key not in kinds:
                kinds[key] = theirs(self, dtype).type
            data = self.handle.data.astype(numpy_dtype(dtype), copy=False)
            return made(data, kinds[key])

        return method

    def _combination(self, left: Any, right: Any) -> Combined | None:
        key = left.name, right.name
        if key not in self._kinds:
            self._kinds[key] = _combined(left, right)
        return self._kinds[key]

    def _spread(self, a: Array, b: Array, kind: Any) -> tuple[Array, Array]:
        """Return arrays that NumPy broadcasts to the result's shape."""
        shape = kind.shape
        if len(a) > 1 or len(b) > 1:
            self._builder.check_size(a if len(a) > 1 else b, shape)
            rank = 1 + len(shape)
            a, b = (x if x.ndim == rank else x.reshape(-1, *(1,) * (rank - 1)) for x in (a, b))
        return a, b

    def _tensor_of(self, data: Array, kind: Any) -> Any:
        """Return a tensor, as its constructor makes it."""
        attributes = self._attributes.get(kind.name)
        if attributes is None:
            attributes = dict(vars(tl.tensor(TensorHandle(data, kind.scalar), kind)))
            self._attributes[kind.name] = attributes
        handle, tensor = object.__new__(TensorHandle), object.__new__(tl.tensor)
        vars(handle).update(data=data, dtype=kind.scalar, attr={})
        vars(tensor).update(attributes, handle=handle)
        return tensor


def is_number(value: Any, kinds: Collection[str], kind: str) -> bool:
    """Return whether a number takes the type of a tensor, one of `kinds`, without a conversion."""
    if kind not in kinds:
        return False
    if type(value) is int:
        return value in NUMBERS[kind]
    return type(value) is float and kind == "fp32"


def _combined(left: Any, right: Any) -> Combined | None:
    """Return how two types combine, None if that is left to Triton."""
    one, other = left.scalar, right.scalar
    mixed = one.name != other.name
    if mixed and not one.is_ptr():
        if one.name not in SIGNED or other.name not in SIGNED:
            return None
        one = max(one, other, key=lambda kind: kind.int_bitwidth)
    shapes = [[*kind.shape] if kind.is_block() else [] for kind in (left, right)]
    shape = shapes[0] or shapes[1]
    if shapes[0] and shapes[1]:
        if len(shapes[0]) != len(shapes[1]):
            return None
        if any(m != n and 1 not in (m, n) for m, n in zip(*shapes)):
            return None
        shape = [max(m, n) for m, n in zip(*shapes)]
    kinds = (tl.block_type(kind, shape) if shape else kind for kind in (one, tl.int1))
    return Combined(one.name, mixed, *kinds, any(each != shape for each in shapes))
