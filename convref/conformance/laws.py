"""Laws of convolution that need no oracle: for any backend, exact on integers.

Each law computes the same numbers in two ways with the backend alone and compares them without
a tolerance: the data are small integers whose sums the backend's type holds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import dtypes
from ..arrays import Array, to_numpy
from ..backends import Backend
from ..backends.protocol import refusal
from ..case import Call, Case, Spec, axis_letters, channels_last
from ..errors import ConvrefError, ProtocolError, UnsupportedError, message, one_line, shorten
from ..ops import OPS, ConvProblem
from .examine import Finding
from .fills import values
from .operands import lay_out

FILL, LARGEST = "ties", 2  # the data are -1, 0, 1 or 2


@dataclass(frozen=True)
class LawContext:
    """A backend, and the case whose problem, type and seed the laws are checked on."""

    backend: Backend
    case: Case  # its pass, mask and fill are not used; its memory by `memory` alone
    # why a case must not run, such as a known bug, or None
    excluded: Callable[[Case], str | None] = lambda case: None

    @property
    def problem(self) -> ConvProblem:
        """Return the problem of the case."""
        return self.case.call.conv

    def data(self, *roles: str) -> tuple[Array, ...]:
        """Return the data of each role, a function of the seed, the role and the problem."""
        passes = {
            role: name for name, pass_ in OPS["conv"].passes.items() for role in pass_.operands
        }
        calls = (self.call(passes[role], bias=True) for role in roles)
        return tuple(values(Case(c, FILL, self.case.seed), r) for c, r in zip(calls, roles))

    def call(self, pass_: str, problem: ConvProblem | None = None, *, bias: bool = False) -> Call:
        """Return a call of this case's type, with plain memory."""
        call = self.case.call
        specs = (Spec(call.dtype, device=call.specs[0].device),)
        problem = replace(problem or self.problem, bias=bias)
        return Call("conv", pass_, problem, (), specs=specs, math=call.math)

    def run(self, call: Call, *arrays: Array | None) -> tuple[Any, ...]:
        """Return the results as NumPy arrays, in a type that holds their sums and products."""
        reason = refusal(self.backend, call) or _too_long(call)
        reason = reason or self.excluded(Case(call, FILL, self.case.seed))
        if reason:
            raise UnsupportedError(message("laws", reason, call))
        results = self.backend.run(call, *arrays)
        return tuple(None if r is None else _wide(to_numpy(r), call.dtype) for r in results)

    def fprop(self, x: Array, w: Array, problem: ConvProblem | None = None) -> Array:
        """Return y without bias."""
        return self.run(self.call("fprop", problem), x, w, None)[0]

    def backward(self, dy: Array, x: Array, w: Array, problem: Any = None) -> tuple[Any, ...]:
        """Return dx, dw and db."""
        return self.run(self.call("backward", problem), dy, x, w)


def _too_long(call: Call) -> str | None:
    """Return why sums of the data may not be exact in the call's own type, or None."""
    most = max(map(call.products, call.wanted), default=0) * 2 * LARGEST**2
    if call.dtype in dtypes.INTEGERS and most >= np.iinfo(dtypes.numpy_dtype(call.dtype)).max:
        return f"sums may wrap in {call.dtype}"
    exact = most <= 2 ** dtypes.number(call.dtype).digits
    return None if exact else f"sums of {most} may be inexact in {call.dtype}"


def _wide(array: Array, code: str) -> Array:
    """Return an array in a type that holds sums over all of it."""
    kind = "obj" if code == "obj" else "c128" if code in dtypes.COMPLEX else "f64"
    return array.astype(dtypes.numpy_dtype(kind))


def _differ(what: str, one: Array, other: Array) -> str:
    """Return a sentence on the first element that differs, or an empty text."""
    if one.shape != other.shape:
        return f"{what}: shapes {one.shape} and {other.shape}"
    unlike = np.argwhere(~np.asarray(one == other, bool))
    if not len(unlike):
        return ""
    if not one.ndim:
        return f"{what}: {one} and {other}"
    at = tuple(int(i) for i in unlike[0])
    where = ", ".join(map(str, at))
    return f"{what}: [{where}] is {one[at]} and {other[at]} ({len(unlike)} of {one.size} differ)"


def _column(b: Array, problem: ConvProblem) -> Array:
    return b.reshape(-1, *(1,) * problem.rank)


def _require(holds: bool, otherwise: str, case: Case) -> None:
    if not holds:
        raise UnsupportedError(message("laws", otherwise, case))


