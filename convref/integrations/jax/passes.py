"""Every pass as a JAX primitive, with its derivative, its transpose and its batching rule.

An op computes y = f(x, w, b). Its tangent J u is the pass jvp, its adjoint J' dy the pass backward,
and the gradient of <dy, J u> in x and w the pass double_backward. Each is the derivative or the
transpose of another:

* fprop: its derivative is jvp;
* jvp and backward, linear in u and in dy: transposes of each other; the derivative of backward in
  x and w is double_backward;
* double_backward, linear in u and in dy: its own transpose in u, since a matrix of second
  derivatives is symmetric.

A further derivative is JAX's own where XLA computes the pass, and refused elsewhere. A convolution
is the sums of `convref.integrations.jax.sums`, which have derivatives of every order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad

from ...case import Call, argument
from ...dtypes import numpy_dtype
from ...errors import UnsupportedError, message
from ...ops import BASE_ROLE, SIGNATURE
from . import sums
from .primitive import is_linear, is_zero, primitive, zero_like
from .step import Step, is_direction

Given = Mapping[str, Any]  # arrays by role
_KEPT = ("mean", "rstd", "indices")  # results of a forward pass that its derivatives use


def run_recorded(backend: str, call: Call, *operands: Any) -> tuple[Any, ...]:
    """Return the results of a call on JAX arrays or tracers by role, None where masked off."""
    given = {role: a for role, a in zip(call.roles, operands) if a is not None}
    step = Step(call.op, call.pass_, call.problem, call.dtype, call.math, backend)
    wanted, found = call.wanted, dict[str, Any]()
    if call.pass_ == "jvp" and step.output in wanted:
        forward = {
            role: given[role] for role in SIGNATURE[call.op, "fprop"].operands if role in given
        }
        found = _bind(step, "fprop", forward, SIGNATURE[call.op, "fprop"].results)
        given |= {role: found[role] for role in _KEPT if role in found}
    if call.pass_ == "double_backward" and "ddy" in wanted:
        dots = {f"{BASE_ROLE[r]}_dot": a for r, a in given.items() if r.startswith("dd")}
        found["ddy"] = _tangent(step, given, dots)
    if call.pass_ == "jvp":
        found[f"{step.output}_dot"] = _tangent(step, given, {})
    elif rest := tuple(role for role in wanted if role not in found):
        found |= _bind(step, call.pass_, given, rest)
    return call.results(lambda role: found[role])


def _bind(step: Step, pass_: str, given: Given, wanted: Iterable[str]) -> dict[str, Any]:
    """Return the wanted results of a pass at a point; `given` may hold more than it takes."""
    wanted = tuple(wanted)
    if step.op == "conv":
        return sums.PASSES[pass_](step, given, wanted)
    step = replace(step, pass_=pass_, roles=tuple(given), wanted=wanted)
    return dict(zip(wanted, _PRIMITIVES[pass_].bind(*given.values(), step=step)))


def _tangent(step: Step, given: Given, dots: Given) -> Any:
    """Return the tangent of the output at a point, zeros where nothing has a tangent."""
    point = {role: a for role, a in given.items() if not role.startswith("dd")} | dict(dots)
    if not any(role.endswith("_dot") for role in point):
        return jnp.zeros(step.problem.shape(step.output), numpy_dtype(step.dtype))
    dot = f"{step.output}_dot"
    return _bind(step, "jvp", point, (dot,))[dot]


def _nonzero_tangents(step: Step, tangents: Sequence[Any]) -> dict[str, Any]:
    return {role: t for role, t in zip(step.roles, tangents) if not is_zero(t)}


def _second(step: Step) -> tuple[str, ...]:
    """Return the results of double_backward other than ddy: none where f is linear by pieces."""
    form = SIGNATURE.get((step.op, "double_backward"))
    return form.results[1:] if form else ()


def _sum(terms: Iterable[Any], like: Any) -> Any:
    present = [t for t in terms if t is not None]
    return sum(present[1:], present[0]) if present else zero_like(like)


def _fprop_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, step: Step) -> Any:
    given = dict(zip(step.roles, primals))
    found = _bind(step, "fprop", given, step.wanted)
    nonzero, known = _nonzero_tangents(step, tangents), SIGNATURE[step.op, "jvp"].operands
    if constant := [argument(role) for role in nonzero if f"{role}_dot" not in known]:
        what = f"{' and '.join(constant)} has no tangent, needs none"
        raise UnsupportedError(message(f"{step.op}.fprop", what))
    saved = {role: found[role] for role in _KEPT if role in found}
    dot = _tangent(step, given | saved, {f"{role}_dot": t for role, t in nonzero.items()})
    rest = [zero_like(a) for a in list(found.values())[1:]]
    return list(found.values()), [dot, *rest]


def _linear_jvp(
    terms: Callable[[Step, Given, Given], Iterable[dict[str, Any]]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    step: Step,
) -> Any:
    """Return the results and their tangents: the sum of the `terms`, or JAX's own."""
    given, nonzero = dict(zip(step.roles, primals)), _nonzero_tangents(step, tangents)
    found = _bind(step, step.pass_, given, step.wanted)
    listed = terms(step, given, nonzero)
    if listed is None:
        return _by_jax(step, primals, tangents)
    dots = [_sum((term.get(role) for term in listed), a) for role, a in found.items()]
    return list(found.values()), dots


