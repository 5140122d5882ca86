"""A correct float32 backend that adds in another order than the oracle: split sums, in float32.

Every pass is linear in some of its operands together. They are cut in two by parity, each half
is summed in float32, and the halves are added. Run it with
``PYTHONPATH=tests/faults convref check other_order:backend``.
"""

import numpy as np

from convref import Numerics, oracle
from convref.backends.numpy import NumpyBackend

LINEAR = {
    "fprop": ("x", "b"),
    "backward": ("dy",),
    "jvp": ("x", "x_dot", "b", "b_dot"),
    "double_backward": ("ddx", "ddw", "ddb"),
}


class OtherOrder(NumpyBackend):
    """Sums in float32, in two halves."""

    name = "other-order"

    def supports(self, call):
        if call.op != "conv" or call.dtype != "f32":
            return "only float32 convolutions"
        return super().supports(call)

    def run(self, call, *operands):
        present = [a for a in operands if a is not None]
        if not all(np.isfinite(a).all() for a in present):
            return oracle.evaluate(call, *operands, accumulate="f32")  # zeros would meet inf
        even, odd = (
            oracle.evaluate(call, *self._half(call, operands, bit), accumulate="f32")
            for bit in (0, 1)
        )
        return tuple(None if a is None else a + b for a, b in zip(even, odd))

    def _half(self, call, operands, bit):
        for role, array in zip(call.roles, operands):
            if array is None or role not in LINEAR[call.pass_]:
                yield array
                continue
            index = np.indices(array.shape).sum(axis=0)
            yield np.where(index % 2 == bit, array, np.float32(0))

    def numerics(self, call):
        return Numerics("rn32")


backend = OtherOrder()
