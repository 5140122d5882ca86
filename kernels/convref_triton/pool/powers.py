"""Powers of a norm p, where 2 p is a whole number: products and square roots, without exp and log.

TWICE is 2 p.
"""

import triton
import triton.language as tl


@triton.jit
def to_power(v, TWICE: tl.constexpr):
    """Return v ** p of v >= 0."""
    r = tl.sqrt_rn(v) if TWICE % 2 else tl.full(v.shape, 1.0, tl.float32)
    for _ in tl.static_range(TWICE // 2):
        r *= v
    return r


@triton.jit
def root(s, TWICE: tl.constexpr):
    """Return s ** (1 / p): an approximation after a step of Newton's method."""
    if TWICE == 2:
        return s
    elif TWICE == 4:
        return tl.sqrt_rn(s)
    else:
        near = tl.exp2(tl.log2(s) * (2.0 / TWICE))
        power = to_power(near, TWICE)
        finite = (power > 0.0) & (power < float("inf"))
        rest = (s - power) / tl.where(finite, power, 1.0)
        return tl.where(finite, near + near * rest * (2.0 / TWICE), near)


@triton.jit
def slope(v, TWICE: tl.constexpr):
    """Return sign(v) |v| ** (p - 1), NaN of NaN."""
    sign = tl.where(v > 0.0, 1.0, tl.where(v < 0.0, -1.0, v))
    return sign * to_power(tl.abs(v), TWICE - 2)


@triton.jit
def inverse(y, TWICE: tl.constexpr):
    """Return y ** (1 - p), 0 of 0 unless p is 1."""
    power = to_power(y, TWICE - 2)
    return tl.where((y == 0.0) & (TWICE > 2), 0.0, 1.0 / power)
