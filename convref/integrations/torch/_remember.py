"""Layers remember for which inputs "auto" is PyTorch: later calls on such are torch.nn's."""

from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from . import _native
from ._backend import current

TensorGuards: Any = None  # private, so it may go: `_check` then returns None
with suppress(AttributeError):
    TensorGuards = attrgetter("_C._dynamo.guards.TensorGuards")(torch)

MAX_KINDS = 8  # of inputs, that a layer remembers
MAX_SHAPES = 4096
_checks: dict[Any, list[Callable[[Tensor], bool]]] = {}  # by shape, for all layers
_OWN = ("weight", "bias")
_WEIGHT = "((w := self._parameters['weight']) is not None and w.data_ptr())"
_NAMES: dict[str, Any] = {
    "Tensor": Tensor,
    "current": current,
    "forward_ad": forward_ad,
    "is_dynamo_compiling": is_dynamo_compiling,
}
# A method with the parameters of `method`, which torch.fx reads from its code.
_METHOD = """\
def make(method, native):
  def {name}({given}):
    if (
      is_dynamo_compiling()
      or type({x}) is not Tensor
      or (self.backend or current()) != "auto"
      or forward_ad._current_level >= 0
      {others}
    ):
      return method({given})
    for known in self._known:
      if known[0]({x}){same}:
        return native(self, {x}) if known[2] is True else known[2]({x})
    return run_and_remember(method, self, {x})
  return {name}
"""


def remember_native(
    method: Callable[..., Any], native: Callable[..., Any], weight: bool = False
) -> Any:
    """Return a method of a layer that calls `native`, torch.nn's, where it computes the same.

    If ATen computes every op of a call of `method` and all derivatives of it, by convref's rules,
    then so it does for all tensors that differ in their values only, until a setting changes.
    Both take the layer and its input; a call with more arguments that are not None is `method`'s.
    With `weight`, they read the layer's own, whose storage is compared.
    """
    _, x, *others = signature(method).parameters
    texts = {
        "name": method.__name__,
        "given": ", ".join(("self", x, *others)),
        "x": x,
        "others": " ".join(f"or {name} is not None" for name in others),
        "same": f" and known[1] == {_WEIGHT}" if weight else "",
    }
    made = {**_NAMES, "run_and_remember": run_and_remember}
    exec(compile(_METHOD.format(**texts), f"<convref.{method.__name__}>", "exec"), made)
    found: Any = made["make"](method, native)
    found.__defaults__, found.__doc__ = method.__defaults__, method.__doc__
    found.__signature__ = signature(method)
    return found


def run_and_remember(method: Callable[..., Any], layer: Any, x: Tensor) -> Any:
    """Return the result of a method, and remember the input if PyTorch computes it."""
    with _native.decisions() as native:
        found = method(layer, x)
    stored = layer._parameters
    own = all(getattr(layer, name, None) is stored.get(name) for name in _OWN)
    plain = all(each is True for each in native) or (len(native) == 1 and native[0])
    may = native and plain and own and "replaces" in vars(type(layer))
    if may and (check := _check(x)) is not None:
        weight = stored.get("weight")
        new = check, weight is not None and weight.data_ptr(), plain
        vars(layer)["_known"] = (new, *layer._known[: MAX_KINDS - 1])
    return found


def _check(x: Tensor) -> Callable[[Tensor], bool] | None:
    """Return what compares a tensor with x, all but values, and the modes that are entered.

    None if this version of PyTorch has no such check.
    """
    if len(_checks) >= MAX_SHAPES:
        _checks.clear()
    kept = _checks.setdefault(x.shape, [])
    for check in kept:
        if check(x):
            return check
    sizes, strides = [[*x.shape]], [[*x.stride()]]
    with suppress(AttributeError, TypeError, ValueError, RuntimeError):
        new = TensorGuards(x, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        if new(x) is True:
            kept.append(new)
            return kept[-1]
    return None
