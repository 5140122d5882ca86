"""The interface of a kernel: one `KernelSpec`, at the end of the kernel's file.

`plan.kernels` lists all of them. The code that chooses, estimates, compiles and tests kernels reads
only these rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any, NamedTuple

from ..common.geometry import ITEMSIZE
from ..hopper import precompiled
from . import archs, cost
from .builder import Builder
from .cost import ESTIMATED, Rates, Work
from .launch import Copy, Launch
from .lines import Line
from .task import Task
from .tile import Tile


class Expectation(NamedTuple):
    """Required properties of the compiled kernel; `compile.expectations` checks them.

    Rules for all kernels are there: no spills, load widths, stages in shared memory.
    """

    products: int = 0  # tiles that are multiplied per stage; 0 without matrix instructions
    # Where wgmma reads from: "SS" or, with the left operand in registers, "RS".
    operands: str = "SS"
    in_flight: int = 1  # products in flight at the wait of the loop on sm_90
    why: str = ""  # the reason if `operands` or `in_flight` are weaker than by default
    # Configurations whose wgmma ptxas serialises: groups, shape, bits of an element, tile.
    serialised: tuple[str, ...] = ()
    # Whether the compiler makes the stages in shared memory, rather than the kernel itself.
    staged: bool = True
    across_groups: bool = False  # whether channels of several groups are loaded as one vector
    registers: int = 0  # most registers of a thread; 0 for no limit
    # Most instructions of the hot loop, for sm_90, sm_80 and gfx942: of narrower operands, f32,
    # tf32, tf32x3. Architectures that are left out have no limit.
    loop: tuple[tuple[int, ...], ...] = ()
    # Most instructions of the whole program, likewise: of a kernel that has no products.
    program: tuple[tuple[int, ...], ...] = ()
    vectors: bool = False  # whether a thread moves 16 bytes of a row where its length allows


NOTHING = Expectation()


@dataclass(frozen=True, eq=False)
class KernelSpec:
    name: str  # as in choices, measured rows and `explain`
    serves: tuple[str, ...]  # the `Task.kind`s that it computes
    refusal: Callable[[Task], str | None]  # returns why it does not compute a task, None if it does
    tiles: Callable[[Task], tuple[Tile, ...]]  # returns the configurations that serve a task
    add: Callable[[Task, Tile], None]  # adds the launches of a task on a tile to its builder
    kernels: tuple[Any, ...] = ()  # the device kernels; measured rows hold for their source alone
    # Returns the `Work` of a task on a tile, for the estimate of time.
    work: Callable[[Task, Tile], Work] | None = None
    # Returns the tile to use, of a kernel without `work`; the first by default.
    choose: Callable[[Task], Tile] | None = None
    share: float = 1.0  # of its time that counts for one result, if it computes several at once
    whole_call: bool = False  # whether it computes all results of a call at once
    dtypes: tuple[str, ...] = ("f16", "bf16", "f32")  # of the operands
    ops: tuple[str, ...] = ("conv",)  # without `whole_call`: those whose results it computes
    # Whether it is one in Gluon that no card has run: only a measured row chooses it, or a caller
    # that allows it.
    unproven: bool = False
    # The lines of its static tests, by name.
    lines: Mapping[str, Line] = field(default_factory=dict)
    expects: Expectation = NOTHING
    # Returns a digest of kernels that have no Python source.
    digest: Callable[[], str] | None = None

    @cached_property
    def source(self) -> str:
        """Return twelve digits that change with the kernels' source and with the assembler."""
        keys = sorted(kernel.cache_key for kernel in self.kernels)
        keys += [self.digest()] if self.digest else []
        keys += [precompiled.assembler_version(precompiled.assembler(archs.DEFAULT))]
        return sha256("".join(keys).encode()).hexdigest()[:12]

    def work_of(self, task: Task, tile: Tile) -> Work:
        assert self.work is not None, self.name
        copies, copied, ours = self.copies(task, tile)
        return self.work(task, tile)._replace(
            kernel=self.name, copies=copies, copied=copied, reordered=ours
        )

    def copies(self, task: Task, tile: Tile) -> tuple[int, float, float]:
        """Return how many tensors a task copies on a tile, and the bytes that this moves.

        The second number of bytes is of the copies that a kernel of ours does.
        """
        key = self.name, tile.bk, tile.run  # no copy depends on more of a tile
        if key not in task.copied:
            builder = Builder(task.builder.call, task.builder.tensors)
            self.add(replace(task, builder=builder), tile)
            steps, moved = [s for s in builder.steps if isinstance(s, Copy)], [0.0, 0.0]
            for step in steps:
                to = builder.buffers[step.target]
                ours = isinstance(builder.moved(step), Launch)
                moved[ours] += 2.0 * prod(to.shape) * ITEMSIZE[to.dtype]
            task.copied[key] = len(steps), *moved
        return task.copied[key]

    def us(self, task: Task, tile: Tile, rates: Rates = ESTIMATED) -> float:
        moved = task.builder.bytes_moved
        return cost.us(self.work_of(task, tile), moved, task.sms, rates)

    def best(self, task: Task) -> Tile:
        """Return the tile that is expected to be the fastest, the earlier one at a tie."""
        if self.work is not None:
            return min(self.tiles(task), key=lambda tile: self.us(task, tile))
        return self.choose(task) if self.choose else self.tiles(task)[0]
