"""Batch, group, instance and layer norm and their derivatives, as PyTorch calls them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import facts, like
from ..case import role_dtype
from ..dtypes import numpy_dtype
from ..errors import ConvrefError, message
from ..ops import integer
from . import views
from .arguments import flag, pair_of
from .definition import CUDA_FLOAT32, Fields, Image, define
from .generate import names
from .passes import functions
from .trace import needed

_PRIMALS = ("input", "weight", "bias")


@define(view=views.channels, layer="GroupNorm", autocast=CUDA_FLOAT32)
def group_norm(
    input: Image, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Fields:
    """Return `input` (N, C, *spatial) normalised over each image and group of channels.

    Parameters
    ----------
    input : (N, C) or (N, C, *spatial) array
    num_groups : int
        A divisor of C.
    weight, bias : (C,) array, optional
    eps : float
    return_statistics : bool
        Return (output, mean, rstd), the last two (N, num_groups).
    layout, backend
        As in `batch_norm_statistics`.

    Examples
    --------
    >>> group_norm(np.array([[1., 3., 10., 30.]]), 2, eps=0.)
    array([[-1.,  1., -1.,  1.]])
    """
    return {"groups": num_groups, "eps": eps}


group_norm.derivatives(
    backward="""
        >>> x = np.array([[1., 3.]])
        >>> group_norm_backward(np.array([[1., 3.]]), x, 1, eps=0.)[1]
        array([-1.,  3.])
    """,
    jvp="""
        >>> x = np.array([[1., 3.]])
        >>> group_norm_jvp((x, None, None), (x, None, None), 1, eps=0.)[1]
        array([[0., 0.]])
    """,
    double_backward="""
        >>> x = np.array([[1., 3.]])
        >>> group_norm_double_backward(x, None, None, x, x, 1, eps=0.)[0]
        array([[0., 0.]])
    """,
)


@define(view=views.rows, layouts=False, layer="LayerNorm", autocast=CUDA_FLOAT32)
def layer_norm(
    input: Image, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Fields:
    """Return `input` normalised over its last axes, those of `normalized_shape`.

    Parameters
    ----------
    input : array
        Its shape ends in `normalized_shape`.
    normalized_shape : int or tuple of int
    weight, bias : array, optional
        Of shape `normalized_shape`.
    eps : float
    return_statistics : bool
        Return (output, mean, rstd), the last two without the last axes.
    backend
        As in `batch_norm_statistics`.

    Examples
    --------
    >>> layer_norm(np.array([[1., 3.], [10., 30.]]), 2, eps=0.)
    array([[-1.,  1.],
           [-1.,  1.]])
    """
    return {"eps": eps}


layer_norm.derivatives(
    backward="""
        >>> x = np.array([[1., 3.]])
        >>> layer_norm_backward(np.array([[1., 3.]]), x, 2, eps=0.)[1]
        array([-1.,  3.])
    """,
    jvp="""
        >>> x = np.array([[1., 3.]])
        >>> layer_norm_jvp((x, None, None), (x, None, None), 2, eps=0.)[1]
        array([[0., 0.]])
    """,
    double_backward="""
        >>> x = np.array([[1., 3.]])
        >>> layer_norm_double_backward(x, None, None, x, x, 2, eps=0.)[0]
        array([[0., 0.]])
    """,
)


@define(op="batch_norm", view=views.channels)
def norm_of_batch(input: Image, eps: float, momentum: float) -> Fields:
    """Return the fields of batch norm in training."""
    return {"eps": eps, "momentum": momentum}


@define(op="batch_norm_eval", view=views.channels)
def norm_of_running(input: Image, eps: float) -> Fields:
    """Return the fields of batch norm in evaluation."""
    return {"eps": eps}


def instance_norm(
    input: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return `input` normalised over each image and channel: `group_norm` with a group for each.

    Running statistics, which PyTorch's has besides, are those of `batch_norm`.

    Examples
    --------
    >>> instance_norm(np.array([[[1., 3.], [10., 30.]]]), eps=0.)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    groups = _channels("group_norm.fprop", input, layout)
    norm = FUNCTIONS["group_norm"]
    return norm(input, groups, weight, bias, eps, layout=layout, backend=backend)


def batch_norm_statistics(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *,
    num_batches_tracked: int | None = None,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return all that a training pass of batch norm computes; nothing is changed in place.

    Parameters
    ----------
    input : (N, C) or (N, C, *spatial) array
        At least two values per channel.
    running_mean, running_var : (C,) array, optional
        Float32 where `input` has 16 bits.
    weight, bias : (C,) array, optional
    momentum : float or None
        Share of the new statistics in the running ones. None is a cumulative mean, which takes
        `num_batches_tracked`, the batches seen before this one.
    eps : float
        Added to the variance.
    layout : str, optional
        Axis order of input and output: C second, or last ("NHWC").
    backend : str
        A name, "package.module:object", or "auto".

    Returns
    -------
    output, mean, rstd, running_mean, running_var : tuple of arrays
        The first normalised by the biased variance, the last updated by the unbiased one; the two
        running ones are None where none were given.

    Examples
    --------
    >>> x = np.array([[1.], [3.], [5.], [7.]])
    >>> results = batch_norm_statistics(x, np.zeros(1), np.ones(1), momentum=None,
    ...                                 num_batches_tracked=0)
    >>> results[1], results[3]
    (array([4.]), array([4.]))
    """
    where = "batch_norm.fprop"
    rmean, rvar = _running(where, input, running_mean, running_var, layout)
    settings = (eps, _momentum(where, momentum, num_batches_tracked))
    arrays = input, weight, bias, rmean, rvar
    found = norm_of_batch.compute("fprop", arrays, settings, layout, backend)
    return found if running_mean is not None else (*found[:3], None, None)


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *,
    num_batches_tracked: int | None = None,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return `input` normalised per channel, over batch and space.

    In training by its own statistics, as `batch_norm_statistics`, whose running ones PyTorch would
    write into its arguments: here they stay as they are. Else by the running ones, which are then
    needed.

    Examples
    --------
    >>> batch_norm(np.array([[1., 3.]]), np.ones(2), np.full(2, 4.), eps=0.)
    array([[0., 1.]])
    """
    if flag("batch_norm.fprop", "training", training):
        return batch_norm_statistics(
            *(input, running_mean, running_var, weight, bias),
            *(momentum, eps),
            num_batches_tracked=num_batches_tracked,
            layout=layout,
            backend=backend,
        )[0]
    arrays = input, weight, bias, running_mean, running_var
    return norm_of_running.compute("fprop", arrays, (eps,), layout, backend)[0]


def batch_norm_backward(
    grad_output: Any,
    input: Any,
    weight: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    mean: Any = None,
    rstd: Any = None,
    training: bool = True,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `batch_norm`, None where masked off.

    In training `mean` and `rstd` are those that `batch_norm_statistics` returned; without them they
    are found again. In evaluation the running statistics are needed instead.

    Examples
    --------
    >>> x = np.array([[1.], [3.]])
    >>> dx, dw, db = batch_norm_backward(np.array([[1.], [3.]]), x, eps=0.)
    >>> dx.ravel(), dw, db
    (array([0., 0.]), array([2.]), array([4.]))
    """
    arrays: tuple[Any, ...] = (grad_output, input, weight)
    if not flag("batch_norm.backward", "training", training):
        arrays = *arrays, running_mean, running_var
        return norm_of_running.compute(
            "backward", arrays, (eps,), layout, backend, mask=output_mask
        )
    arrays = *arrays, *_statistics(input, mean, rstd, eps, layout, backend)
    return norm_of_batch.compute("backward", arrays, (eps, 0.1), layout, backend, mask=output_mask)


