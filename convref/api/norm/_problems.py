"""From a norm's arguments to its problem, and from arrays to results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import facts, like, zeros_like
from ...case import Call, Spec, role_dtype
from ...dtypes import numpy_dtype
from ...errors import ConvrefError, message
from ...ops import (
    BASE_ROLE,
    RANKS,
    SIGNATURE,
    BatchNormProblem,
    FrozenNormProblem,
    GroupNormProblem,
    LayerNormProblem,
    Problem,
    Sizes,
    items,
)
from .._arguments import ARGUMENT, Layout, Prepared, axes_of, lying, mask_of
from .._run import compute
from .._trace import needed

_IMAGES = ("x", "y")
_OPTIONAL = ("w", "b", "ddw", "ddb", "w_dot", "b_dot")


def _batch(n: int, c: int, input: Sizes, given: dict[str, Any], eps: Any, momentum: Any) -> Problem:
    return BatchNormProblem(n=n, c=c, input=input, eps=eps, momentum=momentum, **given)


def _frozen(n: int, c: int, input: Sizes, given: dict[str, Any], eps: Any) -> Problem:
    return FrozenNormProblem(n=n, c=c, input=input, eps=eps, **given)


def _group(n: int, c: int, input: Sizes, given: dict[str, Any], eps: Any, groups: Any) -> Problem:
    return GroupNormProblem(n=n, c=c, input=input, eps=eps, groups=groups, **given)


def _layer(n: int, c: int, input: Sizes, given: dict[str, Any], eps: Any) -> Problem:
    return LayerNormProblem(n=n, c=c, input=input, eps=eps, **given)


_BUILD = {
    "batch_norm": _batch,
    "batch_norm_eval": _frozen,
    "group_norm": _group,
    "layer_norm": _layer,
}


class _Layout(Layout):
    """Axis orders of images; weights and statistics have no other."""

    def axes(self, role: str) -> tuple[int, ...]:
        """Return, for each formula axis, the user's axis it is; nothing where all stay."""
        return self.data if BASE_ROLE[role] in _IMAGES else ()


def prepare_norm(
    arrays: Sequence[Any], op: str, pass_: str, layout: Any, arguments: tuple[Any, ...], mask: Any
) -> Prepared:
    """Return the checked call of a norm on the user's `arrays`, by role; x has 3 to 5 axes."""
    where, roles = f"{op}.{pass_}", SIGNATURE[op, pass_].operands
    found = {
        role: facts(where, ARGUMENT[role], array)
        for role, array in zip(roles, arrays, strict=True)
        if array is not None or role not in _OPTIONAL
    }
    rank = len(found["x"].shape) - 2
    if rank not in RANKS:
        what = f"input has {rank + 2} axes, needs 2 to 5"
        raise ConvrefError(message(where, what))
    order = _Layout(axes_of(where, rank, layout), ())
    n, c, *space = (found["x"].shape[a] for a in order.data)
    given = {"weight": "w" in found, "bias": "b" in found or "ddb" in found}
    problem = _BUILD[op](n, c, tuple(space), given, *arguments)  # type: ignore[operator]
    call = Call(op, pass_, problem, mask_of(where, op, pass_, mask), specs=(Spec("f64"),))
    specs = [
        lying(where, call, role, ARGUMENT[role], found.get(role), found["x"], order.axes(role))
        for role in roles
    ]
    identity = order.data == tuple(range(rank + 2))
    return Prepared(replace(call, specs=tuple(specs)), order, False, identity)


def run(
    name: str,
    arrays: tuple[Any, ...],
    arguments: tuple[Any, ...],
    layout: Any,
    backend: str,
    mask: Any = (True, True, True),
) -> tuple[Any, ...]:
    """Return results of a pass; images (N, C) are given a spatial axis of one position."""
    op, _, pass_ = name.partition(".")
    roles, results = SIGNATURE[op, pass_]._replace(maskable=False)[:2]
    x = arrays[roles.index("x")]
    flat = getattr(x, "ndim", 0) == 2 and op != "layer_norm"
    if flat:
        if layout is not None:
            raise ConvrefError(message(name, f"layout is {layout!r}, needs None for (N, C)"))
        arrays = tuple(
            a[..., None] if BASE_ROLE[r] in _IMAGES and getattr(a, "ndim", 0) == 2 else a
            for r, a in zip(roles, arrays)
        )
    found = compute(prepare_norm, arrays, (op, pass_, layout, arguments, mask), backend)
    if not flat:
        return found
    return tuple(
        r[..., 0] if r is not None and BASE_ROLE[role] in _IMAGES else r
        for role, r in zip(results, found)
    )


def channels(where: str, input: Any, layout: Any) -> int:
    """Return C, which stands second, or last where `layout` says so."""
    shape = facts(where, "input", input).shape
    if len(shape) < 2:
        raise ConvrefError(message(where, f"input has {len(shape)} axes, needs 2 to 5"))
    last = isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")
    return shape[-1 if last else 1]


def running(where: str, input: Any, mean: Any, var: Any, layout: Any) -> tuple[Any, Any]:
    """Return running statistics, zeros where there are none: a training pass updates some."""
    if (mean is None) != (var is None):
        missing = "running_mean" if mean is None else "running_var"
        raise ConvrefError(message(where, f"{missing} is None, needs an array as the other has"))
    if mean is not None:
        return mean, var
    dtype = role_dtype("rmean", facts(where, "input", input).dtype)
    zeros = np.zeros(channels(where, input, layout), numpy_dtype(dtype))
    return like(zeros, input), like(zeros, input)


def statistics(
    name: str, x: Any, mean: Any, rstd: Any, arguments: tuple[Any, ...], layout: Any, backend: str
) -> tuple[Any, Any]:
    """Return the statistics that were kept, else find them again."""
    if mean is not None and rstd is not None:
        return mean, rstd
    zeros = running("batch_norm.fprop", x, None, None, layout) if name == "batch_norm" else ()
    arrays = x, None, None, *zeros
    _, mean, rstd, *_ = run(f"{name}.fprop", arrays, arguments, layout, needed(backend))
    return mean, rstd


def paired(where: str, outer: Any, weight: Any) -> None:
    """Raise unless grad_grad_weight is given just where a weight is."""
    if (outer is None) != (weight is None):
        name, other = ("grad_grad_weight", "weight")[:: 1 if outer is None else -1]
        raise ConvrefError(message(where, f"{name} is None, needs an array as {other} is one"))


def tangents_of(where: str, primals: Any, tangents: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return primals and tangents, zeros in the place of a tangent that is None."""
    values, dots = _pair(where, "primals", primals), _pair(where, "tangents", tangents)
    filled = []
    for name, value, dot in zip(("input", "weight", "bias"), values, dots):
        if value is None and dot is not None:
            raise ConvrefError(message(where, f"{name} tangent is given, needs a {name}"))
        filled.append(zeros_like(value) if dot is None and value is not None else dot)
    return values, tuple(filled)


def _pair(where: str, name: str, given: Any) -> tuple[Any, Any, Any]:
    """Return (input, weight, bias) of primals or tangents, the last two perhaps None."""
    listed = items(given)
    if not isinstance(given, (tuple, list)) or listed is None or len(listed) != 3:
        raise ConvrefError(message(where, f"{name} needs a tuple (input, weight, bias)"))
    return listed[0], listed[1], listed[2]
