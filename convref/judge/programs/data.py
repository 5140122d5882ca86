"""Data for programs: arguments of the same shapes on which errors show."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .pair import Tensor

_TERMS = 6  # non-zero elements of a row of sparse data


def for_program(args: Any, draws: int = 3, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield data for a program by name: arguments of the shapes and dtypes of `args`.

    "given" are the arguments themselves. "integers" are small, so that sums are exact. In "sparse"
    data one argument has few non-zero elements, at the first and last position and at others that
    differ by draw, so that bounds are narrow. Then data of one sign, with a large mean, of many
    magnitudes, and with infinities and NaN. Integer tensors and other arguments stay as given.
    """
    leaves, form = tree_flatten(args)
    places = [i for i, leaf in enumerate(leaves) if _is_floating(leaf)]
    yield "given", args
    for draw in range(draws):
        random = torch.Generator().manual_seed(seed * 1009 + draw)
        for name, fill in _FILLS.items():
            yield f"{name} {draw}", tree_unflatten(_filled(leaves, places, fill, random), form)
        for place in places:
            drawn = _filled(leaves, places, _plain, random)
            drawn[place] = _sparse(drawn[place], draw, random)
            yield f"sparse argument {place}, {draw}", tree_unflatten(drawn, form)
        drawn = _filled(leaves, places[:1], _special, random)
        yield f"specials {draw}", tree_unflatten(drawn, form)


def _plain(t: Tensor) -> Tensor:
    return t


_FILLS: dict[str, Callable[[Tensor], Tensor]] = {
    "integers": lambda t: (t * 1.5).round().clamp(-3, 3),
    "positive": lambda t: t.abs() + 0.1,
    "large mean": lambda t: t + 30,
    "magnitudes": lambda t: t * torch.exp2(4 * t),
}


def _filled(
    leaves: list[Any], places: list[int], fill: Callable[[Tensor], Tensor], random: Any
) -> list[Any]:
    """Return the leaves with normal numbers in these places, changed by `fill`."""
    new = list(leaves)
    for place in places:
        like = leaves[place]
        values = fill(torch.randn(like.shape, generator=random, dtype=torch.float64))
        new[place] = values.to(like.dtype).to(like.device)
    return new


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _sparse(dense: Tensor, draw: int, random: Any) -> Tensor:
    """Keep a few elements along each axis: the last or the first, and others at random."""
    if not dense.ndim:
        return dense
    share = _TERMS / max(_TERMS, *dense.shape)
    kept = torch.rand(dense.shape, generator=random) < share
    for axis in range(dense.ndim):
        kept.select(axis, -1 if draw % 2 == 0 else 0)[...] |= draw < 2
    return torch.where(kept.to(dense.device), dense, 0.0)


def _special(values: Tensor) -> Tensor:
    """Put one infinity or NaN where the data say."""
    if values.numel():
        place = int(values.abs().argmax())
        values.view(-1)[place] = (torch.inf, -torch.inf, torch.nan)[place % 3]
    return values
