"""A primitive that evaluates a Step; batches fold into N, or run one call after the other."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .step import Step, evaluated


def primitive(name: str, derivative: Any = None, transpose: Any = None) -> Primitive:
    """Return a primitive on the operands of a Step, which is its parameter.

    Parameters
    ----------
    name : str
    derivative, transpose : callable, optional
        As `jax.interpreters.ad` takes them.
    """
    made = Primitive(f"convref_{name}")
    made.multiple_results = True
    made.def_impl(evaluated)
    made.def_abstract_eval(lambda *_, step: [jax.typeof(r) for r in step.results])
    lowered = mlir.lower_fun(lambda *a, step: step.evaluate(*a), multiple_results=True)
    mlir.register_lowering(made, lowered)
    on_cuda = mlir.lower_fun(lambda *a, step: step.evaluate_on_cuda(*a), multiple_results=True)
    mlir.register_lowering(made, on_cuda, platform="cuda")
    batching.primitive_batchers[made] = partial(_batched, made)
    if derivative is not None:
        ad.primitive_jvps[made] = derivative
    if transpose is not None:
        ad.primitive_transposes[made] = transpose
    return made


def is_zero(tangent: Any) -> bool:
    """Return whether a tangent or cotangent is a symbolic zero."""
    return type(tangent) is ad.Zero


def zero_like(result: Any) -> Any:
    """Return the tangent of a result on which no operand has an effect."""
    return ad.Zero(jax.typeof(result).to_tangent_aval())


def is_linear(operand: Any) -> bool:
    """Return whether a transpose rule has to return the cotangent of this operand."""
    return ad.is_undefined_primal(operand)


def _batched(
    made: Primitive, operands: Sequence[Any], dims: Sequence[int | None], *, step: Step
) -> tuple[list[Any], list[int]]:
    size = next(a.shape[d] for a, d in zip(operands, dims) if d is not None)
    operands = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(operands, dims)]
    batched = [d is not None for d in dims]
    results = step.wanted
    moved = [role for role, on in zip(step.roles, batched) if on]
    if "n" in step.problem.independent and all(map(step.is_image, (*moved, *results))):
        found = _folded(made, operands, batched, size, step)
    else:
        found = _looped(made, operands, batched, step)
    return found, [0] * len(found)


def _folded(
    made: Primitive, operands: Sequence[Any], batched: Sequence[bool], size: int, step: Step
) -> list[Any]:
    """Return the results of one call on size * N images."""
    flat = []
    for role, array, on in zip(step.roles, operands, batched):
        if step.is_image(role):
            wide = array if on else jnp.broadcast_to(array, (size, *array.shape))
            array = wide.reshape(-1, *wide.shape[2:])
        flat.append(array)
    problem = replace(step.problem, n=size * step.problem.n)
    found = made.bind(*flat, step=replace(step, problem=problem))
    return [a.reshape(size, step.problem.n, *a.shape[1:]) for a in found]


def _looped(
    made: Primitive, operands: Sequence[Any], batched: Sequence[bool], step: Step
) -> list[Any]:
    def one(moved: list[Any]) -> list[Any]:
        rest = iter(moved)
        given = [next(rest) if on else a for a, on in zip(operands, batched)]
        return made.bind(*given, step=step)

    return list(jax.lax.map(one, [a for a, on in zip(operands, batched) if on]))
