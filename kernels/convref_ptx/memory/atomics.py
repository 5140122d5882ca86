"""Atomic operations, one lane after another in random order.

After the PTX manual, "Parallel Synchronization and Communication Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arithmetic import numbers
from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import Instruction, refuse
from .accesses import addresses, space_of, vector

if TYPE_CHECKING:
    from ..state.machine import Machine

_ORDERS = r"relaxed|acquire|release|acq_rel|cta|gpu|sys|global|shared(?:::cta)?"
_KINDS = r"[bsu](?:32|64)|b16|f32|f64|f16|bf16|f16x2|bf16x2"
UPDATES: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "inc": lambda old, top: np.where(old >= top, 0, old + 1).astype(old.dtype),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - 1).astype(old.dtype),
    "cas": lambda old, wanted, new: np.where(old == wanted, new, old),
}


def _updated(name: str, kind: str, *words: Array) -> Array:
    """Return patterns (lane, element) after an operation on the old ones and the operands."""
    if numbers.width(kind) > 16:
        found = UPDATES[name](*(numbers.as_type(word, kind) for word in words))
        return found.view(words[0].dtype)
    if name in ("cas", "exch"):
        return np.asarray(UPDATES[name](*words))
    wide = [numbers.as_type(word, kind).astype(np.float32) for word in words]
    return numbers.rounded(UPDATES[name](*wide), kind)


@operation(
    rf"(atom|red)((?:\.(?:{_ORDERS}))*)\.({'|'.join(UPDATES)})((?:\.(?:{_ORDERS}))*)"
    rf"(?:\.noftz)?(?:\.v([248]))?\.({_KINDS})"
)
def _atomic(
    m: Machine, i: Instruction, lanes: Array,
    form: str, before: str, name: str, after: str, count: str | None, kind: str,
) -> None:  # fmt: skip
    to, place, *given = i.operands if form == "atom" else ("_", *i.operands)
    words, parts = set(f"{before}{after}".split(".")), 2 if kind.endswith("x2") else 1
    base, outputs = kind.removesuffix("x2"), vector(i, to, count if form == "atom" else None)
    bits = f"u{numbers.width(base) // 8}"
    operands = []
    for operand in given[: 1 + (name == "cas")]:
        read = [
            m.read(i, w, f"b{parts * numbers.width(base)}", lanes)
            for w in vector(i, operand, count)
        ]
        operands.append(np.stack(read, -1).view(bits))
    m.check_sure(i, lanes)
    size = operands[0].shape[1] * operands[0].itemsize
    named = next((space for space in ("shared", "global") if space in before + after), None)
    space, address = space_of(i, named, addresses(m, i, place, lanes))
    refuse(space == "local", i.text, "atomic operations on local memory are not supported")
    memory = m.shared if space == "shared" else m.memory
    order = m.rng.permutation(len(lanes))
    at = memory.update(i.text, address, size, lanes)
    if memory is m.memory and base[-3:] not in ("f32", "f64", "f16"):  # float sums are not flags
        cells, orders = (
            at[order] // m.memory.grain,
            ("release" not in words, "acquire" not in words),
        )
        m.memory.synchronize(cells, lanes[order], *orders, "relaxed" in words)
    lines, old = memory.bytes.reshape(-1, size), np.empty_like(operands[0])
    while len(order):
        _, first = np.unique(at[order], return_index=True)
        now, line = order[first], at[order[first]] // size
        old[now] = lines[line].view(bits)
        new = _updated(name, base, old[now], *(operand[now] for operand in operands))
        lines[line] = np.ascontiguousarray(new).view(np.uint8)
        order = np.delete(order, first)
    if to != "_":
        rows = old.view(f"u{max(1, parts) * old.itemsize}").T
        m.spread(i, outputs, [np.ascontiguousarray(row) for row in rows], lanes)
