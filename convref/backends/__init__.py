"""What computes a Call: the protocol, and the backends that convref ships.

Each module is imported only when its backend is asked for, and imports its framework itself.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ..case import Call
from ..judge import Numerics


@runtime_checkable
class Backend(Protocol):
    """Whatever computes calls. Register one through the entry-point group "convref.backends".

    Two attributes are optional: ``raw``, the same without its own checks, for the court; and
    ``checked_by_dispatch``, true where `convref.dispatch.run` has checked the operands' sizes, so
    that the court does not hand it wrong ones.
    """

    name: str

    def supports(self, call: Call) -> str | None:
        """Return None if the backend can compute `call`, else the reason why not."""

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role, as the caller's kind of array; None where masked off.

        Operands come in the order of the signature, None where absent, in the axis order of
        the formulas (N, C, spatial) with any strides.
        """

    def numerics(self, call: Call) -> Numerics:
        """Return the arithmetic that the backend declares for `call`."""

    def fingerprint(self) -> dict[str, str]:
        """Return versions, device, instruction set: what a result may depend on."""
