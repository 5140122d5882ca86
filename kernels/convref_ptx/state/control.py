"""Branches, exits and barriers of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.opcodes import operation
from ..decode.program import WARP, Instruction, refuse

if TYPE_CHECKING:
    from ..machine import Machine

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
    m.state[lanes], m.at[lanes], m.need[lanes] = AT_BARRIER, which, count


@operation(
    r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32|bar\.warp\.sync|nanosleep\.u32|prefetch\S*"
    r"|griddepcontrol\.\w+|discard\S*|(?:applypriority|createpolicy)\S*"
)
def _nothing(m: Machine, i: Instruction, lanes: Array) -> None:
    """Do nothing: threads of a warp run together, and registers are not limited."""
