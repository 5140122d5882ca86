"""The functions of passes, found by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..case import Call
from ..ops import OPS

Results = tuple[Any, ...]
Formula = Callable[..., Results]


def by_name(functions: Mapping[str, Any], ops: Iterable[str], *, masks: bool) -> dict[Any, Formula]:
    """Return, for each pass of each op, the function ``<op>_<pass>`` as one of a call.

    Such a function takes the operands and `problem`, and returns its one result or a tuple.

    Parameters
    ----------
    functions : mapping
        The namespace of a module.
    ops : iterable of str
        One that is `like` another has the functions of that.
    masks : bool
        Whether functions of maskable passes take `mask`; else they compute all results.
    """
    return {
        (op, name): by_role(
            op, name, _of_call(functions[f"{OPS[op].like or op}_{name}"], masks and pass_.maskable)
        )
        for op in ops
        for name, pass_ in OPS[op].passes.items()
    }


def _of_call(function: Callable[..., Any], masks: bool) -> Formula:
    def formula(call: Call, *operands: Any) -> Results:
        mask = {"mask": call.mask} if masks else {}
        found = function(*operands, problem=call.problem, **mask)
        results = found if isinstance(found, tuple) else (found,)
        return (
            tuple(r if on else None for r, on in zip(results, call.mask)) if call.mask else results
        )

    return formula


def by_role(op: str, name: str, formula: Formula) -> Formula:
    """Return the formula of a pass of the op that `op` is like, as one of the same pass of `op`.

    What `op` lacks is None among the operands and left out of the results.
    """
    if not OPS[op].like:
        return formula
    own, general = (OPS[o].passes[name] for o in (op, OPS[op].like))

    def found(call: Call, *operands: Any) -> Results:
        given = dict(zip(own.operands, operands))
        results = dict(zip(general.results, formula(call, *map(given.get, general.operands))))
        return tuple(results[role] for role in own.results)

    return found
