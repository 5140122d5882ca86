"""Which kernels compute a call, on which tiles: a pure function of the call and of its strides."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from convref.case import Call
from convref.problem import BASE_ROLE

from . import gather, table
from .builder import ITEMSIZE, Builder, channels_last, is_channels_last
from .geometry import LIMIT, Geometry, Tensor, geometry
from .launch import Plan


def plan(call: Call, tensors: Mapping[str, Tensor]) -> Plan:
    """Return what computes `call` on operands that lie as `tensors` say.

    Parameters
    ----------
    call : Call
        One that the backend supports.
    tensors : mapping of str to Tensor
        The operands that are present, by role.
    """
    builder = Builder(call, tensors)
    shape = geometry(call.conv)
    for role in call.wanted:
        if prod(call.problem.shape(role)):
            _RESULT[BASE_ROLE[role]](builder, shape, role)
        else:
            result(builder, role)
    return builder.plan()


def result(builder: Builder, role: str) -> Tensor:
    """Return a new result: channels last if the operands of its kind that are read lie so."""
    call, shape = builder.call, builder.call.problem.shape(role)
    pixels = [tensor for name, tensor in builder.tensors.items() if BASE_ROLE[name] in "xy"]
    like = [builder.tensors[pair[0]] for pair in call.terms(role).products] or pixels
    last = len(shape) > 2 and all(map(is_channels_last, like))
    order = channels_last(len(shape) - 2) if last else tuple(range(len(shape)))
    return builder.new(role, shape, order, call.dtype)


def sums(builder: Builder, shape: Geometry, role: str) -> None:
    """Plan a result that has pixels: y, dx, their tangents and second cotangents."""
    call, terms = builder.call, builder.call.terms(role)
    scatter = (BASE_ROLE[role] == "y") == call.conv.transposed
    xs, ws = (
        same_strides(builder, [builder.tensors[pair[side]] for pair in terms.products])
        for side in (0, 1)
    )
    y = result(builder, role)
    bias = contiguous(builder, terms.added[0]) if terms.added else None
    written = shape.big if scatter else shape.small
    classes = shape.stride if scatter else (1, 1, 1)
    rows = shape.n * prod(-(-size // s) for size, s in zip(written, classes))
    columns = shape.big_channels if scatter else shape.small_channels
    copies = shape.groups * prod(classes)
    tile = table.choose("gather", call.dtype, call.math, rows, columns, copies)
    epilogue = gather.Epilogue(bias=bias)
    made = gather.launch(shape, tuple(zip(xs, ws)), y, scatter, tile, call.math, epilogue)
    builder.steps.append(made)
    builder.reasons.append(f"{role}: {'scatter' if scatter else 'gather'} {tile}")


def same_strides(builder: Builder, tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors as they are if their strides agree, else copies of one order."""
    if len({tensor.steps for tensor in tensors}) < 2:
        return tensors
    return [builder.copied(tensor, channels_last(len(tensor.shape) - 2)) for tensor in tensors]


def contiguous(builder: Builder, role: str) -> Tensor:
    """Return a vector whose elements lie side by side."""
    vector = builder.tensors[role]
    return (
        vector if vector.strides == (1,) or vector.shape == (1,) else builder.copied(vector, (0,))
    )


_RESULT = {"y": sums, "x": sums}


MATHS = {"f32": ("ieee", "tf32", "tf32x3")}
MOST = 65_535  # programs along y and z of a grid


def refusal(call: Call) -> str | None:
    """Return why no kernel computes `call`, None if one does."""
    if call.op != "conv":
        return f"no kernel for {call.op}"
    if call.dtype not in ITEMSIZE:
        return f"{call.dtype}: kernels take {', '.join(ITEMSIZE)}"
    if call.math not in MATHS.get(call.dtype, ("ieee",)):
        return f"math={call.math} is for f32"
    for role in call.wanted:
        if BASE_ROLE[role] not in _RESULT:
            return f"no kernel for {role}"
    shape = geometry(call.conv)
    if shape.n * prod(shape.big) >= LIMIT or shape.n * prod(shape.small) >= LIMIT:
        return "2**31 pixels or more"
    if shape.groups > MOST or prod(shape.stride) > MOST:
        return f"more than {MOST} groups or classes of pixels"
    return None
