"""JAX's convolution, pools, norms, activations and resizing, differentiated by JAX's own rules."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

from ... import dtypes
from ...case import Call
from ...judge import Numerics
from .._autodiff import Autodiff

Given = dict[str, Any]
_OTHER_DERIVATIVES = {
    "leaky_relu": "the derivative of JAX's leaky_relu at 0 is 1",
    "prelu": "the derivative of JAX's leaky_relu at 0 is 1",
    **dict.fromkeys(("elu", "celu", "selu"), "JAX finds exp by adding 1 to expm1, which cancels"),
    "hardswish": "the derivative of JAX's hard_swish at -3 and 3 is the mean of both sides",
}


def supports(call: Call, rules: bool) -> str | None:
    """Return None, or why JAX has no such function; with `rules` the adapter finds indices."""
    if call.op not in OPS:
        return f"the adapter has no {call.op}"
    if call.op != "conv" and call.dtype not in dtypes.REAL:
        return f"the adapter has no {call.op} for {call.dtype}"
    if call.op != "conv" and not prod(call.problem.shape("x")):
        return "the adapter does not support empty images"
    if call.problem.line_value("par"):
        return f"the adapter does not support par={call.problem.line_value('par')}"
    if call.pass_ != "fprop" and call.op in _OTHER_DERIVATIVES:
        return _OTHER_DERIVATIVES[call.op]
    if call.op == "max_pool" and not rules:
        return _unlike_max(call) or _unlike_windows(call)
    reason = _REASONS.get(call.op)
    return reason(call) if reason else None


def _unlike_conv(call: Call) -> str | None:
    if call.pass_ != "fprop" and call.dtype in dtypes.INTEGERS:
        return f"JAX has no derivatives for {call.dtype}"
    if call.pass_ in ("backward", "double_backward") and call.dtype in dtypes.COMPLEX:
        return "JAX does not conjugate complex cotangents"
    return None


def _unlike_max(call: Call) -> str | None:
    if call.pass_ == "fprop":
        return "JAX's max pooling returns no indices"
    if call.pass_ == "double_backward":
        return "JAX has no second derivative of max pooling with given indices"
    if set(call.problem.dilation) != {1}:
        return "JAX has no derivative of dilated max pooling"
    if call.pass_ == "backward" and any(min(axis.lo, axis.hi) < 0 for axis in call.problem.axes):
        return "JAX's gradient of max pooling refuses negative padding"
    return None


def _unlike_resize(call: Call) -> str | None:
    problem: Any = call.problem
    if problem.coord != "half_pixel" or problem.scale:
        return "jax.image.resize supports only half_pixel positions and no scale"
    if call.dtype in dtypes.INTEGERS and problem.mode != "nearest":
        return "jax.image.resize rounds sums of uint8 otherwise"
    if problem.mode == "nearest":
        known = problem.near == "round_prefer_ceil"
        return None if known else "jax.image.resize supports only near=round_prefer_ceil"
    if problem.mode == "area":
        if any(size % out for size, out in zip(problem.input, problem.output)):
            return "jax.image.resize weights partly covered elements in mode area; PyTorch does not"
    elif problem.mode == "cubic":
        known = ((-0.5, True), (-0.75, False)) if not problem.antialias else ((-0.5, True),)
        if (problem.a, problem.exclude) not in known:
            return "jax.image.resize has a = -0.5 with exclude, or -0.75 without it"
    elif problem.antialias and not problem.exclude:
        return "jax.image.resize with antialias always excludes positions beyond the image"
    method = _method(problem)
    return (
        None
        if _has_resize_method(method)
        else f"jax.image.resize of JAX {jax.__version__} has no {method}"
    )


def _unlike_windows(call: Call) -> str | None:
    problem: Any = call.problem
    if problem.ceil and any(axis.hi < 0 for axis in problem.axes):
        return "the adapter does not support ceil_mode with negative padding at the high end"
    return None


_REASONS = {
    "conv": _unlike_conv,
    "max_pool": _unlike_windows,
    "avg_pool": _unlike_windows,
    "resize": _unlike_resize,
}


def numerics(call: Call) -> Numerics:
    """Return the declared model: docs/judge.md says where each number comes from."""
    nearest = call.op == "resize" and call.problem.mode == "nearest"
    unit = 2.0**-24 if nearest else None  # of positions
    if call.dtype in dtypes.INTEGERS:
        return Numerics("exact", positions=unit)
    if call.dtype in dtypes.COMPLEX:  # three real convolutions of sums
        return Numerics("rn32" if call.dtype == "c64" else "rn64", growth=4.0, ftz=True)
    model = "rn64" if call.dtype == "f64" else "rn32"
    stages = _stages(call) if call.dtype in dtypes.SIXTEEN else 0
    # XLA on the CPU flushes subnormals of float32, in which it sums; those of float16 are normal.
    flushes = call.dtype != "f16"
    if call.op != "resize" or nearest:
        return Numerics(model, stages=stages, ftz=flushes, positions=unit)
    weights = dtypes.number(call.dtype).u if call.dtype != "f64" else 0.0
    return Numerics(model, stages=stages, ftz=flushes, positions=2.0**-53, weights=weights)


def _stages(call: Call) -> int:
    """Return the most roundings of 16-bit values before the last rounding.

    XLA may round after every operation: a window adds its elements, a contraction per axis of a
    resize and the scatter of a copy theirs; of the steps of a smooth function there are some dozen
    in each derivative. Norms are computed in float32. A convolution adds its bias, and each further
    term of a derivative, to a rounded sum; it sums the gradient of a bias in the 16-bit type.
    """
    if call.op == "conv" and call.pass_ == "backward":
        return call.products("db") if "db" in call.wanted else 0
    if call.op == "conv":
        return 1 if call.pass_ == "fprop" else 3
    if call.op in _NORMS:
        return 2
    if call.op == "resize":
        return call.problem.products("dx") + 2 * call.problem.rank
    if call.op in ("max_pool", "avg_pool"):
        return prod(axis.taps for axis in call.problem.axes) + 2
    steps = {"fprop": 12, "backward": 24, "jvp": 24, "double_backward": 48}[call.pass_]
    if call.op == "soft_cross_entropy":
        return steps + call.problem.products("y")
    if call.op == "cumsum":  # all partial sums may be rounded
        return steps + call.problem.count
    return steps + (2 * call.problem.count if call.op in ("softmax", "log_softmax") else 0)


def run(call: Call, rules: bool, *operands: Any) -> tuple[Any, ...]:
    """Return the results by role; without `rules` by JAX's derivatives, ignoring saved results."""
    given = dict(zip(call.roles, operands))
    if rules and (rule := _RULES.get((call.op, call.pass_))) is not None:
        return rule(call, given)
    found = _LIBRARY.derive(lambda problem, **at: OPS[call.op](call, at), call, given)
    return call.results(lambda role: found[role])


