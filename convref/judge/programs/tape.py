"""The operations that a test calls, recorded, so that the program of one of its tensors is known.

Tensors are recorded by their storages and their layouts in it, so that views need no steps and
operations in place are repeated in their order.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .pair import Tensor
from .shadow import storage_of
from .trace import LIKE, UNWRITTEN, functional, is_composite, is_view, updated_by, written_by

_aten = torch.ops.aten
# What these return or write is data, whatever their operands are; other random operations are not.
_DRAWS = {_aten.rand_like, _aten.randn_like, _aten.randint_like, _aten.bernoulli, _aten.normal}
_DRAWS |= {_aten.poisson, _aten.multinomial, _aten.uniform, _aten.random, _aten.exponential}
_DRAWS |= {_aten.geometric, _aten.cauchy, _aten.log_normal}
# What prepares random numbers. A test may draw them again, and the kernel compute on these.
_PREPARES = {_aten._to_copy, _aten.clone, _aten.copy, _aten.neg, _aten.abs}
_PREPARES |= {_aten.add, _aten.sub, _aten.mul, _aten.div}
_WATCHED = 64  # storages: one that outlives as many younger ones counts as alive


@dataclass(frozen=True)
class Place:
    """Where the elements of a tensor are: a storage by its number, and their layout in it."""

    storage: int
    dtype: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, storage: Tensor) -> Tensor:
        """Return the tensor, given all elements of its storage."""
        flat = storage if storage.dtype == self.dtype else storage.view(self.dtype)
        return flat.as_strided(self.size, self.stride, self.offset)


class Step(NamedTuple):
    """One operation: its arguments, with places for tensors, and those of its new tensors."""

    number: int
    func: Any
    args: Any
    results: list[Place | None]
    reads: set[int]
    writes: set[int]


@dataclass
class _Memory:
    """A storage: when it was seen first and freed, and its contents before the recorded steps."""

    alive: StorageWeakRef
    born: int
    freed: float = math.inf
    is_made: bool = False  # by a step
    is_open: bool = False  # allocated without contents, and no operation of PyTorch wrote to it
    is_drawn: bool = False  # random numbers
    before: Tensor | None = None


class Tape(TorchDispatchMode):  # type: ignore[misc]
    """A context that records the operations in it, unless it is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False
        self._steps: list[Step] = []
        self._memory: list[_Memory] = []
        self._numbers: dict[int, int] = {}
        self._young: deque[_Memory] = deque(maxlen=_WATCHED)
        self._now = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which would load PyTorch's compiler at the first operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record one operation."""
        kwargs = kwargs or {}
        if not self.is_paused and is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        packet = functional(func)
        if self.is_paused or is_view(func):
            return func(*args, **kwargs)
        self._now += 1
        for memory in self._young:
            if memory.freed == math.inf and memory.alive.expired():
                memory.freed = self._now
        targets = [*written_by(func, args, kwargs), *updated_by(func, args)]
        if packet in _DRAWS:
            return self._drawn(func(*args, **kwargs), targets)
        operands = [t for t in tree_leaves((args, kwargs)) if _is_plain(t)]
        if not targets and (packet in LIKE or packet in UNWRITTEN or not operands):
            is_drawn = torch.Tag.nondeterministic_seeded in func.tags
            return self._new(func(*args, **kwargs), packet in UNWRITTEN, is_drawn)
        kept: Any = tree_map(self._kept, (args, kwargs))
        out = func(*args, **kwargs)
        places = [self._result(t) for t in tree_leaves(out)]
        self._note(func, kept, places, operands, targets)
        return out

    def _note(
        self, func: Any, kept: Any, places: Any, operands: list[Tensor], targets: list[Tensor]
    ) -> None:
        new = {place.storage for place in places if place}
        written = {self._number(t) for t in targets if _is_plain(t)}
        for number in written:
            self._memory[number].is_open = False
        read = {self._number(t) for t in operands}
        if new or written:
            self._steps.append(Step(self._now, func, kept, places, read | written, new | written))

    def _new(self, out: Any, is_open: bool, is_drawn: bool) -> Any:
        """Note the storages of results that are data."""
        for tensor in filter(_is_plain, tree_leaves(out)):
            memory = self._memory[self._number(tensor)]
            memory.is_open, memory.is_drawn = is_open and tensor.numel() > 0, is_drawn
        return out

    def _drawn(self, out: Any, targets: list[Tensor]) -> Any:
        """Note what a random operation returned or wrote."""
        for target in targets:
            memory = self._memory[self._number(target)]
            if memory.is_made or memory.before is not None:
                drawn = self._kept(target.clone(memory_format=torch.contiguous_format))
                kept: Any = ((self._place(target), drawn), {})
                self._note(_aten.copy_.default, kept, [], [], [target])
                self._steps[-1].reads.add(drawn.storage)
                memory = self._memory[drawn.storage]
            memory.is_open, memory.is_drawn = False, True
        return out if targets else self._new(out, False, True)

    def _number(self, tensor: Tensor) -> int:
        """Return the number of a tensor's storage, a new one at its first use."""
        key = storage_of(tensor)
        number = self._numbers.get(key)
        if number is None:
            self._numbers[key] = number = len(self._memory)
            alive = StorageWeakRef(tensor.untyped_storage())  # the key stays taken
            self._memory.append(_Memory(alive, self._now))
            self._young.append(self._memory[-1])
        return number

    def _place(self, tensor: Tensor) -> Place:
        size, stride = tuple(tensor.shape), tuple(tensor.stride())
        return Place(self._number(tensor), tensor.dtype, size, stride, tensor.storage_offset())

    def _kept(self, operand: Any) -> Any:
        """Return the place of an operand, whose contents are copied if no step made them."""
        if not _is_plain(operand):
            return operand
        memory = self._memory[self._number(operand)]
        if not memory.is_made and memory.before is None:
            memory.before = _all_of(operand).clone()
        return self._place(operand)

    def _result(self, tensor: Any) -> Place | None:
        """Return the place of a result in new memory."""
        if not _is_plain(tensor) or storage_of(tensor) in self._numbers:
            return None
        place = self._place(tensor)
        self._memory[place.storage].is_made = True
        return place

    def has(self, tensor: Tensor) -> bool:
        """Return whether recorded operations computed a tensor."""
        return _is_plain(tensor) and bool(self._led_to([tensor])[0])

    def source_dtype(self, tensor: Tensor) -> Any:
        """Return the dtype of which a tensor is a conversion to a wider one, else its own."""
        if not self.has(tensor) or not tensor.dtype.is_floating_point:
            return tensor.dtype
        place = self._place(tensor)
        steps = [step for step in self._steps if place.storage in step.writes]
        if steps[-1].results == [place] and steps[-1].func is _aten._to_copy.default:
            dtype = steps[-1].args[0][0].dtype
            if dtype.is_floating_point and torch.finfo(dtype).eps > torch.finfo(tensor.dtype).eps:
                return dtype
        return tensor.dtype

    def _led_to(self, tensors: Iterable[Tensor]) -> tuple[list[Step], set[int]]:
        """Return the steps that tensors depend on, and the storages that these read."""
        known = filter(_is_plain, tensors)
        needed = {self._numbers[storage_of(t)] for t in known if storage_of(t) in self._numbers}
        found = []
        for step in reversed(self._steps):
            if needed & step.writes:
                found.append(step)
                needed |= step.reads
        return found[::-1], needed

    def program(
        self, results: list[Tensor], actual: list[Tensor], is_single: bool = False
    ) -> tuple[Callable[..., list[Tensor]], tuple[Tensor, ...]]:
        """Return the function that computed `results`, and its arguments: data of the test.

        Data are what no recorded operation computed, and random numbers that were converted,
        shifted or scaled and then freed before the memory of `actual` was allocated: a kernel that
        writes there cannot have read them. With `is_single`, float64 is replaced by float32.
        """
        steps, needed = self._led_to(results)
        made = {self._number(t) for t in results}
        first, rest = self._split(steps, made, self._start(actual, steps, needed))
        data = {n: b.clone() for n in needed if (b := self._memory[n].before) is not None}
        _repeat(first, data)
        places, change = [self._place(t) for t in results], _single if is_single else _identity
        used = {place.storage for place in places}.union(*(step.reads for step in rest))
        data = {number: _all_of(t) for number, t in data.items() if number in used}
        written = set[int]().union(*(step.writes for step in rest))

        def reference(*given: Tensor) -> list[Tensor]:
            found = dict(zip(data, given))
            for number, tensor in found.items():
                dtype = change(tensor.dtype)
                if number in written or dtype != tensor.dtype:
                    found[number] = tensor.to(dtype, copy=True)
            _repeat(rest, found, change)
            return [_tensor(found, change, place) for place in places]

        return reference, tuple(data.values())

    def _start(self, actual: list[Tensor], shared: list[Step], needed: set[int]) -> float:
        """Return when the first memory was allocated that the kernel of `actual` may have written.

        That is memory of which no recorded operation made the contents, or one that `actual` alone
        depends on did.
        """
        known = [self._numbers.get(storage_of(t)) for t in filter(_is_plain, actual)]
        steps, read = self._led_to(actual)
        shared_numbers = {step.number for step in shared}
        starts = [step.number for step in steps if step.number not in shared_numbers]
        starts += [0 if n is None else self._memory[n].born for n in {*known, *(read - needed)}]
        starts += [memory.born for memory in self._memory if memory.is_open]
        return min(starts)

    def _split(
        self, steps: list[Step], results: set[int], start: float
    ) -> tuple[list[Step], list[Step]]:
        """Return the steps before `start` that computed data, and the others."""
        data, rest, taken = list[Step](), list[Step](), set[int]()
        drawn = {number for number, memory in enumerate(self._memory) if memory.is_drawn}
        for step in steps:
            others, both = step.reads - step.writes, step.reads | step.writes
            is_freed = all(self._memory[number].freed <= start for number in others)
            prepares = functional(step.func) in _PREPARES and not results & step.writes
            is_first = step.number < start and is_freed and not taken & both
            if is_first and prepares and drawn & step.reads:
                data.append(step)
                drawn |= step.writes
            else:
                rest.append(step)
                taken |= both
        return data, rest


