"""Laws of a program that one result cannot show."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ...errors import one_line
from ..numerics import Numerics
from .data import for_program
from .report import Program, judge_results, tensors
from .shrink import call, ragged, shrink_arguments, sizes


class ProgramFinding(NamedTuple):
    """What is wrong with a candidate on some data."""

    law: str
    data: str
    reason: str
    args: Any = ()

    def __str__(self) -> str:
        return f"{self.law} on {self.data} data: {self.reason}"


def with_odd_sizes(
    reference: Callable[..., Any], args: Any, draws: int, seed: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield data for a program by name, then some of odd sizes where the reference takes them."""
    yield from for_program(args, draws, seed)
    odd = ragged(reference, args)
    if sizes(odd) != sizes(args):
        yield from ((f"{name}, odd sizes", data) for name, data in for_program(odd, 1, seed))


def findings(
    candidate: Callable[..., Any],
    reference: Callable[..., Any],
    args: Any,
    numerics: Numerics,
    draws: int,
    batched: tuple[int, ...],
) -> Iterator[ProgramFinding]:
    """Yield what is wrong, on each kind of data."""
    for name, data in with_odd_sizes(reference, args, draws):
        program = Program(reference, tuple(data), {}, numerics)
        for law, failure in _laws(candidate, program, batched):
            if law != "right":
                yield ProgramFinding(law, name, failure, program.args)
                continue
            small = replace(
                program, args=shrink_arguments(partial(_is_wrong, candidate, program), data)
            )
            failure = judge_results(small, candidate(*_copied(small.args))).explanation()
            yield ProgramFinding(law, name, f"{failure}\n  {call(small.args)}", small.args)


def _is_wrong(candidate: Callable[..., Any], program: Program, args: Any) -> bool:
    """Return whether a candidate is wrong on other arguments that the reference takes."""
    try:
        got = candidate(*_copied(args))
        return judge_results(replace(program, args=tuple(args)), got).verdict.kind == "wrong"
    except Exception:  # of any kind: these arguments are another case
        return False


def _laws(
    candidate: Callable[..., Any], program: Program, batched: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    args = _copied(program.args)
    try:
        first = candidate(*args)
    except Exception as error:  # whatever a kernel raises on valid arguments
        yield "accepts valid arguments", one_line(error)
        return
    report = judge_results(program, first)
    if not report and report.verdict.kind == "wrong":
        yield "right", report.explanation()
        return
    if not _same_bits(args, program.args):
        yield "leaves its arguments unchanged", "an argument has other values after the call"
    got = tensors(first, "the candidate")
    if _shares(args, got) and not _shares(program.args, _plain_results(program)):
        yield "returns memory of its own", "a result shares memory with an argument"
    if not _same_bits(candidate(*_copied(program.args)), first):
        yield "repeatable", "a second call on the same arguments returns other bits"
    spread = judge_results(program, candidate(*_strided(program.args)))
    if spread.verdict.kind == "wrong":
        yield "takes arguments that are not contiguous", str(spread)
    with _poisoned():
        filled = judge_results(program, candidate(*_copied(program.args)))
    if filled.verdict.kind == "wrong":
        yield "writes all of its results", str(filled)
    if batched and not _same_by_image(candidate, program.args, got, batched):
        yield "independent of the batch", "an image alone gives other bits than in a batch"


def _plain_results(program: Program) -> dict[str, Any]:
    return tensors(program.reference(*program.args, **program.kwargs))


def _shares(args: Any, results: dict[str, Any]) -> bool:
    """Return whether a result is a view of an argument."""
    given = {a.untyped_storage().data_ptr() for a in tree_leaves(args) if hasattr(a, "data_ptr")}
    return any(t.untyped_storage().data_ptr() in given for t in results.values() if t.numel())


def _copied(args: Any) -> Any:
    return tree_map(lambda a: a.detach().clone() if isinstance(a, torch.Tensor) else a, args)


def _strided(args: Any) -> Any:
    """Return copies of which every second element along the last axis is used."""

    def spread(a: Any) -> Any:
        if not isinstance(a, torch.Tensor) or not a.ndim:
            return a
        room = torch.full((*a.shape[:-1], 2 * a.shape[-1]), 7, dtype=a.dtype, device=a.device)
        room[..., ::2] = a
        return room[..., ::2]

    return tree_map(spread, args)


def _same_bits(x: Any, y: Any) -> bool:
    """Return whether two results have the same bits, up to the sign of zero and kinds of NaN."""
    pairs = zip(tensors(_tensors_only(x)).values(), tensors(_tensors_only(y)).values())
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in pairs)


def _tensors_only(tree: Any) -> Any:
    return tree_map(lambda a: a if isinstance(a, torch.Tensor) else None, tree)


class _poisoned:
    """Fills new memory with NaN."""

    def __enter__(self) -> None:
        self.before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("warn")

    def __exit__(self, *_: object) -> None:
        torch.set_deterministic_debug_mode(self.before)


def _same_by_image(
    candidate: Callable[..., Any], args: Any, whole: dict[str, Any], batched: tuple[int, ...]
) -> bool:
    count = args[batched[0]].shape[0]
    for image in {0, count - 1}:
        one = [a[image : image + 1] if i in batched else a for i, a in enumerate(_copied(args))]
        alone = tensors(candidate(*one), "the candidate")
        pairs = [(alone[n], t[image : image + 1]) for n, t in whole.items()]
        if not all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in pairs):
            return False
    return True