def _adjoint(on: LawContext) -> Iterator[str]:
    """Check <dy, fprop(x, w)> = <dgrad, x> = <wgrad, w>, and <dy, b> = <bgrad, b>."""
    dy, x, w, b = on.data("dy", "x", "w", "b")
    y, (dx, dw, db) = on.fprop(x, w), on.backward(dy, x, w)
    wide = _wide(dy, on.case.call.dtype)

    def inner(one: Array, other: Array) -> Array:
        return np.asarray((one.conj() * other).sum())

    yield _differ("<dgrad, x> and <dy, y>", inner(dx, x), inner(wide, y))
    yield _differ("<wgrad, w> and <dy, y>", inner(dw, w), inner(wide, y))
    bias = _column(b, on.problem) + 0 * wide
    yield _differ("<bgrad, b> and <dy, b>", inner(db, b), inner(wide, bias))


def _linear(on: LawContext) -> Iterator[str]:
    """Check that the forward pass is linear in x and in w, the backward pass in dy."""
    x, w, x2, w2, dy = on.data("x", "w", "x_dot", "w_dot", "dy")
    y = on.fprop(x, w)
    yield _differ("fprop(x + x2, w) and its terms", on.fprop(x + x2, w), y + on.fprop(x2, w))
    yield _differ("fprop(x, w + w2) and its terms", on.fprop(x, w + w2), y + on.fprop(x, w2))
    twice, once = on.backward(dy + dy, x, w), on.backward(dy, x, w)
    for name, a, b in zip(("dx", "dw", "db"), twice, once):
        yield _differ(f"{name} of 2 dy and 2 {name}", a, b + b)


def _groups(on: LawContext) -> Iterator[str]:
    """Check that groups are one block-diagonal filter."""
    problem, groups = on.problem, on.problem.groups
    _require(groups > 1, "there is one group", on.case)
    dy, x, w = on.data("dy", "x", "w")
    dense, whole = replace(problem, groups=1), _block_diagonal(w, groups)
    yield _differ("y", on.fprop(x, w), on.fprop(x, whole, dense))
    dx, dw, _ = on.backward(dy, x, w)
    dx1, dw1, _ = on.backward(dy, x, whole, dense)
    yield _differ("dx", dx, dx1)
    blocks = _block_diagonal(np.ones_like(dw), groups)
    yield _differ("dw", _block_diagonal(dw, groups), dw1 * blocks)


def _block_diagonal(w: Array, groups: int) -> Array:
    rows, columns = w.shape[0] // groups, w.shape[1]
    whole = np.zeros((w.shape[0], columns * groups, *w.shape[2:]), w.dtype)
    for g in range(groups):
        block = slice(g * rows, (g + 1) * rows)
        whole[block, g * columns : (g + 1) * columns] = w[block]
    return whole


def _transposed(on: LawContext) -> Iterator[str]:
    """Check that the input gradient is the transposed convolution, and the other way round."""
    dy, x, w = on.data("dy", "x", "w")
    twin = _twin(on.problem)
    if twin is None:
        raise UnsupportedError(message("laws", "no transposed problem has these sizes", on.case))
    call = replace(on.call("backward"), mask=(True, False, False))
    dx = on.run(call, dy, x, w)[0]
    yield _differ("dgrad and the transposed fprop", dx, on.fprop(dy, w.conj(), twin))


def _twin(problem: ConvProblem) -> ConvProblem | None:
    """Return the problem whose fprop is the dgrad of this one, or None."""
    extra = tuple(
        axis.big + axis.lo + axis.hi - (axis.small - 1) * axis.stride - axis.span
        for axis in problem.axes
    )
    try:
        twin = replace(
            problem,
            c=problem.k,
            k=problem.c,
            input=problem.output,
            transposed=not problem.transposed,
            output_padding=(0,) * problem.rank if problem.transposed else extra,
        )
    except ConvrefError:
        return None
    return twin if twin.output == problem.input else None


def _dilation(on: LawContext) -> Iterator[str]:
    """Check that dilation is a filter with zeros between its taps."""
    problem, spans = on.problem, tuple(axis.span for axis in on.problem.axes)
    _require(spans != problem.filter, "the filter is dense", on.case)
    try:
        dense = replace(problem, filter=spans, dilation=(1,) * problem.rank)
    except ConvrefError as error:  # output padding may be between stride and dilation
        raise UnsupportedError(str(error)) from None
    dy, x, w = on.data("dy", "x", "w")
    stuffed = np.zeros((*w.shape[:2], *spans), w.dtype)
    at: Any = (..., *(slice(None, None, d) for d in problem.dilation))
    stuffed[at] = w
    yield _differ("y", on.fprop(x, w), on.fprop(x, stuffed, dense))
    dx, dw, _ = on.backward(dy, x, w)
    dx1, dw1, _ = on.backward(dy, x, stuffed, dense)
    yield _differ("dx", dx, dx1)
    yield _differ("dw", dw, dw1[at])


