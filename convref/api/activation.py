"""Activations, softmax and the loss of a classifier, with PyTorch's argument names and order.

Arrays may have any shape. What has the axes of an image is computed as one, the rest as a line or,
along an axis, as lines of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ..arrays import facts
from ..case import Call, Spec
from ..errors import ConvrefError, message
from ..problem import (
    RANKS,
    SIGNATURE,
    ActivationProblem,
    CrossEntropyProblem,
    GeluProblem,
    LeakyReluProblem,
    Problem,
    ReluProblem,
    Sizes,
    SoftmaxProblem,
    integer,
)
from ._arguments import ARGUMENT, Layout, Prepared, lying, mask_of
from ._images import one
from ._run import compute

__all__ = [
    "cross_entropy",
    "cross_entropy_backward",
    "cross_entropy_double_backward",
    "cross_entropy_jvp",
    "gelu",
    "gelu_backward",
    "gelu_double_backward",
    "gelu_jvp",
    "hardswish",
    "hardswish_backward",
    "hardswish_double_backward",
    "hardswish_jvp",
    "leaky_relu",
    "leaky_relu_backward",
    "leaky_relu_double_backward",
    "leaky_relu_jvp",
    "log_softmax",
    "log_softmax_backward",
    "log_softmax_double_backward",
    "log_softmax_jvp",
    "relu",
    "relu_backward",
    "relu_double_backward",
    "relu_jvp",
    "sigmoid",
    "sigmoid_backward",
    "sigmoid_double_backward",
    "sigmoid_jvp",
    "silu",
    "silu_backward",
    "silu_double_backward",
    "silu_jvp",
    "softmax",
    "softmax_backward",
    "softmax_double_backward",
    "softmax_jvp",
    "tanh",
    "tanh_backward",
    "tanh_double_backward",
    "tanh_jvp",
]

Build = Callable[..., Problem]
_BUILD: dict[str, Build] = {
    "relu": ReluProblem,
    "leaky_relu": lambda slope, **sizes: LeakyReluProblem(slope=slope, **sizes),
    "gelu": lambda approximate, **sizes: GeluProblem(approximate=approximate, **sizes),
    **dict.fromkeys(("silu", "hardswish", "sigmoid", "tanh"), ActivationProblem),
    **dict.fromkeys(
        ("softmax", "log_softmax"), lambda dim, **sizes: SoftmaxProblem(dim=dim, **sizes)
    ),
    "cross_entropy": lambda weight, ignore, reduction, smoothing, **sizes: CrossEntropyProblem(
        weight=weight,
        ignore_index=ignore,
        reduction=reduction,
        label_smoothing=smoothing,
        **sizes,
    ),
}


def prepare_activation(
    arrays: Sequence[Any], op: str, pass_: str, arguments: tuple[Any, ...], mask: Any
) -> Prepared:
    """Return the checked call of an activation on arrays that have the axes of the formulas."""
    where, roles = f"{op}.{pass_}", SIGNATURE[op, pass_].operands
    found = {
        role: facts(where, ARGUMENT[role], a)
        for role, a in zip(roles, arrays, strict=True)
        if a is not None
    }
    x = found["x"]
    n, c, *space = x.shape
    problem = _BUILD[op](*arguments, n=n, c=c, input=tuple(space))
    call = Call(op, pass_, problem, mask_of(where, op, pass_, mask), specs=(Spec("f64"),))
    specs = tuple(lying(where, call, role, ARGUMENT[role], found.get(role), x) for role in roles)
    layout = Layout(tuple(range(len(x.shape))), ())
    return Prepared(replace(call, specs=specs), layout, False, True)


def _shape(where: str, array: Any, name: str = "input") -> Sizes:
    if array is None:
        raise ConvrefError(message(where, f"{name} is None, needs an array"))
    return facts(where, name, array).shape


def _run(
    name: str,
    arrays: tuple[Any, ...],
    arguments: tuple[Any, ...],
    backend: str,
    mask: Any = (True, True),
    view: Sizes | None = None,
) -> tuple[Any, ...]:
    """Return results of a pass on arrays of one shape, which is seen as `view` on the way."""
    op, _, pass_ = name.partition(".")
    roles = SIGNATURE[op, pass_].operands
    shape = _shape(name, arrays[roles.index("x")])
    for role, array in zip(roles, arrays):
        if (got := _shape(name, array, ARGUMENT[role])) != shape:
            what = f"{ARGUMENT[role]} has shape {got}, needs {shape}"
            raise ConvrefError(message(name, what))
    view = view or (shape if len(shape) - 2 in RANKS else (1, 1, prod(shape)))
    if view != shape:
        arrays = tuple(a.reshape(view) for a in arrays)
    found = compute(prepare_activation, arrays, (op, pass_, arguments, mask), backend)
    if view == shape:
        return found
    return tuple(None if r is None else r.reshape(shape) for r in found)


def _tangent(where: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    return one(where, "primals", primals), one(where, "tangents", tangents)


def _pointwise(op: str, summary: str, example: str, slope: str) -> tuple[Callable[..., Any], ...]:
    """Return the four functions of an op without arguments, with their docstrings."""

    def fprop(input: Any, *, backend: str = "auto") -> Any:
        return _run(f"{op}.fprop", (input,), (), backend)[0]

    def backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any:
        return _run(f"{op}.backward", (grad_output, input), (), backend)[0]

    def jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]:
        return _run(f"{op}.jvp", _tangent(f"{op}.jvp", primals, tangents), (), backend)

    def double_backward(
        grad_grad_input: Any,
        grad_output: Any,
        input: Any,
        output_mask: Any = (True, True),
        *,
        backend: str = "auto",
    ) -> tuple[Any, ...]:
        arrays = grad_grad_input, grad_output, input
        return _run(f"{op}.double_backward", arrays, (), backend, output_mask)

    def piecewise(grad_grad_input: Any, input: Any, *, backend: str = "auto") -> Any:
        return _run(f"{op}.double_backward", (grad_grad_input, input), (), backend)[0]

    second: Callable[..., Any] = double_backward if "dy" in _second(op) else piecewise
    gives = "s of grad_output and input" if second is double_backward else " of grad_output"
    texts = {
        "": f"Return {summary}, for arrays of any shape.\n\n{example}",
        "_backward": f"Return grad_input of `{op}`: grad_output times {slope}.",
        "_jvp": f"Return (output, output tangent) of `{op}` for tuples (input,).",
        "_double_backward": f"Return the gradient{gives} through `{op}_backward`.",
    }
    functions = (fprop, backward, jvp, second)
    for function, (suffix, text) in zip(functions, texts.items()):
        function.__name__ = function.__qualname__ = op + suffix
        function.__doc__ = text + "\n"
    return functions


def _second(op: str) -> tuple[str, ...]:
    return SIGNATURE[op, "double_backward"].operands


def _example(line: str, result: str) -> str:
    return f"    Examples\n    --------\n    >>> {line}\n    {result}"


relu, relu_backward, relu_jvp, relu_double_backward = _pointwise(
    "relu",
    "the larger of 0 and each element of `input`; NaN stays",
    _example("relu(np.array([-1., 2.]))", "array([0., 2.])"),
    "1 where the input is positive or NaN, else 0",
)
silu, silu_backward, silu_jvp, silu_double_backward = _pointwise(
    "silu",
    "x / (1 + exp(-x)) of each element",
    _example("silu(np.array([0.]))", "array([0.])"),
    "s (1 + x (1 - s)), s = 1 / (1 + exp(-x))",
)
hardswish, hardswish_backward, hardswish_jvp, hardswish_double_backward = _pointwise(
    "hardswish",
    "x min(max(x + 3, 0), 6) / 6 of each element",
    _example("hardswish(np.array([-4., 0., 4.]))", "array([-0.,  0.,  4.])"),
    "(2 x + 3) / 6 between the corners, 0 at -3 and 1 at 3",
)
sigmoid, sigmoid_backward, sigmoid_jvp, sigmoid_double_backward = _pointwise(
    "sigmoid",
    "1 / (1 + exp(-x)) of each element",
    _example("sigmoid(np.array([0., -1000.]))", "array([0.5, 0. ])"),
    "s (1 - s)",
)
tanh, tanh_backward, tanh_jvp, tanh_double_backward = _pointwise(
    "tanh",
    "the hyperbolic tangent of each element",
    _example("tanh(np.array([0., 1000.]))", "array([0., 1.])"),
    "1 - tanh(x)^2",
)


def leaky_relu(input: Any, negative_slope: float = 0.01, *, backend: str = "auto") -> Any:
    """Return each element where it is positive, else times `negative_slope`.

    Examples
    --------
    >>> leaky_relu(np.array([-1., 2.]), 0.5)
    array([-0.5,  2. ])
    """
    return _run("leaky_relu.fprop", (input,), (negative_slope,), backend)[0]


def leaky_relu_backward(
    grad_output: Any, input: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> Any:
    """Return grad_input of `leaky_relu`; at 0 the slope is the negative side's."""
    arrays = grad_output, input
    return _run("leaky_relu.backward", arrays, (negative_slope,), backend)[0]


