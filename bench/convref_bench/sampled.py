"""The oracle itself as the judge of ops that keep images apart, or channels: of some of them.

A convolution has the three sums on the device instead (`sums`), which see every element.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from convref.arrays import to_numpy
from convref.case import Call
from convref.judge import Numerics
from convref.judge import judge as verdict

from .sums import JudgedWrong

SAMPLED = 2**20  # elements of x that are judged
BY_CHANNEL = ("batch_norm",)  # ops of which a result depends on all images, but on one channel


def judge(
    call: Call, numerics: Numerics, operands: tuple[Tensor, ...], got: Tensor | tuple[Tensor, ...]
) -> float:
    """Return the largest error of the sampled part as a fraction of its proven bound.

    Parameters
    ----------
    call : Call
    numerics : Numerics
    operands : tuple of Tensor
        The present ones.
    got : Tensor or tuple of Tensor
        The wanted results.

    Raises
    ------
    JudgedWrong
        If an element of the sample is wrong.
    """
    axis = "c" if call.op in BY_CHANNEL else "n"
    part, kept = _sample(call, axis)
    present = filter(call.is_present, call.roles)
    given = {role: _cut(call, role, one, axis, kept) for role, one in zip(present, operands)}
    results = got if isinstance(got, tuple) else (got,)
    found = {role: _cut(call, role, one, axis, kept) for role, one in zip(call.wanted, results)}
    told = verdict(
        part, [*map(given.get, call.roles)], [*map(found.get, call.signature.results)], numerics
    )
    if not told:
        raise JudgedWrong(f"{call}: {told.reason}")
    return float(told.worst)


def _sample(call: Call, axis: str) -> tuple[Call, list[int]]:
    """Return the call on part of an axis, and which of its indices: the ends and some between."""
    problem = call.problem
    size = problem.shape("x")["nc".index(axis)]
    each = max(1, torch.Size(problem.shape("x")).numel() // max(1, size))
    count = max(1, min(size, SAMPLED // each))
    kept = torch.linspace(0, size - 1, count).long().unique().tolist() if size else []
    return replace(call, problem=replace(problem, **{axis: len(kept)})), kept


def _cut(call: Call, role: str, tensor: Tensor, axis: str, kept: list[int]) -> object:
    letters = call.problem.letters(role)
    if axis in letters:
        index = torch.tensor(kept, device=tensor.device)
        tensor = tensor.index_select(letters.index(axis), index)
    return to_numpy(tensor.cpu())
