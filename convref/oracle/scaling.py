"""Images times a function of a sum over neighbours along one axis, and the derivatives.

`normalize` divides by a p-norm, `local_response_norm` by a power of a sum of squares. With f the
power that is summed, A the sum over the neighbours of each element and g what x is multiplied by:

    y      =  x g(s),   s = A f(x)                                                 (N.6)
    y_dot  =  g x_dot + x g'(s) A(f'(x) x_dot)                                     (N.7)
    dx     =  g dy + f'(x) A*(x g'(s) dy)                                          (N.8)

A* is the adjoint of A: the sum over the elements that an element is a neighbour of. Only the power
in g is not rational: of Fractions it is the nearest float64, and everything else is exact.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..case import Call
from ..dtypes import number
from ..ops import NormalizeProblem, Problem, passes
from ._elementary import constant, power
from ._rounding import FIRST_ORDER, underflow, unit
from ._windows import Array, Results, gather_sums, scatter_sums


def sums(v: Array, problem: Problem, adjoint: bool = False) -> Array:
    """Return A v along the last axis, or A* v.

    Examples
    --------
    >>> from convref.ops import LocalResponseNormProblem
    >>> problem = LocalResponseNormProblem(n=1, c=3, input=(1,), size=2)
    >>> sums(np.array([1., 10., 100.]), problem), sums(np.array([1., 10., 100.]), problem, True)
    (array([  1.,  11., 110.]), array([ 11., 110., 100.]))
    """
    if isinstance(problem, NormalizeProblem):  # all along the axis, its own adjoint
        return v.sum(axis=-1, keepdims=True)
    return (scatter_sums if adjoint else gather_sums)(v, (problem.window,))


class Slopes(NamedTuple):
    """x, the derivatives f' and f'' at x, and g, g' and g'' at s; the axis of sums last."""

    x: Array
    f1: Array
    f2: Array
    g: Array
    g1: Array
    g2: Array


def slopes(x: Array, problem: Problem) -> Slopes:
    """Return the factors of N.6 to N.9."""
    x = np.moveaxis(x, problem.dim, -1)
    if isinstance(problem, NormalizeProblem):
        p, size = constant(problem.p, x), np.abs(x)
        f1 = p * np.sign(x) * power(size, problem.p - 1)
        f2 = p * (p - 1) * power(size, problem.p - 2)
        return Slopes(x, f1, f2, *_reciprocal_norm(sums(power(size, problem.p), problem), problem))
    a, b = constant(problem.alpha, x) / problem.size, constant(problem.beta, x)
    u = constant(problem.k, x) + a * sums(x * x, problem)
    g = 1 / power(u, problem.beta)
    g1, g2 = -b * a * g / u, b * (b + 1) * a * a * g / (u * u)
    return Slopes(x, 2 * x, constant(2, x) + np.zeros_like(x), g, g1, g2)


def _reciprocal_norm(s: Array, problem: Problem) -> tuple[Array, Array, Array]:
    """Return 1 / max(norm, eps) with its derivatives by s, which are 0 where eps is larger."""
    eps, p = constant(problem.eps, s), constant(problem.p, s)
    norm = power(s, 1 / problem.p)
    low, nothing = norm < eps, constant(0, s)
    g = 1 / np.where(low, eps, norm)
    s = np.where(low, constant(1, s), s)
    g1, g2 = -g / (p * s), (1 + p) * g / (p * p * s * s)
    return g, np.where(low, nothing, g1), np.where(low, nothing, g2)


def zero_where_clamped(at: Slopes, term: Array, problem: Problem) -> Array:
    """Return a term with a derivative of g, and 0 where eps divides: g is a constant there."""
    if not isinstance(problem, NormalizeProblem):
        return term
    return np.where(at.g1 == 0, constant(0, term), term)


def tangent(at: Slopes, v: Array, problem: Problem) -> Array:
    """Return N.7, the derivative of y along v."""
    return at.g * v + zero_where_clamped(at, at.x * at.g1 * sums(at.f1 * v, problem), problem)


def gradient(at: Slopes, dy: Array, problem: Problem) -> Array:
    """Return N.8, the adjoint of `tangent`."""
    by_sum = zero_where_clamped(at, at.g1 * at.x * dy, problem)
    return at.g * dy + at.f1 * sums(by_sum, problem, adjoint=True)


def second_derivative(at: Slopes, v: Array, dy: Array, problem: Problem) -> Array:
    """Return the derivative of <v, gradient(dy)> along x (N.9)."""
    inner = sums(at.f1 * v, problem)
    by_sum = at.g1 * v * dy + at.g2 * inner * at.x * dy
    own = at.f2 * v * sums(at.g1 * at.x * dy, problem, adjoint=True) + at.g1 * dy * inner
    by_sum = zero_where_clamped(at, by_sum, problem)
    return at.f1 * sums(by_sum, problem, adjoint=True) + zero_where_clamped(at, own, problem)


def _results(at: Slopes, given: dict[str, Array], problem: Problem) -> dict[str, Array]:
    """Return every result that the operands of a pass determine, by role."""
    found = {"y": at.x * at.g}
    if "x_dot" in given:
        found["y_dot"] = tangent(at, given["x_dot"], problem)
    if "ddx" in given:
        found["ddy"] = tangent(at, given["ddx"], problem)
        found["dx"] = second_derivative(at, given["ddx"], given["dy"], problem)
    elif "dy" in given:
        found["dx"] = gradient(at, given["dy"], problem)
    return found


def _in_place(call: Call, found: dict[str, Array]) -> Results:
    return call.results(lambda role: np.moveaxis(found[role], -1, call.problem.dim).copy())


def formula(call: Call, *operands: Array) -> Results:
    """Return the results of any pass.

    Examples
    --------
    >>> from convref.case import parse
    >>> formula(parse("normalize.fprop:n1c2_i1").call, np.array([[[3.], [-4.]]]))[0].ravel()
    array([ 0.6, -0.8])
    """
    given = dict(zip(call.roles, operands))
    moved = {role: np.moveaxis(array, call.problem.dim, -1) for role, array in given.items()}
    return _in_place(call, _results(slopes(given["x"], call.problem), moved, call.problem))


def magnitudes(call: Call, *operands: Array) -> Results:
    """Return S: every term by absolute value, times what the power makes of an error of its sum.

    Where rounding may decide between the norm and eps, derivatives have no bound.
    """
    problem, given = call.problem, dict(zip(call.roles, operands))
    at = slopes(given["x"], problem)
    if isinstance(problem, NormalizeProblem):
        near = max(problem.products("dx") * unit(call), 16 * number(call.dtype).u)
        norm = 1 / slopes(given["x"], replace(problem, eps=0.0)).g
        doubt = np.abs(norm - problem.eps) <= min(near, FIRST_ORDER) * norm
        at = at._replace(g1=np.where(doubt, np.inf, at.g1))
    factor = 2 + abs(problem.exponent)
    sizes = Slopes(*map(np.abs, at))
    moved = {r: np.abs(np.moveaxis(a, problem.dim, -1)) for r, a in given.items()}
    found = _results(sizes, moved, problem)
    return _in_place(call, {role: factor * s + underflow(call) for role, s in found.items()})


OPS = ("normalize", "local_response_norm")
FORMULAS = {(op, name): formula for op in OPS for name in passes(op)}
MAGNITUDES = dict.fromkeys(FORMULAS, magnitudes)
