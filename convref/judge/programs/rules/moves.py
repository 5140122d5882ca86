"""Copies: an operation that only moves elements moves their errors in the same way."""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..pair import Op, Pair
from .arithmetic import whole
from .table import RULES, aten, rule


@rule("_to_copy")
def to_copy(op: Op, x: Pair, **_: Any) -> Pair:
    """Return x, rounded if its dtype changes to a narrower one."""
    if not op.dtype.is_floating_point:
        return whole(x, "trunc") if op.dtype != torch.bool else x
    return Pair(x.wide, x.error, stored=False)


@rule("copy", "fill")
def copy(op: Op, x: Pair, source: Any, non_blocking: bool = False) -> Pair:
    """Return the source with the shape of x."""
    found = to_copy(op, op.pair(source))
    error = None if found.error is None else found.error.expand(x.value.shape)
    return Pair(found.value.expand(x.value.shape), error, stored=False)


def moved(f: Any) -> Any:
    """Return the rule of an operation that only moves elements."""

    def evaluate(op: Op, *operands: Any, **named: Any) -> Any:
        leaves = tree_leaves((operands, named), is_leaf=_is_pair)
        pairs = [p for p in leaves if isinstance(p, Pair)]

        def take(part: Any) -> Any:
            both = tree_map(part, (operands, named), is_leaf=_is_pair)
            return f(*both[0], **both[1])

        value = take(lambda p: p.value if isinstance(p, Pair) else p)
        if all(p.error is None for p in pairs):
            return Pair(value)
        return Pair(value, take(_error))

    return evaluate


def _is_pair(p: Any) -> bool:
    return isinstance(p, Pair)


def _error(p: Any) -> Any:
    if not isinstance(p, Pair):
        return p
    if p.value.dtype.is_floating_point:
        return torch.zeros_like(p.wide) if p.error is None else p.error
    return p.value


for _name in (
    "clone",
    "cat",
    "stack",
    "flip",
    "roll",
    "index_select",
    "gather",
    "repeat",
    "tril",
    "triu",
):
    RULES[getattr(aten, _name)] = moved(getattr(torch, _name, getattr(aten, _name)))
