"""From a convolution's arguments to its problem, and from arrays to results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...arrays import Facts, facts
from ...case import SPATIAL, Call, Spec
from ...errors import ConvrefError, message, shorten
from ...ops import (
    BASE_ROLE,
    FILTER_AXES,
    OUTPUT_AXES,
    RANKS,
    SIGNATURE,
    ConvProblem,
    Sizes,
    integer,
    items,
)
from .._arguments import (
    ARGUMENT,
    Layout,
    Prepared,
    agree,
    axes_of,
    flag,
    mask_of,
    same_sizes,
    spec_of,
)
from .._run import compute
from .._windows import padding_of, per_axis


class Settings(NamedTuple):
    """The arguments of a convolution that are no arrays, as the user gave them."""

    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: Any = 1
    transposed: Any = False
    output_padding: Any = 0
    layout: Any = None
    weight_layout: Any = None
    math: Any = "ieee"
    flip: Any = False


def run(
    pass_: str,
    rank: int,
    arrays: tuple[Any, ...],
    settings: Settings,
    backend: str,
    mask: Any = (),
    bias_sizes: Any = None,
) -> tuple[Any, ...]:
    """Return the results of a pass."""
    return compute(prepare_conv, arrays, (pass_, rank, settings, mask, bias_sizes), backend)


def forward(rank: int, arrays: tuple[Any, ...], settings: Settings, backend: str) -> Any:
    """Return y of (x, w, b)."""
    return run("fprop", rank, arrays, settings, backend)[0]


def backward(
    rank: int,
    arrays: tuple[Any, ...],
    bias_sizes: Any,
    settings: Settings,
    mask: Any,
    backend: str,
) -> tuple[Any, ...]:
    """Return dx, dw, db of (dy, x, w)."""
    return run("backward", rank, arrays, settings, backend, mask, bias_sizes)


def prepare_conv(
    arrays: tuple[Any, ...], pass_: str, rank: int, settings: Settings, mask: Any, bias_sizes: Any
) -> Prepared:
    """Return the checked call of a pass on the user's `arrays`, by role; rank 0 is the weight's."""
    where, roles = f"conv.{pass_}", SIGNATURE["conv", pass_].operands
    found = _facts(where, roles, arrays)
    rank = rank or len(found["w"].shape) - 2
    unbatched = _ranks(where, rank, found)
    agree(where, found, "x")
    flags = {name: flag(where, name, getattr(settings, name)) for name in ("transposed", "flip")}
    settings = settings._replace(**flags)
    layout = _layout(where, rank, settings)
    seen = {role: _seen(role, fact, layout, unbatched) for role, fact in found.items()}
    problem = _problem(where, rank, seen, settings)
    absent = Spec(found["x"].dtype, device=found["x"].device)
    call = _call(where, pass_, problem, list(seen), mask, settings.math)
    call = replace(call, specs=(absent,))
    for role, fact in seen.items():
        same_sizes(where, call, role, fact.shape, _axes(call, role))
    specs = tuple(spec_of(call, r, seen[r]) if r in seen else absent for r in roles)
    identity = not unbatched and all(
        layout.axes(role) == tuple(range(len(layout.axes(role)))) for role in found
    )
    call = replace(call, specs=specs)
    _check_bias_sizes(call, bias_sizes)
    return Prepared(call, layout, unbatched, identity)


def _facts(where: str, roles: Sequence[str], arrays: Sequence[Any]) -> dict[str, Facts]:
    """Return the facts of the arrays that are given; those that no pass goes without are."""
    given = dict(zip(roles, arrays))
    for role in ("x", "w", "dy"):
        if role in given and given[role] is None:
            raise ConvrefError(message(where, f"{ARGUMENT[role]} is None, needs an array"))
    return {role: facts(where, ARGUMENT[role], a) for role, a in given.items() if a is not None}


def _ranks(where: str, rank: int, found: dict[str, Facts]) -> bool:
    """Check the number of axes of every array; return whether the N axis is missing."""
    if rank not in RANKS:
        raise ConvrefError(
            message(where, f"weight has {rank + 2} axes, needs 3 to 5 (1 to 3 in space)")
        )
    axes = len(found["x"].shape)
    if axes not in (rank + 1, rank + 2):
        raise ConvrefError(message(where, f"input has {axes} axes, needs {rank + 2} (or no N)"))
    for role, fact in found.items():
        needs = {"w": rank + 2, "b": 1}.get(BASE_ROLE[role], axes)
        if len(fact.shape) != needs:
            what = f"{ARGUMENT[role]} has {len(fact.shape)} axes, needs {needs}"
            raise ConvrefError(message(where, what))
    return axes == rank + 1


def _layout(where: str, rank: int, settings: Settings) -> Layout:
    """Return the Layout that the names of two layouts describe; OIHW goes with NCHW."""
    data, space = axes_of(where, rank, settings.layout), SPATIAL[rank].upper()
    logical = ("IO" if settings.transposed else "OI") + space
    default = logical if data[1] == 1 else space + logical[1::-1]
    weights = default if settings.weight_layout is None else settings.weight_layout
    if not isinstance(weights, str) or sorted(weights) != sorted(logical):
        what = f"weight_layout is {shorten(repr(settings.weight_layout))}, "
        needs = f"needs the letters of {logical!r} in any order"
        raise ConvrefError(message(where, what + needs))
    return Layout(data, tuple(weights.index(a) for a in logical))


def _seen(role: str, fact: Facts, layout: Layout, unbatched: bool) -> Facts:
    """Return the facts of an array as the formulas see it: with N, and in their order."""

    def logical(sizes: Sizes) -> Sizes:
        if unbatched and BASE_ROLE[role] in ("x", "y"):
            sizes = (1, *sizes)
        return tuple(sizes[a] for a in layout.axes(role))

    return fact._replace(shape=logical(fact.shape), strides=logical(fact.strides))


def _problem(where: str, rank: int, seen: dict[str, Facts], settings: Settings) -> ConvProblem:
    x, w = seen["x"].shape, seen["w"].shape
    groups, transposed = integer(where, "groups", settings.groups), settings.transposed
    if groups < 1:
        raise ConvrefError(message(where, f"groups is {groups}, needs at least 1"))
    stride, dilation = per_axis(where, rank, stride=settings.stride, dilation=settings.dilation)
    geometry = {"input": x[2:], "filter": w[2:], "stride": stride, "dilation": dilation}
    padding = padding_of(where, settings.padding, transposed=transposed, **geometry)
    k = w[1] * groups if transposed else w[0]
    needs = w[0] if transposed else w[1] * groups
    if x[1] != needs:
        has = f"C={needs}" if transposed else f"C/G={w[1]}, groups={groups}"
        raise ConvrefError(message(where, f"input has C={x[1]}, needs {needs}: weight has {has}"))
    return ConvProblem(
        n=x[0],
        c=x[1],
        k=k,
        groups=groups,
        padding=padding,
        transposed=transposed,
        output_padding=settings.output_padding,
        flip=settings.flip,
        bias="b" in seen,
        **geometry,
    )


def _call(
    where: str, pass_: str, problem: ConvProblem, given: Sequence[str], mask: Any, math: Any
) -> Call:
    """Return the call whose tangents, or cotangents of gradients, are those that are given."""
    tangents = None
    if pass_ == "double_backward":
        problem = replace(problem, bias=True)  # whether db had a cotangent is all that counts
    if pass_ in ("jvp", "double_backward"):
        carried = (role for role in given if role.endswith("_dot") or role.startswith("dd"))
        tangents = "".join(BASE_ROLE[role] for role in carried)
        if "b" in tangents and not problem.bias:
            raise ConvrefError(message(where, "bias tangent is given, needs a bias"))
    bits = mask_of(where, "conv", pass_, mask)
    return Call("conv", pass_, problem, bits, tangents, (Spec(),), math)


def _axes(call: Call, role: str) -> Sequence[str]:
    """Return the names of an operand's axes."""
    rank = call.problem.rank
    return {
        "x": ("N", "C", *RANKS[rank]),
        "y": ("N", "K", *OUTPUT_AXES[rank]),
        "w": (*(("C", "K/G") if call.conv.transposed else ("K", "C/G")), *FILTER_AXES[rank]),
        "b": ("K",),
    }[BASE_ROLE[role]]


def _check_bias_sizes(call: Call, bias_sizes: Any) -> None:
    if bias_sizes is None:
        return
    sizes = items(bias_sizes)
    sizes = [bias_sizes] if sizes is None else sizes
    got = tuple(integer("conv.backward", "bias_sizes", size) for size in sizes)
    if got != (call.conv.k,):
        what = f"bias_sizes is {shorten(got)}, needs ({call.conv.k},)"
        raise ConvrefError(message("conv.backward", what, call))