def _is_plain(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.layout == torch.strided


def _all_of(tensor: Tensor) -> Tensor:
    """Return all elements of the storage of a tensor."""
    return tensor.new_empty(0).set_(tensor.untyped_storage())


def _identity(argument: Any) -> Any:
    return argument


def _single(argument: Any) -> Any:
    """Return a dtype, or a place, with float32 in place of float64."""
    if isinstance(argument, Place):
        return replace(argument, dtype=_single(argument.dtype))
    is_double = isinstance(argument, torch.dtype) and argument == torch.float64
    return torch.float32 if is_double else argument


def _tensor(found: dict[int, Tensor], change: Callable[[Any], Any], argument: Any) -> Any:
    """Return an argument of a step."""
    argument = change(argument)
    return argument.of(found[argument.storage]) if isinstance(argument, Place) else argument


def _repeat(
    steps: list[Step], found: dict[int, Tensor], change: Callable[[Any], Any] = _identity
) -> None:
    """Repeat steps on storages by number, to which the new ones are added."""
    for step in steps:
        args, kwargs = tree_map(partial(_tensor, found, change), step.args)
        out = step.func(*args, **kwargs)
        for place, tensor in zip(step.results, tree_leaves(out)):
            if place is not None and tensor is not None:
                found[place.storage] = _laid_out(tensor, change(place))


def _laid_out(tensor: Tensor, place: Place) -> Tensor:
    """Return a tensor whose storage has the recorded layout; decompositions may give another."""
    size, stride, offset = place.size, place.stride, place.offset
    if (tensor.stride(), tensor.storage_offset()) == (stride, offset):
        return tensor
    room = tensor.new_empty(offset + 1 + sum((n - 1) * s for n, s in zip(size, stride)))
    place.of(room).copy_(tensor)
    return room
