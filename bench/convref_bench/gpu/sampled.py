"""Judge a sample by the oracle, for ops that treat images, channels or groups independently.

Convolutions have the three sums on the device instead (`sums`), which check every element.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from convref.arrays import to_numpy
from convref.case import Call
from convref.judge import Numerics
from convref.judge import judge as verdict

from .sums import JudgedWrong

SAMPLED = 2**20  # elements of x that are judged, at least one image, channel or group

Kept = dict[str, list[int]]  # letter of an axis -> indices of it


def judge(
    call: Call, numerics: Numerics, operands: tuple[Tensor, ...], got: Tensor | tuple[Tensor, ...]
) -> float:
    """Return the largest error of the sampled part as a fraction of its proven bound.

    `operands` are the present ones, `got` the wanted results.
    """
    part, kept = SAMPLES.get(call.op, _images)(call)
    present = filter(call.is_present, call.roles)
    given = {role: _kept_part(call, role, one, kept) for role, one in zip(present, operands)}
    results = got if isinstance(got, tuple) else (got,)
    found = {role: _kept_part(call, role, one, kept) for role, one in zip(call.wanted, results)}
    ruling = verdict(
        part, [*map(given.get, call.roles)], [*map(found.get, call.signature.results)], numerics
    )
    if not ruling:
        raise JudgedWrong(f"{call}: {ruling.reason}")
    return float(ruling.worst)


def spread(call: Call, size: int) -> list[int]:
    """Return the indices of the judged parts, of `size` equal ones: both ends and some between."""
    each = max(1, prod(call.problem.shape("x")) // max(1, size))
    count = max(1, min(size, SAMPLED // each))
    return torch.linspace(0, size - 1, count).long().unique().tolist() if size else []


def _images(call: Call) -> tuple[Call, Kept]:
    kept = spread(call, call.problem.n)
    return _with_sizes(call, n=len(kept)), {"n": kept}


def _channels(call: Call) -> tuple[Call, Kept]:
    kept = spread(call, call.problem.c)
    return _with_sizes(call, c=len(kept)), {"c": kept}


def _groups(call: Call) -> tuple[Call, Kept]:
    kept, per = spread(call, call.problem.groups), call.problem.c // call.problem.groups
    channels = [group * per + channel for group in kept for channel in range(per)]
    return _with_sizes(call, c=len(channels), groups=len(kept)), {"g": kept, "c": channels}


# Cotangents of norm weights are sums over all images; of a layer norm over all channels too.
SAMPLES: dict[str, Callable[[Call], tuple[Call, Kept]]] = {
    "batch_norm": _channels,
    "group_norm": _groups,
    "layer_norm": lambda call: (call, {}),
}


def _with_sizes(call: Call, **sizes: int) -> Call:
    return replace(call, problem=replace(call.problem, **sizes))


def _kept_part(call: Call, role: str, tensor: Tensor, kept: Kept) -> object:
    for axis, letter in enumerate(call.problem.letters(role)):
        if letter in kept:
            index = torch.tensor(kept[letter], device=tensor.device)
            tensor = tensor.index_select(axis, index)
    return to_numpy(tensor.cpu())
