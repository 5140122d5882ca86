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

from convref.errors import UnsupportedError, message
from convref.ops.window import output_size

from .. import build, library, passes
from .kinds import KINDS, OPS

__all__ = ["OPS", "call", "conv", "conv_backward", "pairs"]

_DTYPES = (DType.float32, DType.float64, DType.bfloat16)


def call(
    name: str, operands: Sequence[Any], results: Sequence[Any], groups: int = 1, **of: Any
) -> list[Any]:
    """Add a pass of `passes.PASSES` to the graph.

    Parameters
    ----------
    name : str
    operands : sequence of values or None
        In the order of `passes.NATIVE`, without the window of a pool. The first one is an image;
        absent statistics are zeros.
    results : sequence of shapes
        Sizes of each result, perhaps symbolic.
    groups : int
    **of
        Fields of a Problem: stride, dilation, padding as pairs, transposed, eps ... `filter` is the
        window of a pool.
    """
    tensors = [value if value is None else TensorValue(value) for value in operands]
    first, host = tensors[0], DeviceRef.CPU()
    if first.dtype not in _DTYPES or first.device != host:
        reason = f"no custom op for {first.dtype} on {first.device}"
        raise UnsupportedError(message(f"max.{name}", reason))
    rank = len(first.shape) - 2
    wide = DType.float64 if first.dtype == DType.float64 else DType.float32
    dtypes = {"s": wide, "p": DType.int64, "f": DType.int8}
    of_operands, of_results = KINDS[name]

    def absent(kind: str) -> Any:
        """Return an array without elements, zeros for statistics, the shape of the window."""
        shape = {"f": (1, 1, *of.get("filter", (1,) * rank)), "i": (0,) * (rank + 2), "s": 1}
        zeros = ops.constant(np.zeros(shape.get(kind, 0), np.int8), DType.int8, host)
        return ops.broadcast_to(zeros, [first.shape[1]]) if kind == "s" else zeros

    values = iter(tensors)
    given = [None if kind == "f" else next(values) for kind in of_operands]
    given = [
        (absent(kind) if value is None else value).cast(dtypes.get(kind, first.dtype))
        for kind, value in zip(of_operands, given)
    ]
    problem = SimpleNamespace(rank=rank, **of)
    words = np.array([groups, *passes.attributes(problem, False, library.cores())], np.int64)
    given.append(ops.constant(words, DType.int64, host))
    made = [
        TensorType(dtypes.get(kind, first.dtype), shape, host)
        for kind, shape in zip(of_results, results)
    ]
    found = ops.custom(f"convref_{name}", host, given, made, {"library": str(build.library())})
    return [value.tensor for value in found]


def pairs(rank: int, **of: Any) -> dict[str, Any]:
    """Return arguments with a value for each axis, and padding as pairs; one value is for all."""
    many = {key: (v,) if isinstance(v, int) else tuple(v) for key, v in of.items()}
    many = {key: v * rank if len(v) == 1 else v for key, v in many.items()}
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
    of = pairs(rank, stride=stride, padding=padding, dilation=dilation)
    extra = pairs(rank, padding=0, extra=output_padding)["extra"]
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
    of = pairs(len(x.shape) - 2, stride=stride, padding=padding, dilation=dilation)
    of["transposed"] = transposed
    (dx,) = call("conv_dgrad", [dy, w], [x.shape], groups, **of)
    (dw,) = call("conv_wgrad", [dy, x], [w.shape], groups, **of)
    (db,) = call("conv_bgrad", [dy], [[dy.shape[1]]], groups, **of)
    return dx, dw, db
