"""Instructions that exchange values between the threads of a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arithmetic import numbers
from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import WARP, Fault, Instruction, refuse
from ..memory.atomics import UPDATES

if TYPE_CHECKING:
    from ..machine import Machine


@operation(r"elect\.sync")
def _elect(m: Machine, i: Instruction, lanes: Array) -> None:
    to, members = i.operands
    refuse(members != -1, i.text, "only whole warps are supported")
    whole_warps(m, i, lanes)
    first = m.lane[lanes] == 0
    m.spread(i, to.split("|"), [np.zeros(len(lanes), np.uint32), first], lanes)


def whole_warps(m: Machine, i: Instruction, lanes: Array) -> Array:
    """Return lanes as (warp, 32); raise a Fault if threads of a warp are missing."""
    if lanes is not m.warps:  # those of the last call
        if len(lanes) % WARP or (m.lane[lanes].reshape(-1, WARP) != np.arange(WARP)).any():
            raise Fault(f"{i.text}: threads of a warp are missing")
        m.warps = lanes
    return lanes.reshape(-1, WARP)


_SHUFFLED: dict[str, Callable[[Array, Array], Array]] = {
    "bfly": np.bitwise_xor,
    "idx": lambda own, by: by,
    "up": np.subtract,
    "down": np.add,
}


@operation(r"shfl\.sync\.(bfly|idx|up|down)\.b32")
def _shuffle(m: Machine, i: Instruction, lanes: Array, mode: str) -> None:
    to, a, b, clamp, members = i.operands
    whole = m.read(i, clamp, "u32", lanes) == (0 if mode == "up" else WARP - 1)
    whole &= m.read(i, members, "s32", lanes) == -1
    refuse(~whole, i.text, "only whole warps are supported")
    warps, undefined = whole_warps(m, i, lanes), m.undefined_bits(a, lanes)
    by = m.read(i, b, "s32", lanes).reshape(warps.shape) & WARP - 1
    own = np.arange(WARP, dtype=np.int32)
    lane = _SHUFFLED[mode](own, by)
    inside = lane & ~(WARP - 1) == 0
    source = (np.arange(0, len(lanes), WARP)[:, None] + np.where(inside, lane, own)).ravel()
    moved, (name, _, predicate) = m.read(i, a, "b32", lanes, 1)[source], to.partition("|")
    m.write(i, name, moved, lanes, None if undefined is None else undefined[source])
    if predicate:
        m.write(i, predicate, inside.ravel(), lanes)


@operation(r"redux\.sync\.(add|min|max|and|or|xor)\.([bsu]32)")
def _reduce(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    to, a, members = i.operands
    _check_members(m, i, members, lanes)
    warps = whole_warps(m, i, lanes)
    values = m.read(i, a, kind, lanes).reshape(warps.shape)
    found = np.ufunc.reduce(UPDATES[name], values, axis=1, dtype=values.dtype)
    m.write(i, to, np.repeat(found, WARP).view(np.uint32), lanes)


@operation(r"vote\.sync\.(ballot|any|all|uni)\.(b32|pred)")
def _vote(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    to, a, members = i.operands
    _check_members(m, i, members, lanes)
    holds = m.read(i, a.lstrip("!"), "pred", lanes) ^ (a[0] == "!")
    holds = holds.reshape(whole_warps(m, i, lanes).shape)
    if name == "ballot":
        found = _mask(holds)
    elif name == "uni":
        found = holds.all(1) | ~holds.any(1)
    else:
        found = getattr(holds, name)(1)
    m.write(i, to, np.repeat(found, WARP).astype(numbers.TYPES[kind]), lanes)


def _check_members(m: Machine, i: Instruction, members: Any, lanes: Array) -> None:
    refuse(m.read(i, members, "s32", lanes) != -1, i.text, "only whole warps are supported")


def _mask(holds: Array) -> Array:
    """Return a bit for each of 32 truth values."""
    return (holds.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(-1, dtype=np.uint32)


@operation(r"match\.(any|all)\.sync\.(b32|b64)")
def _match(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    """Return the lanes of a warp that have the same value, or all if all have it, else none."""
    to, a, members = i.operands
    _check_members(m, i, members, lanes)
    values = m.read(i, a, kind, lanes).reshape(whole_warps(m, i, lanes).shape)
    equal = values[:, :, None] == values[:, None]
    if name == "any":
        m.write(i, to, _mask(equal).ravel(), lanes)
        return
    whole = np.repeat(equal.all((1, 2)), WARP)
    rows = [np.where(whole, np.uint32(0xFFFFFFFF), np.uint32(0)), whole]
    m.spread(i, names := to.split("|"), rows[: len(names)], lanes)


@operation(r"activemask\.b32")
def _active(m: Machine, i: Instruction, lanes: Array) -> None:
    found = np.zeros((m.warp[-1] + 1, WARP), bool)
    found[m.warp[lanes], m.lane[lanes]] = True
    m.write(i, i.operands[0], _mask(found)[m.warp[lanes]], lanes)
