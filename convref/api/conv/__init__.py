"""Convolution of rank 1 to 3, its transposed form and their derivatives, as PyTorch calls them."""

from .aten import convolution, convolution_backward, convolution_double_backward
from .backward import conv1d_backward, conv2d_backward, conv3d_backward
from .forward import conv1d, conv2d, conv3d
from .jvp import conv1d_jvp, conv2d_jvp, conv3d_jvp
from .transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d

__all__ = [
    "conv1d",
    "conv1d_backward",
    "conv1d_jvp",
    "conv2d",
    "conv2d_backward",
    "conv2d_jvp",
    "conv3d",
    "conv3d_backward",
    "conv3d_jvp",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "convolution_backward",
    "convolution_double_backward",
]
