"""The error function in float64, from polynomials: NumPy has none.

For |x| < 1, erf x / x is a polynomial in x^2. Beyond, (x + 3) exp(x^2) erfc x is a polynomial in
t = (x - 3) / (x + 3), which maps all x >= 0 to [-1, 1). Both are Chebyshev series, cut where their
terms fall below 1e-17, written in powers. docs/activation.md says what that costs in accuracy.
"""

import numpy as np

from ._blocks import chosen
from ._windows import Array

_NEAR = (
    1.1283791670955126,
    -0.37612638903183754,
    0.1128379167095512,
    -0.026866170645129854,
    0.005223977625423455,
    -0.0008548327021945428,
    0.00012055332903350668,
    -1.4925647581008593e-05,
    1.6462045711013026e-06,
    -1.6364645854816389e-07,
    1.479243542696247e-08,
    -1.2164764337224506e-09,
    8.709755232851789e-11,
    -4.2320376764874594e-12,
)
_FAR = (
    1.0740069070883398,
    -0.8833944531698836,
    0.5902283571041024,
    -0.31046726190056234,
    0.11952776128726766,
    -0.02682723462469515,
    -0.001212416626845832,
    0.0030340620052543557,
    -0.0005483096943765837,
    -0.000276777887591881,
    0.00010756149572800276,
    3.0398415421531873e-05,
    -1.7470579898367112e-05,
    -4.750203745627632e-06,
    2.7653934843589293e-06,
    1.001369462400479e-06,
    -4.0795588546379703e-07,
    -2.3760728025226044e-07,
    4.605790019424851e-08,
    5.4870169496574923e-08,
    -9.818356605591901e-10,
    -1.1011786999949914e-08,
    -9.783136387840652e-10,
    1.653982449951394e-09,
    1.6421143016942986e-10,
    -1.3486619525318313e-10,
)
_CUT = 28.0  # erfc of more is below the least subnormal number
_HIGH_BITS = ~np.int64(2**27 - 1)


def _polynomial(coefficients: tuple[float, ...], t: Array) -> Array:
    total = np.full_like(t, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= t
        total += coefficient
    return total


def gauss(x: Array) -> Array:
    """Return exp(-x^2), with x^2 in two parts: in one its rounding would be magnified by x^2."""
    x = np.clip(x, -_CUT, _CUT)
    high = (x.view(np.int64) & _HIGH_BITS).view(np.float64)
    return np.exp(-high * high) * np.exp((high - x) * (high + x))


def erf(x: Array) -> Array:
    """Return the error function of float64 numbers, within 2 ulp.

    >>> erf(np.array([-np.inf, 0.0, 0.25]))
    array([-1.        ,  0.        ,  0.27632639])
    """
    small = np.clip(x, -1.0, 1.0)
    near = small * _polynomial(_NEAR, small * small)
    z = np.clip(np.abs(x), 1.0, 6.5)  # where 1 - erf is a quarter of an ulp of 1
    far = 1 - np.exp(-z * z) * _polynomial(_FAR, (z - 3) / (z + 3)) / (z + 3)
    return chosen(np.abs(x) < 1, near, np.copysign(far, x))


def erfc(x: Array) -> Array:
    """Return 1 - erf(x), small values too, within 8 ulp.

    >>> erfc(np.array([-np.inf, 0.0, 10.0]))
    array([2.00000000e+00, 1.00000000e+00, 2.08848758e-45])
    """
    z = np.clip(np.abs(x), 0.0, _CUT)
    far = gauss(z) * _polynomial(_FAR, (z - 3) / (z + 3)) / (z + 3)
    small = np.clip(x, -1.0, 1.0)
    middle = 1 - small * _polynomial(_NEAR, small * small)
    return chosen(np.abs(x) < 0.5, middle, chosen(x < 0, 2 - far, far))
