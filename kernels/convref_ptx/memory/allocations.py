"""Operands in global memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..arithmetic.numbers import Array

BASE = 1 << 32  # address of the first allocation
GAP = 4096  # unmapped bytes between two allocations


@dataclass(frozen=True, eq=False)
class Allocation:
    """An array in global memory; a writable one receives the results after a run."""

    array: Array  # contiguous
    writable: bool = False
    offset: int = 0  # bytes from its first element to the pointer
    skew: int = 0  # bytes by which the address of its first element misses a multiple of 4096
    name: str = ""  # for messages
    undefined: Array | None = None  # 0xFF for each undefined byte, updated by a launch; or None
    gaps: Array | None = None  # for each byte, whether it belongs to no element; None if none does


@dataclass(frozen=True)
class Pointer:
    """An address in an allocation that several arguments share."""

    allocation: Allocation
    offset: int  # bytes from its first element
