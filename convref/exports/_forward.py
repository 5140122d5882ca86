"""The forward function of each op as an expression of a library, on tensors named by role."""

from collections.abc import Callable
from math import prod
from typing import Any

from ..ops import SIGNATURE, Problem
from ._tensors import nondefault

Forward = Callable[[str, Any], str]


def fields(problem: Problem) -> dict[str, Any]:
    """Return the fields that are arguments of a function, not sizes of its operands."""
    names = (field.name for field in problem.KEYS.values())
    return {name: getattr(problem, name) for name in names if name not in problem.OF_OPERANDS}


def _by_name(op: str, problem: Problem) -> str:
    given = "".join(f", {name}={value!r}" for name, value in fields(problem).items())
    return f"F.{op}({', '.join(SIGNATURE[op, 'fprop'].operands)}{given})"


def _loss(op: str, problem: Problem) -> str:
    given = "".join(f", {name}={value!r}" for name, value in fields(problem).items())
    target = "p" if op == "soft_cross_entropy" else "target"
    shape = problem.shape("y")
    return f"F.{op.removeprefix('soft_')}(x, {target}, w{given}).reshape({shape})"


def _windows(problem: Any) -> str:
    if any(lo != hi for lo, hi in problem.padding):
        raise LookupError("PyTorch pads both ends of a pool alike")
    return f"{problem.filter}, {problem.stride}, {tuple(lo for lo, _ in problem.padding)}"


def _max_pool(op: str, problem: Any) -> str:
    more = f"{problem.dilation}, {problem.ceil}, return_indices=True"
    return f"F.max_pool{problem.rank}d(x, {_windows(problem)}, {more})"


def _avg_pool(op: str, problem: Any) -> str:
    given = nondefault(
        ceil_mode=(problem.ceil, False),
        count_include_pad=(problem.include_pad, True),
        divisor_override=(problem.divisor or None, None),
    )
    return f"F.avg_pool{problem.rank}d(x, {_windows(problem)}{given})"


def _lp_pool(op: str, problem: Any) -> str:
    kernel, stride = problem.filter, problem.stride
    if problem.rank == 1:  # lp_pool1d multiplies by its kernel_size as it is
        (kernel,), (stride,) = kernel, stride
    given = f"{problem.norm}, {kernel}, {stride}, {problem.ceil}"
    return f"F.lp_pool{problem.rank}d(x, {given})"


def _unpool(op: str, problem: Any) -> str:
    if problem.rank == 1:
        sizes = (*problem.output, 1)
        return f"torch._C._nn.max_unpool2d(x[..., None], indices[..., None], {sizes})[..., 0]"
    more = ", (1, 1, 1), (0, 0, 0)" if problem.rank == 3 else ""
    return f"torch._C._nn.max_unpool{problem.rank}d(x, indices, {problem.output}{more})"


_RESIZE = {"linear": ("linear", "bilinear", "trilinear"), "cubic": ("", "bicubic", "")}


def _resize(op: str, problem: Any) -> str:
    mode, scale = problem.mode, problem.scale
    if mode == "nearest":
        word = {"asymmetric": "nearest", "half_pixel": "nearest-exact"}[problem.coord]
    elif mode == "area":
        return f"F.adaptive_avg_pool{problem.rank}d(x, {problem.output})"
    else:
        word = _RESIZE[mode][problem.rank - 1]
        if problem.coord not in ("half_pixel", "align_corners"):
            raise LookupError(f"PyTorch has no coord={problem.coord}")
    given = nondefault(
        align_corners=(problem.coord == "align_corners", False),
        antialias=(problem.antialias, False),
    )
    size = f"scale_factor={scale}" if scale else f"{problem.output}"
    return f"F.interpolate(x, {size}, mode={word!r}{given})"


def _norm(op: str, problem: Any) -> str:
    eps = f"eps={problem.eps!r}"
    if op == "group_norm":
        return f"torch.group_norm(x, {problem.groups}, w, b, {problem.eps!r})"
    if op in ("layer_norm", "rms_norm"):
        names = "w, b" if op == "layer_norm" else "w"
        return f"F.{op}(x, {list(problem.shape('w'))}, {names}, {eps})"
    momentum = f", momentum={getattr(problem, 'momentum', 0.0)!r}"
    if op == "instance_norm":
        return f"F.instance_norm(x, rmean, rvar, w, b, True{momentum}, {eps})"
    return f"F.batch_norm(x, rmean, rvar, w, b, {op == 'batch_norm'}{momentum}, {eps})"


def _shuffle(op: str, problem: Any) -> str:
    if problem.mode != "CRD":
        raise LookupError(f"PyTorch has no mode {problem.mode}")
    return f"F.{op}(x, {problem.factor})"


def _adaptive(op: str, problem: Any) -> str:
    more = ", return_indices=True" if "max" in op else ""
    return f"F.{op}{problem.rank}d(x, {problem.output}{more})"


NORMS = ("batch_norm", "instance_norm", "batch_norm_eval", "group_norm", "layer_norm", "rms_norm")
_LOSSES = ("nll_loss", "cross_entropy", "soft_cross_entropy")
_NAMED = (
    "relu silu gelu hardswish hardtanh hardshrink softshrink threshold hardsigmoid elu celu selu "
    "softplus logsigmoid softsign mish sigmoid tanh tanhshrink softmax log_softmax prelu normalize "
    "local_response_norm"
)
TORCH: dict[str, Forward] = {
    **dict.fromkeys(_NAMED.split(), _by_name),
    "leaky_relu": lambda op, problem: f"F.leaky_relu(x, {problem.slope!r})",
    **dict.fromkeys(_LOSSES, _loss),
    **dict.fromkeys(NORMS, _norm),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle"), _shuffle),
    **dict.fromkeys(("adaptive_max_pool", "adaptive_avg_pool"), _adaptive),
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "lp_pool": _lp_pool,
    "max_unpool": _unpool,
    "resize": _resize,
    "grid_sample": lambda op, problem: (
        f"F.grid_sample(x, grid, {problem.mode!r}, {problem.padding_mode!r}, "
        f"{problem.align_corners})"
    ),
}


