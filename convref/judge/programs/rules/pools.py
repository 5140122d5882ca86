"""Pools and resizing: linear operations with weights that are not negative."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch

from ..pair import Op, Pair, Tensor
from .choices import monotone
from .table import RULES, aten, rule

Function = Callable[..., Tensor]


def linear(f: Function, op: Op, x: Pair, n: Any, *settings: Any, exact: Any = False) -> Pair:
    """Return the pair of a linear f whose weights are not negative, rounded n times."""

    def g(t: Tensor) -> Tensor:
        return f(t, *settings)

    error = 0.0 if x.error is None else g(x.error)
    return op.rounded(g(x.wide), error, g(x.magnitude), n, exact)


def unweighted_sum(f: Function, op: Op, x: Pair) -> Pair:
    """Return the pair of a linear f with weights 0 and 1: f of ones counts the terms of a sum."""
    n = f(torch.ones_like(x.wide))
    return linear(f, op, x, n, exact=n <= 1)


def _averages(name: str, rank: int) -> None:
    f = getattr(aten, name)

    @rule(name)
    def avg_pool(op: Op, x: Pair, size: Any, *settings: Any) -> Pair:
        sizes = size if len(size) == rank else size * rank
        return linear(f, op, x, math.prod(sizes) + 3, size, *settings)

    @rule(f"{name}_backward")
    def avg_pool_backward(op: Op, dy: Pair, x: Pair, size: Any, *settings: Any) -> Pair:
        sizes = size if len(size) == rank else size * rank

        def g(t: Tensor) -> Tensor:
            return getattr(aten, f"{name}_backward")(t, x.wide, size, *settings)

        return linear(g, op, dy, math.prod(sizes) + 3)


for _name, _rank in (("avg_pool1d", 1), ("avg_pool2d", 2), ("avg_pool3d", 3)):
    _averages(_name, _rank)


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(op: Op, x: Pair, size: Any) -> Pair:
    f = getattr(aten, op.name.removeprefix("aten."))
    n = math.prod(-(-i // o) + 1 for i, o in zip(x.value.shape[-len(size) :], size))
    return linear(f, op, x, n + 3, size)


@rule("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(op: Op, dy: Pair, x: Pair) -> Pair:
    f = getattr(aten, op.name.removeprefix("aten."))
    return linear(lambda t: f(t, x.wide), op, dy, dy.value[0, 0].numel() + 3)


@rule("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(op: Op, x: Pair, *settings: Any) -> tuple[Pair, Pair]:
    f = getattr(aten, op.name.removeprefix("aten."))
    values = monotone(lambda t: f(t, *settings)[0])(op, x)
    places = f(x.wide, *settings)[1]
    if x.error is None:
        return values, Pair(places)
    return values, Pair(places, torch.where(_has_rival(x, places, *settings), torch.inf, 0.0))


@rule("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(op: Op, x: Pair, size: Any) -> tuple[Pair, Pair]:
    f = getattr(aten, op.name.removeprefix("aten."))
    values = monotone(lambda t: f(t, size)[0])(op, x)
    places = f(x.wide, size)[1]
    if x.error is None:
        return values, Pair(places)
    return values, Pair(places, torch.where(_has_rival_near(x, places, size), torch.inf, 0.0))


def _has_rival_near(x: Pair, places: Tensor, size: Any) -> Tensor:
    """Return the windows, of several sizes, in which another element may be the largest."""
    rank = len(size)
    shape = x.value.shape[-rank:]
    error = torch.as_tensor(x.slack).expand_as(x.wide)
    number = torch.arange(shape.numel()).reshape(shape)
    found = torch.zeros_like(places, dtype=torch.bool)
    for at in product(*map(range, size)):
        window = tuple(slice(o * i // n, -(-(o + 1) * i // n)) for o, i, n in zip(at, shape, size))
        wide, slack = (t[..., *window].flatten(-rank) for t in (x.wide, error))
        places_here = places[..., *at, None]
        largest = number[window].flatten() == places_here
        own, least = (t[largest].reshape_as(places_here) for t in (slack, wide - slack))
        found[..., *at] = ((wide + slack >= least) & (slack + own > 0) & ~largest).any(-1)
    return found


def _has_rival(x: Pair, places: Tensor, size: Any, stride: Any = (), *settings: Any) -> Tensor:
    """Return the windows in which rounding may make another element the largest.

    One element at a time is compared: the pool over the others, found by windows of one tap.
    """
    rank = len(size)
    defaults: tuple[Any, ...] = ((0,), (1,), False)
    padding, dilation, ceil_mode = (*settings, *defaults[len(settings) :])
    if ceil_mode or rank != 2:
        return torch.ones_like(places, dtype=torch.bool)
    stride, padding, dilation = (
        tuple(v) * (rank // len(v)) for v in (stride or size, padding, dilation)
    )
    error = torch.as_tensor(x.slack)
    flat = [t.flatten(-rank) for t in (x.wide - error, error)]
    least, own = (t.gather(-1, places.flatten(-rank)).reshape(places.shape) for t in flat)
    pads = [p for p in reversed(padding) for _ in (0, 1)]
    number = torch.arange(flat[0].shape[-1], dtype=torch.float64).reshape(x.value.shape[-rank:])
    planes = [
        torch.nn.functional.pad(t, pads, value=v)
        for t, v in ((x.wide + error, -math.inf), (error, 0.0), (number, -1.0))
    ]
    found = torch.zeros_like(places, dtype=torch.bool)
    for tap in torch.cartesian_prod(*(torch.arange(n) for n in size)).tolist():
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, places.shape[-rank:])
        )
        most, slack, here = (plane[..., *at] for plane in planes)
        found |= (most >= least) & (slack + own > 0) & (here != places)
    return found


@rule("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
@rule("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def max_pool_backward(op: Op, dy: Pair, x: Pair, *settings: Any) -> Pair:
    """Return sums of cotangents at the largest elements; unbounded where the largest is open."""
    *geometry, places = settings
    f = getattr(aten, op.name.removeprefix("aten."))
    found = unweighted_sum(lambda t: f(t, x.wide, *geometry, places.value), op, dy)
    if places.error is None or not bool((places.error > 0).any()):
        return found
    size, stride, padding, dilation, ceil_mode = geometry or ((), (), (), (), True)
    if ceil_mode or len(size) != 2 or any(d != 1 for d in dilation):
        return found._replace(error=torch.full_like(found.value, torch.inf))
    open_ = aten.avg_pool2d_backward(
        (places.error > 0).to(torch.float64), x.wide, size, stride, padding, ceil_mode, True, None
    )
    error = torch.where(open_ > 0, torch.inf, torch.as_tensor(found.slack))
    return found._replace(error=error)


@rule("upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d")
def upsample_linear(op: Op, x: Pair, *settings: Any) -> Pair:
    """Return means of neighbours; a rounded position moves weight to the next neighbour."""
    f = getattr(aten, op.name.removeprefix("aten."))
    rank = x.value.ndim - 2
    pool = getattr(torch.nn.functional, f"max_pool{rank}d")
    near = pool(x.magnitude, 3, 1, 1)
    error = 0.0 if x.error is None else f(pool(x.error, 3, 1, 1), *settings)
    steps = 8 + 8 * sum(x.value.shape[2:])
    return op.rounded(f(x.wide, *settings), error, f(near, *settings), steps)


@rule("upsample_bilinear2d_backward", "upsample_linear1d_backward", "upsample_trilinear3d_backward")
def upsample_linear_backward(op: Op, dy: Pair, size: Any, input_size: Any, *settings: Any) -> Pair:
    """Return sums of shares of cotangents; a rounded position moves a share to a neighbour."""
    f = getattr(aten, op.name.removeprefix("aten."))
    rank = len(size)
    mean = getattr(torch.nn.functional, f"avg_pool{rank}d")

    def shares(t: Tensor) -> Tensor:
        return f(t, size, input_size, *settings)

    def near(t: Tensor) -> Tensor:
        return 3**rank * mean(shares(t), 3, 1, 1)

    terms = math.prod(min(o, 2 * -(-o // max(1, i - 1)) + 2) for i, o in zip(input_size[2:], size))
    steps = terms + 8 + 8 * sum((*size, *input_size[2:]))
    return op.rounded(
        shares(dy.wide), 0.0 if dy.error is None else near(dy.error), near(dy.magnitude), steps
    )


def _counted(name: str) -> None:
    f = getattr(aten, name)

    @rule(name)
    def summed(op: Op, dy: Pair, *settings: Any) -> Pair:
        return unweighted_sum(lambda t: f(t, *_values(settings)), op, dy)


def _values(settings: Any) -> Any:
    return [s.wide if isinstance(s, Pair) else s for s in settings]


for _rank in (1, 2, 3):
    for _name in (f"upsample_nearest{_rank}d", f"_upsample_nearest_exact{_rank}d"):
        RULES[getattr(aten, _name)] = monotone(getattr(aten, _name))
        _counted(f"{_name}_backward")
    _counted(f"replication_pad{_rank}d_backward")
