"""The functions of ATen that the compile backend of torch-mojo-backend lacks, in MAX graphs.

Each takes the arguments of its schema, tensors as values of a graph. Those that `theirs` has too
are its functions where convref has no op, on a GPU or for float16.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import UnsupportedError, message
from ...ops.window import output_size

Function = Callable[..., Any]


def functions(graph: Any, theirs: Callable[[str], Function | None]) -> Mapping[str, Function]:
    """Return the functions by name; `theirs` returns the one that the table has, or None."""
    found: dict[str, Function] = {
        "convolution_backward": convolution_backward,
        "_native_batch_norm_legit_functional": batch_norm,
        "_native_batch_norm_legit.no_stats": instance_norm,
        "native_group_norm": group_norm,
    }
    for rank in (2, 3):
        of_rank: dict[str, Function] = {
            f"max_pool{rank}d_with_indices": max_pool,
            f"max_pool{rank}d_with_indices_backward": max_pool_backward,
            f"avg_pool{rank}d_backward": avg_pool_backward,
            f"_adaptive_avg_pool{rank}d": adaptive_avg_pool,
            f"_adaptive_avg_pool{rank}d_backward": adaptive_avg_pool_backward,
            f"adaptive_max_pool{rank}d": adaptive_max_pool,
            f"adaptive_max_pool{rank}d_backward": adaptive_max_pool_backward,
        }
        found |= {name: partial(function, rank) for name, function in of_rank.items()}
    found["avg_pool3d"] = partial(avg_pool, 3)
    bound = {name: _or_theirs(partial(f, graph), theirs(name)) for name, f in found.items()}
    if (forward := theirs("convolution")) is not None:
        bound["convolution"] = _or_ours(forward, partial(convolution, graph))
    return bound


def _or_theirs(ours: Function, theirs: Function | None) -> Function:
    def computed(*arguments: Any) -> Any:
        try:
            return ours(*arguments)
        except UnsupportedError:
            if theirs is None:
                raise
            return theirs(*arguments)

    return computed


def _or_ours(theirs: Function, ours: Function) -> Function:
    def computed(*arguments: Any) -> Any:
        try:
            return theirs(*arguments)
        except (NotImplementedError, ValueError):
            return ours(*arguments)

    return computed


def convolution(
    graph: Any,
    x: Any,
    w: Any,
    b: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """Return a convolution."""
    of = {"stride": stride, "padding": padding, "dilation": dilation, "transposed": transposed}
    return graph.conv(x, w, b, **of, output_padding=output_padding, groups=int(groups))


def convolution_backward(
    graph: Any,
    dy: Any,
    x: Any,
    w: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    """Return the derivatives in x, w and the bias, None where `mask` is false."""
    of = graph.pairs(len(x.shape) - 2, stride=stride, padding=padding, dilation=dilation)
    of |= {"transposed": transposed, "groups": int(groups)}
    passes = (
        ("conv_dgrad", [dy, w], x.shape),
        ("conv_wgrad", [dy, x], w.shape),
        ("conv_bgrad", [dy], [dy.shape[1]]),
    )
    return tuple(
        graph.call(name, operands, [shape], **of)[0] if wanted else None
        for (name, operands, shape), wanted in zip(passes, mask)
    )


def _windows(
    graph: Any, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1
) -> dict[str, Any]:
    stride = stride or kernel
    found = graph.pairs(rank, filter=kernel, stride=stride, padding=padding, dilation=dilation)
    return dict(found)


def _pool(
    graph: Any, rank: int, name: str, operands: Any, results: Any, **of: Any
) -> tuple[Any, ...]:
    """Return the results of a pass, with the axis of the batch only if the operands have it."""
    if len(results[0]) == rank + 2:
        return tuple(graph.call(name, operands, results, **of))
    batches = [graph.ops.unsqueeze(value, 0) for value in operands]
    found = graph.call(name, batches, [[1, *shape] for shape in results], **of)
    return tuple(graph.ops.squeeze(value, 0) for value in found)


def _pooled(x: Any, rank: int, of: Mapping[str, Any], ceil: bool) -> list[Any]:
    """Return the shape of the output of a pool."""
    sizes = x.shape[-rank:]
    if ceil:
        try:
            sizes = [int(size) for size in sizes]
        except TypeError:
            reason = "ceil_mode needs sizes that are known when the graph is compiled"
            raise UnsupportedError(message("pool", reason)) from None
    axes = zip(sizes, of["filter"], of["stride"], of["dilation"], of["padding"])
    return [
        *x.shape[:-rank],
        *(output_size(size, r, s, d, lo, hi, ceil) for size, r, s, d, (lo, hi) in axes),
    ]


def max_pool(
    rank: int,
    graph: Any,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> tuple[Any, ...]:
    """Return the maxima and their positions."""
    of = _windows(graph, rank, kernel, stride, padding, dilation)
    shape = _pooled(x, rank, of, ceil)
    return _pool(graph, rank, "max_pool_fprop", [x], [shape, shape], **of)


def max_pool_backward(
    rank: int,
    graph: Any,
    dy: Any,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: bool,
    indices: Any,
) -> Any:
    """Return the derivative in x."""
    of = _windows(graph, rank, kernel, stride, padding, dilation)
    return _pool(graph, rank, "max_pool_backward", [dy, indices], [x.shape], **of)[0]


def avg_pool(
    rank: int,
    graph: Any,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    include_pad: bool = True,
    divisor: int | None = None,
) -> Any:
    """Return the means."""
    of = _windows(graph, rank, kernel, stride, padding)
    of |= {"include_pad": include_pad, "divisor": divisor or 0}
    return _pool(graph, rank, "avg_pool_fprop", [x], [_pooled(x, rank, of, ceil)], **of)[0]


def avg_pool_backward(
    rank: int,
    graph: Any,
    dy: Any,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    include_pad: bool,
    divisor: int | None,
) -> Any:
    """Return the derivative in x."""
    of = _windows(graph, rank, kernel, stride, padding)
    of |= {"include_pad": include_pad, "divisor": divisor or 0}
    return _pool(graph, rank, "avg_pool_backward", [dy], [x.shape], **of)[0]


def adaptive_avg_pool(rank: int, graph: Any, x: Any, sizes: Sequence[int]) -> Any:
    """Return the means."""
    shape = [*x.shape[:-rank], *sizes]
    return _pool(graph, rank, "avg_pool_fprop", [x], [shape], adaptive=True)[0]


def adaptive_avg_pool_backward(rank: int, graph: Any, dy: Any, x: Any) -> Any:
    """Return the derivative in x."""
    return _pool(graph, rank, "avg_pool_backward", [dy], [x.shape], adaptive=True)[0]


def adaptive_max_pool(rank: int, graph: Any, x: Any, sizes: Sequence[int]) -> tuple[Any, ...]:
    """Return the maxima and their positions."""
    shape = [*x.shape[:-rank], *sizes]
    return _pool(graph, rank, "max_pool_fprop", [x], [shape, shape], adaptive=True)


def adaptive_max_pool_backward(rank: int, graph: Any, dy: Any, x: Any, indices: Any) -> Any:
    """Return the derivative in x."""
    return _pool(graph, rank, "max_pool_backward", [dy, indices], [x.shape], adaptive=True)[0]


def batch_norm(
    graph: Any,
    x: Any,
    w: Any,
    b: Any,
    rmean: Any,
    rvar: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Return output, mean, 1 / standard deviation and the new running statistics."""
    if not training:
        raise UnsupportedError(message("batch_norm", "only training has new running statistics"))
    vector = [x.shape[1]]
    operands, shapes = [x, w, b, rmean, rvar], [x.shape, *[vector] * 4]
    return _image(graph, "batch_norm_fprop", operands, shapes, eps=eps, momentum=momentum)


