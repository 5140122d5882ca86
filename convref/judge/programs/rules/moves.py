"""Copies: an operation that only moves elements moves their errors in the same way."""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..pair import Op, Pair, Tensor
from .arithmetic import round_to_integer, scaled
from .table import RULES, aten, rule


@rule("_to_copy")
def to_copy(op: Op, x: Pair, **_: Any) -> Pair:
    """Return x, rounded if its dtype changes to a narrower one."""
    if not op.dtype.is_floating_point:
        return round_to_integer(x, "trunc") if op.dtype != torch.bool else x
    terms = None if op.accumulator == torch.float64 else x.terms  # sums were not held in float64
    return Pair(x.wide, x.error, False, terms)


@rule("copy", "fill")
def copy(op: Op, x: Pair, source: Any, non_blocking: bool = False) -> Pair:
    """Return the source with the shape of x."""
    found = to_copy(op, op.pair(source))
    error = None if found.error is None else found.error.expand(x.value.shape)
    return Pair(found.value.expand(x.value.shape), error, stored=False)


def move_rule(f: Any) -> Any:
    """Return the rule of an operation that only moves elements."""

    def evaluate(op: Op, *operands: Any, **named: Any) -> Any:
        leaves = tree_leaves((operands, named), is_leaf=_is_pair)
        pairs = [p for p in leaves if isinstance(p, Pair)]

        def take(part: Any) -> Any:
            both = tree_map(part, (operands, named), is_leaf=_is_pair)
            return f(*both[0], **both[1])

        value = take(_value)
        if all(p.error is None for p in pairs):
            return Pair(value)
        if any(p.error is not None and bool((p.error > 0).any()) for p in pairs if _is_index(p)):
            return Pair(value, torch.full_like(value, torch.inf))  # from where is open
        return Pair(value, take(_error))

    return evaluate


def _is_pair(p: Any) -> bool:
    return isinstance(p, Pair)


def _value(p: Any) -> Any:
    if not isinstance(p, Pair):
        return p
    return p.value if _is_index(p) else p.wide


def _is_index(p: Pair) -> bool:
    return not p.value.dtype.is_floating_point


def _error(p: Any) -> Any:
    if not isinstance(p, Pair):
        return p
    if p.value.dtype.is_floating_point:
        return torch.zeros_like(p.wide) if p.error is None else p.error
    return p.value


_MOVES = """
    cat clone diagonal_backward diagonal_scatter embedding flip gather im2col index index_copy
    index_select pixel_shuffle repeat roll select_backward select_scatter slice_backward
    slice_scatter stack take tril triu constant_pad_nd reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
"""
for _name in _MOVES.split():
    RULES[getattr(aten, _name)] = move_rule(getattr(aten, _name))


@rule("scatter")
def scatter(op: Op, x: Pair, dim: int, index: Pair, source: Any, **named: Any) -> Pair:
    return move_rule(aten.scatter)(op, x, dim, index, _filled(op, source, index), **named)


def _filled(op: Op, source: Any, like: Pair) -> Pair:
    """Return a number as a tensor."""
    if isinstance(source, Pair):
        return source
    if not op.dtype.is_floating_point:
        return Pair(torch.full_like(like.value, source, dtype=op.dtype))
    number = op.pair(source)
    error = None if number.error is None else number.error.expand(like.value.shape)
    return Pair(number.value.expand(like.value.shape), error)


def scatter_added(f: Any, op: Op, x: Pair, source: Pair) -> Pair:
    """Return x plus the elements of a source that are moved to it by f(x, source)."""
    value, largest = f(x.wide, source.wide), f(x.magnitude, source.magnitude)
    n = f(torch.zeros_like(x.wide), torch.ones_like(source.wide))
    slacks = [torch.zeros_like(p.wide) + p.slack for p in (x, source)]
    return op.rounded(value, f(*slacks), largest, n, exact=n == 0)


@rule("scatter_add", "index_add")
def scatter_add(op: Op, x: Pair, dim: int, index: Pair, source: Pair, *, alpha: float = 1) -> Pair:
    f = getattr(torch, op.name.rpartition(".")[2])
    source = scaled(op, source, alpha)
    return scatter_added(lambda t, s: f(t, dim, index.value, s), op, x, source)


@rule("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    op: Op, x: Pair, indices: Any, values: Pair, accumulate: bool = False, *_: Any
) -> Pair:
    places = [i if i is None else i.value for i in indices]

    def f(t: Tensor, s: Tensor) -> Tensor:
        return aten.index_put(t, places, s, accumulate)

    if accumulate:
        return scatter_added(f, op, x, values)
    slacks = [torch.zeros_like(p.wide) + p.slack for p in (x, values)]
    return Pair(f(x.wide, values.wide), f(*slacks), x.stored and values.stored)


@rule("embedding_dense_backward")
def embedding_dense_backward(op: Op, dy: Pair, index: Pair, *settings: Any) -> Pair:
    def f(t: Tensor) -> Tensor:
        return aten.embedding_dense_backward(t, index.value, *settings)

    n = f(torch.ones_like(dy.wide))
    error = 0.0 if dy.error is None else f(dy.error)
    return op.rounded(f(dy.wide), error, f(dy.magnitude), n, exact=n <= 1)
