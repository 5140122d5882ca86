"""Layer norm and its derivatives."""

from __future__ import annotations

from math import prod
from typing import Any

from ...arrays import facts
from ...errors import ConvrefError, message
from ...ops import BASE_ROLE, SIGNATURE, Sizes, integer, items
from .._arguments import ARGUMENT, flag
from .._trace import needed
from ._problems import paired, run, tangents_of


class _Rows:
    """Arrays of any shape (*lead, *normalized_shape) as (N, C, 1) images and back."""

    def __init__(self, where: str, input: Any, normalized_shape: Any) -> None:
        self.where = where
        shape = facts(where, "input", input).shape
        listed = items(normalized_shape)
        given = [normalized_shape] if listed is None else listed
        tail = tuple(integer(where, "normalized_shape", size) for size in given)
        if not tail or shape[-len(tail) :] != tail:
            what = f"input has shape {shape}, needs to end in normalized_shape {tail}"
            raise ConvrefError(message(where, what))
        self.tail, self.lead = tail, shape[: -len(tail)]
        self.size, self.count = prod(tail), prod(self.lead)
        if not self.size:
            what = f"normalized_shape is {tail}, needs sizes of at least 1"
            raise ConvrefError(message(where, what))

    def _as(self, name: str, array: Any, shape: Sizes, target: Sizes) -> Any:
        if array is None:
            return None
        got = facts(self.where, name, array).shape
        if got != shape:
            raise ConvrefError(message(self.where, f"{name} has shape {got}, needs {shape}"))
        return array.reshape(target)

    def image(self, name: str, array: Any) -> Any:
        return self._as(name, array, (*self.lead, *self.tail), (self.count, self.size, 1))

    def weight(self, name: str, array: Any) -> Any:
        return self._as(name, array, self.tail, (self.size, 1))

    def statistic(self, name: str, array: Any) -> Any:
        return self._as(name, array, self.lead, (self.count,))

    def unrolled(self, role: str, array: Any) -> Any:
        if array is None:
            return None
        lead = self.lead if BASE_ROLE[role] not in ("w", "b") else ()
        return array.reshape(lead if role in ("mean", "rstd") else (*lead, *self.tail))

    def run(
        self, pass_: str, arrays: tuple[Any, ...], eps: Any, backend: str, mask: Any = (True,) * 3
    ) -> tuple[Any, ...]:
        """Return results in the user's shapes; arrays are the user's too, by role."""
        name = f"layer_norm.{pass_}"
        roles, results = SIGNATURE["layer_norm", pass_][:2]
        kinds = {"x": self.image, "y": self.image, "w": self.weight, "b": self.weight}
        given = (
            kinds.get(BASE_ROLE[r], self.statistic)(ARGUMENT[r], a) for r, a in zip(roles, arrays)
        )
        found = run(name, tuple(given), (eps,), None, backend, mask)
        return tuple(self.unrolled(r, a) for r, a in zip(results, found))


def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    return_statistics: bool = False,
    *,
    backend: str = "auto",
) -> Any:
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
    where = "layer_norm.fprop"
    rows = _Rows(where, input, normalized_shape)
    found = rows.run("fprop", (input, weight, bias), eps, backend)
    return found if flag(where, "return_statistics", return_statistics) else found[0]


def layer_norm_backward(
    grad_output: Any,
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    mean: Any = None,
    rstd: Any = None,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `layer_norm`, None where masked off.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> layer_norm_backward(np.array([[1., 3.]]), x, 2, eps=0.)[1]
    array([-1.,  3.])
    """
    rows = _Rows("layer_norm.backward", input, normalized_shape)
    if mean is None or rstd is None:
        _, mean, rstd = rows.run("fprop", (input, None, None), eps, needed(backend))
    arrays = grad_output, input, weight, mean, rstd
    return rows.run("backward", arrays, eps, backend, output_mask)


def layer_norm_jvp(
    primals: Any,
    tangents: Any,
    normalized_shape: Any,
    eps: float = 1e-5,
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) for tuples (input, weight, bias) with None for absent ones.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> layer_norm_jvp((x, None, None), (x, None, None), 2, eps=0.)[1]
    array([[0., 0.]])
    """
    values, dots = tangents_of("layer_norm.jvp", primals, tangents)
    rows = _Rows("layer_norm.jvp", values[0], normalized_shape)
    return rows.run("jvp", (*values, *dots), eps, backend)


def layer_norm_double_backward(
    grad_grad_input: Any,
    grad_grad_weight: Any,
    grad_grad_bias: Any,
    grad_output: Any,
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    mean: Any = None,
    rstd: Any = None,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output, input and weight through `layer_norm_backward`.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> layer_norm_double_backward(x, None, None, x, x, 2, eps=0.)[0]
    array([[0., 0.]])
    """
    paired("layer_norm.double_backward", grad_grad_weight, weight)
    rows = _Rows("layer_norm.double_backward", input, normalized_shape)
    if mean is None or rstd is None:
        _, mean, rstd = rows.run("fprop", (input, None, None), eps, needed(backend))
    first = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    return rows.run("double_backward", (*first, mean, rstd), eps, backend, output_mask)
