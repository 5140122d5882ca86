"""The memory around operands and outputs, and the calls around a call.

`convref.case.AROUND` names what a case may have around it; docs/line.md has the meanings.
"""

import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..arrays import Array
from ..backends import Backend
from ..case import Call, Case, axis_letters, channels_last
from .operands import SPARSE, operands, poison

Operands = tuple[Array | None, ...]
Compute = Callable[..., Any]  # of a call and its operands

# The surroundings of generated cases, in turn. The last earlier call decides for a cache of one.
TURNS: tuple[tuple[str, ...], ...] = (
    ("data", "dtype"),
    ("threads",),
    ("batch", "data"),
    ("pages",),
    ("dtype", "memory"),
    ("data",),
    ("memory", "batch"),
    ("alias", "data"),
)
TURN_EVERY, TURN_AT = 8, 4  # of generated cases, the fifth of eight
_ALIKE = ("f32 f64", "f16 bf16", "c64 c128", "i8 u8", "i16 i32", "e4m3 e5m2")
_OTHER_TYPE = dict(pair for a, b in map(str.split, _ALIKE) for pair in ((a, b), (b, a)))
LARGEST = 2**24  # bytes from the first to the last element of an operand that is moved
_ROUNDS = 4  # calls of each of two threads

BAND = 256  # elements on each side
PATTERN = 0xA5  # no poison, no zero, no small number: any write shows


class Guards:
    """Calls `run_into` on fresh outputs, and remembers the memory around them.

    An output is contiguous; its ``base`` is the one-dimensional array of bytes that holds it,
    bands included, so that an adapter for another device can copy all of it there and back.
    """

    def __init__(self) -> None:
        self.buffers: list[tuple[str, int, Array]] = []  # role, bytes of a band, all bytes

    def outputs(self, call: Call) -> tuple[Array | None, ...]:
        """Return one new output for each result role, None where it is masked off."""
        return call.results(lambda role: self._output(call, role))

    def _output(self, call: Call, role: str) -> Array:
        shape = call.problem.shape(role)
        dtype = dtypes.numpy_dtype(call.dtype_of(role))
        band, size = BAND * dtype.itemsize, prod(shape) * dtype.itemsize
        whole = np.full(size + 2 * band, PATTERN, np.uint8)
        output = np.ndarray(shape, dtype, whole, band)
        output[...] = poison(call.dtype_of(role))
        self.buffers.append((role, band, whole))
        return output

    def run(self, backend: Any, call: Call, *operands: Any) -> tuple[Array | None, ...]:
        """Return the results that `backend` writes into new outputs; each call may be another."""
        outputs = self.outputs(call)
        backend.run_into(call, outputs, *operands)
        return outputs

    def violation(self) -> str:
        """Return which band was written to, and where; empty if none was."""
        for role, band, whole in self.buffers:
            size = band // BAND
            low = np.flatnonzero(whole[:band] != PATTERN)
            high = np.flatnonzero(whole[-band:] != PATTERN)
            if len(low):
                return f"{role}: wrote {-((int(low[0]) - band) // size)} elements before its start"
            if len(high):
                return f"{role}: wrote {int(high[-1]) // size + 1} elements after its end"
        return ""


def with_surroundings(case: Case, index: int, backend: Any) -> Case:
    """Return the example at `index` of a chunk: one in 8 has calls or memory around it.

    No two threads call a backend that is `serial`, and no earlier calls one that is `stateless`.
    """
    turn, rest = divmod(index, TURN_EVERY)
    around = TURNS[turn % len(TURNS)] if rest == TURN_AT else ()
    if getattr(backend, "serial", False):
        around = tuple(name for name in around if name != "threads")
    if getattr(backend, "stateless", False):
        around = tuple(name for name in around if name not in _EARLIER)
    return replace(case, around=around) if around else case


def other_data(case: Case) -> Case:
    """Return the case with other data."""
    return replace(case, seed=(case.seed + 1) % 2**63)


