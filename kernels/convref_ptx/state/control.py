"""Branches, exits and barriers of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import WARP, Instruction, refuse

if TYPE_CHECKING:
    from .machine import Machine

BARRIERS = 16  # barriers of a block
RUNNING, AT_BARRIER, AT_MBARRIER, EXITED = range(4)


@operation(r"bra(?:\.uni)?", diverges=True)
def _branch(m: Machine, i: Instruction, lanes: Array) -> None:
    m.pc[lanes] = m.program.labels[str(i.operands[0])]


@operation(r"brx\.idx(?:\.uni)?", diverges=True)
def _branch_by(m: Machine, i: Instruction, lanes: Array) -> None:
    which, table = i.operands
    to = np.array([m.program.labels[label] for label in m.program.tables[str(table)]])
    m.pc[lanes] = to[m.read(i, which, "u32", lanes)]


@operation(r"ret|exit", diverges=True)
def _end(m: Machine, i: Instruction, lanes: Array) -> None:
    m.state[lanes] = EXITED


@operation(r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?", diverges=True)
def _wait(m: Machine, i: Instruction, lanes: Array) -> None:
    """Wait at a barrier of the block for a number of threads, 0 for all."""
    which, count = (m.read(i, word, "u32", lanes) for word in (*i.operands, 0)[:2])
    refuse((which >= BARRIERS) | (count % WARP != 0), i.text, "no such barrier, or not whole warps")
    rows = m.rows(lanes)
    m.state[rows], m.at[rows], m.need[rows] = AT_BARRIER, which, count


@operation(
    r"(?:bar|barrier)(?:\.cta)?\.red\.(popc|and|or)(?:\.aligned)?\.(?:u32|pred)", diverges=True
)
def _reduce(m: Machine, i: Instruction, lanes: Array, name: str) -> None:
    """Wait at a barrier; its threads receive the number, "and" or "or" of their predicates."""
    _, which, *count, holds = i.operands
    value = m.read(i, holds.lstrip("!"), "pred", lanes) ^ (holds[0] == "!")
    _wait(m, i._replace(operands=(which, *count)), lanes)
    for key in np.unique(m.block[lanes] * BARRIERS + m.at[lanes]).tolist():
        mine = m.block[lanes] * BARRIERS + m.at[lanes] == key
        m.reduced.setdefault(key, []).append((i, name, lanes[mine], value[mine]))


def give_reduced(m: Machine, key: int) -> None:
    """Write the results of reductions at a barrier to the threads that are there."""
    if not (given := m.reduced.pop(key, [])):
        return
    values = np.concatenate([value for *_, value in given])
    for i, name, lanes, _ in given:
        found = {"popc": np.uint32(values.sum()), "and": values.all(), "or": values.any()}[name]
        m.write(i, i.operands[0], np.full(len(lanes), found), lanes)


@operation(r"(?:bar|barrier)(?:\.cta)?\.arrive(?:\.aligned)?")
def _arrive(m: Machine, i: Instruction, lanes: Array) -> None:
    """Arrive at a barrier of the block without waiting; a barrier of arrivals alone completes."""
    which, count = (m.read(i, word, "u32", lanes) for word in i.operands)
    wrong = (which >= BARRIERS) | (count % WARP != 0) | (count == 0)
    refuse(wrong, i.text, "no such barrier, or not whole warps")
    keys = m.block[lanes].astype(np.int64) * BARRIERS + which
    for key in np.unique(keys).tolist():
        mine = lanes[keys == key]
        warps = np.unique(m.warp[mine])
        need = int(count[keys == key][0])
        before, known, clock = m.arrivals.pop(key, (0, need, np.zeros_like(m.shared.clock[0])))
        arrived = before + len(mine)
        refuse(known != need, i.text, "threads disagree on how many a barrier needs")
        refuse(arrived > need, i.text, "more threads at a barrier than it needs")
        if arrived < need:
            m.arrivals[key] = arrived, need, np.maximum(clock, m.shared.clock[warps].max(0))
        m.shared.tick(warps)


@operation(r"membar\.(cta|gl|sys)")
@operation(r"fence\.(?:(?:sc|acq_rel|acquire|release)\.)?(cta|cluster|gpu|sys)")
def _fence(m: Machine, i: Instruction, lanes: Array, scope: str) -> None:
    """Order accesses of other blocks; within a block it takes a barrier."""
    if scope != "cta":
        m.memory.fence(lanes)


@operation(
    r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32|bar\.warp\.sync|nanosleep\.u32|prefetch\S*"
    r"|fence\.mbarrier_init\.release\.cluster|fence\.proxy\.async\.global"
    r"|griddepcontrol\.\w+|discard\S*|(?:applypriority|createpolicy)\S*"
)
def _nothing(m: Machine, i: Instruction, lanes: Array) -> None:
    """Do nothing: threads of a warp run together, and registers are not limited."""
