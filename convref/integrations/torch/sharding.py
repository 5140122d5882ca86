"""Sharding rules of the ops for tensors on several devices (DTensor).

A result is a sum over some of the indices n (images), c (channels in) and k (channels out). A
call is cut along one of them: so is every tensor that has it, along that axis. Each device needs
the whole of an operand without it; a result without it is one partial sum per device.
"""

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from ...case import size_letters
from ...ops import TERMS, Problem
from . import _library
from ._kernels import PassConfig
from ._table import ROWS, PassSchema

assert _library  # importing it defines the ops

Placements = tuple[list[Any], list[Any]]  # of the results, of the arguments


@cache
def register_shardings() -> None:
    """Let PyTorch's DTensor compute every op of convref on shares of its operands.

    Nothing is registered before this is called. Convolutions (of one group) are cut by images, by
    channels out, and without a bias by channels in, which leaves partial sums; pools, resizing,
    activations and batch norm of evaluation by images and by channels; batch norm in training by
    channels; group norm, layer norm and softmax by images. Other placements are changed first.

    >>> register_shardings()  # a second time does nothing
    >>> register_shardings()
    """
    for row in ROWS.values():
        op = getattr(torch.ops.convref, row.name).default
        register_sharding(op)(_rule(row))
        _hash_attributes(op, len(row.signature.operands))


def _hash_attributes(op: Any, operands: int) -> None:
    """Make every attribute part of the key of DTensor's cache of sharding decisions.

    `register_sharding` hashes only the arguments from the first integer on; a stride is before it.
    """
    known = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    known[op].static_argnum = operands


def _rule(row: PassSchema) -> Callable[..., list[Placements]]:
    def rule(*arguments: Any) -> list[Placements]:
        operands = dict(zip(row.signature.operands, arguments))
        shapes = {role: spec.shape for role, spec in operands.items() if spec is not None}
        config = PassConfig.of(row, arguments[len(operands) :])
        problem = row.problem(shapes, config.attributes, config.input)
        letters = [a for a in problem.independent if _adds_up(row, problem, shapes, a)]
        return [_placements(config, problem, arguments, letter) for letter in ("", *letters)]

    return rule


def _axis(problem: Problem, role: str, letter: str) -> int | None:
    """Return the axis of an array that a letter is the index of."""
    letters = "".join(name[0] for name in size_letters(problem, role)).lower()
    return letters.index(letter) if letter and letter in letters else None


def _adds_up(row: PassSchema, problem: Problem, given: Collection[str], letter: str) -> bool:
    """Return whether no operand would be added to the partial sum of every device."""
    return all(
        _axis(problem, added, letter) is not None
        for role in row.signature.results
        if _is_partial(row, problem, role, letter)
        for added in TERMS[row.op, row.pass_, role].added
        if added in given and TERMS[row.op, row.pass_, role].kind == "sum"
    )


def _is_partial(row: PassSchema, problem: Problem, role: str, letter: str) -> bool:
    reads = TERMS[row.op, row.pass_, role].reads
    indexed = [_axis(problem, read, letter) is not None for read in reads]
    return _axis(problem, role, letter) is None and any(indexed)


def _placements(
    config: PassConfig, problem: Problem, arguments: tuple[Any, ...], letter: str
) -> Placements:
    """Return the placements when the call is cut along one index; "" is not at all."""
    row = config.row

    def placed(role: str, partial: bool = False) -> Any:
        axis = _axis(problem, role, letter)
        return Shard(axis) if axis is not None else Partial() if partial else Replicate()

    operands = row.signature.operands
    given = [None if t is None else placed(role) for role, t in zip(operands, arguments)]
    given += [None] * (len(arguments) - len(operands))
    results = [
        placed(role, _is_partial(row, problem, role, letter))
        if role in config.wanted
        else Replicate()
        for role in row.signature.results
    ]
    return results, given
