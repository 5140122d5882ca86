"""What a user passes, turned into a Call: layouts, padding words, missing N, and every check.

All checking happens here, before anything is computed; no argument is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Facts, facts
from ..case import SPATIAL, Call, Spec, axis_letters, role_dtype
from ..errors import ConvrefError, message, shorten
from ..problem import (
    BASE_ROLE,
    FILTER_AXES,
    OUTPUT_AXES,
    RANKS,
    SIGNATURE,
    ConvProblem,
    Pads,
    WindowProblem,
    integer,
    integers,
    items,
    pads,
)

# How users call each role, in messages.
ARGUMENT = {
    "x": "input",
    "w": "weight",
    "b": "bias",
    "dy": "grad_output",
    "cols": "input",
    "indices": "indices",
    "target": "target",
    "mean": "mean",
    "rstd": "rstd",
    "rmean": "running_mean",
    "rvar": "running_var",
    "x_dot": "input tangent",
    "w_dot": "weight tangent",
    "b_dot": "bias tangent",
    "ddx": "grad_grad_input",
    "ddw": "grad_grad_weight",
    "ddb": "grad_grad_bias",
}
_IMAGES = ("x", "y", "indices")  # what has an N axis that may be missing
PADDING_WORDS = ("valid", "same", "same_upper", "same_lower", "half", "full")


@dataclass(frozen=True)
class Layout:
    """Axis order of the user's arrays, as permutations to and from the formulas' order."""

    data: tuple[int, ...]
    weight: tuple[int, ...]

    def axes(self, role: str) -> tuple[int, ...]:
        """Return, for each formula axis, the user's axis it is."""
        return {"w": self.weight, "b": (0,)}.get(BASE_ROLE[role], self.data)

    def inverse(self, role: str) -> tuple[int, ...]:
        """Return, for each user's axis, the formula axis it is."""
        axes = self.axes(role)
        return tuple(axes.index(a) for a in range(len(axes)))


@dataclass(frozen=True)
class Prepared:
    """A call, and how the user's arrays become its operands and back."""

    call: Call
    layout: Layout
    unbatched: bool
    identity: bool

    def operand(self, role: str, array: Any) -> Any:
        """Return the user's array as the operand in `role`: a view, never a copy."""
        if array is None or self.identity:
            return array
        if self.unbatched and BASE_ROLE[role] in _IMAGES:
            array = array[None]
        return _permuted(array, self.layout.axes(role))

    def result(self, role: str, array: Any) -> Any:
        """Return a result in the user's axis order."""
        if array is None or self.identity:
            return array
        array = _permuted(array, self.layout.inverse(role))
        return array[0] if self.unbatched and BASE_ROLE[role] in _IMAGES else array


def _permuted(array: Any, axes: tuple[int, ...]) -> Any:
    if axes == tuple(range(len(axes))):
        return array
    return array.permute(axes) if hasattr(array, "permute") else array.transpose(axes)


def layout_of(
    where: str, rank: int, layout: Any, weight_layout: Any, transposed: bool, unbatched: bool
) -> Layout:
    """Return the Layout that the two names describe."""
    space = SPATIAL[rank].upper()
    first, last = "NC" + space, "N" + space + "C"
    name = first if layout is None else layout
    if name not in (first, last):
        raise ConvrefError(
            message(where, f"layout is {shorten(repr(layout))}, needs {first!r} or {last!r}")
        )
    logical = ("IO" if transposed else "OI") + space
    default = logical if name == first else space + ("OI" if transposed else "IO")
    weights = default if weight_layout is None else weight_layout
    if not isinstance(weights, str) or sorted(weights) != sorted(logical):
        raise ConvrefError(
            message(
                where,
                f"weight_layout is {shorten(repr(weight_layout))}, "
                f"needs the letters of {logical!r} in any order",
            )
        )
    return Layout(tuple(name.index(a) for a in first), tuple(weights.index(a) for a in logical))


