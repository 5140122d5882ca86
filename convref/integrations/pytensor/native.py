"""A pass as a function that Numba compiles, which enters Python or a backend's C function.

Numba calls `backend.entry` with words that `backend.native` returns for the call, as
`convref_mojo.passes` describes them. They depend on the shapes of the operands, and are kept in
one array for each node: Python is entered only when the shapes are not those of the last call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import get_numba_type, numba_njit

from ... import dispatch
from .op import ConvrefOp, one_or_tuple

_PASSES, _SLOTS = 3, 10  # native passes of a pass, arrays of one, at most
_SIZES, _ATTRIBUTES = 13, 32  # of the latter at most
_LENGTH = 2 + _SLOTS + _SIZES + _ATTRIBUTES
_SOURCE = """\
def perform({inputs}):
    words = carray(pointer({address}), ({length},), int64)
    {dense}
    sizes = np.array([{sizes}])
    if not np.array_equal(words[1 : {start}], sizes):
        plan(sizes)
    {results}
    addresses = np.array([0, {addresses}])
    arrays = np.zeros({slots}, int64)
    for i in range(words[0]):
        at = {first} + {step} * i
        for slot in range({slots}):
            arrays[slot] = addresses[words[at + 2 + slot]]
        here = {address} + 8 * (at + 2 + {slots})
        entry(words[at], words[at + 1], arrays.ctypes.data, here, here + 8 * {count}, 0)
    words[-1] = arrays[0] + {kept}  # arrays that are read later are not freed before
    return {returned}
"""


def _pointer(typing: Any, address: Any) -> Any:
    """Return the type of a pointer, and what makes one of an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


_OPS: list[Any] = []  # by their numbers


@cache
def in_python(njit: Any, op: Any, *results: Any) -> Callable[..., Any]:
    """Return what computes an Op in Python, with results of these types."""
    _OPS.append(op)
    number, dtypes = len(_OPS) - 1, tuple(v.numpy_dtype for v in results)
    known = [get_numba_type(v, layout="C") for v in results]
    call = _caller(njit, known[0] if len(known) == 1 else types.Tuple(known), dtypes)
    return cast("Callable[..., Any]", njit(lambda *inputs: call(number, *inputs)))


@cache
def _caller(njit: Any, result: Any, dtypes: tuple[Any, ...]) -> Callable[..., Any]:
    """Return what computes the Op of a number: it is compiled once for all Ops of these types."""

    def compute(number: int, inputs: Any) -> Any:
        found = zip(_OPS[number].compute(*inputs), dtypes)
        return one_or_tuple([np.require(a, dtype, "C") for a, dtype in found])

    def call(number: int, *inputs: Any) -> Any:
        with numba.objmode(found=result):
            found = compute(number, inputs)
        return found

    return cast("Callable[..., Any]", njit(call))


def serves(op: Any) -> bool:
    """Return whether the backend of an Op has a C function for its pass."""
    if not isinstance(op, ConvrefOp) or op.pass_ not in ("fprop", "backward"):
        return False
    return op.backend != "auto" and hasattr(_backend(op), "native")


def _backend(op: ConvrefOp) -> Any:
    return dispatch.load(op.backend)


def function(op: ConvrefOp, node: Apply) -> Callable[..., Any]:
    """Return the function of arrays, for `numba_njit`."""
    ins, outs = node.inputs, node.outputs
    starts = list(accumulate((v.ndim for v in (*ins, *outs)), initial=1))
    start, first = starts[len(ins)], starts[-1]
    words = np.full(first + _PASSES * _LENGTH + 1, -1)  # -1 is not a size
    shapes = [
        ", ".join(f"words[{at + i}]" for i in range(v.ndim))
        for v, at in zip(outs, starts[len(ins) :])
    ]
    results = [f"y{i} = np.empty(({shape},), dtype{i})" for i, shape in enumerate(shapes)]
    names = [f"c{i}" for i in range(len(ins))] + [f"y{i}" for i in range(len(outs))]
    text = _SOURCE.format(
        inputs=", ".join(f"a{i}" for i in range(len(ins))),
        dense="; ".join(f"c{i} = np.ascontiguousarray(a{i})" for i in range(len(ins))),
        sizes=", ".join(f"a{i}.shape[{j}]" for i, v in enumerate(ins) for j in range(v.ndim)),
        results="; ".join(results),
        addresses=", ".join(f"{name}.ctypes.data" for name in names),
        kept=" + ".join(f"{name}.size" for name in names[: len(ins)]),
        returned=", ".join(names[len(ins) :]),
        address=words.ctypes.data,
        length=len(words),
        start=start,
        first=first,
        slots=_SLOTS,
        step=_LENGTH,
        count=_SIZES,
    )
    found: dict[str, Any] = {f"dtype{i}": v.type.numpy_dtype.type for i, v in enumerate(outs)}
    found |= {"np": np, "carray": numba.carray, "pointer": intrinsic(_pointer)}
    found |= {"int64": np.int64, "entry": _backend(op).entry}
    plan = _plan(op, node, words, starts)

    def in_python(sizes: Any) -> None:
        with numba.objmode():
            plan(sizes)

    found["plan"] = numba_njit(in_python)
    exec(compile(text, f"<{op}>", "exec"), found)
    return cast("Callable[..., Any]", found["perform"])


def _plan(op: ConvrefOp, node: Apply, words: Any, starts: list[int]) -> Callable[[Any], None]:
    """Return what writes the words of a call on operands of these sizes.

    Numba pickles it, with all that it names: no backend, which keeps C pointers, and no graph.
    """
    dtypes = [v.type.numpy_dtype for v in node.inputs]
    slots = {role: i for i, role in enumerate(op.wanted, 1 + len(dtypes))}
    operands = {role: i for i, role in enumerate(op.roles, 1)}
    first, last = starts[-1], starts[len(dtypes)]

    def plan(sizes: Any) -> None:
        parts = [tuple(sizes[a - 1 : b - 1]) for a, b in pairwise(starts[: len(dtypes) + 1])]
        given = zip(dtypes, parts, strict=True)
        call = op.prepared(
            *(np.broadcast_to(np.zeros((), dtype), shape) for dtype, shape in given)
        ).call
        found = _backend(op).native(call)
        words[last:first] = [size for shape in op.shapes(*parts) for size in shape]
        for i, native in enumerate(found):
            places = [operands[r] if r else 0 for r in native.operands]
            places += [slots[r] if r else 0 for r in native.results]
            places += [0] * (_SLOTS - len(places))
            line = native.which, native.dtype, *places, *native.sizes, *native.attributes
            at = first + i * _LENGTH
            words[at : at + len(line)] = line
        words[0], words[1:last] = len(found), sizes

    return plan
