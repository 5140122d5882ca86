"""A pass of any op as one PyTensor Op, which plans its call when it runs: shapes may be unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.gradient import DisconnectedType, disconnected_type, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType

from ...api import definitions, views
from ...api.conv import CONV
from ...api.definition import Definition
from ...api.norm import norm_of_batch, norm_of_instance, norm_of_running
from ...api.run import Prepared
from ...case import argument, role_dtype
from ...dtypes import code_of, numpy_dtype
from ...errors import ConvrefError, invalid
from ...ops import BASE_ROLE, OPS, OWN_TYPE, SIGNATURE, STATISTICS, Sizes, Terms
from . import derivatives

DEFINITIONS: Mapping[str, Definition] = {
    **{definition.name: definition for definition in definitions()},
    "conv": CONV,
    "batch_norm": norm_of_batch,
    "batch_norm_eval": norm_of_running,
    "instance_norm": norm_of_instance,
}
_COMPOSED = {"jvp": derivatives.conv_jvp, "double_backward": derivatives.conv_double_backward}
_CONSTANT = (*OWN_TYPE, *STATISTICS)  # no derivative is taken in them
_ZERO = dict.fromkeys(OWN_TYPE, 0)
_THIRD = "third derivatives are not implemented"
_UNLIKE = 211, 1009  # in place of an unknown size


class ConvrefOp(Op):  # type: ignore[misc]
    """One pass of one op of the library.

    Parameters
    ----------
    name : str
        A key of DEFINITIONS.
    rank : int
        Spatial axes, 0 where one function serves all ranks.
    pass_ : str
        A pass of the op.
    roles : tuple of str
        Of the inputs, in order. An "x" that the pass does not read gives its shape alone.
    wanted : tuple of str
        The results, in order.
    settings : tuple
        Values of `definition.settings`.
    backend : str
        As the functions of `convref` take it.
    """

    __props__ = ("name", "rank", "pass_", "roles", "wanted", "settings", "backend")

    def __init__(
        self,
        name: str,
        rank: int,
        pass_: str,
        roles: tuple[str, ...],
        wanted: tuple[str, ...],
        settings: tuple[Any, ...],
        backend: str = "auto",
    ) -> None:
        self.name, self.rank, self.pass_ = name, rank, pass_
        self.roles, self.wanted, self.settings, self.backend = roles, wanted, settings, backend

    def __str__(self) -> str:
        """Return the function and pass, as messages name them."""
        return f"{self.name}{f'{self.rank}d' if self.rank else ''}.{self.pass_}"

    @property
    def definition(self) -> Definition:
        """The definition of the op."""
        return DEFINITIONS[self.name]

    @property
    def op(self) -> str:
        """The name of the op in the tables."""
        return self.definition.op

    def step(self, pass_: str, given: Mapping[str, Any], wanted: Sequence[str] = ()) -> Any:
        """Return the results of another pass by role; `given` may hold more than it reads."""
        if self.op == "conv" and pass_ in _COMPOSED:
            return _COMPOSED[pass_](self, given, wanted)
        form = SIGNATURE[self.op, pass_]
        wanted = tuple(r for r in form.results if not wanted or not form.maskable or r in wanted)
        roles = tuple(r for r in form.operands if given.get(r) is not None)
        if not any(BASE_ROLE[r] == "x" for r in roles):
            given = {"x": next(a for r, a in given.items() if BASE_ROLE[r] == "x"), **given}
            roles = (*roles, "x")
        settings = self.name, self.rank, pass_, roles, wanted, self.settings, self.backend
        found = ConvrefOp(*settings).make_node(*(given[r] for r in roles)).outputs
        return dict(zip(wanted, found))

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node; shapes of results are known where those of the inputs are."""
        lead = code_of(inputs[0].type.numpy_dtype)
        for role, variable in zip(self.roles, inputs, strict=True):
            code = code_of(variable.type.numpy_dtype)
            fits = code[0] in "iu" if role in _ZERO else code == lead
            if not fits and role_dtype(role, lead) != code:
                needs = "an integer type" if role == "target" else role_dtype(role, lead)
                raise invalid(
                    f"{self.op}.{self.pass_}", f"{argument(role)} has dtype {code}, needs {needs}"
                )
        outputs = []
        for role, shape in zip(self.wanted, self._shapes_of([v.type.shape for v in inputs])):
            outputs.append(TensorType(numpy_dtype(role_dtype(role, lead)), shape)())
        return Apply(self, list(inputs), outputs)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Compute the results on NumPy arrays."""
        for storage, found in zip(outputs, self.compute(*inputs), strict=True):
            storage[0] = np.asarray(found)

    def compute(self, *arrays: Any) -> list[Any]:
        """Return the wanted results of arrays of any library that `convref` takes."""
        operands, mask, x = self._operands(arrays)
        given = self.settings, None, self.backend, mask, self.rank, x
        found = self.definition.compute(self.pass_, operands, *given)
        named = dict(zip(SIGNATURE[self.op, self.pass_].results, found, strict=True))
        return [named[role] for role in self.wanted]

    def prepared(self, *arrays: Any) -> Prepared:
        """Return the checked call on arrays; of each its shape and type are read."""
        operands, mask, x = self._operands(arrays)
        return self.definition.prepare(
            operands, self.pass_, self.rank, None, self.settings, mask, x
        )

    def _operands(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[bool, ...], Any]:
        """Return the operands by role, the mask, and the shape of an x that is not an operand."""
        given, form = dict(zip(self.roles, arrays)), SIGNATURE[self.op, self.pass_]
        mask = tuple(role in self.wanted for role in form.results) if form.maskable else ()
        x = None if "x" in form.operands or "x" not in given else tuple(given["x"].shape)
        return tuple(given.get(role) for role in form.operands), mask, x

    def shapes(self, *sizes: Sizes) -> list[Sizes]:
        """Return the shapes of the wanted results of operands of these shapes."""
        given = zip(self.roles, sizes)
        prepared = self.prepared(*(np.broadcast_to(_ZERO.get(r, 0.0), s) for r, s in given))
        problem, view = prepared.call.problem, prepared.view
        found = [tuple(problem.shape(role)) for role in self.wanted]
        return [view.leave(r, s) if view else s for r, s in zip(self.wanted, found)]

    def _shapes_of(self, sizes: Sequence[tuple[int | None, ...]]) -> list[tuple[int | None, ...]]:
        """Return the shapes of results, with None for what only the run decides."""
        named = dict(zip(self.roles, sizes))
        if all(views.is_image(r) or None not in shape for r, shape in named.items()):
            try:
                a, b = (self.shapes(*(_filled(s, size) for s in sizes)) for size in _UNLIKE)
                return [tuple(p if p == q else None for p, q in zip(*both)) for both in zip(a, b)]
            except ConvrefError:
                if all(None not in shape for shape in sizes):
                    raise
        known = {BASE_ROLE[role]: shape for role, shape in named.items()}
        return [known.get(BASE_ROLE[r]) or (None,) * self._axes(r, known) for r in self.wanted]

    def _axes(self, role: str, known: Mapping[str, Any]) -> int:
        """Return how many axes a result has that is shaped like no operand."""
        named, axes = dict(zip(self.definition.settings, self.settings)), len(known["x"])
        rows = len(np.atleast_1d(named["normalized_shape"])) if "normalized_shape" in named else 0
        if role == "db":
            return len(known["w"]) if "w" in known and self.op == "layer_norm" else rows or 1
        if role in ("mean", "rstd"):
            return axes - rows if rows else 2 if self.op in ("group_norm", "instance_norm") else 1
        if "reduction" in named:
            return axes - 1 if named["reduction"] == "none" and axes > 1 else 0
        return axes

    def infer_shape(self, *given: Any) -> list[Any]:
        """Return the shapes of the results, as PyTensor's variables."""
        node, shapes = given[-2:]  # before PyTensor 3.3 a function graph comes first
        if all(None not in o.type.shape for o in node.outputs):
            return [o.type.shape for o in node.outputs]
        known = {BASE_ROLE[role]: shape for role, shape in zip(self.roles, shapes)}
        if not all(BASE_ROLE[role] in known for role in self.wanted):
            vectors = ShapesOp(self).make_node(*node.inputs).outputs
            sizes = [tuple(v[i] for i in range(o.ndim)) for v, o in zip(vectors, node.outputs)]
            known = dict(zip(self.wanted, sizes)) | known
        return [known.get(BASE_ROLE[r]) or known[r] for r in self.wanted]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return, for each input, which results have a derivative in it."""
        terms, form = OPS[self.op].passes[self.pass_].results, SIGNATURE.get((self.op, "backward"))
        moves = {"y", *(role[1:] for role in form.results)} if form else set()
        read = [set[str]() if r in _CONSTANT else _smooth(terms[r]) for r in self.wanted]
        return [[role in of and BASE_ROLE[role] in moves for of in read] for role in self.roles]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the cotangents of the inputs."""
        given = dict(zip(self.roles, inputs)) | dict(zip(self.wanted, outputs))
        cts = _by_connected_role(self.wanted, cotangents)
        found = derivatives.pullback(self, given, cts)
        results = []
        for i, (role, of) in enumerate(zip(self.roles, self.connection_pattern(None))):
            if not any(on and r in cts for on, r in zip(of, self.wanted)):
                results.append(disconnected_type())
            elif (cotangent := found.get(role)) is None:
                results.append(grad_not_implemented(self, i, inputs[i], _THIRD))
            else:
                results.append(cotangent)
        return results

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Return the tangents of the results."""
        given = dict(zip(self.roles, inputs)) | dict(zip(self.wanted, outputs))
        dots = _by_connected_role(self.roles, tangents)
        found = derivatives.pushforward(self, given, dots) if dots else {}
        if found is None:
            return list(super().pushforward(inputs, outputs, tangents))
        return [found[r] if r in found else disconnected_type() for r in self.wanted]


class ShapesOp(Op):  # type: ignore[misc]
    """The shapes of the results of a ConvrefOp, a vector each, from its inputs."""

    __props__ = ("of",)

    def __init__(self, of: ConvrefOp) -> None:
        self.of = of

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node."""
        axes = [o.ndim for o in self.of.make_node(*inputs).outputs]
        return Apply(self, list(inputs), [TensorType("int64", (n,))() for n in axes])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Compute the shapes."""
        for storage, found in zip(outputs, self.compute(*inputs), strict=True):
            storage[0] = np.array(found, np.int64)

    def compute(self, *arrays: Any) -> list[Sizes]:
        """Return the shapes of the results of arrays."""
        return self.of.shapes(*(tuple(a.shape) for a in arrays))

    def infer_shape(self, *given: Any) -> list[Any]:
        """Return the lengths of the vectors."""
        return [(o.type.shape[0],) for o in given[-2].outputs]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return where a derivative exists: nowhere, as results are shapes."""
        return [[False] * len(node.outputs) for _ in node.inputs]


def one_or_tuple(found: Any) -> Any:
    """Return one result itself, several as a tuple, as linkers expect them."""
    return found[0] if len(found) == 1 else tuple(found)


def _smooth(terms: Terms) -> set[str]:
    """Return the operands whose values enter a result, not those that select alone."""
    return {role for pair in (*terms.products, terms.added) for role in pair}


def _by_connected_role(roles: Sequence[str], variables: Sequence[Variable]) -> dict[str, Variable]:
    given = zip(roles, variables, strict=True)
    return {role: v for role, v in given if not isinstance(v.type, DisconnectedType)}


def _filled(shape: Sequence[int | None], size: int) -> Sizes:
    return tuple(size if n is None else n for n in shape)
