"""The roof: no kernel is faster than the peaks measured in the same run, whatever a clock says."""

from __future__ import annotations

from dataclasses import dataclass

from convref.case import Call


class RoofError(ValueError):
    """A time lies above the roof: the measurement is wrong, or the work was not done."""


@dataclass(frozen=True)
class Roof:
    """Peaks of a device, measured.

    Parameters
    ----------
    flops : dict of str to float
        Operations a second of a large matrix product, by number type ("tf32" is one).
    bytes_s : float
        Bytes a second of a large copy, read and written both counted.
    """

    flops: dict[str, float]
    bytes_s: float

    def seconds(self, call: Call, *, cold: bool) -> float:
        """Return the least time for a call; data that may lie in a cache cost nothing."""
        kind = call.math if call.dtype == "f32" and call.math != "ieee" else call.dtype
        least = call.flop() / self.flops[kind] if kind in self.flops else 0.0
        return max(least, call.bytes_moved() / self.bytes_s if cold else 0.0)

    def fraction(self, call: Call, seconds: float, *, cold: bool, slack: float = 0.05) -> float:
        """Return the least time as a fraction of `seconds`.

        Parameters
        ----------
        call : Call
        seconds : float
        cold : bool
            Whether operands came from memory.
        slack : float
            How far the peaks themselves may be measured too low.

        Raises
        ------
        RoofError
            If the fraction exceeds 1 + slack.
        """
        found = self.seconds(call, cold=cold) / seconds
        if found > 1 + slack:
            raise RoofError(f"{call}: {found:.2f} of the roof in {seconds * 1e3:.4g} ms")
        return found

    def is_memory_bound(self, call: Call) -> bool:
        """Return whether moving the data takes longer than the products."""
        return self.seconds(call, cold=True) > self.seconds(call, cold=False)
