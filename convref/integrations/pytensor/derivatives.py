"""The derivatives of each pass, as other passes of the same op.

An op computes f(x, w, b). Its pass jvp is J u, backward is J' dy, and double_backward has J dd and
the gradient in x and w of <dy, J dd>, for the cotangents dd of the gradients. So

* the pullback of fprop is backward, its pushforward jvp;
* jvp and backward are linear in u and in dy, and each other's transpose there; in x and w, the
  pullback of both is double_backward, whose matrix of second derivatives is symmetric;
* double_backward is linear in dd; a third derivative exists for a convolution alone, whose second
  ones are convolutions again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...ops import SIGNATURE

if TYPE_CHECKING:
    from .op import ConvrefOp

Given = Mapping[str, Any]  # variables by role
Found = dict[str, Any]
_KEPT = ("mean", "rstd", "indices")  # results of a forward pass that its derivatives read


def pullback(op: ConvrefOp, given: Given, cts: Given) -> Found:
    """Return the cotangents of operands of a pass; those without a formula are missing or None."""
    rules = {"fprop": _fprop, "jvp": _jvp, "backward": _backward}
    return rules.get(op.pass_, _double_backward)(op, given, cts) if cts else {}


def pushforward(op: ConvrefOp, given: Given, dots: Given) -> Found | None:
    """Return the tangents of the results of a pass; None where it has no such rule."""
    if op.pass_ == "fprop":
        found = op.step("jvp", {**given, **{f"{role}_dot": t for role, t in dots.items()}})
        return {"y": found["y_dot"]}
    if op.pass_ != "backward":
        return None
    linear = op.step("backward", {**given, "dy": dots["dy"]}, op.wanted) if "dy" in dots else {}
    outer = {f"dd{role}": t for role, t in dots.items() if role != "dy"}
    rows = _second(op, op.wanted)
    curved = op.step("double_backward", {**given, **outer}, rows) if outer and rows else {}
    return _sums(linear, curved)


def _fprop(op: ConvrefOp, given: Given, cts: Given) -> Found:
    form = SIGNATURE.get((op.op, "backward"))
    if form is None or "y" not in cts:
        return {}
    wanted = tuple(f"d{role}" for role in op.roles if f"d{role}" in form.results)
    found = op.step("backward", _with_saved(op, {**given, "dy": cts["y"]}), wanted)
    return {role[1:]: a for role, a in found.items()}


def _jvp(op: ConvrefOp, given: Given, cts: Given) -> Found:
    given = _with_saved(op, given)
    found = _fprop(op, given, cts)
    if "y_dot" not in cts:
        return found
    given = {**given, "dy": cts["y_dot"]}
    linear = op.step("backward", given, tuple(f"d{r[:-4]}" for r in op.roles if r[-4:] == "_dot"))
    outer = {f"dd{role[:-4]}": a for role, a in given.items() if role.endswith("_dot")}
    rows = _second(op, (f"d{role}" for role in op.roles))
    curved = op.step("double_backward", {**given, **outer}, rows) if rows else {}
    found = _sums(found, {role[1:]: a for role, a in curved.items()})
    return {**found, **{f"{role[1:]}_dot": a for role, a in linear.items()}}


def _backward(op: ConvrefOp, given: Given, cts: Given) -> Found:
    outer = {f"d{role}": ct for role, ct in cts.items()}  # dx -> ddx
    wanted = ("ddy", *_second(op, (f"d{role}" for role in op.roles)))
    found = op.step("double_backward", {**given, **outer}, wanted)
    return {"dy" if role == "ddy" else role[1:]: a for role, a in found.items()}


def _double_backward(op: ConvrefOp, given: Given, cts: Given) -> Found:
    directions = [role for role in op.roles if role[:2] == "dd"]
    rows = _second(op, (f"d{role}" for role in op.roles))
    found: Found = {}
    if "ddy" in cts:
        at = _with_saved(op, {**given, "dy": cts["ddy"]})
        back = op.step("backward", at, tuple(role[1:] for role in directions))
        found = {f"d{role}": a for role, a in back.items()}
        curved = op.step("double_backward", at, rows) if rows else {}
        found |= {role[1:]: a for role, a in curved.items()}
    if outer := {f"d{role}": ct for role, ct in cts.items() if role != "ddy"}:
        rest = {role: a for role, a in given.items() if role not in directions}
        turned = op.step("double_backward", {**rest, **outer}, tuple(r[1:] for r in directions))
        named = {f"d{role}": a for role, a in turned.items() if role != "ddy"}
        found = _sums(found, named) | dict.fromkeys(rest)  # third derivatives
    return found


def _second(op: ConvrefOp, roles: Iterable[str]) -> tuple[str, ...]:
    """Return those gradients in operands that double_backward has."""
    form = SIGNATURE[op.op, "double_backward"]
    return tuple(role for role in roles if role in form.results)


def _with_saved(op: ConvrefOp, given: Given) -> Given:
    """Return the operands with the saved results of the forward pass, computed if missing."""
    needed = (*SIGNATURE[op.op, "backward"].operands, "x")
    if all(role in given for role in needed if role in _KEPT):
        return given
    x = given["x"]
    zeros = x.sum((0, *range(2, x.ndim))).zeros_like()
    running = dict.fromkeys(("rmean", "rvar"), zeros)
    found = op.step("fprop", {**running, **given})
    return {**given, **{role: found[role] for role in _KEPT if role in found}}


def _sums(*terms: Found) -> Found:
    found: Found = {}
    for term in terms:
        for role, a in term.items():
            found[role] = found[role] + a if role in found else a
    return found


def conv_jvp(op: ConvrefOp, given: Given, wanted: Iterable[str] = ()) -> Found:
    """Return y and y_dot of a convolution as convolutions, which have all derivatives."""
    y = op.step("fprop", given)["y"]
    return {"y": y, "y_dot": _tangent_of_y(op, given, "{}_dot")}


def conv_double_backward(op: ConvrefOp, given: Given, wanted: Iterable[str]) -> Found:
    """Return ddy, dx and dw of a convolution as its own sums."""
    found: Found = {}
    if "ddy" in wanted:
        found["ddy"] = _tangent_of_y(op, given, "dd{}")
    for result, other in (("dx", "w"), ("dw", "x")):
        if result in wanted and f"dd{other}" in given:
            at = {**given, other: given[f"dd{other}"]}
            found |= op.step("backward", at, (result,))
        elif result in wanted:
            found[result] = given[result[1:]].zeros_like()
    return found


def _tangent_of_y(op: ConvrefOp, given: Given, name: str) -> Any:
    """Return the tangent of y, from tangents called so."""
    terms = []
    for role in ("x", "w"):
        if (dot := given.get(name.format(role))) is not None:
            at = {"x": given["x"], "w": given["w"], role: dot}
            terms.append(op.step("fprop", at)["y"])
    if (b := given.get(name.format("b"))) is not None:
        y = terms[0] if terms else op.step("fprop", {"x": given["x"], "w": given["w"]})["y"]
        terms.append(y.zeros_like() + b.reshape((-1, *(1,) * (y.ndim - 2))))
    return sum(terms[1:], terms[0])