def instance_norm(
    graph: Any, x: Any, w: Any, b: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Return output, mean and 1 / standard deviation of a batch norm without running statistics."""
    return batch_norm(graph, x, w, b, None, None, training, momentum, eps)[:3]


def _image(
    graph: Any, name: str, operands: list[Any], results: list[Any], **of: Any
) -> tuple[Any, ...]:
    """Return the results of a pass, with an axis of one element for images that have none."""
    if len(results[0]) > 2:
        return tuple(graph.call(name, operands, results, **of))
    shape = results[0]
    grown = [v if v is None or len(v.shape) == 1 else graph.ops.unsqueeze(v, -1) for v in operands]
    first, *rest = graph.call(name, grown, [[*shape, 1], *results[1:]], **of)
    return (graph.ops.squeeze(first, -1), *rest)


def group_norm(
    graph: Any, x: Any, w: Any, b: Any, n: int, c: int, pixels: int, groups: int, eps: float
) -> tuple[Any, ...]:
    """Return output, and mean and 1 / standard deviation of each group."""
    n, c, pixels = int(n), int(c), int(pixels)
    folded = graph.ops.reshape(x, [1, n * groups, c // groups * pixels])
    y, mean, rstd = instance_norm(graph, folded, None, None, True, 0.0, eps)
    y, channels = graph.ops.reshape(y, x.shape), [c, *[1] * (len(x.shape) - 2)]
    y = y if w is None else y * graph.ops.reshape(w, channels)
    y = y if b is None else y + graph.ops.reshape(b, channels)
    return y, *(graph.ops.reshape(v, [n, groups]) for v in (mean, rstd))
