"""Laws that a convolution obeys whatever it returns: no oracle, any backend, exact on integers.

Each law computes the same numbers in two ways with the backend alone and compares them without
a tolerance: the data are small integers whose sums the backend's type holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import dtypes
from ..arrays import to_numpy
from ..backends import Backend
from ..case import Call, Case, Spec, axis_letters, channels_last
from ..errors import ConvrefError, UnsupportedError, message, shorten
from ..ops import ConvProblem
from .fills import values
from .operands import lay_out

Array = np.ndarray[Any, Any]
LARGEST = 2  # magnitude of the data, which is -1, 0, 1 or 2


@dataclass
class _Data:
    """The arrays of a case and what a backend makes of them."""

    backend: Backend
    case: Case

    @property
    def problem(self) -> ConvProblem:
        return self.case.call.conv

    def __getitem__(self, role: str) -> Array:
        """Return the data of a role: a function of the seed, the role and the problem."""
        pass_ = next(p for p, roles in _HOLDERS.items() if role in roles)
        return values(Case(self.call(pass_, bias=True), "ties", self.case.seed), role)

    def call(
        self,
        pass_: str,
        problem: ConvProblem | None = None,
        *,
        bias: bool = False,
        mask: tuple[bool, ...] = (),
    ) -> Call:
        """Return a call of this case's type, with plain memory."""
        problem = replace(problem or self.problem, bias=bias)
        call = self.case.call
        specs = (Spec(call.dtype, device=call.specs[0].device),)
        return Call("conv", pass_, problem, mask, specs=specs, math=call.math)

    def run(self, call: Call, *arrays: Array | None) -> tuple[Any, ...]:
        """Return the results as NumPy arrays, in a type that holds their sums and products."""
        reason = self.backend.supports(call) or _too_long(call)
        if reason is not None:
            raise UnsupportedError(message("laws", reason, call))
        return tuple(
            None if r is None else _wide(to_numpy(r), call.dtype)
            for r in self.backend.run(call, *arrays)
        )

    def fprop(self, x: Array, w: Array, problem: ConvProblem | None = None) -> Array:
        (y,) = self.run(self.call("fprop", problem), x, w, None)
        return y

    def backward(self, dy: Array, x: Array, w: Array, problem: Any = None) -> tuple[Any, ...]:
        return self.run(self.call("backward", problem), dy, x, w)

    def dgrad(self, dy: Array, x: Array, w: Array, problem: ConvProblem | None = None) -> Array:
        call = self.call("backward", problem, mask=(True, False, False))
        return self.run(call, dy, x, w)[0]


_HOLDERS = {
    "fprop": ("x", "w", "b"),
    "backward": ("dy",),
    "jvp": ("x_dot", "w_dot", "b_dot"),
    "double_backward": ("ddx", "ddw", "ddb"),
}


def _too_long(call: Call) -> str | None:
    """Return why sums of the data may not be exact in the call's own type, or None."""
    most = max(map(call.products, call.wanted), default=0) * 2 * LARGEST**2
    limit = 2 ** dtypes.number(call.dtype).digits
    if call.dtype in dtypes.INTEGERS and most >= np.iinfo(dtypes.numpy_dtype(call.dtype)).max:
        return f"sums may wrap in {call.dtype}"
    return None if most <= limit else f"sums of {most} may be inexact in {call.dtype}"


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
    at = tuple(int(i) for i in unlike[0])
    where = ", ".join(map(str, at))
    return f"{what}: [{where}] is {one[at]} and {other[at]} ({len(unlike)} of {one.size} differ)"


def _first(*sentences: str) -> str:
    return next(filter(None, sentences), "")


def _same(what: str, one: Any, other: Any) -> str:
    return "" if one == other else f"{what}: {one} and {other}"


def law_adjoint(backend: Backend, case: Case) -> str:
    """Return how <dy, fprop(x, w)> = <dgrad, x> = <wgrad, w> fails, or an empty text.

    Parameters
    ----------
    backend : Backend
    case : Case
        Its problem, type and seed are used; pass, mask, memory and fill are not.

    Raises
    ------
    UnsupportedError
        If the law does not apply: the backend refuses a call, or sums would not be exact.

    Examples
    --------
    >>> from convref.dispatch import load
    >>> from convref.case import parse
    >>> law_adjoint(load("numpy"), parse("conv.fprop:n2c3k2_i5x4_f3x2_s2_p1"))
    ''
    """
    data = _Data(backend, case)
    dy, x, w, b = (data[role] for role in ("dy", "x", "w", "b"))
    y = data.fprop(x, w)
    dx, dw, db = data.backward(dy, x, w)
    wide = _wide(dy, case.call.dtype)
    along = b.reshape(-1, *(1,) * data.problem.rank)
    product = _inner(wide, y)
    return _first(
        _same("<dgrad, x> and <dy, y>", _inner(dx, x), product),
        _same("<wgrad, w> and <dy, y>", _inner(dw, w), product),
        _same("<bgrad, b> and <dy, b>", _inner(db, b), _inner(wide, along + 0 * wide)),
    )


