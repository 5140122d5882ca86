"""Pools of a given output size, global ones among them, and their derivatives."""

from __future__ import annotations

from typing import Any

from .._arguments import flag
from .._images import one, ranked, shape_of
from ._problems import indices_of, run


def _adaptive_max_poolNd(
    rank: int,
    input: Any,
    output_size: Any,
    return_indices: bool = False,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the maximum of each window, with windows cut so that the output has a given size.

    Window p of P over an axis of W elements reads from floor(p W / P) up to ceil((p + 1) W / P).

    Parameters
    ----------
    input : (N, C, *spatial) array, or without N
    output_size : int or tuple of (int or None)
        Spatial sizes of the output; None keeps the input's.
    return_indices, layout, backend
        As in `max_pool2d`.

    Returns
    -------
    (N, C, *output_size) array, or a tuple of it and the indices

    Examples
    --------
    >>> adaptive_max_pool1d(np.array([[[1., 5., 2., 3., 4.]]]), 2)
    array([[[5., 4.]]])
    """
    results = run("adaptive_max_pool.fprop", rank, (input,), (output_size,), layout, backend)
    return (
        results if flag("adaptive_max_pool.fprop", "return_indices", return_indices) else results[0]
    )


def _adaptive_max_poolNd_backward(
    rank: int,
    grad_output: Any,
    input: Any,
    output_size: Any,
    indices: Any = None,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return grad_input of `adaptive_max_pool2d`: each cotangent goes to its maximum.

    `indices` are those of the forward pass; without them they are found again. An index of -1
    passes nothing on. Other arguments as in `adaptive_max_pool2d`.

    Examples
    --------
    >>> x = np.array([[[1., 5., 2.]]])
    >>> adaptive_max_pool1d_backward(np.array([[[1., 10.]]]), x, 2)
    array([[[ 0., 11.,  0.]]])
    """
    arguments = (output_size,)
    indices = indices_of("adaptive_max_pool", rank, input, indices, arguments, layout, backend)
    arrays = grad_output, input, indices
    return run("adaptive_max_pool.backward", rank, arrays, arguments, layout, backend)[0]


def _adaptive_max_poolNd_jvp(
    rank: int,
    primals: Any,
    tangents: Any,
    output_size: Any,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `adaptive_max_pool2d` for tuples (input,).

    Examples
    --------
    >>> x = np.array([[[1., 5., 2., 3.]]])
    >>> adaptive_max_pool1d_jvp((x,), (10 * x,), 2)
    (array([[[5., 3.]]]), array([[[50., 30.]]]))
    """
    arrays = (
        one("adaptive_max_pool.jvp", "primals", primals),
        one("adaptive_max_pool.jvp", "tangents", tangents),
    )
    return run("adaptive_max_pool.jvp", rank, arrays, (output_size,), layout, backend)


def _adaptive_max_poolNd_double_backward(
    rank: int,
    grad_grad_input: Any,
    input: Any,
    output_size: Any,
    indices: Any = None,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the gradient of grad_output through `adaptive_max_pool2d_backward`.

    Examples
    --------
    >>> x = np.array([[[1., 5., 2., 3.]]])
    >>> adaptive_max_pool1d_double_backward(10 * x, x, 2)
    array([[[50., 30.]]])
    """
    arguments = (output_size,)
    indices = indices_of("adaptive_max_pool", rank, input, indices, arguments, layout, backend)
    arrays = grad_grad_input, input, indices
    return run("adaptive_max_pool.double_backward", rank, arrays, arguments, layout, backend)[0]


def _adaptive_avg_poolNd(
    rank: int,
    input: Any,
    output_size: Any,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the mean of each window, with windows as in `adaptive_max_pool2d`.

    Parameters
    ----------
    input, output_size, layout, backend
        As in `adaptive_max_pool2d`.

    Returns
    -------
    (N, C, *output_size) array

    Examples
    --------
    >>> adaptive_avg_pool1d(np.array([[[1., 5., 2., 3., 4.]]]), 2)
    array([[[2.66666667, 3.        ]]])
    """
    return run("adaptive_avg_pool.fprop", rank, (input,), (output_size,), layout, backend)[0]


def _adaptive_avg_poolNd_backward(
    rank: int,
    grad_output: Any,
    input: Any,
    output_size: Any,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return grad_input of `adaptive_avg_pool2d`: each cotangent spread over its window.

    Of `input` only the shape is needed. Other arguments as in `adaptive_avg_pool2d`.

    Examples
    --------
    >>> adaptive_avg_pool1d_backward(np.ones((1, 1, 2)), np.ones((1, 1, 3)), 2)
    array([[[0.5, 1. , 0.5]]])
    """
    sizes = shape_of("adaptive_avg_pool.backward", input)
    arguments = (output_size,)
    arrays = (grad_output,)
    return run("adaptive_avg_pool.backward", rank, arrays, arguments, layout, backend, sizes)[0]


def _adaptive_avg_poolNd_jvp(
    rank: int,
    primals: Any,
    tangents: Any,
    output_size: Any,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `adaptive_avg_pool2d` for tuples (input,).

    Examples
    --------
    >>> x = np.array([[[1., 5., 2., 3.]]])
    >>> adaptive_avg_pool1d_jvp((x,), (10 * x,), 2)
    (array([[[3. , 2.5]]]), array([[[30., 25.]]]))
    """
    arguments = (output_size,)
    input = one("adaptive_avg_pool.jvp", "primals", primals)
    tangent = one("adaptive_avg_pool.jvp", "tangents", tangents)
    y = run("adaptive_avg_pool.fprop", rank, (input,), arguments, layout, backend)
    return *y, *run("adaptive_avg_pool.jvp", rank, (tangent,), arguments, layout, backend)


def _adaptive_avg_poolNd_double_backward(
    rank: int,
    grad_grad_input: Any,
    output_size: Any,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the gradient of grad_output through `adaptive_avg_pool2d_backward`.

    Examples
    --------
    >>> adaptive_avg_pool1d_double_backward(np.array([[[1., 5., 2., 3.]]]), 2)
    array([[[3. , 2.5]]])
    """
    arrays = (grad_grad_input,)
    return run("adaptive_avg_pool.double_backward", rank, arrays, (output_size,), layout, backend)[
        0
    ]


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = ranked(_adaptive_max_poolNd)
(
    adaptive_max_pool1d_backward,
    adaptive_max_pool2d_backward,
    adaptive_max_pool3d_backward,
) = ranked(_adaptive_max_poolNd_backward)
(
    adaptive_max_pool1d_jvp,
    adaptive_max_pool2d_jvp,
    adaptive_max_pool3d_jvp,
) = ranked(_adaptive_max_poolNd_jvp)
(
    adaptive_max_pool1d_double_backward,
    adaptive_max_pool2d_double_backward,
    adaptive_max_pool3d_double_backward,
) = ranked(_adaptive_max_poolNd_double_backward)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = ranked(_adaptive_avg_poolNd)
(
    adaptive_avg_pool1d_backward,
    adaptive_avg_pool2d_backward,
    adaptive_avg_pool3d_backward,
) = ranked(_adaptive_avg_poolNd_backward)
(
    adaptive_avg_pool1d_jvp,
    adaptive_avg_pool2d_jvp,
    adaptive_avg_pool3d_jvp,
) = ranked(_adaptive_avg_poolNd_jvp)
(
    adaptive_avg_pool1d_double_backward,
    adaptive_avg_pool2d_double_backward,
    adaptive_avg_pool3d_double_backward,
) = ranked(_adaptive_avg_poolNd_double_backward)


def global_max_pool(input: Any, *, backend: str = "auto") -> Any:
    """Return the maximum of each channel (N, C, 1, ...): `adaptive_max_pool2d` to size 1.

    Examples
    --------
    >>> global_max_pool(np.arange(12.).reshape(1, 2, 2, 3))
    array([[[[ 5.]],
    <BLANKLINE>
            [[11.]]]])
    """
    return run("adaptive_max_pool.fprop", 0, (input,), (1,), None, backend)[0]


def global_avg_pool(input: Any, *, backend: str = "auto") -> Any:
    """Return the mean of each channel (N, C, 1, ...): `adaptive_avg_pool2d` to size 1.

    Examples
    --------
    >>> global_avg_pool(np.arange(6.).reshape(1, 2, 3))
    array([[[1.],
            [4.]]])
    """
    return run("adaptive_avg_pool.fprop", 0, (input,), (1,), None, backend)[0]


def global_lp_pool(input: Any, norm_type: float = 2.0, *, backend: str = "auto") -> Any:
    """Return the p-norm of each channel (N, C, 1, ...): `lp_pool2d` of a window over all of it.

    Examples
    --------
    >>> global_lp_pool(np.array([[[3., 4.]]]))
    array([[[5.]]])
    """
    arguments = (norm_type, shape_of("lp_pool.fprop", input)[2:], None, 0, 1, False)
    return run("lp_pool.fprop", 0, (input,), arguments, None, backend)[0]


def global_max_pool_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any:
    """Return grad_input of `global_max_pool`.

    Examples
    --------
    >>> global_max_pool_backward(np.array([[[5.]]]), np.array([[[3., 4.]]]))
    array([[[0., 5.]]])
    """
    indices = indices_of("adaptive_max_pool", 0, input, None, (1,), None, backend)
    arrays = grad_output, input, indices
    return run("adaptive_max_pool.backward", 0, arrays, (1,), None, backend)[0]


def global_avg_pool_backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any:
    """Return grad_input of `global_avg_pool`; of `input` only the shape is needed.

    Examples
    --------
    >>> global_avg_pool_backward(np.array([[[5.]]]), np.array([[[3., 4.]]]))
    array([[[2.5, 2.5]]])
    """
    sizes = shape_of("adaptive_avg_pool.backward", input)
    return run("adaptive_avg_pool.backward", 0, (grad_output,), (1,), None, backend, sizes)[0]
