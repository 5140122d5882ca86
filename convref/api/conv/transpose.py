"""Transposed convolution of rank 1 to 3, with PyTorch's argument names and order."""

from __future__ import annotations

from typing import Any

from ._problems import Settings, forward


def conv_transpose1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 1d transposed convolution with `weight` (C, K/G, S); see `conv_transpose2d`.

    Examples
    --------
    >>> conv_transpose1d(np.ones((1, 1, 2)), np.array([[[1., 10.]]]), stride=2)
    array([[[ 1., 10.,  1., 10.]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, True, output_padding, layout, weight_layout, math, flip
    )
    return forward(1, (input, weight, bias), settings, backend)


def conv_transpose2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 2d transposed convolution: the adjoint of `conv2d` in its input, plus `bias`.

    Parameters
    ----------
    input : (N, C, H, W) array, or (C, H, W)
    weight : (C, K/G, R, S) array
        HWOI with layout="NHWC".
    bias : (K,) array, optional
    stride, dilation, padding, groups, layout, weight_layout, math, flip, backend
        As in `conv2d`; of the padding words only "valid".
    output_padding : int or (int, int)
        Extra output at the high end, in [0, max(stride, dilation)).

    Returns
    -------
    (N, K, P, Q) array
        P = (H - 1) * stride + (R - 1) * dilation + 1 + output_padding - lo - hi.

    Raises
    ------
    ConvrefError
        If an argument is wrong; the text names it, what it is and what it needs.
    UnsupportedError
        If the named backend cannot do this call; with its reason.

    Examples
    --------
    >>> conv_transpose2d(np.ones((1, 1, 1, 1)), np.ones((1, 1, 2, 2)), output_padding=1, stride=2)
    array([[[[1., 1., 0.],
             [1., 1., 0.],
             [0., 0., 0.]]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, True, output_padding, layout, weight_layout, math, flip
    )
    return forward(2, (input, weight, bias), settings, backend)


def conv_transpose3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCDHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> Any:
    """Return the 3d transposed convolution with `weight` (C, K/G, T, R, S); see `conv_transpose2d`.

    Examples
    --------
    >>> conv_transpose3d(np.ones((1, 1, 1, 1, 1)), np.ones((1, 1, 1, 1, 2)), padding=(0, 0, -1))
    array([[[[[0., 1., 1., 0.]]]]])
    """
    settings = Settings(
        stride, padding, dilation, groups, True, output_padding, layout, weight_layout, math, flip
    )
    return forward(3, (input, weight, bias), settings, backend)
