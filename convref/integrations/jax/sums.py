"""Convolution as the three sums of one trilinear form, each the others' transpose.

T(x, w, dy) = <dy, x * w> is linear in each of its arrays, so that the sum that lacks one of them is
the derivative of T in it: y lacks dy, dx lacks x, dw lacks w. The derivative of a sum replaces an
array by its tangent; its transpose in one array puts the cotangent in the place of the one that is
missing. With these rules JAX has derivatives of every order, in both modes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import jax.numpy as jnp
from jax.interpreters import ad

from ...ops import ConvProblem
from .primitive import is_linear, is_zero, primitive, zero_like
from .step import Step

Given = Mapping[str, Any]
_LACKING = {"dy": ("fprop", "y"), "x": ("backward", "dx"), "w": ("backward", "dw")}
_ORDER = ("dy", "x", "w")


def _sum(step: Step, given: Given) -> Any:
    """Return the sum over two of dy, x and w, unconjugated."""
    roles = tuple(role for role in _ORDER if role in given)
    (missing,) = set(_ORDER) - set(roles)
    (pass_, result), problem = _LACKING[missing], cast(ConvProblem, step.problem)
    step = replace(
        step,
        pass_=pass_,
        problem=replace(problem, bias=False),
        roles=roles,
        wanted=(result,),
        conjugate=pass_ == "backward",  # that pass conjugates x and w: twice is not at all
    )
    (found,) = _SUM.bind(*(given[role] for role in roles), step=step)
    return found


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, step: Step) -> Any:
    given = dict(zip(step.roles, primals))
    y = _sum(step, given)
    dots = [
        _sum(step, {**given, role: t}) for role, t in zip(step.roles, tangents) if not is_zero(t)
    ]
    return [y], [sum(dots[1:], dots[0]) if dots else zero_like(y)]


def _transpose(cotangents: Sequence[Any], *operands: Any, step: Step) -> list[Any]:
    (ct,), (missing,) = cotangents, set(_ORDER) - set(step.roles)
    fixed = {r: a for r, a in zip(step.roles, operands) if not is_linear(a)}
    return [
        (ad.Zero(a.aval) if is_zero(ct) else _sum(step, {**fixed, missing: ct}))
        if is_linear(a)
        else None
        for a in operands
    ]


_SUM = primitive("convolution_sum", _jvp, _transpose)


def _column(step: Step, b: Any) -> Any:
    return b.reshape(-1, *(1,) * step.problem.rank)


def _added(step: Step, terms: Sequence[Any], bias: Any) -> Any:
    """Return the sum of the terms, each an image or None, and a bias."""
    total = sum(terms[1:], terms[0]) if terms else None
    if bias is None:
        return total
    column = _column(step, bias)
    shape = step.problem.shape("y")
    return jnp.broadcast_to(column, shape) if total is None else total + column


def _fprop(step: Step, given: Given, wanted: tuple[str, ...]) -> dict[str, Any]:
    pair = {role: given[role] for role in ("x", "w")}
    return {"y": _added(step, [_sum(step, pair)], given.get("b"))}


def _tangent(step: Step, given: Given, wanted: tuple[str, ...]) -> dict[str, Any]:
    terms = [
        _sum(step, {"x": given["x"], "w": given["w"], role: given[f"{role}_dot"]})
        for role in ("x", "w")
        if f"{role}_dot" in given
    ]
    return {"y_dot": _added(step, terms, given.get("b_dot"))}


def _backward(step: Step, given: Given, wanted: tuple[str, ...]) -> dict[str, Any]:
    dy, found = given["dy"], dict[str, Any]()
    if "dx" in wanted:
        found["dx"] = _sum(step, {"dy": dy, "w": jnp.conj(given["w"])})
    if "dw" in wanted:
        found["dw"] = _sum(step, {"dy": dy, "x": jnp.conj(given["x"])})
    if "db" in wanted:
        found["db"] = dy.sum((0, *range(2, dy.ndim)))
    return found


def _double_backward(step: Step, given: Given, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Return the gradients of <ddy-like, ...> in x and w: dy with each direction of the other."""
    found = {}
    for role, other in (("dx", "ddw"), ("dw", "ddx")):
        if role in wanted and other in given:
            found[role] = _sum(step, {"dy": given["dy"], other[2:]: jnp.conj(given[other])})
        elif role in wanted:
            found[role] = jnp.zeros(step.problem.shape(role), given["dy"].dtype)
    return found


PASSES: dict[str, Callable[[Step, Given, tuple[str, ...]], dict[str, Any]]] = {
    "fprop": _fprop,
    "jvp": _tangent,
    "backward": _backward,
    "double_backward": _double_backward,
}
