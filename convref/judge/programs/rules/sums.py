"""Sums: their terms may be added in any order and grouping, with those of other sums."""

from typing import Any

import torch

from ..pair import ERROR_OF_ERRORS, Op, Pair, SumTerms, Tensor

_GRAINS = (2.0**-10, 1.0)  # exact data are multiples of the first
_SAMPLE = 64


def grain(x: Pair) -> float:
    """Return a power of two of which all values are multiples, 0 if none is known.

    None is known of values that have errors.
    """
    first = x.value[(slice(1),) * (x.value.ndim - 1) + (slice(_SAMPLE),) * (x.value.ndim > 0)]
    if x.error is not None or not _is_multiple(first.to(torch.float64), _GRAINS[0]):
        return 0.0
    wide, found = x.wide, 0.0
    for step in _GRAINS:
        if not _is_multiple(wide, step):
            break
        found = step
    return found


def _is_multiple(wide: Tensor, step: float) -> bool:
    multiple = wide / step
    return torch.equal(multiple.round(), multiple)


def exact_sums(op: Op, largest: Tensor, step: float, stages: int = 0) -> Any:
    """Return where partial sums of multiples of `step` are numbers of the type that holds them."""
    held = op.dtype if stages or op.numerics.stages else op.accumulator
    return largest * op.numerics.growth <= 2 * step / torch.finfo(held).eps


def largest_number(n: Any) -> float:
    """Return the largest of some counts."""
    return float(n.max() if n.numel() else 0) if isinstance(n, torch.Tensor) else float(n)


def terms_of(x: Pair) -> SumTerms:
    """Return the terms of a sum; any other value is one term, of the size of its reach."""
    return x.terms or SumTerms(x.value, 0, step=grain(x))


def _more_roundings(op: Op, x: Pair, terms: SumTerms, n: float) -> Tensor:
    """Return what n more roundings of each term of x add to its error."""
    products = terms.products > 0
    gamma = op.gamma(n + terms.owed, products) * (1 + op.gamma(terms.n, products))
    return x.reach * (gamma * (1 + ERROR_OF_ERRORS))


def added(op: Op, x: Pair, y: Pair) -> Pair:
    """Return the pair of x + y: all terms of both in any grouping; two terms are rounded once."""
    value, error = x.wide + y.wide, x.slack + y.slack
    are_terms = x.terms is None and y.terms is None
    if are_terms and not op.is_read:
        return op.rounded(value, error, exact=True)
    p, q = terms_of(x), terms_of(y)
    size, step = x.reach + y.reach, min(p.step, q.step)
    products = max(p.products, q.products)
    if are_terms:
        found = op.rounded(value, error, exact=True)
        return found._replace(terms=SumTerms(size, 1, 1, step))
    p, q = (t._replace(products=products) for t in (p, q))
    if op.rounds and op.dtype.is_floating_point:
        own = _more_roundings(op, x, p, q.n + 1) + _more_roundings(op, y, q, p.n + 1)
        if step:
            own = torch.where(exact_sums(op, size, step) & is_zero(error), 0.0, own)
        error = error + op.bounded(own, size, value)
    found = op.rounded(value, error, size if op.numerics.stages else None, exact=True)
    return found._replace(terms=SumTerms(size, p.n + q.n + 1, 0, step, products))


def distributed(
    op: Op, x: Pair, factor: Tensor, grain: float, n: int, value: Tensor, error: Any
) -> tuple[Any, SumTerms | None]:
    """Return the error and the terms of a product of which each term may be multiplied instead.

    `value` and `error` are those of the product of x with a smaller operand, `factor` its largest
    absolute value and `grain` what all of its elements are multiples of. It is rounded n times.
    """
    terms = x.terms
    if terms is None or factor.numel() >= value.numel() > 1:
        return error, None
    size, step = x.reach * factor, terms.step * grain
    if op.rounds and op.dtype.is_floating_point:
        own = _more_roundings(op, x, terms, n) * factor + op.underflow_error(n * (1 + terms.n))
        certain = size == 0
        if step:
            certain |= exact_sums(op, size, step) & is_zero(error)
        error = error + op.bounded(torch.where(certain, 0.0, own), size, value)
    return error, SumTerms(size, terms.n + n, 0, step, terms.products)


def is_zero(error: Any) -> Tensor:
    """Return where there is no error."""
    return torch.as_tensor(error == 0)


def _additions(f: Any, reach: Tensor, largest: Tensor) -> Any:
    """Return how many additions of non-zero terms a sum has, by element; all, if none is zero."""
    if largest.numel() and float(reach.min()) > 0:
        return reach.numel() // largest.numel() - 1
    return (f((reach != 0).to(torch.float64)) - 1).clamp_(min=0)


def sums(op: Op, x: Pair, dim: Any = None, keepdim: bool = False) -> Pair:
    """Return the pair of a sum along axes."""
    dim = tuple(range(x.value.ndim)) if dim is None or not len(dim) else dim

    def f(values: Tensor) -> Tensor:
        return values.sum(dim, keepdim) if values.ndim else values

    reach, terms = x.reach, terms_of(x)
    value, largest = f(x.wide), f(reach)
    n = _additions(f, reach, largest) + terms.owed
    exact = exact_sums(op, largest, terms.step) if terms.step else n == 0
    size = largest * (1 + op.gamma(terms.n, terms.products > 0)) if terms.n else largest
    error = 0.0 if x.error is None else f(x.error)
    found = op.rounded(value, error, size, n, exact, products=terms.products)
    count = largest_number(n) + terms.n
    return found._replace(terms=SumTerms(largest, count, 0, terms.step, terms.products))
