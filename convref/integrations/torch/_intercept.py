"""Compute the functions of torch.nn.functional that a `forward` of another package calls.

A layer keeps its own forward. For the time of a call, a `TorchFunctionMode` computes those of its
functions that convref has, also in the modules inside the layer. `torch.compile` and
`torch.export` trace through the mode.
"""

from collections.abc import Iterator
from functools import cache, partial
from inspect import isclass, iscode, isfunction, signature, unwrap
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import functional as F
from ._layers import Layer

_OTHER_ORDER = ("batch_norm", "instance_norm", "layer_norm", "group_norm")  # of torch.batch_norm
_DIFFERENT = {f"lp_pool{rank}d" for rank in (1, 2, 3)}  # PyTorch sums powers of signed values


def _functions() -> Iterator[tuple[Any, Any]]:
    """Yield each function that a mode may be called with, and convref's."""
    for name in set(F.__all__) - _DIFFERENT:
        ours = getattr(F, name)
        yield getattr(torch.nn.functional, name), ours
        if hasattr(torch, name) and name not in _OTHER_ORDER:
            yield getattr(torch, name), ours
        if hasattr(torch.Tensor, name):
            yield getattr(torch.Tensor, name), ours
        if indices := getattr(torch.nn.functional, f"{name}_with_indices", None):
            yield indices, partial(ours, return_indices=True)


# PyTorch's function -> convref's, and the names of its parameters
_TAKEN = {theirs: (ours, frozenset(signature(ours).parameters)) for theirs, ours in _functions()}
_NAMES = set(F.__all__) - _DIFFERENT


class _Mode(TorchFunctionMode):  # type: ignore[misc]
    """Computes by `backend` the functions that convref has."""

    def __init__(self, backend: str | None) -> None:
        super().__init__()
        self.backend = backend

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call convref's function if there is one that takes these arguments, else PyTorch's."""
        kwargs = kwargs or {}
        if func not in _TAKEN:
            return func(*args, **kwargs)
        ours, parameters = _TAKEN[func]
        given = {name: value for name, value in kwargs.items() if name in parameters}
        others = {name for name, value in kwargs.items() if value is not None} - {*given}
        if others - {"_stacklevel"}:
            return func(*args, **kwargs)
        return ours(*args, **given, backend=self.backend)


class Intercepted(Layer):
    """A layer with a forward of its own, whose functions convref computes."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the layer's own forward returns."""
        with _Mode(self.backend):
            return super().forward(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Name the layer's own class: the generated one is no attribute of a module."""
        return _empty, (type(self).replaces,), self.__getstate__()


def _empty(kind: Any) -> Any:
    return object.__new__(intercepting_class(kind))


@cache
def intercepting_class(kind: Any) -> Any:
    """Return the subclass of a layer's class that computes its functions by convref."""
    named = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(kind.__name__, (Intercepted, kind), {**named, "replaces": kind})


def functions_called(module: Any) -> list[str]:
    """Return the names of convref's functions that occur in a layer's forward.

    Also in the methods and the functions that it names, but not in those of PyTorch.
    """
    found: set[str] = set()
    waiting, seen = [type(module).forward], set()
    while waiting:
        function = unwrap(waiting.pop())
        if function in seen or not isfunction(function):
            continue
        seen.add(function)
        for name in _names(function.__code__):
            if name in _NAMES and not hasattr(module, name):
                found.add(name)
            waiting += [vars(base)[name] for base in type(module).__mro__ if name in vars(base)]
            used: Any = function.__globals__.get(name)
            if isclass(used) and issubclass(used, torch.autograd.Function):
                used = vars(used)["forward"].__func__
            if isfunction(used) and not used.__module__.startswith("torch."):
                waiting.append(used)
    return sorted(found)


def _names(code: Any) -> set[str]:
    """Return the names that code refers to, with those of the functions inside it."""
    return {*code.co_names}.union(*map(_names, filter(iscode, code.co_consts)))
