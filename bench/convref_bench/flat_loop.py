"""Is a flat loop over filter taps and channels miscompiled, and for which warps and stages?

Reported for 8 warps as pytorch issue 173068: 84.7 % of the results were wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .records import Record

WARPS, STAGES = (4, 8), (2, 3, 4)


class Problem(NamedTuple):
    """A convolution of the probe: sizes of x, filters, their extent, stride and padding."""

    n: int
    c: int
    hw: int
    k: int
    rs: int
    stride: int
    pad: int


# Even, odd and ragged sizes, and one long reduction.
PROBLEMS = (
    Problem(2, 64, 28, 128, 3, 1, 1),
    Problem(1, 256, 14, 256, 3, 1, 1),
    Problem(3, 40, 17, 72, 3, 2, 1),
    Problem(2, 96, 13, 33, 5, 1, 2),
    Problem(2, 512, 7, 128, 1, 1, 0),
)
TILES = ((128, 128, 64), (64, 64, 32))  # pixels, output channels, input channels
UNITS = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}

Launch = Callable[..., Tensor]


def launch(x: Tensor, w: Tensor, problem: Problem, tile: tuple[int, ...], **how: int) -> Tensor:
    """Return y (N, P, Q, K) of the flat loop; what it does not write stays NaN."""
    from .probe_kernels import flat_fprop

    n, h, _, c = x.shape
    k, out = w.shape[0], (h + 2 * problem.pad - problem.rs) // problem.stride + 1
    y = torch.full((n, out, out, k), float("nan"), device=x.device, dtype=x.dtype)
    block_m, block_k, block_c = tile
    grid = (-(-n * out * out // block_m), -(-k // block_k))
    flags = {"R": problem.rs, "S": problem.rs, "STRIDE": problem.stride, "PAD": problem.pad}
    blocks = {"BLOCK_M": block_m, "BLOCK_K": block_k, "BLOCK_C": block_c}
    flat_fprop[grid](x, w, y, n, c, h, h, k, out, out, **flags, **blocks, **how)
    return y


def rows(launch: Launch = launch, where: str = "cuda") -> Iterator[Record]:
    """Yield a record per problem, tile, type, warps and stages: how many results are wrong."""
    every = product(PROBLEMS, TILES, UNITS, WARPS, STAGES)
    for problem, tile, dtype, warps, stages in every:
        row: Record = {"problem": list(problem), "tile": list(tile), "dtype": str(dtype)[6:]}
        row |= {"warps": warps, "stages": stages}
        generator = torch.Generator(where).manual_seed(problem.c)
        shapes = ((problem.n, problem.hw, problem.hw, problem.c),)
        shapes += ((problem.k, problem.rs, problem.rs, problem.c),)
        x, w = (torch.randn(shape, generator=generator, device=where).to(dtype) for shape in shapes)
        try:
            got = launch(x, w, problem, tile, num_warps=warps, num_stages=stages)
            yield row | judged(x, w, problem, got)
        except (RuntimeError, ImportError, ValueError) as error:
            yield row | {"absent": f"{type(error).__name__}: {error}"[:200]}
            if "CUDA error" in str(error):
                raise


def judged(x: Tensor, w: Tensor, problem: Problem, got: Tensor) -> Record:
    """Return how many results lie outside their proven bound, NaN among them, and the worst."""
    wide: list[Any] = [one.permute(0, 3, 1, 2).double() for one in (x, w)]
    want, sums = (
        torch.conv2d(a, b, stride=problem.stride, padding=problem.pad).permute(0, 2, 3, 1)
        for a, b in (wide, [one.abs() for one in wide])
    )
    terms = problem.c * problem.rs**2
    # 2**-22: tensor-core sums may truncate; the result is rounded once to its type
    limit = 1.1 * terms * 2.0**-22 * sums + UNITS[x.dtype] * want.abs() * 1.01 + 2.0**-24
    ratio = (got.double() - want).abs() / limit
    bad = ~(ratio <= 1)
    worst = ratio.nan_to_num(nan=1e9).max().item()
    return {"wrong": bad.sum().item(), "of": bad.numel(), "worst": round(worst, 4)}
