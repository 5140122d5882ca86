"""The checks of the oracle: each takes a case and raises. The seeded faults run the same ones."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from convref import dtypes, oracle
from convref.case import Call, Spec
from convref.conformance.operands import operands
from convref.ops import BASE_ROLE, OWN_TYPE, SIGNATURE
from convref.oracle import evaluate, loops
from convref.oracle.loops import _elementary as loops_elementary


def by_loops(call, arrays):
    """Return all results by nested loops, in the dtype of the arrays."""
    with np.errstate(over="ignore", invalid="ignore"):
        return loops.FORMULAS[call.op, call.pass_](call, *arrays)


def equal(got, want, where):
    """Raise unless both are None, or equal in shape and in every element (NaN equals NaN)."""
    assert (got is None) == (want is None), where
    if got is None:
        return
    assert got.shape == want.shape, f"{where}: shape {got.shape}, needs {want.shape}"
    with np.errstate(invalid="ignore"):
        same = (got == want) | ((got != got) & (want != want))
    assert np.all(same), f"{where}: {np.argwhere(~same)[:3].tolist()}\n{got}\n{want}"


def wide_operands(case):
    """Return the operands in the type the oracle computes in, with the memory of the case."""
    wide = dtypes.numpy_dtype(dtypes.accumulator(case.call.dtype))
    return [
        a if a is None or role in OWN_TYPE else a.astype(wide, copy=False)
        for role, a in zip(case.call.roles, operands(case), strict=True)
    ]


def evaluated(call, arrays):
    """Return all results of the oracle in the type it computes in, whatever the mask."""
    wide = dtypes.accumulator(call.dtype)
    everything = replace(call, mask=(True,) * len(call.mask))
    return dict(
        zip(call.signature.results, oracle.evaluate(everything, *arrays, out=wide), strict=True)
    )


def check_loops(case):
    """Compare the oracle with the nested loops, bit for bit."""
    arrays = wide_operands(case)
    want = by_loops(case.call, arrays)
    got = oracle.evaluate(case.call, *operands(case), out=dtypes.accumulator(case.call.dtype))
    for role, one, other in zip(case.call.signature.results, got, want, strict=True):
        masked = role not in case.call.wanted
        equal(one, None if masked else other, f"{case} {role}")


def backward_of(call):
    """Return the backward pass of the same problem, with all results."""
    return Call(call.op, "backward", call.problem, specs=(Spec(call.dtype),))


def inner(left, right):
    """Return <left, right>, conjugate in the first: exact for integers, also complex ones."""
    if left.dtype == object:
        return sum((a * b for a, b in zip(left.ravel(), right.ravel())), 0)
    return np.sum(np.conj(left) * right)


def check_adjoint(case):
    """Check the backward pass by <dy, fprop(x, w) + b> = <dx, x> = <dw, w>, <dy, b> = <db, b>.

    The bias is the operand that the case lacks: y without it is linear in x and in w.
    """
    dy, x, w = wide_operands(case)
    call = case.call
    linear = replace(call.conv, bias=False)
    (y,) = oracle.FORMULAS["conv", "fprop"](
        replace(call, pass_="fprop", mask=(), problem=linear, specs=()), x, w, None
    )
    got = evaluated(call, (dy, x, w))
    product = inner(dy, y)
    assert inner(got["dx"], x) == product, f"{case}: dx"
    assert inner(got["dw"], w) == product, f"{case}: dw"
    spread = np.ones_like(y)
    per_channel = np.arange(1, call.conv.k + 1).reshape(-1, *(1,) * call.conv.rank)
    assert inner(got["db"], per_channel.ravel()) == inner(dy, spread * per_channel), f"{case}: db"


def check_jvp_adjoint(case):
    """Check the JVP by <dy, y_dot> = <dx, x_dot> + <dw, w_dot> + <db, b_dot>, with dy := y."""
    x, w, b, *dots = wide_operands(case)
    got = evaluated(case.call, (x, w, b, *dots))
    dy = got["y"]
    cotangents = evaluated(backward_of(case.call), (dy, x, w))
    pairs = zip(cotangents.values(), dots)
    total = sum((inner(c, dot) for c, dot in pairs if dot is not None), 0)
    assert inner(dy, got["y_dot"]) == total, str(case)


def check_double_backward_adjoint(case):
    """Check double backward against the derivative of f = <ddx, dx> + <ddw, dw> + <ddb, db>.

    f is linear in dy, x and w one at a time, so each cotangent paired with its own argument
    gives back the terms of f in which that argument occurs.
    """
    *cotangents, dy, x, w = wide_operands(case)
    got = evaluated(case.call, (*cotangents, dy, x, w))
    first = evaluated(backward_of(case.call), (dy, x, w)).values()
    terms = [0 if dd is None else inner(dd, d).real for dd, d in zip(cotangents, first)]
    assert inner(got["ddy"], dy).real == sum(terms), f"{case}: ddy"
    assert inner(got["dx"], x).real == terms[1], f"{case}: dx"
    assert inner(got["dw"], w).real == terms[0], f"{case}: dw"


def pad_or_crop(t, borders):
    """Return a tensor with each spatial axis padded by (lo, hi), negative entries cropped."""
    import torch

    grow = [max(side, 0) for pair in reversed(borders) for side in pair]
    t = torch.nn.functional.pad(t, grow)
    for axis, (lo, hi) in enumerate(borders, start=2):
        t = t.narrow(axis, max(-lo, 0), t.shape[axis] - max(-lo, 0) - max(-hi, 0))
    return t


def torch_conv(problem, x, w, b):
    """Return y by torch, whatever the padding, from its plain unpadded convolutions."""
    import torch

    functional = torch.nn.functional
    if problem.flip:
        w = w.flip(tuple(range(2, w.ndim)))
    name = f"conv{'_transpose' * problem.transposed}{problem.rank}d"
    shared = {"stride": problem.stride, "dilation": problem.dilation, "groups": problem.groups}
    if not problem.transposed:
        return getattr(functional, name)(pad_or_crop(x, problem.padding), w, b, **shared)
    y = getattr(functional, name)(x, w, None, output_padding=problem.output_padding, **shared)
    y = pad_or_crop(y, [(-lo, -hi) for lo, hi in problem.padding])
    return y if b is None else y + b.reshape(-1, *(1,) * problem.rank)


def by_torch(call, arrays):
    """Return the results of `call` by torch's autograd, role by role."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    tensors = [None if a is None else torch.from_numpy(np.array(a, order="C")) for a in arrays]
    given = dict(zip(call.roles, tensors))
    for role in ("x", "w", "dy"):
        if role in given and call.pass_ in ("backward", "double_backward"):
            given[role].requires_grad_()
    x, w = given["x"], given["w"]
    b = given.get("b")
    if call.pass_ in ("backward", "double_backward") and call.conv.bias:
        b = torch.zeros(call.conv.k, dtype=x.dtype, requires_grad=True)
    if call.pass_ == "jvp":
        return _jvp_by_torch(call, given)
    y = torch_conv(call.conv, x, w, b)
    if call.pass_ == "fprop":
        return {"y": y}
    dy = given["dy"]
    inputs = (x, w) if b is None else (x, w, b)
    first = torch.autograd.grad(y, inputs, dy, create_graph=call.pass_ == "double_backward")
    if call.pass_ == "backward":
        return dict(zip(("dx", "dw", "db"), first))
    cotangents = (given[f"dd{role}"] for role in "xwb"[: len(inputs)])
    pairs = [(f, dd) for f, dd in zip(first, cotangents) if dd is not None]
    if not pairs:
        return {}
    outputs, weights = zip(*pairs)
    second = torch.autograd.grad(outputs, (dy, x, w), weights, allow_unused=True)
    return {r: d for r, d in zip(("ddy", "dx", "dw"), second) if d is not None}


