"""A pass computed by a C function that a compiled program calls without Python (`jax.ffi`)."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

from ...case import Call
from ...dtypes import numpy_dtype

Calls = tuple[str, Sequence[Any]]  # the target, and operands, results and words of each call


@cache
def _target(name: str, function: Callable[[], Any]) -> str:
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function()), platform="cpu")
    return name


def calls_of(backend: Any, call: Call) -> Calls | None:
    """Return the C calls by which a backend computes a call; None if it has none.

    Without x64, JAX has no 64-bit arrays to pass as indices.
    """
    offered = getattr(backend, "xla_calls", None)
    if offered is None:
        return None
    function, calls = offered(call)
    roles = {role for operands, results, _ in calls for role in (*operands, *results)}
    types = {_dtype(call, role) for role in roles}
    if any(jax.dtypes.canonicalize_dtype(dtype) != dtype for dtype in types):
        return None
    return _target(f"convref_{backend.name}", function), calls


def evaluate(call: Call, calls: Calls, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results by role; a call may read the results of those before it."""
    target, listed = calls
    found: dict[str, Any] = {}
    for operands, results, words in listed:
        types = [jax.ShapeDtypeStruct(call.problem.shape(r), _dtype(call, r)) for r in results]
        arrays = [{**given, **found}[r].astype(_dtype(call, r)) for r in operands]
        computed = jax.ffi.ffi_call(target, types)(*arrays, words=np.array(words, np.int64))
        found |= dict(zip(results, computed))
    return found


def _dtype(call: Call, role: str) -> np.dtype[Any]:
    return np.dtype(np.int64 if role == "indices" else numpy_dtype(call.dtype_of(role)))
