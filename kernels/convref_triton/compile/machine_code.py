"""Instructions of machine code, the loops that they form, and the products in the hot loop."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple


class MachineInstruction(NamedTuple):
    """An instruction; `target` is the position of its branch target."""

    position: int
    opcode: str
    operands: str
    target: int | None = None
    falls: bool = True  # whether execution may continue at the next instruction


class Mma(NamedTuple):
    """A multiply-add instruction: name, multiply-adds, warps that execute it, operand type."""

    name: str
    products: int
    warps: int
    kind: str


Code = Sequence[MachineInstruction]
ReadMma = Callable[[MachineInstruction], Mma | None]
ReadAccess = Callable[[MachineInstruction], tuple[str, str] | None]


def count_accesses(
    code: Iterable[MachineInstruction], read: ReadAccess
) -> tuple[dict[str, int], dict[str, int]]:
    """Return (loads, stores) of global memory, counted by kind and bytes."""
    counts: dict[str, Counter[str]] = {"load": Counter(), "store": Counter()}
    for found in filter(None, map(read, code)):
        counts[found[0]][found[1]] += 1
    return dict(counts["load"]), dict(counts["store"])


def hot_loop(code: Code, read: ReadMma) -> tuple[list[MachineInstruction] | None, list[Mma]]:
    """Return (the innermost loop around the multiply-adds, the multiply-adds in it).

    Matrix instructions have precedence over FMAs. Of several innermost loops, the one with the most
    multiply-adds is returned. Without a loop, all multiply-adds of the code are.
    """
    found = [(i.position, product) for i in code if (product := read(i)) is not None]
    matrix = [entry for entry in found if entry[1].name != "FFMA"]
    found = matrix or found
    busy = {body: sum(at in body for at, _ in found) for body in loops(code)}
    inner = [
        body
        for body, count in busy.items()
        if count and not any(other < body and busy[other] for other in busy)
    ]
    if not inner:
        return None, [product for _, product in found]
    best = max(inner, key=lambda body: (busy[body], -len(body)))
    return [i for i in code if i.position in best], [p for at, p in found if at in best]


def matrix_loops(code: Code, read: ReadMma) -> tuple[int, ...]:
    """Return the lengths of the innermost loops around matrix instructions, in ascending order."""
    found = [i.position for i in code if (product := read(i)) and product.name != "FFMA"]
    around = [b for b in loops(code) if any(at in b for at in found)] if found else []
    return tuple(sorted(len(body) for body in around if not any(o < body for o in around)))


def loops(code: Code) -> set[frozenset[int]]:
    """Return the positions of the instructions in each natural loop.

    A loop is an edge back to an instruction that dominates the edge's source, and everything in
    between. Machine code is not laid out in execution order: a branch to a lower address need not
    close a loop.
    """
    before: dict[int, list[int]] = {i.position: [] for i in code}
    for here, following in zip(code, (*code[1:], None)):
        if here.falls and following is not None:
            before[following.position].append(here.position)
        if here.target in before:
            before[here.target].append(here.position)
    heads = {i.target for i in code if i.target in before}
    entry = code[0].position if code else 0
    bodies = ((head, _leading_to(end, head, before)) for head in heads for end in before[head])
    return {body for head, body in bodies if head == entry or entry not in body}


def _leading_to(end: int, head: int, before: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """Return `head` and everything that reaches `end` without passing `head`."""
    body, todo = {head}, [end]
    while todo:
        at = todo.pop()
        if at not in body:
            body.add(at)
            todo += before[at]
    return frozenset(body)
