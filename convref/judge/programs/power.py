"""Mutations of a reference: what the data of a test can tell from the right result."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import torch

from .pair import Op, Pair, Tensor
from .trace import Change
from .verdict import verdict

# Operations that sum products or elements, with the operand whose last slice makes the last term.
_SUMS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "sum": 0, "mean": 0}
_SUMS |= {"convolution": 0, "cumsum": 0, "_softmax": 0, "logsumexp": 0, "native_layer_norm": 0}


class Power(NamedTuple):
    """How many mutations were tried, and which of them the data cannot tell apart."""

    tried: int
    missed: tuple[str, ...]

    def __str__(self) -> str:
        caught = self.tried - len(self.missed)
        text = f"{caught} of {self.tried} mutations would fail"
        return f"{text}; not: {', '.join(self.missed)}" if self.missed else text


def power(traced: Callable[..., Any]) -> Power:
    """Return which mutations pass; `traced` runs the reference as `Program.traced` does."""
    trace, right = traced()
    missed, tried = [], 0
    for name, result in mutants(traced):
        tried += 1
        if all(
            verdict(each, result[each], like, pair, trace.numerics).kind != "wrong"
            for each, (like, pair) in right.items()
        ):
            missed.append(name)
    return Power(tried, tuple(missed))


def mutants(
    traced: Callable[..., Any], skip: Collection[str] = ()
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the name and the results of each mutation of a reference that is not in `skip`."""
    changes: list[tuple[int, str, Any]] = []

    def note(number: int, op: Op, pairs: Any, found: Any, rule: Any) -> Any:
        name = op.name.removeprefix("aten.")
        if _passed_through(op, pairs, found) is not None:
            changes.append((number, f"without {name}", _dropped))
        if name in _SUMS:
            changes.append((number, f"last term of {name} dropped", _last_dropped))
            changes.append((number, f"{name} in float16", _narrow))
        return found

    _, right = traced(change=note)
    likes = {name: like for name, (like, _) in right.items()}
    yield "zeros", {name: torch.zeros_like(t) for name, t in likes.items()}
    if all(t.is_floating_point() and t.numel() > 1 for t in likes.values()):
        yield "a constant", {n: t.mean().expand(t.shape).to(t.dtype) for n, t in likes.items()}
    for number, label, change in changes:
        name = f"{label} (operation {number})"
        if name not in skip:
            _, found = traced(change=_at(number, change))
            yield name, {n: pair.value.to(like.dtype) for n, (like, pair) in found.items()}


def _at(place: int, change: Any) -> Change:
    """Return a change of one operation only."""

    def only(number: int, op: Op, pairs: Any, found: Any, rule: Any) -> Any:
        return change(op, pairs, found, rule) if number == place else found

    return only


def _passed_through(op: Op, pairs: Any, found: Any) -> Pair | None:
    """Return the operand that the result would be without the operation."""
    first = next((p for p in pairs if isinstance(p, Pair)), None)
    if first is None or not isinstance(found, Pair) or first.value.shape != found.value.shape:
        return None
    same = bool((first.wide == found.wide).all())
    return None if same or not first.value.is_floating_point() else first


def _dropped(op: Op, pairs: Any, found: Any, rule: Any) -> Any:
    return _passed_through(op, pairs, found)


def _last_dropped(op: Op, pairs: Any, found: Any, rule: Any) -> Any:
    place = _SUMS[op.name.removeprefix("aten.")]
    changed = list(pairs)
    value = pairs[place].value.clone()
    axis = 1 if op.name.endswith("convolution") else -1
    if value.ndim:
        value.select(axis, -1).zero_()
    changed[place] = pairs[place]._replace(value=value)
    return rule(*changed)


def _narrow(op: Op, pairs: Any, found: Any, rule: Any) -> Any:
    narrow = [p._replace(value=p.value.half().to(p.value)) if _floats(p) else p for p in pairs]
    mutated = rule(*narrow)
    first = mutated if isinstance(mutated, Pair) else mutated[0]
    first = first._replace(value=first.value.half().to(first.value))
    return first if isinstance(mutated, Pair) else (first, *mutated[1:])


def _floats(p: Any) -> bool:
    return isinstance(p, Pair) and bool(p.value.is_floating_point())
