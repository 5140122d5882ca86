"""Local response norm, vectors of length 1, and their derivatives."""

from __future__ import annotations

from . import views
from .definition import CUDA_FLOAT32, Image, define
from .generate.passes import functions


@define(view=views.along_dim, layouts=False, autocast=CUDA_FLOAT32)
def normalize(input: Image, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> None:
    """Return `input` over its p-norm along an axis.

    Parameters
    ----------
    p : float
        At least 1.
    eps : float
        The least divisor.

    >>> normalize(np.array([[3., -4.]]))
    array([[ 0.6, -0.8]])
    """


@define(view=views.by_channel, layouts=False, layer="LocalResponseNorm", autocast=CUDA_FLOAT32)
def local_response_norm(
    input: Image, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> None:
    """Return `input` over (k + alpha times the mean square of `size` neighbouring channels)^beta.

    Parameters
    ----------
    input : (N, C, *) array
        Any other axes.
    size : int
        Channels c - size // 2 to c + (size - 1) // 2; those beyond the image count as 0.
    alpha, k : float
        At least 0.
    beta : float

    >>> local_response_norm(np.array([[3., 4.]]), 2, alpha=2., beta=0.5, k=0.)
    array([[1. , 0.8]])
    """


normalize.derivatives(
    backward="""
        >>> normalize_backward(np.array([[1., 0.]]), np.array([[0., 2.]]))
        array([[0.5, 0. ]])
    """,
)
local_response_norm.derivatives(
    backward="""
        >>> local_response_norm_backward(np.ones((1, 2)), np.array([[1., 2.]]), 1, 1., 1., 0.)
        array([[-1.  , -0.25]])
    """,
)

DEFINITIONS = (normalize, local_response_norm)
FUNCTIONS = functions(*DEFINITIONS)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
