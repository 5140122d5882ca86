"""Batch norm: two kernels that read images, and the vectors of channels between them.

Every pass but double backward is two steps. With z = (x - mean) rstd and m pixels per channel,

    P(u) = u - sum(u) / m - z sum(u z) / m
    fprop  y = w z + b          backward  dx = w rstd P(dy)        dw = sum(dy z)   db = sum(dy)
    jvp    y_dot = w rstd P(x_dot) + w_dot z + b_dot               with P(u) = u where mean and
                                                                   variance are operands
"""

from typing import Any

import numpy as np

from convref import dtypes
from convref.case import Call
from convref.ops import FrozenNormProblem

from ..library import run
from ..strides import Array, source
from ..structs import struct

OPS = ("batch_norm", "batch_norm_eval")
PASSES = ("fprop", "backward", "jvp")
CHANNELS = 16  # of a unit, in norm.mojo and pool.mojo
VECTORS = ("mean", "rstd", "sum", "sum_z", "p", "q", "r")  # of channels, in the order of the struct
Norm, Source = struct("cpu", "Norm"), struct("cpu", "Source")


class Images:
    """The struct of both kernels for an array x (N, C, *space), and its vectors of channels."""

    def __init__(self, dtype: str, x: Array, threads: int) -> None:
        n, channels, *space = x.shape
        self.dtype, self.threads, self.empty = dtype, threads, x.size == 0
        accumulator = dtypes.numpy_dtype("f64" if dtype == "f64" else "f32")
        vectors = np.zeros((len(VECTORS), channels), accumulator)  # (7, C)
        self.mean, self.rstd, self.sum, self.sum_z, self.p, self.q, self.r = vectors
        self.number = accumulator.type
        first, step = vectors.ctypes.data, vectors.strides[0]
        self._addresses = [first + i * step for i in range(len(VECTORS))]
        sizes = (n, channels, *(1,) * (3 - len(space)), *space)
        self._struct = Norm(*sizes, source(x), Source(), Source(), *self._addresses)

    def sums(self, u: Array | None) -> tuple[Array, Array]:
        """Return the sums of u and of u z of each channel; without u, of z and of its square.

        The next call writes to the same memory.
        """
        p = self._struct
        p.u, p.out = Source() if u is None else source(u), p.x
        self._run("channel_sums", -(-p.channels // CHANNELS))
        return self.sum, self.sum_z

    def affine(self, u: Array | None, factors: tuple[Any, Any, Any], out: Array) -> None:
        """Write z p + u q + r, with `factors` p, q and r of each channel; p may be None."""
        p = self._struct
        p.u, p.out = Source() if u is None else source(u), source(out)
        p.p = 0 if factors[0] is None else self._addresses[VECTORS.index("p")]
        for vector, factor in zip((self.p, self.q, self.r), factors):
            if factor is not None:
                vector[...] = factor
        self._run("affine", p.images * p.size_z * p.size_y)

    def _run(self, name: str, units: int) -> None:
        if not self.empty:
            run(name, self.dtype, self._struct, units, self.threads)


def channel_sums(dtype: str, x: Array, threads: int) -> Array:
    images = Images(dtype, x, threads)
    images.rstd[...] = 1
    return images.sums(None)[0]  # with mean 0 and rstd 1, z is x


def compute(call: Call, given: dict[str, Any], outputs: dict[str, Any], threads: int) -> None:
    with np.errstate(all="ignore"):  # results may be NaN or infinite
        images = Images(call.dtype, given["x"], threads)
        moments = _set_statistics(call, given, images)
        w, b = _vector(images, given.get("w"), 1), _vector(images, given.get("b"), 0)
        if call.pass_ == "backward":
            _batch_norm_backward(call, given, outputs, images, w * images.rstd)
            return
        images.affine(None, (w, 0, b), outputs["y"])
        if call.pass_ == "jvp":
            _batch_norm_jvp(call, given, outputs, images, w * images.rstd)
        elif moments is not None:
            _write_statistics(call, given, outputs, images, moments)


def _vector(images: Images, array: Array | None, missing: float) -> Any:
    return images.number(missing) if array is None else array.astype(images.number)


def _set_statistics(
    call: Call, given: dict[str, Any], images: Images
) -> tuple[Array, Array] | None:
    """Set mean and rstd; return mean and variance where they were computed from x."""
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
    count = images.number(call.problem.count)
    images.mean[...] = images.sums(x)[0] / count
    images.rstd[...] = 1
    return images.mean.copy(), images.sums(None)[1] / count


def _write_statistics(
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


def _projected(call: Call, sum_u: Array, sum_uz: Array, scale: Array) -> tuple[Array | None, Any]:
    """Return p and r of scale P(u), from the sums of u; P(u) is u where z is frozen."""
    if isinstance(call.problem, FrozenNormProblem):
        return None, 0
    count = scale.dtype.type(call.problem.count)
    return -scale * (sum_uz / count), -scale * (sum_u / count)


def _batch_norm_backward(
    call: Call, given: dict[str, Any], outputs: dict[str, Any], images: Images, scale: Array
) -> None:
    sum_u, sum_uz = images.sums(given["dy"])
    if "dx" in outputs:
        p, r = _projected(call, sum_u, sum_uz, scale)
        images.affine(given["dy"], (p, scale, r), outputs["dx"])
    for role, found in (("dw", sum_uz), ("db", sum_u)):
        if role in outputs:
            outputs[role][...] = found


def _batch_norm_jvp(
    call: Call, given: dict[str, Any], outputs: dict[str, Any], images: Images, scale: Array
) -> None:
    x_dot, w_dot = given.get("x_dot"), given.get("w_dot")
    p = None if w_dot is None else _vector(images, w_dot, 0)
    r = _vector(images, given.get("b_dot"), 0)
    if x_dot is not None:
        of_z, constant = _projected(call, *images.sums(x_dot), scale)
        p, r = of_z if p is None else p if of_z is None else p + of_z, r + constant
    images.affine(x_dot, (p, scale, r), outputs["y_dot"])
