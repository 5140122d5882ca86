"""The tensors of a launch as an address space that checks every access.

Tensors are 2**44 bytes apart, so that an address identifies its tensor however far an index is out
of bounds; addresses keep their real value modulo 256. A shadow per storage records which program
wrote and which read each element.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from .errors import StrictError

Array = np.ndarray[Any, Any]
APART = 44
BITS = {  # of types that NumPy does not have
    torch.bfloat16: torch.uint16,
    **dict.fromkeys((torch.float8_e4m3fn, torch.float8_e5m2), torch.uint8),
}
UNTOUCHED, SEVERAL = -1, -2  # in a shadow, instead of a program


class Shadow:
    """Which program wrote, and which read, each of `size` units of `unit` bytes of one storage."""

    def __init__(self, unit: int, size: int) -> None:
        self.unit = unit
        self.writer = np.full(size, UNTOUCHED, np.int32)
        self.reader = np.full(size, UNTOUCHED, np.int32)
        self._stamp = np.empty(size, np.int32)

    def written_by_others(self, where: Array, program: Any, undo: "Undo") -> Array:
        """Record that `program` reads; return which units another program has written.

        A program is a number, or one for each unit; SEVERAL if all that run together read.
        """
        readers = self.reader[where]
        undo.save(self.reader, where)
        alone = (readers == UNTOUCHED) | (readers == program)
        now = np.where(alone, program, np.int32(SEVERAL)).astype(np.int32)
        self.reader[where] = now
        self.reader[where[self.reader[where] != now]] = SEVERAL
        writers = self.writer[where]
        return (writers != UNTOUCHED) & (writers != program)

    def written_before(self, where: Array, program: Any, undo: "Undo") -> Array:
        """Record that `program` writes; return which units were already written, or are twice."""
        before = self.writer[where] != UNTOUCHED
        undo.save(self.writer, where)
        self.writer[where] = program
        count = np.arange(where.size, dtype=np.int32)
        self._stamp[where] = count
        return before | (self._stamp[where] != count)

    def read_by_others(self, where: Array, program: Any) -> Array:
        readers = self.reader[where]
        return (readers != UNTOUCHED) & (readers != program)


class Undo:
    """What elements of arrays contained before programs that run together changed them."""

    def __init__(self) -> None:
        self.active = False
        self._kept: list[tuple[Array, Array, Array]] = []

    def start(self, active: bool) -> None:
        self.active, self._kept = active, []

    def save(self, array: Array, where: Array) -> None:
        if self.active:
            self._kept.append((array, where, array[where]))

    def restore(self) -> None:
        for array, where, before in reversed(self._kept):
            array[where] = before
        self._kept = []


class MappedTensor:
    """One tensor: its elements from the first to the last, gaps included.

    Its `number` among the tensors gives its address.
    """

    def __init__(self, role: str, tensor: torch.Tensor, number: int) -> None:
        self.role, self.tensor = role, tensor
        self.itemsize = tensor.element_size()
        extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
        self.span = extent + 1 if tensor.numel() else 0
        self.bytes = self.span * self.itemsize
        self.base = np.uint64((2 * number + 1 << APART - 1) + tensor.data_ptr() % 256)
        flat = tensor.detach().as_strided((self.span,), (1,))
        bits = BITS.get(tensor.dtype, tensor.dtype)
        self._views = {None: flat.view(bits).numpy()}
        self.members = self._members()
        self.shadow: Shadow | None = None
        self.start = 0

    def _members(self) -> Array | None:
        """Return which elements belong to the view, or None if it has no gaps."""
        found = np.zeros(self.span, bool)  # NumPy touches no memory, unlike torch
        torch.from_numpy(found).as_strided(self.tensor.shape, self.tensor.stride()).fill_(True)
        return None if found.all() else found

    def view(self, dtype: np.dtype[Any]) -> Array:
        if dtype not in self._views:
            own = self._views[None]
            whole = own.view(np.uint8)[: own.nbytes // dtype.itemsize * dtype.itemsize]
            self._views[dtype] = own if own.dtype == dtype else whole.view(dtype)
        return self._views[dtype]

    def units(self, where: Array, itemsize: int) -> Array:
        """Return the shadow's units of the elements `where`, each of `itemsize` bytes."""
        assert self.shadow is not None
        each = itemsize // self.shadow.unit
        if each == 1:
            return where.ravel() + self.start
        return (where.reshape(-1, 1) * each + np.arange(each)).ravel() + self.start

    def position(self, element: int) -> str:
        """Return an element as an index of the tensor, or as a number if it is in a gap."""
        rest, index = element, [0] * self.tensor.dim()
        for axis in sorted(range(len(index)), key=lambda a: -self.tensor.stride(a)):
            if self.tensor.stride(axis) and self.tensor.shape[axis] > 1:
                index[axis] = min(rest // self.tensor.stride(axis), self.tensor.shape[axis] - 1)
                rest -= index[axis] * self.tensor.stride(axis)
        where = ", ".join(map(str, index)) if rest == 0 else f"element {element}"
        return f"{self.role}[{where}]"


class CheckedMemory:
    """All tensors of one launch, and the rules of access to them.

    `strict` checks rules other than the bounds of tensors. `outputs` are roles that must be written
    completely, `writable` those that may be, `partial` those that may be in part; all may be if
    neither of the first two is given.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        strict: bool = True,
        outputs: Collection[str] | None = None,
        writable: Collection[str] | None = None,
        partial: Collection[str] = (),
    ) -> None:
        anything = outputs is None and writable is None
        self.strict, self.partial, self.outputs = strict, set(partial), set(outputs or ())
        self._writable = set(tensors if anything else [*self.outputs, *(writable or ()), *partial])
        self.programs, self.where = np.zeros(1, np.int32), ""
        self._undo = Undo()
        self.regions = {
            role: MappedTensor(role, tensor, number)
            for number, (role, tensor) in enumerate(tensors.items(), start=1)
        }
        self._by_number = dict(enumerate(self.regions.values(), start=1))
        self.written: set[str] = set()
        if strict:
            self._add_shadows()

    def _add_shadows(self) -> None:
        """Give each storage that may be written a shadow, which its tensors share."""
        storages: dict[int, list[MappedTensor]] = {}
        for region in self.regions.values():
            storages.setdefault(region.tensor.untyped_storage().data_ptr(), []).append(region)
        for regions in storages.values():
            if any(region.role in self._writable for region in regions):
                unit = min(r.itemsize for r in regions)
                first = min(r.tensor.data_ptr() for r in regions)
                last = max(r.tensor.data_ptr() + r.bytes for r in regions)
                shadow = Shadow(unit, -(-(last - first) // unit))
                for region in regions:
                    region.shadow = shadow
                    region.start = (region.tensor.data_ptr() - first) // unit

    def start(self, programs: Array, where: str) -> None:
        """Let the following accesses be those of some programs, which run together."""
        self.programs, self.where = programs.astype(np.int32), where
        self._undo.start(len(programs) > 1)

    def undo(self) -> None:
        """Undo what the programs did since `start`."""
        self._undo.restore()

    def load(
        self, addresses: Array, mask: Array | None, other: Array | None, dtype: Any, poison: Any
    ) -> Array:
        """Return the values at `addresses`; where masked, `other` or else `poison`."""
        if mask is None or mask.all():
            return self._gather(addresses, None, dtype)
        filler = poison if other is None else other
        shape = np.broadcast_shapes(addresses.shape, mask.shape, np.shape(filler))
        live = np.broadcast_to(mask, shape)
        result = np.full(shape, filler, dtype)
        if live.any():
            addresses = np.broadcast_to(addresses, shape)
            result[live] = self._gather(addresses[live], live, dtype)
        return result

    def store(self, addresses: Array, mask: Array | None, values: Array) -> None:
        live = None if mask is None or mask.all() else mask
        shapes = [array.shape for array in (addresses, values, live) if array is not None]
        shape = np.broadcast_shapes(*shapes)
        if len(self.programs) > 1:  # that all store the same is an error, too
            shape = (len(self.programs), *shape[1:])
        addresses, values = np.broadcast_to(addresses, shape), np.broadcast_to(values, shape)
        if live is not None:
            live = np.broadcast_to(live, shape)
            addresses, values = addresses[live], values[live]
        for part in self._by_tensor(addresses):
            self._scatter(addresses, live, part, values[part])

    def _gather(self, addresses: Array, live: Array | None, dtype: Any) -> Array:
        """Return the values at `addresses`, which may be those of a block where it is `live`."""
        if (plain := self._gather_plain(addresses, dtype)) is not None:
            return plain
        result = np.empty(addresses.shape, dtype)
        for part in self._by_tensor(addresses):
            region, where = self._locate(addresses[part], dtype.itemsize, "load")
            if region.shadow is not None:
                units = region.units(where, dtype.itemsize)
                program = self._program(addresses, live, part, units)
                bad = region.shadow.written_by_others(units, program, self._undo)
                self._refuse(bad, region, where, "cross-program-read", "read, but another wrote it")
            result[part] = region.view(dtype)[where]
        return result

    def _gather_plain(self, addresses: Array, dtype: Any) -> Array | None:
        """Return the values in a tensor without gaps that nothing writes to, else None."""
        region = self._by_number.get(int(addresses.flat[0]) >> APART) if addresses.size else None
        if region is None or region.shadow is not None or region.members is not None:
            return None
        offset, itemsize = addresses - region.base, dtype.itemsize  # below the base: huge
        if offset.max() > region.bytes - itemsize or (offset & np.uint64(itemsize - 1)).any():
            return None
        where = offset >> np.uint64(itemsize.bit_length() - 1)
        found: Array = region.view(dtype).take(where.view(np.int64))
        return found

    def _scatter(self, addresses: Array, live: Array | None, part: Any, values: Array) -> None:
        itemsize = values.dtype.itemsize
        region, where = self._locate(addresses[part], itemsize, "store")
        if self.strict and region.role not in self._writable:
            raise self._error("not-an-output", f"store to {region.role}, which is not an output")
        if region.shadow is not None:
            units = region.units(where, itemsize)
            program = self._program(addresses, live, part, units)
            bad = region.shadow.read_by_others(units, program)
            self._refuse(bad, region, where, "cross-program-read", "written, but another read it")
            bad = region.shadow.written_before(units, program, self._undo)
            self._refuse(bad, region, where, "written-twice", "written again, needs one store")
        self.written.add(region.role)
        self._undo.save(region.view(values.dtype), where)
        region.view(values.dtype)[where] = values

    def _program(self, addresses: Array, live: Array | None, part: Any, units: Array) -> Any:
        """Return the program of each unit, or that of all."""
        if len(self.programs) == 1:
            return self.programs[0]
        shape = addresses.shape if live is None else live.shape
        if len(shape) == 0 or shape[0] == 1:
            return np.int32(SEVERAL)
        every = np.broadcast_to(self.programs.reshape(-1, *(1,) * (len(shape) - 1)), shape)
        every = (every if live is None else every[live])[part].ravel()
        return np.repeat(every, units.size // every.size)

    def _by_tensor(self, addresses: Array) -> list[Any]:
        """Return one selection of `addresses` per tensor that they point into."""
        if not addresses.size:
            return []
        numbers = addresses >> np.uint64(APART)
        if (numbers == numbers.flat[0]).all():
            return [...]
        return [numbers == number for number in np.unique(numbers)]

    def _locate(self, addresses: Array, itemsize: int, verb: str) -> tuple[MappedTensor, Array]:
        """Return the tensor that contains all `addresses`, and their elements."""
        region = self._by_number.get(int(addresses.flat[0]) >> APART)
        if region is None:
            raise self._error("out-of-bounds", f"{verb} at an address far from any tensor")
        offset = (addresses - region.base).view(np.int64)
        outside = (offset < 0) | (offset > region.bytes - itemsize)
        if outside.any():
            first = int(offset[outside].flat[0]) // region.itemsize
            raise self._error(
                "out-of-bounds",
                f"{verb} of element {first} of {region.role}, which has {region.span}",
            )
        where = offset // itemsize
        if itemsize > 1 and (offset % itemsize).any():
            raise self._error("misaligned", f"{verb} of {region.role} between two elements")
        if region.members is not None and itemsize == region.itemsize:
            self._refuse(
                ~region.members[where], region, where, "out-of-bounds",
                f"reached by a {verb}, but in a gap between the elements of the view",
            )  # fmt: skip
        return region, where

    def _refuse(self, bad: Array, region: MappedTensor, where: Array, kind: str, what: str) -> None:
        if bad.any():
            element = where.ravel()[int(bad.argmax()) * where.size // bad.size]
            raise self._error(kind, f"{region.position(int(element))} is {what}")

    def _error(self, kind: str, what: str) -> StrictError:
        return StrictError(kind, self.where, what)

    def finish(self) -> None:
        if not self.strict:
            return
        for role in sorted((self.outputs | self.written) - self.partial):
            if role not in self.regions:
                raise self._error("never-written", f"{role} is not an argument of the launch")
            region = self.regions[role]
            assert region.shadow is not None
            members = np.ones(region.span, bool) if region.members is None else region.members
            where = members.nonzero()[0]
            units = region.units(where, region.itemsize)
            bad = region.shadow.writer[units] == UNTOUCHED
            count = int(bad.sum()) * region.shadow.unit // region.itemsize
            what = f"never written, like {count - 1} more" if count > 1 else "never written"
            self._refuse(bad, region, where, "never-written", what)
