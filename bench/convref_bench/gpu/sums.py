"""The three sums of a convolution in torch float64, on the device of the timed result.

They judge results too large for the oracle, and the oracle checks them on slices of the channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from convref import oracle
from convref.case import Call
from convref.judge import Numerics, bound
from convref.ops import ConvProblem

SAMPLED = 4096  # outputs that the oracle repeats


class Activation(NamedTuple):
    run: Callable[[Tensor], Tensor]
    slope: float  # the largest: an error of the input grows by so much
    error: float  # of its own evaluation in float32, relative to its input


# silu(v) = v / (1 + exp(-v)): an exponential, a sum and a quotient, each within few units of 2^-24.
ACTIVATIONS = {
    "relu": Activation(torch.relu, 1.0, 0.0),
    "silu": Activation(F.silu, 1.0999, 2.0**-20),
}


class JudgedWrong(ArithmeticError):
    """A timed result, or the reference itself, is wrong."""


def _taps(problem: ConvProblem) -> Any:
    for r in product(*map(range, problem.filter)):
        at = (
            slice(tap * axis.dilation, tap * axis.dilation + (axis.small - 1) * axis.stride + 1)
            for tap, axis in zip(r, problem.axes)
        )
        steps = (slice(s.start, s.stop, axis.stride) for s, axis in zip(at, problem.axes))
        yield (..., *r), (..., *steps)


def _pads(problem: ConvProblem) -> list[tuple[int, int]]:
    return [(axis.lo, axis.hi) for axis in problem.axes]


def padded(tensor: Tensor, pads: Sequence[tuple[int, int]]) -> Tensor:
    """Return the last axes padded with zeros, or cropped, if need be to size 0.

    >>> padded(torch.ones(1, 3), [(-5, 4)]), padded(torch.ones(1, 2), [(1, -1)])
    (tensor([[0., 0.]]), tensor([[0., 1.]]))
    """
    head, sizes = tensor.shape[: -len(pads)], tensor.shape[-len(pads) :]
    grown = tensor.new_zeros(*head, *(lo + n + hi for n, (lo, hi) in zip(sizes, pads)))
    kept = [(max(0, -lo), min(n, n + hi)) for n, (lo, hi) in zip(sizes, pads)]
    if all(start < stop for start, stop in kept):
        moved = (slice(i + lo, j + lo) for (i, j), (lo, _) in zip(kept, pads))
        grown[(..., *moved)] = tensor[(..., *(slice(i, j) for i, j in kept))]
    return grown


def evaluate(call: Call, *operands: Tensor) -> Tensor:
    """Return y, dx or dw of a convolution in float64, from the operands in order of roles.

    One loop over the taps pairs three arrays: the filter, the padded array, and the small one that
    has a position per window; the result is one of them. Transposed, the small one is x.
    """
    given = {role.removeprefix("d"): one.double() for role, one in zip(call.roles, operands)}
    problem, out = call.conv, call.wanted[0].removeprefix("d")
    wide, narrow = ("y", "x") if problem.transposed else ("x", "y")
    turn, g = tuple(range(-problem.rank, 0)) if problem.flip else (), problem.groups
    arrays = given | {out: operands[0].new_zeros(problem.shape(out), dtype=torch.float64)}
    w = _split(arrays["w"].flip(turn), 0, g)
    small = _split(arrays[narrow], 1, g)
    big = _split(padded(arrays[wide], _pads(problem)), 1, g)
    for r, at in _taps(problem):
        if out == narrow:
            small += torch.einsum("ngc...,gkc->ngk...", big[at], w[r])
        elif out == wide:
            big[at] += torch.einsum("ngk...,gkc->ngc...", small, w[r])
        else:
            w[r] = torch.einsum("ngcp,ngkp->gkc", big[at].flatten(3), small.flatten(3))
    if out == "w":
        return w.flatten(0, 1).flip(turn)
    crop = [(-lo, -hi) for lo, hi in _pads(problem)]
    result = small.flatten(1, 2) if out == narrow else padded(big.flatten(1, 2), crop)
    return result + given["b"].reshape(-1, *(1,) * problem.rank) if "b" in given else result


def _split(tensor: Tensor, axis: int, g: int) -> Tensor:
    return tensor.unflatten(axis, (g, tensor.shape[axis] // g))


class Reference(NamedTuple):
    """The value of a call in float64, and the sums of absolute values."""

    value: Tensor
    sums: Tensor


def reference(call: Call, operands: tuple[Tensor, ...]) -> Reference:
    """Return the reference, compared with the oracle on a slice; raise if they differ."""
    value = evaluate(call, *operands)
    sums = evaluate(call, *(operand.abs() for operand in operands))
    check_slice(call, operands, value, sums)
    return Reference(value, sums)


def judge(
    call: Call,
    numerics: Numerics,
    operands: tuple[Tensor, ...],
    got: Tensor,
    epilogue: str = "",
    ref: Reference | None = None,
) -> float:
    """Return the largest error of a timed result as a fraction of its proven bound, at most 1.

    `operands` are the present ones, then the residual of an epilogue that adds one. An epilogue is
    a key of ACTIVATIONS, perhaps with "add_" before it. `ref` is the reference, if it is known.
    """
    value, sums = ref or reference(call, operands)
    if epilogue.startswith("add_"):
        value, sums = value + operands[-1].double(), sums + operands[-1].double().abs()
    limit = _limit(call, numerics, value, sums)
    if epilogue:
        activation = ACTIVATIONS[epilogue.removeprefix("add_")]
        limit = activation.slope * limit + activation.error * value.abs()
        value = activation.run(value)
    ratio = ((got.double() - value).abs() / limit).max().item()
    if not ratio <= 1:
        raise JudgedWrong(f"{call}: error is {ratio:.3g} times its bound")
    return float(ratio)


def _limit(call: Call, numerics: Numerics, value: Tensor, sums: Tensor) -> Tensor:
    """Return the proven bound: linear in (|value|, sums), coefficients from the judge itself."""
    if numerics.normwise:
        sums = sums.max()
    unit = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    flat = replace(numerics, normwise=0.0)
    at_zero, at_value, at_sum = bound(call, call.wanted[0], unit[:, 0], unit[:, 1], flat)
    return at_zero + (at_value - at_zero) * value.abs() + (at_sum - at_zero) * sums


def check_slice(call: Call, operands: tuple[Tensor, ...], value: Tensor, sums: Tensor) -> None:
    """Raise unless `value` agrees with the oracle on about 4,096 outputs of one group and image."""
    problem, role = call.conv, call.wanted[0]
    c, k = problem.c // problem.groups, problem.k // problem.groups
    group = problem.groups // 2
    per_channel = {"y": np.prod(problem.output), "dx": np.prod(problem.input)}
    area = int(per_channel.get(role, np.prod(problem.filter)))
    few = max(1, SAMPLED // max(1, area * (min(c, 8) if role == "dw" else 1)))
    cs = slice(group * c, group * c + min(c, 8 if role == "dw" else few if role == "dx" else c))
    ks = slice(group * k, group * k + min(k, k if role == "dx" else few))
    images = slice(None) if role == "dw" else slice(problem.n - 1, problem.n)
    cut = {"x": (images, cs), "dx": (images, cs), "y": (images, ks), "dy": (images, ks)}
    outer, within = (cs, ks) if problem.transposed else (ks, cs)
    filters = outer, slice(0, within.stop - within.start)
    cut |= {"w": filters, "dw": filters, "b": (ks,)}
    n = problem.n if role == "dw" else 1
    sizes = {"n": n, "c": cs.stop - cs.start, "k": ks.stop - ks.start, "groups": 1}
    small = replace(call, problem=replace(problem, **sizes))
    arrays = [
        None if o is None else o[cut[r]].double().cpu().numpy()
        for r, o in zip(call.roles, operands)
    ]
    formula = oracle.FORMULAS[call.op, call.pass_]
    index = call.signature.results.index(role)
    want = formula(small, *arrays, *[None] * (len(call.roles) - len(arrays)))[index]
    here, scale = (t[cut[role]].cpu().numpy() for t in (value, sums))
    limit = 2 * call.products(role) * 2.0**-53 * scale * 1.01
    if not (np.abs(here - want) <= limit).all():
        raise JudgedWrong(f"{call}: the reference on the device disagrees with the oracle")
