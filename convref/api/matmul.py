"""Products of matrices, attention and their derivatives."""

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
    input : (..., C, W) or (W,) array
        A vector is one row.
    weight : (..., W, K) or (W, K) array
        Of the same batch as `input`, or one matrix for all.
    math : str
        "ieee", or "tf32" for float32 products on tensor cores.

    Returns
    -------
    (..., C, K) or (K,) array

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


@define(view=views.batches, layouts=False, autocast=LOW)
def sdpa(
    input: Image,
    key: Any,
    value: Any,
    bias: Any = None,
    causal: bool = False,
    scale: float | None = None,
) -> None:
    """Return scaled dot-product attention: the mean of the values under a softmax of scores.

    Parameters
    ----------
    input : (..., C, L, E) array
        Queries; the head `c` reads the head `c * H // C` of keys and values.
    key : (..., H, S, E) array
    value : (..., H, S, V) array
    bias : (L, S) or (..., C, L, S) array, optional
        Added to the scores; minus infinity leaves a key out.
    causal : bool
        Whether query i attends to the keys 0 to i alone.
    scale : float, optional
        Factor of the products of queries and keys; by default 1 / sqrt(E).

    Returns
    -------
    (..., C, L, V) array

    >>> x, value = np.ones((1, 2, 4)), np.array([[[1.], [3.]]])
    >>> sdpa(x, x, value, causal=True)[0, :, 0]
    array([1., 2.])
    """


sdpa.derivatives(
    backward="""
        >>> x, value = np.ones((1, 2, 4)), np.array([[[1.], [3.]]])
        >>> _, _, dv, _ = sdpa_backward(np.ones((1, 2, 1)), x, x, value, None, True)
        >>> dv[0, :, 0]
        array([1.5, 0.5])
    """,
)

DEFINITIONS = (matmul, sdpa)
FUNCTIONS = functions(*DEFINITIONS)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
