"""The roofline: no kernel is faster than the peaks measured on the same device."""

from dataclasses import dataclass

from convref.case import Call


class RoofError(ValueError):
    """A time is above the roof: the measurement is wrong, or the work was not done."""


@dataclass(frozen=True)
class Roof:
    flops: dict[str, float]  # operations a second of a large matrix product, by number type
    bytes_s: float  # bytes a second of a large copy, reads and writes both counted

    def seconds(self, call: Call, *, cold: bool) -> float:
        """Return the least time of a call; warm operands cost no memory traffic."""
        kind = call.math if call.dtype == "f32" and call.math != "ieee" else call.dtype
        least = call.flop() / self.flops[kind] if kind in self.flops else 0.0
        return max(least, call.bytes_moved() / self.bytes_s if cold else 0.0)

    def fraction(self, call: Call, seconds: float, *, cold: bool, slack: float = 0.05) -> float:
        """Return the least time as a fraction of `seconds`; above 1 + `slack`, a RoofError."""
        found = self.seconds(call, cold=cold) / seconds
        if found > 1 + slack:
            raise RoofError(f"{call}: {found:.2f} of the roof in {seconds * 1e3:.4g} ms")
        return found
