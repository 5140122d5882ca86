"""Softmax along an axis, its logarithm and their derivatives."""

from __future__ import annotations

from math import prod
from typing import Any

from ...errors import ConvrefError, message
from ...ops import RANKS, SIGNATURE, integer
from ._problems import run, shape_of, tangent


def _along(
    name: str, arrays: tuple[Any, ...], dim: Any, backend: str, mask: Any = (True, True)
) -> tuple[Any, ...]:
    """Return results of softmax along an axis of arrays of any shape."""
    op, _, pass_ = name.partition(".")
    shape = shape_of(name, arrays[SIGNATURE[op, pass_].operands.index("x")])
    axis = integer(name, "dim", dim)
    if not -len(shape) <= axis < len(shape):
        needs = f"{-len(shape)} to {len(shape) - 1}" if shape else "an input with an axis"
        raise ConvrefError(message(name, f"dim is {axis}, needs {needs}"))
    axis %= len(shape)
    if len(shape) - 2 in RANKS:
        return run(name, arrays, (axis,), backend, mask)
    view = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    return run(name, arrays, (1,), backend, mask, view)


def softmax(input: Any, dim: int, *, backend: str = "auto") -> Any:
    """Return exp(x) over its sum along an axis; a shift of x changes nothing.

    Parameters
    ----------
    input : array
        Any shape but that of a number.
    dim : int
        The axis; negative counts from the end.

    Examples
    --------
    >>> softmax(np.array([[1000., 1000.]]), -1)
    array([[0.5, 0.5]])
    """
    return _along("softmax.fprop", (input,), dim, backend)[0]


def softmax_backward(grad_output: Any, input: Any, dim: int, *, backend: str = "auto") -> Any:
    """Return grad_input of `softmax`."""
    return _along("softmax.backward", (grad_output, input), dim, backend)[0]


def softmax_jvp(primals: Any, tangents: Any, dim: int, *, backend: str = "auto") -> tuple[Any, ...]:
    """Return (output, output tangent) of `softmax` for tuples (input,)."""
    return _along("softmax.jvp", tangent("softmax.jvp", primals, tangents), dim, backend)


def softmax_double_backward(
    grad_grad_input: Any,
    grad_output: Any,
    input: Any,
    dim: int,
    output_mask: Any = (True, True),
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output and input through `softmax_backward`."""
    arrays = grad_grad_input, grad_output, input
    return _along("softmax.double_backward", arrays, dim, backend, output_mask)


def log_softmax(input: Any, dim: int, *, backend: str = "auto") -> Any:
    """Return the logarithm of `softmax`, exact to the last digits where that is tiny.

    Examples
    --------
    >>> log_softmax(np.array([[0., -5000.]]), 1)
    array([[    0., -5000.]])
    """
    return _along("log_softmax.fprop", (input,), dim, backend)[0]


def log_softmax_backward(grad_output: Any, input: Any, dim: int, *, backend: str = "auto") -> Any:
    """Return grad_input of `log_softmax`."""
    return _along("log_softmax.backward", (grad_output, input), dim, backend)[0]


def log_softmax_jvp(
    primals: Any, tangents: Any, dim: int, *, backend: str = "auto"
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `log_softmax` for tuples (input,)."""
    arrays = tangent("log_softmax.jvp", primals, tangents)
    return _along("log_softmax.jvp", arrays, dim, backend)


def log_softmax_double_backward(
    grad_grad_input: Any,
    grad_output: Any,
    input: Any,
    dim: int,
    output_mask: Any = (True, True),
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output and input through `log_softmax_backward`."""
    arrays = grad_grad_input, grad_output, input
    return _along("log_softmax.double_backward", arrays, dim, backend, output_mask)
