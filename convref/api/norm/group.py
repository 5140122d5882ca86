"""Group norm, instance norm and their derivatives."""

from __future__ import annotations

from typing import Any

from .._arguments import flag
from ._problems import channels, paired, run, statistics, tangents_of


def group_norm(
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    return_statistics: bool = False,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
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
    arguments = eps, num_groups
    found = run("group_norm.fprop", (input, weight, bias), arguments, layout, backend)
    return found if flag("group_norm.fprop", "return_statistics", return_statistics) else found[0]


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
    groups = channels("group_norm.fprop", input, layout)
    return group_norm(input, groups, weight, bias, eps, layout=layout, backend=backend)


def group_norm_backward(
    grad_output: Any,
    input: Any,
    num_groups: int,
    weight: Any = None,
    mean: Any = None,
    rstd: Any = None,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `group_norm`, None where masked off.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> group_norm_backward(np.array([[1., 3.]]), x, 1, eps=0.)[1]
    array([-1.,  3.])
    """
    arguments = eps, num_groups
    saved = statistics("group_norm", input, mean, rstd, arguments, layout, backend)
    arrays = grad_output, input, weight, *saved
    return run("group_norm.backward", arrays, arguments, layout, backend, output_mask)


def group_norm_jvp(
    primals: Any,
    tangents: Any,
    num_groups: int,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) for tuples (input, weight, bias) with None for absent ones.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> group_norm_jvp((x, None, None), (x, None, None), 1, eps=0.)[1]
    array([[0., 0.]])
    """
    values, dots = tangents_of("group_norm.jvp", primals, tangents)
    return run("group_norm.jvp", (*values, *dots), (eps, num_groups), layout, backend)


def group_norm_double_backward(
    grad_grad_input: Any,
    grad_grad_weight: Any,
    grad_grad_bias: Any,
    grad_output: Any,
    input: Any,
    num_groups: int,
    weight: Any = None,
    mean: Any = None,
    rstd: Any = None,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output, input and weight through `group_norm_backward`.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> group_norm_double_backward(x, None, None, x, x, 1, eps=0.)[0]
    array([[0., 0.]])
    """
    paired("group_norm.double_backward", grad_grad_weight, weight)
    arguments = eps, num_groups
    saved = statistics("group_norm", input, mean, rstd, arguments, layout, backend)
    first = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    name = "group_norm.double_backward"
    return run(name, (*first, *saved), arguments, layout, backend, output_mask)
