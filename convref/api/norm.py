"""Normalisation and its derivatives, with PyTorch's argument names and order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..arrays import facts, like, zeros_like
from ..case import Call, Spec, role_dtype
from ..errors import ConvrefError, message, shorten
from ..problem import (
    BASE_ROLE,
    RANKS,
    SIGNATURE,
    BatchNormProblem,
    FrozenNormProblem,
    GroupNormProblem,
    LayerNormProblem,
    Problem,
    Sizes,
    integer,
    items,
)
from ._arguments import ARGUMENT, Layout, Prepared, is_bool, lying
from ._images import flag, image_layout
from ._run import compute

__all__ = [
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_double_backward",
    "batch_norm_jvp",
    "batch_norm_statistics",
    "group_norm",
    "group_norm_backward",
    "group_norm_double_backward",
    "group_norm_jvp",
    "instance_norm",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_double_backward",
    "layer_norm_jvp",
]

_IMAGES = ("x", "y")
_OPTIONAL = ("w", "b", "ddw", "ddb", "w_dot", "b_dot")
_NAMES = {"rmean": "running_mean", "rvar": "running_var", "mean": "mean", "rstd": "rstd"}


def _argument(role: str) -> str:
    return _NAMES.get(role) or ARGUMENT[role]


def _batch(n: int, c: int, input: Sizes, given: dict[str, Any], eps: Any, momentum: Any) -> Problem:
    return BatchNormProblem(n=n, c=c, input=input, eps=eps, momentum=momentum, **given)


def _frozen(n: int, c: int, input: Sizes, given: dict[str, Any], eps: Any) -> Problem:
    return FrozenNormProblem(n=n, c=c, input=input, eps=eps, **given)


def _group(n: int, c: int, input: Sizes, given: dict[str, Any], eps: Any, groups: Any) -> Problem:
    return GroupNormProblem(n=n, c=c, input=input, eps=eps, groups=groups, **given)


def _layer(n: int, c: int, input: Sizes, given: dict[str, Any], eps: Any) -> Problem:
    return LayerNormProblem(n=n, c=c, input=input, eps=eps, **given)


_BUILD = {
    "batch_norm": _batch,
    "batch_norm_eval": _frozen,
    "group_norm": _group,
    "layer_norm": _layer,
}


class _Layout(Layout):
    """Axis orders of images; weights and statistics have no other."""

    def axes(self, role: str) -> tuple[int, ...]:
        """Return, for each formula axis, the user's axis it is; nothing where all stay."""
        return self.data if BASE_ROLE[role] in _IMAGES else ()


def prepare_norm(
    arrays: Sequence[Any], op: str, pass_: str, layout: Any, arguments: tuple[Any, ...], mask: Any
) -> Prepared:
    """Return the checked call of a norm on the user's `arrays`, by role; x has 3 to 5 axes."""
    where, roles = f"{op}.{pass_}", SIGNATURE[op, pass_].operands
    found = {
        role: facts(where, _argument(role), array)
        for role, array in zip(roles, arrays, strict=True)
        if array is not None or role not in _OPTIONAL
    }
    rank = len(found["x"].shape) - 2
    if rank not in RANKS:
        what = f"input has {rank + 2} axes, needs 2 to 5"
        raise ConvrefError(message(where, what))
    order = _Layout(*vars(image_layout(where, rank, layout)).values())
    n, c, *space = (found["x"].shape[a] for a in order.data)
    given = {"weight": "w" in found, "bias": "b" in found or "ddb" in found}
    problem = _BUILD[op](n, c, tuple(space), given, *arguments)  # type: ignore[operator]
    call = Call(op, pass_, problem, _mask(where, mask, op, pass_), specs=(Spec("f64"),))
    specs = [
        lying(where, call, role, _argument(role), found.get(role), found["x"], order.axes(role))
        for role in roles
    ]
    identity = order.data == tuple(range(rank + 2))
    return Prepared(replace(call, specs=tuple(specs)), order, False, identity)


