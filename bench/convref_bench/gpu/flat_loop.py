"""Is a flat loop over filter taps and channels miscompiled, and for which warps and stages?

Reported for 8 warps as pytorch issue 173068: 84.7 % of the results were wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..records import Record

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
DTYPES = {"bfloat16": ("bf16", 2.0**-8), "float16": ("f16", 2.0**-11)}  # code, unit


class Configuration(NamedTuple):
    """What is looked at: a problem, its tile and type, and how it is compiled."""

    problem: Problem
    tile: tuple[int, int, int]
    dtype: str
    warps: int
    stages: int

    def record(self) -> Record:
        """Return its fields as a record has them."""
        return {**self._asdict(), "problem": list(self.problem), "tile": list(self.tile)}


def configurations() -> list[Configuration]:
    """Return all that is looked at, in order."""
    every = product(PROBLEMS, TILES, DTYPES, WARPS, STAGES)
    return [Configuration(*one) for one in every]


def missing(rows: Iterable[Record]) -> list[Configuration]:
    """Return the configurations of which no record in `rows` says anything."""
    mine = [row for row in rows if row.get("what") == "flat-loop"]
    return [
        one for one in configurations() if not any(one.record().items() <= r.items() for r in mine)
    ]


Launch = Callable[[Tensor, Tensor, Configuration], Tensor]


def planned(made: Configuration) -> Any:
    """Return the Plan of the flat loop, whose y (N, P, Q, K) is an operand."""
    from convref_triton.plan.launch import Launch, Plan, Slot

    from .probe_kernels import flat_fprop

    (n, c, hw, k, rs, stride, pad), (block_m, block_k, block_c) = made.problem, made.tile
    out = (hw + 2 * pad - rs) // stride + 1
    slots = {name: Slot(name, DTYPES[made.dtype][0]) for name in "xwy"}
    sizes = {"N": n, "C": c, "H": hw, "W": hw, "K": k, "P": out, "Q": out}
    flags = {"R": rs, "S": rs, "STRIDE": stride, "PAD": pad}
    blocks = {"BLOCK_M": block_m, "BLOCK_K": block_k, "BLOCK_C": block_c}
    grid = (-(-n * out * out // block_m), -(-k // block_k), 1)
    launch = Launch(flat_fprop, grid, slots | sizes, flags | blocks, made.warps, made.stages)
    return Plan({}, (launch,))


def compile_all(wanted: Iterable[Configuration], arch: str, jobs: int) -> list[Any]:
    """Compile configurations in so many processes; return what became of each."""
    from convref_triton.compile import aot
    from convref_triton.run import gpu

    return aot.compile_all([s for c in wanted for s in gpu.specialisations(planned(c))], arch, jobs)


def launch(x: Tensor, w: Tensor, made: Configuration) -> Tensor:
    """Return y (N, P, Q, K) of the flat loop; what it does not write stays NaN."""
    from convref_triton.run import gpu

    plan = planned(made)
    sizes = plan.steps[0].arguments
    shape = [sizes[name] for name in "NPQK"]
    y = torch.full(shape, float("nan"), device=x.device, dtype=x.dtype)
    gpu.run(plan, {"x": x, "w": w, "y": y})
    return y


def rows(
    wanted: Iterable[Configuration], launch: Launch = launch, where: str = "cuda"
) -> Iterator[Record]:
    """Yield a record per configuration: how many results are wrong."""
    for made in wanted:
        row, problem = made.record(), made.problem
        generator = torch.Generator(where).manual_seed(problem.c)
        shapes = ((problem.n, problem.hw, problem.hw, problem.c),)
        shapes += ((problem.k, problem.rs, problem.rs, problem.c),)
        drawn = (torch.randn(shape, generator=generator, device=where) for shape in shapes)
        x, w = (one.to(getattr(torch, made.dtype)) for one in drawn)
        try:
            yield row | judged(x, w, made, launch(x, w, made))
        except (RuntimeError, ImportError, ValueError) as error:
            yield row | {"absent": f"{type(error).__name__}: {error}"[:200]}
            if "CUDA error" in str(error):
                raise


def judged(x: Tensor, w: Tensor, made: Configuration, got: Tensor) -> Record:
    """Return how many results lie outside their proven bound, NaN among them, and the worst."""
    problem, (_, unit) = made.problem, DTYPES[made.dtype]
    wide: list[Any] = [one.permute(0, 3, 1, 2).double() for one in (x, w)]
    want, sums = (
        torch.conv2d(a, b, stride=problem.stride, padding=problem.pad).permute(0, 2, 3, 1)
        for a, b in (wide, [one.abs() for one in wide])
    )
    terms = problem.c * problem.rs**2
    # 2**-22: tensor-core sums may truncate; the result is rounded once to its type
    limit = 1.1 * terms * 2.0**-22 * sums + unit * want.abs() * 1.01 + 2.0**-24
    ratio = (got.double() - want).abs() / limit
    bad = ~(ratio <= 1)
    worst = ratio.nan_to_num(nan=1e9).max().item()
    return {"wrong": bad.sum().item(), "of": bad.numel(), "worst": round(worst, 4)}
