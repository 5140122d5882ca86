"""The functions of passes, found by their names."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..case import Call
from ..ops import OPS

Results = tuple[Any, ...]
Formula = Callable[..., Results]


def by_name(
    functions: Mapping[str, Any],
    ops: Iterable[str],
    *,
    masks: bool,
    like: Mapping[str, str] | None = None,
) -> dict[Any, Formula]:
    """Return, for each pass of each op, the function ``<op>_<pass>`` as one of a call.

    Such a function takes the operands and `problem`, and returns its one result or a tuple. An op
    that is linear in x has no function of its JVP and double backward: both are its fprop. With
    `masks`, functions of maskable passes take `mask`; else they compute all results. `like` maps an
    op that has no functions of its own to one whose functions serve it. A function is looked up
    when it is called, so that a test may replace it.
    """

    def found(op: str, name: str) -> Callable[..., Any]:
        op = OPS[op].like or op
        names = [op] if like is None or op not in like else [op, like[op]]
        tried = (name, "fprop") if name in ("jvp", "double_backward") else (name,)
        keys = [f"{stem}_{pass_}" for pass_ in tried for stem in names]
        key = next((key for key in keys if key in functions), keys[0])
        assert key in functions, key
        return lambda *operands, **given: functions[key](*operands, **given)

    return {
        (op, name): by_role(op, name, _of_call(found(op, name), masks and pass_.maskable))
        for op in ops
        for name, pass_ in OPS[op].passes.items()
    }


def conv_rows(functions: Mapping[str, Any]) -> dict[Any, Formula]:
    """Return the rows of convolution from the functions of a namespace, one per derivative.

    A function is looked up when it is called, so that a test may replace it.
    """

    def of(name: str, call: Call, *operands: Any) -> Any:
        return functions[f"conv_{name}"](*operands, problem=call.conv)

    def backward(call: Call, dy: Any, x: Any, w: Any) -> Results:
        rows = zip(("dgrad", "wgrad", "bgrad"), ((dy, w), (dy, x), (dy,)), call.mask)
        return tuple(of(name, call, *given) if on else None for name, given, on in rows)

    def jvp(call: Call, x: Any, w: Any, b: Any, *dots: Any) -> Results:
        return of("fprop", call, x, w, b), of("jvp", call, x, w, *dots)

    def double_backward(call: Call, *operands: Any) -> Results:
        return functions["conv_double_backward"](*operands, call.conv, call.mask)

    return {
        ("conv", "fprop"): lambda call, *operands: (of("fprop", call, *operands),),
        ("conv", "backward"): backward,
        ("conv", "jvp"): jvp,
        ("conv", "double_backward"): double_backward,
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
