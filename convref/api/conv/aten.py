"""Convolution of any rank and its gradients, with arguments in the order of ATen's operators."""

from __future__ import annotations

from typing import Any

from ...arrays import facts
from ...errors import ConvrefError, message
from ._problems import Settings, backward, forward, run


def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *,
    backend: str = "auto",
) -> Any:
    """Return the convolution of any rank; arguments in the order of ``aten::convolution``.

    The rank is read off `input`, which must have its N axis.

    Examples
    --------
    >>> x, w = np.arange(3.).reshape(1, 1, 3), np.ones((1, 1, 2))
    >>> convolution(x, w, None, [1], [0], [1], False, [0], 1)
    array([[[1., 3.]]])
    """
    settings = _aten(stride, padding, dilation, transposed, output_padding, groups)
    return forward(_rank("conv.fprop", input), (input, weight, bias), settings, backend)


def convolution_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the three gradients; arguments in the order of ``aten::convolution_backward``.

    Examples
    --------
    >>> x, w, dy = np.ones((1, 1, 3)), np.ones((1, 1, 2)), np.ones((1, 1, 2))
    >>> convolution_backward(dy, x, w, [1], [1], [0], [1], False, [0], 1, [True, False, False])
    (array([[[1., 2., 1.]]]), None, None)
    """
    settings = _aten(stride, padding, dilation, transposed, output_padding, groups)
    rank, arrays = _rank("conv.backward", input), (grad_output, input, weight)
    return backward(rank, arrays, bias_sizes, settings, output_mask, backend)


def convolution_double_backward(
    grad_grad_input: Any,
    grad_grad_weight: Any,
    grad_grad_bias: Any,
    grad_output: Any,
    weight: Any,
    input: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output, input and weight through the backward pass.

    Arguments stand in the order of ``aten::_convolution_double_backward`` (weight before input);
    the first three may be None.

    Examples
    --------
    >>> one = np.ones((1, 1, 1))
    >>> convolution_double_backward(
    ...     one, None, None, 2 * one, 3 * one, 5 * one, 1, 0, 1, False, 0, 1, (True, True, True)
    ... )
    (array([[[3.]]]), array([[[0.]]]), array([[[2.]]]))
    """
    settings = _aten(stride, padding, dilation, transposed, output_padding, groups)
    arrays = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    rank = _rank("conv.double_backward", input)
    return run("double_backward", rank, arrays, settings, backend, output_mask)


def _aten(
    stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> Settings:
    return Settings(stride, padding, dilation, groups, transposed, output_padding)


def _rank(where: str, input: Any) -> int:
    axes = len(facts(where, "input", input).shape)
    if axes not in (3, 4, 5):
        raise ConvrefError(
            message(where, f"input has {axes} axes, needs 3 to 5 (N is not missing)")
        )
    return axes - 2