def _jvp_terms(step: Step, given: Given, nonzero: Given) -> Any:
    directions = {role: t for role, t in nonzero.items() if is_direction(role)}
    if len(directions) < len(nonzero) and _second(step):
        return None
    point = {role: a for role, a in given.items() if not is_direction(role)}
    return [_bind(step, "jvp", point | directions, step.wanted)] if directions else []


def _backward_terms(step: Step, given: Given, nonzero: Given) -> Any:
    terms, dy = [], f"d{step.output}"
    if dy in nonzero:
        terms.append(_bind(step, "backward", {**given, dy: nonzero[dy]}, step.wanted))
    outer = {f"dd{role}": t for role, t in nonzero.items() if role != dy}
    rows = tuple(role for role in step.wanted if role in _second(step))
    if outer and rows:
        terms.append(_bind(step, "double_backward", {**given, **outer}, rows))
    return terms


def _double_backward_terms(step: Step, given: Given, nonzero: Given) -> Any:
    directions = {role: t for role, t in nonzero.items() if is_direction(role)}
    dy = f"d{step.output}"
    if set(nonzero) - {dy, *directions}:
        return None
    terms = []
    if directions:
        rest = {role: a for role, a in given.items() if not is_direction(role)}
        terms.append(_bind(step, "double_backward", rest | directions, step.wanted))
    if dy in nonzero:
        terms.append(_bind(step, "double_backward", {**given, dy: nonzero[dy]}, step.wanted))
    return terms


def _by_jax(step: Step, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Return the results and tangents of a pass that XLA computes, by JAX's own rules."""
    if not step.by_xla:
        what = "this derivative of a derivative is not implemented, needs backend='jax'"
        raise UnsupportedError(message(f"{step.op}.{step.pass_}", what))
    dots = [np.zeros(t.aval.shape, t.aval.dtype) if is_zero(t) else t for t in tangents]
    return jax.jvp(step.evaluate, tuple(primals), tuple(dots))


def _transposed(
    of: Callable[[Step, Given, dict[str, Any]], Mapping[str, Any]],
    cotangents: Sequence[Any],
    *operands: Any,
    step: Step,
) -> list[Any]:
    """Return the cotangent of each linear operand, None for the others."""
    named = dict(zip(step.roles, operands))
    given = {role: a for role, a in named.items() if not is_linear(a)}
    cts = {role: ct for role, ct in zip(step.wanted, cotangents) if not is_zero(ct)}
    found = of(step, given, cts) if cts else {}
    return [
        (found[role] if role in found else ad.Zero(a.aval)) if is_linear(a) else None
        for role, a in named.items()
    ]


def _jvp_transpose(step: Step, given: Given, cts: dict[str, Any]) -> Mapping[str, Any]:
    (ct,) = cts.values()
    point = {role: a for role, a in given.items() if not is_direction(role)}
    roles, results, _ = SIGNATURE[step.op, "backward"]
    if "x" in roles and "x" not in point:  # a linear op reads its shape
        point["x"] = jnp.zeros(step.problem.shape("x"), ct.dtype)
    found = _bind(step, "backward", point | {f"d{step.output}": ct}, results)
    return {f"{BASE_ROLE[role]}_dot": a for role, a in found.items()}


def _backward_transpose(step: Step, given: Given, cts: dict[str, Any]) -> Mapping[str, Any]:
    dots = {f"{BASE_ROLE[role]}_dot": ct for role, ct in cts.items()}
    return {f"d{step.output}": _tangent(step, given, dots)}


def _double_backward_transpose(step: Step, given: Given, cts: dict[str, Any]) -> Mapping[str, Any]:
    dy = f"d{step.output}"
    if dy in step.roles and dy not in given:
        what = "its transpose in grad_output is not implemented"
        raise UnsupportedError(message(f"{step.op}.double_backward", what))
    outer = {f"d{role}": ct for role, ct in cts.items()}  # dx -> ddx
    found = _bind(step, "double_backward", {**given, **outer}, _second(step))
    return {f"d{role}": a for role, a in found.items()}


_PRIMITIVES: dict[str, Primitive] = {
    "fprop": primitive("fprop", _fprop_jvp),
    "jvp": primitive("jvp", partial(_linear_jvp, _jvp_terms), partial(_transposed, _jvp_transpose)),
    "backward": primitive(
        "backward", partial(_linear_jvp, _backward_terms), partial(_transposed, _backward_transpose)
    ),
    "double_backward": primitive(
        "double_backward",
        partial(_linear_jvp, _double_backward_terms),
        partial(_transposed, _double_backward_transpose),
    ),
}