def _mask(where: str, mask: Any, op: str, pass_: str) -> tuple[bool, ...]:
    if not SIGNATURE[op, pass_].maskable:
        return ()
    bits = items(mask)
    if bits is None or len(bits) != 3 or not all(map(is_bool, bits)):
        what = f"output_mask is {shorten(repr(mask))}, needs 3 bools"
        raise ConvrefError(message(where, what))
    return tuple(map(bool, bits))


def _run(
    name: str,
    arrays: tuple[Any, ...],
    arguments: tuple[Any, ...],
    layout: Any,
    backend: str,
    mask: Any = (True, True, True),
) -> tuple[Any, ...]:
    """Return results of a pass; images (N, C) are given a spatial axis of one position."""
    op, _, pass_ = name.partition(".")
    roles, results = SIGNATURE[op, pass_]._replace(maskable=False)[:2]
    x = arrays[roles.index("x")]
    flat = getattr(x, "ndim", 0) == 2 and op != "layer_norm"
    if flat:
        if layout is not None:
            raise ConvrefError(message(name, f"layout is {layout!r}, needs None for (N, C)"))
        arrays = tuple(
            a[..., None] if BASE_ROLE[r] in _IMAGES and getattr(a, "ndim", 0) == 2 else a
            for r, a in zip(roles, arrays)
        )
    found = compute(prepare_norm, arrays, (op, pass_, layout, arguments, mask), backend)
    if not flat:
        return found
    return tuple(
        r[..., 0] if r is not None and BASE_ROLE[role] in _IMAGES else r
        for role, r in zip(results, found)
    )


def _pair(where: str, name: str, given: Any) -> tuple[Any, Any, Any]:
    """Return (input, weight, bias) of primals or tangents, the last two perhaps None."""
    listed = items(given)
    if not isinstance(given, (tuple, list)) or listed is None or len(listed) != 3:
        raise ConvrefError(message(where, f"{name} needs a tuple (input, weight, bias)"))
    return listed[0], listed[1], listed[2]


