"""Convolutions in MAX graphs, with their gradients; sizes may be symbolic.

Examples
--------
::

    from convref_mojo.max import graph as convref

    with Graph("net", input_types=[...], custom_extensions=[convref.OPS]) as net:
        x, w = (value.tensor for value in net.inputs)
        net.output(convref.conv(x, w, stride=2, padding=1, groups=2))
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops

from convref.ops.window import output_size

from .. import build, library, passes
from .backend import OPS

__all__ = ["OPS", "call", "conv", "conv_backward"]


def call(
    name: str,
    operands: Sequence[Any],
    results: Sequence[Any],
    groups: int = 1,
    functional: Any = ops,
    **of: Any,
) -> list[Any]:
    """Add a pass of `passes.PASSES` to the graph.

    Parameters
    ----------
    name : str
    operands : sequence of TensorValue or None
        In the order of `passes.NATIVE`; pools take an int8 array of the size of the window too.
    results : sequence of shapes
        Sizes of each result, perhaps symbolic; the second one of max_pool_fprop is of indices.
    groups : int
    functional : module
        `max.graph.ops`, or `max.experimental.functional`.
    **of
        Fields of a Problem: stride, dilation, padding as pairs, transposed, eps ...
    """
    first = next(value for value in operands if value is not None)
    host = DeviceRef.CPU()
    problem = SimpleNamespace(rank=len(first.shape) - 2, **of)
    words = np.array([groups, *passes.attributes(problem, False, library.cores())], np.int64)
    empty = functional.constant(np.empty(0, np.float32), DType.float32, host)
    given = [empty.cast(first.dtype) if value is None else value for value in operands]
    dtypes = [first.dtype] * len(results)
    if name == "max_pool_fprop":
        dtypes[1] = DType.int64
    made = [TensorType(dtype, shape, host) for dtype, shape in zip(dtypes, results)]
    given.append(functional.constant(words, DType.int64, host))
    parameters = {"library": str(build.library())}
    found = functional.custom(f"convref_{name}", host, given, made, parameters)
    return [getattr(value, "tensor", value) for value in found]


def _pairs(rank: int, **of: Any) -> dict[str, Any]:
    """Return arguments with a value for each axis, and padding as pairs."""
    many = {key: (v,) * rank if isinstance(v, int) else tuple(v) for key, v in of.items()}
    pads = tuple((p, p) if isinstance(p, int) else tuple(p) for p in many["padding"])
    return {**many, "padding": pads}


def conv(
    x: TensorValue,
    w: TensorValue,
    b: TensorValue | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
    output_padding: int | Sequence[int] = 0,
) -> TensorValue:
    """Return a convolution of x (N, C, ...) and w (K, C/G, ...), or transposed w (C, K/G, ...)."""
    rank = len(x.shape) - 2
    of = _pairs(rank, stride=stride, padding=padding, dilation=dilation)
    extra = _pairs(rank, padding=0, extra=output_padding)["extra"]
    axes = zip(x.shape[2:], w.shape[2:], of["stride"], of["dilation"], of["padding"], extra)
    if transposed:
        sizes = [(n - 1) * s + d * (r - 1) + 1 + e - lo - hi for n, r, s, d, (lo, hi), e in axes]
    else:
        sizes = [output_size(n, r, s, d, lo, hi) for n, r, s, d, (lo, hi), _ in axes]
    k = w.shape[1] * groups if transposed else w.shape[0]
    shape = [x.shape[0], k, *sizes]
    return call("conv_fprop", [x, w, b], [shape], groups, transposed=transposed, **of)[0]


def conv_backward(
    dy: TensorValue,
    x: TensorValue,
    w: TensorValue,
    *,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Return the gradients in x, w and the bias."""
    of = _pairs(len(x.shape) - 2, stride=stride, padding=padding, dilation=dilation)
    of["transposed"] = transposed
    (dx,) = call("conv_dgrad", [dy, w], [x.shape], groups, **of)
    (dw,) = call("conv_wgrad", [dy, x], [w.shape], groups, **of)
    (db,) = call("conv_bgrad", [dy], [[dy.shape[1]]], groups, **of)
    return dx, dw, db
