"""Every pass of an op that PyTorch can differentiate, from its forward function alone."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ...case import Call
from ...ops import BASE_ROLE, SIGNATURE

Forward = Callable[..., Tensor]
Tensors = dict[str, Tensor]
Results = tuple[Tensor | None, ...]


def derive(
    call: Call, forward: Forward, *tensors: Tensor | None, primals: Tensors | None = None
) -> Results:
    """Return the results of a pass of ``y = forward(*primals.values())``, by role.

    `primals` are what y is differentiated by; by default, each operand that has a gradient. A
    linear op has no x in its derivatives: they are taken at zero.
    """
    given = {role: t for role, t in zip(call.roles, tensors, strict=True) if t is not None}
    found = _PASSES[call.pass_](call, forward, primals or _primals(call, given), given)
    return call.results(lambda role: found[role])


def _primals(call: Call, given: Tensors) -> Tensors:
    like = next(iter(given.values()))
    roles = [BASE_ROLE[role] for role in SIGNATURE[call.op, "backward"].results]
    return {
        role: given[role] if role in given else like.new_zeros(call.problem.shape(role))
        for role in roles
    }


def _fprop(call: Call, forward: Forward, primals: Tensors, given: Tensors) -> Tensors:
    return {"y": forward(*primals.values())}


def _backward(call: Call, forward: Forward, primals: Tensors, given: Tensors) -> Tensors:
    with torch.enable_grad():
        at = {r: t.detach().requires_grad_(f"d{r}" in call.wanted) for r, t in primals.items()}
        by = [t for t in at.values() if t.requires_grad]
        found = torch.autograd.grad(forward(*at.values()), by, given["dy"])
    return dict(zip(call.wanted, found))


def _jvp(call: Call, forward: Forward, primals: Tensors, given: Tensors) -> Tensors:
    moved = {r: t for r, t in primals.items() if f"{r}_dot" in given}
    dots = tuple(given[f"{r}_dot"].to(t.dtype) for r, t in moved.items())

    def along(*at: Tensor) -> Tensor:  # a zero tangent would multiply values that are not finite
        return forward(*{**primals, **dict(zip(moved, at))}.values())

    if not moved:
        y = along()
        return {"y": y, "y_dot": torch.zeros_like(y)}
    if torch.autograd.forward_ad._current_level >= 0:  # of the caller; forward mode does not nest
        return _twice_backward(along, *moved.values(), dots=dots)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch scripts its own rules
        y, y_dot = torch.func.jvp(along, tuple(moved.values()), dots)
    return {"y": y, "y_dot": y_dot}


def _twice_backward(forward: Forward, *primals: Tensor, dots: tuple[Tensor, ...]) -> Tensors:
    """Return y and y_dot, the gradient by v of <dots, gradient of <v, y>>."""
    with torch.enable_grad():
        at = [t.detach().requires_grad_() for t in primals]
        y = forward(*at)
        v = torch.zeros_like(y).requires_grad_()
        first = torch.autograd.grad(y, at, v, create_graph=True)
        (y_dot,) = torch.autograd.grad(first, v, dots)
    return {"y": y.detach(), "y_dot": y_dot}


def _double_backward(call: Call, forward: Forward, primals: Tensors, given: Tensors) -> Tensors:
    with torch.enable_grad():
        at = {r: t.detach().requires_grad_() for r, t in primals.items()}
        y = forward(*at.values())
        dy = given.get("dy", torch.ones_like(y)).detach().requires_grad_()
        by = [r for r in at if f"dd{r}" in given]
        first = torch.autograd.grad(y, [at[r] for r in by], dy, create_graph=True)
        outer = [given[f"dd{r}"].to(f.dtype) for r, f in zip(by, first)]
        point = {"dy": dy, **at}
        second = torch.autograd.grad(first, point.values(), outer, allow_unused=True)
    names = ("ddy", *(f"d{r}" for r in at))
    return {
        name: torch.zeros_like(t) if found is None else found
        for name, t, found in zip(names, point.values(), second)
    }


_PASSES: dict[str, Callable[[Call, Forward, Tensors, Tensors], Tensors]] = {
    "fprop": _fprop,
    "backward": _backward,
    "jvp": _jvp,
    "double_backward": _double_backward,
}
