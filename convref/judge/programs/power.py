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
    found = {mutant.name: mutant.passes for mutant in judged_mutants(traced)}
    return Power(len(found), tuple(name for name, passes in found.items() if passes))


class Mutant(NamedTuple):
    """A mutation: by result, what it and the reference compute; and whether the judge passes it."""

    name: str
    results: list[tuple[Tensor, Pair]]
    passes: bool


def judged_mutants(traced: Callable[..., Any], skip: Collection[str] = ()) -> Iterator[Mutant]:
    """Yield each mutation of a reference that is not in `skip`."""
    trace, right = traced()
    for name, results in mutants(traced, skip):
        kinds = {
            verdict(each, results[each], like, pair, trace.numerics).kind
            for each, (like, pair) in right.items()
        }
        pairs = [(results[each], pair) for each, (_, pair) in right.items()]
        yield Mutant(name, pairs, "wrong" not in kinds)


def mutants(
    traced: Callable[..., Any], skip: Collection[str] = ()
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the name and the results of each mutation of a reference that is not in `skip`.

    Operations whose results are overwritten or never used have no mutations.
    """
    changes: list[tuple[int, str, Any]] = []

    def note(number: int, op: Op, pairs: Any, found: Any, rule: Any) -> Any:
        name = op.name.removeprefix("aten.")
        for label, change in _OF_RESULTS.items():
            if change(op, pairs, found, rule) is not None:
                changes.append((number, label.format(name), change))
        for label, change in _OF_SUMS.items() if name in _SUMS else ():
            changes.append((number, label.format(name), change))
        return found

    _, right = traced(change=note)
    likes = {name: like for name, (like, _) in right.items()}
    yield "zeros", {name: torch.zeros_like(t) for name, t in likes.items()}
    if all(t.is_floating_point() and t.numel() > 1 for t in likes.values()):
        yield "a constant", {n: t.mean().expand(t.shape).to(t.dtype) for n, t in likes.items()}
    for number, label, change in changes:
        name = f"{label} (operation {number})"
        if name not in skip:
            _, found = traced(change=_change_at(number, change))
            if _same(found, right) and _same(
                traced(change=_change_at(number, _unbounded))[1], right
            ):
                continue
            yield name, {n: pair.value.to(like.dtype) for n, (like, pair) in found.items()}


def _same(found: dict[str, Any], right: dict[str, Any]) -> bool:
    """Return whether results have the same values and the same bounds."""
    for name, (_, pair) in right.items():
        for one, other in zip((found[name][1].wide, found[name][1].slack), (pair.wide, pair.slack)):
            one, other = torch.as_tensor(one).double(), torch.as_tensor(other).double()
            if bool(((one != other) & ~(one.isnan() & other.isnan())).any()):
                return False
    return True


def _unbounded(op: Op, pairs: Any, found: Any, rule: Any) -> Any:
    """Return results of which the first may be anything, which changes the bounds of its uses."""
    first = found if isinstance(found, Pair) else found[0]
    first = first._replace(error=torch.full_like(first.wide, torch.inf))
    return first if isinstance(found, Pair) else (first, *found[1:])


def _change_at(place: int, change: Any) -> Change:
    """Return a change of one operation only."""

    def only(number: int, op: Op, pairs: Any, found: Any, rule: Any) -> Any:
        return change(op, pairs, found, rule) if number == place else found

    return only


def _dropped(op: Op, pairs: Any, found: Any, rule: Any) -> Pair | None:
    """Return the operand that the result would be without the operation."""
    first = next((p for p in pairs if isinstance(p, Pair)), None)
    if first is None or not isinstance(found, Pair) or first.value.shape != found.value.shape:
        return None
    same = bool((first.wide == found.wide).all())
    return None if same or not first.value.is_floating_point() else first


def _unwritten(op: Op, pairs: Any, found: Any, rule: Any) -> Any:
    """Return the result with zeros in its last slice, as if a tile ended before it."""
    return _sliced(found, -1, lambda value: value.select(-1, -1).zero_())


def _repeated(op: Op, pairs: Any, found: Any, rule: Any) -> Any:
    """Return the result with the channel before the last in place of the last."""
    return _sliced(found, 1, lambda value: value.select(1, -1).copy_(value.select(1, -2)))


def _sliced(found: Any, axis: int, change: Callable[[Tensor], Any]) -> Any:
    """Return results of which the first is changed, None if it stays the same."""
    first = found if isinstance(found, Pair) else found[0]
    value = first.value.clone()
    if value.ndim <= max(axis, 0) or value.shape[axis] < 2 or value.dtype == torch.bool:
        return None
    change(value)
    if bool((value == first.value).all()):
        return None
    first = first._replace(value=value)
    return first if isinstance(found, Pair) else (first, *found[1:])


def _last_dropped(op: Op, pairs: Any, found: Any, rule: Any) -> Any:
    return _with_term(op, pairs, rule, -1, 0)


def _first_twice(op: Op, pairs: Any, found: Any, rule: Any) -> Any:
    return _with_term(op, pairs, rule, 0, 2)


def _with_term(op: Op, pairs: Any, rule: Any, term: int, factor: int) -> Any:
    place = _SUMS[op.name.removeprefix("aten.")]
    changed = list(pairs)
    value = pairs[place].value.clone()
    axis = 1 if op.name.endswith("convolution") else -1
    if value.ndim:
        value.select(axis, term).mul_(factor)
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


_OF_RESULTS = {
    "without {}": _dropped,
    "last slice of {} not written": _unwritten,
    "last channel of {} repeats": _repeated,
}
_OF_SUMS = {
    "last term of {} dropped": _last_dropped,
    "first term of {} twice": _first_twice,
    "{} in float16": _narrow,
}
