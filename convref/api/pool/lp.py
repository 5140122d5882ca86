"""Pooling by norm and its derivatives."""

from __future__ import annotations

from typing import Any

from .._images import one, ranked
from ._problems import run


def _lp_poolNd(
    rank: int,
    input: Any,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
    *,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the p-norm of each window of `input`, ``(sum |x|^p)^(1/p)``.

    Parameters
    ----------
    input : (N, C, *spatial) array, or without N
        Real.
    norm_type : float
        The p, at least 1; integers and Fractions take only 1.
    kernel_size, stride, ceil_mode, padding, dilation, layout, backend
        As in `max_pool2d`; PyTorch has no padding and no dilation here.

    Returns
    -------
    (N, C, *output) array

    Notes
    -----
    Absolute values, as in ONNX. PyTorch sums powers of the signed values, which is no norm for
    an odd p; and with ceil_mode it scales a cut window as if it were whole.

    Examples
    --------
    >>> lp_pool1d(np.array([[[3., -4., 0.]]]), 2, 2, 1)
    array([[[5., 4.]]])
    """
    return run(
        "lp_pool.fprop",
        rank,
        (input,),
        (norm_type, kernel_size, stride, padding, dilation, ceil_mode),
        layout,
        backend,
    )[0]


def _lp_poolNd_backward(
    rank: int,
    grad_output: Any,
    input: Any,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
    *,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return grad_input of `lp_pool2d`; 0 for a window whose norm is 0.

    Examples
    --------
    >>> lp_pool1d_backward(np.array([[[10.]]]), np.array([[[3., -4.]]]), 2, 2)
    array([[[ 6., -8.]]])
    """
    arrays = grad_output, input
    return run(
        "lp_pool.backward",
        rank,
        arrays,
        (norm_type, kernel_size, stride, padding, dilation, ceil_mode),
        layout,
        backend,
    )[0]


def _lp_poolNd_jvp(
    rank: int,
    primals: Any,
    tangents: Any,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
    *,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `lp_pool2d`; primals and tangents are tuples (input,).

    Examples
    --------
    >>> lp_pool1d_jvp((np.array([[[3., -4.]]]),), (np.array([[[5., 0.]]]),), 2, 2)
    (array([[[5.]]]), array([[[3.]]]))
    """
    arrays = one("lp_pool.jvp", "primals", primals), one("lp_pool.jvp", "tangents", tangents)
    return run(
        "lp_pool.jvp",
        rank,
        arrays,
        (norm_type, kernel_size, stride, padding, dilation, ceil_mode),
        layout,
        backend,
    )


def _lp_poolNd_double_backward(
    rank: int,
    grad_grad_input: Any,
    grad_output: Any,
    input: Any,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
    *,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output and input through `lp_pool2d_backward`.

    Examples
    --------
    >>> x, one = np.array([[[3., 4.]]]), np.ones((1, 1, 1))
    >>> lp_pool1d_double_backward(x, one, x, 2, 2)
    (array([[[5.]]]), array([[[0., 0.]]]))
    """
    arrays = grad_grad_input, grad_output, input
    return run(
        "lp_pool.double_backward",
        rank,
        arrays,
        (norm_type, kernel_size, stride, padding, dilation, ceil_mode),
        layout,
        backend,
    )


lp_pool1d, lp_pool2d, lp_pool3d = ranked(_lp_poolNd)
lp_pool1d_backward, lp_pool2d_backward, lp_pool3d_backward = ranked(_lp_poolNd_backward)
lp_pool1d_jvp, lp_pool2d_jvp, lp_pool3d_jvp = ranked(_lp_poolNd_jvp)
(
    lp_pool1d_double_backward,
    lp_pool2d_double_backward,
    lp_pool3d_double_backward,
) = ranked(_lp_poolNd_double_backward)
