"""Batch, group, instance and layer norm and their derivatives, as PyTorch calls them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any

import numpy as np

from ..arrays import facts, like
from ..case import role_dtype
from ..dtypes import numpy_dtype
from ..errors import invalid
from ..ops import integer
from ..ops.sizes import real
from . import views
from .arguments import flag, pair_of
from .definition import CUDA_FLOAT32, Fields, Image, define
from .docs import docstring, entries
from .generate import documented, function, names, parameters
from .passes import functions
from .trace import needed


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
    return_statistics : bool
        Return (output, mean, rstd), the last two (N, num_groups).

    >>> group_norm(np.array([[1., 3., 10., 30.]]), 2, eps=0.)
    array([[-1.,  1., -1.,  1.]])
    """
    return {"groups": num_groups, "eps": eps}


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
    return_statistics : bool
        Return (output, mean, rstd), the last two without the last axes.

    >>> layer_norm(np.array([[1., 3.], [10., 30.]]), 2, eps=0.)
    array([[-1.,  1.],
           [-1.,  1.]])
    """
    return {"eps": eps}


for _norm, _size in ((group_norm, 1), (layer_norm, 2)):
    _norm.derivatives(
        backward=f"""
            >>> x = np.array([[1., 3.]])
            >>> {_norm.name}_backward(np.array([[1., 3.]]), x, {_size}, eps=0.)[1]
            array([-1.,  3.])
        """,
        jvp=f"""
            >>> x = np.array([[1., 3.]])
            >>> {_norm.name}_jvp((x, None, None), (x, None, None), {_size}, eps=0.)[1]
            array([[0., 0.]])
        """,
        double_backward=f"""
            >>> x = np.array([[1., 3.]])
            >>> {_norm.name}_double_backward(x, None, None, x, x, {_size}, eps=0.)[0]
            array([[0., 0.]])
        """,
    )


@define(view=views.rows, layouts=False, layer="RMSNorm", autocast=CUDA_FLOAT32)
def rms_norm(
    input: Image, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Fields:
    """Return `input` over the root of the mean square over its last axes.

    Parameters
    ----------
    input : array
        Its shape ends in `normalized_shape`.
    normalized_shape : int or tuple of int
    weight : array, optional
        Of shape `normalized_shape`.
    eps : float, optional
        By default 2**-52 for float64 and 2**-23 for narrower types, as PyTorch computes them.
    return_statistics : bool
        Return (output, rstd), the last without the last axes.

    >>> rms_norm(np.array([[1., 7.], [-5., 5.]]), 2, eps=0.)
    array([[ 0.2,  1.4],
           [-1. ,  1. ]])
    """
    return {"eps": eps}


rms_norm.derivatives(
    backward="""
        >>> x = np.array([[1., 7.]])
        >>> rms_norm_backward(x, x, 2, eps=0.)[1]
        array([0.2, 9.8])
    """,
    jvp="""
        >>> x = np.array([[1., -1.]])
        >>> rms_norm_jvp((x, None), (x, None), 2, eps=0.)[1]
        array([[0., 0.]])
    """,
    double_backward="""
        >>> x = np.array([[1., -1.]])
        >>> rms_norm_double_backward(x, None, x, x, 2, eps=0.)[0]
        array([[0., 0.]])
    """,
)


@define(op="batch_norm", view=views.channels)
def norm_of_batch(input: Image, eps: float, momentum: float) -> None:
    """Return the fields of batch norm in training."""


@define(op="batch_norm_eval", view=views.channels)
def norm_of_running(input: Image, eps: float) -> None:
    """Return the fields of batch norm in evaluation."""


def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return `input` normalised over each image and channel, or by running statistics.

    With `use_input_stats` this is `group_norm` with a group for each channel, else `batch_norm` in
    evaluation. PyTorch writes new running statistics into its arguments; here they stay as they
    are, so that `momentum` changes nothing.

    Parameters
    ----------
    input : (N, C) or (N, C, *spatial) array
    use_input_stats : bool
        Whether to normalise by the statistics of the input or by the running ones.
    momentum : float
        Any finite number.

    >>> instance_norm(np.array([[[1., 3.], [10., 30.]]]), eps=0.)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    where, running = "instance_norm.fprop", (running_mean, running_var)
    real(where, "momentum", momentum)
    if not flag(where, "use_input_stats", use_input_stats):
        operands = input, weight, bias, *running
        return norm_of_running.compute("fprop", operands, (eps,), layout, backend)[0]
    channels = _channels(where, input, layout)
    for name, given in zip(("running_mean", "running_var"), running):
        shape = (channels,) if given is None else facts(where, name, given).shape
        if shape != (channels,):
            raise invalid(where, f"{name} has shape {shape}, needs ({channels},)")
    norm = FUNCTIONS["group_norm"]
    return norm(input, channels, weight, bias, eps, layout=layout, backend=backend)


def _statistics(
    input: Any, affine: Any, running: tuple[Any, Any], eps: Any, share: Any, *given: Any
) -> tuple[Any, ...]:
    """Return all that a training pass computes; `share` is (momentum, num_batches_tracked)."""
    where, (mean, var), layout = "batch_norm.fprop", running, given[0]
    arrays = input, *affine, *_running(where, input, mean, var, layout)
    found = norm_of_batch.compute("fprop", arrays, (eps, _momentum(where, *share)), *given)
    return found if running[0] is not None else (*found[:3], None, None)


def _forward(
    input: Any, affine: Any, running: Any, eps: Any, share: Any, training: Any, *given: Any
) -> Any:
    if flag("batch_norm.fprop", "training", training):
        return _statistics(input, affine, running, eps, share, *given)[0]
    return norm_of_running.compute("fprop", (input, *affine, *running), (eps,), *given)[0]


def _derivative(
    pass_: str,
    arrays: tuple[Any, ...],
    running: tuple[Any, Any],
    kept: tuple[Any, Any],
    training: Any,
    eps: Any,
    layout: Any,
    backend: Any,
    mask: Any,
) -> tuple[Any, ...]:
    """Return the gradients; `kept` is (mean, rstd) of the batch, computed again if one is None."""
    if not flag(f"batch_norm.{pass_}", "training", training):
        return norm_of_running.compute(pass_, (*arrays, *running), (eps,), layout, backend, mask)
    if any(a is None for a in kept):
        _, *found = _statistics(
            arrays[-2], (None, None), (None, None), eps, (0.1, None), layout, needed(backend)
        )
        kept = found[0], found[1]
    return norm_of_batch.compute(pass_, (*arrays, *kept), (eps, 0.1), layout, backend, mask)


def _jvp(
    primals: Any, tangents: Any, running: Any, training: Any, eps: Any, *given: Any
) -> tuple[Any, ...]:
    """Return y and y_dot."""
    in_training = flag("batch_norm.jvp", "training", training)
    op = "batch_norm" if in_training else "batch_norm_eval"
    pair = pair_of(f"{op}.jvp", primals, tangents, ("input", "weight", "bias"))
    if in_training:
        return norm_of_batch.compute("jvp", pair, (eps, 0.1), *given)
    return norm_of_running.compute("jvp", (*pair[:3], *running, *pair[3:]), (eps,), *given)


def _channels(where: str, input: Any, layout: Any) -> int:
    """Return C, the second axis, or the last one where `layout` ends in C."""
    shape = facts(where, "input", input).shape
    if tuple(shape) == (0,):
        return 0
    if len(shape) < 2:
        raise invalid(where, f"input has {len(shape)} axes, needs 2 to 5")
    last = isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")
    return shape[-1 if last else 1]


def _running(where: str, input: Any, mean: Any, var: Any, layout: Any) -> tuple[Any, Any]:
    """Return running statistics, zeros where there are none: a training pass updates some."""
    if (mean is None) != (var is None):
        missing = "running_mean" if mean is None else "running_var"
        raise invalid(where, f"{missing} is None, needs an array as the other has")
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
        raise invalid(where, what)
    count = integer(where, "num_batches_tracked", batches)
    if count < 0:
        raise invalid(where, f"num_batches_tracked is {count}, needs at least 0")
    return 1 / (count + 1)


def _made(name: str, signature: str, body: Callable[..., Any], call: str, text: str) -> Any:
    listed = parameters(signature)
    doc = docstring(text, name, listed, known=_ENTRIES)
    returns = "Any" if body is _forward else "tuple[Any, ...]"
    return function(name, listed, call, body, doc=doc, returns=returns, module=globals())


_ENTRIES = entries(
    cleandoc("""
    input : (N, C) or (N, C, *spatial) array
        At least two values per channel.
    running_mean, running_var : (C,) array, optional
        Float32 where `input` has 16 bits.
    training : bool
        Whether to normalise by the statistics of the batch or by the running ones.
    momentum : float or None
        Share of the new statistics in the running ones. None is a cumulative mean, which takes
        `num_batches_tracked`.
    num_batches_tracked : int, optional
        The batches seen before this one.
    """)
)
_STATE = "running_mean=None, running_var=None"
_OPTIONS = "layout=None, backend='auto'"
_GIVEN = "(running_mean, running_var), (mean, rstd), training, eps, layout, backend, output_mask"
_ROWS = (
    (
        "batch_norm_statistics",
        f"input, {_STATE}, weight=None, bias=None, momentum=0.1, eps=1e-5, *, "
        f"num_batches_tracked=None, {_OPTIONS}",
        _statistics,
        "input, (weight, bias), (running_mean, running_var), eps, "
        "(momentum, num_batches_tracked), layout, backend",
        """
        Return all that a training pass of batch norm computes; nothing is changed in place.

        Returns
        -------
        output, mean, rstd, running_mean, running_var : tuple of arrays
            The first normalised by the biased variance, the last updated by the unbiased one; the
            two running ones are None where none were given.

        >>> x = np.array([[1.], [3.], [5.], [7.]])
        >>> results = batch_norm_statistics(x, np.zeros(1), np.ones(1), momentum=None,
        ...                                 num_batches_tracked=0)
        >>> results[1], results[3]
        (array([4.]), array([4.]))
        """,
    ),
    (
        "batch_norm",
        "input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, "
        f"eps=1e-5, *, num_batches_tracked=None, {_OPTIONS}",
        _forward,
        "input, (weight, bias), (running_mean, running_var), eps, "
        "(momentum, num_batches_tracked), training, layout, backend",
        """
        Return `input` normalised per channel, over batch and space.

        PyTorch writes new running statistics into its arguments; here they stay as they are, and
        `batch_norm_statistics` returns the new ones. In evaluation they are required.

        >>> batch_norm(np.array([[1., 3.]]), np.ones(2), np.full(2, 4.), eps=0.)
        array([[0., 1.]])
        """,
    ),
    (
        "batch_norm_backward",
        f"grad_output, input, weight=None, {_STATE}, mean=None, rstd=None, training=True, "
        f"eps=1e-5, output_mask=(True, True, True), *, {_OPTIONS}",
        _derivative,
        f"'backward', (grad_output, input, weight), {_GIVEN}",
        """
        Return (grad_input, grad_weight, grad_bias) of `batch_norm`, None where masked off.

        In training `mean` and `rstd` are those that `batch_norm_statistics` returned. In
        evaluation the running statistics are required instead.

        >>> x = np.array([[1.], [3.]])
        >>> dx, dw, db = batch_norm_backward(np.array([[1.], [3.]]), x, eps=0.)
        >>> dx.ravel(), dw, db
        (array([0., 0.]), array([2.]), array([4.]))
        """,
    ),
    (
        "batch_norm_jvp",
        f"primals, tangents, {_STATE}, training=True, eps=1e-5, *, {_OPTIONS}",
        _jvp,
        "primals, tangents, (running_mean, running_var), training, eps, layout, backend",
        """
        Return (output, output tangent) for tuples (input, weight, bias) with None for absent ones.

        >>> x = np.array([[1.], [3.]])
        >>> batch_norm_jvp((x, None, None), (x, None, None), eps=0.)[1].ravel()
        array([0., 0.])
        """,
    ),
    (
        "batch_norm_double_backward",
        "grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight=None, "
        f"{_STATE}, mean=None, rstd=None, training=True, eps=1e-5, "
        f"output_mask=(True, True, True), *, {_OPTIONS}",
        _derivative,
        "'double_backward', (grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, "
        f"input, weight), {_GIVEN}",
        """
        Return the gradients of grad_output, input and weight through `batch_norm_backward`.

        A weight requires grad_grad_weight; without one that is None, as grad_grad_bias may be.

        >>> x = np.array([[1.], [3.]])
        >>> batch_norm_double_backward(x, None, None, x, x, eps=0.)[0].ravel()
        array([0., 0.])
        """,
    ),
)
DEFINITIONS = (group_norm, layer_norm, rms_norm)
FUNCTIONS = {
    **functions(*DEFINITIONS),
    **names(documented(instance_norm, known=_ENTRIES)),
    **names(_made(*row) for row in _ROWS),
}
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