def make_earlier_calls(
    case: Case,
    given: Operands,
    backend: Backend,
    compute: Compute,
    excluded: Callable[[Case], str | None],
) -> Iterator[tuple[Any, bytes]]:
    """Make the calls that `case.around` names; yield their results, each with its contents.

    A call that the backend refuses, or that is `excluded`, is left out. What one raises does not
    count: it is not the call that is judged.
    """
    for name in case.around:
        try:
            other = _EARLIER[name](case) if name in _EARLIER else None
            if other is None or backend.supports(other.call) or excluded(other):
                continue
            arrays = operands(other)
            if name == "data":
                with _Contents(given, arrays):
                    results = compute(other.call, *given)
            else:
                results = compute(other.call, *arrays)
        except Exception:  # whatever a third-party backend raises
            continue
        for result in results if isinstance(results, tuple) else ():
            if isinstance(result, np.ndarray):
                yield result, result.tobytes()


def _of_other_type(case: Case) -> Case | None:
    call = case.call
    if call.dtype not in _OTHER_TYPE:
        return None
    other = _OTHER_TYPE[call.dtype]
    specs = tuple(replace(s, dtype=other) if s.dtype == call.dtype else s for s in call.specs)
    return replace(case, call=replace(call, specs=specs), around=())


def _of_other_batch(case: Case) -> Case:
    """Return the case with one image less or more, as the seed decides."""
    n = case.call.problem.n
    problem = replace(case.call.problem, n=n - 1 if n > 1 and case.seed % 2 else n + 1)
    return replace(case, call=replace(case.call, problem=problem), around=())


def _in_other_memory(case: Case) -> Case:
    call = case.call
    orders = [channels_last(axis_letters(call.problem, role)) for role in call.roles]
    if any(spec.order for spec in call.specs):
        orders = [""] * len(orders)
    specs = tuple(replace(spec, order=order) for spec, order in zip(call.specs, orders))
    return replace(case, call=replace(call, specs=specs), around=())


_EARLIER: dict[str, Callable[[Case], Case | None]] = {
    "data": other_data,
    "dtype": _of_other_type,
    "batch": _of_other_batch,
    "memory": _in_other_memory,
}


class _Contents:
    """Gives arrays the contents of others within a block."""

    def __init__(self, arrays: Operands, others: Operands) -> None:
        self.pairs = [
            (buffer(a), buffer(b)) for a, b in zip(arrays, others) if a is not None if b is not None
        ]
        self.kept = [a.copy() for a, _ in self.pairs]

    def __enter__(self) -> None:
        for array, other in self.pairs:
            array[...] = other

    def __exit__(self, *error: object) -> None:
        for (array, _), kept in zip(self.pairs, self.kept):
            array[...] = kept


def buffer(array: Array) -> Array:
    """Return the array that owns the memory of a view, or the outermost that NumPy has.

    Of a sparse buffer, return the view: the rest is zeros.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner if owner.size <= SPARSE else array


def on_pages(given: Operands) -> Operands:
    """Return the operands on read-only pages, each followed by a page that cannot be read.

    A kernel that writes to an operand, even if it restores it, or that reads past its end, ends its
    process.
    """
    moved: dict[int, Array] = {}
    for array in given:
        if array is not None and id(array) not in moved:
            low, high = np.lib.array_utils.byte_bounds(array)
            fits = array.dtype != object and 0 < high - low <= LARGEST
            moved[id(array)] = _on_pages(array, low, high) if fits else array
    return tuple(None if a is None else moved[id(a)] for a in given)


def _on_pages(array: Array, low: int, high: int) -> Array:
    if high - low > SPARSE * array.itemsize:
        return array
    page = mmap.PAGESIZE
    pages = -(-(high - low) // page)
    region = mmap.mmap(-1, (pages + 1) * page)
    start = pages * page - (high - low)
    memory = np.frombuffer(region, np.uint8, high - low, start)
    memory[:] = np.frombuffer(ctypes.string_at(low, high - low), np.uint8)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    first = memory.ctypes.data - start
    protect(first, pages * page, mmap.PROT_READ)
    protect(first + pages * page, page, 0)
    return np.ndarray(array.shape, array.dtype, memory, array.ctypes.data - low, array.strides)


def at_once(case: Case, given: Operands, compute: Compute) -> tuple[list[Any], Case, list[Any]]:
    """Call from two threads at the same time: the case, and the same call on other data.

    Return the results of each, and the other case. An exception is a result.
    """
    other = other_data(case)
    calls = (given, operands(other))
    results: tuple[list[Any], list[Any]] = ([], [])
    barrier = threading.Barrier(len(calls))

    def work(number: int) -> None:
        for _ in range(_ROUNDS):
            barrier.wait()
            try:
                results[number].append(compute(case.call, calls[number]))
            except Exception as error:
                results[number].append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results[0], other, results[1]
