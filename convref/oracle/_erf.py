"""The complementary error function in float64, from a polynomial: NumPy has none.

For 0 <= z <= 28, (z + 3.5) exp(z^2) erfc z is a polynomial in t = (z - 3.5) / (z + 3.5): a
Chebyshev series, cut where its terms fall below 1e-17, written in powers. docs/activation.md says
what that costs in accuracy.
"""

import numpy as np

from ._blocks import select
from ._windows import Array

_CENTER = 3.5
_POWERS = (
    1.08705558926226,
    -0.9377997245671118,
    0.6941136466346453,
    -0.43525602671690433,
    0.22573862164736783,
    -0.09231870663804645,
    0.026518619882551654,
    -0.003177050348298537,
    -0.0013053547014253322,
    0.0007145317248996569,
    -4.206210328548395e-05,
    -7.477724828140419e-05,
    1.8646946374958015e-05,
    7.24453292806129e-06,
    -3.39142105056231e-06,
    -7.968336383813674e-07,
    5.496176080351931e-07,
    1.1632757575652172e-07,
    -8.275351163925868e-08,
    -2.163441297163503e-08,
    8.775500669737625e-09,
    3.188325969367232e-09,
)
_CUT = 28.0  # erfc of more is below the least subnormal number
_HIGH_BITS = ~np.int64(2**27 - 1)


def _polynomial(coefficients: tuple[float, ...], t: Array) -> Array:
    total = coefficients[-1] * t
    for coefficient in coefficients[-2:0:-1]:
        total += coefficient
        total *= t
    total += coefficients[0]
    return total


def _clip(x: Array) -> Array:
    z = np.abs(x)
    return np.minimum(z, _CUT, out=z)


def _gauss(z: Array) -> Array:
    high = (z.view(np.int64) & _HIGH_BITS).view(np.float64)
    low = high - z
    low *= high + z
    high *= -high
    np.exp(high, out=high)
    high *= np.exp(low, out=low)
    return high


def gauss(x: Array) -> Array:
    """Return exp(-x^2), with x^2 in two parts: in one its rounding would be magnified by x^2."""
    return _gauss(_clip(x))


def erfc_and_gauss(x: Array) -> tuple[Array, Array]:
    """Return (erfc(x), exp(-x^2)), of which the first needs the second."""
    z = _clip(x)
    near = _gauss(z)
    bottom = z + _CENTER
    z -= _CENTER
    z /= bottom
    tail = _polynomial(_POWERS, z)
    tail /= bottom
    tail *= near
    return select(x < 0, 2 - tail, tail), near


def erfc(x: Array) -> Array:
    """Return 1 - erf(x), small values too, within 8 ulp.

    >>> erfc(np.array([-np.inf, 0.0, 10.0]))
    array([2.00000000e+00, 1.00000000e+00, 2.08848758e-45])
    """
    return erfc_and_gauss(x)[0]