def _jvp_by_torch(call, given):
    import torch

    primals = [given[role].detach() for role in "xwb" if given[role] is not None]
    dots = [given[f"{role}_dot"] for role in "xwb"][: len(primals)]
    dots = [torch.zeros_like(p) if d is None else d for p, d in zip(primals, dots)]

    def function(x, w, b=None):
        return torch_conv(call.conv, x, w, b)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own use of torch.jit
        y, y_dot = torch.func.jvp(function, tuple(primals), tuple(dots))
    return {"y": y, "y_dot": y_dot}


def check_torch(case):
    """Compare the oracle with torch: exactly on integers, else within gamma_n of both sides."""
    call, arrays = case.call, wide_operands(case)
    got = evaluated(call, arrays)
    want = by_torch(call, arrays)
    sizes = evaluated(call, [None if a is None else np.abs(a) for a in arrays])  # S
    for role, result in got.items():
        other = want.get(role)
        other = np.zeros_like(result) if other is None else other.detach().numpy()
        if case.fill == "int":
            equal(result, other, f"{case} {role}")
            continue
        assert result.shape == other.shape, f"{case} {role}"
        u = dtypes.number(call.dtype).u
        n = call.products(role) + 1  # and the rounding of S itself
        bound = 2 * (n * u / (1 - n * u)) * sizes[role]
        assert np.all(np.abs(result - other) <= bound), f"{case} {role}"


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Keep torch from starting threads for arrays of some hundred elements."""
    try:
        import torch
    except ModuleNotFoundError:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Dual:
    """a + b e with e * e = 0, in Fractions: a formula on such numbers gives its own derivative."""

    def __init__(self, a, b=0):
        self.a, self.b = Fraction(a), Fraction(b)

    def chain(self, value, slope):
        """Return f(self) from f(a) and f'(a)."""
        return Dual(value, slope * self.b)

    def __add__(self, other):
        other = as_dual(other)
        return Dual(self.a + other.a, self.b + other.b)

    def __mul__(self, other):
        other = as_dual(other)
        return Dual(self.a * other.a, self.a * other.b + self.b * other.a)

    def __truediv__(self, other):
        other = as_dual(other)
        quotient = self.a / other.a
        return Dual(quotient, (self.b - quotient * other.b) / other.a)

    def __rtruediv__(self, other):
        return as_dual(other) / self

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -as_dual(other)

    def __rsub__(self, other):
        return as_dual(other) - self

    def __le__(self, other):
        return self.a <= as_dual(other).a

    def __ge__(self, other):
        return self.a >= as_dual(other).a

    def __gt__(self, other):
        return self.a > as_dual(other).a

    def __eq__(self, other):
        return self.a == as_dual(other).a

    def __float__(self):
        return float(self.a)

    def conjugate(self):
        return self

    def sqrt(self):
        """Return the reciprocal of 1 / sqrt(a) as a float."""
        root = Fraction(1 / math.sqrt(float(self.a)))
        return self.chain(1 / root, root / 2)

    __radd__, __rmul__, __hash__ = __add__, __mul__, None


