"""Whether rounded sampling positions of a resize may select another element."""

from fractions import Fraction

from ..ops import ResizeAxis
from ..oracle import position_error

# Where the nearest element changes, between elements 0 and 1; other rules turn over halfway.
_BORDERS = {"floor": Fraction(0), "ceil": Fraction(0)}


def may_round_elsewhere(axis: ResizeAxis, unit: float = 2.0**-24) -> bool:
    """Return whether the nearest element of a rounded position may not be that of the exact one.

    Copies are judged bit for bit. A backend whose library rounds positions refuses axes for which
    this is true, since either element is a correct result. It is for rules that round exact
    positions, which ``near=float32`` does not.

    Parameters
    ----------
    axis : ResizeAxis
        One of ``call.problem.axes``.
    unit : float
        Unit roundoff of the arithmetic in which the library finds positions; float32's.

    Returns
    -------
    bool

    Examples
    --------
    Three elements become two: no position is near a border. Of four, both are on one.

    >>> from convref import parse_problem
    >>> line = "resize:n1c1_i{}_o2:mode=nearest:near=round_prefer_ceil"
    >>> [may_round_elsewhere(parse_problem(line.format(size)).axes[0]) for size in (3, 4)]
    [False, True]
    """
    border = _BORDERS.get(axis.near, Fraction(1, 2))
    away = ((axis.position(p) - border, position_error(axis, p, unit)) for p in range(axis.out))
    return any(abs(x - round(x)) <= off for x, off in away)