def _memory(on: LawContext) -> Iterator[str]:
    """Check that memory order changes no value: channels last, and the memory order of the case."""
    layouts = dict(zip(on.case.call.roles, on.case.call.specs))
    for pass_ in ("fprop", "backward"):
        call = on.call(pass_, bias=True)
        plain = on.data(*call.roles)
        want = on.run(call, *plain)
        letters = [axis_letters(call.problem, role) for role in call.roles]
        last = tuple(replace(s, order=channels_last(a)) for s, a in zip(call.specs, letters))
        given = tuple(replace(layouts.get(r, s), expand="") for r, s in zip(call.roles, call.specs))
        for specs in (last, given):
            got = on.run(replace(call, specs=specs), *map(lay_out, plain, specs, letters))
            for role, one, other in zip(call.signature.results, want, got):
                yield _differ(f"{role} of plain and other memory", one, other)


def _batch(on: LawContext) -> Iterator[str]:
    """Check that a batch is its images one by one."""
    _require(on.problem.n > 1, "there is one image", on.case)
    dy, x, w = on.data("dy", "x", "w")
    one, images = replace(on.problem, n=1), [slice(i, i + 1) for i in range(on.problem.n)]
    yield _differ("y", on.fprop(x, w), np.concatenate([on.fprop(x[i], w, one) for i in images]))
    dx, dw, db = on.backward(dy, x, w)
    parts = [on.backward(dy[i], x[i], w, one) for i in images]
    yield _differ("dx", dx, np.concatenate([part[0] for part in parts]))
    yield _differ("dw", dw, sum(part[1] for part in parts))
    yield _differ("db", db, sum(part[2] for part in parts))


def _jvp(on: LawContext) -> Iterator[str]:
    """Check that the tangent is fprop(x_dot, w) + fprop(x, w_dot) + b_dot."""
    call = on.call("jvp", bias=True)
    x, w, b, x_dot, w_dot, b_dot = arrays = on.data(*call.roles)
    y, y_dot = on.run(call, *arrays)
    yield _differ("y of jvp and fprop", y, on.run(on.call("fprop", bias=True), x, w, b)[0])
    terms = on.fprop(x_dot, w) + on.fprop(x, w_dot) + _column(b_dot, on.problem)
    yield _differ("y_dot and its terms", y_dot, terms)


def _double_backward(on: LawContext) -> Iterator[str]:
    """Check that double backward is the JVP, and backward with ddx and ddw."""
    call = on.call("double_backward", bias=True)
    ddx, ddw, ddb, dy, x, w = arrays = on.data(*call.roles)
    ddy, dx, dw = on.run(call, *arrays)
    (b,) = on.data("b")
    y_dot = on.run(on.call("jvp", bias=True), x, w, b, ddx, ddw, ddb)[1]
    yield _differ("ddy and the JVP", ddy, y_dot)
    yield _differ("dx and dgrad(dy, ddw)", dx, on.backward(dy, x, ddw)[0])
    yield _differ("dw and wgrad(dy, ddx)", dw, on.backward(dy, ddx, w)[1])


# By name: yields a sentence for each equation that fails, and empty texts for those that hold.
LAWS: dict[str, Callable[[LawContext], Iterator[str]]] = {
    "adjoint": _adjoint,
    "linear": _linear,
    "groups": _groups,
    "transposed": _transposed,
    "dilation": _dilation,
    "memory": _memory,
    "batch": _batch,
    "jvp": _jvp,
    "double_backward": _double_backward,
}


def examine_laws(
    case: Case,
    backend: Backend,
    excluded: Callable[[Case], str | None] = lambda case: None,
    laws: tuple[str, ...] = tuple(LAWS),
) -> Finding:
    """Return the Finding of the first law that a backend breaks on a case of op conv.

    The case's problem, type, seed and memory are used; its pass, mask and fill are not. `excluded`
    returns why a case must not run, such as a known bug, or None. The verdict is "pass" if an
    equation of a law applies and all that do hold, "unsupported" if none applies, "rejects-valid"
    if the backend raises, else "wrong", with the law's name as its role.

    >>> from convref.dispatch import load
    >>> from convref.case import parse
    >>> examine_laws(parse("conv.fprop:n2c4k2g2_i5_f2_d2"), load("numpy")).verdict
    'pass'
    """
    trial, line, held, refused = LawContext(backend, case, excluded), str(case), 0, ""
    for name in laws:
        try:
            for reason in LAWS[name](trial):
                if reason:
                    text = shorten(f"{name} law: {reason}", 300)
                    return Finding(line, "wrong", "law", text, role=name)
                held += 1
        except ProtocolError:
            raise
        except UnsupportedError as error:
            refused = refused or shorten(error)
        except Exception as error:  # whatever a third-party backend raises
            text = f"{name} law: {one_line(error)}"
            return Finding(line, "rejects-valid", "law", text, role=name)
    return Finding(line, "pass", "law") if held else Finding(line, "unsupported", reason=refused)
