"""Command lines of MIOpenDriver."""

from ..case import Call, axis_letters, channels_last
from ..errors import UnsupportedError, message
from ..ops import ConvProblem, Sizes

_DTYPES = {"f32": "conv", "f16": "convfp16", "bf16": "convbfp16", "i8": "convint8"}
_PASSES = {"fprop": 1, "dx": 2, "dw": 4}


def _refusal(call: Call) -> str | None:
    problem = call.problem
    if not isinstance(problem, ConvProblem) or call.pass_ not in ("fprop", "backward"):
        return "MIOpenDriver runs convolutions, forward and backward"
    if call.dtype not in _DTYPES or (call.dtype == "i8" and call.pass_ != "fprop"):
        return f"MIOpenDriver has no {call.dtype} for this pass"
    if problem.flip:
        return "MIOpenDriver has no flipped filter"
    if any(lo != hi or lo < 0 for lo, hi in problem.padding):
        return "MIOpenDriver has one padding per axis, at least 0, for both ends"
    if call.pass_ == "backward" and not any(call.mask[:2]):
        return "MIOpenDriver computes db only together with dx or dw"
    if any(spec.step or spec.expand or spec.offset for spec in call.specs):
        return "MIOpenDriver makes dense tensors only"
    return None


def _layout(call: Call, *roles: str) -> str:
    """Return NCHW or NHWC for the first of `roles` that the call has."""
    role = next((r for r in roles if r in call.roles), "")
    order = call.spec(role).order if role else ""
    if order not in ("", channels_last(axis_letters(call.problem, role))):
        raise UnsupportedError(message("to_miopen", f"{role} is stored as {order}", call))
    spatial = "DHW" if call.problem.rank == 3 else "HW"
    return f"N{spatial}C" if order else f"NC{spatial}"


def to_miopen(call: Call) -> str:
    r"""Return the command line of MIOpenDriver that computes `call`, on data of its own.

    A rank of 1 becomes 2 with a height of 1.

    Raises
    ------
    UnsupportedError
        If the driver has no flag for it (asymmetric padding, strided views, JVPs ...).

    Examples
    --------
    >>> from convref.case import parse
    >>> call = parse("conv.wgrad:n2c3k4_i8x8_f3x3_p1:dt=bf16").call
    >>> print(to_miopen(call).replace(" -k", "\n -k"))
    MIOpenDriver convbfp16 -n 2 -c 3 -H 8 -W 8
     -k 4 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -F 4 -V 1
    """
    if reason := _refusal(call):
        raise UnsupportedError(message("to_miopen", reason, call))
    problem = call.conv
    lo = tuple(lo for lo, _ in problem.padding)
    depth = problem.rank == 3
    rows: list[tuple[str, Sizes, int]] = [
        (" in_d H W", problem.input, 1),
        (" fil_d y x", problem.filter, 1),
        (" pad_d p q", lo, 0),
        (" conv_stride_d u v", problem.stride, 1),
        (" dilation_d l j", problem.dilation, 1),
    ]
    words = [_DTYPES[call.dtype], f"-n {problem.n}", f"-c {problem.c}"]
    words = ["MIOpenDriver", *words, *(["--spatial_dim 3"] if depth else [])]
    for flags, values, missing in rows:
        words += _flags(flags, values, missing)
        words += [f"-k {problem.k}"] if flags == " in_d H W" else []
    if problem.transposed:
        words += ["-m trans", *_flags(" trans_output_pad_d Y X", problem.output_padding, 0)]
    words += [f"-g {problem.groups}"] if problem.groups > 1 else []
    with_bias = problem.bias if call.pass_ == "fprop" else call.mask[2]
    words += ["-b 1"] if with_bias else []
    layouts = (("in", "x"), ("fil", "w"), ("out", "dy", "x"))
    named = [f"--{name}_layout {_layout(call, *roles)}" for name, *roles in layouts]
    words += named if any(text.endswith("C") for text in named) else []
    passes = [call.pass_] if call.pass_ == "fprop" else [r for r in call.wanted if r != "db"]
    return " ".join((*words, f"-F {sum(_PASSES[p] for p in passes)}", "-V 1"))


def _flags(flags: str, values: Sizes, missing: int) -> list[str]:
    """Return one flag per axis, long for depth; `missing` stands in for a height."""
    padded = (missing,) * (2 - len(values)) + values
    names = flags.split()[-len(padded) :]
    return [f"{'-' if len(n) == 1 else '--'}{n} {v}" for n, v in zip(names, padded)]
