"""Functions of one element and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ops import SIGNATURE
from ._problems import run, tangent


def _pointwise(op: str, summary: str, example: str, slope: str) -> tuple[Callable[..., Any], ...]:
    """Return the four functions of an op without arguments, with their docstrings."""

    def fprop(input: Any, *, backend: str = "auto") -> Any:
        return run(f"{op}.fprop", (input,), (), backend)[0]

    def backward(grad_output: Any, input: Any, *, backend: str = "auto") -> Any:
        return run(f"{op}.backward", (grad_output, input), (), backend)[0]

    def jvp(primals: Any, tangents: Any, *, backend: str = "auto") -> tuple[Any, ...]:
        return run(f"{op}.jvp", tangent(f"{op}.jvp", primals, tangents), (), backend)

    def double_backward(
        grad_grad_input: Any,
        grad_output: Any,
        input: Any,
        output_mask: Any = (True, True),
        *,
        backend: str = "auto",
    ) -> tuple[Any, ...]:
        arrays = grad_grad_input, grad_output, input
        return run(f"{op}.double_backward", arrays, (), backend, output_mask)

    def piecewise(grad_grad_input: Any, input: Any, *, backend: str = "auto") -> Any:
        return run(f"{op}.double_backward", (grad_grad_input, input), (), backend)[0]

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
    return run("leaky_relu.fprop", (input,), (negative_slope,), backend)[0]


def leaky_relu_backward(
    grad_output: Any, input: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> Any:
    """Return grad_input of `leaky_relu`; at 0 the slope is the negative side's."""
    arrays = grad_output, input
    return run("leaky_relu.backward", arrays, (negative_slope,), backend)[0]


def leaky_relu_jvp(
    primals: Any, tangents: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `leaky_relu` for tuples (input,)."""
    arrays = tangent("leaky_relu.jvp", primals, tangents)
    return run("leaky_relu.jvp", arrays, (negative_slope,), backend)


def leaky_relu_double_backward(
    grad_grad_input: Any, input: Any, negative_slope: float = 0.01, *, backend: str = "auto"
) -> Any:
    """Return the gradient of grad_output through `leaky_relu_backward`."""
    arrays = grad_grad_input, input
    return run("leaky_relu.double_backward", arrays, (negative_slope,), backend)[0]


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
    return run("gelu.fprop", (input,), (approximate,), backend)[0]


def gelu_backward(
    grad_output: Any, input: Any, approximate: str = "none", *, backend: str = "auto"
) -> Any:
    """Return grad_input of `gelu`."""
    return run("gelu.backward", (grad_output, input), (approximate,), backend)[0]


def gelu_jvp(
    primals: Any, tangents: Any, approximate: str = "none", *, backend: str = "auto"
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `gelu` for tuples (input,)."""
    return run("gelu.jvp", tangent("gelu.jvp", primals, tangents), (approximate,), backend)


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
    return run("gelu.double_backward", arrays, (approximate,), backend, output_mask)
