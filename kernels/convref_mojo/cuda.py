"""The Mojo kernels for the GPU as a backend: launches of PTX by the driver, or by an interpreter.

`launches` turns a call into data: which kernel, which arrays, which geometry. It knows nothing of
where they run: `Device` gives them to the CUDA driver, `Interpreter` to NumPy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from convref import dtypes
from convref.backends import PLAIN, Arm
from convref.case import Call
from convref.errors import UnsupportedError, message
from convref.judge import Numerics
from convref.problem import BASE_ROLE, Axis, ConvProblem

from . import emit
from .backend import checked, result
from .geometry import Line, axes, gathered, lattices
from .memory import Strides, channel, spatial

DTYPES = ("f32", "f64", "bf16")
SPAN = 2**31  # elements, from which on 32-bit offsets do not reach
THREADS = 128
TILE = 64  # rows and columns of product.mojo
VECTOR = 8  # numbers that product.mojo loads at once
BROADEST = 65535  # blocks along y
Int32 = ctypes.c_int32


def _struct(name: str, *fields: Any) -> Any:
    """Return a struct of gpu/geometry.mojo; a field is an int32, or (name, struct)."""
    pairs = [field if isinstance(field, tuple) else (field, Int32) for field in fields]
    return type(name, (ctypes.Structure,), {"_fields_": pairs})


GpuLine = _struct("Line", "count", "size", "step", "taps", "shift", "pace")
Place = _struct("Place", *"nczyx")
GpuFilter = _struct("Filter", "group", "channel", "result", *"zyx")
Geometry = _struct(
    "Geometry",
    *("images", "groups", "channels", "results", "biased", "bias"),
    *((axis, GpuLine) for axis in "zyx"),
    *((side, Place) for side in ("big", "small")),
    ("filter", GpuFilter),
)


class Array(NamedTuple):
    """What a launch needs to know of an array: its role, sizes and strides in elements."""

    role: str
    shape: tuple[int, ...]
    strides: Strides
    aligned: bool  # whether it begins at a multiple of 16 bytes

    @property
    def reach(self) -> int:
        """Return the largest distance of two elements."""
        return sum(abs(s) * (n - 1) for n, s in zip(self.shape, self.strides))


class Launch(NamedTuple):
    """One launch: a kernel, its pointers as (role, elements from its start), and its geometry."""

    kernel: str
    grid: tuple[int, int]
    pointers: tuple[tuple[str, int], ...]
    geometry: Any


class Sum(NamedTuple):
    """The operands of a sum over windows (gather) or of a filter gradient (correlate)."""

    big: Array
    small: Array
    filter: Array
    bias: Array | None


def _line(line: Line) -> Any:
    first, second = (*line.shifts, *(0, 0))[:2] if len(line.taps) != 1 else (line.shifts[0], 0)
    pace = second - first if len(line.taps) > 1 else 0
    return GpuLine(line.count, line.size, line.step, len(line.taps), first, pace)


def _filter(
    problem: ConvProblem, lines: Sequence[Line], w: Array, scatter: bool
) -> tuple[Any, int]:
    """Return strides of a filter in the order in which taps are read, and where the first lies."""
    start, steps = 0, []
    for line, axis, stride in zip(lines, axes(problem), spatial(w.strides)):
        taps = [axis.taps - 1 - r if problem.flip else r for r in line.taps]
        start += taps[0] * stride if taps else 0
        steps.append((taps[1] - taps[0]) * stride if len(taps) > 1 else 0)
    small, big, *_ = w.strides
    group = small * (problem.c if problem.transposed else problem.k) // problem.groups
    summed, results = (small, big) if scatter else (big, small)
    return GpuFilter(group, summed, results, *steps), start


def _geometry(
    problem: ConvProblem, lines: Sequence[Line], channels: int, results: int, arrays: Sum
) -> Any:
    g = Geometry(problem.n, problem.groups, channels, results)
    for axis, line in zip("zyx", lines):
        setattr(g, axis, _line(line))
    big, small = arrays.big, arrays.small
    g.big = Place(big.strides[0], channel(big.strides, big.shape[1]), *spatial(big.strides))
    paces = (line.pace * stride for line, stride in zip(lines, spatial(small.strides)))
    g.small = Place(small.strides[0], channel(small.strides, small.shape[1]), *paces)
    if arrays.bias is not None:
        g.biased, g.bias = 1, arrays.bias.strides[0]
    return g


def _sides(problem: ConvProblem, scatter: bool) -> tuple[int, int]:
    """Return the channels of a group that are summed over, and those of the result."""
    c, k = problem.c // problem.groups, problem.k // problem.groups
    return (k, c) if problem.transposed != scatter else (c, k)


def _sum_launches(
    problem: ConvProblem, scatter: bool, dtype: str, arrays: Sum, kinds: Sequence[str]
) -> Iterator[Launch]:
    """Yield a launch for each lattice of windows; `small` is the result."""
    channels, results = _sides(problem, scatter)
    for lines in lattices(problem, scatter):
        g = _geometry(problem, lines, channels, results, arrays)
        g.filter, at = _filter(problem, lines, arrays.filter, scatter)
        start = sum(
            line.start * stride for line, stride in zip(lines, spatial(arrays.small.strides))
        )
        windows = problem.n * prod(line.count for line in lines)
        bias = ("", 0) if arrays.bias is None else (arrays.bias.role, 0)
        pointers = (
            (arrays.small.role, start),
            (arrays.big.role, 0),
            (arrays.filter.role, at),
            bias,
        )
        if dtype == "bf16" and "mma" in kinds:
            name = f"gather_mma_{_vectors(arrays, g, at)}"
            tiles = problem.groups * -(-results // TILE)
            yield Launch(name, (-(-windows // TILE), tiles), pointers, g)
        else:
            threads = windows * problem.groups * results
            yield Launch(f"gather_{dtype}", (-(-threads // THREADS), 1), pointers, g)


def _vectors(arrays: Sum, g: Any, at: int) -> str:
    """Return which of the widths of loads both operands admit."""

    def admits(array: Array, inner: int, others: Sequence[int]) -> bool:
        whole = all(n % VECTOR == 0 for n in (*others, g.channels))
        return array.aligned and inner == 1 and whole

    big = admits(arrays.big, g.big.c, (g.big.n, g.big.z, g.big.y, g.big.x))
    f = g.filter
    w = admits(arrays.filter, f.channel, (f.group, f.result, f.z, f.y, f.x, at))
    return "v8f8" if big and w else "v8f1" if big else "v1f1"


def _correlate_launch(
    problem: ConvProblem, dtype: str, arrays: Sum, kinds: Sequence[str]
) -> Launch:
    lines = tuple(map(gathered, axes(problem)))
    channels, results = _sides(problem, False)
    g = _geometry(problem, lines, channels, results, arrays)
    g.filter, at = _filter(problem, lines, arrays.filter, False)
    columns = channels * prod(len(line.taps) for line in lines)
    pointers = (arrays.filter.role, at), (arrays.big.role, 0), (arrays.small.role, 0)
    if dtype == "bf16" and "mma" in kinds:
        tiles = problem.groups * -(-results // TILE)
        return Launch("correlate_mma", (-(-columns // TILE), tiles), pointers, g)
    threads = problem.groups * results * columns
    return Launch(f"correlate_{dtype}", (-(-threads // THREADS), 1), pointers, g)


def _total_launch(problem: ConvProblem, dtype: str, b: Array, dy: Array) -> Launch:
    lines = [gathered(Axis(size, size, 1, 1, 1, 0, 0)) for size in dy.shape[2:]]
    lines = [gathered(Axis(1, 1, 1, 1, 1, 0, 0))] * (3 - len(lines)) + lines
    g = _geometry(problem, lines, 1, 1, Sum(dy, dy, b, None))
    g.bias = b.strides[0]
    return Launch(f"total_{dtype}", (problem.k, 1), ((b.role, 0), (dy.role, 0)), g)


def launches(call: Call, arrays: dict[str, Array], kinds: Sequence[str]) -> Iterator[Launch]:
    """Yield the launches of a call whose arrays, results too, lie as `arrays` says.

    Parameters
    ----------
    call : Call
    arrays : dict of str to Array
        By role.
    kinds : sequence of str
        Which kernels may be taken: "direct", and "mma" before it where it is there.
    """
    problem = call.conv
    for role in call.wanted:
        out, terms, base = arrays[role], call.terms(role), BASE_ROLE[role]
        if prod(out.shape) == 0:
            continue
        if base == "b":
            yield _total_launch(problem, call.dtype, out, arrays[terms.added[0]])
            continue
        ((first, second),) = terms.products
        if base == "w":
            small, big = (second, first) if problem.transposed else (first, second)
            sides = Sum(arrays[big], arrays[small], out, None)
            yield _correlate_launch(problem, call.dtype, sides, kinds)
        else:
            scatter = problem.transposed == (base == "y")
            bias = arrays[terms.added[0]] if terms.added else None
            sides = Sum(arrays[first], out, arrays[second], bias)
            yield from _sum_launches(problem, scatter, call.dtype, sides, kinds)


class Runner(Protocol):
    """Where launches run."""

    device: str

    def missing(self) -> str | None:
        """Return None, or why nothing runs here."""

    def dense(self, call: Call, role: str, operand: Any) -> Any:
        """Return an operand whose memory the kernels can read."""

    def empty(self, call: Call, role: str, given: dict[str, Any]) -> Any:
        """Return memory for a result."""

    def facts(self, role: str, array: Any) -> Array:
        """Return what launches need to know of an array."""

    def run(self, launch: Launch, arrays: dict[str, Any], written: str) -> None:
        """Run one launch."""


class GpuBackend:
    """Computes fprop and backward of convolutions with the GPU kernels.

    Parameters
    ----------
    name : str
    runner : Runner
    kinds : tuple of str
        Which kernels may be taken.
    arms : tuple of Arm
        The ways in which the court shall run it.
    """

    def __init__(
        self,
        name: str,
        runner: Runner,
        kinds: tuple[str, ...] = ("mma", "direct"),
        arms: tuple[Arm, ...] = (PLAIN,),
    ) -> None:
        self.name, self.runner, self.kinds, self.arms = name, runner, kinds, arms

    def supports(self, call: Call) -> str | None:
        """Return None, or what is missing: a kernel, a dtype, a device or the PTX."""
        if call.op != "conv" or call.pass_ not in ("fprop", "backward"):
            return f"no {call.op}.{call.pass_} kernel for the GPU"
        if call.dtype not in DTYPES:
            return f"no kernel for {call.dtype}, only for {', '.join(DTYPES)}"
        if call.math != "ieee":
            return f"no math={call.math}, products are exact"
        if any(spec.device != self.runner.device for spec in call.specs):
            return f"only the device {self.runner.device} is served"
        if max(prod(call.problem.shape(role)) for role in (*call.roles, *call.wanted)) >= SPAN:
            return "offsets have 32 bits, an array has 2**31 elements or more"
        if call.problem.groups * -(-max(call.problem.c, call.problem.k) // TILE) > BROADEST:
            return f"more than {BROADEST} tiles of channels"
        return self.runner.missing() or emit.missing()

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role.

        Raises
        ------
        UnsupportedError
            If `supports` gives a reason, or strides reach beyond 2**31 elements.
        """
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        given = {
            role: self.runner.dense(call, role, operand)
            for role, operand in zip(call.roles, operands)
            if call.is_present(role)
        }
        results = {role: self.runner.empty(call, role, given) for role in call.wanted}
        arrays = {role: self.runner.facts(role, a) for role, a in (given | results).items()}
        if max(array.reach for array in arrays.values()) >= SPAN:
            what = "offsets have 32 bits, an array reaches over 2**31 elements or more"
            raise UnsupportedError(message(self.name, what, call))
        for launch in launches(call, arrays, self.kinds):
            self.runner.run(launch, given | results, launch.pointers[0][0])
        return tuple(results.get(role) for role in call.signature.results)

    def numerics(self, call: Call) -> Numerics:
        """Return the model: tensor-core sums in float32 for bfloat16, else sums that round."""
        if call.dtype == "bf16" and "mma" in self.kinds:
            return Numerics("mma32")
        return Numerics("rn64" if call.dtype == "f64" else "rn32")

    def fingerprint(self) -> dict[str, str]:
        """Return the sources of the kernels and the compiler, or what is missing."""
        if (reason := self.runner.missing() or emit.missing()) is not None:
            return {"missing": reason}
        return {"sources": emit.source_hash(), "compiler": emit.version() or ""}


