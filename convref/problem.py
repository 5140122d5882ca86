"""The mathematics of a call: sizes and geometry, validated once, and all that follows from them.

A Problem knows no dtype, memory order or device; those belong to `convref.case.Call`.
Capital letters in comments and docs: N batch, C input channels, K output channels, G groups,
D H W input, T R S filter, O P Q output.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any, ClassVar, NamedTuple

from .errors import ConvrefError, message, shorten

Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]

MAX_SIZE = 2**40  # elements along one axis; far above any device, far below int64 overflow
MAX_ELEMENTS = 2**60  # elements of one array
RANKS = {1: "W", 2: "HW", 3: "DHW"}
OUTPUT_AXES = {1: "Q", 2: "PQ", 3: "OPQ"}
FILTER_AXES = {1: "S", 2: "RS", 3: "TRS"}


def integer(where: str, name: str, value: Any) -> int:
    """Return `value` as an int, or raise: floats, NaN, bools and strings are no sizes."""
    try:
        if isinstance(value, bool):
            raise TypeError
        result = operator.index(value)
    except TypeError:
        raise ConvrefError(
            message(where, f"{name} is {shorten(repr(value))}, needs an integer")
        ) from None
    if abs(result) > MAX_SIZE:
        raise ConvrefError(message(where, f"{name} is {shorten(result)}, needs at most 2**40"))
    return result


def items(value: Any) -> list[Any] | None:
    """Return the entries of a sequence, or None for what is one value: a number, text, no axes."""
    if isinstance(value, (str, bytes, dict)):
        return None
    try:
        return list(value)
    except TypeError:
        return None


def integers(where: str, name: str, value: Any, rank: int) -> Sizes:
    """Return `value`, one integer or one per spatial axis, as `rank` integers."""
    given = items(value)
    if given is None:
        return (integer(where, name, value),) * rank
    if len(given) == 1:
        given *= rank
    if len(given) != rank:
        needs = f"1 or {rank} (one per spatial axis)" if rank > 1 else "1"
        raise ConvrefError(message(where, f"{name} has {len(given)} entries, needs {needs}"))
    return tuple(integer(where, f"{name}[{a}]", item) for a, item in enumerate(given))


def pads(where: str, name: str, value: Any, rank: int) -> Pads:
    """Return padding as ((lo, hi), ...): from an int, ints, or (lo, hi) pairs per axis."""
    given = items(value)
    if given is None:
        return ((integer(where, name, value),) * 2,) * rank
    pairs = [items(entry) for entry in given]
    if all(pair is None for pair in pairs):
        return tuple((size, size) for size in integers(where, name, given, rank))
    if len(pairs) == 1:
        pairs *= rank
    if len(pairs) != rank or None in pairs:
        raise ConvrefError(
            message(
                where, f"{name} is {shorten(value)}, needs {rank} (lo, hi) pairs or {rank} ints"
            )
        )
    result = []
    for axis, pair in enumerate(pairs):
        assert pair is not None
        if len(pair) != 2:
            raise ConvrefError(
                message(where, f"{name}[{axis}] has {len(pair)} entries, needs (lo, hi)")
            )
        result.append(
            (
                integer(where, f"{name}[{axis}] lo", pair[0]),
                integer(where, f"{name}[{axis}] hi", pair[1]),
            )
        )
    return tuple(result)


class Axis(NamedTuple):
    """One spatial axis of sliding windows: `big` positions, `small` windows over them.

    Window p reads, at tap r, position ``p * stride + r * dilation - lo`` of the big side.
    """

    big: int
    small: int
    taps: int
    stride: int
    dilation: int
    lo: int
    hi: int

    def windows_at(self, r: int) -> range:
        """Return the windows p whose tap r falls on a position that exists."""
        shift = r * self.dilation - self.lo
        first = max(0, -(shift // self.stride))
        last = min(self.small - 1, (self.big - 1 - shift) // self.stride)
        return range(first, max(first, last + 1))

    @property
    def real_taps(self) -> int:
        """Return how many (window, tap) pairs fall on a position that exists."""
        return sum(len(self.windows_at(r)) for r in range(self.taps))

    @property
    def touched(self) -> int:
        """Return how many positions at least one window reads."""
        seen: set[int] = set()
        for r in range(self.taps):
            shift = r * self.dilation - self.lo
            reads = self.windows_at(r)
            start = reads.start * self.stride + shift
            seen.update(range(start, start + len(reads) * self.stride, self.stride))
            if len(seen) == self.big:
                break
        return len(seen)

    @property
    def windows_per_position(self) -> int:
        """Return the most taps through which windows share one position."""
        period = self.stride // gcd(self.stride, self.dilation)  # taps that meet one position
        return min(-(-self.taps // period), self.small)


@dataclass(frozen=True, kw_only=True)
class WindowProblem:
    """Sliding windows over an image: the problem of `unfold` and `fold`.

    Parameters
    ----------
    n, c : int
        Batch and channels.
    input, filter : tuple of int
        Spatial sizes of the image and of the window, one per axis (1 to 3).
    stride, dilation : int or tuple of int
        In elements; dilation 1 is dense.
    padding : int, tuple of int or tuple of (lo, hi)
        Zeros put around the image; negative values crop it.

    Raises
    ------
    ConvrefError
        If a size is out of its range or an output extent is below 1.

    Examples
    --------
    >>> WindowProblem(n=1, c=2, input=(5, 5), filter=(3, 3), padding=1).output
    (5, 5)
    """

    ops: ClassVar[tuple[str, ...]] = ("unfold", "fold")

    n: int
    c: int
    input: Sizes
    filter: Sizes
    stride: Sizes = (1,)
    padding: Pads = ((0, 0),)
    dilation: Sizes = (1,)

    def __post_init__(self) -> None:
        where = self.ops[0]
        rank = len(self.input) if hasattr(self.input, "__len__") else 1
        if rank not in RANKS:
            raise ConvrefError(message(where, f"input has {rank} spatial axes, needs 1 to 3"))
        put = object.__setattr__
        for name in ("n", "c"):
            put(self, name, self._at_least(name, integer(where, name, getattr(self, name)), 0))
        for name, least in (("input", 0), ("filter", 1), ("stride", 1), ("dilation", 1)):
            sizes = integers(where, name, getattr(self, name), rank)
            axes = FILTER_AXES if name == "filter" else RANKS
            for axis, size in zip(axes[rank], sizes, strict=True):
                self._at_least(f"{name} {axis}", size, least)
            put(self, name, sizes)
        put(self, "padding", pads(where, "padding", self.padding, rank))
        self._validate_family(where, rank)
        self._validate_output(where)
        for role in ("x", "w", "y"):
            if (count := prod(self.shape(role))) > MAX_ELEMENTS:
                raise ConvrefError(
                    message(where, f"{role} has {count} elements, needs at most 2**60", self)
                )

    def _at_least(self, name: str, value: int, least: int) -> int:
        if value < least:
            raise ConvrefError(message(self.ops[0], f"{name} is {value}, needs at least {least}"))
        return value

    def _validate_family(self, where: str, rank: int) -> None:
        """Check what a subclass adds."""

    def _validate_output(self, where: str) -> None:
        for axis, name in enumerate(OUTPUT_AXES[self.rank]):
            if self.output[axis] < 1:
                reads = self.dilation[axis] * (self.filter[axis] - 1) + 1
                lo, hi = self.padding[axis]
                raise ConvrefError(
                    message(
                        where,
                        f"output {name} is {self.output[axis]}, needs at least 1: input "
                        f"{RANKS[self.rank][axis]} is {self.input[axis]}, padding ({lo}, {hi}), "
                        f"filter {FILTER_AXES[self.rank][axis]} spans {reads}",
                    )
                )

    @property
    def rank(self) -> int:
        """Return the number of spatial axes."""
        return len(self.input)

    @cached_property
    def output(self) -> Sizes:
        """Return the spatial sizes of the output; may be below 1 only while validating."""
        return self._output()

    def _output(self) -> Sizes:
        return tuple(
            (size + lo + hi - dilation * (taps - 1) - 1) // stride + 1
            for size, taps, stride, dilation, (lo, hi) in zip(
                self.input, self.filter, self.stride, self.dilation, self.padding, strict=True
            )
        )

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Return the geometry of each spatial axis."""
        return tuple(
            Axis(big, small, taps, stride, dilation, lo, hi)
            for big, small, taps, stride, dilation, (lo, hi) in zip(
                *self._sides(), self.filter, self.stride, self.dilation, self.padding, strict=True
            )
        )

    def _sides(self) -> tuple[Sizes, Sizes]:
        return self.input, self.output

    def shape(self, role: str) -> Sizes:
        """Return the shape of the array in `role` (its cotangent and tangent have the same)."""
        return self._shapes[BASE_ROLE[role]]

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        columns = (self.n, self.c * prod(self.filter), prod(self.output))
        return {"x": (self.n, self.c, *self.input), "cols": columns, "w": (0,), "y": columns}

    def products(self, role: str) -> int:
        """Return the most additions on the path to one element of the result `role`."""
        if BASE_ROLE[role] == "cols":
            return 1
        return prod(axis.windows_per_position for axis in self.axes)

    def macs(self, role: str) -> int:
        """Return the products that the result `role` needs, those with padding left out."""
        return 0

    def touched(self, role: str) -> int:
        """Return how many elements of an operand in `role` any product reads."""
        if role == "x":
            return self.n * self.c * prod(axis.touched for axis in self.axes)
        return prod(self.shape(role))


