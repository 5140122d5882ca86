"""The court in your own tests: the line of a call, and the judge on its result."""

from __future__ import annotations

from typing import Any

from ..arrays import facts, to_numpy
from ..case import Case
from ..errors import ConvrefError, message, shorten
from ..judge import Numerics, judge
from ..problem import SIGNATURE
from ._arguments import Prepared, Settings, prepare


def _named(name: str, operands: tuple[Any, ...], arguments: dict[str, Any]) -> Prepared:
    """Return the prepared call of "conv.PASS" on `operands`; short lists are padded with None."""
    op, _, pass_ = str(name).partition(".")
    if (op, pass_) not in SIGNATURE or op != "conv":
        known = ", ".join(f"{o}.{p}" for o, p in SIGNATURE if o == "conv")
        raise ConvrefError(message("case_of", f"name is {shorten(name)}, needs one of {known}"))
    roles = SIGNATURE[op, pass_].operands
    if len(operands) > len(roles):
        raise ConvrefError(
            message(name, f"got {len(operands)} operands, needs {len(roles)}: {', '.join(roles)}")
        )
    operands = (*operands, *(None,) * (len(roles) - len(operands)))
    maskable = SIGNATURE[op, pass_].maskable
    accepted = (*Settings._fields, *(("output_mask",) if maskable else ()))
    for argument in arguments:
        if argument not in accepted:
            text = f"argument {shorten(argument)} is unknown, needs one of {', '.join(accepted)}"
            raise ConvrefError(message(name, text))
    mask = arguments.pop("output_mask", (True, True, True))
    return prepare(pass_, 0, operands, Settings(**arguments), mask if maskable else ())


def case_of(name: str, *operands: Any, **arguments: Any) -> Case:
    """Return the Case of a call: the line that repeats it, on generated data.

    Parameters
    ----------
    name : str
        "conv.fprop", "conv.backward", "conv.jvp" or "conv.double_backward".
    *operands : array or None
        In the order of `convref.problem.SIGNATURE`.
    **arguments
        stride, padding, dilation, groups, transposed, output_padding, output_mask, layout,
        weight_layout, math, flip.

    Examples
    --------
    >>> dy, x, w = np.ones((1, 2, 3, 3)), np.ones((1, 1, 5, 5)), np.ones((2, 1, 3, 3))
    >>> print(case_of("conv.backward", dy, x, w))
    conv.backward:n1c1k2_i5x5_f3x3:dt=f64
    """
    return Case(_named(name, operands, arguments).call)


def assert_correct(
    got: Any,
    name: str,
    operands: tuple[Any, ...],
    *,
    accuracy: Numerics | str = "undeclared",
    **arguments: Any,
) -> None:
    """Raise AssertionError unless `got` is right by the judge: the oracle in your own tests.

    Parameters
    ----------
    got : array or tuple of (array or None)
        What your kernel returned, in the order of `convref.problem.SIGNATURE`.
    name : str
        As in `case_of`.
    operands : tuple of (array or None)
        What it was given.
    accuracy : Numerics or str
        Its declared arithmetic; a str is the model's name. Undeclared arithmetic is held to
        round-to-nearest sums in float32 (float64 for float64).
    **arguments
        As in `case_of`.

    Raises
    ------
    AssertionError
        If the result is wrong or suspect; the text has the line, the element and the bound.

    Examples
    --------
    >>> x, w = np.ones((1, 1, 3)), np.ones((1, 1, 2))
    >>> assert_correct(np.full((1, 1, 2), 2.), "conv.fprop", (x, w), accuracy="rn64")
    """
    if not isinstance(operands, (tuple, list)):
        what = f"operands is a {type(operands).__name__}, needs a tuple of arrays"
        raise ConvrefError(message("assert_correct", what))
    if not isinstance(accuracy, (Numerics, str)):
        what = f"accuracy is {shorten(repr(accuracy))}, needs a Numerics or the name of a model"
        raise ConvrefError(message("assert_correct", what))
    prepared = _named(name, operands, arguments)
    call = prepared.call
    given = got if isinstance(got, (tuple, list)) else (got,)
    roles = call.signature.results
    if len(given) != len(roles):
        raise AssertionError(f"got {len(given)} results, needs {len(roles)}: {', '.join(roles)}")
    for role, array in zip(roles, given):
        if array is not None:
            facts(name, f"result {role}", array)
    operands = (*operands, *(None,) * (len(call.roles) - len(operands)))
    inputs = [
        None if a is None else to_numpy(prepared.operand(r, a))
        for r, a in zip(call.roles, operands)
    ]
    results = [
        None if a is None else to_numpy(_as_formula(prepared, r, a)) for r, a in zip(roles, given)
    ]
    numerics = Numerics(accuracy) if isinstance(accuracy, str) else accuracy
    verdict = judge(call, inputs, results, numerics)
    if not verdict:
        raise AssertionError(f"{verdict.kind}: {verdict.reason}\n  {call}")


def _as_formula(prepared: Prepared, role: str, array: Any) -> Any:
    """Return the user's result as a formula has it; a wrong rank is left for the judge to name."""
    expected = len(prepared.call.problem.shape(role))
    missing = prepared.unbatched and role in ("y", "y_dot", "dx", "dy", "ddy")
    return prepared.operand(role, array) if array.ndim == expected - missing else array