def batch_norm_jvp(
    primals: Any,
    tangents: Any,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = True,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) for tuples (input, weight, bias) with None for absent ones.

    Examples
    --------
    >>> x = np.array([[1.], [3.]])
    >>> batch_norm_jvp((x, None, None), (x, None, None), eps=0.)[1].ravel()
    array([0., 0.])
    """
    op = "batch_norm" if flag("batch_norm.jvp", "training", training) else "batch_norm_eval"
    pair = pair_of(f"{op}.jvp", primals, tangents, _PRIMALS)
    if op == "batch_norm":
        return norm_of_batch.compute("jvp", pair, (eps, 0.1), layout, backend)
    arrays = *pair[:3], running_mean, running_var, *pair[3:]
    return norm_of_running.compute("jvp", arrays, (eps,), layout, backend)


def batch_norm_double_backward(
    grad_grad_input: Any,
    grad_grad_weight: Any,
    grad_grad_bias: Any,
    grad_output: Any,
    input: Any,
    weight: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    mean: Any = None,
    rstd: Any = None,
    training: bool = True,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output, input and weight through `batch_norm_backward`.

    A weight needs grad_grad_weight; without one that is None, as grad_grad_bias may be.

    Examples
    --------
    >>> x = np.array([[1.], [3.]])
    >>> batch_norm_double_backward(x, None, None, x, x, eps=0.)[0].ravel()
    array([0., 0.])
    """
    first = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    training, given = flag("batch_norm.double_backward", "training", training), (layout, backend)
    if not training:
        arrays = *first, running_mean, running_var
        return norm_of_running.compute("double_backward", arrays, (eps,), *given, mask=output_mask)
    arrays = *first, *_statistics(input, mean, rstd, eps, layout, backend)
    return norm_of_batch.compute("double_backward", arrays, (eps, 0.1), *given, mask=output_mask)


