"""Max pooling, its inverse, and the derivatives of both."""

from __future__ import annotations

from typing import Any

from .._arguments import flag
from .._images import one, ranked, shape_of
from ._problems import indices_of, run


def _max_poolNd(
    rank: int,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the maximum of each window of `input`.

    The first maximum in row-major order wins a tie; NaN wins over all, and the last NaN gives the
    index. Padding is absence: a window that reads nothing gives -inf (integers: the minimum) and
    index -1.

    Parameters
    ----------
    input : (N, C, *spatial) array, or without N
        NumPy array or torch tensor, any strides.
    kernel_size, stride, dilation : int or tuple of int
        In elements, at least 1; the stride is the kernel size unless given.
    padding : int, tuple of int, (lo, hi) pairs or str
        As in `conv2d`; may exceed the kernel.
    ceil_mode : bool
        Round the output size up; the last window starts inside the input or the low padding.
    return_indices : bool
        Return (output, indices): flat positions in the image of a channel, int64.
    layout : str, optional
        Axis order of input and output: N, C first, or C last ("NHWC").
    backend : str
        A name, "package.module:object", or "auto".

    Returns
    -------
    (N, C, *output) array, or a tuple of it and the indices

    Raises
    ------
    ConvrefError
        If an argument is wrong; the text names it, what it is and what it needs.
    UnsupportedError
        If the named backend cannot do this call; with its reason.

    Notes
    -----
    Formulas P.2 and P.3 and every edge rule: docs/pool.md.

    Examples
    --------
    >>> max_pool2d(np.array([[[[1., 5.], [5., 2.]]]]), 2, return_indices=True)
    (array([[[[5.]]]]), array([[[[1]]]]))
    """
    results = run(
        "max_pool.fprop",
        rank,
        (input,),
        (kernel_size, stride, padding, dilation, ceil_mode),
        layout,
        backend,
    )
    return results if flag("max_pool.fprop", "return_indices", return_indices) else results[0]


def _max_poolNd_backward(
    rank: int,
    grad_output: Any,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    indices: Any = None,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return grad_input of `max_pool2d`: each cotangent goes to its maximum.

    `indices` are those of the forward pass; without them they are found again. An index of -1
    passes nothing on. Other arguments as in `max_pool2d`.

    Examples
    --------
    >>> x = np.array([[[3., 7., 7., 1.]]])
    >>> max_pool1d_backward(np.array([[[1., 10.]]]), x, 3, 1)
    array([[[ 0., 11.,  0.,  0.]]])
    """
    arguments = (kernel_size, stride, padding, dilation, ceil_mode)
    indices = indices_of("max_pool", rank, input, indices, arguments, layout, backend)
    arrays = grad_output, input, indices
    return run("max_pool.backward", rank, arrays, arguments, layout, backend)[0]


def _max_poolNd_jvp(
    rank: int,
    primals: Any,
    tangents: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `max_pool2d` for tuples (input,).

    Examples
    --------
    >>> x = np.array([[[3., 7., 7., 1.]]])
    >>> max_pool1d_jvp((x,), (10 * x,), 2)
    (array([[[7., 7.]]]), array([[[70., 70.]]]))
    """
    arrays = one("max_pool.jvp", "primals", primals), one("max_pool.jvp", "tangents", tangents)
    return run(
        "max_pool.jvp",
        rank,
        arrays,
        (kernel_size, stride, padding, dilation, ceil_mode),
        layout,
        backend,
    )


def _max_poolNd_double_backward(
    rank: int,
    grad_grad_input: Any,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    indices: Any = None,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the gradient of grad_output through `max_pool2d_backward`.

    Examples
    --------
    >>> x = np.array([[[3., 7., 7., 1.]]])
    >>> max_pool1d_double_backward(10 * x, x, 2)
    array([[[70., 70.]]])
    """
    arguments = (kernel_size, stride, padding, dilation, ceil_mode)
    indices = indices_of("max_pool", rank, input, indices, arguments, layout, backend)
    arrays = grad_grad_input, input, indices
    return run("max_pool.double_backward", rank, arrays, arguments, layout, backend)[0]


def _max_unpoolNd(
    rank: int,
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return an image with each element of `input` at its index, and zeros elsewhere.

    Parameters
    ----------
    input : (N, C, *spatial) array, or without N
    indices : array of int64, shaped as `input`
        As `max_pool2d` returns them; -1 is dropped. Of several with one index the last stays.
    kernel_size, stride, padding
        Those of the pool: (size - 1) * stride - 2 * padding + kernel is the usual output size.
    output_size : tuple of int, optional
        Spatial sizes, less than a stride from the usual ones; N and C may stand before them.
    layout, backend
        As in `max_pool2d`.

    Returns
    -------
    (N, C, *output) array

    Examples
    --------
    >>> max_unpool1d(np.array([[[7., 9.]]]), np.array([[[1, 2]]]), 2)
    array([[[0., 7., 9., 0.]]])
    """
    arrays = input, indices
    return run(
        "max_unpool.fprop",
        rank,
        arrays,
        (kernel_size, stride, padding, output_size),
        layout,
        backend,
    )[0]


def _max_unpoolNd_backward(
    rank: int,
    grad_output: Any,
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return grad_input of `max_unpool2d`: the cotangent at each index, 0 for what was overwritten.

    Of `input` only the shape is needed. Other arguments as in `max_unpool2d`.

    Examples
    --------
    >>> x, at = np.array([[[7., 9.]]]), np.array([[[1, 2]]])
    >>> max_unpool1d_backward(np.array([[[1., 2., 3., 4.]]]), x, at, 2)
    array([[[2., 3.]]])
    """
    sizes = shape_of("max_unpool.backward", input)
    arrays = grad_output, indices
    return run(
        "max_unpool.backward",
        rank,
        arrays,
        (kernel_size, stride, padding, output_size),
        layout,
        backend,
        sizes,
    )[0]


def _max_unpoolNd_jvp(
    rank: int,
    primals: Any,
    tangents: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `max_unpool2d`; primals and tangents are tuples (input,).

    Examples
    --------
    >>> x, at = np.array([[[7., 9.]]]), np.array([[[1, 2]]])
    >>> max_unpool1d_jvp((x,), (10 * x,), at, 2)
    (array([[[0., 7., 9., 0.]]]), array([[[ 0., 70., 90.,  0.]]]))
    """
    arguments = (kernel_size, stride, padding, output_size)
    arrays = one("max_unpool.jvp", "primals", primals), indices
    moved = one("max_unpool.jvp", "tangents", tangents), indices
    y = run("max_unpool.fprop", rank, arrays, arguments, layout, backend)
    return *y, *run("max_unpool.jvp", rank, moved, arguments, layout, backend)


def _max_unpoolNd_double_backward(
    rank: int,
    grad_grad_input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return the gradient of grad_output through `max_unpool2d_backward`: the forward pass again.

    Examples
    --------
    >>> max_unpool1d_double_backward(np.array([[[7., 9.]]]), np.array([[[1, 2]]]), 2)
    array([[[0., 7., 9., 0.]]])
    """
    arrays = grad_grad_input, indices
    return run(
        "max_unpool.double_backward",
        rank,
        arrays,
        (kernel_size, stride, padding, output_size),
        layout,
        backend,
    )[0]


max_pool1d, max_pool2d, max_pool3d = ranked(_max_poolNd)
max_pool1d_backward, max_pool2d_backward, max_pool3d_backward = ranked(_max_poolNd_backward)
max_pool1d_jvp, max_pool2d_jvp, max_pool3d_jvp = ranked(_max_poolNd_jvp)
(
    max_pool1d_double_backward,
    max_pool2d_double_backward,
    max_pool3d_double_backward,
) = ranked(_max_poolNd_double_backward)
max_unpool1d, max_unpool2d, max_unpool3d = ranked(_max_unpoolNd)
max_unpool1d_backward, max_unpool2d_backward, max_unpool3d_backward = ranked(_max_unpoolNd_backward)
max_unpool1d_jvp, max_unpool2d_jvp, max_unpool3d_jvp = ranked(_max_unpoolNd_jvp)
(
    max_unpool1d_double_backward,
    max_unpool2d_double_backward,
    max_unpool3d_double_backward,
) = ranked(_max_unpoolNd_double_backward)
