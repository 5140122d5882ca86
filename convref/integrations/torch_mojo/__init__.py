"""What torch-mojo-backend lacks to train CNNs: gradients of convolutions, pools and norms.

Examples
--------
::

    from convref.integrations import torch_mojo

    torch_mojo.install()
    step = torch.compile(train_step, backend=torch_mojo_backend.mojo_backend)
"""

from collections.abc import Callable
from functools import partial, reduce
from importlib.util import find_spec
from typing import Any

from ... import dispatch
from ...errors import UnsupportedError, message

__all__ = ["install", "uninstall"]

_undo: list[Callable[[], Any]] = []

# What its device computes, by the backward pass that autograd calls.
_BACKWARD = {
    "convolution_backward": "convolution",
    "max_pool2d_with_indices_backward": "max_pool2d_with_indices",
    "avg_pool2d_backward": "avg_pool2d",
    "_adaptive_avg_pool2d_backward": "_adaptive_avg_pool2d",
    "native_batch_norm_backward": "native_batch_norm",
    "native_group_norm_backward": "native_group_norm",
    "threshold_backward": "relu",
    "sigmoid_backward": "sigmoid",
    "silu_backward": "silu",
}


def install() -> None:
    """Add the missing passes; a second call does nothing.

    The compile backend computes them by the custom ops of MAX. The eager device computes those of
    which it has no kernel on the CPU, if `register_mojo_devices` was called before.

    Raises
    ------
    UnsupportedError
        If torch-mojo-backend, MAX or the Mojo kernels are not installed, or the package does not
        have the tables to which functions are added.
    """
    if _undo:
        return
    if find_spec("torch_mojo_backend") is None:
        raise _refusal("torch-mojo-backend is not installed: pip install torch-mojo-backend")
    import torch
    from torch_mojo_backend import aten_functions
    from torch_mojo_backend.torch_compile_backend import compiler

    for module, name in (
        (aten_functions, "MAPPING_TORCH_ATEN_TO_MOJO"),
        (compiler, "paths_to_mojo_kernels"),
        (compiler, "_global_max_objects"),
    ):
        if not hasattr(module, name):
            raise _refusal(f"{module.__name__} has no {name}, as that of version 0.3.1 has")
    backend: Any = dispatch.load("max")
    _install_compiled(backend.graph, aten_functions, compiler)
    if torch._C._get_privateuse1_backend_name() == "mojo":
        _install_device()


def uninstall() -> None:
    """Restore what `install` replaced; graphs that were compiled before stay as they are."""
    while _undo:
        _undo.pop()()


def _refusal(reason: str) -> UnsupportedError:
    return UnsupportedError(message("torch_mojo.install", reason))


def _install_compiled(graph: Any, aten_functions: Any, compiler: Any) -> None:
    from .aten import functions

    table = aten_functions.MAPPING_TORCH_ATEN_TO_MOJO
    for name, function in functions(graph, lambda name: table.get(_aten(name))).items():
        op = _aten(name)
        before = {op: table[op]} if op in table else {}
        table[op] = function
        _undo.extend((partial(table.update, before), partial(table.pop, op)))

    def reload() -> None:
        compiler._global_max_objects = None  # the paths are read once

    compiler.paths_to_mojo_kernels.append(graph.OPS)
    reload()
    _undo.extend((reload, partial(compiler.paths_to_mojo_kernels.remove, graph.OPS)))


def _aten(name: str) -> Any:
    import torch

    return reduce(getattr, name.split("."), torch.ops.aten)


def _install_device() -> None:
    """Register the backward passes of which the device has no kernel, on the CPU."""
    import torch
    from torch_mojo_backend.mojo_device import mojo_device_aten_ops

    theirs = dict(getattr(mojo_device_aten_ops, "_aten_ops_registry", ()))
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    library = torch.library.Library("aten", "IMPL")
    _undo.append(library._destroy)
    for backward, forward in _BACKWARD.items():
        stub = getattr(theirs.get(f"aten::{backward}"), "__name__", "") == "raiser"
        if has_kernel(f"aten::{backward}", "PrivateUse1") and not stub:
            continue
        library.impl(backward, _on_cpu(_aten(backward)), "PrivateUse1")
        if (function := theirs.get(f"aten::{forward}")) is not None:
            # With grad mode on, some refuse because there is no backward pass.
            function = torch.no_grad()(function)
            if forward == "max_pool2d_with_indices":  # its backward reads positions
                function = _or_on_cpu(function, _aten(forward))
            library.impl(forward, function, "PrivateUse1")


def _or_on_cpu(theirs: Callable[..., Any], function: Any) -> Callable[..., Any]:
    otherwise = _on_cpu(function)

    def computed(*arguments: Any) -> Any:
        try:
            return theirs(*arguments)
        except NotImplementedError:  # ceil_mode, an image without a batch
            return otherwise(*arguments)

    return computed


def _on_cpu(function: Any) -> Callable[..., Any]:
    import torch

    def computed(*arguments: Any) -> Any:
        device = next(a.device for a in arguments if isinstance(a, torch.Tensor))
        moved = (a.cpu() if isinstance(a, torch.Tensor) else a for a in arguments)
        found = function(*moved)
        if isinstance(found, torch.Tensor):
            return found.to(device)
        return tuple(None if result is None else result.to(device) for result in found)

    return computed
