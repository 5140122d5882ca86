"""Normalisation and its derivatives, with PyTorch's argument names and order."""

from .batch import (
    batch_norm,
    batch_norm_backward,
    batch_norm_double_backward,
    batch_norm_jvp,
    batch_norm_statistics,
)
from .group import (
    group_norm,
    group_norm_backward,
    group_norm_double_backward,
    group_norm_jvp,
    instance_norm,
)
from .layer import (
    layer_norm,
    layer_norm_backward,
    layer_norm_double_backward,
    layer_norm_jvp,
)

__all__ = [
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_double_backward",
    "batch_norm_jvp",
    "batch_norm_statistics",
    "group_norm",
    "group_norm_backward",
    "group_norm_double_backward",
    "group_norm_jvp",
    "instance_norm",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_double_backward",
    "layer_norm_jvp",
]
