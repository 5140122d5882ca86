"""Layers that torch.nn does not have: a convolution with the norm and the activation after it."""

from typing import Any

import torch
from torch import Tensor

from ...errors import invalid, shorten
from ...ops import RANKS
from . import _layers
from . import functional as F
from ._folding import folded, in_one_kernel, may_fuse
from ._layers import ACTIVATIONS, MODULE, uses_batch

# Activations that backends compute in the kernel of a convolution, by the names of their layers.
_EPILOGUES = {_layers.ACTIVATIONS[n].__name__: n for n in ("relu", "silu", "gelu", "hardswish")}


def activation_of(given: Any, backend: str | None) -> Any:
    """Return a module from an activation's name, or the module that was given as it is."""
    if isinstance(given, torch.nn.Module):
        return given
    if given not in ACTIVATIONS:
        what = f"activation is {shorten(repr(given))}, needs a module or {', '.join(ACTIVATIONS)}"
        raise invalid("ConvBNAct", what)
    made = ACTIVATIONS[given]()
    made.backend = backend
    return made


def epilogue_of(activation: Any) -> str:
    """Return the name of an activation in `Backend.fused`; empty where there is no such name."""
    exact = getattr(activation, "approximate", "none") == "none"
    return _EPILOGUES.get(type(activation).__name__, "") if exact else ""


def _in_one(conv: Any, activation: Any, input: Tensor, weight: Tensor, bias: Any) -> Any:
    """Return the activated convolution by one kernel, None where there is none."""
    epilogue = epilogue_of(activation)
    if not epilogue or bias is None or not may_fuse(conv.backend, input.device.type):
        return None
    rank = len(conv.kernel_size)
    if conv.padding_mode != "zeros" or conv.transposed or input.ndim != rank + 2:
        return None
    geometry = (conv.stride, conv.padding, conv.dilation, conv.groups)
    config = F.conv_config(rank, input, weight, conv.backend, *geometry)
    return in_one_kernel(config, epilogue, input, weight, bias)


def _activated(conv: Any, activation: Any, input: Tensor, weight: Tensor, bias: Any) -> Any:
    """Return the activated convolution with the geometry of `conv` and other parameters."""
    y = _in_one(conv, activation, input, weight, bias)
    if y is not None:
        return y
    if not conv.transposed:
        return activation(conv._conv_forward(input, weight, bias))
    compute = getattr(F, f"conv_transpose{len(conv.kernel_size)}d")
    geometry = (conv.stride, conv.padding, conv.output_padding, conv.groups, conv.dilation)
    return activation(compute(input, weight, bias, *geometry, backend=conv.backend))


class ConvBNAct(torch.nn.Module):  # type: ignore[misc]
    """A convolution without bias, a batch norm, an activation: one of its ranks 1, 2 and 3.

    In training the three follow each other. In evaluation the norm is folded into the filter at
    each call, so that the parameters stay what they are and have gradients; `fuse` does it once.
    Hooks of the convolution and the norm run in training only.
    The state_dict has ``conv.weight`` and ``bn.*``.

    Parameters
    ----------
    in_channels, out_channels, kernel_size, stride, padding, dilation, groups
        As in torch.nn.Conv2d.
    activation : str or Module
        A name of `ACTIVATIONS`, or a module: torch.nn.Identity() for none.
    eps, momentum
        As in torch.nn.BatchNorm2d.
    padding_mode, device, dtype
        As in torch.nn.Conv2d.
    backend : str, optional
        As in `functional`; also that of the activation if it is a name.

    Examples
    --------
    >>> import torch
    >>> block = ConvBNAct2d(3, 8, 3, padding=1, activation="silu").eval()
    >>> block(torch.ones(1, 3, 5, 5)).shape
    torch.Size([1, 8, 5, 5])
    """

    rank: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        *,
        activation: Any = "relu",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        backend: str | None = None,
    ) -> None:
        super().__init__()
        conv = getattr(_layers, f"Conv{self.rank}d")
        norm = getattr(_layers, f"BatchNorm{self.rank}d")
        made: dict[str, Any] = {"device": device, "dtype": dtype, "backend": backend}
        geometry = (kernel_size, stride, padding, dilation, groups)
        filter = {"bias": False, "padding_mode": padding_mode}
        self.conv = conv(in_channels, out_channels, *geometry, **filter, **made)
        self.bn = norm(out_channels, eps, momentum, **made)
        self.act = activation_of(activation, backend)

    def forward(self, input: Tensor) -> Tensor:
        """Return activation(norm(convolution(input)))."""
        if uses_batch(self.bn):
            y: Tensor = self.act(self.bn(self.conv(input)))
        else:
            y = _activated(self.conv, self.act, input, *folded(self.conv, self.bn))
        return y


class ConvAct:
    """The result of `fuse`: a convolution, transposed or not, and the activation after it.

    A subclass of the convolution; the activation is its attribute ``act``.
    """

    act: Any

    def forward(self, input: Tensor, output_size: Any = None) -> Any:
        """Return activation(convolution(input))."""
        if output_size is not None:
            return self.act(super().forward(input, output_size))  # type: ignore[misc]
        return _activated(self, self.act, input, self.weight, self.bias)  # type: ignore[attr-defined]


def _of_rank(kind: type, name: str, *bases: Any, **more: Any) -> Any:
    made = {"__module__": MODULE, "__qualname__": name, "__doc__": kind.__doc__}
    return type(name, (kind, *bases), {**made, **more})


_MADE: dict[str, Any] = {}
for _rank in RANKS:
    _name = f"ConvBNAct{_rank}d"
    _MADE[_name] = _of_rank(ConvBNAct, _name, rank=_rank)
    for _kind in ("Conv", "ConvTranspose"):
        _name, _base = f"{_kind}Act{_rank}d", getattr(_layers, f"{_kind}{_rank}d")
        _MADE[_name] = _of_rank(ConvAct, _name, _base)
globals().update(_MADE)
OWN: tuple[Any, ...] = (ConvBNAct, ConvAct)  # layers that torch.nn does not have
__all__ = ["ACTIVATIONS", *_MADE]
