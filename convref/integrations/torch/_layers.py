"""torch.nn's layers of a CNN with the method that computes replaced: the classes of `nn`.

A definition of `convref.api` names its layer. The layer's forward calls the function of
`functional`, with the layer's own attributes for all arguments that forward does not take.
"""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from itertools import product
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.ao.quantization.fuser_method_mappings import (
    _DEFAULT_OP_LIST_TO_FUSER_METHOD as _FUSERS,
)

from ...api import views
from ...api.generate import METHOD, function
from ...errors import UnsupportedError, message
from ...ops import RANKS
from . import functional as F
from ._backend import check_backend
from ._native import as_node, batch_norm_of_torch
from ._remember import remember_native

MODULE = f"{__package__}.nn"  # where the classes are found by name
_SUBCLASSES = {"Upsample": ("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d")}
_PARAMETERS = ("weight", "bias")


class Layer:
    """The base of all layers: the backend that computes, None for that of `use_backend`."""

    backend: str | None = None
    replaces: type  # the class that a layer has before `convert` and after `revert`
    _known: tuple[Any, ...] = ()  # inputs for which torch.nn computes the same: `remember_native`

    def __init__(self, *args: Any, backend: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if backend is not None:
            check_backend(type(self).__name__, backend)
        self.backend = backend

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self).pop("_known", None)  # settings may have changed
        super().__setattr__(name, value)

    def __getstate__(self) -> Any:
        return {name: value for name, value in vars(self).items() if name != "_known"}

    def __prepare_scriptable__(self) -> Any:
        what = f"{type(self).__name__} has no source to compile, needs revert(model) first"
        raise UnsupportedError(message("torch.jit.script", what))

    @property
    def qconfig(self) -> Any:
        """Raise: these layers are not quantized."""
        raise AttributeError("qconfig")

    @qconfig.setter
    def qconfig(self, value: object) -> None:
        if value is not None:
            _refuse_quantization(self)

    def _get_name(self) -> str:
        return f"convref.{type(self).__name__}"

    def extra_repr(self) -> str:
        """Return torch.nn's text, and the backend if one is named."""
        text: str = super().extra_repr()  # type: ignore[misc]
        named = () if self.backend is None else (f"backend={self.backend!r}",)
        return ", ".join((*filter(None, [text]), *named))


def _refuse_quantization(layer: Layer) -> NoReturn:
    what = f"{type(layer).__name__} of convref has no quantized form, needs revert(model) first"
    raise UnsupportedError(message("torch.ao.quantization", what))


def _refuse_fusion(_: bool, *layers: Any) -> NoReturn:
    _refuse_quantization(next(layer for layer in layers if isinstance(layer, Layer)))


def _layer(name: str, **methods: Callable[..., Any]) -> Any:
    """Return torch.nn's layer of that name, with the methods that compute replaced."""
    base = getattr(torch.nn, name)
    attributes = {
        "__module__": MODULE,
        "__qualname__": name,
        "__doc__": f"torch.nn.{name} computed by convref; ``backend`` is a keyword more.",
        "__signature__": _with_backend(signature(base)),
        "replaces": base,
    }
    return type(name, (Layer, base), {**attributes, **methods})


