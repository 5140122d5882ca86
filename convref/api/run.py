"""Compute on arrays: look up the call by its raw arguments, or prepare and plan it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .. import dispatch
from ..arrays import facts
from ..ops import plain
from .prepare import Prepared
from .trace import Oracle, Trace

MAX_PLANS = 4096
plans: OrderedDict[Any, tuple[Prepared, dispatch.Plan]] = OrderedDict()


def _facts_key(array: Any) -> Any:
    """Return the part of the cache key for an argument; cheap, since every call builds it."""
    if array is None:
        return None
    stride = array.stride() if callable(getattr(array, "stride", None)) else None
    stride = getattr(array, "strides", None) if stride is None else stride
    return type(array), array.shape, stride, array.dtype, getattr(array, "device", None)


def compute(
    prepare: Callable[..., Prepared],
    arrays: tuple[Any, ...],
    arguments: tuple[Any, ...],
    backend: str | Trace | Oracle,
) -> tuple[Any, ...]:
    """Return the results of the call that ``prepare(arrays, *arguments)`` describes."""
    foreign: list[Any] = []
    arguments = plain(arguments, foreign)
    if isinstance(backend, (Trace, Oracle)):
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
