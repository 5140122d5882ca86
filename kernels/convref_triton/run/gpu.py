"""Run a KernelPlan on a device: compiled and loaded once, then launched with little overhead.

A repeated call costs an allocation per buffer, an address per tensor and a driver call per launch.
Triton's own launcher, which specializes and formats its arguments each time, is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cache, partial
from operator import itemgetter
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from convref.errors import UnsupportedError, invalid, message
from convref_driver import VARIES, Driver, Kernel, Manifest, Scratch, driver, encode, load
from convref_driver.hip import hip_driver

from ..compile import aot, hazards
from ..compile.specialize import TRITON_TYPES, Specialization, specialize
from ..interpreter import TYPES
from ..plan.builder import FILTER
from ..plan.launch import Buffer, Copy, Descriptor, KernelPlan, Launch, Slot, flatten, is_group
from . import packed
from .interpreted import copy, table_tensor

# A parameter of a Manifest for each of Triton's types that is not a pointer.
PARAMETERS = {"u1": "bool", "i1": "bool", **{name: code for code, name in TRITON_TYPES.items()}}
# Of a descriptor that is not a tensor map: whether padding is NaN; from Triton 3.7, whether tf32.
FLAGS = (False,) * len(fields(TensorDescriptor)[4:])
KEPT = 4096  # plans, and tensor maps of an argument


@dataclass(frozen=True, eq=False)
class Device:
    """The device of a plan: allocation, streams, driver; compared by identity."""

    place: torch.device  # where buffers are allocated
    arch: str  # as `aot.compile` takes it
    driver: Driver
    stream: Callable[[], int]  # returns the current stream of this thread
    # Whether this thread's current device is this one; a context manager in which it is.
    is_current: Callable[[], bool]
    made_current: Callable[[], AbstractContextManager[Any]]
    # Whether the current stream records a graph, during which nothing can be loaded.
    capturing: Callable[[], bool]
    sms: int = 0  # its multiprocessors; 0 if unknown
    name: str = ""


@cache
def cuda(index: int) -> Device:
    """Return a device of torch.cuda, which on a ROCm build is one of AMD."""
    current, properties = torch._C._cuda_getDevice, torch.cuda.get_device_properties(index)
    is_hip = torch.version.hip is not None
    capability = "sm_{}{}".format(*torch.cuda.get_device_capability(index))
    return Device(
        torch.device("cuda", index),
        properties.gcnArchName.partition(":")[0] if is_hip else capability,
        hip_driver() if is_hip else driver(),
        partial(torch._C._cuda_getCurrentRawStream, index),
        lambda: current() == index,
        lambda: torch.cuda.device(index),
        torch.cuda.is_current_stream_capturing,
        properties.multi_processor_count,
        properties.name,
    )


def run(plan: KernelPlan, operands: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return every buffer of `plan` by name, results among them, computed on the operands' device.

    Operands are given by role, on one CUDA device. Nothing waits for the device. Raise
    UnsupportedError if a kernel was not loaded before and the current stream is being captured,
    ConvrefError if a tensor is not aligned as the plan was made for.
    """
    place = next(tensor.device for tensor in operands.values())
    ready = prepare(plan, cuda(place.index))
    made = ready([operands[role] for role in ready.roles])
    return dict(zip(plan.buffers, made))


_ready: dict[tuple[int, Device], Ready] = {}


def prepare(plan: KernelPlan, device: Device) -> Ready:
    key = (id(plan), device)
    found = _ready.get(key)
    if found is None:
        if len(_ready) >= KEPT:
            del _ready[next(iter(_ready))]
        found = _ready[key] = Ready(plan, device)
    return found


