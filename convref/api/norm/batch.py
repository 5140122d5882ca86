"""Batch norm and its derivatives."""

from __future__ import annotations

from typing import Any

from ...errors import ConvrefError, message
from ...ops import integer
from .._arguments import flag
from ._problems import paired, run, running, statistics, tangents_of


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
    rmean, rvar = running(where, input, running_mean, running_var, layout)
    share = _momentum(where, momentum, num_batches_tracked)
    arrays = input, weight, bias, rmean, rvar
    found = run(where, arrays, (eps, share), layout, backend)
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
    arrays = input, weight, bias, *_needed("batch_norm_eval.fprop", running_mean, running_var)
    return run("batch_norm_eval.fprop", arrays, (eps,), layout, backend)[0]


def _needed(where: str, mean: Any, var: Any) -> tuple[Any, Any]:
    for name, array in (("running_mean", mean), ("running_var", var)):
        if array is None:
            raise ConvrefError(message(where, f"{name} is None, needs an array in evaluation"))
    return mean, var


def _momentum(where: str, momentum: Any, batches: Any) -> Any:
    """Return the share of the new statistics: of a cumulative mean, one over all batches."""
    if momentum is not None:
        return momentum
    if batches is None:
        what = "momentum is None, needs num_batches_tracked: batches seen so far"
        raise ConvrefError(message(where, what))
    count = integer(where, "num_batches_tracked", batches)
    if count < 0:
        raise ConvrefError(message(where, f"num_batches_tracked is {count}, needs at least 0"))
    return 1 / (count + 1)


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
    if not flag("batch_norm.backward", "training", training):
        given = _needed("batch_norm_eval.backward", running_mean, running_var)
        arrays = grad_output, input, weight, *given
        return run("batch_norm_eval.backward", arrays, (eps,), layout, backend, output_mask)
    saved = statistics("batch_norm", input, mean, rstd, (eps, 0.1), layout, backend)
    arrays = grad_output, input, weight, *saved
    return run("batch_norm.backward", arrays, (eps, 0.1), layout, backend, output_mask)


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
    values, dots = tangents_of(f"{op}.jvp", primals, tangents)
    if op == "batch_norm":
        return run("batch_norm.jvp", (*values, *dots), (eps, 0.1), layout, backend)
    given = _needed("batch_norm_eval.jvp", running_mean, running_var)
    return run("batch_norm_eval.jvp", (*values, *given, *dots), (eps,), layout, backend)


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
    paired("batch_norm.double_backward", grad_grad_weight, weight)
    first = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    if not flag("batch_norm.double_backward", "training", training):
        given = _needed("batch_norm_eval.double_backward", running_mean, running_var)
        name = "batch_norm_eval.double_backward"
        return run(name, (*first, *given), (eps,), layout, backend, output_mask)
    saved = statistics("batch_norm", input, mean, rstd, (eps, 0.1), layout, backend)
    name = "batch_norm.double_backward"
    return run(name, (*first, *saved), (eps, 0.1), layout, backend, output_mask)