def as_dual(value):
    return value if isinstance(value, Dual) else Dual(value)


def duals(values, dots):
    """Return an array of Dual from two of the same shape."""
    found = np.empty(values.shape, object)
    for at in np.ndindex(values.shape):
        found[at] = Dual(values[at], dots[at])
    return found


def tangent(array):
    """Return the dual part of an array, 0 where it holds plain numbers."""
    parts = [as_dual(v).b for v in array.ravel()]
    found = np.empty(len(parts), object)
    found[:] = parts
    return found.reshape(array.shape)


def other_pass(call, pass_):
    return Call(call.op, pass_, call.problem, specs=(Spec(call.dtype),))


def primals(call):
    """Return the operands that the op is differentiated by, those that the problem has."""
    roles = (BASE_ROLE[role] for role in SIGNATURE[call.op, "backward"].results)
    return [role for role in roles if call.problem.has(role)]


def results_of(call, arrays):
    """Return the results of a pass by role."""
    return dict(zip(call.signature.results, evaluate(call, *arrays), strict=True))


def backward_operands(call, given):
    return [given[role] for role in SIGNATURE[call.op, "backward"].operands]


def check_adjoint_identity(case):
    """Check <dy, y_dot> = <dx, x_dot> + <dw, w_dot> + ..., with dy a function of y_dot."""
    call = case.call
    given = dict(zip(call.roles, operands(case)))
    y_dot = evaluate(call, *given.values())[-1]
    if any(v != v for v in y_dot.ravel()):  # a mean over no target at all
        return
    dy = 2 * y_dot + 3 if y_dot.size > 1 else 0 * y_dot + 3
    back = results_of(other_pass(call, "backward"), backward_operands(call, {**given, "dy": dy}))
    along = (inner(back[f"d{role}"], given[f"{role}_dot"]) for role in primals(call))
    assert inner(dy, y_dot) == sum(along), str(case)