def leaky_relu_jvp(
    primals: Any, tangents: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `leaky_relu` for tuples (input,)."""
    arrays = _tangent("leaky_relu.jvp", primals, tangents)
    return _run("leaky_relu.jvp", arrays, (negative_slope,), backend)


def leaky_relu_double_backward(
    grad_grad_input: Any, input: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> Any:
    """Return the gradient of grad_output through `leaky_relu_backward`."""
    arrays = grad_grad_input, input
    return _run("leaky_relu.double_backward", arrays, (negative_slope,), backend)[0]


def gelu(input: Any, approximate: str = "none", *, backend: str = "auto") -> Any:
    """Return x times the share of a normal law below x, or that with tanh for its integral.

    Parameters
    ----------
    input : array
        Any shape.
    approximate : str
        "none", or "tanh": x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    Examples
    --------
    >>> gelu(np.array([0., -1000.]))
    array([ 0., -0.])
    """
    return _run("gelu.fprop", (input,), (approximate,), backend)[0]


def gelu_backward(
    grad_output: Any, input: Any, approximate: str = "none", *, backend: str = "auto"
) -> Any:
    """Return grad_input of `gelu`."""
    return _run("gelu.backward", (grad_output, input), (approximate,), backend)[0]


def gelu_jvp(
    primals: Any, tangents: Any, approximate: str = "none", *, backend: str = "auto"
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `gelu` for tuples (input,)."""
    return _run("gelu.jvp", _tangent("gelu.jvp", primals, tangents), (approximate,), backend)


def gelu_double_backward(
    grad_grad_input: Any,
    grad_output: Any,
    input: Any,
    approximate: str = "none",
    output_mask: Any = (True, True),
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output and input through `gelu_backward`."""
    arrays = grad_grad_input, grad_output, input
    return _run("gelu.double_backward", arrays, (approximate,), backend, output_mask)


def _along(
    name: str, arrays: tuple[Any, ...], dim: Any, backend: str, mask: Any = (True, True)
) -> tuple[Any, ...]:
    """Return results of softmax along an axis of arrays of any shape."""
    op, _, pass_ = name.partition(".")
    shape = _shape(name, arrays[SIGNATURE[op, pass_].operands.index("x")])
    axis = integer(name, "dim", dim)
    if not -len(shape) <= axis < len(shape):
        needs = f"{-len(shape)} to {len(shape) - 1}" if shape else "an input with an axis"
        raise ConvrefError(message(name, f"dim is {axis}, needs {needs}"))
    axis %= len(shape)
    if len(shape) - 2 in RANKS:
        return _run(name, arrays, (axis,), backend, mask)
    view = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    return _run(name, arrays, (1,), backend, mask, view)


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
    return _along("softmax.jvp", _tangent("softmax.jvp", primals, tangents), dim, backend)


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
    arrays = _tangent("log_softmax.jvp", primals, tangents)
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
    shape = _shape(name, arrays["x"])
    if not 1 <= len(shape) <= 5:
        raise ConvrefError(message(name, f"input has {len(shape)} axes, needs 1 to 5"))
    lead, classes, space = (
        (shape[:1], shape[1], shape[2:]) if len(shape) > 1 else ((), shape[0], ())
    )
    places = (*lead, *space)
    loss = places if arguments[1] == "none" else ()
    view = (*(lead or (1,)), classes, *(space or (1,)))
    targets = (view[0], *view[2:])
    shapes = {"target": (places, targets), "w": ((classes,), (classes,))}
    shapes["dy"] = (loss, targets if arguments[1] == "none" else (1,))
    given: list[Any] = []
    for role in roles:
        array = arrays[role]
        if role == "w" and array is None:
            given.append(None)
            continue
        need, seen = shapes.get(role, (shape, view))
        if (got := _shape(name, array, ARGUMENT[role])) != need:
            what = f"{ARGUMENT[role]} has shape {got}, needs {need}"
            raise ConvrefError(message(name, what))
        given.append(array.reshape(seen))
    ignore, reduction, smoothing = arguments
    settings = (arrays["w"] is not None, ignore, reduction, smoothing)
    found = compute(
        prepare_activation, tuple(given), ("cross_entropy", pass_, settings, mask), backend
    )
    return tuple(
        None if r is None else r.reshape(shape if role == "dx" else loss)
        for role, r in zip(results, found)
    )


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
    x, x_dot = _tangent("cross_entropy.jvp", primals, tangents)
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
