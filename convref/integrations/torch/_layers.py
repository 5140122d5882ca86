"""torch.nn's layers of a CNN with the method that computes replaced: the classes of `nn`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import torch
from torch import Tensor

from . import functional as F

RANKS = (1, 2, 3)
MODULE = f"{__package__}.nn"  # where the classes are found by name


class Layer:
    """What all layers share: the backend that computes, None for that of `use_backend`."""

    backend: str | None = None

    def __init__(self, *args: Any, backend: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.backend = backend

    def extra_repr(self) -> str:
        """Return torch.nn's text, and the backend if one is named."""
        told: str = super().extra_repr()  # type: ignore[misc]
        named = () if self.backend is None else (f"backend={self.backend!r}",)
        return ", ".join((*filter(None, [told]), *named))


def _layer(name: str, **methods: Callable[..., Any]) -> Any:
    """Return torch.nn's layer of that name, with the methods that compute replaced."""
    base = getattr(torch.nn, name)
    said = {
        "__module__": MODULE,
        "__qualname__": name,
        "__doc__": f"torch.nn.{name} computed by convref; ``backend`` is a keyword more.",
        "__signature__": _with_backend(signature(base)),
    }
    return type(name, (Layer, base), {**said, **methods})


def _with_backend(of: Signature) -> Signature:
    backend = Parameter("backend", Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    listed = [*of.parameters.values()]
    place = len(listed) - any(p.kind is Parameter.VAR_KEYWORD for p in listed)
    return of.replace(parameters=[*listed[:place], backend, *listed[place:]])


def _told(name: str, function: str, *attributes: str) -> Any:
    """Return a layer whose output is a function of the input and of its own attributes."""
    compute = getattr(F, function)

    def forward(self: Any, input: Tensor) -> Any:
        arguments = [getattr(self, attribute) for attribute in attributes]
        return compute(input, *arguments, backend=self.backend)

    return _layer(name, forward=forward)


def _of_each_rank(make: Callable[..., Any], *attributes: str) -> tuple[Any, ...]:
    return tuple(make(rank, *attributes) for rank in RANKS)


def _conv(rank: int) -> Any:
    compute = getattr(F, f"conv{rank}d")

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            sides = self._reversed_padding_repeated_twice
            input = torch.nn.functional.pad(input, sides, mode=self.padding_mode)
            padding = 0
        geometry = (self.stride, padding, self.dilation, self.groups)
        y: Tensor = compute(input, weight, bias, *geometry, backend=self.backend)
        return y

    return _layer(f"Conv{rank}d", _conv_forward=_conv_forward)


def _conv_transpose(rank: int) -> Any:
    compute = getattr(F, f"conv_transpose{rank}d")

    def forward(self: Any, input: Tensor, output_size: Any = None) -> Tensor:
        steps = (self.stride, self.padding, self.kernel_size)
        extra = self._output_padding(input, output_size, *steps, rank, self.dilation)
        geometry = (self.stride, self.padding, extra, self.groups, self.dilation)
        y: Tensor = compute(input, self.weight, self.bias, *geometry, backend=self.backend)
        return y

    return _layer(f"ConvTranspose{rank}d", forward=forward)


def _pool(kind: str, function: str) -> Callable[..., Any]:
    def make(rank: int, *attributes: str) -> Any:
        if (kind, rank) == ("AvgPool", 1):
            attributes = attributes[:-1]  # torch.nn.AvgPool1d has no divisor_override
        return _told(f"{kind}{rank}d", f"{function}{rank}d", *attributes)

    return make


def _max_unpool(rank: int) -> Any:
    compute = getattr(F, f"max_unpool{rank}d")

    def forward(self: Any, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        windows = (self.kernel_size, self.stride, self.padding, output_size)
        y: Tensor = compute(input, indices, *windows, backend=self.backend)
        return y

    return _layer(f"MaxUnpool{rank}d", forward=forward)


def uses_batch(norm: Any) -> bool:
    """Return whether a batch norm normalises with the statistics of the batch it is given."""
    return bool(norm.training or norm.running_mean is None)


def _batch_norm(rank: int) -> Any:
    def forward(self: Any, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        tracked = self.training and self.track_running_stats and self.running_mean is not None
        if tracked and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if tracked and self.momentum is None:
            return _averaging(self, input)
        running = (self.running_mean, self.running_var)
        if self.training and not tracked:
            running = (None, None)
        momentum = 0.0 if self.momentum is None else self.momentum
        how = (uses_batch(self), momentum, self.eps)
        return F.batch_norm(input, *running, self.weight, self.bias, *how, backend=self.backend)

    return _layer(f"BatchNorm{rank}d", forward=forward)


def _averaging(self: Any, input: Tensor) -> Tensor:
    """Return the norm with running statistics that are the mean over all batches so far.

    The share of a batch stays a tensor: as a number it would wait for the device at every step.
    """
    fresh = (self.running_mean.clone(), self.running_var.clone())
    how = (True, 1.0, self.eps)
    y = F.batch_norm(input, *fresh, self.weight, self.bias, *how, backend=self.backend)
    with torch.no_grad():
        for running, new in zip((self.running_mean, self.running_var), fresh):
            running.lerp_(new, self.num_batches_tracked.to(running.dtype).reciprocal())
    return y


def _cross_entropy_forward(self: Any, input: Tensor, target: Tensor) -> Tensor:
    how = (self.weight, self.ignore_index, self.reduction, self.label_smoothing)
    return F.cross_entropy(input, target, *how, backend=self.backend)


_WINDOW = ("kernel_size", "stride", "padding")
_MAX = (*_WINDOW, "dilation", "ceil_mode", "return_indices")
_AVG = (*_WINDOW, "ceil_mode", "count_include_pad", "divisor_override")
_LP = ("norm_type", "kernel_size", "stride", "ceil_mode")
_ADAPTIVE_MAX = ("output_size", "return_indices")
_SAMPLING = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor")

Conv1d, Conv2d, Conv3d = _of_each_rank(_conv)
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = _of_each_rank(_conv_transpose)
MaxPool1d, MaxPool2d, MaxPool3d = _of_each_rank(_pool("MaxPool", "max_pool"), *_MAX)
AvgPool1d, AvgPool2d, AvgPool3d = _of_each_rank(_pool("AvgPool", "avg_pool"), *_AVG)
LPPool1d, LPPool2d, LPPool3d = _of_each_rank(_pool("LPPool", "lp_pool"), *_LP)
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = _of_each_rank(
    _pool("AdaptiveAvgPool", "adaptive_avg_pool"), "output_size"
)
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = _of_each_rank(
    _pool("AdaptiveMaxPool", "adaptive_max_pool"), *_ADAPTIVE_MAX
)
MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = _of_each_rank(_max_unpool)
BatchNorm1d, BatchNorm2d, BatchNorm3d = _of_each_rank(_batch_norm)
GroupNorm = _told("GroupNorm", "group_norm", "num_groups", "weight", "bias", "eps")
LayerNorm = _told("LayerNorm", "layer_norm", "normalized_shape", "weight", "bias", "eps")
Upsample = _told("Upsample", "interpolate", *_SAMPLING)
UpsamplingNearest2d = _told("UpsamplingNearest2d", "interpolate", *_SAMPLING)
UpsamplingBilinear2d = _told("UpsamplingBilinear2d", "interpolate", *_SAMPLING)
ReLU = _told("ReLU", "relu", "inplace")
LeakyReLU = _told("LeakyReLU", "leaky_relu", "negative_slope", "inplace")
SiLU = _told("SiLU", "silu", "inplace")
GELU = _told("GELU", "gelu", "approximate")
Hardswish = _told("Hardswish", "hardswish", "inplace")
Sigmoid = _told("Sigmoid", "sigmoid")
Tanh = _told("Tanh", "tanh")
Softmax = _told("Softmax", "softmax", "dim")
LogSoftmax = _told("LogSoftmax", "log_softmax", "dim")
CrossEntropyLoss = _layer("CrossEntropyLoss", forward=_cross_entropy_forward)

# torch.nn's layer -> ours
LAYERS: dict[Any, Any] = {
    getattr(torch.nn, name): value
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, Layer) and value is not Layer
}

__all__ = [layer.__name__ for layer in LAYERS.values()]
