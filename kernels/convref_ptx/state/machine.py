"""Execution: threads at one instruction run together, unordered warps run in random order."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..arithmetic import conversions, numbers  # noqa: F401
from ..arithmetic.numbers import Array
from ..asynchronous.copies import Box, Groups
from ..asynchronous.maps import TensorMap
from ..asynchronous.mbarriers import Barrier
from ..decode import opcodes
from ..decode.program import WARP, Fault, Instruction, PtxProgram, refuse
from ..memory.global_memory import GlobalMemory
from ..memory.shared_memory import SharedMemory
from ..memory.thread_memory import ConstantMemory, LocalMemory
from ..tensor_cores import matrices, wmma  # noqa: F401
from ..watch import deadlocks
from ..watch.races import Access, Watch
from . import control, exchange, externs  # noqa: F401
from .control import AT_BARRIER, AT_MBARRIER, BARRIERS, EXITED, RUNNING

LANES = 32768  # threads of one vector, unless a block has more
OF_PRODUCTS = 8192  # the same of kernels that multiply matrices, so that those stay in the cache;
# but not of those with mbarriers, of which half of the warps at most run at a time
PATIENCE = 1000  # branches and waits after which other threads may be next
MAX_STEPS = 1_000_000  # branches and waits after which a run counts as endless


class Lanes(NamedTuple):
    """Some lanes, with what is looked up for each register."""

    lanes: Array
    warps: Array | None  # those that they are, None if lanes of some are missing
    bits: int  # a bit for each lane


class Machine:
    """Some blocks of one launch or several, each with `room` bytes of shared memory.

    The values of a parameter are rows of bytes, a row for each launch, or one for all of them; of
    each launch there are the tensor maps by their addresses.
    """

    def __init__(
        self, program: PtxProgram, memory: GlobalMemory, values: list[Array],
        maps: list[dict[int, TensorMap]], seed: int, late: Sequence[bool], room: int,
        tensor_cores: str, watch: Watch | None = None,
    ) -> None:  # fmt: skip
        self.program, self.memory, self.values, self.maps = program, memory, values, maps
        self.rng, self.late, self.room = np.random.default_rng(seed), np.array(late), room
        self.tensor_cores = tensor_cores
        self.code = [(opcodes.decoded(i.op), i) for i in program.code]
        self.fragments = matrices.fragments(program.code)
        self.constants: dict[tuple[str, str, int], Array] = {}  # by text, type and length
        self.watch, self.constant = watch, ConstantMemory(bytes(program.constants))
        memory.has_fences = any(i.op.startswith(("fence", "membar")) for i in program.code)

    def launch(
        self,
        grids: Sequence[Sequence[int]],
        threads: Sequence[int],
        share: tuple[int, int] = (0, 1),
    ) -> None:
        """Run blocks of each grid in random order, as many at a time as are one vector.

        Blocks of one grid, or of neighbouring ones, do the same steps more often than others.

        A share (n, N) is of N processes the n-th one's.
        """
        self.grids, counts = grids, list(map(prod, grids))
        self.first = np.cumsum([0, *counts])  # block of each launch
        order = self.rng.permutation(sum(counts))
        order = order[self._launch(order).argsort(kind="stable")]
        heads = {i.op.partition(".")[0] for i in self.program.code}
        multiplies = "mbarrier" not in heads and any("mma" in head for head in heads)
        step = max(1, (OF_PRODUCTS if multiplies else LANES) // prod(threads))
        step = min(step, -(-len(order) // share[1]))
        for i in range(step * share[0], len(order), step * share[1]):
            self.begin(order[i : i + step], threads)
            self._watch(i)
            self.run()

    def _launch(self, blocks: Array) -> Array:
        """Return the launch of each of some blocks."""
        found: Array = self.first.searchsorted(blocks, "right") - 1
        return found

    def is_late(self, lanes: Array) -> Array:
        """Return, for each lane, whether its launch does asynchronous work as late as possible."""
        return self.late[self.memory.launch[lanes]]

    def _watch(self, batch: int) -> None:
        """Let the memory of a conflict note the accesses to its cell."""
        self.memory.batch = self.shared.batch = batch
        if (watch := self.watch) is None:
            return

        def note(text: str, cells: Array, lanes: Array, writes: bool) -> None:
            reported = self.memory.cause is not None and not watch.conflict.shared
            for lane in () if reported else lanes[watch.hits(cells)].tolist():
                where = next((i.where for i in self.program.code if i.text == text), "")
                by = int(self.memory.block[lane]), int(self.shared.columns[lane])
                place = self.location(where, lane)
                watch.seen.append(Access((batch, lane), writes, *by, text, place))

        if not watch.conflict.shared:
            self.memory.note = note
        elif watch.conflict.thread[0] == batch:
            self.shared.note = note

    def begin(self, blocks: Array, threads: Sequence[int]) -> None:
        size, program = prod(threads), self.program
        self.count = len(blocks) * size
        self.all = np.arange(self.count)
        self.warps: Array | None = None  # lanes that are whole warps
        self.block = np.repeat(np.arange(len(blocks)), size)  # of each lane, among these blocks
        within = np.tile(np.arange(size), len(blocks))
        warps = -(-size // WARP)
        self.warp, self.lane = self.block * warps + within // WARP, within % WARP
        self.all_warps_whole = size % WARP == 0
        # Those that run, and the last other ones.
        self._running = self._other = self._of_lanes(self.all)
        self.pc, self.state = np.zeros(self.count, np.int64), np.zeros(self.count, np.int8)
        # Of barriers of blocks: threads that arrived without waiting, how many it needs, clocks.
        self.arrivals: dict[int, tuple[int, int, Array]] = {}
        # Of barriers of blocks: reductions, their threads and predicates.
        self.reduced: dict[int, list[tuple[Instruction, str, Array, Array]]] = {}
        # Of waiting threads: the barrier, and the threads that it needs.
        self.at, self.need = np.zeros((2, self.count), np.int64)
        self.shared = SharedMemory(self.room, self.block, self.warp, program.grains["shared"])
        launch = self._launch(blocks)
        self.memory.begin(np.repeat(blocks, size), np.repeat(launch, size), self.shared)
        self.local = LocalMemory(self.count, program.sizes["local"])
        # Threads that have branched on a value read in a race: they may not write.
        self.unsure = np.zeros(self.count, bool)
        self.carry = np.zeros(self.count, bool)  # of the instructions with ".cc"
        # Bits of registers, and masks of their undefined bits with the lanes that have some, a bit
        # each. No array is changed in place.
        every = {
            bits: self._constant(-1, "pred" if bits == 1 else f"b{bits}") for bits in numbers.BITS
        }
        self.registers = {name: every[bits] for name, bits in program.registers.items()}
        everywhere = self._running.bits
        self.undefined = {name: (mask, everywhere) for name, mask in self.registers.items()}
        self.fixed = self._special(within, threads)
        self.groups = {kind: Groups(self) for kind in ("cp.async", "cp.async.bulk", "wgmma")}
        self.barriers: dict[int, Barrier] = {}  # by their offset
        self.loads: list[tuple[Box, Barrier]] = []  # in flight
        # Registers of wgmma by warp: used by work in flight; not ordered by a wgmma.fence yet.
        self.in_flight = np.zeros((len(self.fragments), len(blocks) * warps), bool)
        self.tiles: dict[Any, tuple[Any, Array]] = {}  # fragments as matrices, by their registers
        self.unfenced = np.ones_like(self.in_flight)
        self._steps, self._resumed, self._retried = 0, 0, dict[int, tuple[int, bytes]]()

    def _special(self, within: Array, threads: Any) -> dict[Any, Array]:
        """Return the special registers by name."""
        found, launch = {"%laneid": self.lane, "%warpid": within // WARP}, self.memory.launch
        block, grids = self.memory.block - self.first[launch], np.array(self.grids)[launch]
        for name, index, sizes in (("tid", within, threads), ("ctaid", block, grids.T)):
            for axis, size in zip("xyz", sizes):
                found[f"%{name}.{axis}"], found[f"%n{name}.{axis}"] = index % size, 0 * index + size
                index = index // size
        own = np.uint32(1) << self.lane.astype(np.uint32)
        found |= {"%lanemask_eq": own, "%lanemask_lt": own - 1, "%lanemask_le": own - 1 | own,
                  "%lanemask_ge": ~(own - 1), "%lanemask_gt": ~(own - 1 | own)}  # fmt: skip
        words = {name: value.astype(np.uint32) for name, value in found.items()}
        at = self.memory.variables.items()
        return {**words, **{name: np.uint64(where)[launch] for name, where in at}}

    def run(self) -> None:
        """Run all threads until they exit.

        Races are found in any order. But with mbarriers the paths of warps depend on the order, so
        a random half of the warps, or of the groups of four, runs first.
        """
        with np.errstate(all="ignore"):
            while (self.state != EXITED).any():
                chance, each = 0.5 if self.barriers else 1.0, self.rng.choice((1, 4))
                first = (self.rng.random(self.warp[-1] // each + 1) < chance).repeat(each)
                for group in (first[self.warp], ~first[self.warp]):
                    self._advance(group)
                self._release()
        begun = self.groups["cp.async.bulk"].begun + self.groups["wgmma"].begun
        for text in [*(work.text for work, *_ in begun), *(box.text for box, _ in self.loads)]:
            raise Fault(self.program.message_at(text, "the kernel exits without waiting for it"))

    def _advance(self, group: Array) -> None:
        """Run the threads of a group until each waits or has exited, lowest instruction first.

        Threads may wait in a loop for others: after a while any instruction may be next, and then
        the other group and the threads at full barriers go on.
        """
        begin = self._steps
        while len(active := np.flatnonzero(group & (self.state == RUNNING))):
            if (steps := self._steps - begin) > 2 * PATIENCE:
                return
            lanes = self._lanes_to_run(
                self.all if len(active) == self.count else active, steps > PATIENCE
            )
            self._run_block(lanes, int(self.pc[lanes[0]]), len(lanes) == len(active))

    def _lanes_to_run(self, active: Array, any_next: bool) -> Array:
        """Return the threads at the lowest, or any, instruction that needs no more of their warps.

        A convergent instruction waits for whole warps.
        """
        at = self.pc[active]
        least = at.min()
        if at.max() == least:
            return active
        if not any_next and not self.code[least][0].convergent:
            return active[at == least]
        found = numbers.distinct(at)
        for pc in self.rng.permutation(found) if any_next else found:
            lanes = active[at == pc]
            if self.code[pc][0].convergent:
                lanes = lanes[self._in_whole_warps(lanes)]
            if len(lanes):
                return lanes
        return active[at == least]

    def _in_whole_warps(self, lanes: Array) -> Array:
        """Return for each of some threads whether its whole warp is among them."""
        warps = self.warp[lanes]
        alive = np.bincount(self.warp[self.state != EXITED], minlength=warps.max() + 1)
        return np.bincount(warps)[warps] == alive[warps]

    def _run_block(self, lanes: Array, pc: int, alone: bool) -> None:
        """Run lanes from one instruction to where they may diverge or join others.

        If all running lanes are among them (`alone`), they stop only where they diverge.
        """
        begin, leaders, whole = pc, self.program.leaders, lanes is self.all
        last, rows = self._steps + PATIENCE, self.rows(lanes)
        self._running = self.known(lanes)
        while alone or pc == begin or pc not in leaders:
            refuse(pc == len(self.code), self.program.name, "runs past its end")
            (function, words, diverges, convergent), i = self.code[pc]
            if convergent and pc != begin and not whole:
                whole = bool(self._in_whole_warps(lanes).all())
                if not whole:
                    break
            pc += 1
            if diverges:
                self.pc[rows] = pc
                self._steps += 1
                refuse(self._steps > MAX_STEPS, self.program.name, "does not end")
            chosen = lanes
            try:
                if i.predicate:
                    chosen = self._lanes_with_predicate(i, lanes)
                if len(chosen):
                    function(self, i, chosen, *words)
            except Fault as fault:
                raise self._located(fault, i, chosen) from fault.__cause__
            if diverges:
                at = self.pc[rows]
                pc = int(at[0])
                stays = alone and self._steps < last
                if not stays or (at != pc).any() or self.state[rows].any():
                    return
        self.pc[rows] = pc

    def _located(self, fault: Fault, i: Instruction, lanes: Array) -> Fault:
        """Return a fault of an instruction with its place in the source and its first thread."""
        row, count = fault.row
        lane = int(lanes[row]) if count == len(lanes) else int(lanes[0]) if len(lanes) == 1 else -1
        words = self.location(i.where, lane)
        found = Fault(f"{fault} ({words})" if words else str(fault))
        found.conflict = fault.conflict
        return found

    def location(self, where: str, lane: int) -> str:
        """Return a line of the source with a thread, which is unknown if negative."""
        words = [where] * bool(where)
        if lane >= 0:
            words.append(f"program {self._program(lane)}")
            words.append(f"warp {self.warp[lane] % self.shared.width}, lane {self.lane[lane]}")
        return ", ".join(words)

    def _program(self, lane: int) -> tuple[int, ...]:
        """Return the block of a thread along x, y and z."""
        launch = int(self.memory.launch[lane])
        block = int(self.memory.block[lane]) - int(self.first[launch])
        return tuple(map(int, np.unravel_index(block, self.grids[launch][::-1])[::-1]))

    def _lanes_with_predicate(self, i: Instruction, lanes: Array) -> Array:
        """Return the lanes for which the predicate of an instruction holds."""
        lax = -1
        if i.op.startswith("bra") and (self.memory.cause or self.memory.raced_before):
            undefined = self.undefined_bits(i.predicate, lanes)
            if undefined is not None:
                self.unsure[lanes[undefined]], lax = True, 1
        holds = self.read(i, i.predicate, "pred", lanes, lax) != i.negated
        if holds.all():
            return lanes
        chosen = lanes[holds]
        if i.op == "bra.uni":  # warps may go different ways
            parted = np.isin(self.warp[chosen], self.warp[lanes[~holds]])
            refuse(parted, i.text, "threads disagree")
        return chosen

    def _release(self) -> None:
        """Resume threads at barriers that are full and mbarriers whose phase is complete."""
        if self._all_wait():
            self.shared.synchronize(self.shared.every, self.shared.every[:: self.shared.width])
            self._resume(self.all)
            return
        waiting = np.flatnonzero(self.state == AT_BARRIER)
        key = self.block[waiting] * BARRIERS + self.at[waiting]
        alive = np.bincount(self.block[self.state != EXITED], minlength=int(self.block[-1]) + 1)
        need = np.where(self.need[waiting], self.need[waiting], alive[self.block[waiting]])
        there = np.bincount(key, minlength=1)[key]
        for n, (count, needs, _) in self.arrivals.items():
            there = there + count * (key == n)
            refuse((key == n) & (need != needs), self.program.name, "threads disagree at a barrier")
        refuse(there > need, self.program.name, "more threads at a barrier than it needs")
        if len(full := waiting[there == need]):
            self._synchronize(full, key[there == need])
        blocked = np.flatnonzero(self.state == AT_MBARRIER)
        for place in numbers.distinct(self.at[blocked]):
            lanes = blocked[self.at[blocked] == place]
            self._resume(lanes[self.barriers[int(place)].phase_is_over(self.need[lanes])])
        running = np.bincount(self.block[self.state == RUNNING], minlength=len(alive))
        for block in np.flatnonzero((alive > 0) & (running == 0)):
            self._progress(int(block))

    def _all_wait(self) -> bool:
        """Return whether all threads wait at one barrier of their block that nothing else uses."""
        size = self.count // (int(self.block[-1]) + 1)
        alike = (self.state, self.at, self.pc, self.need)
        return (
            self.state[0] == AT_BARRIER
            and self.need[0] in (0, size)
            and not self.arrivals
            and not self.reduced
            and all(bool((x == x[0]).all()) for x in alike)
        )

    def _synchronize(self, lanes: Array, key: Array) -> None:
        warps = numbers.distinct(key * self.count + self.warp[lanes])
        positions = numbers.distinct(self.warp[lanes] * len(self.code) + self.pc[lanes])
        refuse(
            len(positions) != len(warps), self.program.name, "a warp waits at different barriers"
        )
        starts = np.flatnonzero(np.diff(warps // self.count, prepend=-1))
        for n in numbers.distinct(key).tolist():
            control.give_reduced(self, n)
            if arrived := self.arrivals.pop(n, None):
                mine = warps[warps // self.count == n] % self.count
                self.shared.clock[mine] = np.maximum(self.shared.clock[mine], arrived[2])
        self.shared.synchronize(warps % self.count, starts)
        self._resume(lanes)

    def _resume(self, lanes: Array) -> None:
        self.state[self.rows(lanes)] = RUNNING
        self._resumed += len(lanes)

    def _progress(self, block: int) -> None:
        """Unblock a block whose threads all wait: complete a copy, else let waits return false."""
        lanes = np.flatnonzero((self.block == block) & (self.state != EXITED))
        blocked = lanes[self.state[lanes] == AT_MBARRIER]
        places = set(self.at[blocked].tolist())
        awaited = [n for n, (_, to) in enumerate(self.loads) if to.place in places]
        if awaited:
            box, barrier = self.loads.pop(awaited[self.rng.integers(len(awaited))])
            box.finish(self, barrier)
            return
        positions = self._resumed, self.pc[lanes].tobytes()
        if not len(blocked) or self._retried.get(block) == positions:
            waiting = deadlocks.described(self, lanes)
            raise Fault(f"{self.program.name}: deadlock, all threads wait; {waiting}")
        self._retried[block] = positions
        self.state[blocked] = RUNNING

    def read(self, i: Instruction, operand: Any, kind: str, lanes: Array, lax: int = -1) -> Array:
        """Return an operand as a type; undefined bits read as `lax`, 0 or 1; with -1 they fault."""
        held = self.registers.get(operand)
        if held is None:
            if (held := self.fixed.get(operand)) is None:
                refuse(isinstance(operand, str), i.text, f"{operand} is not declared")
                held = self._constant(operand, kind)
        elif operand in self.fragments:
            self._check_not_in_flight(i, operand, lanes)
        pattern = self.in_lanes(held, lanes)
        if lax < 1 and (undefined := self.undefined_bits(operand, lanes)) is not None:
            refuse(lax < 0, i.text, f"{operand} has undefined bits")
            pattern = pattern & ~undefined
        bits = numbers.BITS[numbers.width(kind)]
        if held.dtype != bits:
            chopped = i.op.startswith("cvt.") and held.itemsize > bits.itemsize
            refuse(not chopped, i.text, f"{operand} is not {numbers.width(kind)} bits wide")
            pattern = pattern.astype(bits)
        return numbers.as_type(pattern, kind)

    def _check_not_in_flight(self, i: Instruction, name: str, lanes: Array) -> None:
        used = self.in_flight[self.fragments[name]]
        wrong = used.any() and used[self.warp[lanes]]
        refuse(wrong, i.text, f"{name} is in use by work that has not been waited for")

    def _constant(self, value: float, kind: str) -> Array:
        """Return the bits of a number for all lanes."""
        key = repr(value), kind, self.count
        if key not in self.constants:
            bits = numbers.BITS[numbers.width(kind)]
            if isinstance(value, float):
                self.constants[key] = np.full(self.count, value, numbers.TYPES[kind]).view(bits)
            else:
                self.constants[key] = np.full(self.count, value).astype(bits)
        return self.constants[key]

    def check_sure(self, i: Instruction, lanes: Array) -> None:
        """Raise a Fault if a thread that writes has branched on a value read in a race."""
        refuse(self.unsure[lanes], i.text, "after a branch on a value that was read in a race")

    def undefined_bits(self, operand: Any, lanes: Array) -> Array | None:
        """Return a mask of the undefined bits of a register, None if there are none."""
        found = self.undefined.get(operand)
        if found is None or not found[1] & self.known(lanes).bits:
            return None
        return self.in_lanes(found[0], lanes)

    def write(
        self, i: Instruction, to: Any, value: Array, lanes: Array, undefined: Any = None
    ) -> None:
        """Set a register, unless it is "_"; `undefined` is a mask of its undefined bits."""
        if to == "_":
            return
        held = self.registers.get(to)
        if held is None:
            raise Fault(f"{i.text}: {to} is not declared")
        if held.dtype.itemsize != value.dtype.itemsize:
            raise Fault(f"{i.text}: {to} is not {8 * value.itemsize} bits wide")
        if to in self.fragments:
            self._check_not_in_flight(i, to, lanes)
            self.unfenced[self.fragments[to], self.warp[lanes]] = True
        value = value if value.dtype == held.dtype else value.view(held.dtype)
        self.set(to, value, lanes, undefined)

    def spread(
        self, i: Instruction, to: Any, rows: Any, lanes: Array, undefined: Any = None
    ) -> None:
        """Set each of some registers to a row of values."""
        for n, (name, value) in enumerate(zip(to, rows, strict=True)):
            self.write(i, name, value, lanes, None if undefined is None else undefined[n])

    def set(self, to: str, value: Array, lanes: Array, undefined: Array | None = None) -> None:
        """Set a register; undefined bits are stored as ones."""
        value = value if undefined is None else value | undefined
        self.registers[to] = self._put(self.registers[to], lanes, value)
        self._set_undefined(to, lanes, undefined)

    def set_all(self, to: Sequence[str], values: Array, lanes: Array) -> None:
        """Set registers of one size to the rows of values without undefined bits."""
        every = np.concatenate([self.registers[name] for name in to]).reshape(len(to), -1)
        self.registers.update(zip(to, self._put(every, lanes, values), strict=True))
        for name in to:
            self._set_undefined(name, lanes, None)

    def _set_undefined(self, to: str, lanes: Array, undefined: Array | None) -> None:
        if undefined is None and to not in self.undefined:
            return
        mask, there = self.undefined.get(to, (None, 0))
        here, now = self.known(lanes).bits, 0
        if undefined is not None:
            now = self._bits(lanes[undefined != 0])
        elif there & here:
            undefined = np.zeros(len(lanes), self.registers[to].dtype)
        else:
            return
        if there := there & ~here | now:
            mask = np.zeros_like(self.registers[to]) if mask is None else mask
            self.undefined[to] = self._put(mask, lanes, undefined), there
        else:
            self.undefined.pop(to, None)

    def _put(self, array: Array, lanes: Array, value: Array) -> Array:
        if len(lanes) == self.count:
            return value
        found = array.copy()
        if (warps := self.known(lanes).warps) is None:
            found[..., lanes] = value
        else:
            _lines(found)[..., warps] = _lines(value)
        return found

    def in_lanes(self, array: Array, lanes: Array) -> Array:
        """Return the values of a register, or of several in rows, in some lanes."""
        if lanes is self.all:
            return array
        if (warps := self.known(lanes).warps) is None:
            return array.take(lanes, -1)
        return _lines(array).take(warps, -1).view(array.dtype)

    def known(self, lanes: Array) -> Lanes:
        """Return what is kept of the lanes that run, and of the last other ones."""
        if lanes is self._running.lanes:
            return self._running
        if lanes is not self._other.lanes:
            self._other = self._of_lanes(lanes)
        return self._other

    def _of_lanes(self, lanes: Array) -> Lanes:
        warps = None
        if self.all_warps_whole and len(lanes) % WARP == 0:
            first = self.warp[lanes[::WARP]]
            whole = (lanes.reshape(-1, WARP) == first[:, None] * WARP + _LANES).all()
            warps = first if whole else None
        return Lanes(lanes, warps, self._bits(lanes))

    def _bits(self, lanes: Array) -> int:
        some = np.zeros(self.count, bool)
        some[lanes] = True
        return int.from_bytes(np.packbits(some, bitorder="little").tobytes(), "little")

    def rows(self, lanes: Array) -> Any:
        """Return an index of lanes; a slice is many times faster than all numbers."""
        return slice(None) if lanes is self.all else lanes


_LANES = np.arange(WARP)
_LINES = {size: np.dtype(f"V{WARP * size}") for size in (1, 2, 4, 8)}


def _lines(register: Array) -> Array:
    """Return a register as one element a warp; NumPy moves them faster than those of lanes."""
    return np.ascontiguousarray(register).view(_LINES[register.itemsize])
