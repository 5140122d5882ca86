"""The custom ops: `torch.ops.convref.convolution`, `convolution_backward` and all the others.

Each is defined once, by the row of `_table.ROWS`: a kernel for tensors with data, one for tensors
without (compilation), the rules of autocast, vmap and autograd.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode

from ._autograd import apply_recorded, cast, invoke, is_recorded
from ._kernels import PassConfig, Tensors, batched, compute, empty, traced
from ._table import ROWS, PassSchema

NAMESPACE = "convref"

_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality
_library = torch.library.Library(NAMESPACE, "DEF")


def _split(row: PassSchema, arguments: tuple[Any, ...]) -> tuple[Tensors, PassConfig]:
    count = len(row.signature.operands)
    return arguments[:count], PassConfig.of(row, arguments[count:])


def _filled(found: Tensors, template: Tensors) -> Any:
    """Return results as a schema requires: an empty tensor for each that is masked off."""
    if len(found) == 1:
        return found[0]
    like = next(t for t in template if t is not None)
    return tuple(like.new_empty(0) if r is None else r for r in found)


def _kernel(row: PassSchema) -> Callable[..., Any]:
    def kernel(*arguments: Any) -> Any:
        operands, config = _split(row, arguments)
        # a backend may take derivatives by autograd, which is disabled below the dispatcher
        with torch._C._SetExcludeDispatchKeyGuard(_AUTOGRAD, False):
            return _filled(compute(config, operands), operands)

    return kernel


def _fake(row: PassSchema) -> Callable[..., Any]:
    def fake(*arguments: Any) -> Any:
        operands, config = _split(row, arguments)
        return _filled(empty(config, operands), operands)

    return fake


_shown = [False]


def show_kernels(on: bool = True) -> None:
    """Let torch.compile see the Triton kernels of convref's ops, rather than the ops alone.

    As with `torch.library.triton_op`, the graph then has a node per kernel, which Inductor compiles
    itself. A call stays one op where sizes are symbols, where values of indices are checked, and
    where kernels read tensor maps or tables.

    Parameters
    ----------
    on : bool
        Whether what is compiled from now on shows them; at first it does not.

    Examples
    --------
    >>> from convref.integrations import torch as convref_torch
    >>> convref_torch.show_kernels()
    >>> convref_torch.show_kernels(False)
    """
    _shown[0] = on


def _functional(row: PassSchema) -> Callable[..., Any]:
    def functional(mode: Any, op: Any, types: Any, arguments: Any, named: Any = None) -> Any:
        operands, config = _split(row, arguments)
        if _shown[0]:
            with mode:
                found = traced(config, operands)
                if found is not None:
                    return _filled(found, operands)
        return mode.__torch_dispatch__(op, types, arguments, named or {})

    return functional


def _autograd(row: PassSchema, op: Any) -> Callable[..., Any]:
    def autograd(*arguments: Any) -> Any:
        operands, config = _split(row, arguments)
        if is_recorded(operands):
            return _filled(apply_recorded(config, operands), operands)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*arguments)

    return autograd


def _vmap(row: PassSchema) -> Callable[..., Any]:
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
        operands, config = _split(row, arguments)
        found = batched(invoke, config, operands, in_dims[: len(operands)], info.batch_size)
        dims = tuple(None if r is None else 0 for r in found)
        return _filled(found, operands), dims if len(dims) > 1 else dims[0]

    return vmap


def _autocast(row: PassSchema, op: Any, key: str) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def autocast(*arguments: Any) -> Any:
        count = len(row.signature.operands)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*cast(row, arguments[:count]), *arguments[count:])

    return autocast


def _define(row: PassSchema) -> None:
    _library.define(row.schema)
    qualified = f"{NAMESPACE}::{row.name}"
    op = getattr(torch.ops.convref, row.name).default
    _library.impl(row.name, _kernel(row), "CPU")
    _library.impl(row.name, _kernel(row), "CUDA")
    torch.library.register_fake(qualified, _fake(row), lib=_library)
    _library.impl(row.name, _autograd(row, op), "Autograd")
    torch.library.register_vmap(qualified, _vmap(row), lib=_library)
    torch.library.register_torch_dispatch(
        qualified, FunctionalTensorMode, _functional(row), lib=_library
    )
    for key in ("AutocastCPU", "AutocastCUDA"):
        _library.impl(row.name, _autocast(row, op, key), key)


for _row in ROWS.values():
    _define(_row)