def _maxima(call: Call, x: Any) -> tuple[Any, Any]:
    """Return the maxima and their indices, which JAX's own windows do not have.

    Floats are compared as integers of the same order: XLA takes subnormals for zeros.
    """
    sizes = x.shape[2:]
    bits = x.view(f"i{x.dtype.itemsize}")
    most, least = np.iinfo(bits.dtype).max, np.iinfo(bits.dtype).min
    nan = bits.dtype.type(most)
    order = jnp.where(bits == least, 0, jnp.where(bits < 0, bits ^ most, bits))  # -0 equals 0
    order = jnp.where(jnp.isnan(x), nan, order)
    wide = jnp.int64 if prod(sizes) >= 2**31 else jnp.int32
    none = np.array(np.iinfo(wide).max, wide)  # of a window without elements
    positions = jnp.broadcast_to(jnp.arange(prod(sizes), dtype=wide).reshape(sizes), x.shape)

    def larger(one: Any, other: Any) -> Any:
        (a, i), (b, j) = one, other
        second = (b > a) | ((b == a) & jnp.where(a == nan, j > i, j < i))
        return jnp.where(second, b, a), jnp.where(second, j, i)

    start = (bits.dtype.type(least), none)
    _, at = lax.reduce_window((order, positions), start, larger, **_windows(call))
    at = jnp.where(at == none, -1, at).astype(jax.dtypes.canonicalize_dtype(np.int64))
    return _picked(x, at, -np.inf), at


