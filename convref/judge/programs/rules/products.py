"""Sums of products: matrix products, convolutions, and sums."""

from collections.abc import Callable
from typing import Any

import torch

from ..pair import Op, Pair, SumTerms, Tensor
from .arithmetic import add, scaled
from .sums import exact_sums, grain, largest_number, sums
from .table import aten, rule

Bilinear = Callable[[Tensor, Tensor], Tensor]


def products(op: Op, f: Bilinear, x: Pair, w: Pair, terms: int, bias: Pair | None = None) -> Pair:
    """Return the pair of a bilinear f with coefficients 0 and 1; docs/programs.md, theorem 2.

    `terms` is the largest number of products in one element.
    """
    value, largest = f(x.wide, w.wide), f(x.magnitude, w.magnitude)
    error: Any = 0.0
    if x.error is not None or w.error is not None:
        sums = f(x.wide.abs(), w.wide.abs())
        error = largest - sums + op.with_dtype(torch.float64).gamma(terms) * largest
    n = _nonzero_terms(f, x, w, terms)
    if bias is not None:
        n = n + 1 + (0 if bias.terms is None else bias.terms.n)
        value, largest = value + bias.wide, largest + bias.reach
        error = error + bias.slack
    step, high = _step(op, x, w, bias), _largest(x, w)
    exact = bool(step) and exact_sums(op, largest, step)
    found = op.rounded(value, error, largest, n, exact, products=high)
    return found._replace(terms=SumTerms(largest, largest_number(n), 0, step, high))


def _largest(*operands: Pair) -> float:
    """Return the largest operand, at least 1."""
    return max(
        [1.0, *(float(p.wide.abs().nan_to_num().max()) for p in operands if p.value.numel())]
    )


def _nonzero_terms(f: Bilinear, x: Pair, w: Pair, terms: int) -> Any:
    """Return how many products may differ from zero, by element; all, where no operand is zero."""
    parts = [p.magnitude for p in (x, w)]
    if all(part.numel() and float(part.min()) > 0 for part in parts):
        return terms
    return f(*((part != 0).to(torch.float64) for part in parts))


def _step(op: Op, x: Pair, w: Pair, bias: Pair | None) -> float:
    """Return a number of which every product is a multiple, 0 where operands are cut."""
    step = grain(x) * grain(w)
    if bias is not None:
        step = min(step, grain(bias))
    cut = op.numerics.tf32 or op.numerics.tf32x3
    return 0.0 if op.numerics.normwise or (step and cut and _largest(x, w) > 2**11) else step


@rule("mm", "bmm")
def mm(op: Op, x: Pair, w: Pair) -> Pair:
    """Return a matrix product."""
    return products(op, torch.matmul, x, w, x.value.shape[-1])


@rule("mv", "dot", "vdot")
def mv(op: Op, x: Pair, w: Pair) -> Pair:
    """Return the product of a matrix or a vector with a vector."""
    return products(op, torch.matmul, x, w, x.value.shape[-1])


@rule("addmm", "baddbmm", "addmv")
def addmm(op: Op, b: Pair, x: Pair, w: Pair, *, beta: float = 1, alpha: float = 1) -> Pair:
    """beta b + alpha x w."""
    bias = scaled(op, b, beta) if beta else None
    if alpha == 1:
        return products(op, torch.matmul, x, w, x.value.shape[-1], bias)
    found = scaled(op, mm(op.with_dtype(op.accumulator), x, w), alpha)
    return found if bias is None else add(op, bias, found)


@rule("convolution")
def convolution(op: Op, x: Pair, w: Pair, b: Pair | None, *geometry: Any) -> Pair:
    """Return a convolution, transposed or not."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.convolution(x, w, None, *geometry)

    transposed = geometry[3]
    terms = w.value[:, 0].numel() if transposed else w.value[0].numel()
    if b is not None:
        shape = (-1,) + (1,) * (w.value.ndim - 2)
        b = Pair(b.value.reshape(shape), None if b.error is None else b.error.reshape(shape))
    return _padded(products(op, f, x, w, terms, b))


def _padded(found: Pair) -> Pair:
    """Leave what is not finite undecided: zeros of the padding may be multiplied or skipped."""
    finite = found.value.isfinite()
    if bool(finite.all()):
        return found
    error = torch.where(finite, torch.as_tensor(found.slack).to(found.value), torch.inf)
    return found._replace(error=error)


@rule("convolution_backward")
def convolution_backward(
    op: Op, dy: Pair, x: Pair, w: Pair, bias_sizes: Any, *rest: Any
) -> tuple[Pair | None, ...]:
    """Return the derivatives of a convolution, each of which is bilinear."""
    *geometry, mask = rest

    def part(index: int, other: Pair) -> Pair:
        selected = [i == index for i in range(3)]

        def f(dy: Tensor, other: Tensor) -> Tensor:
            operands = (x.wide, other) if index == 0 else (other, w.wide)
            found = aten.convolution_backward(dy, *operands, None, *geometry, selected)
            return found[index]

        terms = (w if index == 0 else dy).value.numel()
        return _padded(products(op, f, dy, other, terms))

    axes = [axis for axis in range(dy.value.ndim) if axis != 1]
    return (
        part(0, w) if mask[0] else None,
        part(1, x) if mask[1] else None,
        sums(op, dy, axes) if mask[2] else None,
    )
