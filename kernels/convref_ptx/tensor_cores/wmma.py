"""Products and moves of `wmma`, each as several of `mma`.

The manual leaves open which lane holds which element, so fragments are here those of `mma`, side by
side; registers beyond them, of float16 factors, repeat the first ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arithmetic.numbers import Array
from ..decode.opcodes import decoded, operation
from ..decode.program import WARP, Instruction, refuse
from ..memory.accesses import addresses, space_of
from ..state.exchange import whole_warps

if TYPE_CHECKING:
    from ..state.machine import Machine

ALIGN, STEP = 32, 16  # bytes, of the address and of the stride
_SHAPES = r"m(16|32)n(16|8)k16"


@operation(rf"wmma\.mma\.sync\.aligned\.(?:row|col)\.(?:row|col)\.{_SHAPES}\.f32\.()f32")
@operation(rf"wmma\.mma\.sync\.aligned\.(?:row|col)\.(?:row|col)\.{_SHAPES}\.f32\.(bf16)\.\3\.f32")
def _multiply(m: Machine, i: Instruction, lanes: Array, rows: str, columns: str, kind: str) -> None:
    to, a, b, c = i.operands
    factor = kind or "f16"
    step = decoded(f"mma.sync.aligned.m16n8k16.row.col.f32.{factor}.{factor}.f32")
    for n in range(int(rows) // 16 * int(columns) // 8):
        row, column = divmod(n, int(columns) // 8)
        sums = slice(4 * n, 4 * n + 4)
        given = to[sums], a[4 * row : 4 * row + 4], b[2 * column : 2 * column + 2], c[sums]
        step.function(m, i._replace(operands=given), lanes, *step.words)


def _elements(which: str, rows: int, columns: int) -> tuple[Array, Array]:
    """Return the row and the column of each element of a matrix (register, part of it, lane)."""
    lane = np.arange(WARP)
    group, within = lane // 4, lane % 4
    if which in "cd":
        block, n = np.indices((rows // 16 * columns // 8, 4)).reshape(2, -1, 1, 1)
        row, column = (16 * (block // (columns // 8)), 8 * (block % (columns // 8)))
        return row + n // 2 * 8 + group, column + 2 * within + n % 2
    register, part = np.indices((rows * columns // 64, 2)).reshape(2, -1, 2, 1)
    if which == "a":
        row = register // 4 * 16 + register % 2 * 8 + group
        return row, 2 * within + register % 4 // 2 * 8 + part
    return 2 * within + register % 2 * 8 + part, register // 2 * 8 + group


@operation(
    rf"wmma\.(?:(load)\.([abc])|(store)\.(d))\.sync\.aligned\.(row|col)\.{_SHAPES}"
    r"(?:\.(global|shared)(?:::cta)?)?\.(f16|bf16|f32)"
)
def _move(
    m: Machine, i: Instruction, lanes: Array, load: str, factor: str, store: str, sums: str,
    order: str, rows: str, columns: str, space: str | None, kind: str,
) -> None:  # fmt: skip
    which, warps = factor or sums, whole_warps(m, i, lanes)
    refuse((kind == "f32") != (which in "cd"), i.text, "an unsupported type")
    names, place, *stride = i.operands if load else (i.operands[1], i.operands[0], *i.operands[2:])
    sizes = {"a": (int(rows), 16), "b": (16, int(columns))}.get(which, (int(rows), int(columns)))
    row, column = np.broadcast_arrays(*_elements(which, *sizes))
    size = 4 if kind == "f32" else 2
    first = addresses(m, i, place, lanes).reshape(warps.shape)
    far = m.read(i, (*stride, sizes[order == "row"])[0], "s32", lanes).reshape(warps.shape)
    refuse((first != first[:, :1]) | (far != far[:, :1]), i.text, "lanes have different addresses")
    wrong = (first % ALIGN != 0) | (far * size % STEP != 0)
    refuse(wrong, i.text, f"an address is not a multiple of {ALIGN}, or a stride of {STEP} bytes")
    over, along = (row, column) if order == "row" else (column, row)
    at = first + size * (over[:, :, None] * far.astype(np.int64) + along[:, :, None])
    named, at = space_of(i, space, at.ravel())
    refuse(named not in ("global", "shared"), i.text, f"a matrix in {named} memory")
    at = at.reshape(len(row), -1, len(lanes))  # (register, part of it, lane)
    (_load if load else _store)(m, i, names, at, named, size, lanes)


def _load(
    m: Machine, i: Instruction, names: Any, at: Array, space: str, size: int, lanes: Array
) -> None:
    memory = m.shared if space == "shared" else m.memory
    for n, name in enumerate(names):
        parts = [memory.load(i.text, place, size, lanes) for place in at[n % len(at)]]
        value, mask = (
            [np.zeros_like(part[0]) if part[side] is None else part[side] for part in parts]
            for side in (0, 1)
        )
        words, undefined = (np.concatenate(x, 1).view(np.uint32)[:, 0] for x in (value, mask))
        m.write(i, name, words, lanes, undefined if undefined.any() else None)


def _store(
    m: Machine, i: Instruction, names: Any, at: Array, space: str, size: int, lanes: Array
) -> None:
    m.check_sure(i, lanes)
    memory = m.shared if space == "shared" else m.memory
    for name, (place,) in zip(names, at):
        memory.store(i.text, place, m.read(i, name, "b32", lanes), lanes)