def _picked(x: Any, indices: Any, absent: float = 0.0) -> Any:
    """Return the elements of images at flat indices, and at -1 what is absent."""
    flat, at = x.reshape(*x.shape[:2], -1), indices.reshape(*indices.shape[:2], -1)
    found = jnp.take_along_axis(flat, jnp.maximum(at, 0), axis=2)
    return jnp.where(at < 0, absent, found).astype(x.dtype).reshape(indices.shape)


def _scattered(call: Call, dy: Any, indices: Any) -> Any:
    """Return dx of a maximum, by the indices that are given; -1 has no position."""
    sizes = call.problem.shape("x")
    images, count = prod(sizes[:2]), prod(sizes[2:])
    at = jnp.where(indices < 0, count, indices).reshape(images, -1)
    dx = jnp.zeros((images, count + 1), dy.dtype)
    dx = dx.at[np.arange(images)[:, None], at].add(dy.reshape(images, -1))
    return dx[:, :count].reshape(sizes)


def _max_pool_jvp(call: Call, given: Given) -> tuple[Any, Any]:
    y, indices = _maxima(call, given["x"])
    return y, _picked(given["x_dot"], indices)


def _batch_norm_backward(call: Call, given: Given) -> tuple[Any, ...]:
    """Return the gradients from the saved statistics: two sums, where JAX's own rules have six."""
    problem: Any = call.problem
    blocks, wide = problem.blocks, jnp.float64 if call.dtype == "f64" else jnp.float32
    dy, x = (given[role].astype(wide).reshape(blocks.image) for role in ("dy", "x"))
    mean, scale = (given[role].astype(wide).reshape(blocks.weight) for role in ("mean", "rstd"))
    z = (x - mean) * scale
    db, dw = (v.sum(blocks.statistics, keepdims=True) for v in (dy, dy * z))
    if given.get("w") is not None:
        scale = scale * given["w"].astype(wide).reshape(blocks.weight)
    found = {"dx": (dy - (db + z * dw) / problem.count) * scale, "dw": dw, "db": db}
    like = given["x"].dtype
    return call.results(lambda role: found[role].reshape(problem.shape(role)).astype(like))


_RULES: dict[tuple[str, str], Callable[[Call, Given], tuple[Any, ...]]] = {
    ("max_pool", "fprop"): lambda call, given: _maxima(call, given["x"]),
    ("max_pool", "backward"): lambda call, given: (
        _scattered(call, given["dy"], given["indices"]),
    ),
    ("max_pool", "jvp"): _max_pool_jvp,
    ("max_pool", "double_backward"): lambda call, given: (_picked(given["ddx"], given["indices"]),),
    ("batch_norm", "backward"): _batch_norm_backward,
}


def _vjp(function: Callable[..., Any], at: Any, cotangents: Any) -> list[Any]:
    (found,) = jax.vjp(function, at)[1](cotangents)
    return [found[role] for role in at]


_LIBRARY = Autodiff(
    tensor=jnp.asarray,
    array=np.asarray,
    vjp=_vjp,
    jvp=lambda function, at, dots: jax.jvp(function, (at,), (dots,)),
)


