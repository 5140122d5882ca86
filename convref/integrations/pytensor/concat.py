"""Concatenation, whose gradient takes the sizes from its operands when it runs.

That of PyTensor is a split by computed sizes, which JAX refuses where PyTensor knows no size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.lib.array_utils import normalize_axis_index
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op


def concat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Return arrays one after the other along an axis.

    Parameters
    ----------
    tensors : sequence of variables
        Of the same sizes but for that axis.
    dim : int
        The axis.
    """
    given = [pt.as_tensor_variable(a) for a in tensors]
    return Concat(normalize_axis_index(dim, given[0].ndim)).make_node(*given).outputs[0]


class Concat(Op):  # type: ignore[misc]
    """Arrays one after the other along an axis.

    Parameters
    ----------
    axis : int
        The axis, from the front.
    """

    __props__ = ("axis",)

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def make_node(self, *arrays: Any) -> Apply:
        """Return the node; PyTensor's own knows which sizes are known, and the type."""
        return Apply(self, list(arrays), [pt.join(self.axis, *arrays).type()])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Compute the result."""
        outputs[0][0] = self.compute(*inputs)[0]

    def compute(self, *arrays: Any) -> list[Any]:
        """Return the result of NumPy's arrays."""
        return [np.concatenate(arrays, self.axis)]

    def infer_shape(self, *given: Any) -> list[Any]:
        """Return the shape of the result."""
        first, axis = given[-1][0], self.axis
        return [(*first[:axis], sum(shape[axis] for shape in given[-1]), *first[axis + 1 :])]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the cotangents of the inputs."""
        return list(SplitLike(self.axis, len(inputs)).make_node(*cotangents, *inputs).outputs)

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Return the tangent of the result."""
        return [concat(_with_zeros(inputs, tangents), self.axis)]


class SplitLike(Op):  # type: ignore[misc]
    """The parts of an array, of which each has the size of another array along an axis.

    Parameters
    ----------
    axis : int
        The axis.
    count : int
        How many parts.
    """

    __props__ = ("axis", "count")

    def __init__(self, axis: int, count: int) -> None:
        self.axis, self.count = axis, count
        self.view_map = {i: [0] for i in range(count)}

    def make_node(self, whole: Any, *like: Any) -> Apply:
        """Return the node."""
        types = (a.type.clone(dtype=whole.type.dtype) for a in like)
        return Apply(self, [whole, *like], [of() for of in types])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Compute the parts."""
        for storage, part in zip(outputs, self.compute(*inputs), strict=True):
            storage[0] = part

    def compute(self, whole: Any, *like: Any) -> list[Any]:
        """Return the parts of an array of any library."""
        ends = accumulate((a.shape[self.axis] for a in like), initial=0)
        before = (slice(None),) * self.axis
        return [whole[(*before, slice(*ends))] for ends in pairwise(ends)]

    def infer_shape(self, *given: Any) -> list[Any]:
        """Return the shapes of the parts."""
        return list(given[-1][1:])

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return where a derivative exists: only in the array that is split."""
        return [[i == 0] * self.count for i in range(1 + self.count)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the cotangent of the whole."""
        whole = concat(_with_zeros(outputs, cotangents), self.axis)
        return [whole, *(disconnected_type() for _ in inputs[1:])]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Return the tangents of the parts."""
        if isinstance(tangents[0].type, DisconnectedType):
            return [disconnected_type() for _ in outputs]
        return list(self.make_node(tangents[0], *inputs[1:]).outputs)


def _with_zeros(variables: Sequence[Any], derivatives: Sequence[Any]) -> list[Any]:
    """Return derivatives of variables, with zeros for those that are disconnected."""
    return [
        v.zeros_like() if isinstance(d.type, DisconnectedType) else d
        for v, d in zip(variables, derivatives, strict=True)
    ]
