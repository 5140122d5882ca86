"""vmap of every pass: one call with the batch folded into N where images are alone, else a loop."""

from collections.abc import Callable, Collection
from typing import Any

import torch

from ._kernels import PassConfig, Tensors

Invoke = Callable[..., Tensors]


def batched(
    invoke: Invoke,
    config: PassConfig,
    operands: Tensors,
    in_dims: tuple[int | None, ...],
    size: int,
) -> Tensors:
    """Return the results of `size` calls by role, stacked along axis 0."""
    leading = tuple(
        t if t is None or dim is None else t.movedim(dim, 0) for t, dim in zip(operands, in_dims)
    )
    roles = config.row.signature.operands
    given = [(role, t, dim) for role, t, dim in zip(roles, leading, in_dims) if t is not None]
    shapes = {role: t.shape if dim is None else t.shape[1:] for role, t, dim in given}
    problem = config.row.problem(shapes, config.attributes, config.input)
    images = [role for role in (*roles, *config.wanted) if problem.letters(role)[0] == "n"]
    moved = [role for role, _, dim in given if dim is not None]
    alone = size > 0 and "n" in problem.independent
    if alone and all(role in images for role in (*config.wanted, *moved)):
        return _folded(invoke, config, leading, in_dims, size, images)
    return _looped(invoke, config, leading, in_dims, size)


def _folded(
    invoke: Invoke,
    config: PassConfig,
    leading: Tensors,
    in_dims: tuple[Any, ...],
    size: int,
    images: Collection[str],
) -> Tensors:
    flat = []
    for role, tensor, dim in zip(config.row.signature.operands, leading, in_dims):
        if tensor is not None and role in images:
            wide = tensor if dim is not None else tensor.expand(size, *tensor.shape)
            tensor = wide.flatten(0, 1)
        flat.append(tensor)
    found = invoke(config, *flat)
    return tuple(None if r is None else r.unflatten(0, (size, r.shape[0] // size)) for r in found)


def _looped(
    invoke: Invoke, config: PassConfig, leading: Tensors, in_dims: tuple[Any, ...], size: int
) -> Tensors:
    def one(i: int) -> Tensors:
        pairs = zip(leading, in_dims)
        return invoke(config, *(t if t is None or dim is None else t[i] for t, dim in pairs))

    if not size:  # one call of zeros has the shapes
        leading = tuple(
            t if t is None or dim is None else t.new_zeros((1, *t.shape[1:]))
            for t, dim in zip(leading, in_dims)
        )
    calls = [one(i) for i in range(max(size, 1))]
    return tuple(None if r[0] is None else torch.stack(r)[:size] for r in zip(*calls))