def check_linear_adjoint(case):
    """Check <dy, fprop(v)> = <dx, v> of an op that is linear in x, with v a function of dx."""
    (dy,) = wide_operands(case)
    (dx,) = evaluated(case.call, (dy,)).values()
    v = dx[..., ::-1] + 1
    (y,) = evaluate(other_pass(case.call, "fprop"), v)
    assert inner(dy, y) == inner(dx, v), str(case)


def check_dual_jvp(case):
    """Check the tangent of y against the loops of the forward pass on dual numbers."""
    op, given = case.call.op, dict(zip(case.call.roles, operands(case)))
    y_dot = evaluate(case.call, *given.values())[-1]
    moved = {r: duals(given[r], given[f"{r}_dot"]) for r in primals(case.call)}
    roles = SIGNATURE[op, "fprop"].operands
    (y,) = loops.FORMULAS[op, "fprop"](case.call, *({**given, **moved}[r] for r in roles))
    if all(v == v for v in y_dot.ravel()):
        equal(y_dot, tangent(y), str(case))


def check_dual_double_backward(case):
    """Check that <ddx, dx> + <ddw, dw> moves as <ddy, dy'> + <dx2, x'> + ... along a direction."""
    call, given = case.call, dict(zip(case.call.roles, operands(case)))
    call = replace(call, mask=(True,) * len(call.mask))
    found = results_of(call, given.values())
    if any(v != v for v in found["ddy"].ravel()):
        return
    dots = {role: given[role][..., ::-1] + 1 for role in ("dy", *primals(call))}
    moved = {role: duals(given[role], dot) for role, dot in dots.items()}
    arrays = backward_operands(call, {**given, **moved})
    back = other_pass(call, "backward")
    first = dict(zip(back.signature.results, loops.FORMULAS[call.op, "backward"](back, *arrays)))
    along = sum(inner(found["ddy" if r == "dy" else f"d{r}"], dot) for r, dot in dots.items())
    moves = (inner(given[f"dd{r}"], tangent(first[f"d{r}"])) for r in primals(call))
    assert sum(moves) == along, str(case)


CHECKS = SimpleNamespace(
    loops=check_loops,
    adjoint=check_adjoint,
    jvp_adjoint=check_jvp_adjoint,
    double_backward_adjoint=check_double_backward_adjoint,
    adjoint_identity=check_adjoint_identity,
    linear_adjoint=check_linear_adjoint,
    dual_jvp=check_dual_jvp,
    dual_double_backward=check_dual_double_backward,
    torch=check_torch,
    by_torch=by_torch,
    by_loops=by_loops,
    equal=equal,
)


@pytest.fixture
def derivatives(monkeypatch):
    """Give the loops' exp and log their derivatives."""
    plain = loops_elementary.lifted
    slopes = {math.exp: lambda v, y: y, math.log: lambda v, y: 1 / v}

    def lifted(function, v):
        if not isinstance(v, Dual):
            return plain(function, v)
        y = plain(function, v.a)
        return v.chain(y, slopes[function](v.a, y))

    monkeypatch.setattr(loops_elementary, "lifted", lifted)


@pytest.fixture(scope="session")
def dual_numbers():
    """Return the functions that make and take apart arrays of dual numbers."""
    return SimpleNamespace(make=duals, tangent=tangent, Dual=Dual)


@pytest.fixture(scope="session")
def checks():
    """Return the checking functions."""
    return CHECKS