def _conv(call: Call, given: Given) -> Given:
    """Return the convolution; a transposed one gathers from an input with zeros between."""
    problem, w, b = call.conv, given["w"], given["b"]
    rank, groups, ones = problem.rank, problem.groups, (1,) * problem.rank
    padding = list(problem.padding)
    if problem.transposed:
        k, c = problem.k // groups, problem.c // groups
        w = w.reshape(groups, c, k, *problem.filter).swapaxes(1, 2)
        w = w.reshape(problem.k, c, *problem.filter)
        reach = [d * (taps - 1) for d, taps in zip(problem.dilation, problem.filter)]
        rows = zip(reach, problem.padding, problem.output_padding)
        padding = [(r - lo, r - hi + extra) for r, (lo, hi), extra in rows]
    if problem.flip != problem.transposed:
        w = lax.rev(w, tuple(range(2, 2 + rank)))
    y = lax.conv_general_dilated(
        given["x"],
        w,
        ones if problem.transposed else problem.stride,
        padding,
        lhs_dilation=problem.stride if problem.transposed else ones,
        rhs_dilation=problem.dilation,
        feature_group_count=groups,
        precision=lax.Precision.HIGHEST,
    )
    return {"y": y if b is None else y + b.reshape(-1, *(1,) * rank)}


def _windows(call: Call) -> dict[str, Any]:
    """Return the arguments of `lax.reduce_window`; what ceil_mode adds is at the high end."""
    problem: Any = call.problem
    edges = []
    for axis in problem.axes:
        span = (axis.small - 1) * axis.stride + axis.dilation * (axis.taps - 1) + 1
        edges.append((axis.lo, max(min(axis.hi, 0), span - axis.big - axis.lo)))
    return {
        "window_dimensions": (1, 1, *problem.filter),
        "window_strides": (1, 1, *problem.stride),
        "padding": ((0, 0), (0, 0), *edges),
        "window_dilation": (1, 1, *problem.dilation),
    }


def _max_pool(call: Call, given: Given) -> Given:
    return {"y": lax.reduce_window(given["x"], -jnp.inf, lax.max, **_windows(call))}


def _avg_pool(call: Call, given: Given) -> Given:
    problem: Any = call.problem
    x = given["x"]
    sums = lax.reduce_window(x, np.zeros((), x.dtype)[()], lax.add, **_windows(call))
    if problem.divisor:
        return {"y": sums / problem.divisor}
    counts = np.ones((), int)
    for taps in problem.counts:
        counts = np.multiply.outer(counts, np.array(taps))
    return {"y": sums / np.maximum(counts, 1).astype(x.dtype)}


def _method(problem: Any) -> str:
    if problem.mode != "cubic":
        return str(problem.mode)
    return "cubic" if problem.exclude else "cubic-pytorch"


def _has_resize_method(method: str) -> bool:
    """Return whether this JAX resizes so: before 0.10 it has neither area nor cubic-pytorch."""
    try:
        jax.image.ResizeMethod.from_string(method)
    except ValueError:
        return False
    return True


def _resize(call: Call, given: Given) -> Given:
    problem: Any = call.problem
    resized = partial(jax.image.resize, antialias=problem.antialias)
    y = resized(given["x"], problem.shape("y"), _method(problem), precision=lax.Precision.HIGHEST)
    return {"y": y}


def _norm(call: Call, given: Given) -> Given:
    """Return y and the statistics; 16-bit data are normalised in float32."""
    problem: Any = call.problem
    wide = jnp.float64 if call.dtype == "f64" else jnp.float32
    x, blocks = given["x"].astype(wide).reshape(problem.blocks.image), problem.blocks
    if call.op == "batch_norm_eval":
        each = [-1 if axis == 1 else 1 for axis in range(4)]
        mean, var = (given[role].astype(wide).reshape(each) for role in ("rmean", "rvar"))
    else:
        mean = jnp.mean(x, blocks.statistics, keepdims=True)
        var = jnp.var(x, blocks.statistics, keepdims=True)
    y = nn.standardize(x, blocks.statistics, mean, var, problem.eps)
    for role, apply in (("w", jnp.multiply), ("b", jnp.add)):
        if given.get(role) is not None:
            y = apply(y, given[role].astype(wide).reshape(blocks.weight))
    found = {"y": y.reshape(problem.shape("y")).astype(given["x"].dtype)}
    if call.op != "batch_norm_eval":
        found |= {"mean": mean, "rstd": lax.rsqrt(var + problem.eps)}
    if given.get("rmean") is not None and call.op != "batch_norm_eval":
        unbiased = var * (problem.count / (problem.count - 1))
        for role, new in (("rmean", mean), ("rvar", unbiased)):
            old = given[role].astype(wide)
            new = new.reshape(-1, *old.shape).mean(0)
            found[role] = (1 - problem.momentum) * old + problem.momentum * new
    return {
        role: a if role == "y" else a.reshape(problem.shape(role)).astype(_dtype_of(call, role))
        for role, a in found.items()
    }


