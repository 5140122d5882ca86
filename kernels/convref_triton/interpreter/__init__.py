"""Run a kernel's launch on CPU tensors with the arithmetic of a GPU, checking every access.

`execute(launch, tensors)` needs no environment variable; the kernel can still be compiled in this
process. With `strict`, a `StrictError` reports errors that a GPU does not; its `kind` is one of

- out-of-bounds, misaligned: an address outside the tensor that the pointer came from (a wrapped
  int32 too), or in a gap of its view;
- not-an-output, written-twice, never-written: each element of an output is stored exactly once, and
  nothing else is;
- cross-program-read: one program reads what another one writes, in either order;
- not-a-multiple, not-contiguous, not-constant, assumption: a hint that is false;
- unaligned: a Slot declared 16-byte aligned that is not;  grid: more programs than CUDA allows;
- atomic: sums in an undefined order (refused without `strict`, too).

Masked lanes of a load without `other` hold NaN or a huge integer, and programs run in a seeded
random order, many at once as one vector. Not modelled: races within a program, pipelining, layouts,
the order of sums.
"""

import functools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from convref.dtypes import EIGHT, ML_DTYPES, numpy_dtype
from convref.errors import invalid, message

from ..compile.specialize import COMPILED_IN, TRITON_TYPES
from ..plan.launch import Descriptor, Launch, Slot, flatten, map_arguments
from .builder import Builder
from .errors import StrictError
from .fixes import FP8, integer, scalar
from .hint_checks import HINTS, checked
from .memory import Array, CheckedMemory, MappedTensor
from .programs import ALONE, Split
from .python_functions import PythonFunctions
from .triton_internals import TensorHandle

__all__ = ["StrictError", "execute"]

MOST_TOGETHER = 4096
MOST_PROGRAMS = (2**31 - 1, 65_535, 65_535)
NAMES = {code: numpy_dtype(code).name for code in TRITON_TYPES if code not in ML_DTYPES}
# The types of PyTorch and of the kernel language, whose names differ for 8-bit floats.
TYPES = {
    code: (getattr(torch, name), getattr(tl, name))
    for code, name in {"bf16": "bfloat16", **NAMES}.items()
}
TYPES |= {code: (FP8[kind], kind) for code, kind in zip(EIGHT, FP8)}


@functools.cache
def interpreter() -> tuple[Builder, PythonFunctions]:
    builder = Builder()
    return builder, PythonFunctions(builder, {name: checked(name, builder) for name in HINTS})


def execute(
    launch: Launch,
    tensors: Mapping[str, torch.Tensor],  # on the CPU, by the role of their Slot
    *,
    # Whether the module's rules are checked; addresses outside all tensors are always errors.
    strict: bool = True,
    outputs: Collection[str] | None = None,  # roles that must be written completely
    # Roles that may be written, completely or not at all; all roles if neither this nor `outputs`
    # is given.
    writable: Collection[str] | None = None,
    partial: Collection[str] = (),  # roles of which a part may be written
    # "grid" (x slowest), "reversed" or "shuffled": results must not depend on it.
    order: str = "shuffled",
    seed: int = 0,  # of the shuffled order
    at_most: int = MOST_TOGETHER,  # programs that run together, in shuffled order with `strict`
) -> None:
    """Interpret `launch` on `tensors` in place; raise StrictError if the kernel broke a rule."""
    builder, functions = interpreter()
    name = launch.kernel.fn.__name__
    memory = CheckedMemory(
        _checked_tensors(launch, tensors, strict), strict, outputs, writable, partial
    )
    memory.where = name
    if strict and any(n > most for n, most in zip(launch.grid, MOST_PROGRAMS)):
        raise StrictError("grid", name, f"{launch.grid} programs, needs at most {MOST_PROGRAMS}")
    with functions.language(), np.errstate(all="ignore"):
        functions.refresh()
        kernel = functions.of(launch.kernel)
        constants = {n: functions.interpreted(value) for n, value in launch.constants.items()}
        builder.memory = memory
        argument = functools.partial(_argument, memory=memory, functions=functions)
        arguments = {n: map_arguments(argument, a) for n, a in launch.arguments.items()}
        builder.elements = 1
        programs = _order(math.prod(launch.grid), order, seed)
        most = at_most if strict and order == "shuffled" else 1
        _run_all(lambda: kernel(**arguments, **constants), launch, programs, most, builder)
        memory.where = name
    memory.finish()


