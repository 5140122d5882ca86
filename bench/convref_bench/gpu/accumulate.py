"""How sums on tensor cores are rounded: growth of the error of sums of positive terms.

With rounding to nearest the error of n terms grows like sqrt(n) or, added in a tree, like log n. If
every addition truncates, it grows like n and has one sign.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..records import Record

UNIT = 2.0**-24  # of float32, the accumulator type
TILE = 128
SIZE = 1024  # rows and columns of the library's product: enough tiles to need no split of n
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32}

Product = Callable[[Tensor, Tensor, str], Tensor]


def growth(a: Tensor, b: Tensor, got: Tensor) -> Record:
    """Return the largest and the mean error of `got` = a @ b over u S, with S the sum itself.

    A negative mean says that sums are too small.
    """
    want = a.double() @ b.double()
    off = (got.double() - want) / (UNIT * want)
    return {"worst": off.abs().max().item(), "mean": off.mean().item()}


def rows(
    lengths: Sequence[int], products: dict[str, Product] | None = None, where: str = "cuda"
) -> Iterator[Record]:
    """Yield a record per product, number type and length, a multiple of 64."""
    for by, product in (products or {"cublas": cublas, "triton": triton_loop}).items():
        size = TILE if by == "triton" else SIZE
        for dtype in DTYPES:
            for n in lengths:
                row: Record = {"by": by, "dtype": dtype, "n": n}
                a, b = _operands(n, size, dtype, where)
                try:
                    yield row | growth(a, b, product(a, b, dtype))
                except (RuntimeError, ImportError, TypeError, AttributeError) as error:
                    yield row | {"absent": f"{type(error).__name__}: {error}"[:200]}


def _operands(n: int, size: int, dtype: str, where: str) -> tuple[Tensor, Tensor]:
    """Return positive operands that are exact in the type; of tf32 they have ten mantissa bits."""
    generator = torch.Generator(where).manual_seed(n)
    held = torch.bfloat16 if dtype == "bf16" else torch.float16
    drawn = (
        torch.rand(shape, generator=generator, device=where).add(0.5).to(held)
        for shape in ((size, n), (n, size))
    )
    a, b = (one.to(DTYPES[dtype]) for one in drawn)
    return a, b


def cublas(a: Tensor, b: Tensor, dtype: str) -> Tensor:
    matmul = torch.backends.cuda.matmul
    matmul.fp32_precision = "tf32" if dtype == "tf32" else "ieee"
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False
    return torch.mm(a, b) if dtype == "tf32" else torch.mm(a, b, out_dtype=torch.float32)


def triton_loop(a: Tensor, b: Tensor, dtype: str) -> Tensor:
    """Return the product of one tile by one Triton program, 64 terms after 64."""
    from .probe_kernels import dot_loop

    out = torch.full((TILE, TILE), float("nan"), device=a.device)
    precision: Any = "tf32" if dtype == "tf32" else "ieee"
    step = 32 if dtype == "tf32" else 64
    dot_loop[(1,)](a, b, out, a.shape[1], TILE=TILE, STEP=step, PRECISION=precision, num_warps=8)
    return out