class Interpreter:
    """Runs the PTX of one architecture with NumPy."""

    device = "cpu"

    def __init__(self, arch: str) -> None:
        self.arch, self.seed = arch, 0

    def missing(self) -> str | None:
        """Return None: NumPy is there."""
        return None

    def dense(self, call: Call, role: str, operand: Any) -> Any:
        """Return a copy without gaps, its axes in the order in which they lie."""
        return checked(call, role, operand).copy(order="K")  # type: ignore[union-attr]

    def empty(self, call: Call, role: str, given: dict[str, Any]) -> Any:
        """Return NaN in memory for a result."""
        out = result(call, role, given)
        out.fill(np.nan)
        return out

    def facts(self, role: str, array: Any) -> Array:
        """Return what launches need to know of an array."""
        strides = tuple(
            0 if n == 1 else s // array.itemsize for n, s in zip(array.shape, array.strides)
        )
        return Array(role, array.shape, strides, True)

    def run(self, launch: Launch, arrays: dict[str, Any], written: str) -> None:
        """Run one launch, each with another order of warps."""
        from convref_ptx import Buffer
        from convref_ptx import launch as run

        arguments: list[Any] = []
        for role, at in launch.pointers:
            if not role:
                arguments.append(None)
                continue
            flat = _flat(arrays[role])
            arguments.append(Buffer(flat, role == written, at * flat.itemsize))
        self.seed += 1
        run(
            _program(self.arch, launch.kernel),
            launch.grid,
            (THREADS,),
            [*arguments, bytes(launch.geometry)],
            self.seed,
        )


