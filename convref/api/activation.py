"""Activations, softmax and the loss of a classifier, with PyTorch's argument names and order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import views
from .definition import CUDA_FLOAT32, FLOAT32, LOW, Classified, Definition, Fields, Image, define
from .generate.passes import functions


def elementwise(
    layer: str, gradient: str = ".", **options: Any
) -> Callable[[Callable[..., Fields | None]], Definition]:
    """Return the decorator of an activation; `gradient` says how grad_input is computed."""

    def decorate(fields: Callable[..., Fields | None]) -> Definition:
        made = Definition(fields, view=views.elements, layouts=False, layer=layer, **options)
        made.derivatives(backward=f"Return grad_input of `{made.name}`{gradient}")
        return made

    return decorate


@elementwise("ReLU", ": grad_output times 1 where the input is positive or NaN, else 0.")
def relu(input: Image) -> None:
    """Return the larger of 0 and each element of `input`; NaN stays, for arrays of any shape.

    >>> relu(np.array([-1., 2.]))
    array([0., 2.])
    """


@elementwise("LeakyReLU", "; at 0 the slope is the negative side's.")
def leaky_relu(input: Image, negative_slope: float = 0.01) -> Fields:
    """Return each element where it is positive, else times `negative_slope`.

    >>> leaky_relu(np.array([-1., 2.]), 0.5)
    array([-0.5,  2. ])
    """
    return {"slope": negative_slope}


@define(view=views.by_channel, layouts=False, layer="PReLU", autocast=LOW)
def prelu(input: Image, weight: Any) -> None:
    """Return each element where it is positive, else times the slope of its channel.

    Parameters
    ----------
    input : array
        Any shape; channels are the second axis, or all is one channel.
    weight : (C,) or (1,) array
        The slopes, or the one of all channels.

    >>> prelu(np.array([[-1., -1.], [2., 2.]]), np.array([0.5, 3.]))
    array([[-0.5, -3. ],
           [ 2. ,  2. ]])
    """


prelu.derivatives(
    backward="""
        Return (grad_input, grad_weight) of `prelu`, None where masked off; at 0 the slope is the
        negative side's.
    """,
)


@elementwise("SiLU", ": grad_output times s (1 + x (1 - s)), s = 1 / (1 + exp(-x)).")
def silu(input: Image) -> None:
    """Return x / (1 + exp(-x)) of each element, for arrays of any shape.

    >>> silu(np.array([0.]))
    array([0.])
    """


@elementwise("GELU")
def gelu(input: Image, approximate: str = "none") -> None:
    """Return x times the normal distribution function at x, or its approximation by tanh.

    Parameters
    ----------
    approximate : str
        "none", or "tanh": x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    >>> gelu(np.array([0., -1000.]))
    array([ 0., -0.])
    """


@elementwise(
    "Hardswish", ": grad_output times (2 x + 3) / 6 between the corners, 0 at -3 and 1 at 3."
)
def hardswish(input: Image) -> None:
    """Return x min(max(x + 3, 0), 6) / 6 of each element, for arrays of any shape.

    >>> hardswish(np.array([-4., 0., 4.]))
    array([-0.,  0.,  4.])
    """


@elementwise("Hardtanh", ": grad_output between the bounds, 0 at the bounds and beyond.")
def hardtanh(input: Image, min_val: float = -1.0, max_val: float = 1.0) -> None:
    """Return each element, clamped to `min_val` and `max_val`; NaN stays.

    >>> hardtanh(np.array([-4., 0.5, 4.]))
    array([-1. ,  0.5,  1. ])
    """


@elementwise("ReLU6", ": grad_output between 0 and 6, 0 at both and beyond.", op="hardtanh")
def relu6(input: Image) -> Fields:
    """Return each element, clamped to 0 and 6: `hardtanh` with these bounds.

    >>> relu6(np.array([-4., 0.5, 8.]))
    array([0. , 0.5, 6. ])
    """
    return {"min_val": 0.0, "max_val": 6.0}


@elementwise("Hardshrink", ": grad_output where abs(x) is above `lambd` or NaN, else 0.")
def hardshrink(input: Image, lambd: float = 0.5) -> None:
    """Return each element whose absolute value is above `lambd`, else 0; NaN stays.

    >>> hardshrink(np.array([-4., 0.5]))
    array([-4.,  0.])
    """


@elementwise("Softshrink", ": grad_output where abs(x) is above `lambd` or NaN, else 0.")
def softshrink(input: Image, lambd: float = 0.5) -> None:
    """Return each element moved by `lambd` towards 0, and 0 where it is nearer; NaN stays.

    >>> softshrink(np.array([-4., 0.5]))
    array([-3.5,  0. ])
    """


@elementwise("Threshold", ": grad_output where x is above `threshold` or NaN, else 0.")
def threshold(input: Image, threshold: float, value: float) -> None:
    """Return each element above `threshold`, else `value`; NaN stays.

    >>> threshold(np.array([-4., 0.5]), 0.1, 20.)
    array([20. ,  0.5])
    """


@elementwise("Hardsigmoid", ": grad_output / 6 inside of (-3, 3), else 0.")
def hardsigmoid(input: Image) -> None:
    """Return min(max(x + 3, 0), 6) / 6 of each element, for arrays of any shape.

    >>> hardsigmoid(np.array([-4., 0., 4.]))
    array([0. , 0.5, 1. ])
    """


@elementwise("ELU", "; at 0 the derivative is `alpha`, and the second one 0.")
def elu(input: Image, alpha: float = 1.0) -> None:
    """Return each element where it is positive, else `alpha` (exp(x) - 1).

    >>> elu(np.array([-1000., 2.]))
    array([-1.,  2.])
    """


@elementwise("CELU", "; at 0 the derivative is 1, and the second one 0.")
def celu(input: Image, alpha: float = 1.0) -> None:
    """Return each element where it is positive, else `alpha` (exp(x / `alpha`) - 1).

    >>> celu(np.array([-1000., 2.]), 0.5)
    array([-0.5,  2. ])
    """


@elementwise("SELU", "; at 0 the derivative is that of the negative side, and the second one 0.")
def selu(input: Image) -> None:
    """Return `elu` of alpha = 1.6732632423543772, times 1.0507009873554805.

    >>> selu(np.array([-1000., 2.]))
    array([-1.75809934,  2.10140197])
    """


@elementwise(
    "Softplus",
    ": grad_output times 1 / (1 + exp(-beta x)), or 1 above the threshold.",
    autocast=CUDA_FLOAT32,
)
def softplus(input: Image, beta: float = 1.0, threshold: float = 20.0) -> None:
    """Return log(1 + exp(beta x)) / beta of each element, x where beta x is above `threshold`.

    >>> softplus(np.array([-1000., 21.]))
    array([ 0., 21.])
    """


@elementwise("LogSigmoid", ": grad_output times 1 / (1 + exp(x)).")
def logsigmoid(input: Image) -> None:
    """Return -log(1 + exp(-x)) of each element, for arrays of any shape.

    >>> logsigmoid(np.array([-1000., 1000.]))
    array([-1000.,     0.])
    """


@elementwise("Softsign", ": grad_output over (1 + abs(x))^2.")
def softsign(input: Image) -> None:
    """Return x / (1 + abs(x)) of each element, for arrays of any shape.

    >>> softsign(np.array([-1., 3.]))
    array([-0.5 ,  0.75])
    """


@elementwise("Tanhshrink", ": grad_output times tanh(x)^2.")
def tanhshrink(input: Image) -> None:
    """Return x - tanh(x) of each element, for arrays of any shape.

    >>> tanhshrink(np.array([-1000., 0.]))
    array([-999.,    0.])
    """


@elementwise(
    "Mish", ": grad_output times t + x (1 - t^2) s, with t the tanh and s = 1 / (1 + exp(-x))."
)
def mish(input: Image) -> None:
    """Return x tanh(log(1 + exp(x))) of each element, for arrays of any shape.

    >>> mish(np.array([-1000., 0., 1000.]))
    array([  -0.,    0., 1000.])
    """


@elementwise("Sigmoid", ": grad_output times s (1 - s).")
def sigmoid(input: Image) -> None:
    """Return 1 / (1 + exp(-x)) of each element, for arrays of any shape.

    >>> sigmoid(np.array([0., -1000.]))
    array([0.5, 0. ])
    """


@elementwise("Tanh", ": grad_output times 1 - tanh(x)^2.")
def tanh(input: Image) -> None:
    """Return the hyperbolic tangent of each element, for arrays of any shape.

    >>> tanh(np.array([0., 1000.]))
    array([0., 1.])
    """


@define(view=views.along_dim, layouts=False, casts=True, layer="Softmax", autocast=CUDA_FLOAT32)
def softmax(input: Image, dim: int) -> None:
    """Return exp(x) over its sum along an axis; a shift of x changes nothing.

    >>> softmax(np.array([[1000., 1000.]]), -1)
    array([[0.5, 0.5]])
    """


@define(view=views.along_dim, layouts=False, casts=True, layer="LogSoftmax", autocast=CUDA_FLOAT32)
def log_softmax(input: Image, dim: int) -> None:
    """Return the logarithm of `softmax`, accurate also where the softmax is tiny.

    >>> log_softmax(np.array([[0., -5000.]]), 1)
    array([[    0., -5000.]])
    """


@define(view=views.along_dim, layouts=False)
def hardmax(input: Image, dim: int = -1) -> None:
    """Return 1 at the first maximum along an axis, else 0, as ONNX's Hardmax.

    The first NaN, if there is one, counts as the maximum. The function is piecewise constant: it
    has no derivatives, as those would be 0.

    >>> hardmax(np.array([[1., 3., 3.], [7., 0., 0.]]))
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """


@define(view=views.classes, layouts=False, layer="NLLLoss", autocast=FLOAT32)
def nll_loss(
    input: Image, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> None:
    """Return minus the logarithm of the probability of one class at every position.

    Parameters
    ----------
    input : (C,), (N, C) or (N, C, *spatial) array
        Logarithms of probabilities, as `log_softmax` returns them.
    target : array of int64
        Classes: (), (N,) or (N, *spatial).
    weight : (C,) array, optional
        Of each class.
    ignore_index : int
        Positions with this target are ignored.
    reduction : str
        "mean" over the weights of the targets, "sum", or "none".

    Returns
    -------
    array
        () or the shape of `target`. A mean over no target is NaN.

    >>> nll_loss(np.array([[-1., -2.], [-5., -1.]]), np.array([1, -100]))
    array(2.)
    """


nll_loss.derivatives(
    backward="""
        Return grad_input of `nll_loss`; 0 but at the targets.

        >>> nll_loss_backward(np.array(1.), np.array([[0., 0.]]), np.array([1]))
        array([[ 0., -1.]])
    """,
)


@define(view=views.classes, layouts=False, autocast=FLOAT32)
def soft_cross_entropy(
    input: Image,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> None:
    """Return the cross entropy of logits against probabilities of all classes.

    `cross_entropy` computes the same for such a target; this function also differentiates by it.

    Parameters
    ----------
    input : (C,), (N, C) or (N, C, *spatial) array
        Logits.
    target : array
        Probabilities, with the shape and dtype of `input`.
    weight : (C,) array, optional
        Of each class.
    reduction : str
        "mean" over all positions, "sum", or "none".
    label_smoothing : float
        Share of every target, 0 to 1, that all classes have.

    Returns
    -------
    array
        (), or the shape of `input` without the classes.

    >>> soft_cross_entropy(np.array([[0., 0.]]), np.array([[0.25, 0.75]]))
    array(0.69314718)
    """


soft_cross_entropy.derivatives(
    backward="""
        >>> x = np.array([[0., 0.]])
        >>> soft_cross_entropy_backward(np.array(1.), x, np.array([[0.25, 0.75]]))
        (array([[ 0.25, -0.25]]), array([[0.69314718, 0.69314718]]))
    """,
)


@define(
    kind=Classified,
    soft=soft_cross_entropy,
    view=views.classes,
    layouts=False,
    layer="CrossEntropyLoss",
    autocast=FLOAT32,
)
def cross_entropy(
    input: Image,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> None:
    """Return the cross entropy of logits against one class, or probabilities, at every position.

    Parameters
    ----------
    input : (C,), (N, C) or (N, C, *spatial) array
        Logits.
    target : array of int64, or array
        Classes: (), (N,) or (N, *spatial). Or probabilities, with the shape and dtype of `input`;
        `soft_cross_entropy_backward` returns the gradient of these too.
    weight : (C,) array, optional
        Of each class.
    ignore_index : int
        Positions with this target are ignored, in label smoothing too.
    reduction : str
        "mean" over the weights of the targets (of probabilities, over all positions), "sum", or
        "none".
    label_smoothing : float
        Share of every target, 0 to 1, that all classes have.

    Returns
    -------
    array
        () or the shape of `target`. A mean over no target is NaN.

    >>> cross_entropy(np.array([[0., 0.], [5., 1.]]), np.array([1, -100]))
    array(0.69314718)
    """


cross_entropy.derivatives(
    backward="""
        Return grad_input of `cross_entropy`; 0 where the target is ignored.

        >>> cross_entropy_backward(np.array(1.), np.array([[0., 0.]]), np.array([1]))
        array([[ 0.5, -0.5]])
    """,
)


DEFINITIONS = (
    *(relu, leaky_relu, prelu, elu, celu, selu, hardtanh, relu6, hardsigmoid, hardswish),
    *(silu, mish, gelu, hardshrink, softshrink, threshold),
    *(softplus, logsigmoid, softsign, tanhshrink, sigmoid, tanh),
    *(softmax, log_softmax, hardmax, nll_loss, cross_entropy, soft_cross_entropy),
)
FUNCTIONS = functions(*DEFINITIONS)
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS]