def _run_all(
    kernel: Callable[[], Any], launch: Launch, programs: Array, most: int, builder: Builder
) -> None:
    """Run programs, at most so many together, and together again those that split alike."""
    waiting = {(): programs} if programs.size else {}
    while waiting:
        path = min(waiting, key=lambda path: (ALONE not in path, len(path)))
        count = 1 if ALONE in path else min(most, builder.most_programs())
        group, rest = np.split(waiting.pop(path), [count])
        if rest.size:
            waiting[path] = rest
        for turn, part in _run(kernel, launch, group, builder):
            known = waiting.get((*path, *turn), group[:0])
            waiting[*path, *turn] = np.concatenate([part, known])


def _run(
    kernel: Callable[[], Any], launch: Launch, programs: Array, builder: Builder
) -> list[tuple[tuple[Any, ...], Array]]:
    """Run some programs together; return the parts that start again, and what they differ in.

    An error is left to one program alone, so that it names that program.
    """
    builder.start(programs, launch.grid)
    where = f"{launch.kernel.fn.__name__}{builder.grid_idx}"
    builder.memory.start(programs, where)
    try:
        kernel()
        return []
    except Split as split:
        builder.memory.undo()
        return split.parts(programs)
    except Exception as error:
        if len(programs) > 1:
            builder.memory.undo()
            return [((ALONE,), programs)]
        error.add_note(f"interpreting {where}")
        raise


def _checked_tensors(
    launch: Launch, tensors: Mapping[str, torch.Tensor], strict: bool
) -> dict[str, torch.Tensor]:
    """Return the tensors of the launch, after checking them against their Slots."""
    used = {}
    for argument in flatten(tuple(launch.arguments.values())):
        slot = argument.slot if isinstance(argument, Descriptor) else argument
        if isinstance(slot, Slot):
            used[slot.role] = tensors[slot.role]
            _check_tensor(launch.kernel.fn.__name__, slot, tensors[slot.role], strict)
    return used


def _check_tensor(name: str, slot: Slot, tensor: torch.Tensor, strict: bool) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(message(name, f"{slot.role} is on {tensor.device}, needs the CPU"))
    if tensor.dtype != TYPES[slot.dtype][0]:
        raise TypeError(message(name, f"{slot.role} is {tensor.dtype}, needs {slot.dtype}"))
    if strict and slot.aligned and tensor.data_ptr() % 16:
        what = f"{slot.role} needs an address that is a multiple of 16, as its Slot declares"
        raise StrictError("unaligned", name, what)


def _order(programs: int, order: str, seed: int) -> Array:
    if order == "shuffled":
        return np.random.default_rng(seed).permutation(programs)
    if order not in ("grid", "reversed"):
        raise ValueError(message("order", f"got {order!r}, needs grid, reversed or shuffled"))
    return np.arange(programs)[:: 1 if order == "grid" else -1]


def _argument(value: Any, memory: CheckedMemory, functions: PythonFunctions) -> Any:
    if isinstance(value, Slot):
        return _pointer(memory.regions[value.role], TYPES[value.dtype][1])
    if isinstance(value, Descriptor):
        return _descriptor(value, memory, functions)
    if isinstance(value, bool):
        return scalar(value, tl.int1)
    if isinstance(value, COMPILED_IN):
        return functions.interpreted(value.value if isinstance(value, tl.constexpr) else value)
    return integer(value) if isinstance(value, int) else scalar(value, tl.float32)


def _pointer(region: MappedTensor, element: Any) -> Any:
    dtype = tl.pointer_type(element)
    return tl.tensor(TensorHandle(np.array([region.base], np.uint64), dtype), dtype)


def _descriptor(value: Descriptor, memory: CheckedMemory, functions: PythonFunctions) -> Any:
    if value.every:
        raise invalid("interpreter", "does not support boxes with strides (`every`)")
    tensor = memory.regions[value.slot.role].tensor
    host = TensorDescriptor(tensor, list(value.shape), list(value.strides), list(value.block))
    return functions.semantic.make_tensor_descriptor(
        base=_argument(value.slot, memory, functions),
        shape=[integer(n) for n in host.shape],
        strides=[*(integer(n) for n in host.strides[:-1]), tl.constexpr(1)],
        block_shape=[tl.constexpr(n) for n in host.block_shape],
        padding_option=host.padding,
    )