def padding_of(
    where: str,
    value: Any,
    *,
    input: Sequence[int],
    filter: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
) -> Pads:
    """Return padding as ((lo, hi), ...) from any of the forms that the public API takes."""
    rank = len(input)
    if not isinstance(value, str):
        return pads(where, "padding", value, rank)
    if value not in PADDING_WORDS or (transposed and value != "valid"):
        words = ("valid",) if transposed else PADDING_WORDS
        raise ConvrefError(
            message(
                where,
                f"padding is {shorten(repr(value))}, needs numbers or one of {', '.join(words)}",
            )
        )
    if value == "same" and set(stride) != {1}:
        raise ConvrefError(
            message(
                where,
                f"padding is 'same' with stride {tuple(stride)}, needs stride 1 "
                "(same_upper and same_lower take any)",
            )
        )
    spans = [d * (taps - 1) for taps, d in zip(filter, dilation)]
    if value == "half":
        return tuple(((span + 1) // 2,) * 2 for span in spans)
    if value == "full":
        return tuple((span, span) for span in spans)
    totals = [
        max(0, (-(-size // s) - 1) * s + span + 1 - size)
        for size, s, span in zip(input, stride, spans)
    ]
    if value == "valid":
        return ((0, 0),) * rank
    halves = [total // 2 for total in totals]
    if value == "same_lower":
        return tuple((total - half, half) for total, half in zip(totals, halves))
    return tuple((half, total - half) for total, half in zip(totals, halves))


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


def prepare(
    pass_: str,
    rank: int,
    arrays: Sequence[Any],
    settings: Settings,
    mask: Any = (),
) -> Prepared:
    """Return the checked call of a convolution pass on the user's `arrays`, by role."""
    where = f"conv.{pass_}"
    roles = SIGNATURE["conv", pass_].operands
    for role in ("x", "w", "dy"):
        if role in roles and arrays[roles.index(role)] is None:
            raise ConvrefError(message(where, f"{ARGUMENT[role]} is None, needs an array"))
    found = {
        role: facts(where, ARGUMENT[role], array)
        for role, array in zip(roles, arrays)
        if array is not None
    }
    rank = rank or len(found["w"].shape) - 2
    unbatched = _ranks(where, rank, found)
    _agree(where, found)
    for name, value in (("transposed", settings.transposed), ("flip", settings.flip)):
        if not is_bool(value):
            raise ConvrefError(message(where, f"{name} is {shorten(repr(value))}, needs a bool"))
    layout = layout_of(
        where, rank, settings.layout, settings.weight_layout, bool(settings.transposed), unbatched
    )
    shapes = {role: _logical(role, fact.shape, layout, unbatched) for role, fact in found.items()}
    problem = _problem(where, rank, shapes, settings, "b" in found)
    call = _call(where, pass_, problem, found, mask, settings.math)
    for role, shape in shapes.items():
        _same_sizes(where, call, role, shape)
    identity = not unbatched and all(
        layout.axes(role) == tuple(range(len(layout.axes(role)))) for role in found
    )
    strides = {
        role: _logical(role, fact.strides, layout, unbatched) for role, fact in found.items()
    }
    specs = tuple(
        replace(spec_of(call, role, shapes[role], strides[role], found[role].dtype), device=d)
        if role in found
        else Spec(found["x"].dtype, device=d)
        for role in roles
        for d in (found["x"].device,)
    )
    return Prepared(replace(call, specs=specs), layout, unbatched, identity)


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
            raise ConvrefError(
                message(where, f"{ARGUMENT[role]} has {len(fact.shape)} axes, needs {needs}")
            )
    return axes == rank + 1


def _agree(where: str, found: dict[str, Facts]) -> None:
    """Check that all arrays are of one kind, dtype and device."""
    first = found["x"]
    for role, fact in found.items():
        for name, got, needs in (
            ("kind", fact.kind, first.kind),
            ("dtype", fact.dtype, first.dtype),
            ("device", fact.device, first.device),
        ):
            if got != needs:
                raise ConvrefError(
                    message(where, f"{ARGUMENT[role]} has {name} {got}, needs {needs} as input has")
                )


def _logical(role: str, sizes: Sequence[int], layout: Layout, unbatched: bool) -> tuple[int, ...]:
    if unbatched and BASE_ROLE[role] in ("x", "y"):
        sizes = (1, *sizes)
    return tuple(sizes[a] for a in layout.axes(role))


def _problem(
    where: str, rank: int, shapes: dict[str, tuple[int, ...]], settings: Settings, bias: bool
) -> ConvProblem:
    x, w = shapes["x"], shapes["w"]
    groups = integer(where, "groups", settings.groups)
    if groups < 1:
        raise ConvrefError(message(where, f"groups is {groups}, needs at least 1"))
    transposed = bool(settings.transposed)
    stride = integers(where, "stride", settings.stride, rank)
    dilation = integers(where, "dilation", settings.dilation, rank)
    for name, sizes in (("stride", stride), ("dilation", dilation)):
        if min(sizes) < 1:
            raise ConvrefError(message(where, f"{name} is {sizes}, needs at least 1"))
    geometry: dict[str, Any] = {"input": x[2:], "filter": w[2:], "stride": stride}
    geometry["dilation"] = dilation
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
        flip=bool(settings.flip),
        bias=bias,
        **geometry,
    )


def _call(
    where: str,
    pass_: str,
    problem: ConvProblem,
    found: dict[str, Facts],
    mask: Any,
    math: Any,
) -> Call:
    tangents = None
    if pass_ in ("jvp", "double_backward"):
        carried = [role for role in found if role.endswith("_dot") or role.startswith("dd")]
        if pass_ == "double_backward":
            problem = replace(problem, bias=True)  # whether db had a cotangent is all that counts
        tangents = "".join(BASE_ROLE[role] for role in carried)
        if "b" in tangents and not problem.bias:
            raise ConvrefError(message(where, "bias tangent is given, needs a bias"))
    if SIGNATURE["conv", pass_].maskable:
        bits = items(mask)
        if bits is None or len(bits) != 3 or not all(map(is_bool, bits)):
            raise ConvrefError(
                message(where, f"output_mask is {shorten(repr(mask))}, needs 3 bools")
            )
        mask = tuple(map(bool, bits))
    return Call("conv", pass_, problem, mask or (), tangents, (Spec(),), math)


def is_bool(bit: Any) -> bool:
    """Return whether a user's value is True or False, as any of Python's and NumPy's kinds."""
    return isinstance(bit, (bool, int, np.bool_)) and bit in (True, False)


def _same_sizes(where: str, call: Call, role: str, got: tuple[int, ...]) -> None:
    """Check the shape of one array against the problem; the text names the axis."""
    needs = call.problem.shape(role)
    rank = call.problem.rank
    names = {
        "x": ("N", "C", *RANKS[rank]),
        "y": ("N", "K", *OUTPUT_AXES[rank]),
        "w": (*(("C", "K/G") if call.conv.transposed else ("K", "C/G")), *FILTER_AXES[rank]),
        "b": ("K",),
    }[BASE_ROLE[role]]
    for axis, have, need in zip(names, got, needs):
        if have != need:
            raise ConvrefError(
                message(where, f"{ARGUMENT[role]} has {axis}={have}, needs {need}", call)
            )


def lying(
    where: str,
    call: Call,
    role: str,
    name: str,
    fact: Facts | None,
    lead: Facts,
    axes: Sequence[int] | None = None,
) -> Spec:
    """Check one array against its problem and the array that leads; return how it lies in memory.

    Parameters
    ----------
    where : str
        What an error begins with.
    call : Call
    role : str
    name : str
        What the user calls the array.
    fact : Facts or None
        Of an absent operand.
    lead : Facts
        Whose kind, type and device the others have.
    axes : sequence of int, optional
        The user's axis of each of the formula's; the same ones where none are given.
    """
    if fact is None:
        return Spec(lead.dtype, device=lead.device)
    needs = call.problem.shape(role)
    axes = axes if axes and len(fact.shape) == len(needs) else range(len(fact.shape))
    shape = tuple(fact.shape[axis] for axis in axes)
    for what, got, need in (
        ("shape", shape, needs),
        ("kind", fact.kind, lead.kind),
        ("dtype", fact.dtype, role_dtype(role, lead.dtype)),
        ("device", fact.device, lead.device),
    ):
        if got != need:
            raise ConvrefError(message(where, f"{name} has {what} {got}, needs {need}", call))
    strides = tuple(fact.strides[axis] for axis in axes)
    assert len(axis_letters(call.problem, role)) == len(shape)
    return replace(spec_of(call, role, shape, strides, fact.dtype), device=fact.device)


def spec_of(
    call: Call, role: str, shape: Sequence[int], strides: Sequence[int], dtype: str
) -> Spec:
    """Return the memory order and the expanded axes of an array with these strides."""
    letters = axis_letters(call.problem, role)
    expand = "".join(a for a, size, s in zip(letters, shape, strides) if s == 0 and size > 1)
    if 0 in shape:
        return Spec(dtype)
    real = [i for i, size in enumerate(shape) if size > 1 and strides[i] != 0]
    ranked = iter(sorted(real, key=lambda i: -abs(strides[i])))
    order = "".join(letters[next(ranked) if i in real else i] for i in range(len(shape)))
    return Spec(dtype, order="" if order == letters else order, expand=expand)


def window_problem(
    where: str,
    shape: Sequence[int],
    kernel_size: Any,
    dilation: Any,
    padding: Any,
    stride: Any,
) -> WindowProblem:
    """Return the problem of unfold on an image of `shape` (N, C, *spatial)."""
    rank = len(shape) - 2
    geometry = {
        "input": tuple(shape[2:]),
        "filter": integers(where, "kernel_size", kernel_size, rank),
        "stride": integers(where, "stride", stride, rank),
        "dilation": integers(where, "dilation", dilation, rank),
    }
    for name, key in (("kernel_size", "filter"), ("stride", "stride"), ("dilation", "dilation")):
        if min(geometry[key]) < 1:
            raise ConvrefError(message(where, f"{name} is {geometry[key]}, needs at least 1"))
    padding = padding_of(where, padding, transposed=False, **geometry)
    return WindowProblem(n=shape[0], c=shape[1], padding=padding, **geometry)