def _inner(one: Array, other: Array) -> Any:
    return (one.conj() * other).sum()


def law_linear(backend: Backend, case: Case) -> str:
    """Return how fprop fails to be linear in x and in w, or backward in dy; see `law_adjoint`."""
    data = _Data(backend, case)
    x, w, x2, w2, dy = (data[role] for role in ("x", "w", "x_dot", "w_dot", "dy"))
    y = data.fprop(x, w)
    twice = data.backward(dy + dy, x, w)
    once = data.backward(dy, x, w)
    names = ("dx", "dw", "db")
    return _first(
        _differ("fprop(x + x2, w) and its terms", data.fprop(x + x2, w), y + data.fprop(x2, w)),
        _differ("fprop(x, w + w2) and its terms", data.fprop(x, w + w2), y + data.fprop(x, w2)),
        *(_differ(f"{n} of 2 dy and 2 {n}", a, b + b) for n, a, b in zip(names, twice, once)),
    )


def law_groups(backend: Backend, case: Case) -> str:
    """Return how groups differ from one block-diagonal filter; see `law_adjoint`."""
    data = _Data(backend, case)
    problem, groups = data.problem, data.problem.groups
    if groups == 1:
        raise UnsupportedError(message("laws", "there is one group", case))
    dy, x, w = (data[role] for role in ("dy", "x", "w"))
    dense, whole = replace(problem, groups=1), _block_diagonal(w, groups)
    dx, dw, _ = data.backward(dy, x, w)
    dx1, dw1, _ = data.backward(dy, x, whole, dense)
    return _first(
        _differ("y", data.fprop(x, w), data.fprop(x, whole, dense)),
        _differ("dx", dx, dx1),
        _differ("dw", _block_diagonal(dw, groups), dw1 * _block_diagonal(np.ones_like(dw), groups)),
    )


def _block_diagonal(w: Array, groups: int) -> Array:
    rows, columns = w.shape[0] // groups, w.shape[1]
    whole = np.zeros((w.shape[0], columns * groups, *w.shape[2:]), w.dtype)
    for g in range(groups):
        mine = slice(g * rows, (g + 1) * rows)
        whole[mine, g * columns : (g + 1) * columns] = w[mine]
    return whole


def law_transposed(backend: Backend, case: Case) -> str:
    """Return how dgrad differs from the transposed convolution; see `law_adjoint`."""
    data = _Data(backend, case)
    problem, (dy, x, w) = data.problem, (data[role] for role in ("dy", "x", "w"))
    twin = _twin(problem)
    if twin is None:
        raise UnsupportedError(message("laws", "no transposed problem has these sizes", case))
    return _differ(
        "dgrad and the transposed fprop", data.dgrad(dy, x, w), data.fprop(dy, w.conj(), twin)
    )