@cache
def _program(arch: str, kernel: str) -> Any:
    from convref_ptx import parse

    return parse(emit.texts()[arch, kernel])


def _flat(array: Any) -> Any:
    """Return the memory of an array without gaps, as it lies."""
    order = np.argsort([-abs(s) for s in array.strides], kind="stable")
    return array.transpose(order).reshape(-1)


class Device:
    """Runs PTX on torch's CUDA tensors and its current stream."""

    device = "cuda"

    def missing(self) -> str | None:
        """Return None, or that there is no CUDA device of sm_80 or newer."""
        try:
            import torch
        except ImportError:
            return "needs torch for its CUDA tensors"
        if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
            return "needs a CUDA device of sm_80 or newer"
        return None

    def dense(self, call: Call, role: str, operand: Any) -> Any:
        """Return the operand, checked: strides are arguments of the kernels."""
        got = tuple(operand.shape), str(operand.dtype).removeprefix("torch.")
        need = call.problem.shape(role), _torch_name(call.dtype)
        if got != need:
            where = f"{call.op}.{call.pass_}"
            raise UnsupportedError(message(where, f"{role} is {got}, needs {need}", call))
        return operand.detach()

    def empty(self, call: Call, role: str, given: dict[str, Any]) -> Any:
        """Return memory for a result, which lies as the operand of its own role does."""
        import torch

        shape, like = call.problem.shape(role), next(iter(given.values()))
        same = [a for r, a in given.items() if BASE_ROLE[r] == BASE_ROLE[role]]
        images = [a for a in (*same, like) if a.dim() == len(shape)]
        last = images and len(shape) in (4, 5) and images[0].stride(1) == 1
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        layout = formats[len(shape)] if last else torch.contiguous_format
        return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)

    def facts(self, role: str, array: Any) -> Array:
        """Return what launches need to know of an array."""
        strides = tuple(0 if n == 1 else s for n, s in zip(array.shape, array.stride()))
        return Array(role, tuple(array.shape), strides, array.data_ptr() % 16 == 0)

    def run(self, launch: Launch, arrays: dict[str, Any], written: str) -> None:
        """Run one launch on the current stream of the result's device."""
        import torch

        out = arrays[written]
        major, minor = torch.cuda.get_device_capability(out.device)
        arch = "sm_90a" if (major, minor) == (9, 0) else "sm_80"
        addresses = [
            arrays[role].data_ptr() + at * out.element_size() if role else 0
            for role, at in launch.pointers
        ]
        with torch.cuda.device(out.device):
            kernel = loaded(arch, launch.kernel, out.device.index or 0)
            stream = torch.cuda.current_stream().cuda_stream
            kernel.launch(launch.grid, [*addresses, bytes(launch.geometry)], stream)


