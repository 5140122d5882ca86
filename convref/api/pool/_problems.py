"""From a pool's arguments to its problem, and from arrays to results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ConvrefError, message
from ...ops import (
    RANKS,
    AdaptiveMaxPoolProblem,
    AdaptivePoolProblem,
    AvgPoolProblem,
    LpPoolProblem,
    PoolProblem,
    Problem,
    Sizes,
    UnpoolProblem,
    integer,
    integers,
    items,
)
from .._arguments import flag
from .._images import prepare_images
from .._run import compute
from .._trace import needed
from .._windows import windows


def _windows(
    where: str, input: Sizes, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil: Any
) -> dict[str, Any]:
    """Return the geometry of sliding windows, checked; without a stride they stand side by side."""
    stride = kernel_size if stride is None or items(stride) == [] else stride
    found = windows(where, input, kernel_size, stride, padding, dilation)
    return {**found, "ceil": flag(where, "ceil_mode", ceil)}


def _max_problem(where: str, n: int, c: int, input: Sizes, *arguments: Any) -> Problem:
    return PoolProblem(n=n, c=c, **_windows(where, input, *arguments))


def _avg_problem(
    where: str, n: int, c: int, input: Sizes, include: Any, divisor: Any, *arguments: Any
) -> Problem:
    include = flag(where, "count_include_pad", include)
    if divisor is not None and not integer(where, "divisor_override", divisor):
        raise ConvrefError(message(where, "divisor_override is 0, needs another integer or None"))
    geometry = _windows(where, input, *arguments)
    return AvgPoolProblem(n=n, c=c, include_pad=include, divisor=divisor or 0, **geometry)


def _lp_problem(
    where: str, n: int, c: int, input: Sizes, norm_type: Any, *arguments: Any
) -> Problem:
    return LpPoolProblem(n=n, c=c, norm=norm_type, **_windows(where, input, *arguments))


def _adaptive(
    family: type[AdaptivePoolProblem],
) -> Callable[[str, int, int, Sizes, Any], Problem]:
    def build(where: str, n: int, c: int, input: Sizes, output_size: Any) -> Problem:
        listed = items(output_size)
        listed = [output_size] * len(input) if listed is None else listed
        if len(listed) == len(input):
            listed = [size if out is None else out for size, out in zip(input, listed)]
        output = integers(where, "output_size", listed, len(input))
        return family(n=n, c=c, input=input, output=output)

    return build


_adaptive_avg_problem = _adaptive(AdaptivePoolProblem)
_adaptive_max_problem = _adaptive(AdaptiveMaxPoolProblem)


def _unpool_problem(
    where: str,
    n: int,
    c: int,
    input: Sizes,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Problem:
    rank = len(input)
    kernel = integers(where, "kernel_size", kernel_size, rank)
    steps = integers(where, "stride", kernel_size if stride is None else stride, rank)
    pads = integers(where, "padding", padding, rank)
    usual = tuple((i - 1) * s - 2 * p + k for i, s, p, k in zip(input, steps, pads, kernel))
    if output_size is None:
        return UnpoolProblem(n=n, c=c, input=input, output=usual)
    listed = items(output_size)
    listed = [output_size] * rank if listed is None else listed
    output = integers(where, "output_size", listed[2:] if len(listed) == rank + 2 else listed, rank)
    for axis, size, expected, step in zip(RANKS[rank], output, usual, steps):
        if not expected - step < size < expected + step:
            what = f"output_size {axis} is {size}, needs {expected - step + 1} to "
            raise ConvrefError(message(where, f"{what}{expected + step - 1}"))
    return UnpoolProblem(n=n, c=c, input=input, output=output)


_BUILD: dict[str, Callable[..., Problem]] = {
    "max_pool": _max_problem,
    "avg_pool": _avg_problem,
    "lp_pool": _lp_problem,
    "adaptive_max_pool": _adaptive_max_problem,
    "adaptive_avg_pool": _adaptive_avg_problem,
    "max_unpool": _unpool_problem,
}


def prepare_pool(
    arrays: tuple[Any, ...],
    op: str,
    pass_: str,
    rank: int,
    layout: Any,
    arguments: tuple[Any, ...],
    sizes: Sizes | None = None,
) -> Any:
    """Return the prepared call of a pool; what `compute` keeps under the raw arguments."""
    return prepare_images(arrays, op, pass_, rank, layout, _BUILD[op], arguments, sizes)


def run(
    name: str,
    rank: int,
    arrays: tuple[Any, ...],
    arguments: tuple[Any, ...],
    layout: Any,
    backend: str,
    sizes: Sizes | None = None,
) -> tuple[Any, ...]:
    op, _, pass_ = name.partition(".")
    return compute(prepare_pool, arrays, (op, pass_, rank, layout, arguments, sizes), backend)


def indices_of(
    op: str,
    rank: int,
    input: Any,
    indices: Any,
    arguments: tuple[Any, ...],
    layout: Any,
    backend: str,
) -> Any:
    """Return the indices that were kept, else find them again."""
    if indices is not None:
        return indices
    return run(f"{op}.fprop", rank, (input,), arguments, layout, needed(backend))[1]
