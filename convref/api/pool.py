"""Pooling of rank 1 to 3, sliding, adaptive and global, with PyTorch's argument names and order."""

from __future__ import annotations

from typing import Any

from ..errors import invalid
from ..ops import RANKS, integer, integers, items
from .arguments import flag, windows
from .definition import Fields, Image, define
from .generate.passes import functions


def _sliding(
    input: Image, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> Fields:
    """Return the geometry of sliding windows; the default stride is the size of a window."""
    stride = kernel_size if stride is None or items(stride) == [] else stride
    found = windows(input.where, input.space, kernel_size, stride, padding, dilation)
    return {**found, "ceil": flag(input.where, "ceil_mode", ceil_mode)}


@define(RANKS, layer="MaxPool")
def max_pool(
    input: Image,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Fields:
    """Return the maximum of each window of `input`.

    The first maximum in row-major order wins a tie; NaN wins over all, and the last NaN gives the
    index. Padding is not read: a window in padding alone gives -inf (integers: the minimum) and
    index -1.

    Returns
    -------
    (N, C, *output) array, or a tuple of it and the indices

    Notes
    -----
    Formulas P.2 and P.3 and every edge rule: docs/pool.md.

    >>> max_pool2d(np.array([[[[1., 5.], [5., 2.]]]]), 2, return_indices=True)
    (array([[[[5.]]]]), array([[[[1]]]]))
    """
    return _sliding(input, kernel_size, stride, padding, dilation, ceil_mode)


max_pool.derivatives(
    backward="""
        Return grad_input of `max_pool2d`: each cotangent goes to its maximum.

        An index of -1 passes nothing on.

        >>> x = np.array([[[3., 7., 7., 1.]]])
        >>> max_pool1d_backward(np.array([[[1., 10.]]]), x, 3, 1)
        array([[[ 0., 11.,  0.,  0.]]])
    """,
    jvp="""
        >>> x = np.array([[[3., 7., 7., 1.]]])
        >>> max_pool1d_jvp((x,), (10 * x,), 2)
        (array([[[7., 7.]]]), array([[[70., 70.]]]))
    """,
    double_backward="""
        >>> x = np.array([[[3., 7., 7., 1.]]])
        >>> max_pool1d_double_backward(10 * x, x, 2)
        array([[[70., 70.]]])
    """,
)


@define(RANKS, layer="MaxUnpool")
def max_unpool(
    input: Image,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Fields:
    """Return an image with each element of `input` at its index, and zeros elsewhere.

    Parameters
    ----------
    indices : array of int64, shaped as `input`
        As `max_pool2d` returns them; -1 is dropped. Of several with one index the last stays.
    kernel_size, stride, padding
        Those of the pool: (size - 1) * stride - 2 * padding + kernel is the usual output size.
    output_size : tuple of int, optional
        Spatial sizes, less than a stride from the usual ones; N and C may precede them.

    Returns
    -------
    (N, C, *output) array

    >>> max_unpool1d(np.array([[[7., 9.]]]), np.array([[[1, 2]]]), 2)
    array([[[0., 7., 9., 0.]]])
    """
    where, rank = input.where, len(input.space)
    kernel = integers(where, "kernel_size", kernel_size, rank)
    steps = integers(where, "stride", kernel_size if stride is None else stride, rank)
    pads = integers(where, "padding", padding, rank)
    usual = tuple((i - 1) * s - 2 * p + k for i, s, p, k in zip(input.space, steps, pads, kernel))
    if output_size is None:
        return {"output": usual}
    listed = items(output_size)
    listed = [output_size] * rank if listed is None else listed
    output = integers(where, "output_size", listed[2:] if len(listed) == rank + 2 else listed, rank)
    for axis, size, expected, step in zip(RANKS[rank], output, usual, steps):
        if not expected - step < size < expected + step:
            what = f"output_size {axis} is {size}, needs {expected - step + 1} to "
            raise invalid(where, f"{what}{expected + step - 1}")
    return {"output": output}


max_unpool.derivatives(
    backward="""
        Return grad_input of `max_unpool2d`: the cotangent at each index, 0 if overwritten.

        >>> x, at = np.array([[[7., 9.]]]), np.array([[[1, 2]]])
        >>> max_unpool1d_backward(np.array([[[1., 2., 3., 4.]]]), x, at, 2)
        array([[[2., 3.]]])
    """,
    jvp="""
        >>> x, at = np.array([[[7., 9.]]]), np.array([[[1, 2]]])
        >>> max_unpool1d_jvp((x,), (10 * x,), at, 2)
        (array([[[0., 7., 9., 0.]]]), array([[[ 0., 70., 90.,  0.]]]))
    """,
    double_backward="""
        Return the gradient of grad_output through `max_unpool2d_backward`: the forward pass again.

        >>> max_unpool1d_double_backward(np.array([[[7., 9.]]]), np.array([[[1, 2]]]), 2)
        array([[[0., 7., 9., 0.]]])
    """,
)


@define(RANKS, layer="AvgPool")
def avg_pool(
    input: Image,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Any = 1,
) -> Fields:
    """Return the mean of each window of `input`.

    Parameters
    ----------
    count_include_pad : bool
        Whether padding counts in the divisor; taps beyond it, which ceil_mode allows, never do.
    divisor_override : int, optional
        Divide by this instead, not 0.
    dilation : int or tuple of int
        In elements, at least 1; PyTorch has none here.

    Returns
    -------
    (N, C, *output) array
        Means of integers are cut toward zero. 0 where a window reads nothing.

    >>> avg_pool2d(np.array([[[[1., 5.], [4., 2.]]]]), 2)
    array([[[[3.]]]])
    """
    where = input.where
    if divisor_override is not None and not integer(where, "divisor_override", divisor_override):
        raise invalid(where, "divisor_override is 0, needs a non-zero integer or None")
    return {
        "include_pad": flag(where, "count_include_pad", count_include_pad),
        "divisor": divisor_override or 0,
        **_sliding(input, kernel_size, stride, padding, dilation, ceil_mode),
    }


avg_pool.derivatives(
    backward="""
        Return grad_input of `avg_pool2d`: each cotangent spread over its window.

        >>> avg_pool1d_backward(np.ones((1, 1, 2)), np.ones((1, 1, 4)), 2)
        array([[[0.5, 0.5, 0.5, 0.5]]])
    """,
    jvp="""
        >>> x = np.array([[[3., 7., 7., 1.]]])
        >>> avg_pool1d_jvp((x,), (10 * x,), 2)
        (array([[[5., 4.]]]), array([[[50., 40.]]]))
    """,
    double_backward="""
        >>> avg_pool1d_double_backward(np.array([[[3., 7., 7., 1.]]]), 2)
        array([[[5., 4.]]])
    """,
)


@define(RANKS, layer="LPPool")
def lp_pool(
    input: Image,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
    *,
    padding: Any = 0,
    dilation: Any = 1,
) -> Fields:
    """Return the p-norm of each window of `input`, ``(sum |x|^p)^(1/p)``.

    Parameters
    ----------
    input : (N, C, *spatial) array, or without N
        Real.
    norm_type : float
        The p, at least 1; integers and Fractions take only 1.

    Returns
    -------
    (N, C, *output) array

    Notes
    -----
    Absolute values, as in ONNX. PyTorch sums powers of the signed values, which is not a norm for
    an odd p, has no padding and no dilation, and with ceil_mode scales a cut window as if it were
    whole.

    >>> lp_pool1d(np.array([[[3., -4., 0.]]]), 2, 2, 1)
    array([[[5., 4.]]])
    """
    return {"norm": norm_type, **_sliding(input, kernel_size, stride, padding, dilation, ceil_mode)}


lp_pool.derivatives(
    backward="""
        Return grad_input of `lp_pool2d`; 0 for a window whose norm is 0.

        >>> lp_pool1d_backward(np.array([[[10.]]]), np.array([[[3., -4.]]]), 2, 2)
        array([[[ 6., -8.]]])
    """,
    jvp="""
        >>> lp_pool1d_jvp((np.array([[[3., -4.]]]),), (np.array([[[5., 0.]]]),), 2, 2)
        (array([[[5.]]]), array([[[3.]]]))
    """,
    double_backward="""
        >>> x, one = np.array([[[3., 4.]]]), np.ones((1, 1, 1))
        >>> lp_pool1d_double_backward(x, one, x, 2, 2)
        (array([[[5.]]]), array([[[0., 0.]]]))
    """,
)


def _output(input: Image, output_size: Any) -> Fields:
    """Return the sizes of an adaptive pool's output; None keeps the input's."""
    listed = items(output_size)
    listed = [output_size] * len(input.space) if listed is None else listed
    if len(listed) == len(input.space):
        listed = [size if out is None else out for size, out in zip(input.space, listed)]
    return {"output": integers(input.where, "output_size", listed, len(input.space))}


@define(RANKS, layer="AdaptiveMaxPool")
def adaptive_max_pool(input: Image, output_size: Any) -> Fields:
    """Return the maximum of each window, with windows cut so that the output has a given size.

    Window p of P over an axis of W elements reads from floor(p W / P) up to ceil((p + 1) W / P).

    Returns
    -------
    (N, C, *output_size) array, or a tuple of it and the indices

    >>> adaptive_max_pool1d(np.array([[[1., 5., 2., 3., 4.]]]), 2)
    array([[[5., 4.]]])
    """
    return _output(input, output_size)


adaptive_max_pool.derivatives(
    backward="""
        Return grad_input of `adaptive_max_pool2d`: each cotangent goes to its maximum.

        An index of -1 passes nothing on.

        >>> x = np.array([[[1., 5., 2.]]])
        >>> adaptive_max_pool1d_backward(np.array([[[1., 10.]]]), x, 2)
        array([[[ 0., 11.,  0.]]])
    """,
    jvp="""
        >>> x = np.array([[[1., 5., 2., 3.]]])
        >>> adaptive_max_pool1d_jvp((x,), (10 * x,), 2)
        (array([[[5., 3.]]]), array([[[50., 30.]]]))
    """,
    double_backward="""
        >>> x = np.array([[[1., 5., 2., 3.]]])
        >>> adaptive_max_pool1d_double_backward(10 * x, x, 2)
        array([[[50., 30.]]])
    """,
)


@define(RANKS, layer="AdaptiveAvgPool")
def adaptive_avg_pool(input: Image, output_size: Any) -> Fields:
    """Return the mean of each window, with windows as in `adaptive_max_pool2d`.

    Returns
    -------
    (N, C, *output_size) array

    >>> adaptive_avg_pool1d(np.array([[[1., 5., 2., 3., 4.]]]), 2)
    array([[[2.66666667, 3.        ]]])
    """
    return _output(input, output_size)


adaptive_avg_pool.derivatives(
    backward="""
        Return grad_input of `adaptive_avg_pool2d`: each cotangent spread over its window.

        >>> adaptive_avg_pool1d_backward(np.ones((1, 1, 2)), np.ones((1, 1, 3)), 2)
        array([[[0.5, 1. , 0.5]]])
    """,
    jvp="""
        >>> x = np.array([[[1., 5., 2., 3.]]])
        >>> adaptive_avg_pool1d_jvp((x,), (10 * x,), 2)
        (array([[[3. , 2.5]]]), array([[[30., 25.]]]))
    """,
    double_backward="""
        >>> adaptive_avg_pool1d_double_backward(np.array([[[1., 5., 2., 3.]]]), 2)
        array([[[3. , 2.5]]])
    """,
)


@define(op="adaptive_max_pool")
def global_max_pool(input: Image) -> Fields:
    """Return the maximum of each channel (N, C, 1, ...): `adaptive_max_pool2d` to size 1.

    Parameters
    ----------
    input : (N, C, *spatial) array

    >>> global_max_pool(np.arange(12.).reshape(1, 2, 2, 3))
    array([[[[ 5.]],
    <BLANKLINE>
            [[11.]]]])
    """
    return _output(input, 1)


global_max_pool.derivatives(
    backward="""
        >>> global_max_pool_backward(np.array([[[5.]]]), np.array([[[3., 4.]]]))
        array([[[0., 5.]]])
    """,
    jvp="""
        >>> x = np.array([[[3., 4.]]])
        >>> global_max_pool_jvp((x,), (10 * x,))
        (array([[[4.]]]), array([[[40.]]]))
    """,
    double_backward="""
        >>> x = np.array([[[3., 4.]]])
        >>> global_max_pool_double_backward(10 * x, x)
        array([[[40.]]])
    """,
)


@define(op="adaptive_avg_pool")
def global_avg_pool(input: Image) -> Fields:
    """Return the mean of each channel (N, C, 1, ...): `adaptive_avg_pool2d` to size 1.

    Parameters
    ----------
    input : (N, C, *spatial) array

    >>> global_avg_pool(np.arange(6.).reshape(1, 2, 3))
    array([[[1.],
            [4.]]])
    """
    return _output(input, 1)


global_avg_pool.derivatives(
    backward="""
        >>> global_avg_pool_backward(np.array([[[5.]]]), np.array([[[3., 4.]]]))
        array([[[2.5, 2.5]]])
    """,
    jvp="""
        >>> x = np.array([[[3., 4.]]])
        >>> global_avg_pool_jvp((x,), (10 * x,))
        (array([[[3.5]]]), array([[[35.]]]))
    """,
    double_backward="""
        >>> global_avg_pool_double_backward(np.array([[[3., 4.]]]))
        array([[[3.5]]])
    """,
)


@define(op="lp_pool")
def global_lp_pool(input: Image, norm_type: float = 2.0) -> Fields:
    """Return the p-norm of each channel (N, C, 1, ...): `lp_pool2d` of a window over all of it.

    Parameters
    ----------
    input : (N, C, *spatial) array
        Real.
    norm_type : float
        The p, at least 1; integers and Fractions take only 1.

    >>> global_lp_pool(np.array([[[3., 4.]]]))
    array([[[5.]]])
    """
    return {"norm": norm_type, **_sliding(input, input.space, None, 0, 1, False)}


global_lp_pool.derivatives(
    backward="""
        >>> global_lp_pool_backward(np.array([[[10.]]]), np.array([[[3., -4.]]]))
        array([[[ 6., -8.]]])
    """,
    jvp="""
        >>> global_lp_pool_jvp((np.array([[[3., -4.]]]),), (np.array([[[5., 0.]]]),))
        (array([[[5.]]]), array([[[3.]]]))
    """,
    double_backward="""
        >>> x, one = np.array([[[3., 4.]]]), np.ones((1, 1, 1))
        >>> global_lp_pool_double_backward(x, one, x)
        (array([[[5.]]]), array([[[0., 0.]]]))
    """,
)

DEFINITIONS = (max_pool, max_unpool, avg_pool, lp_pool, adaptive_max_pool, adaptive_avg_pool)
FUNCTIONS = functions(*DEFINITIONS, global_max_pool, global_avg_pool, global_lp_pool)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
