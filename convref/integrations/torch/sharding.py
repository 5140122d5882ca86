"""Sharding rules of the ops for tensors on several devices (DTensor).

A result is a sum over some of the indices n (images), c (channels in) and k (channels out). What is
cut along one of them: every tensor that has it, along that axis. An operand without it is needed
whole everywhere; a result without it comes out as one partial sum on each device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from ...ops import BASE_ROLE
from . import _library
from ._table import ROWS, Pass

assert _library  # importing it defines the ops

# The index of each axis, a dot where an axis is never cut.
_CHANNELWISE = {"x": "nc", "y": "nc", "indices": "nc"} | dict.fromkeys(
    ("w", "b", "mean", "rstd", "rmean", "rvar"), "c"
)
_CONVOLUTION = {"x": "nc", "y": "nk", "w": "kc", "b": "k"}
_TRANSPOSED = {**_CONVOLUTION, "w": "ck"}
_PER_IMAGE = {"x": "n", "y": "n", "mean": "n", "rstd": "n"}

# By which indices an op can be cut; the others by images and by channels.
_CUTS = {
    "conv": "nck",
    "batch_norm": "c",
    "cross_entropy": "",
    **dict.fromkeys(("group_norm", "layer_norm", "softmax", "log_softmax"), "n"),
}
_BIASES = ("b", "b_dot", "ddb")

Placements = tuple[list[Any], list[Any]]  # of the results, of the arguments


@cache
def register_shardings() -> None:
    """Let PyTorch's DTensor compute every op of convref on shares of its operands.

    Nothing is registered before this is called. Convolutions (of one group) are cut by images, by
    channels out, and without a bias by channels in, which leaves partial sums; pools, resizing,
    activations and batch norm of evaluation by images and by channels; batch norm in training by
    channels; group norm, layer norm and softmax by images. Other placements are changed first.

    Examples
    --------
    >>> register_shardings()  # a second time does nothing
    >>> register_shardings()
    """
    for row in ROWS.values():
        op = getattr(torch.ops.convref, row.name).default
        register_sharding(op)(_rule(row))
        _hash_attributes(op, len(row.signature.operands))


def _hash_attributes(op: Any, operands: int) -> None:
    """Let every attribute count when DTensor remembers what comes of a call.

    `register_sharding` has it hash what follows the first integer; a stride stands before that.
    """
    known = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    known[op].static_argnum = operands


def _rule(row: Pass) -> Callable[..., list[Placements]]:
    def rule(*arguments: Any) -> list[Placements]:
        return [_cut(row, arguments, letter) for letter in ("", *_letters(row, arguments))]

    return rule


def _letters(row: Pass, arguments: tuple[Any, ...]) -> str:
    """Return the indices by which this call can be cut."""
    letters = _CUTS.get(row.op, "nc")
    if row.op != "conv":
        return letters
    if _attributes(row, arguments)["groups"] != 1:
        return "n"
    added = zip(row.signature.operands, arguments)
    biased = any(role in _BIASES and tensor is not None for role, tensor in added)
    return "nk" if biased else letters


def _attributes(row: Pass, arguments: tuple[Any, ...]) -> dict[str, Any]:
    given = arguments[len(row.signature.operands) :]
    return dict(zip((name for name, _ in row.attributes), given))


def _axes(row: Pass, arguments: tuple[Any, ...]) -> dict[str, str]:
    if row.op == "conv":
        return _TRANSPOSED if _attributes(row, arguments)["transposed"] else _CONVOLUTION
    return _PER_IMAGE if _CUTS.get(row.op) == "n" else _CHANNELWISE


def _cut(row: Pass, arguments: tuple[Any, ...], letter: str) -> Placements:
    """Return the placements when the call is cut along one index; "" is not at all."""
    axes, operands = _axes(row, arguments), row.signature.operands

    def placed(role: str, otherwise: Any) -> Any:
        found = axes.get(BASE_ROLE[role], "")
        return Shard(found.index(letter)) if letter and letter in found else otherwise

    given = [
        None if tensor is None else placed(role, Replicate())
        for role, tensor in zip(operands, arguments)
    ]
    given += [None] * (len(arguments) - len(operands))
    whole = Replicate() if not letter else Partial()
    mask = arguments[-2] if row.signature.maskable else [True] * len(row.signature.results)
    results = [
        # no channel in stands in the sum that a bias's gradient is
        placed(role, Replicate() if (role, letter) == ("db", "c") else whole) if on else Replicate()
        for role, on in zip(row.signature.results, mask)
    ]
    return results, given