def torch_results(op: str, problem: Any) -> tuple[list[str], tuple[str, ...]]:
    """Return the lines that compute what a forward pass returns, and the roles of that."""
    y = TORCH[op](op, problem)
    if op in ("max_pool", "adaptive_max_pool"):
        return [f"y, indices = {y}"], ("y", "indices")
    sizes = problem.n, problem.c, prod(problem.input)
    if op == "batch_norm":
        last = f"True, {problem.momentum!r}, {problem.eps!r}"
        call = f"torch.native_batch_norm(x, w, b, rmean, rvar, {last})"
        return [f"y, mean, rstd = {call}"], ("y", "mean", "rstd", "rmean", "rvar")
    if op == "group_norm":
        call = f"torch.native_group_norm(x, w, b, {', '.join(map(str, sizes))}"
        return [f"y, mean, rstd = {call}, {problem.groups}, {problem.eps!r})"], (
            "y",
            "mean",
            "rstd",
        )
    return [f"y = {y}"], ("y",)


# Of JAX: in jax.nn, with the argument that a field is.
_JAX_NAMES = {"hardswish": "hard_swish", "logsigmoid": "log_sigmoid", "softsign": "soft_sign"}
_JAX_NAMES |= {"hardsigmoid": "hard_sigmoid"}


def _jax_activation(op: str, problem: Any) -> str:
    return f"jax.nn.{_JAX_NAMES.get(op, op)}(x{_keywords(op, problem, 'negative_slope')})"


def _keywords(op: str, problem: Any, slope: str) -> str:
    """Return the fields as arguments of JAX or TensorFlow, which call a slope by this name."""
    given = fields(problem)
    if op == "gelu":
        given = {"approximate": given["approximate"] == "tanh"}
    named = {{"dim": "axis", "slope": slope}.get(k, k): v for k, v in given.items()}
    return "".join(f", {name}={value!r}" for name, value in named.items())


def _jax_pool(op: str, problem: Any) -> str:
    if problem.ceil or getattr(problem, "divisor", 0) or not getattr(problem, "include_pad", True):
        raise LookupError("the program has no ceil_mode, divisor or uncounted padding")
    sizes = [f"(1, 1, {', '.join(map(str, s))})" for s in (problem.filter, problem.stride)]
    pads = f"[(0, 0), (0, 0), {', '.join(map(str, problem.padding))}]"
    start, step = ("-jnp.inf", "lax.max") if op == "max_pool" else ("0.0", "lax.add")
    dilated = f"(1, 1, {', '.join(map(str, problem.dilation))})"
    window = f"{', '.join(sizes)}, {pads}, window_dilation={dilated}"
    total = f"lax.reduce_window(x, jnp.array({start}, x.dtype), {step}, {window})"
    return total if op == "max_pool" else f"{total} / {prod(problem.filter)}"


_JAX_NAMED = "relu leaky_relu silu gelu hardswish hardsigmoid elu celu selu logsigmoid softsign"
_JAX_NAMED += " mish sigmoid tanh softmax log_softmax"
JAX: dict[str, Forward] = {
    **dict.fromkeys(_JAX_NAMED.split(), _jax_activation),
    "max_pool": _jax_pool,
    "avg_pool": _jax_pool,
}

_TF_NAMES = {"hardswish": "tf.keras.activations.hard_silu", "softsign": "tf.nn.softsign"}


def _tf_activation(op: str, problem: Any) -> str:
    return f"{_TF_NAMES.get(op, f'tf.nn.{op}')}(x{_keywords(op, problem, 'alpha')})"


_TF_NAMED = "relu leaky_relu silu gelu selu softsign sigmoid tanh softmax log_softmax"
TENSORFLOW: dict[str, Forward] = dict.fromkeys(_TF_NAMED.split(), _tf_activation)
NUMPY: dict[str, Forward] = {
    "relu": lambda op, p: "np.maximum(x, 0)",
    "leaky_relu": lambda op, p: f"np.where(x > 0, x, {p.slope!r} * x)",
    "sigmoid": lambda op, p: "1 / (1 + np.exp(-x))",
    "silu": lambda op, p: "x / (1 + np.exp(-x))",
    "tanh": lambda op, p: "np.tanh(x)",
    "softsign": lambda op, p: "x / (1 + np.abs(x))",
    "hardtanh": lambda op, p: f"np.clip(x, {p.min_val!r}, {p.max_val!r})",
    "softplus": lambda op, p: f"np.logaddexp(0, {p.beta!r} * x) / {p.beta!r}",
    "logsigmoid": lambda op, p: "-np.logaddexp(0, -x)",
    "elu": lambda op, p: f"np.where(x > 0, x, {p.alpha!r} * np.expm1(x))",
    "softmax": lambda op, p: (
        f"np.exp(x - x.max({p.dim}, keepdims=True)) / "
        f"np.exp(x - x.max({p.dim}, keepdims=True)).sum({p.dim}, keepdims=True)"
    ),
}