def _with_backend(of: Signature) -> Signature:
    backend = Parameter("backend", Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    listed = [*of.parameters.values()]
    place = len(listed) - any(p.kind is Parameter.VAR_KEYWORD for p in listed)
    return of.replace(parameters=[*listed[:place], backend, *listed[place:]])


def _computing(name: str, compute: Callable[..., Any]) -> Any:
    """Return a layer whose forward is a function of its arguments and the layer's attributes."""
    base = getattr(torch.nn, name)
    parameters = [*signature(base.forward).parameters.values()]
    own = {p for kind in base.__mro__[:-1] for p in signature(kind.__init__).parameters}
    sources = dict.fromkeys((*own, *_PARAMETERS, "backend"), "self.")
    sources |= dict.fromkeys((p.name for p in parameters), "")
    _, *taken = (p for p in signature(compute).parameters if p in sources or p == "input")
    given = [parameters[1].name, *(f"{p}={sources[p]}{p}" for p in taken)]  # RMSNorm's is x
    names = ", ".join(p.name for p in parameters)
    tensor = parameters[1].name
    call = f"{', '.join(given)}) if isinstance({tensor}, Tensor) else as_node({names}"
    doc = f"Return torch.nn.{name}'s output, computed by convref."
    options: dict[str, Any] = {"doc": doc, "returns": "Any", "module": globals()}
    forward = function("forward", parameters, call, compute, source=METHOD, **options)
    return _layer(name, forward=remember_native(forward, base.forward, "weight" in taken))


def _conv(rank: int) -> Any:
    compute = getattr(F, f"conv{rank}d")

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            sides = self._reversed_padding_repeated_twice
            input = torch.nn.functional.pad(input, sides, mode=self.padding_mode)
            padding = 0
        geometry = (self.stride, padding, self.dilation, self.groups)
        return compute(input, weight, bias, *geometry, backend=self.backend)

    base = getattr(torch.nn, f"Conv{rank}d")
    theirs = getattr(torch.nn.functional, f"conv{rank}d")

    def forward(self: Any, input: Tensor) -> Any:
        return base.forward(self, input) if isinstance(input, Tensor) else as_node(self, input)

    def native(self: Any, input: Tensor) -> Any:
        if self.padding_mode != "zeros" or "_conv_forward" in vars(self):
            return forward(self, input)
        stored = self._parameters  # attributes of a module take 0.2 us each
        geometry = (self.stride, self.padding, self.dilation, self.groups)
        return theirs(input, stored["weight"], stored["bias"], *geometry)

    methods = {"forward": remember_native(forward, native, True), "_conv_forward": _conv_forward}
    return _layer(f"Conv{rank}d", **methods)


def _conv_transpose(rank: int) -> Any:
    compute = getattr(F, f"conv_transpose{rank}d")

    def forward(self: Any, input: Tensor, output_size: Any = None) -> Tensor:
        if not isinstance(input, Tensor):
            return as_node(self, input, output_size)
        steps = (self.stride, self.padding, self.kernel_size)
        extra = self._output_padding(input, output_size, *steps, rank, self.dilation)
        geometry = (self.stride, self.padding, extra, self.groups, self.dilation)
        return compute(input, self.weight, self.bias, *geometry, backend=self.backend)

    native = getattr(torch.nn, f"ConvTranspose{rank}d").forward
    return _layer(f"ConvTranspose{rank}d", forward=remember_native(forward, native, True))


def uses_batch(norm: Any) -> bool:
    """Return whether a batch norm normalises with the statistics of the batch it is given."""
    return bool(norm.training or norm.running_mean is None)


def _batch_norm(rank: int) -> Any:
    def forward(self: Any, input: Tensor) -> Tensor:
        if not isinstance(input, Tensor):
            return as_node(self, input)
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
        settings = (uses_batch(self), momentum, self.eps)
        affine = (self.weight, self.bias)
        return F.batch_norm(input, *running, *affine, *settings, backend=self.backend)

    def native(self: Any, input: Tensor) -> Tensor:
        stored, buffers = self._parameters, self._buffers  # attributes take 0.2 us each
        mean, count = buffers["running_mean"], buffers["num_batches_tracked"]
        if mean is None or count is None or self.momentum is None or not self.track_running_stats:
            return forward(self, input)
        if self.training:
            count.add_(1)
        tensors = (input, stored["weight"], stored["bias"], mean, buffers["running_var"])
        return batch_norm_of_torch(*tensors, self.training, self.momentum, self.eps)

    return _layer(f"BatchNorm{rank}d", forward=remember_native(forward, native, True))


def _averaging(self: Any, input: Tensor) -> Tensor:
    """Return the norm with running statistics that are the mean over all batches so far.

    The share of a batch stays a tensor: as a number it would wait for the device at every step.
    """
    fresh = (self.running_mean.clone(), self.running_var.clone())
    settings = (True, 1.0, self.eps)
    y = F.batch_norm(input, *fresh, self.weight, self.bias, *settings, backend=self.backend)
    with torch.no_grad():
        for running, new in zip((self.running_mean, self.running_var), fresh):
            running.lerp_(new, self.num_batches_tracked.to(running.dtype).reciprocal())
    return y


def _instance_norm(rank: int) -> Any:
    base = getattr(torch.nn, f"InstanceNorm{rank}d")

    def forward(self: Any, input: Tensor) -> Tensor:
        return base.forward(self, input) if isinstance(input, Tensor) else as_node(self, input)

    def _apply_instance_norm(self: Any, input: Tensor) -> Tensor:
        tensors = (self.running_mean, self.running_var, self.weight, self.bias)
        batch = self.training or not self.track_running_stats
        settings = (batch, self.momentum or 0.0, self.eps)
        return F.instance_norm(input, *tensors, *settings, backend=self.backend)

    computing = {"forward": forward, "_apply_instance_norm": _apply_instance_norm}
    return _layer(f"InstanceNorm{rank}d", **computing)


def _layers_of(definition: Any) -> dict[str, Any]:
    """Return the layers of a definition by the names of its functions."""
    if not definition.ranks:
        named = _SUBCLASSES.get(definition.layer, (definition.layer,))
        return {name: _computing(name, getattr(F, definition.name)) for name in named}
    stems = definition.layer, definition.name
    ranked = [tuple(f"{stem}{rank}d" for stem in stems) for rank in definition.ranks]
    return {layer: _computing(layer, getattr(F, name)) for layer, name in ranked}


_MADE: dict[str, Any] = {
    layer.__name__: layer
    for make in (_conv, _conv_transpose, _batch_norm, _instance_norm)
    for layer in map(make, RANKS)
}
for _definition in F.OF_TORCH:
    _MADE |= _layers_of(_definition)
globals().update(_MADE)
__all__ = [*_MADE]

# torch.nn's layer -> convref's
LAYERS: dict[Any, Any] = {getattr(torch.nn, name): layer for name, layer in _MADE.items()}
# an activation's name -> its layer
ACTIVATIONS: dict[str, Any] = {
    d.name: _MADE[d.layer] for d in F.OF_TORCH if d.view is views.elements
}

# `fuse_modules` looks its methods up by classes, and asserts that there is one.
for _kinds in tuple(_FUSERS):
    for _mixed in product(*({kind, LAYERS.get(kind, kind)} for kind in _kinds)):
        _FUSERS.setdefault(_mixed, _refuse_fusion)
