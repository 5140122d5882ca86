"""From an activation's arguments to its problem, and from arrays of any shape to results.

What has the axes of an image is computed as one, the rest as a line or, along an axis, as lines of
lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...arrays import facts
from ...case import Call, Spec
from ...errors import ConvrefError, message
from ...ops import (
    RANKS,
    SIGNATURE,
    ActivationProblem,
    CrossEntropyProblem,
    GeluProblem,
    LeakyReluProblem,
    Problem,
    ReluProblem,
    Sizes,
    SoftmaxProblem,
)
from .._arguments import ARGUMENT, Layout, Prepared, lying, mask_of
from .._images import one
from .._run import compute

Build = Callable[..., Problem]
_BUILD: dict[str, Build] = {
    "relu": ReluProblem,
    "leaky_relu": lambda slope, **sizes: LeakyReluProblem(slope=slope, **sizes),
    "gelu": lambda approximate, **sizes: GeluProblem(approximate=approximate, **sizes),
    **dict.fromkeys(("silu", "hardswish", "sigmoid", "tanh"), ActivationProblem),
    **dict.fromkeys(
        ("softmax", "log_softmax"), lambda dim, **sizes: SoftmaxProblem(dim=dim, **sizes)
    ),
    "cross_entropy": lambda weight, ignore, reduction, smoothing, **sizes: CrossEntropyProblem(
        weight=weight,
        ignore_index=ignore,
        reduction=reduction,
        label_smoothing=smoothing,
        **sizes,
    ),
}


def prepare_activation(
    arrays: Sequence[Any], op: str, pass_: str, arguments: tuple[Any, ...], mask: Any
) -> Prepared:
    """Return the checked call of an activation on arrays that have the axes of the formulas."""
    where, roles = f"{op}.{pass_}", SIGNATURE[op, pass_].operands
    found = {
        role: facts(where, ARGUMENT[role], a)
        for role, a in zip(roles, arrays, strict=True)
        if a is not None
    }
    x = found["x"]
    n, c, *space = x.shape
    problem = _BUILD[op](*arguments, n=n, c=c, input=tuple(space))
    call = Call(op, pass_, problem, mask_of(where, op, pass_, mask), specs=(Spec("f64"),))
    specs = tuple(lying(where, call, role, ARGUMENT[role], found.get(role), x) for role in roles)
    layout = Layout(tuple(range(len(x.shape))), ())
    return Prepared(replace(call, specs=specs), layout, False, True)


def shape_of(where: str, array: Any, name: str = "input") -> Sizes:
    if array is None:
        raise ConvrefError(message(where, f"{name} is None, needs an array"))
    return facts(where, name, array).shape


def run(
    name: str,
    arrays: tuple[Any, ...],
    arguments: tuple[Any, ...],
    backend: str,
    mask: Any = (True, True),
    view: Sizes | None = None,
) -> tuple[Any, ...]:
    """Return results of a pass on arrays of one shape, which is seen as `view` on the way."""
    op, _, pass_ = name.partition(".")
    roles = SIGNATURE[op, pass_].operands
    shape = shape_of(name, arrays[roles.index("x")])
    for role, array in zip(roles, arrays):
        if (got := shape_of(name, array, ARGUMENT[role])) != shape:
            what = f"{ARGUMENT[role]} has shape {got}, needs {shape}"
            raise ConvrefError(message(name, what))
    view = view or (shape if len(shape) - 2 in RANKS else (1, 1, prod(shape)))
    if view != shape:
        arrays = tuple(a.reshape(view) for a in arrays)
    found = compute(prepare_activation, arrays, (op, pass_, arguments, mask), backend)
    if view == shape:
        return found
    return tuple(None if r is None else r.reshape(shape) for r in found)


def tangent(where: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    return one(where, "primals", primals), one(where, "tangents", tangents)
