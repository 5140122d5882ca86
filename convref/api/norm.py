"""Batch, group, instance and layer norm and their derivatives, as PyTorch calls them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from inspect import cleandoc
from typing import Any

from ..arrays import facts
from ..errors import invalid
from ..ops.sizes import real
from . import views
from .arguments import channels_of, flag, momentum_of, pair_of, running_of
from .definition import CUDA_FLOAT32, Definition, Fields, Image, define
from .generate import documented, function, names, parameters
from .generate.docs import docstring, entries
from .generate.passes import functions, return_annotation
from .run import recompute_backend


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


@define(op="instance_norm", view=views.channels)
def norm_of_instance(input: Image, eps: float, momentum: float) -> None:
    """Return the fields of instance norm in training."""


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
    are, and `instance_norm_statistics` returns the new ones, for which it takes `momentum`.

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
    channels = channels_of(where, input, layout)
    for name, given in zip(("running_mean", "running_var"), running):
        shape = (channels,) if given is None else facts(where, name, given).shape
        if shape != (channels,):
            raise invalid(where, f"{name} has shape {shape}, needs ({channels},)")
    norm = FUNCTIONS["group_norm"]
    return norm(input, channels, weight, bias, eps, layout=layout, backend=backend)


_FLAG = {"batch_norm": "training", "instance_norm": "use_input_stats"}


def _in_training(norm: Definition, pass_: str, training: Any) -> bool:
    """Return whether statistics are those of the input: the value of the argument that says so."""
    return flag(f"{norm.op}.{pass_}", _FLAG[norm.op], training)


def _statistics(
    norm: Definition,
    input: Any,
    affine: Any,
    running: tuple[Any, Any],
    eps: Any,
    share: Any,
    *given: Any,
) -> tuple[Any, ...]:
    """Return all that a training pass computes; `share` is (momentum, num_batches_tracked)."""
    where, (mean, var), layout = f"{norm.op}.fprop", running, given[0]
    arrays = input, *affine, *running_of(where, input, mean, var, layout)
    found = norm.compute("fprop", arrays, (eps, momentum_of(where, *share)), *given)
    return found if running[0] is not None else (*found[:3], None, None)


def _forward(
    norm: Definition,
    input: Any,
    affine: Any,
    running: Any,
    eps: Any,
    share: Any,
    training: Any,
    *given: Any,
) -> Any:
    """Return y, normalised by the statistics of the batch or by the running ones."""
    if _in_training(norm, "fprop", training):
        return _statistics(norm, input, affine, running, eps, share, *given)[0]
    return norm_of_running.compute("fprop", (input, *affine, *running), (eps,), *given)[0]


def _derivative(
    norm: Definition,
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
    """Return the gradients; `kept` is (mean, rstd) of the input, computed again if one is None."""
    if not _in_training(norm, pass_, training):
        return norm_of_running.compute(pass_, (*arrays, *running), (eps,), layout, backend, mask)
    if any(a is None for a in kept):
        given = (None, None), (None, None), eps, (0.1, None), layout, recompute_backend(backend)
        _, *found = _statistics(norm, arrays[-2], *given)
        kept = found[0], found[1]
    return norm.compute(pass_, (*arrays, *kept), (eps, 0.1), layout, backend, mask)


def _jvp(
    norm: Definition,
    primals: Any,
    tangents: Any,
    running: Any,
    training: Any,
    eps: Any,
    *given: Any,
) -> tuple[Any, ...]:
    """Return y and y_dot."""
    in_training = _in_training(norm, "jvp", training)
    op = norm.op if in_training else "batch_norm_eval"
    pair = pair_of(f"{op}.jvp", primals, tangents, ("input", "weight", "bias"))
    if in_training:
        return norm.compute("jvp", pair, (eps, 0.1), *given)
    return norm_of_running.compute("jvp", (*pair[:3], *running, *pair[3:]), (eps,), *given)


def _public_function(
    name: str, signature: str, body: Callable[..., Any], call: str, text: str
) -> Any:
    listed = parameters(signature)
    doc = docstring(text, name, listed, known=_ENTRIES)
    norm = norm_of_instance if name.startswith("instance") else norm_of_batch
    returns = "tuple[Any, Any, Any, Any | None, Any | None]"
    if body is not _statistics:
        pass_ = name.removeprefix(norm.op).lstrip("_") or "fprop"
        returns = return_annotation(norm.op, pass_)
    body = partial(body, norm)
    return function(name, listed, call, body, doc=doc, returns=returns, module=globals())


_ENTRIES = entries(
    cleandoc("""
    input : (N, C) or (N, C, *spatial) array
        At least two values per channel.
    running_mean, running_var : (C,) array, optional
        Where `input` has 16 bits, float32 or, if `weight` is not, as `input`.
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
_ROWS: tuple[tuple[str, str, Callable[..., Any], str, str], ...] = (
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
        "instance_norm_statistics",
        f"input, {_STATE}, weight=None, bias=None, momentum=0.1, eps=1e-5, *, {_OPTIONS}",
        _statistics,
        "input, (weight, bias), (running_mean, running_var), eps, "
        "(momentum, None), layout, backend",
        """
        Return all that `instance_norm` computes by the statistics of the input; nothing is changed.

        Parameters
        ----------
        input : (N, C, *spatial) array
            At least two values per image and channel.
        momentum : float
            Share of the new statistics, the means over images, in the running ones.

        Returns
        -------
        output, mean, rstd, running_mean, running_var : tuple of arrays
            As of `batch_norm_statistics`; mean and rstd are (N, C), the running ones (C,).

        >>> x = np.array([[[1., 3.]], [[5., 7.]]])
        >>> results = instance_norm_statistics(x, np.zeros(1), np.ones(1), momentum=1.)
        >>> results[1].ravel(), results[3], results[4]
        (array([2., 6.]), array([4.]), array([2.]))
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

        >>> x = np.array([[[1., 3.]]])
        >>> dx, dw, db = batch_norm_backward(x, x, eps=0.)
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

        >>> x = np.array([[[1., 3.]]])
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

        >>> x = np.array([[[1., 3.]]])
        >>> batch_norm_double_backward(x, None, None, x, x, eps=0.)[0].ravel()
        array([0., 0.])
        """,
    ),
)
_WORDS = {
    "batch_norm": "instance_norm",
    "In training ": "With `use_input_stats`, ",
    "training": "use_input_stats",
}


def _of_instance(text: str) -> str:
    """Return a text on a derivative of batch norm as one on that of instance norm."""
    return reduce(lambda made, words: made.replace(*words), _WORDS.items(), text)


_INSTANCE_ROWS = tuple(
    (_of_instance(name), _of_instance(given), body, _of_instance(call), _of_instance(text))
    for name, given, body, call, text in _ROWS[3:]
)
DEFINITIONS = (group_norm, layer_norm, rms_norm)
FUNCTIONS = {
    **functions(*DEFINITIONS),
    **names(documented(instance_norm, known=_ENTRIES)),
    **names(_public_function(*row) for row in (*_ROWS, *_INSTANCE_ROWS)),
}
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
