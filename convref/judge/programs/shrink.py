"""Other sizes of arguments, and the smallest arguments on which a candidate fails."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

_TRIES = 100
_PRINTED = 40  # elements


def resized(args: Any, size: int, new: int) -> Any:
    """Return arguments of which each axis of `size` has its first `new` elements only."""

    def cut(a: Any) -> Any:
        if not isinstance(a, torch.Tensor) or size not in a.shape:
            return a
        return a[tuple(slice(new) if n == size else slice(None) for n in a.shape)].clone()

    return tree_map(cut, args)


def sizes(args: Any) -> list[int]:
    """Return the sizes of all axes, the largest first."""
    tensors = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
    return sorted({n for a in tensors for n in a.shape if n > 1}, reverse=True)


def ragged(reference: Callable[..., Any], args: Any) -> Any:
    """Return arguments of odd sizes, one less than the given ones, where the reference takes them.

    Axes of equal sizes change together.
    """
    for size in reversed(sizes(args)):
        if size % 2 == 0 and size > 2 and size - 1 not in sizes(args):
            smaller = resized(args, size, size - 1)
            try:
                reference(*tree_map(_copied, smaller))
            except Exception:  # of any kind: the reference needs this size
                continue
            args = smaller
    return args


def _copied(a: Any) -> Any:
    return a.detach().clone() if isinstance(a, torch.Tensor) else a


def shrink_arguments(fails: Callable[[Any], bool], args: Any) -> Any:
    """Return arguments that fail with smaller sizes and simpler values, step by step."""
    tries = iter(range(_TRIES))
    while True:
        for simpler in _simpler(args):
            if next(tries, None) is None:
                return args
            if fails(simpler):
                args = simpler
                break
        else:
            return args


def _simpler(args: Any) -> Iterator[Any]:
    for size in sizes(args):
        for new in sorted({1, size // 2, size - 1}):
            yield resized(args, size, new)
    floats = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
    for target in floats:
        for values in (torch.zeros_like(target), torch.ones_like(target), target.round()):
            if not torch.equal(values, target) and _rank(values) < _rank(target):
                yield tree_map(partial(_replaced, target, values), args)


def _replaced(old: Any, new: Any, leaf: Any) -> Any:
    return new if leaf is old else leaf


def _rank(values: Any) -> int:
    """Return how complicated values are: zeros, ones, integers, any."""
    checks = ((values == 0).all(), (values == 1).all(), (values == values.round()).all())
    return next((i for i, true in enumerate(checks) if bool(true)), len(checks))


def call(args: Any) -> str:
    """Return arguments as one line of Python, large ones by shape."""

    def text(a: Any) -> str:
        if not isinstance(a, torch.Tensor):
            return repr(a)
        if a.numel() > _PRINTED:
            return f"torch.randn{tuple(a.shape)}.to({a.dtype})"
        return f"torch.tensor({a.tolist()}, dtype={a.dtype})"

    return f"candidate({', '.join(map(text, args))})"