@dataclass(frozen=True, kw_only=True)
class ConvProblem(WindowProblem):
    """A convolution or transposed convolution of rank 1, 2 or 3.

    Parameters
    ----------
    n, c, k : int
        Batch, channels of the input, channels of the output (also when transposed).
    groups : int
        Divides `c` and `k`.
    input, filter, stride, padding, dilation
        As in `WindowProblem`; `input` is what the operator is applied to.
    transposed : bool
        Whether the problem is a transposed convolution (the adjoint of a convolution).
    output_padding : int or tuple of int
        Extra output at the high end, in [0, max(stride, dilation)); transposed only.
    flip : bool
        True convolution (the filter is flipped) instead of cross-correlation.
    bias : bool
        Whether a bias of shape (K,) is added.

    Examples
    --------
    >>> problem = ConvProblem(n=2, c=4, k=8, input=(9, 7), filter=(3, 3), stride=2, padding=1)
    >>> problem.output, problem.shape("w"), problem.products("y")
    ((5, 4), (8, 4, 3, 3), 37)
    """

    ops: ClassVar[tuple[str, ...]] = ("conv",)

    k: int
    groups: int = 1
    transposed: bool = False
    output_padding: Sizes = (0,)
    flip: bool = False
    bias: bool = True

    def _validate_family(self, where: str, rank: int) -> None:
        put = object.__setattr__
        put(self, "k", self._at_least("k", integer(where, "k", self.k), 0))
        groups = self._at_least("groups", integer(where, "groups", self.groups), 1)
        put(self, "groups", groups)
        for name, size in (("C", self.c), ("K", self.k)):
            if size % groups:
                raise ConvrefError(
                    message(where, f"{name} is {size}, needs a multiple of groups={groups}")
                )
        for name in ("transposed", "flip", "bias"):
            put(self, name, bool(getattr(self, name)))
        extra = integers(where, "output_padding", self.output_padding, rank)
        put(self, "output_padding", extra)
        if not self.transposed and any(extra):
            raise ConvrefError(
                message(where, f"output_padding is {extra}, needs 0 unless transposed")
            )
        for axis, size in enumerate(extra):
            limit = max(self.stride[axis], self.dilation[axis])
            if not 0 <= size < limit:
                raise ConvrefError(
                    message(
                        where,
                        f"output_padding[{axis}] is {size}, needs 0 to {limit - 1} "
                        "(below the larger of stride and dilation)",
                    )
                )

    def _validate_output(self, where: str) -> None:
        if self.transposed and not all(self.input):
            raise ConvrefError(
                message(where, f"input is {self.input}, needs at least 1 when transposed")
            )
        super()._validate_output(where)

    def _output(self) -> Sizes:
        if not self.transposed:
            return super()._output()
        return tuple(
            (size - 1) * stride + dilation * (taps - 1) + 1 + extra - lo - hi
            for size, taps, stride, dilation, extra, (lo, hi) in zip(
                self.input,
                self.filter,
                self.stride,
                self.dilation,
                self.output_padding,
                self.padding,
                strict=True,
            )
        )

    def _sides(self) -> tuple[Sizes, Sizes]:
        return (self.output, self.input) if self.transposed else (self.input, self.output)

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        c, k = (self.k, self.c) if self.transposed else (self.c, self.k)
        return {
            "x": (self.n, self.c, *self.input),
            "w": (k, c // self.groups, *self.filter),
            "b": (self.k,),
            "y": (self.n, self.k, *self.output),
        }

    def products(self, role: str) -> int:
        """Return the most products and additions on the path to one element of `role`."""
        c, k = self.c // self.groups, self.k // self.groups
        gathered = prod(self.filter)
        scattered = prod(axis.windows_per_position for axis in self.axes)
        if self.transposed:
            gathered, scattered = scattered, gathered
        return {
            "y": c * gathered + self.bias,
            "x": k * scattered,
            "w": self.n * prod(self._sides()[1]),
            "b": self.n * prod(self.output),
        }[BASE_ROLE[role]]

    def macs(self, role: str) -> int:
        """Return the products that the result `role` needs, those with padding left out.

        The count is the same for y, dx and dw (each pairs the same x, w and y); db has none.
        """
        if BASE_ROLE[role] == "b":
            return 0
        pairs = prod(axis.real_taps for axis in self.axes)
        return self.n * self.c * (self.k // self.groups) * pairs

    def touched(self, role: str) -> int:
        """Return how many elements of an operand in `role` any product reads."""
        big = "y" if self.transposed else "x"
        if BASE_ROLE[role] == big:
            channels = self.k if self.transposed else self.c
            return self.n * channels * prod(axis.touched for axis in self.axes)
        return prod(self.shape(role))


Problem = WindowProblem  # every family derives from it

FAMILY: dict[str, type[WindowProblem]] = {
    "conv": ConvProblem,
    "unfold": WindowProblem,
    "fold": WindowProblem,
}

BASE_ROLE = {
    variant: role
    for role in ("x", "w", "b", "y", "cols")
    for variant in (role, f"d{role}", f"{role}_dot", f"dd{role}")
}


class Signature(NamedTuple):
    """Roles of a pass in positional order; `maskable` results are the ones a mask selects."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    maskable: bool = False


# The only place where arity lives: laws, command line, court and bench loop over this table.
SIGNATURE: dict[tuple[str, str], Signature] = {
    ("conv", "fprop"): Signature(("x", "w", "b"), ("y",)),
    ("conv", "backward"): Signature(("dy", "x", "w"), ("dx", "dw", "db"), maskable=True),
    ("conv", "jvp"): Signature(("x", "w", "b", "x_dot", "w_dot", "b_dot"), ("y", "y_dot")),
    ("conv", "double_backward"): Signature(
        ("ddx", "ddw", "ddb", "dy", "x", "w"), ("ddy", "dx", "dw"), maskable=True
    ),
    ("unfold", "fprop"): Signature(("x",), ("cols",)),
    ("unfold", "backward"): Signature(("dcols",), ("dx",)),
    ("unfold", "jvp"): Signature(("x_dot",), ("cols_dot",)),
    ("fold", "fprop"): Signature(("cols",), ("x",)),
    ("fold", "backward"): Signature(("dx",), ("dcols",)),
    ("fold", "jvp"): Signature(("cols_dot",), ("x_dot",)),
}


class Terms(NamedTuple):
    """What one result is a sum of: products of two operands, and operands added as they are.

    In a product, what slides or is scattered stands first; both factors of a filter cotangent do.
    """

    products: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()


TERMS: dict[tuple[str, str, str], Terms] = {
    ("conv", "fprop", "y"): Terms((("x", "w"),), ("b",)),
    ("conv", "backward", "dx"): Terms((("dy", "w"),)),
    ("conv", "backward", "dw"): Terms((("dy", "x"),)),
    ("conv", "backward", "db"): Terms((), ("dy",)),
    ("conv", "jvp", "y"): Terms((("x", "w"),), ("b",)),
    ("conv", "jvp", "y_dot"): Terms((("x_dot", "w"), ("x", "w_dot")), ("b_dot",)),
    ("conv", "double_backward", "ddy"): Terms((("ddx", "w"), ("x", "ddw")), ("ddb",)),
    ("conv", "double_backward", "dx"): Terms((("dy", "ddw"),)),
    ("conv", "double_backward", "dw"): Terms((("dy", "ddx"),)),
    ("unfold", "fprop", "cols"): Terms((), ("x",)),
    ("unfold", "backward", "dx"): Terms((), ("dcols",)),
    ("unfold", "jvp", "cols_dot"): Terms((), ("x_dot",)),
    ("fold", "fprop", "x"): Terms((), ("cols",)),
    ("fold", "backward", "dcols"): Terms((), ("dx",)),
    ("fold", "jvp", "x_dot"): Terms((), ("cols_dot",)),
}

# A one-bit mask of backward has a name of its own.
MASK_NAMES = {"dgrad": (True, False, False), "wgrad": (False, True, False)}
MASK_NAMES["bgrad"] = (False, False, True)


def passes(op: str) -> Iterator[str]:
    """Yield the passes of `op` in the order of the table."""
    return (name for family, name in SIGNATURE if family == op)
