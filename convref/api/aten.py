"""Convolution of any rank and its gradients, with arguments in the order of ATen's operators."""

from __future__ import annotations

from typing import Any

from .conv import CONV
from .generate import names


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
    geometry = stride, padding, dilation, groups, transposed, output_padding
    settings = *geometry, None, "ieee", False, None
    return CONV.compute("fprop", (input, weight, bias), settings, None, backend)[0]


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
    geometry = stride, padding, dilation, groups, transposed, output_padding
    settings = *geometry, None, "ieee", False, bias_sizes
    arrays = grad_output, input, weight
    return CONV.compute("backward", arrays, settings, None, backend, mask=output_mask)


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
    geometry = stride, padding, dilation, groups, transposed, output_padding
    settings = *geometry, None, "ieee", False, None
    arrays = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    return CONV.compute("double_backward", arrays, settings, None, backend, mask=output_mask)


FUNCTIONS = names((convolution, convolution_backward, convolution_double_backward))
__all__ = [*FUNCTIONS]
