"""A case as a program of plain JAX."""

from collections.abc import Sequence

from .. import dtypes
from ..case import Call, Case
from ..ops import ConvProblem, Problem
from ._forward import JAX
from ._snippet import NAMES, Snippet
from ._tensors import nondefault, tuple_text


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
    return _Jax(case).text()


class _Jax(Snippet):
    writer, framework = "to_jax", "JAX"
    jvp, zeros, module = "jax.jvp", "jnp.zeros_like", "jnp"
    forwards = JAX
    names = NAMES | {f"u{bits}": f"uint{bits}" for bits in (16, 32, 64)}

    def refusal(self, call: Call) -> str | None:
        is_complex = call.dtype in dtypes.COMPLEX and call.pass_ in ("backward", "double_backward")
        conjugated = "JAX does not conjugate complex cotangents" if is_complex else None
        return super().refusal(call) or conjugated

    def imports(self) -> list[str]:
        lines = ["import jax", "import jax.numpy as jnp", "from jax import lax"]
        if self.call.dtype.endswith(("64", "128")) and self.call.dtype != "c64":
            lines += ["", 'jax.config.update("jax_enable_x64", True)']
        return lines

    def conv(self, problem: ConvProblem) -> list[str]:
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

    def windows(self, problem: Problem, unfolds: bool) -> list[str]:
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
        shape = f"jax.ShapeDtypeStruct({problem.shape('x')}, jnp.{self.names[self.call.dtype]})"
        return [
            *lines,
            "",
            "def fold(cols):",
            f"    return jax.linear_transpose(unfold, {shape})(cols)[0]",
        ]

    def backward(self, inputs: str, by: Sequence[str]) -> list[str]:
        return [f"{tuple_text(self.call.wanted)} = {_pulled_back(self.name, inputs, by)}"]

    def double_backward(self, inputs: str, sources: dict[str, str]) -> list[str]:
        by, moved = self.differentiated(), ["dy", "x", "w"]
        if self.call.op != "conv":
            moved = list(dict.fromkeys(("dy", *by, *sources.values())))
        named = ", ".join("ddy" if role == "dy" else f"d{role}" for role in moved)
        outer = tuple_text(f"dd{name}" for name in by)
        return [
            f"def backward({', '.join(moved)}):",
            f"    return {_pulled_back(self.name, inputs, by)}",
            f"{named} = jax.vjp(backward, {', '.join(moved)})[1]({outer})",
        ]


def _pulled_back(name: str, inputs: str, by: Sequence[str]) -> str:
    return f"jax.vjp(lambda {', '.join(by)}: {name}({inputs}), {', '.join(by)})[1](dy)"