def _torch_name(code: str) -> str:
    return "bfloat16" if code == "bf16" else dtypes.numpy_dtype(code).name


@cache
def loaded(arch: str, kernel: str, device: int, driver: Any = None) -> Any:
    """Return a kernel that the driver has loaded."""
    from convref_driver import load

    text = emit.texts()[arch, kernel]
    return load(text.encode(), manifest(text), device, driver)


def manifest(text: str) -> Any:
    """Return what a launch needs to know of a kernel, read from its PTX."""
    from convref_driver import Manifest
    from convref_ptx import parse

    program = parse(text)
    kinds = ("ptr" if p.size == 8 else f"bytes{p.size}" for p in program.parameters)
    return Manifest(program.name, tuple(kinds), (THREADS, 1, 1))


interpreted_direct = GpuBackend("mojo.interpreted.direct", Interpreter("sm_80"), ("direct",))
interpreted_sm_80 = GpuBackend("mojo.interpreted.sm_80", Interpreter("sm_80"))
interpreted = GpuBackend(
    "mojo.interpreted",
    Interpreter("sm_90a"),
    arms=(
        PLAIN,
        Arm("direct", backend=f"{__name__}:interpreted_direct"),
        Arm("sm_80", backend=f"{__name__}:interpreted_sm_80"),
    ),
)
backend = GpuBackend("mojo.cuda", Device())
