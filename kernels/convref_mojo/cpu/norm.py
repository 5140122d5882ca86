"""Batch norm: two kernels that read images, and the vectors of channels between them.

Every pass but double backward is two steps. With z = (x - mean) rstd and m pixels of a channel,

    P(u) = u - sum(u) / m - z sum(u z) / m
    fprop  y = w z + b          backward  dx = w rstd P(dy)        dw = sum(dy z)   db = sum(dy)
    jvp    y_dot = w rstd P(x_dot) + w_dot z + b_dot               without P's sums where mean and
                                                                   variance are given
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from convref import dtypes
from convref.case import Call
from convref.ops import FrozenNormProblem

from ..library import function, spread
from ..strides import Array
from .conv import CHANNELS
from .structures import Norm, Source, Word, source

OPS = ("batch_norm", "batch_norm_eval")
PASSES = ("fprop", "backward", "jvp")
VECTORS = ("mean", "rstd", "first", "second", "p", "q", "r")  # as the struct has them


class Images:
    """What both kernels read of a call: x, and the vectors of channels that they share.

    Parameters
    ----------
    call : Call
    x : ndarray
        Images (N, C, *space).
    threads : int
    """

    def __init__(self, call: Call, x: Array, threads: int) -> None:
        n, channels, *space = x.shape
        self.dtype, self.threads, self.empty = call.dtype, threads, x.size == 0
        wide = dtypes.numpy_dtype("f64" if call.dtype == "f64" else "f32")
        vectors = np.zeros((len(VECTORS), channels), wide)  # (7, C)
        self.mean, self.rstd, self.first, self.second, self.p, self.q, self.r = vectors
        self.number = wide.type
        first, apart = vectors.ctypes.data, vectors.strides[0]
        self._places = [first + i * apart for i in range(len(VECTORS))]
        sizes = (n, channels, *(1,) * (3 - len(space)), *space)
        self._struct = Norm(*sizes, source(x), Source(), Source(), *self._places)

    def sums(self, u: Array | None) -> tuple[Array, Array]:
        """Return, for each channel, the sum of u and that of u z; u is z where there is none.

        The next call writes to the same memory.
        """
        p = self._struct
        p.u, p.out = Source() if u is None else source(u), p.x
        self._run("norm_sums", -(-p.channels // CHANNELS))
        return self.first, self.second

    def combine(self, u: Array | None, factors: tuple[Any, Any, Any], out: Array) -> None:
        """Write z p + u q + r, with `factors` p, q and r of each channel; p may be None."""
        p = self._struct
        p.u, p.out = Source() if u is None else source(u), source(out)
        p.p = 0 if factors[0] is None else self._places[VECTORS.index("p")]
        for vector, factor in zip((self.p, self.q, self.r), factors):
            if factor is not None:
                vector[...] = factor
        self._run("combine", p.images * p.size_z * p.size_y)

    def _run(self, name: str, units: int) -> None:
        if self.empty:
            return
        run, address = function(name, self.dtype), ctypes.addressof(self._struct)
        spread(lambda low, high: run(Word(address), Word(low), Word(high)), units, self.threads)


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
        images = Images(call, given["x"], threads)
        moments = _normal(call, given, images)
        w, b = _vector(images, given.get("w"), 1), _vector(images, given.get("b"), 0)
        if call.pass_ == "backward":
            _backward(call, given, outputs, images, w * images.rstd)
            return
        images.combine(None, (w, 0, b), outputs["y"])
        if call.pass_ == "jvp":
            _tangent(call, given, outputs, images, w * images.rstd)
        elif moments is not None:
            _statistics(call, given, outputs, images, moments)


def _vector(images: Images, array: Array | None, missing: float) -> Any:
    """Return a vector of channels, wide, or the number that stands for it."""
    return images.number(missing) if array is None else array.astype(images.number)


def _normal(call: Call, given: dict[str, Any], images: Images) -> tuple[Array, Array] | None:
    """Find what makes z; return mean and variance where they are found here."""
    if "mean" in given:
        images.mean[...], images.rstd[...] = given["mean"], given["rstd"]
        return None
    frozen = isinstance(call.problem, FrozenNormProblem)
    moments = (given["rmean"], given["rvar"]) if frozen else _moments(call, given["x"], images)
    images.mean[...] = moments[0]
    eps = images.number(call.problem.eps)
    images.rstd[...] = 1 / np.sqrt(_vector(images, moments[1], 0) + eps)
    return None if frozen else moments


def _moments(call: Call, x: Array, images: Images) -> tuple[Array, Array]:
    """Return mean and variance in two passes over x."""
    count = images.number(call.problem.count)
    images.mean[...] = images.sums(x)[0] / count
    images.rstd[...] = 1
    return images.mean.copy(), images.sums(None)[1] / count


def _statistics(
    call: Call,
    given: dict[str, Any],
    outputs: dict[str, Any],
    images: Images,
    moments: tuple[Array, Array],
) -> None:
    count, share = call.problem.count, images.number(call.problem.momentum)
    unbiased = moments[1] * images.number(count / (count - 1))
    outputs["mean"][...], outputs["rstd"][...] = images.mean, images.rstd
    for role, new in (("rmean", moments[0]), ("rvar", unbiased)):
        outputs[role][...] = (1 - share) * given[role] + share * new


def _projected(call: Call, first: Array, second: Array, scale: Array) -> tuple[Array | None, Any]:
    """Return p and r of scale P(u), given the sums of u; none where z does not depend on x."""
    if isinstance(call.problem, FrozenNormProblem):
        return None, 0
    count = scale.dtype.type(call.problem.count)
    return -scale * (second / count), -scale * (first / count)


def _backward(
    call: Call, given: dict[str, Any], outputs: dict[str, Any], images: Images, scale: Array
) -> None:
    first, second = images.sums(given["dy"])
    if "dx" in outputs:
        p, r = _projected(call, first, second, scale)
        images.combine(given["dy"], (p, scale, r), outputs["dx"])
    for role, found in (("dw", second), ("db", first)):
        if role in outputs:
            outputs[role][...] = found


def _tangent(
    call: Call, given: dict[str, Any], outputs: dict[str, Any], images: Images, scale: Array
) -> None:
    x_dot, w_dot = given.get("x_dot"), given.get("w_dot")
    p = None if w_dot is None else _vector(images, w_dot, 0)
    r = _vector(images, given.get("b_dot"), 0)
    if x_dot is not None:
        of_z, constant = _projected(call, *images.sums(x_dot), scale)
        p, r = of_z if p is None else p if of_z is None else p + of_z, r + constant
    images.combine(x_dot, (p, scale, r), outputs["y_dot"])