def _channels(where: str, input: Any, layout: Any) -> int:
    """Return C, which stands second, or last where `layout` ends in it."""
    shape = facts(where, "input", input).shape
    if len(shape) < 2:
        raise ConvrefError(message(where, f"input has {len(shape)} axes, needs 2 to 5"))
    last = isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")
    return shape[-1 if last else 1]


def _running(where: str, input: Any, mean: Any, var: Any, layout: Any) -> tuple[Any, Any]:
    """Return running statistics, zeros where there are none: a training pass updates some."""
    if (mean is None) != (var is None):
        missing = "running_mean" if mean is None else "running_var"
        raise ConvrefError(message(where, f"{missing} is None, needs an array as the other has"))
    if mean is not None:
        return mean, var
    dtype = role_dtype("rmean", facts(where, "input", input).dtype)
    zeros = np.zeros(_channels(where, input, layout), numpy_dtype(dtype))
    return like(zeros, input), like(zeros, input)


def _momentum(where: str, momentum: Any, batches: Any) -> Any:
    """Return the share of a new batch: that of a cumulative mean where there is no momentum."""
    if momentum is not None:
        return momentum
    if batches is None:
        what = "momentum is None, needs num_batches_tracked: batches seen so far"
        raise ConvrefError(message(where, what))
    count = integer(where, "num_batches_tracked", batches)
    if count < 0:
        raise ConvrefError(message(where, f"num_batches_tracked is {count}, needs at least 0"))
    return 1 / (count + 1)


def _statistics(
    x: Any, mean: Any, rstd: Any, eps: Any, layout: Any, backend: Any
) -> tuple[Any, Any]:
    """Return the statistics that were kept, else compute them again."""
    if mean is not None and rstd is not None:
        return mean, rstd
    arrays = x, None, None, *_running("batch_norm.fprop", x, None, None, layout)
    _, mean, rstd, *_ = norm_of_batch.compute("fprop", arrays, (eps, 0.1), layout, needed(backend))
    return mean, rstd


DEFINITIONS = (group_norm, layer_norm)
FUNCTIONS = {
    **functions(*DEFINITIONS),
    **names((instance_norm, batch_norm, batch_norm_statistics, batch_norm_backward)),
    **names((batch_norm_jvp, batch_norm_double_backward)),
}
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
