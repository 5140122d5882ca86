"""A case as a program of plain JAX."""

from __future__ import annotations

from .. import dtypes
from ..case import Call, Case
from ..errors import UnsupportedError, message
from ..ops import ConvProblem, Problem
from ._snippet import (
    NAMES,
    Snippet,
    arguments,
    differentiated,
    listed,
    nondefault,
    prints,
    refuse,
    window_pass,
)

_NAMES = NAMES | {f"u{bits}": f"uint{bits}" for bits in (16, 32, 64)}


def to_jax(case: Case) -> str:
    """Return a Python program that computes the case with JAX alone and prints the results.

    JAX arrays have no strides: where the case names a memory order, the program leaves it out.

    Raises
    ------
    UnsupportedError
        If JAX has no such dtype, math or derivative (complex ones follow another convention).

    Examples
    --------
    >>> from convref.case import parse
    >>> "lax.conv_general_dilated(x, w, (1,), [(-1, 0)]" in to_jax(
    ...     parse("conv.fprop:n1c1k1_i3_f2_p-1,0:fill=ones")
    ... )
    True
    """
    call = case.call
    refuse("JAX", call, _NAMES)
    if call.dtype in dtypes.COMPLEX and call.pass_ in ("backward", "double_backward"):
        raise UnsupportedError(
            message("snippet in JAX", "JAX's complex cotangents are not conjugated", call)
        )
    snippet = Snippet(case, "JAX")
    dtype = _NAMES[call.dtype]
    imports = ["import jax", "import jax.numpy as jnp", "from jax import lax"]
    if call.dtype.endswith(("64", "128")) and call.dtype != "c64":
        imports += ["", 'jax.config.update("jax_enable_x64", True)']
    if call.op == "conv":
        function, compute = _conv(call.conv), _pass(call)
    else:
        unfolds, operand, result = window_pass(call)
        function = _windows(call.problem, dtype, unfolds)
        compute = [f"{result} = {'unfold' if unfolds else 'fold'}({operand})"]
    data = []
    for role, text in snippet.texts.items():
        data += [*text.before, f"{role} = jnp.array({text.expression}, dtype=jnp.{dtype})"]
    if "b" in differentiated(call) and "b" not in call.roles:
        data.append(f"b = jnp.zeros({call.conv.k}, dtype=jnp.{dtype})")
    return snippet.assemble(imports, [*function, "", *data, *compute], prints(call))


def _conv(problem: ConvProblem) -> list[str]:
    rank, groups = problem.rank, problem.groups
    ones = (1,) * rank
    lines = ["def conv(x, w, b=None):"]
    if problem.transposed:
        k, c = problem.k // groups, problem.c // groups
        lines.append(f"    w = w.reshape({groups}, {c}, {k}, *{problem.filter}).swapaxes(1, 2)")
        lines.append(f"    w = w.reshape({problem.k}, {c}, *{problem.filter})")
    if problem.flip != problem.transposed:
        lines.append(f"    w = jnp.flip(w, {tuple(range(2, 2 + rank))})")
    padding: list[tuple[int, int]] = list(problem.padding)
    if problem.transposed:
        reach = [d * (taps - 1) for d, taps in zip(problem.dilation, problem.filter)]
        rows = zip(reach, problem.padding, problem.output_padding)
        padding = [(r - lo, r - hi + extra) for r, (lo, hi), extra in rows]
    keywords = nondefault(
        lhs_dilation=(problem.stride if problem.transposed else ones, ones),
        rhs_dilation=(problem.dilation, ones),
        feature_group_count=(groups, 1),
    )
    strides = ones if problem.transposed else problem.stride
    return [
        *lines,
        f"    y = lax.conv_general_dilated(x, w, {strides}, {padding}{keywords},",
        "                                 precision=lax.Precision.HIGHEST)",
        f"    return y if b is None else y + b.reshape(-1{', 1' * rank})",
    ]


def _windows(problem: Problem, dtype: str, unfolds: bool) -> list[str]:
    keywords = nondefault(rhs_dilation=(problem.dilation, (1,) * problem.rank))
    geometry = f"{problem.filter}, {problem.stride}, {list(problem.padding)}{keywords}"
    n, rows, columns = problem.shape("cols")
    lines = [
        "def unfold(x):",
        f"    patches = lax.conv_general_dilated_patches(x, {geometry},",
        "                                               precision=lax.Precision.HIGHEST)",
        f"    return patches.reshape({n}, {rows}, {columns})",
    ]
    if unfolds:
        return lines
    shape = f"jax.ShapeDtypeStruct({problem.shape('x')}, jnp.{dtype})"
    return [
        *lines,
        "",
        "def fold(cols):",
        f"    return jax.linear_transpose(unfold, {shape})(cols)[0]",
    ]


def _pass(call: Call) -> list[str]:
    """Return the lines that compute the wanted results from the operands."""
    inputs = arguments(call)
    by = differentiated(call)
    if call.pass_ == "fprop":
        return [f"y = conv({inputs})"]
    if call.pass_ == "jvp":
        if not call.carried:
            return [f"y = conv({inputs})", "y_dot = jnp.zeros_like(y)"]
        names, dots = ", ".join(by), listed(f"{name}_dot" for name in by)
        primal = f"lambda {names}: conv({inputs})"
        return [f"y, y_dot = jax.jvp({primal}, {listed(by)}, {dots})"]
    pulled = f"jax.vjp(lambda {', '.join(by)}: conv({inputs}), {', '.join(by)})[1](dy)"
    if call.pass_ == "backward":
        return [f"{listed(call.wanted)} = {pulled}"]
    source = {"ddy": "dy", "dx": "x", "dw": "w"}
    if not by:
        return [f"{role} = jnp.zeros_like({source[role]})" for role in call.wanted]
    outer = listed(f"dd{name}" for name in by)
    return [
        "def backward(dy, x, w):",
        f"    return {pulled}",
        f"ddy, dx, dw = jax.vjp(backward, dy, x, w)[1]({outer})",
    ]
