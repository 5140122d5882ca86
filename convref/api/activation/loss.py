"""The loss of a classifier and its derivatives."""

from __future__ import annotations

from typing import Any

from ...errors import ConvrefError, message
from ...ops import SIGNATURE, Sizes
from .._arguments import ARGUMENT
from .._run import compute
from ._problems import prepare_activation, shape_of, tangent


def _loss(
    name: str,
    arrays: dict[str, Any],
    arguments: tuple[Any, ...],
    backend: str,
    mask: Any = (True, True),
) -> tuple[Any, ...]:
    """Return results of a pass; logits (C), (N, C) or (N, C, *spatial) become images."""
    pass_ = name.partition(".")[2]
    roles, results = SIGNATURE["cross_entropy", pass_][:2]
    shape = shape_of(name, arrays["x"])
    if not 1 <= len(shape) <= 5:
        raise ConvrefError(message(name, f"input has {len(shape)} axes, needs 1 to 5"))
    ignore, reduction, smoothing = arguments
    shapes = _shapes(shape, reduction == "none")
    given = tuple(_seen(name, role, arrays[role], shapes.get(role, shapes["x"])) for role in roles)
    settings = (arrays["w"] is not None, ignore, reduction, smoothing)
    found = compute(prepare_activation, given, ("cross_entropy", pass_, settings, mask), backend)
    return tuple(
        None if r is None else r.reshape(shapes["x" if role == "dx" else "dy"][0])
        for role, r in zip(results, found)
    )


def _shapes(shape: Sizes, each: bool) -> dict[str, tuple[Sizes, Sizes]]:
    """Return the user's shape and the formulas' by role; `each` position may have a loss."""
    lead, classes, space = (shape[:1], shape[1], shape[2:]) if shape[1:] else ((), shape[0], ())
    n, pixels, places = lead or (1,), space or (1,), (*lead, *space)
    targets = (*n, *pixels)
    return {
        "x": (shape, (*n, classes, *pixels)),
        "target": (places, targets),
        "w": ((classes,), (classes,)),
        "dy": (places, targets) if each else ((), (1,)),
    }


def _seen(name: str, role: str, array: Any, shapes: tuple[Sizes, Sizes]) -> Any:
    """Return an array as the formulas see it; there may be no weight."""
    if role == "w" and array is None:
        return None
    need, seen = shapes
    if (got := shape_of(name, array, ARGUMENT[role])) != need:
        what = f"{ARGUMENT[role]} has shape {got}, needs {need}"
        raise ConvrefError(message(name, what))
    return array.reshape(seen)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    backend: str = "auto",
) -> Any:
    """Return the cross entropy of logits against one class at every position.

    Parameters
    ----------
    input : (C,), (N, C) or (N, C, *spatial) array
        Logits.
    target : array of int64
        Classes: (), (N,) or (N, *spatial).
    weight : (C,) array, optional
        Of each class.
    ignore_index : int
        Positions with this target count nowhere, in smoothing neither.
    reduction : str
        "mean" over the weights of the targets, "sum", or "none".
    label_smoothing : float
        Share of every target, 0 to 1, that all classes have.

    Returns
    -------
    array
        () or the shape of `target`. A mean over no target is NaN.

    Examples
    --------
    >>> cross_entropy(np.array([[0., 0.], [5., 1.]]), np.array([1, -100]))
    array(0.69314718)
    """
    arrays = {"x": input, "target": target, "w": weight}
    arguments = ignore_index, reduction, label_smoothing
    return _loss("cross_entropy.fprop", arrays, arguments, backend)[0]


def cross_entropy_backward(
    grad_output: Any,
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    backend: str = "auto",
) -> Any:
    """Return grad_input of `cross_entropy`; 0 where the target is ignored.

    Examples
    --------
    >>> cross_entropy_backward(np.array(1.), np.array([[0., 0.]]), np.array([1]))
    array([[ 0.5, -0.5]])
    """
    arrays = {"dy": grad_output, "x": input, "target": target, "w": weight}
    arguments = ignore_index, reduction, label_smoothing
    return _loss("cross_entropy.backward", arrays, arguments, backend)[0]


def cross_entropy_jvp(
    primals: Any,
    tangents: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `cross_entropy` for tuples (input,)."""
    x, x_dot = tangent("cross_entropy.jvp", primals, tangents)
    arrays = {"x": x, "x_dot": x_dot, "target": target, "w": weight}
    arguments = ignore_index, reduction, label_smoothing
    return _loss("cross_entropy.jvp", arrays, arguments, backend)


def cross_entropy_double_backward(
    grad_grad_input: Any,
    grad_output: Any,
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    output_mask: Any = (True, True),
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output and input through `cross_entropy_backward`."""
    arrays = {"ddx": grad_grad_input, "dy": grad_output, "x": input, "target": target, "w": weight}
    arguments = ignore_index, reduction, label_smoothing
    return _loss("cross_entropy.double_backward", arrays, arguments, backend, output_mask)
