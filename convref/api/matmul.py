"""Products of matrices and their derivatives."""

from __future__ import annotations

from typing import Any

from . import views
from .definition import LOW, Image, define
from .generate.passes import functions


@define(view=views.matrices, layouts=False, autocast=LOW)
def matmul(input: Image, weight: Any, *, math: str = "ieee") -> dict[str, Any]:
    """Return the product of the matrices in the last two axes.

    Parameters
    ----------
    input : (*batch, C, W) or (W,) array
        A vector is one row.
    weight : (*batch, W, K) or (W, K) array
        Of the same batch as `input`, or one matrix for all.
    math : str
        "ieee", or "tf32" for float32 products on tensor cores.

    Returns
    -------
    (*batch, C, K) or (K,) array

    >>> matmul(np.array([[1., 10.]]), np.array([[1., 2.], [3., 4.]]))
    array([[31., 42.]])
    """
    return {"math": math}


matmul.derivatives(
    backward="""
        >>> matmul_backward(np.array([[1.]]), np.array([[2., 3.]]), np.array([[4.], [5.]]))
        (array([[4., 5.]]), array([[2.],
               [3.]]))
    """,
    jvp="""
        >>> x, w = np.array([[2.]]), np.array([[3.]])
        >>> matmul_jvp((x, w), (np.array([[1.]]), None))
        (array([[6.]]), array([[3.]]))
    """,
)

DEFINITIONS = (matmul,)
FUNCTIONS = functions(*DEFINITIONS)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
