"""Reductions, running sums and their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import views
from .definition import Image, define
from .generate.passes import functions


@define(view=views.reduced, layouts=False)
def sum(
    input: Image, dim: int | Sequence[int] | None = None, keepdim: bool = False
) -> dict[str, Any]:
    """Return the sum of `input` over some axes.

    Parameters
    ----------
    input : array
        Any shape.
    dim : int or sequence of int, optional
        The axes; all by default, and for an empty sequence.
    keepdim : bool
        Whether the result has these axes, with extent 1.

    >>> sum(np.array([[1., 2.], [3., 4.]]), dim=1)
    array([3., 7.])
    """
    return {"over": dim}


@define(view=views.reduced, layouts=False)
def mean(
    input: Image, dim: int | Sequence[int] | None = None, keepdim: bool = False
) -> dict[str, Any]:
    """Return the mean of `input` over some axes, which have at least one element.

    Parameters
    ----------
    input : array
        Any shape.
    dim : int or sequence of int, optional
        The axes; all by default, and for an empty sequence.
    keepdim : bool
        Whether the result has these axes, with extent 1.

    >>> mean(np.array([[1., 2.], [3., 4.]]), dim=0)
    array([2., 3.])
    """
    return {"over": dim}


@define(view=views.along_dim, layouts=False)
def cumsum(input: Image, dim: int) -> None:
    """Return the sums of the elements of `input` up to each one along an axis.

    >>> cumsum(np.array([1., 2., 3.]), 0)
    array([1., 3., 6.])
    """


sum.derivatives(
    backward="""
        >>> sum_backward(np.array([5., 7.]), np.ones((2, 2)), dim=1)
        array([[5., 5.],
               [7., 7.]])
    """,
)
mean.derivatives(
    backward="""
        >>> mean_backward(np.array([4., 6.]), np.ones((2, 2)), dim=1)
        array([[2., 2.],
               [3., 3.]])
    """,
)
cumsum.derivatives(
    backward="""
        >>> cumsum_backward(np.array([1., 2., 3.]), np.ones(3), 0)
        array([6., 5., 3.])
    """,
)

DEFINITIONS = (sum, mean, cumsum)
FUNCTIONS = functions(*DEFINITIONS)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
