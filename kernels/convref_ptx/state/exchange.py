"""Instructions that exchange values between the threads of a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arithmetic import numbers
from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import WARP, Fault, Instruction, refuse
from ..memory.atomics import UPDATES

if TYPE_CHECKING:
    from .machine import Machine


@operation(r"elect\.sync")
def _elect(m: Machine, i: Instruction, lanes: Array) -> None:
    to, word = i.operands
    masks = _members(m, i, word, lanes).masks
    first = masks & -masks
    own = np.uint32(1) << m.lane[lanes].astype(np.uint32)
    lane = np.log2(first).astype(np.uint32)
    m.spread(i, to.split("|"), [lane, own == first], lanes)


_WHOLE = np.uint32(0xFFFFFFFF)


def whole_warps(m: Machine, i: Instruction, lanes: Array) -> Array:
    """Return lanes as (warp, 32); raise a Fault if threads of a warp are missing."""
    if lanes is not m.warps:  # those of the last call
        if len(lanes) % WARP or (m.lane[lanes].reshape(-1, WARP) != np.arange(WARP)).any():
            raise Fault(f"{i.text}: threads of a warp are missing")
        m.warps = lanes
    return lanes.reshape(-1, WARP)


class _Members(NamedTuple):
    """The warps of some lanes: rows of lanes (warp, 32), -1 if there is none; then of each lane."""

    rows: Array
    warp: Array  # its row
    masks: Array  # the members that it names

    def of_warps(self, values: Array) -> Array:
        """Return for each lane the values of the lanes of its warp (lane, 32)."""
        return values[self.rows][self.warp]


def _members(m: Machine, i: Instruction, word: Any, lanes: Array) -> _Members:
    """Return the warps of lanes, which are all members of the masks, and only they."""
    masks = m.read(i, word, "u32", lanes)
    if len(lanes) % WARP == 0 and (masks == _WHOLE).all():
        rows = np.arange(len(lanes)).reshape(whole_warps(m, i, lanes).shape)
        return _Members(rows, np.arange(len(rows)).repeat(WARP), masks)
    rows = np.full((m.warp[-1] + 1, WARP), -1)
    rows[m.warp[lanes], m.lane[lanes]] = np.arange(len(lanes))
    found = _Members(rows, m.warp[lanes], masks)
    missing = masks & ~_mask(rows >= 0)[found.warp]
    refuse(missing != 0, i.text, "threads of its mask are missing")
    outside = masks >> m.lane[lanes].astype(np.uint32) & 1 == 0
    refuse(outside, i.text, "a thread is not in its mask")
    return found


_SHUFFLED: dict[str, Callable[[Array, Array], Array]] = {
    "bfly": np.bitwise_xor,
    "up": np.subtract,
    "down": np.add,
}


def _sources(mode: str, own: Array, by: Any, bounds: Any) -> tuple[Array, Array]:
    """Return the lanes that values come from, and whether those are in the segment."""
    by, last, fixed = by & WARP - 1, bounds & WARP - 1, bounds >> 8 & WARP - 1
    last = own & fixed | last & ~fixed
    lane = own & fixed | by & ~fixed if mode == "idx" else _SHUFFLED[mode](own, by)
    inside = lane >= last if mode == "up" else lane <= last
    return np.where(inside, lane, own), inside


def _shuffle_alike(m: Machine, i: Instruction, lanes: Array, lane: Array, inside: Array) -> None:
    """Move values between the lanes of all warps in the same way."""
    to, a, *_ = i.operands
    given, undefined = m.read(i, a, "b32", lanes, 1), m.undefined_bits(a, lanes)
    moved, unknown = (
        None if words is None else words.reshape(-1, WARP)[:, lane].ravel()
        for words in (given, undefined)
    )
    name, _, predicate = to.partition("|")
    m.write(i, name, moved, lanes, unknown)
    if predicate:
        m.write(i, predicate, np.resize(inside, len(lanes)), lanes)


@operation(r"shfl\.sync\.(bfly|idx|up|down)\.b32")
def _shuffle(m: Machine, i: Instruction, lanes: Array, mode: str) -> None:
    """Move values between the lanes of a segment; from outside of it comes the own value."""
    to, a, b, clamp, word = i.operands
    alike = isinstance(b, int) and isinstance(clamp, int) and word in (-1, 0xFFFFFFFF)
    if alike and m.all_warps_whole and lanes is m.all:
        _shuffle_alike(m, i, lanes, *_sources(mode, np.arange(WARP), b, clamp))
        return
    members, undefined = _members(m, i, word, lanes), m.undefined_bits(a, lanes)
    by, bounds = (m.read(i, each, "s32", lanes) for each in (b, clamp))
    lane, inside = _sources(mode, m.lane[lanes], by, bounds)
    source = members.rows[members.warp, lane]
    moved, (name, _, predicate) = m.read(i, a, "b32", lanes, 1)[source], to.partition("|")
    unknown = None if undefined is None else undefined[source]
    if (missing := members.masks >> lane.astype(np.uint32) & 1 == 0).any():  # from no member
        before = np.zeros_like(moved) if unknown is None else unknown
        unknown = np.where(missing, _WHOLE, before)
    m.write(i, name, moved, lanes, unknown)
    if predicate:
        m.write(i, predicate, inside, lanes)


@operation(r"redux\.sync\.(add|min|max|and|or|xor)\.([bsu]32)")
def _reduce(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    to, a, word = i.operands
    given, members = m.read(i, a, kind, lanes), _members(m, i, word, lanes)
    among = members.masks[:, None] >> np.arange(WARP, dtype=np.uint32) & 1 == 1
    neutral = 0 if name in ("add", "xor") else given[:, None]
    values = np.where(among, members.of_warps(given), neutral)
    found = np.ufunc.reduce(UPDATES[name], values, axis=1, dtype=given.dtype)
    m.write(i, to, found.view(np.uint32), lanes)


@operation(r"vote\.sync\.(ballot|any|all|uni)\.(b32|pred)")
def _vote(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    to, a, word = i.operands
    holds = m.read(i, a.lstrip("!"), "pred", lanes) ^ (a[0] == "!")
    members = _members(m, i, word, lanes)
    ballot = _mask(holds[members.rows])[members.warp] & members.masks
    all_, none = ballot == members.masks, ballot == 0
    found = {"ballot": ballot, "any": ~none, "all": all_, "uni": all_ | none}[name]
    m.write(i, to, found.astype(numbers.TYPES[kind]), lanes)


def _mask(holds: Array) -> Array:
    """Return a bit for each of 32 truth values."""
    return (holds.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(-1, dtype=np.uint32)


@operation(r"match\.(any|all)\.sync\.(b32|b64)")
def _match(m: Machine, i: Instruction, lanes: Array, name: str, kind: str) -> None:
    """Return the members of a mask that have the same value, or all if all have it, else none."""
    to, a, word = i.operands
    given, members = m.read(i, a, kind, lanes), _members(m, i, word, lanes)
    equal = _mask(members.of_warps(given) == given[:, None]) & members.masks
    if name == "any":
        m.write(i, to, equal, lanes)
        return
    agree = equal == members.masks
    rows = [np.where(agree, members.masks, 0), agree]
    m.spread(i, names := to.split("|"), rows[: len(names)], lanes)


@operation(r"activemask\.b32")
def _active(m: Machine, i: Instruction, lanes: Array) -> None:
    found = np.zeros((m.warp[-1] + 1, WARP), bool)
    found[m.warp[lanes], m.lane[lanes]] = True
    m.write(i, i.operands[0], _mask(found)[m.warp[lanes]], lanes)
