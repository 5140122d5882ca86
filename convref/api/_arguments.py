"""What a user passes, turned into a Call: layouts, missing N, and what every family checks.

All checking happens here, before anything is computed; no argument is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Facts
from ..case import SPATIAL, Call, Spec, axis_letters, role_dtype
from ..errors import ConvrefError, message, shorten
from ..ops import BASE_ROLE, INDICES, SIGNATURE, Sizes, items

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


def axes_of(where: str, rank: int, layout: Any) -> tuple[int, ...]:
    """Return, for N, C and space, the user's axes; None is the layout N, C first."""
    space = SPATIAL[rank].upper()
    first, last = "NC" + space, "N" + space + "C"
    name = first if layout is None else layout
    if name not in (first, last):
        what = f"layout is {shorten(repr(layout))}, needs {first!r} or {last!r}"
        raise ConvrefError(message(where, what))
    return tuple(name.index(a) for a in first)


def agree(where: str, found: dict[str, Facts], lead: str) -> None:
    """Check that all arrays are of one kind and device, and the data of one dtype."""
    first = found[lead]
    for role, fact in found.items():
        dtype = "i64" if role in INDICES else first.dtype
        for name, got, needs in (
            ("kind", fact.kind, first.kind),
            ("dtype", fact.dtype, dtype),
            ("device", fact.device, first.device),
        ):
            if got != needs:
                like = "" if role in INDICES and name == "dtype" else f" as {ARGUMENT[lead]} has"
                what = f"{ARGUMENT[role]} has {name} {got}, needs {needs}{like}"
                raise ConvrefError(message(where, what))


def same_sizes(where: str, call: Call, role: str, got: Sizes, axes: Sequence[str]) -> None:
    """Check the shape of one array against the problem; the text names the axis."""
    for axis, have, need in zip(axes, got, call.problem.shape(role)):
        if have != need:
            what = f"{ARGUMENT[role]} has {axis}={have}, needs {need}"
            raise ConvrefError(message(where, what, call))


def mask_of(where: str, op: str, pass_: str, mask: Any) -> tuple[bool, ...]:
    """Return the bits of an output_mask, one for each result; none where the pass has no mask."""
    form = SIGNATURE[op, pass_]
    if not form.maskable:
        return ()
    bits, count = items(mask), len(form.results)
    if bits is None or len(bits) != count or not all(map(is_bool, bits)):
        what = f"output_mask is {shorten(repr(mask))}, needs {count} bools"
        raise ConvrefError(message(where, what))
    return tuple(map(bool, bits))


def flag(where: str, name: str, value: Any) -> bool:
    """Return a user's bool, or raise."""
    if not is_bool(value):
        raise ConvrefError(message(where, f"{name} is {shorten(repr(value))}, needs a bool"))
    return bool(value)


def is_bool(bit: Any) -> bool:
    """Return whether a user's value is True or False, as any of Python's and NumPy's kinds."""
    return isinstance(bit, (bool, int, np.bool_)) and bit in (True, False)


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
    return spec_of(call, role, fact._replace(shape=shape, strides=strides))


def spec_of(call: Call, role: str, fact: Facts) -> Spec:
    """Return the memory order and the expanded axes of an array with the axes of the formulas."""
    letters, shape, strides = axis_letters(call.problem, role), fact.shape, fact.strides
    expand = "".join(a for a, size, s in zip(letters, shape, strides) if s == 0 and size > 1)
    if 0 in shape:
        return Spec(fact.dtype, device=fact.device)
    real = [i for i, size in enumerate(shape) if size > 1 and strides[i] != 0]
    ranked = iter(sorted(real, key=lambda i: -abs(strides[i])))
    order = "".join(letters[next(ranked) if i in real else i] for i in range(len(shape)))
    order = "" if order == letters else order
    return Spec(fact.dtype, order=order, expand=expand, device=fact.device)
