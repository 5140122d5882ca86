"""The base of all families of problems: a batch of images, and what its sizes determine."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import cache, cached_property
from math import inf, prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from ..dtypes import EIGHT
from ..errors import invalid, shorten
from .sizes import (
    FILTER_AXES,
    MAX_ELEMENTS,
    RANKS,
    SPATIAL,
    Pads,
    Sizes,
    integer,
    integers,
    items,
    one_of,
    real,
)

ROLES = ("x", "k", "v", "w", "b", "p", "y", "cols", "grid", "boxes", "offset", "mod")
# Roles whose type is not that of the data, and which are never differentiated.
OWN_TYPE = {
    **dict.fromkeys(("indices", "target"), "i64"),  # positions
    **dict.fromkeys(("b32", "zero", "acc"), "i32"),  # of integer convolutions
    "scale": "f32",  # per output channel
}
STATISTICS = ("mean", "rstd", "rmean", "rvar")
_STATISTIC_DTYPE = {"f16": "f32", "bf16": "f32"}  # as in libraries

BASE_ROLE = {
    variant: role for role in ROLES for variant in (role, f"d{role}", f"{role}_dot", f"dd{role}")
} | {role: role for role in (*OWN_TYPE, *STATISTICS)}


def role_dtype(role: str, dtype: str) -> str:
    """Return the type of the array in `role` where data and weights have the type `dtype`.

    >>> role_dtype("x", "bf16"), role_dtype("indices", "bf16"), role_dtype("mean", "bf16")
    ('bf16', 'i64', 'f32')
    """
    if role in OWN_TYPE:
        return OWN_TYPE[role]
    return _STATISTIC_DTYPE.get(dtype, dtype) if role in STATISTICS else dtype


class Field(NamedTuple):
    """A field of a problem in the line."""

    name: str  # the attribute of the problem
    codec: str  # how the line writes it: a key of `convref.case.text.WRITE`
    # the values that the court draws, the plainest first, likelier ones repeated; empty where a
    # rule of the family draws the field. None among them is a value.
    draws: tuple[Any, ...] = ()
    words: tuple[str, ...] = ()  # the words that the field takes, if not those that are drawn
    least: float = -inf  # the least value of a float
    label: str = ""  # what messages call the field, if not by its name

    def checked(self, where: str, value: Any, rank: int) -> Any:
        """Return `value` as a problem holds it, or raise."""
        name = self.label or self.name
        if value is None and None in self.draws:
            return None
        if self.codec == "float":
            return real(where, name, value, self.least)
        if self.codec == "word":
            return one_of(where, name, value, self.words or self.draws)
        if self.codec == "sizes":
            return integers(where, name, value, rank)
        if self.codec == "integer":
            return integer(where, name, value)
        if self.codec != "flag":
            return value
        try:
            return bool(value)
        except (TypeError, ValueError, RuntimeError):  # an array of several values
            raise invalid(where, f"{name} is {shorten(repr(value))}, needs a bool") from None


class Positions(NamedTuple):
    """The positions that an operand may hold: 0 to `total` - 1, or `other`."""

    total: int
    other: int | None = None
    thing: str = "a position"  # what they are, in messages
    column: int | None = None  # the one that holds them, where only one does


# The parts of a problem whose output may have any size.
INPUT_AND_OUTPUT = {"i": Field("input", "extents"), "o": Field("output", "extents")}
# Why an op that takes roots or exponentials has no numbers of these types.
_NO_INTEGERS = "results of {code} are not integers, needs floats or Fractions"
INEXACT = {"c": "complex numbers are not in the domain", "i": _NO_INTEGERS, "u": _NO_INTEGERS}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A batch of images: the base of all families.

    A family is a subclass: its fields, how the line writes them (HEAD, PARTS and KEYS, in the
    order of the line), the shape of each role, and the cost of its results.

    Parameters
    ----------
    n, c : int
        Batch and channels.
    input : tuple of int
        Spatial sizes, one per axis (1 to 3).

    Raises
    ------
    ConvrefError
        If a size is out of its range.
    """

    name: ClassVar[str] = ""  # in messages
    HEAD: ClassVar[dict[str, str]] = {"n": "n", "c": "c"}
    PARTS: ClassVar[dict[str, Field]] = {"i": Field("input", "extents")}
    KEYS: ClassVar[dict[str, Field]] = {}
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 0),)  # fields and their least values
    LEAST: ClassVar[dict[str, int]] = {"n": 0, "c": 0}
    HAS_RANKS: ClassVar[tuple[int, ...]] = tuple(RANKS)
    INDEPENDENT: ClassVar[str] = "nc"  # see `independent`
    REFUSES: ClassVar[dict[str, str]] = {}  # reasons by the first letter of the type of numbers
    # Fields that the shapes of the operands determine.
    OF_OPERANDS: ClassVar[tuple[str, ...]] = ("n", "c", "input", "weight", "bias")

    n: int
    c: int
    input: Sizes

    if TYPE_CHECKING:  # fields of a subclass; the caller has checked the op

        def __getattr__(self, name: str) -> Any: ...

    def __post_init__(self) -> None:
        where = self.name
        given = items(self.input) if hasattr(self.input, "__len__") else None
        rank = 1 if given is None else len(given)
        if rank not in self.HAS_RANKS:
            needs = "1 to 3" if len(self.HAS_RANKS) > 2 else " or ".join(map(str, self.HAS_RANKS))
            raise invalid(where, f"input has {rank} spatial axes, needs {needs}")
        for name, least in self.LEAST.items():
            size = integer(where, name, getattr(self, name))
            self._put(name, self._at_least(name, size, least))
        for name, least in self.SIZES:
            sizes = integers(where, name, getattr(self, name), rank)
            axes = FILTER_AXES if name == "filter" else RANKS
            for axis, size in zip(axes[rank], sizes, strict=True):
                self._at_least(f"{name} {axis}", size, least)
            self._put(name, sizes)
        for field in self.KEYS.values():
            self._put(field.name, field.checked(where, getattr(self, field.name), rank))
        self._validate(where, rank)
        for role, shape in self._shapes.items():
            if (count := prod(shape)) > MAX_ELEMENTS:
                raise invalid(where, f"{role} has {count} elements, needs at most 2**60", self)

    def _validate(self, where: str, rank: int) -> None:
        """Check the fields of a family; those of KEYS have been checked by `Field.checked`."""

    @classmethod
    def of_operands(
        cls, pass_: str, shapes: dict[str, Sizes], given: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the fields that the shapes of the operands determine.

        Parameters
        ----------
        pass_ : str
        shapes : dict
            By base role, x among them.
        given : dict
            The other fields.
        """
        n, c, *space = shapes["x"]
        found = {"n": n, "c": c, "input": tuple(space)}
        flags = {"weight": "w" in shapes, "bias": "b" in shapes}
        return {**found, **{k: v for k, v in flags.items() if k in cls.__dataclass_fields__}}

    @classmethod
    def input_channels(cls, channels: int, given: dict[str, Any]) -> int:
        """Return the channels of the input from those of the output and the other fields."""
        return channels

    @classmethod
    def admissible(cls, sizes: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the sizes n, c and input, or larger ones that the family takes."""
        return sizes

    @classmethod
    def unchecked(cls, given: dict[str, Any]) -> Self:
        """Return a problem with these fields as they are: sizes may be symbolic integers."""
        made = object.__new__(cls)
        for field in fields(cls):
            made._put(field.name, given.get(field.name, field.default))
        return made

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _at_least(self, name: str, value: int, least: int) -> int:
        if value < least:
            raise invalid(self.name, f"{name} is {value}, needs at least {least}")
        return value

    @classmethod
    @cache
    def defaults(cls) -> dict[str, Any]:
        """Return the fields that may be left out, with their defaults."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}

    @classmethod
    @cache
    def line_fields(cls) -> dict[str, Field]:
        """Return all fields by their key or letter in the line."""
        head = {letter: Field(name, "integer") for letter, name in cls.HEAD.items()}
        return {**head, **cls.PARTS, **cls.KEYS}

    def line_value(self, key: str) -> Any:
        """Return the value of the field that the line writes as `key`; None if there is none."""
        field = self.line_fields().get(key)
        return None if field is None else getattr(self, field.name)

    @property
    def rank(self) -> int:
        """Return the number of spatial axes."""
        return len(self.input)

    @property
    def axes(self) -> tuple[Any, ...]:
        """Return the geometry of each spatial axis, where the family has windows."""
        return ()

    @property
    def groups(self) -> int:
        """Return how many groups the channels form."""
        return 1

    @property
    def padding(self) -> Pads:
        """Return (lo, hi) per axis; empty where the family has no padding."""
        return ()

    def shape(self, role: str) -> Sizes:
        """Return the shape of the array in `role` (its cotangent and tangent have the same)."""
        return self._shapes[BASE_ROLE[role]]

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        images = {"x": self.input, "y": getattr(self, "output", self.input)}
        return {role: (self.n, self.c, *sizes) for role, sizes in images.items()}

    def letters(self, role: str) -> str:
        """Return one letter per axis of the array in `role`, in logical order."""
        return "nc" + SPATIAL[self.rank]

    @property
    def independent(self) -> str:
        """Return the indices of sizes n, c and k by which the problem splits into smaller ones.

        An operand or result without the index belongs to all of them; such a result is the sum
        of theirs.
        """
        return self.INDEPENDENT

    def for_pass(self, pass_: str, code: str) -> Problem:
        """Return the problem of `pass_` on numbers of type `code`, so that a call has one."""
        return self

    def has(self, role: str) -> bool:
        """Return whether the problem has an operand in `role` at all."""
        flag = {"w": "weight", "b": "bias"}.get(BASE_ROLE[role], "")
        return bool(getattr(self, flag, True))

    def positions(self, role: str) -> Positions | None:
        """Return the positions that an operand may hold; None where it holds other numbers."""
        return Positions(prod(self.input), -1) if role == "indices" else None

    def flaw(self, values: Any, room: int) -> str | None:
        """Return what is wrong with values besides positions, for `room` bytes, or None."""
        return None

    def tangents(self, pass_: str) -> str:
        """Return the primals that may, each on its own, carry a tangent or cotangent in `pass_`."""
        return ""

    def dtype_of(self, role: str, code: str) -> str:
        """Return the type of the array in `role` where data have the type `code`."""
        return role_dtype(role, code)

    @classmethod
    def of_dtypes(cls, pass_: str, types: dict[str, str]) -> dict[str, Any]:
        """Return the fields that the types of the operands, by role, determine."""
        return {}

    def refuses(self, code: str, pass_: str = "fprop") -> str | None:
        """Return why numbers of type `code` have no such result, or None."""
        if code in EIGHT:
            return f"{self.name} has no {code}: only scaled_conv has"
        reason = self.REFUSES.get(code[0])
        return reason and reason.format(code=code)

    def for_dtype(self, code: str, pass_: str) -> Problem:
        """Return the problem, or one like it that has `pass_` of numbers of type `code`."""
        return self

    def is_exact(self, code: str) -> bool:
        """Return whether sums of integers that fit give results that need no rounding."""
        return True

    @property
    def may_cancel(self) -> bool:
        """Return whether rounding may decide which results are finite."""
        return False

    @property
    def grain(self) -> int:
        """Return a number that makes an integer of each term of a sum of integers."""
        return 1

    def products(self, role: str) -> int:
        """Return the most roundings on the path to one element of the result `role`."""
        return 1

    def macs(self, role: str) -> int:
        """Return the products that the result `role` needs, those with padding left out."""
        return 0

    def work(self) -> int:
        """Return about how many steps nested loops take for one pass."""
        return max(map(prod, self._shapes.values()))

    def elements_read(self, role: str) -> int:
        """Return how many elements of an operand in `role` any result needs."""
        return prod(self.shape(role))

    def scratch(self) -> int:
        """Return how many elements the oracle holds besides operands and results."""
        return 0

    def padded_image(self) -> int:
        """Return how many elements an image has that the oracle pads, or 0 if it pads none."""
        return 0