def _twin(problem: ConvProblem) -> ConvProblem | None:
    """Return the problem whose fprop is the dgrad of this one, or None."""
    extra = tuple(
        axis.big + axis.lo + axis.hi - (axis.small - 1) * axis.stride - span
        for axis, span in zip(problem.axes, _spans(problem))
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


def _spans(problem: ConvProblem) -> list[int]:
    return [d * (taps - 1) + 1 for d, taps in zip(problem.dilation, problem.filter)]


def law_dilation(backend: Backend, case: Case) -> str:
    """Return how dilation differs from a filter with zeros between its taps; see `law_adjoint`."""
    data = _Data(backend, case)
    problem = data.problem
    if all(span == taps for span, taps in zip(_spans(problem), problem.filter)):
        raise UnsupportedError(message("laws", "the filter is dense", case))
    dy, x, w = (data[role] for role in ("dy", "x", "w"))
    spans = tuple(_spans(problem))
    stuffed = np.zeros((*w.shape[:2], *spans), w.dtype)
    at: Any = (..., *(slice(None, None, d) for d in problem.dilation))
    stuffed[at] = w
    try:
        dense = replace(problem, filter=spans, dilation=(1,) * problem.rank)
    except ConvrefError as error:  # output padding may lie between stride and dilation
        raise UnsupportedError(str(error)) from None
    dx, dw, _ = data.backward(dy, x, w)
    dx1, dw1, _ = data.backward(dy, x, stuffed, dense)
    return _first(
        _differ("y", data.fprop(x, w), data.fprop(x, stuffed, dense)),
        _differ("dx", dx, dx1),
        _differ("dw", dw, dw1[at]),
    )


def law_memory(backend: Backend, case: Case) -> str:
    """Return how the memory order of the operands changes values; see `law_adjoint`.

    Every operand is laid out channels-last, and once more as the case asks, if it does.
    """
    data = _Data(backend, case)
    asked = dict(zip(case.call.roles, case.call.specs))
    sentences = []
    for pass_ in ("fprop", "backward"):
        call = data.call(pass_, bias=True)
        plain = tuple(data[role] for role in call.roles)
        want = data.run(call, *plain)
        last = [channels_last(axis_letters(call.problem, role)) for role in call.roles]
        ordered = tuple(replace(s, order=order) for s, order in zip(call.specs, last))
        given = tuple(replace(asked.get(r, s), expand="") for r, s in zip(call.roles, call.specs))
        for specs in (ordered, given):
            other = replace(call, specs=specs)
            letters = [axis_letters(call.problem, role) for role in call.roles]
            arrays = tuple(map(lay_out, plain, specs, letters))
            names = (f"{role} of plain and other memory" for role in call.signature.results)
            sentences += list(map(_differ, names, want, data.run(other, *arrays)))
    return _first(*sentences)


def law_batch(backend: Backend, case: Case) -> str:
    """Return how a batch differs from its images one by one; see `law_adjoint`."""
    data = _Data(backend, case)
    if data.problem.n < 2:
        raise UnsupportedError(message("laws", "there is one image", case))
    dy, x, w = (data[role] for role in ("dy", "x", "w"))
    y, (dx, dw, db), one = data.fprop(x, w), data.backward(dy, x, w), replace(data.problem, n=1)
    images = [slice(i, i + 1) for i in range(data.problem.n)]
    parts = [data.backward(dy[i], x[i], w, one) for i in images]
    return _first(
        _differ("y", y, np.concatenate([data.fprop(x[i], w, one) for i in images])),
        _differ("dx", dx, np.concatenate([part[0] for part in parts])),
        _differ("dw", dw, sum(part[1] for part in parts)),
        _differ("db", db, sum(part[2] for part in parts)),
    )


def law_jvp(backend: Backend, case: Case) -> str:
    """Return how the tangent differs from fprop(x_dot, w) + fprop(x, w_dot) + b_dot."""
    data = _Data(backend, case)
    call = data.call("jvp", bias=True)
    x, w, b, x_dot, w_dot, b_dot = arrays = tuple(data[role] for role in call.roles)
    y, y_dot = data.run(call, *arrays)
    (primal,) = data.run(data.call("fprop", bias=True), x, w, b)
    sums = data.fprop(x_dot, w) + data.fprop(x, w_dot)
    return _first(
        _differ("y of jvp and fprop", y, primal),
        _differ("y_dot and its terms", y_dot, sums + b_dot.reshape(-1, *(1,) * data.problem.rank)),
    )


def law_double_backward(backend: Backend, case: Case) -> str:
    """Return how double backward differs from the JVP and from backward with ddx and ddw."""
    data = _Data(backend, case)
    call = data.call("double_backward", bias=True)
    ddx, ddw, ddb, dy, x, w = arrays = tuple(data[role] for role in call.roles)
    ddy, dx, dw = data.run(call, *arrays)
    _, y_dot = data.run(data.call("jvp", bias=True), x, w, data["b"], ddx, ddw, ddb)
    by_w, by_x = data.backward(dy, x, ddw), data.backward(dy, ddx, w)
    return _first(
        _differ("ddy and the JVP", ddy, y_dot),
        _differ("dx and dgrad(dy, ddw)", dx, by_w[0]),
        _differ("dw and wgrad(dy, ddx)", dw, by_x[1]),
    )


Law = Callable[[Backend, Case], str]

LAWS: dict[str, Law] = {
    "adjoint": law_adjoint,
    "linear": law_linear,
    "groups": law_groups,
    "transposed": law_transposed,
    "dilation": law_dilation,
    "memory": law_memory,
    "batch": law_batch,
    "jvp": law_jvp,
    "double_backward": law_double_backward,
}


@dataclass(frozen=True)
class Broken:
    """A law that a backend broke: which, on which case, and how."""

    law: str
    line: str
    reason: str


@dataclass
class Obedience:
    """What `check_laws` saw.

    Parameters
    ----------
    held, unsupported : Counter
        By law, on how many cases it held and on how many it did not apply.
    broken : list of Broken
    """

    held: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    broken: list[Broken] = field(default_factory=list)


def check_laws(
    backend: Backend, cases: Iterable[Case], laws: Iterable[str] = tuple(LAWS)
) -> Obedience:
    """Return which laws a backend keeps on which cases of op conv.

    Parameters
    ----------
    backend : Backend
    cases : iterable of Case
        As from `convref.conformance.generate.chunk_cases`.
    laws : iterable of str
        Names from `LAWS`; by default all.

    Returns
    -------
    Obedience

    Examples
    --------
    >>> from convref.dispatch import load
    >>> from convref.case import parse
    >>> seen = check_laws(load("numpy"), [parse("conv.fprop:n2c4k2g2_i5_f2_d2")])
    >>> len(seen.held), seen.broken
    (9, [])
    """
    seen, chosen = Obedience(), tuple(laws)
    for case in cases:
        for name in chosen:
            try:
                reason = LAWS[name](backend, case)
            except UnsupportedError:
                seen.unsupported[name] += 1
                continue
            except Exception as error:  # whatever a stranger's code raises
                reason = shorten(f"raised {error!r}", 300)
            if reason:
                seen.broken.append(Broken(name, str(case), reason))
            else:
                seen.held[name] += 1
    return seen
