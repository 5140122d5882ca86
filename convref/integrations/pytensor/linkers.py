"""How PyTensor's linkers run a pass: JAX traces it, Numba and PyTorch call Python.

The Python and C linkers use `perform`. PyTensor looks up the others by the class of the Op, in
modules that import numba, jax or torch: the Ops are entered when PyTensor imports such a module.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, cast

import numpy as np
from pytensor.graph.basic import Apply

from .concat import Concat, SplitLike
from .op import ConvrefOp, ShapesOp, one_or_tuple


def register() -> None:
    """Register the Ops with each linker, now or when PyTensor imports the linker's module."""
    waiting = {f"pytensor.link.{name}.dispatch.basic": enter for name, enter in _LINKERS.items()}
    for name in waiting.keys() & sys.modules.keys():
        waiting.pop(name)()
    sys.meta_path.insert(0, _Waiting(waiting))


class _Waiting(MetaPathFinder):
    """Calls a function after the first import of a module."""

    def __init__(self, functions: dict[str, Callable[[], None]]) -> None:
        self.functions = functions

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the module's own spec, whose loader calls the function at the end."""
        if (function := self.functions.pop(fullname, None)) is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and (loader := spec.loader) is not None:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                function()

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _register_numba() -> None:
    from . import native

    basic = importlib.import_module("pytensor.link.numba.dispatch.basic")

    def funcify(op: Any, node: Apply, **kwargs: Any) -> Callable[..., Any]:
        njit = basic.numba_njit  # PyTensor's tests replace it to stay in Python
        if native.serves(op):
            return cast("Callable[..., Any]", njit(native.function(op, node)))
        return native.in_python(
            njit, op, *(o.type.clone(shape=(None,) * o.type.ndim) for o in node.outputs)
        )

    for op in (ConvrefOp, ShapesOp, Concat, SplitLike):
        basic.numba_funcify.register(op)(funcify)


def _register_jax() -> None:
    import jax
    import jax.numpy as jnp
    from pytensor.link.jax.dispatch.basic import jax_funcify

    def funcify(op: Any, node: Apply, **kwargs: Any) -> Callable[..., Any]:
        # constants of no axis are Python's numbers; JAX may have types of 32 bits alone
        dtypes = [jax.dtypes.canonicalize_dtype(v.type.dtype) for v in node.inputs]
        return lambda *arrays: one_or_tuple(op.compute(*map(jnp.asarray, arrays, dtypes)))

    def shapes(op: ShapesOp, **kwargs: Any) -> Callable[..., Any]:
        return lambda *arrays: one_or_tuple([np.array(shape) for shape in op.compute(*arrays)])

    for op in (ConvrefOp, SplitLike):
        jax_funcify.register(op)(funcify)
    jax_funcify.register(Concat)(lambda op, **_: lambda *arrays: jnp.concatenate(arrays, op.axis))
    jax_funcify.register(ShapesOp)(shapes)


def _register_torch() -> None:
    import torch
    from pytensor.link.pytorch.dispatch.basic import pytorch_funcify

    def funcify(op: Any, node: Apply, **kwargs: Any) -> Callable[..., Any]:
        dtypes = [getattr(torch, v.type.dtype) for v in node.inputs]

        def run(*tensors: Any) -> Any:
            given = [torch.as_tensor(a, dtype=d) for a, d in zip(tensors, dtypes)]
            return one_or_tuple([torch.as_tensor(a) for a in op.compute(*given)])

        return cast("Callable[..., Any]", torch.compiler.disable(run))

    for op in (ConvrefOp, ShapesOp, SplitLike):
        pytorch_funcify.register(op)(funcify)
    pytorch_funcify.register(Concat)(lambda op, **_: lambda *tensors: torch.cat(tensors, op.axis))


_LINKERS = {"numba": _register_numba, "jax": _register_jax, "pytorch": _register_torch}