class Ready:
    """A plan whose kernels are loaded; called with its operands, it returns its buffers.

    `roles` are the operands that a call takes, in order. The plan is referenced, so that no other
    plan can have its identity.
    """

    def __init__(self, plan: KernelPlan, device: Device) -> None:
        self.plan, self._device = plan, device
        own = {**plan.buffers, **plan.tables}
        named = dict.fromkeys(name for step in plan.steps for name in _names(step))
        self.roles = tuple(name for name in named if name not in own)
        buffers = dict(plan.buffers)
        with device.made_current():
            launches = {
                i: _Loaded(step, device, f"scratch {i}")
                for i, step in enumerate(plan.steps)
                if isinstance(step, Launch)
            }
        for loaded in launches.values():
            buffers |= loaded.scratch
        position = {name: i for i, name in enumerate((*self.roles, *buffers, *plan.tables))}
        if plan.tables and device.capturing():
            what = "its tables were not copied to the device before the capture of a graph"
            raise UnsupportedError(message("triton", f"{what}, needs plan(...) or a call first"))
        self._tables = [table_tensor(table).to(device.place) for table in plan.tables.values()]
        self._buffers = [(b.shape, b.strides, TYPES[b.dtype][0]) for b in buffers.values()]
        self._count = len(plan.buffers)
        bound = {
            i: launches[i].bound(position) if isinstance(step, Launch) else _copying(step, position)
            for i, step in enumerate(plan.steps)
        }
        self._steps = list(bound.values())
        packs = {i: step for i, step in enumerate(plan.steps) if _packs(step, self.roles)}
        self._packs = [(position[s.source], position[s.target], s.blocks) for s in packs.values()]
        self._rest = [step for i, step in bound.items() if i not in packs]
        slots = [slot for loaded in launches.values() for slot in loaded.slots]
        aligned = {slot.role for slot in slots if slot.aligned and slot.role in self.roles}
        self._aligned = [position[role] for role in sorted(aligned)]

    def __call__(self, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the plan's buffers, in its order, after launching all of it."""
        device = self._device
        if not device.is_current():
            with device.made_current():
                return self._run(operands)
        return self._run(operands)

    def _run(self, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        place, empty = self._device.place, torch.empty_strided
        steps, stream = self._steps, self._device.stream()
        if self._packs and packed.filters.limit and not self._device.capturing():
            steps, made = self._rest, self._packed(operands, stream)
        else:
            made = [
                empty(shape, strides, dtype=dtype, device=place)
                for shape, strides, dtype in self._buffers
            ]
        tensors = [*operands, *made, *self._tables]
        addresses = [tensor.data_ptr() for tensor in tensors]
        low = 0
        for i in self._aligned:
            low |= addresses[i]
        if low & 15:
            self._misaligned(addresses)
        for step in steps:
            step(stream, tensors, addresses)
        return made[: self._count]

    def _packed(self, operands: Sequence[torch.Tensor], stream: int) -> list[torch.Tensor]:
        """Return the buffers, taking packed filters from the cache.

        Not used under capture: a replay must pack the current filters.
        """
        place, first = self._device.place, len(operands)
        sources = {target - first: (operands[s], blocks) for s, target, blocks in self._packs}

        def made(form: tuple[Any, ...], *source: Any) -> torch.Tensor:
            shape, strides, dtype = form
            new = torch.empty_strided(shape, strides, dtype=dtype, device=place)
            if source:
                copy(source[0], new, source[1])
            return new

        def kept(form: tuple[Any, ...], source: torch.Tensor, blocks: tuple[int, ...]) -> Any:
            pack = partial(made, form, source, blocks)
            return packed.filters.get(source, (form, blocks, stream), pack)

        return [
            kept(form, *sources[i]) if i in sources else made(form)
            for i, form in enumerate(self._buffers)
        ]

    def _misaligned(self, addresses: Sequence[int]) -> None:
        role = next(self.roles[i] for i in self._aligned if addresses[i] & 15)
        what = f"{role} does not begin at a multiple of 16 bytes, needs a plan for that"
        raise invalid("triton", what)


def _names(step: Copy | Launch) -> list[str]:
    if isinstance(step, Copy):
        return [step.source, step.target]
    return [slot.role for slot in _slots(step)]


def _slots(launch: Launch) -> list[Slot]:
    values = flatten(tuple(launch.arguments.values()))
    slots = (value.slot if isinstance(value, Descriptor) else value for value in values)
    return [slot for slot in slots if isinstance(slot, Slot)]


def _packs(step: Copy | Launch, roles: Sequence[str]) -> bool:
    return isinstance(step, Copy) and step.source == FILTER and step.source in roles


Step = Callable[[int, Sequence[torch.Tensor], Sequence[int]], None]


def _copying(step: Copy, position: Mapping[str, int]) -> Step:
    source, target, blocks = position[step.source], position[step.target], step.blocks
    return lambda stream, tensors, addresses: copy(tensors[source], tensors[target], blocks)


class _Loaded:
    def __init__(self, launch: Launch, device: Device, name: str) -> None:
        self._device, self._launch = device, launch
        compiled, self._kernel = _kernel(specialize(launch), device)
        self._values = arguments(compiled, launch)
        blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self._hidden = [
            f"{name}.{i}" if entry.bytes_per_block else ""
            for i, entry in enumerate(self._kernel.manifest.scratch)
        ]
        self.scratch = {
            hidden: Buffer((entry.bytes_per_block * blocks,), (1,), "u8")
            for hidden, entry in zip(self._hidden, self._kernel.manifest.scratch)
            if hidden
        }
        self.slots = _slots(launch)
        self._swizzles = [entry["swizzle"] for entry in compiled.metadata["tensordesc_meta"] or ()]
        self._boxes = [e["block_size"] for e in compiled.metadata["tensordesc_meta"] or ()]

    def bound(self, position: Mapping[str, int]) -> Step:
        """Return a function that launches it, given addresses in the order of `position`."""
        values = [VARIES if isinstance(v, (Slot, Descriptor)) else v for v in self._values]
        hidden = [VARIES if name else 0 for name in self._hidden]
        prepared = self._kernel.prepare(self._launch.grid, values, hidden)
        sources = [*self._values, *(Slot(name, "u8") for name in self._hidden)]
        varying = [sources[i] for i in prepared.varying]
        maps = [self._map(value, position) for value in varying if isinstance(value, Descriptor)]
        which = [position[value.role] for value in varying if isinstance(value, Slot)]
        if maps:
            return lambda stream, tensors, addresses: prepared(
                stream, *(made(addresses) for made in maps), *(addresses[i] for i in which)
            )
        if len(which) < 2:
            return lambda stream, tensors, addresses: prepared(
                stream, *(addresses[i] for i in which)
            )
        pick = itemgetter(*which)
        return lambda stream, tensors, addresses: prepared(stream, *pick(addresses))

    def _map(
        self, value: Descriptor, position: Mapping[str, int]
    ) -> Callable[[Sequence[int]], bytes]:
        """Return a function from addresses to the tensor map, with a cache."""
        descriptors = [v for v in self._values if isinstance(v, Descriptor)]
        order = next(i for i, v in enumerate(descriptors) if v is value)
        box, swizzle = self._boxes[order], self._swizzles[order]
        kept: dict[int, bytes] = {}
        where, dtype = position[value.slot.role], value.slot.dtype
        driver, index = self._device.driver, self._device.place.index or 0

        def at(addresses: Sequence[int]) -> bytes:
            address = addresses[where]
            if address not in kept:
                if len(kept) >= KEPT:
                    kept.clear()
                geometry = (value.shape, value.strides, box, swizzle, value.every, *value.corners)
                kept[address] = encode(driver, dtype, address, *geometry, device=index)
            return kept[address]

        return at


_kernels: dict[tuple[Any, ...], tuple[aot.Compiled, Kernel]] = {}


def _kernel(specialization: Specialization, device: Device) -> tuple[aot.Compiled, Kernel]:
    key = (specialization.key, device)
    if key not in _kernels:
        name = specialization.kernel.__name__
        if device.capturing():
            what = "was not compiled before the capture of a graph, needs plan(...) or a call first"
            raise UnsupportedError(message(f"triton: {name}", what))
        compiled = aot.compile(specialization, device.arch)
        hazards.guard(compiled)
        index = device.place.index or 0
        _kernels[key] = compiled, load(compiled.binary, manifest(compiled), index, device.driver)
    return _kernels[key]


def manifest(compiled: aot.Compiled) -> Manifest:
    """Return the Manifest of a kernel that Triton compiled."""
    metadata = compiled.metadata
    scratch = tuple(
        Scratch(
            metadata.get(f"{kind}_scratch_size", 0) or 0,
            metadata.get(f"{kind}_scratch_align", 1) or 1,
        )
        for kind in ("global", "profile")
    )
    return Manifest(
        compiled.name,
        tuple(kind for kinds in _kinds(compiled) for kind in kinds),
        (aot.target(compiled.arch).warp_size * metadata["num_warps"], 1, 1),
        metadata["shared"],
        (metadata.get("num_ctas", 1), 1, 1),
        scratch,
    )


def _kinds(compiled: aot.Compiled) -> list[tuple[str, ...]]:
    """Return the binary's parameters for each parameter of the kernel; constants have none."""
    has_maps = bool(compiled.metadata["tensordesc_meta"])
    kinds = flatten(tuple(compiled.specialization.signature.values()))
    return [_expanded(kind, has_maps) for kind in kinds]


def _expanded(kind: str, has_maps: bool) -> tuple[str, ...]:
    if kind == "constexpr":
        return ()
    if kind.startswith("*"):
        return ("ptr",)
    if not kind.startswith("tensordesc"):
        return (PARAMETERS[kind],)
    # As in Triton's launcher: a tensor map, or the tensor and its padding; then the geometry.
    found = re.search(r"input_rank=(\d+)", kind)  # if it is not that of the box
    rank = int(found[1]) if found else kind.partition("]")[0].count(",") + 1
    head = ("tensormap",) if has_maps else ("ptr", *("i64",) * (2 * rank), *("bool",) * len(FLAGS))
    return (*head, *("i32",) * rank, *("i64",) * rank)


def arguments(compiled: aot.Compiled, launch: Launch) -> list[Any]:
    """Return a value for each of the manifest's parameters: a number, a Slot or a Descriptor."""
    has_maps = bool(compiled.metadata["tensordesc_meta"])
    given = {p.name: p.default for p in launch.kernel.params if p.has_default}
    given |= {**launch.constants, **launch.arguments}
    signature = compiled.specialization.signature
    values: list[Any] = []
    for kind, value in _pairs(tuple(signature.values()), tuple(given[name] for name in signature)):
        if isinstance(value, Descriptor):
            geometry = (*value.shape, *value.strides)
            head = (value,) if has_maps else (value.slot, *geometry, *FLAGS)
            values += [*head, *geometry]
        elif kind != "constexpr":
            values.append(0 if value is None else value)
    return values


def _pairs(kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (type, value) of every argument in nested tuples."""
    if not is_group(kind):
        yield kind, value
        return
    for inner_kind, item in zip(kind, value, strict=True):
        yield from _pairs(inner_kind, item)


def specializations(plan: KernelPlan) -> list[Specialization]:
    return [specialize(step) for step in plan.launches]
