"""Sliding windows: the geometry of one axis, and the problem of `unfold` and `fold`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any, ClassVar, NamedTuple

from ..errors import invalid
from .base import BASE_ROLE, Field, Problem
from .sizes import FILTER_AXES, OUTPUT_AXES, RANKS, Pads, Sizes, pads
from .spec import OpSpec, Pass, Terms


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
        top = self.big + min(0, self.hi)  # the end of the positions after a crop
        last = min(self.small - 1, (top - 1 - shift) // self.stride)
        return range(first, max(first, last + 1))

    @property
    def span(self) -> int:
        """Return how many positions a window extends over."""
        return self.dilation * (self.taps - 1) + 1

    @property
    def mirror_lo(self) -> int:
        """Return the low padding of the scatter written as a gather.

        It is negative where padding exceeds the filter.
        """
        return self.span - 1 - self.lo

    @property
    def mirror_hi(self) -> int:
        """Return the high padding of the scatter written as a gather."""
        return self.big + self.lo - (self.small - 1) * self.stride - 1

    @property
    def empty_windows(self) -> int:
        """Return how many windows read no position that exists."""
        return self.small - len({p for r in range(self.taps) for p in self.windows_at(r)})

    @property
    def empty_taps(self) -> int:
        """Return how many (window, tap) pairs fall on padding."""
        return self.small * self.taps - self.real_taps

    @property
    def real_taps(self) -> int:
        """Return how many (window, tap) pairs fall on a position that exists."""
        return sum(len(self.windows_at(r)) for r in range(self.taps))

    @property
    def positions_read(self) -> int:
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


def output_size(
    size: Any, taps: Any, stride: Any, dilation: Any, lo: Any, hi: Any, ceil: bool = False
) -> Any:
    """Return how many windows an axis has; sizes may be symbolic integers.

    With `ceil` the size is rounded up, but the last window starts inside the input or the low
    padding.

    >>> output_size(6, 3, 2, 1, 0, 0), output_size(6, 3, 2, 1, 0, 0, ceil=True)
    (2, 3)
    """
    room = size + lo + hi - dilation * (taps - 1) - 1
    if ceil:
        return min(-(-room // stride), (size + lo - 1) // stride) + 1
    return room // stride + 1


@dataclass(frozen=True, kw_only=True)
class WindowProblem(Problem):
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

    name: ClassVar[str] = "unfold"
    PARTS: ClassVar[dict[str, Field]] = {
        "i": Field("input", "extents"),
        "f": Field("filter", "extents"),
        "s": Field("stride", "sizes"),
        "p": Field("padding", "pads"),
        "d": Field("dilation", "sizes"),
    }
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (
        ("input", 0),
        ("filter", 1),
        ("stride", 1),
        ("dilation", 1),
    )

    filter: Sizes
    stride: Sizes = (1,)
    padding: Pads = ((0, 0),)
    dilation: Sizes = (1,)

    def _validate(self, where: str, rank: int) -> None:
        self._put("padding", pads(where, "padding", self.padding, rank))
        self._validate_family(where, rank)
        self._validate_output(where)

    def _validate_family(self, where: str, rank: int) -> None:
        """Check the fields of a subclass, before sizes are derived from them."""

    def _validate_output(self, where: str) -> None:
        for axis, name in enumerate(OUTPUT_AXES[self.rank]):
            if self.output[axis] < 1:
                reads = self.dilation[axis] * (self.filter[axis] - 1) + 1
                lo, hi = self.padding[axis]
                raise invalid(
                    where,
                    f"output {name} is {self.output[axis]}, needs at least 1: input "
                    f"{RANKS[self.rank][axis]} is {self.input[axis]}, padding ({lo}, {hi}), "
                    f"filter {FILTER_AXES[self.rank][axis]} spans {reads}",
                )

    @cached_property
    def output(self) -> Sizes:
        """Return the spatial sizes of the output; may be below 1 only while validating."""
        return self._output()

    def _output(self) -> Sizes:
        ceil = bool(self.line_value("ceil"))
        return tuple(
            output_size(size, taps, stride, dilation, lo, hi, ceil)
            for size, taps, stride, dilation, (lo, hi) in zip(
                self.input, self.filter, self.stride, self.dilation, self.padding, strict=True
            )
        )

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(
            Axis(big, small, taps, stride, dilation, lo, hi)
            for big, small, taps, stride, dilation, (lo, hi) in zip(
                *self._sides(), self.filter, self.stride, self.dilation, self.padding, strict=True
            )
        )

    def _sides(self) -> tuple[Sizes, Sizes]:
        return self.input, self.output

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        columns = (self.n, self.c * prod(self.filter), prod(self.output))
        return {"x": (self.n, self.c, *self.input), "cols": columns}

    def letters(self, role: str) -> str:
        return "ncl" if BASE_ROLE[role] == "cols" else super().letters(role)

    def products(self, role: str) -> int:
        if BASE_ROLE[role] == "cols":
            return 1
        return prod(axis.windows_per_position for axis in self.axes)

    def work(self) -> int:
        return self.n * self.c * prod(self.filter) * prod(self._sides()[1])

    def scratch(self) -> int:
        return self.n * self.c * self._padded()

    def padded_image(self) -> int:
        channels = self.line_value("k") if self.line_value("t") else self.c
        return channels * prod(max(0, axis.big + axis.lo + axis.hi) for axis in self.axes)

    def _padded(self) -> int:
        return prod(axis.big + max(axis.lo, 0) + max(axis.hi, 0) for axis in self.axes)

    def elements_read(self, role: str) -> int:
        if role == "x":
            return self.n * self.c * prod(axis.positions_read for axis in self.axes)
        return prod(self.shape(role))


def _copy_pass(source: str, result: str) -> Pass:
    return Pass((source,), {result: Terms(added=(source,))})


OPS = {
    "unfold": OpSpec(
        WindowProblem,
        {
            "fprop": _copy_pass("x", "cols"),
            "backward": _copy_pass("dcols", "dx"),
            "jvp": _copy_pass("x_dot", "cols_dot"),
        },
    ),
    "fold": OpSpec(
        WindowProblem,
        {
            "fprop": _copy_pass("cols", "x"),
            "backward": _copy_pass("dx", "dcols"),
            "jvp": _copy_pass("cols_dot", "x_dot"),
        },
    ),
}