def _tangents(where: str, primals: Any, tangents: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return primals and tangents, zeros in the place of a tangent that is None."""
    values, dots = _pair(where, "primals", primals), _pair(where, "tangents", tangents)
    filled = []
    for name, value, dot in zip(("input", "weight", "bias"), values, dots):
        if value is None and dot is not None:
            raise ConvrefError(message(where, f"{name} tangent is given, needs a {name}"))
        filled.append(zeros_like(value) if dot is None and value is not None else dot)
    return values, tuple(filled)


def _running(where: str, input: Any, mean: Any, var: Any, layout: Any) -> tuple[Any, Any]:
    """Return running statistics, zeros where there are none: a training pass updates some."""
    if (mean is None) != (var is None):
        missing = "running_mean" if mean is None else "running_var"
        raise ConvrefError(message(where, f"{missing} is None, needs an array as the other has"))
    if mean is not None:
        return mean, var
    found = facts(where, "input", input)
    axis = -1 if isinstance(layout, str) and layout.endswith("C") and len(layout) > 2 else 1
    if len(found.shape) < 2:
        raise ConvrefError(message(where, f"input has {len(found.shape)} axes, needs 2 to 5"))
    import numpy as np

    from ..dtypes import numpy_dtype

    zeros = np.zeros(found.shape[axis], numpy_dtype(role_dtype("rmean", found.dtype)))
    return like(zeros, input), like(zeros, input)


def _momentum(where: str, momentum: Any, batches: Any) -> Any:
    """Return the share of the new statistics: of a cumulative mean, one over all batches."""
    if momentum is not None:
        return momentum
    if batches is None:
        what = "momentum is None, needs num_batches_tracked: batches seen so far"
        raise ConvrefError(message(where, what))
    count = integer(where, "num_batches_tracked", batches)
    if count < 0:
        raise ConvrefError(message(where, f"num_batches_tracked is {count}, needs at least 0"))
    return 1 / (count + 1)


def batch_norm_statistics(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *,
    num_batches_tracked: int | None = None,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return all that a training pass of batch norm computes; nothing is changed in place.

    Parameters
    ----------
    input : (N, C) or (N, C, *spatial) array
        At least two values per channel.
    running_mean, running_var : (C,) array, optional
        Float32 where `input` has 16 bits.
    weight, bias : (C,) array, optional
    momentum : float or None
        Share of the new statistics in the running ones. None is a cumulative mean, which takes
        `num_batches_tracked`, the batches seen before this one.
    eps : float
        Added to the variance.
    layout : str, optional
        Axis order of input and output: C second, or last ("NHWC").
    backend : str
        A name, "package.module:object", or "auto".

    Returns
    -------
    output, mean, rstd, running_mean, running_var : tuple of arrays
        The first normalised by the biased variance, the last updated by the unbiased one; the two
        running ones are None where none were given.

    Examples
    --------
    >>> x = np.array([[1.], [3.], [5.], [7.]])
    >>> results = batch_norm_statistics(x, np.zeros(1), np.ones(1), momentum=None,
    ...                                 num_batches_tracked=0)
    >>> results[1], results[3]
    (array([4.]), array([4.]))
    """
    where = "batch_norm.fprop"
    rmean, rvar = _running(where, input, running_mean, running_var, layout)
    share = _momentum(where, momentum, num_batches_tracked)
    arrays = input, weight, bias, rmean, rvar
    found = _run(where, arrays, (eps, share), layout, backend)
    return found if running_mean is not None else (*found[:3], None, None)


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *,
    num_batches_tracked: int | None = None,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return `input` normalised per channel, over batch and space.

    In training by its own statistics, as `batch_norm_statistics`, whose running ones PyTorch would
    write into its arguments: here they stay as they are. Else by the running ones, which are then
    needed.

    Examples
    --------
    >>> batch_norm(np.array([[1., 3.]]), np.ones(2), np.full(2, 4.), eps=0.)
    array([[0., 1.]])
    """
    if flag("batch_norm.fprop", "training", training):
        return batch_norm_statistics(
            *(input, running_mean, running_var, weight, bias),
            *(momentum, eps),
            num_batches_tracked=num_batches_tracked,
            layout=layout,
            backend=backend,
        )[0]
    arrays = input, weight, bias, *_needed("batch_norm_eval.fprop", running_mean, running_var)
    return _run("batch_norm_eval.fprop", arrays, (eps,), layout, backend)[0]


def _needed(where: str, mean: Any, var: Any) -> tuple[Any, Any]:
    for name, array in (("running_mean", mean), ("running_var", var)):
        if array is None:
            raise ConvrefError(message(where, f"{name} is None, needs an array in evaluation"))
    return mean, var


def _saved(
    name: str, x: Any, mean: Any, rstd: Any, arguments: tuple[Any, ...], layout: Any, backend: str
) -> tuple[Any, Any]:
    """Return the statistics that were kept, else find them again."""
    if mean is not None and rstd is not None:
        return mean, rstd
    run = _running("batch_norm.fprop", x, None, None, layout) if name == "batch_norm" else ()
    _, mean, rstd, *_ = _run(f"{name}.fprop", (x, None, None, *run), arguments, layout, backend)
    return mean, rstd


def batch_norm_backward(
    grad_output: Any,
    input: Any,
    weight: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    mean: Any = None,
    rstd: Any = None,
    training: bool = True,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `batch_norm`, None where masked off.

    In training `mean` and `rstd` are those that `batch_norm_statistics` returned; without them they
    are found again. In evaluation the running statistics are needed instead.

    Examples
    --------
    >>> x = np.array([[1.], [3.]])
    >>> dx, dw, db = batch_norm_backward(np.array([[1.], [3.]]), x, eps=0.)
    >>> dx.ravel(), dw, db
    (array([0., 0.]), array([2.]), array([4.]))
    """
    if not flag("batch_norm.backward", "training", training):
        given = _needed("batch_norm_eval.backward", running_mean, running_var)
        arrays = grad_output, input, weight, *given
        return _run("batch_norm_eval.backward", arrays, (eps,), layout, backend, output_mask)
    saved = _saved("batch_norm", input, mean, rstd, (eps, 0.1), layout, backend)
    arrays = grad_output, input, weight, *saved
    return _run("batch_norm.backward", arrays, (eps, 0.1), layout, backend, output_mask)


def batch_norm_jvp(
    primals: Any,
    tangents: Any,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = True,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) for tuples (input, weight, bias) with None for absent ones.

    Examples
    --------
    >>> x = np.array([[1.], [3.]])
    >>> batch_norm_jvp((x, None, None), (x, None, None), eps=0.)[1].ravel()
    array([0., 0.])
    """
    op = "batch_norm" if flag("batch_norm.jvp", "training", training) else "batch_norm_eval"
    values, dots = _tangents(f"{op}.jvp", primals, tangents)
    if op == "batch_norm":
        return _run("batch_norm.jvp", (*values, *dots), (eps, 0.1), layout, backend)
    given = _needed("batch_norm_eval.jvp", running_mean, running_var)
    return _run("batch_norm_eval.jvp", (*values, *given, *dots), (eps,), layout, backend)


def batch_norm_double_backward(
    grad_grad_input: Any,
    grad_grad_weight: Any,
    grad_grad_bias: Any,
    grad_output: Any,
    input: Any,
    weight: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    mean: Any = None,
    rstd: Any = None,
    training: bool = True,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output, input and weight through `batch_norm_backward`.

    A weight needs grad_grad_weight; without one that is None, as grad_grad_bias may be.

    Examples
    --------
    >>> x = np.array([[1.], [3.]])
    >>> batch_norm_double_backward(x, None, None, x, x, eps=0.)[0].ravel()
    array([0., 0.])
    """
    _paired("batch_norm.double_backward", grad_grad_weight, weight)
    first = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    if not flag("batch_norm.double_backward", "training", training):
        given = _needed("batch_norm_eval.double_backward", running_mean, running_var)
        name = "batch_norm_eval.double_backward"
        return _run(name, (*first, *given), (eps,), layout, backend, output_mask)
    saved = _saved("batch_norm", input, mean, rstd, (eps, 0.1), layout, backend)
    name = "batch_norm.double_backward"
    return _run(name, (*first, *saved), (eps, 0.1), layout, backend, output_mask)


def _paired(where: str, outer: Any, weight: Any) -> None:
    if (outer is None) != (weight is None):
        name, other = ("grad_grad_weight", "weight")[:: 1 if outer is None else -1]
        raise ConvrefError(message(where, f"{name} is None, needs an array as {other} is one"))


def group_norm(
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    return_statistics: bool = False,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return `input` (N, C, *spatial) normalised over each image and group of channels.

    Parameters
    ----------
    input : (N, C) or (N, C, *spatial) array
    num_groups : int
        A divisor of C.
    weight, bias : (C,) array, optional
    eps : float
    return_statistics : bool
        Return (output, mean, rstd), the last two (N, num_groups).
    layout, backend
        As in `batch_norm_statistics`.

    Examples
    --------
    >>> group_norm(np.array([[1., 3., 10., 30.]]), 2, eps=0.)
    array([[-1.,  1., -1.,  1.]])
    """
    arguments = eps, num_groups
    found = _run("group_norm.fprop", (input, weight, bias), arguments, layout, backend)
    return found if flag("group_norm.fprop", "return_statistics", return_statistics) else found[0]


def instance_norm(
    input: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> Any:
    """Return `input` normalised over each image and channel: `group_norm` with a group for each.

    Running statistics, which PyTorch's has besides, are those of `batch_norm`.

    Examples
    --------
    >>> instance_norm(np.array([[[1., 3.], [10., 30.]]]), eps=0.)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    shape = facts("group_norm.fprop", "input", input).shape
    last = isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")
    channels = shape[-1 if last else 1] if len(shape) > 1 else 1
    return group_norm(input, channels, weight, bias, eps, layout=layout, backend=backend)


def group_norm_backward(
    grad_output: Any,
    input: Any,
    num_groups: int,
    weight: Any = None,
    mean: Any = None,
    rstd: Any = None,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `group_norm`, None where masked off.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> group_norm_backward(np.array([[1., 3.]]), x, 1, eps=0.)[1]
    array([-1.,  3.])
    """
    arguments = eps, num_groups
    saved = _saved("group_norm", input, mean, rstd, arguments, layout, backend)
    arrays = grad_output, input, weight, *saved
    return _run("group_norm.backward", arrays, arguments, layout, backend, output_mask)


def group_norm_jvp(
    primals: Any,
    tangents: Any,
    num_groups: int,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) for tuples (input, weight, bias) with None for absent ones.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> group_norm_jvp((x, None, None), (x, None, None), 1, eps=0.)[1]
    array([[0., 0.]])
    """
    values, dots = _tangents("group_norm.jvp", primals, tangents)
    return _run("group_norm.jvp", (*values, *dots), (eps, num_groups), layout, backend)


def group_norm_double_backward(
    grad_grad_input: Any,
    grad_grad_weight: Any,
    grad_grad_bias: Any,
    grad_output: Any,
    input: Any,
    num_groups: int,
    weight: Any = None,
    mean: Any = None,
    rstd: Any = None,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    layout: str | None = None,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output, input and weight through `group_norm_backward`.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> group_norm_double_backward(x, None, None, x, x, 1, eps=0.)[0]
    array([[0., 0.]])
    """
    _paired("group_norm.double_backward", grad_grad_weight, weight)
    arguments = eps, num_groups
    saved = _saved("group_norm", input, mean, rstd, arguments, layout, backend)
    first = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    name = "group_norm.double_backward"
    return _run(name, (*first, *saved), arguments, layout, backend, output_mask)


class _Rows:
    """Arrays of any shape (*lead, *normalized_shape) as (N, C, 1) images and back."""

    def __init__(self, where: str, input: Any, normalized_shape: Any) -> None:
        self.where = where
        shape = facts(where, "input", input).shape
        listed = items(normalized_shape)
        given = [normalized_shape] if listed is None else listed
        tail = tuple(integer(where, "normalized_shape", size) for size in given)
        if not tail or shape[-len(tail) :] != tail:
            what = f"input has shape {shape}, needs to end in normalized_shape {tail}"
            raise ConvrefError(message(where, what))
        self.tail, self.lead = tail, shape[: -len(tail)]
        self.size, self.count = _product(tail), _product(self.lead)
        if not self.size:
            what = f"normalized_shape is {tail}, needs sizes of at least 1"
            raise ConvrefError(message(where, what))

    def _as(self, name: str, array: Any, shape: Sizes, target: Sizes) -> Any:
        if array is None:
            return None
        got = facts(self.where, name, array).shape
        if got != shape:
            raise ConvrefError(message(self.where, f"{name} has shape {got}, needs {shape}"))
        return array.reshape(target)

    def image(self, name: str, array: Any) -> Any:
        return self._as(name, array, (*self.lead, *self.tail), (self.count, self.size, 1))

    def weight(self, name: str, array: Any) -> Any:
        return self._as(name, array, self.tail, (self.size, 1))

    def statistic(self, name: str, array: Any) -> Any:
        return self._as(name, array, self.lead, (self.count,))

    def unrolled(self, role: str, array: Any) -> Any:
        if array is None:
            return None
        lead = self.lead if BASE_ROLE[role] not in ("w", "b") else ()
        return array.reshape(lead if role in ("mean", "rstd") else (*lead, *self.tail))

    def run(
        self, pass_: str, arrays: tuple[Any, ...], eps: Any, backend: str, mask: Any = (True,) * 3
    ) -> tuple[Any, ...]:
        """Return results in the user's shapes; arrays are the user's too, by role."""
        name = f"layer_norm.{pass_}"
        roles, results = SIGNATURE["layer_norm", pass_][:2]
        kinds = {"x": self.image, "y": self.image, "w": self.weight, "b": self.weight}
        given = (
            kinds.get(BASE_ROLE[r], self.statistic)(_argument(r), a) for r, a in zip(roles, arrays)
        )
        found = _run(name, tuple(given), (eps,), None, backend, mask)
        return tuple(self.unrolled(r, a) for r, a in zip(results, found))


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    return_statistics: bool = False,
    *,
    backend: str = "auto",
) -> Any:
    """Return `input` normalised over its last axes, those of `normalized_shape`.

    Parameters
    ----------
    input : array
        Its shape ends in `normalized_shape`.
    normalized_shape : int or tuple of int
    weight, bias : array, optional
        Of shape `normalized_shape`.
    eps : float
    return_statistics : bool
        Return (output, mean, rstd), the last two without the last axes.
    backend
        As in `batch_norm_statistics`.

    Examples
    --------
    >>> layer_norm(np.array([[1., 3.], [10., 30.]]), 2, eps=0.)
    array([[-1.,  1.],
           [-1.,  1.]])
    """
    where = "layer_norm.fprop"
    rows = _Rows(where, input, normalized_shape)
    found = rows.run("fprop", (input, weight, bias), eps, backend)
    return found if flag(where, "return_statistics", return_statistics) else found[0]


def layer_norm_backward(
    grad_output: Any,
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    mean: Any = None,
    rstd: Any = None,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (grad_input, grad_weight, grad_bias) of `layer_norm`, None where masked off.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> layer_norm_backward(np.array([[1., 3.]]), x, 2, eps=0.)[1]
    array([-1.,  3.])
    """
    rows = _Rows("layer_norm.backward", input, normalized_shape)
    if mean is None or rstd is None:
        _, mean, rstd = rows.run("fprop", (input, None, None), eps, backend)
    arrays = grad_output, input, weight, mean, rstd
    return rows.run("backward", arrays, eps, backend, output_mask)


def layer_norm_jvp(
    primals: Any,
    tangents: Any,
    normalized_shape: Any,
    eps: float = 1e-5,
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) for tuples (input, weight, bias) with None for absent ones.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> layer_norm_jvp((x, None, None), (x, None, None), 2, eps=0.)[1]
    array([[0., 0.]])
    """
    values, dots = _tangents("layer_norm.jvp", primals, tangents)
    rows = _Rows("layer_norm.jvp", values[0], normalized_shape)
    return rows.run("jvp", (*values, *dots), eps, backend)


def layer_norm_double_backward(
    grad_grad_input: Any,
    grad_grad_weight: Any,
    grad_grad_bias: Any,
    grad_output: Any,
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    mean: Any = None,
    rstd: Any = None,
    eps: float = 1e-5,
    output_mask: Any = (True, True, True),
    *,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return the gradients of grad_output, input and weight through `layer_norm_backward`.

    Examples
    --------
    >>> x = np.array([[1., 3.]])
    >>> layer_norm_double_backward(x, None, None, x, x, 2, eps=0.)[0]
    array([[0., 0.]])
    """
    _paired("layer_norm.double_backward", grad_grad_weight, weight)
    rows = _Rows("layer_norm.double_backward", input, normalized_shape)
    if mean is None or rstd is None:
        _, mean, rstd = rows.run("fprop", (input, None, None), eps, backend)
    first = grad_grad_input, grad_grad_weight, grad_grad_bias, grad_output, input, weight
    return rows.run("double_backward", (*first, mean, rstd), eps, backend, output_mask)
