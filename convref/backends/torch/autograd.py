"""Every pass of an op that PyTorch can differentiate, from its forward function alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from ...case import Call
from ...errors import missing_extra

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise missing_extra("torch", error) from None

Forward = Callable[[Tensor], Tensor]
Results = tuple[Tensor | None, ...]


def derive(call: Call, forward: Forward, *tensors: Tensor) -> Results:
    """Return the results of a pass of ``y = forward(x)``, by role.

    A linear op has no x in its derivatives: they are taken at zero.
    """
    given = dict(zip(call.roles, tensors, strict=True))
    return _PASSES[call.pass_](call, forward, given)


def _at(call: Call, given: dict[str, Tensor]) -> Tensor:
    """Return the point at which to differentiate."""
    if "x" in given:
        return given["x"]
    like = next(t for role, t in given.items() if t.is_floating_point())
    return like.new_zeros(call.problem.shape("x"))


def _fprop(call: Call, forward: Forward, given: dict[str, Tensor]) -> Results:
    return (forward(given["x"]),)


def _backward(call: Call, forward: Forward, given: dict[str, Tensor]) -> Results:
    with torch.enable_grad():
        x = _at(call, given).detach().requires_grad_()
        return torch.autograd.grad(forward(x), x, given["dy"])


def _jvp(call: Call, forward: Forward, given: dict[str, Tensor]) -> Results:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch scripts its own rules
        y, y_dot = torch.func.jvp(forward, (_at(call, given),), (given["x_dot"],))
    return tuple({"y": y, "y_dot": y_dot}[role] for role in call.signature.results)


def _double_backward(call: Call, forward: Forward, given: dict[str, Tensor]) -> Results:
    with torch.enable_grad():
        x = _at(call, given).detach().requires_grad_()
        y = forward(x)
        dy = given.get("dy", torch.ones_like(y)).detach().requires_grad_()
        (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
        second = torch.autograd.grad(dx, (dy, x), given["ddx"], allow_unused=True)
    found = dict(zip(("ddy", "dx"), second))
    return tuple(
        (torch.zeros_like(x) if found[role] is None else found[role])
        if role in call.wanted
        else None
        for role in call.signature.results
    )


_PASSES: dict[str, Callable[[Call, Forward, dict[str, Tensor]], Results]] = {
    "fprop": _fprop,
    "backward": _backward,
    "jvp": _jvp,
    "double_backward": _double_backward,
}
