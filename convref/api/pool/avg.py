"""Average pooling and its derivatives."""

from __future__ import annotations

from typing import Any

from .._images import one, ranked, shape_of
from ._problems import run


def _avg_poolNd(
    rank: int,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Any = 1,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the mean of each window of `input`.

    Parameters
    ----------
    input : (N, C, *spatial) array, or without N
    kernel_size, stride, padding, ceil_mode, layout, backend
        As in `max_pool2d`.
    count_include_pad : bool
        Whether padding counts in the divisor; what ceil_mode adds beyond it never does.
    divisor_override : int, optional
        Divide by this instead, not 0.
    dilation : int or tuple of int
        As in `max_pool2d`; PyTorch has none here.

    Returns
    -------
    (N, C, *output) array
        Means of integers are cut toward zero. 0 where a window reads nothing.

    Examples
    --------
    >>> avg_pool2d(np.array([[[[1., 5.], [4., 2.]]]]), 2)
    array([[[[3.]]]])
    """
    return run(
        "avg_pool.fprop",
        rank,
        (input,),
        (
            *(count_include_pad, divisor_override),
            *(kernel_size, stride, padding, dilation, ceil_mode),
        ),
        layout,
        backend,
    )[0]


def _avg_poolNd_backward(
    rank: int,
    grad_output: Any,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Any = 1,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return grad_input of `avg_pool2d`: each cotangent spread over its window.

    Of `input` only the shape is needed. Other arguments as in `avg_pool2d`.

    Examples
    --------
    >>> avg_pool1d_backward(np.ones((1, 1, 2)), np.ones((1, 1, 4)), 2)
    array([[[0.5, 0.5, 0.5, 0.5]]])
    """
    sizes = shape_of("avg_pool.backward", input)
    arguments = (
        *(count_include_pad, divisor_override),
        *(kernel_size, stride, padding, dilation, ceil_mode),
    )
    arrays = (grad_output,)
    return run("avg_pool.backward", rank, arrays, arguments, layout, backend, sizes)[0]


def _avg_poolNd_jvp(
    rank: int,
    primals: Any,
    tangents: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Any = 1,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `avg_pool2d` for tuples (input,).

    Examples
    --------
    >>> x = np.array([[[3., 7., 7., 1.]]])
    >>> avg_pool1d_jvp((x,), (10 * x,), 2)
    (array([[[5., 4.]]]), array([[[50., 40.]]]))
    """
    arguments = (
        *(count_include_pad, divisor_override),
        *(kernel_size, stride, padding, dilation, ceil_mode),
    )
    input = one("avg_pool.jvp", "primals", primals)
    tangent = one("avg_pool.jvp", "tangents", tangents)
    y = run("avg_pool.fprop", rank, (input,), arguments, layout, backend)
    return *y, *run("avg_pool.jvp", rank, (tangent,), arguments, layout, backend)


def _avg_poolNd_double_backward(
    rank: int,
    grad_grad_input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Any = 1,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the gradient of grad_output through `avg_pool2d_backward`.

    Examples
    --------
    >>> avg_pool1d_double_backward(np.array([[[3., 7., 7., 1.]]]), 2)
    array([[[5., 4.]]])
    """
    arrays = (grad_grad_input,)
    return run(
        "avg_pool.double_backward",
        rank,
        arrays,
        (
            *(count_include_pad, divisor_override),
            *(kernel_size, stride, padding, dilation, ceil_mode),
        ),
        layout,
        backend,
    )[0]


avg_pool1d, avg_pool2d, avg_pool3d = ranked(_avg_poolNd)
avg_pool1d_backward, avg_pool2d_backward, avg_pool3d_backward = ranked(_avg_poolNd_backward)
avg_pool1d_jvp, avg_pool2d_jvp, avg_pool3d_jvp = ranked(_avg_poolNd_jvp)
(
    avg_pool1d_double_backward,
    avg_pool2d_double_backward,
    avg_pool3d_double_backward,
) = ranked(_avg_poolNd_double_backward)
