"""Batch norm: two kernels that read images, and the vectors of channels between them.

Every pass but double backward is two steps. With z = (x - mean) rstd and m pixels of a channel,

    P(u) = u - sum(u) / m - z sum(u z) / m
    fprop  y = w z + b          backward  dx = w rstd P(dy)        dw = sum(dy z)   db = sum(dy)
    jvp    y_dot = w rstd P(x_dot) + w_dot z + b_dot               without P's sums where mean and
                                                                   variance are given
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from convref import dtypes
from convref.case import Call
from convref.problem import FrozenNormProblem

from .conv import CHANNELS
from .library import function, spread
from .memory import Array, source
from .structures import Norm, Word

OPS = ("batch_norm", "batch_norm_eval")
PASSES = ("fprop", "backward", "jvp")


class Channels(NamedTuple):
    """A launch's vectors of channels: what makes z of x, and the type of all such vectors."""

    mean: Array
    rstd: Array
    threads: int

    def constant(self, value: float) -> Array:
        """Return the same number for each channel."""
        return np.full_like(self.mean, value)


def _struct(x: Array, u: Array | None, out: Array, z: Channels) -> Norm:
    space = x.shape[2:]
    p = Norm(*x.shape[:2], *(1,) * (3 - len(space)), *space)
    p.x, p.out = source(x), source(out)
    if u is not None:
        p.u = source(u)
    p.mean, p.rstd = z.mean.ctypes.data, z.rstd.ctypes.data
    return p


def _run(name: str, dtype: str, p: Norm, units: int, threads: int) -> None:
    run, address = function(name, dtype), ctypes.addressof(p)
    spread(lambda low, high: run(Word(address), Word(low), Word(high)), units, threads)


def sums(dtype: str, x: Array, u: Array | None, z: Channels) -> tuple[Array, Array]:
    """Return, for each channel, the sum of u and that of u z; u is z where there is none."""
    first, second = np.zeros_like(z.mean), np.zeros_like(z.mean)
    if x.size:
        p = _struct(x, u, x, z)
        p.first, p.second = first.ctypes.data, second.ctypes.data
        _run("norm_sums", dtype, p, -(-x.shape[1] // CHANNELS), z.threads)
    return first, second


def combine(
    dtype: str, x: Array, u: Array | None, z: Channels, factors: tuple[Any, Any, Any], out: Array
) -> None:
    """Write z p + u q + r, with `factors` p, q and r of each channel, to `out`; p may be None."""
    if x.size:
        p = _struct(x, u, out, z)
        p.p, p.q, p.r = (0 if v is None else v.ctypes.data for v in factors)
        _run("combine", dtype, p, x.shape[0] * p.size_z * p.size_y, z.threads)


def _moments(call: Call, x: Array, threads: int) -> tuple[Array, Array]:
    """Return mean and variance in two passes over x."""
    zero = np.zeros(x.shape[1], _wide(call))
    first, _ = sums(call.dtype, x, x, Channels(zero, zero, threads))
    mean = first / zero.dtype.type(call.problem.count)
    _, second = sums(call.dtype, x, None, Channels(mean, np.ones_like(mean), threads))
    return mean, second / zero.dtype.type(call.problem.count)


def _wide(call: Call) -> Any:
    return dtypes.numpy_dtype("f64" if call.dtype == "f64" else "f32")


def _root(call: Call, variance: Array) -> Array:
    return 1 / np.sqrt(variance + variance.dtype.type(call.problem.eps))


def _vector(call: Call, array: Array | None, missing: float) -> Array:
    """Return a vector of channels, wide."""
    if array is None:
        return np.full(call.problem.c, missing, _wide(call))
    return np.ascontiguousarray(array.astype(_wide(call)))


def compute(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    """Write the wanted results of batch norm.

    Parameters
    ----------
    call : Call
    given, outputs : dict of str to ndarray
        Operands and results by role.
    threads : int
    """
    with np.errstate(all="ignore"):  # what is not finite is not our business here
        z, moments = _normal(call, given, threads)
        scale = _vector(call, given.get("w"), 1) * z.rstd
        if call.pass_ == "backward":
            _backward(call, given, outputs, z, scale)
            return
        w, b = _vector(call, given.get("w"), 1), _vector(call, given.get("b"), 0)
        combine(call.dtype, given["x"], None, z, (w, w, b), outputs["y"])
        if call.pass_ == "jvp":
            _tangent(call, given, outputs, z, scale)
        elif moments is not None:
            _statistics(call, given, outputs, z, moments)


def _normal(
    call: Call, given: dict[str, Any], threads: int
) -> tuple[Channels, tuple[Array, Array] | None]:
    """Return what makes z, and mean and variance where they are found here."""
    if isinstance(call.problem, FrozenNormProblem):
        mean, variance = _vector(call, given["rmean"], 0), _vector(call, given["rvar"], 0)
        return Channels(mean, _root(call, variance), threads), None
    if "mean" in given:
        saved = (_vector(call, given[role], 0) for role in ("mean", "rstd"))
        return Channels(*saved, threads), None
    moments = _moments(call, given["x"], threads)
    return Channels(moments[0], _root(call, moments[1]), threads), moments


def _statistics(
    call: Call,
    given: dict[str, Any],
    outputs: dict[str, Any],
    z: Channels,
    moments: tuple[Array, Array],
) -> None:
    count, share = call.problem.count, z.mean.dtype.type(call.problem.momentum)
    unbiased = moments[1] * z.mean.dtype.type(count / (count - 1))
    outputs["mean"][...], outputs["rstd"][...] = z.mean, z.rstd
    for role, new in (("rmean", moments[0]), ("rvar", unbiased)):
        outputs[role][...] = (1 - share) * given[role] + share * new


def _projected(call: Call, first: Array, second: Array, scale: Array) -> tuple[Array | None, Array]:
    """Return p and r of scale P(u), given the sums of u; none where z does not depend on x."""
    if isinstance(call.problem, FrozenNormProblem):
        return None, np.zeros_like(scale)
    count = scale.dtype.type(call.problem.count)
    return -scale * (second / count), -scale * (first / count)


def _backward(
    call: Call, given: dict[str, Any], outputs: dict[str, Any], z: Channels, scale: Array
) -> None:
    dy, x = given["dy"], given["x"]
    first, second = sums(call.dtype, x, dy, z)
    if "dx" in outputs:
        p, r = _projected(call, first, second, scale)
        combine(call.dtype, x, dy, z, (p, scale, r), outputs["dx"])
    for role, found in (("dw", second), ("db", first)):
        if role in outputs:
            outputs[role][...] = found


def _tangent(
    call: Call, given: dict[str, Any], outputs: dict[str, Any], z: Channels, scale: Array
) -> None:
    x, x_dot = given["x"], given.get("x_dot")
    p = None if given.get("w_dot") is None else _vector(call, given["w_dot"], 0)
    r = _vector(call, given.get("b_dot"), 0)
    if x_dot is not None:
        of_z, constant = _projected(call, *sums(call.dtype, x, x_dot, z), scale)
        p, r = of_z if p is None else p if of_z is None else p + of_z, r + constant
    combine(call.dtype, x, x_dot, z, (p, scale, r), outputs["y_dot"])
