"""From the user's arrays and arguments to a checked and planned call, and back to its results.

A `CallTrace` in place of the name of a backend records the calls of a public function, and where
their results go, without computing: the function checks its arguments and shapes its results as
usual.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .. import dispatch, oracle
from ..arrays import Array, facts, has_values, like, to_numpy
from ..case import Call, argument
from ..dtypes import numpy_dtype
from ..errors import invalid
from ..ops import BASE_ROLE, Sizes, to_builtins
from .views import View, is_image

Axes = dict[str, tuple[int, ...]]
MAX_PLANS = 4096


@dataclass(frozen=True)
class Prepared:
    """A call, and how the user's arrays become its operands and its results the user's.

    `axes` is the user's axis of each formula axis, for each base role with an order of its own.
    """

    call: Call
    view: View | None = None
    axes: Axes = field(default_factory=dict)

    @cached_property
    def identity(self) -> bool:
        """Return whether no array changes its shape or axis order."""
        return self.view is None and all(a == tuple(range(len(a))) for a in self.axes.values())

    def operand(self, role: str, array: Any) -> Any:
        """Return the user's array, or None, as the operand in `role`: a view if possible."""
        if array is None or self.identity:
            return array
        return enter(role, array, self.view, self.axes)

    def result(self, role: str, array: Any) -> Any:
        """Return a result, or None, in the user's shape and axis order."""
        if array is None or self.identity:
            return array
        axes = self.axes.get(BASE_ROLE[role])
        array = _permuted(array, axes and tuple(axes.index(a) for a in range(len(axes))))
        return array if self.view is None else array.reshape(self.view.leave(role, array.shape))


def enter(role: str, array: Any, view: View | None, axes: Axes) -> Any:
    """Return the user's array in the shape and axis order of the formulas."""
    if view is not None:
        shape = view.enter(role, array.shape)
        array = array if shape is array.shape else array.reshape(shape)
    return _permuted(array, axes.get(BASE_ROLE[role]))


def _permuted(array: Any, axes: tuple[int, ...] | None) -> Any:
    if axes is None or axes == tuple(range(len(axes))):
        return array
    return array.permute(axes) if hasattr(array, "permute") else array.transpose(axes)


def given_arrays(
    where: str, roles: Sequence[str], arrays: Sequence[Any], required: Sequence[str]
) -> dict[str, Any]:
    """Return the arrays that are not None by role; raise if one is not an array."""
    given = {role: a for role, a in zip(roles, arrays, strict=True) if a is not None}
    for role, array in given.items():
        facts(where, argument(role), array)
    for role in roles:
        if role not in given and (role in required or not given):
            raise invalid(where, f"{argument(role)} is None, needs an array")
    return given


def input_shape(where: str, given: dict[str, Any], roles: Sequence[str]) -> Sizes:
    """Return the shape of the first operand that is shaped like the input."""
    like_input = sorted((role for role in roles if BASE_ROLE[role] == "x"), key=len)
    for role in like_input:
        if role in given:
            return tuple(given[role].shape)
    raise invalid(where, f"{argument(like_input[0])} is None, needs an array")


def check_axes(where: str, given: dict[str, Any], axes: Axes, count: int) -> None:
    """Raise unless each array with an axis order has as many axes; images have `count`."""
    for role, array in given.items():
        order = axes.get(BASE_ROLE[role])
        needs = count if order is None or is_image(role) else len(order)
        if order is not None and len(array.shape) != needs:
            raise invalid(where, f"{argument(role)} has {len(array.shape)} axes, needs {needs}")


class ResultMark(np.ndarray[Any, Any]):
    """A placeholder of zeros for a result; its views, of any shape, record which result it is."""

    place: tuple[int, str] = (0, "")  # which call of the trace, and the role

    def __array_finalize__(self, parent: Any) -> None:
        """Copy the place of the array that this one is a view of."""
        self.place = getattr(parent, "place", self.place)


