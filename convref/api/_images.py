"""From images to a Call, for every op without a filter: pools, resize and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..arrays import Facts, facts
from ..case import Call, Spec
from ..errors import ConvrefError, message
from ..ops import BASE_ROLE, OUTPUT_AXES, RANKS, SIGNATURE, Problem, Sizes
from ._arguments import ARGUMENT, Layout, Prepared, agree, axes_of, same_sizes, spec_of

P = ParamSpec("P")
R = TypeVar("R")
Build = Callable[..., Problem]

_OF_INPUT = ("x", "x_dot", "ddx")  # roles shaped like the input


def ranked(
    function: Callable[Concatenate[int, P], R],
) -> tuple[Callable[P, R], Callable[P, R], Callable[P, R]]:
    """Return ``function(rank, ...)`` for ranks 1, 2 and 3, under names that end in 1d, 2d, 3d."""
    one, two, three = (_of_rank(function, rank) for rank in (1, 2, 3))
    return one, two, three


def _of_rank(function: Callable[Concatenate[int, P], R], rank: int) -> Callable[P, R]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(rank, *args, **kwargs)
        except TypeError:
            _bind(named, args, kwargs)  # or the text names what nobody called
            raise

    named: Any = call
    named.__name__ = named.__qualname__ = function.__name__.lstrip("_").replace("Nd", f"{rank}d")
    without = signature(function)
    kept = list(without.parameters.values())[1:]
    named.__signature__ = without.replace(parameters=kept)
    del named.__wrapped__  # or the rank would be shown again
    return call


def _bind(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise a TypeError, in the words of the function's own signature, if arguments do not fit."""
    try:
        signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{function.__name__}() {error}") from None


def prepare_images(
    arrays: Sequence[Any],
    op: str,
    pass_: str,
    rank: int,
    layout: Any,
    build: Build,
    arguments: tuple[Any, ...],
    sizes: Sizes | None = None,
    mask: tuple[bool, ...] = (),
) -> Prepared:
    """Return the checked call of a pass on the user's `arrays`, by role.

    Parameters
    ----------
    arrays : sequence of arrays
        By role.
    op, pass_, rank, layout
        As in the public functions; rank 0 is read off the first array, which then has its N.
    build : callable
        ``build(where, n, c, input, *arguments)`` returns the Problem.
    arguments : tuple
        The user's own, as text of a key too.
    sizes : tuple of int, optional
        Shape of the input, in the user's layout, where no array of `arrays` has it.
    """
    where, roles = f"{op}.{pass_}", SIGNATURE[op, pass_].operands
    found: dict[str, Facts] = {}
    for role, array in zip(roles, arrays, strict=True):
        if array is None:
            raise ConvrefError(message(where, f"{ARGUMENT[role]} is None, needs an array"))
        found[role] = facts(where, ARGUMENT[role], array)
    given = sizes or next(found[role].shape for role in roles if role in _OF_INPUT)
    rank = rank or len(given) - 2
    unbatched = _unbatched(where, rank, given, found)
    agree(where, found, next(iter(found)))
    order = Layout(axes_of(where, rank, layout), ())

    def logical(values: Sequence[int], extra: int = 1) -> Sizes:
        batched = (extra, *values) if unbatched else tuple(values)
        return tuple(batched[a] for a in order.data)

    n, c, *space = logical(given)
    problem = build(where, n, c, tuple(space), *arguments)
    call = Call(op, pass_, problem, mask, specs=(Spec(found[roles[0]].dtype),))
    specs = []
    for role, fact in found.items():
        fact = fact._replace(shape=logical(fact.shape), strides=logical(fact.strides))
        same_sizes(where, call, role, fact.shape, _axes(call, role))
        specs.append(spec_of(call, role, fact))
    identity = not unbatched and order.data == tuple(range(rank + 2))
    return Prepared(replace(call, specs=tuple(specs)), order, unbatched, identity)


def _unbatched(where: str, rank: int, given: Sizes, found: dict[str, Facts]) -> bool:
    """Check the number of axes of every array; return whether the N axis is missing."""
    if rank not in RANKS:
        raise ConvrefError(message(where, f"input has {len(given)} axes, needs 3 to 5"))
    if len(given) not in (rank + 1, rank + 2):
        raise ConvrefError(
            message(where, f"input has {len(given)} axes, needs {rank + 2} (or no N)")
        )
    for role, fact in found.items():
        if len(fact.shape) != len(given):
            what = f"{ARGUMENT[role]} has {len(fact.shape)} axes, needs {len(given)}"
            raise ConvrefError(message(where, what))
    return len(given) == rank + 1


def _axes(call: Call, role: str) -> Sequence[str]:
    """Return the names of an operand's axes; of a window's image and its result, by their shape."""
    like_input = call.problem.shape(role) == call.problem.shape("x") and BASE_ROLE[role] != "y"
    return "N", "C", *(RANKS if like_input else OUTPUT_AXES)[call.problem.rank]


def one(where: str, name: str, given: Any) -> Any:
    """Return the array of a tuple of one, as `primals` and `tangents` are."""
    if not isinstance(given, (tuple, list)) or len(given) != 1:
        raise ConvrefError(message(where, f"{name} needs a tuple (input,)"))
    return given[0]


def shape_of(where: str, input: Any) -> Sizes:
    """Return the shape of the user's input where nothing else of it is needed."""
    return facts(where, "input", input).shape
