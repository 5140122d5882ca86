"""A convolution, a batch norm with fixed statistics and an activation as one convolution.

With s = w_bn / sqrt(var + eps), the norm of conv(x, w) + b is conv(x, w s) + (b - mean) s + b_bn.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ... import dispatch
from ...errors import MissingExtraError
from ._autograd import is_plain, is_recorded
from ._backend import backend_or_default
from ._kernels import PassConfig, call_of, formats

MAX_PLANS = 1024
_plans: OrderedDict[Any, Any] = OrderedDict()
_Kernel = Callable[..., Tensor]


def folded(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the one convolution that `conv` and then `norm` are.

    The convolution may be transposed; the norm is a batch norm of its outputs, with the statistics
    that it has, not those of a batch. Both are computed in float32 at least, and have the dtype of
    the convolution's weight.
    """
    dtype = conv.weight.dtype
    wide = torch.promote_types(dtype, torch.float32)
    scale = (norm.running_var.to(wide) + norm.eps).rsqrt()  # (K,)
    if norm.weight is not None:
        scale = scale * norm.weight.to(wide)
    mean = norm.running_mean.to(wide)
    shift = -mean if conv.bias is None else conv.bias.to(wide) - mean
    bias = shift * scale if norm.bias is None else shift * scale + norm.bias.to(wide)
    weight = conv.weight.to(wide)
    if conv.transposed:  # (C, K / G, *filter): the filters of a group are its rows
        grouped = weight.unflatten(0, (conv.groups, -1))  # (G, C / G, K / G, *filter)
        scales = scale.view(conv.groups, 1, -1, *(1,) * (weight.ndim - 2))
        weight = (grouped * scales).flatten(0, 1)
    else:
        weight = weight * scale.view(-1, *(1,) * (weight.ndim - 1))
    return weight.to(dtype), bias.to(dtype)


def may_fuse(backend: str | None, device: str) -> bool:
    """Return whether a backend that a call may end up with has a kernel with an activation."""
    return not torch.compiler.is_compiling() and _has_fused(backend_or_default(backend), device)


@cache
def _has_fused(backend: str, device: str) -> bool:
    candidates: tuple[str, ...] = (backend,)
    if backend == "auto":
        listed = dispatch.AUTO.get(("torch", device), ())
        candidates = tuple(name for name in listed if name in dispatch.names())
    for name in candidates:
        with suppress(MissingExtraError):  # the call itself raises it
            if hasattr(dispatch.load(name), "fused"):
                return True
    return False


def in_one_kernel(
    config: PassConfig, activation: str, x: Tensor, weight: Tensor, bias: Tensor
) -> Tensor | None:
    """Return the activation of a convolution, or None unless the chosen backend fuses the two.

    It does where nothing is recorded for derivatives, cast or batched: a call of the backend's
    own, ``fused(call, activation)``.
    """
    operands = (x, weight, bias)
    if (
        torch.is_autocast_enabled(x.device.type)
        or torch._C._functorch.peek_interpreter_stack() is not None
        or is_recorded(operands)
        or not is_plain("fprop", operands)
    ):
        return None
    layouts = [(t.shape, t.stride(), t.dtype, t.device) for t in operands]
    key = (config.attributes, config.backend, activation, *layouts)
    if key not in _plans:
        _plans[key] = _planned(config, activation, operands)
        if len(_plans) > MAX_PLANS:
            _plans.popitem(last=False)
    kernel, layout = _plans[key]
    return None if kernel is None else kernel(*operands).contiguous(memory_format=layout)


def _planned(
    config: PassConfig, activation: str, operands: tuple[Tensor, ...]
) -> tuple[_Kernel | None, torch.memory_format]:
    call = call_of(config, operands)
    fused = getattr(dispatch.plan(call, config.backend, "torch").backend, "fused", None)
    (layout, *_) = formats(config.row, call.problem, operands)
    return fused(call, activation) if fused else None, layout