@dataclass(frozen=True)
class Traced:
    """One call, with the operands as the formulas have them."""

    prepared: Prepared
    operands: tuple[Any, ...]

    @cached_property
    def inputs(self) -> tuple[Array | None, ...]:
        """Return the operands as NumPy arrays."""
        return tuple(None if a is None else to_numpy(a) for a in self.operands)

    def mark(self, number: int, role: str) -> ResultMark | None:
        """Return the placeholder of the result in `role`, in the user's shape, without memory."""
        call = self.prepared.call
        if role not in call.wanted:
            return None
        zero = np.zeros((), numpy_dtype(call.dtype_of(role)))
        mark = np.broadcast_to(zero, call.problem.shape(role)).view(ResultMark)
        mark.place = number, role
        return self.prepared.result(role, mark)

    def formula(self, role: str, result: Any) -> Any:
        """Return a user's result, of any shape, in the shape and axis order of the formulas."""
        seen = self.mark(0, role)
        assert seen is not None
        return self.prepared.operand(role, result.reshape(seen.shape))

    def user_index(self, role: str, shape: Sizes, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index in the user's array of `shape` of the formulas' element at `index`."""
        numbered = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        found = np.unravel_index(int(self.formula(role, numbered)[index]), shape)
        return tuple(map(int, found))


class Oracle:
    """Computes operands of traced calls with the oracle, for any kind of array and device."""

    def take(self, prepared: Prepared, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the results of the oracle, in the user's form."""
        call, template = prepared.call, next(a for a in operands if a is not None)
        found = oracle.evaluate(call, *Traced(prepared, operands).inputs)
        return tuple(
            None if a is None else prepared.result(role, like(a, template))
            for role, a in zip(call.signature.results, found)
        )


@dataclass
class CallTrace:
    """Records the calls; `needed` computes results that later calls take as operands."""

    calls: list[Traced] = field(default_factory=list)
    needed: Oracle = field(default_factory=Oracle)

    def take(self, prepared: Prepared, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Record a call; return a Mark, or None, for each of its results."""
        traced = Traced(prepared, operands)
        self.calls.append(traced)
        number = len(self.calls) - 1
        return tuple(traced.mark(number, role) for role in prepared.call.signature.results)


def recompute_backend(backend: Any) -> Any:
    """Return the backend that computes omitted operands: the oracle if calls are traced."""
    return backend.needed if isinstance(backend, CallTrace) else backend


plans: OrderedDict[Any, tuple[Prepared, dispatch.Plan]] = OrderedDict()


def _facts_key(array: Any) -> Any:
    """Return the part of the cache key for an argument; cheap, since every call builds it."""
    if array is None:
        return None
    stride = array.stride() if callable(getattr(array, "stride", None)) else None
    stride = getattr(array, "strides", None) if stride is None else stride
    # a tracer has none, and JAX walks the whole trace to say so
    device = getattr(array, "device", None) if has_values(array) else None
    return type(array), array.shape, stride, array.dtype, device


def compute(
    prepare: Callable[..., Prepared],
    arrays: tuple[Any, ...],
    arguments: tuple[Any, ...],
    backend: str | CallTrace | Oracle,
) -> tuple[Any, ...]:
    """Return the results of the call that ``prepare(arrays, *arguments)`` describes."""
    foreign: list[Any] = []
    arguments = to_builtins(arguments, foreign)
    if isinstance(backend, (CallTrace, Oracle)):
        prepared = prepare(arrays, *arguments)
        operands = (prepared.operand(r, a) for r, a in zip(prepared.call.roles, arrays))
        return backend.take(prepared, tuple(operands))
    try:
        # The text of plain values is exact and differs for 1, 1.0 and True.
        key = None if foreign else (prepare, *map(_facts_key, arrays), repr(arguments), backend)
        found = plans.get(key)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # an operand is not a plain array
        key, found = None, None
    if found is None:
        prepared = prepare(arrays, *arguments)
        kind = facts("", "", next(a for a in arrays if a is not None)).kind
        found = prepared, dispatch.plan(prepared.call, backend, kind)
        if key is not None and prepared.call.dtype != "obj":  # objects: checked at every call
            plans[key] = found
            if len(plans) > MAX_PLANS:
                plans.popitem(last=False)
    prepared, plan = found
    if prepared.identity:
        return plan.run(*arrays)
    call = plan.call
    operands = (prepared.operand(r, a) for r, a in zip(call.roles, arrays))
    results = plan.run(*operands)
    return tuple(prepared.result(r, a) for r, a in zip(call.signature.results, results))
