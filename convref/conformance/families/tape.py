"""Decisions read from a tape of bytes, and the mixture that determines how many are unusual.

Each byte decides one thing, and 0 is always the plainest choice, so that shrinking simplifies.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Kind(NamedTuple):
    """One kind of draw in the mixture of the court."""

    share: float  # of the time of a campaign
    cost: float  # time of an example, relative to one of the other kinds
    base: str  # what decisions give that are not unusual: "minimal", "usual" or "large" sizes
    # Up to this many decisions follow their base before the next unusual one, 0: none does;
    # None: all of them do.
    gap: int | None


# Everything unusual (first, so that a tape of zeros is the plainest draw); all sizes 1; a network's
# layer; either with one, two or a few unusual decisions.
MIXTURE = (
    Kind(0.42, 1, "wild", 0),
    Kind(0.02, 1, "minimal", None),
    Kind(0.22, 1, "minimal", 14),
    Kind(0.05, 1, "usual", None),
    Kind(0.15, 1, "usual", 20),
)
# Rare, as a large example takes the time of thirty others.
LARGE = (
    Kind(0.07, 30, "large", None),
    Kind(0.07, 30, "large", 20),
    Kind(0.02, 2, "far", 20),
)


def _choices(kinds: Sequence[Kind]) -> list[tuple[float, Kind]]:
    """Return the kinds, each with the share of examples that it and those before it get."""
    weights = [kind.share / kind.cost for kind in kinds]
    return [(sum(weights[: i + 1]) / sum(weights), kind) for i, kind in enumerate(kinds)]


_BY_SIZE = {False: _choices(MIXTURE), True: _choices((*MIXTURE, *LARGE))}


class Tape:
    """A sequence of decisions, each read from the next byte; bytes after the last one are 0.

    A decision that is not unusual takes its plain value and reads nothing.
    """

    def __init__(self, data: bytes, large: bool = False) -> None:
        self._bytes = iter(data)
        drawn = self.word(2) / 2**16
        self._kind = next(kind for end, kind in _BY_SIZE[large] if drawn < end)
        self._within = 0
        self._left = 0
        self._set_gap()

    @property
    def base(self) -> str:
        """Return what plain values are: those of "minimal", "usual" or "large" sizes, or none."""
        return self._kind.base

    def pick(self, options: Sequence[T]) -> T:
        """Return one of up to 256 options in every kind of draw, the first for byte 0."""
        return options[self.word(1) * len(options) >> 8]

    def choose(self, options: Sequence[T], plain: T | None = None) -> T:
        """Return one of the options as a decision; `plain` is the first if it is not given."""
        usual = options[0] if plain is None else plain
        if self._kind.gap == 0:
            return self.pick(options)
        return self.decide(lambda: self.pick(tuple(dict.fromkeys(options))), usual)

    def often(self, options: Sequence[T]) -> T:
        """Return one of some options that are all usual, the first in a minimal example."""
        return self.choose(options) if self.base in ("minimal", "large") else self.pick(options)

    def chance(self, percent: int) -> bool:
        """Return True that often, as a decision; False for byte 0."""
        percent = percent if self._kind.gap == 0 else max(percent, 60)
        return self.decide(lambda: self.word(1) * 100 >> 8 >= 100 - percent, False)

    def decide(self, draw: Callable[[], T], plain: T) -> T:
        """Return the result of `draw` if this decision is unusual, else `plain`.

        The decisions within `draw` are then unusual too.
        """
        if not self._unusual():
            return plain
        self._within += 1
        drawn = draw()
        self._within -= 1
        return drawn

    def word(self, size: int) -> int:
        """Return an integer of `size` bytes."""
        found = 0
        for _ in range(size):
            found = found << 8 | next(self._bytes, 0)
        return found

    def _unusual(self) -> bool:
        if self._within or self._kind.gap == 0:
            return True
        if self._kind.gap is None or self._left > 0:
            self._left -= 1
            return False
        self._set_gap()
        return True

    def _set_gap(self) -> None:
        if self._kind.gap:
            self._left = self.word(1) * (self._kind.gap + 1) >> 8