def _dtype_of(call: Call, role: str) -> Any:
    return dtypes.numpy_dtype(call.dtype_of(role))


def _prelu(call: Call, given: Given) -> Given:
    slopes = given["w"].reshape(-1, *(1,) * call.problem.rank)
    return {"y": nn.leaky_relu(given["x"], slopes)}


def _soft_cross_entropy(call: Call, given: Given) -> Given:
    problem: Any = call.problem
    smooth, w = problem.label_smoothing, given["w"]
    q = (1 - smooth) * given["p"] + smooth / problem.c if smooth else given["p"]
    q = q if w is None else q * w.reshape(-1, *(1,) * problem.rank)
    each = -(q * nn.log_softmax(given["x"], 1)).sum(1)
    if problem.reduction == "none":
        return {"y": each}
    return {"y": (each.mean() if problem.reduction == "mean" else each.sum()).reshape(1)}


def _pointwise(function: Callable[..., Any], *fields: str) -> Callable[[Call, Given], Given]:
    """Return a function of x and of fields of the problem."""

    def run(call: Call, given: Given) -> Given:
        return {"y": function(given["x"], *(getattr(call.problem, name) for name in fields))}

    return run


def _attention(call: Call, given: Given) -> Given:
    problem: Any = call.problem
    k, v = (jnp.repeat(given[role], problem.groups, 1) for role in "kv")
    scores = given["x"] @ k.swapaxes(-1, -2) * problem.factor
    scores = scores if given.get("b") is None else scores + given["b"]
    if problem.causal:
        scores = jnp.where(np.tri(*scores.shape[-2:]) > 0, scores, -jnp.inf)
    seen = scores.max(-1, keepdims=True) > -jnp.inf  # else all keys are left out
    return {"y": jnp.where(seen, nn.softmax(jnp.where(seen, scores, 0), -1), 0) @ v}


_NORMS = ("batch_norm", "instance_norm", "batch_norm_eval", "group_norm", "layer_norm")
OPS: dict[str, Callable[[Call, Given], Given]] = {
    "conv": _conv,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "resize": _resize,
    **dict.fromkeys(_NORMS, _norm),
    "relu": _pointwise(nn.relu),
    "silu": _pointwise(nn.silu),
    "hardswish": _pointwise(nn.hard_swish),
    "sigmoid": _pointwise(nn.sigmoid),
    "tanh": _pointwise(nn.tanh),
    "leaky_relu": _pointwise(nn.leaky_relu, "slope"),
    "prelu": _prelu,
    "elu": _pointwise(nn.elu, "alpha"),
    "celu": _pointwise(nn.celu, "alpha"),
    "selu": _pointwise(nn.selu),
    "softsign": _pointwise(nn.soft_sign),
    "logsigmoid": _pointwise(nn.log_sigmoid),
    "gelu": _pointwise(lambda x, form: nn.gelu(x, approximate=form == "tanh"), "approximate"),
    "softmax": _pointwise(nn.softmax, "dim"),
    "log_softmax": _pointwise(nn.log_softmax, "dim"),
    "soft_cross_entropy": _soft_cross_entropy,
    "matmul": lambda call, given: {"y": given["x"] @ given["w"]},
    "sum": lambda call, given: {"y": given["x"].sum(call.problem.axes, keepdims=True)},
    "mean": lambda call, given: {"y": given["x"].mean(call.problem.axes, keepdims=True)},
    "cumsum": _pointwise(jnp.cumsum, "dim"),
    "sdpa": _attention,
}
