"""A KernelPlan in a JAX program for CUDA: each launch is a custom call that jax-triton makes.

The kernels are compiled when the program is lowered, which needs no GPU. XLA's arrays are dense; a
tensor of a plan is an array whose axes are those of the tensor in memory, outermost first.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from convref import dtypes
from convref.case import Call
from convref.errors import UnsupportedError, message, missing_extra

from ..common.geometry import Tensor
from ..hopper.gluon import RELEASE
from ..hopper.precompiled import Precompiled
from ..plan import archs
from ..plan.builder import NEW, Builder, channels_last, dense
from ..plan.choose import WINDOWED, Choice, offered, plan, ranked, tasks
from ..plan.launch import Buffer, Copy, Descriptor, KernelPlan, Launch, Slot, Table

try:
    import jax
    import jax.numpy as jnp
    import jax_triton
except ImportError as error:
    raise missing_extra("jax-triton", error) from None

Arrays = Mapping[str, Any]  # by role, in the axis order of the formulas
Order = tuple[int, ...]  # axes of a tensor in memory, outermost first


def results(call: Call, operands: Arrays) -> dict[str, Any]:
    """Return the results of a call by role: arrays of the program that is being traced."""
    arch, sms, card = device()
    tensors = {role: _tensor(call, role) for role in operands}
    made = supported_plan(call, tensors, arch, sms, card)
    arrays = dict(operands) | {name: _table_array(table) for name, table in made.tables.items()}
    tensors |= {
        name: Tensor(
            name, table.shape, dense(table.shape, tuple(range(len(table.shape)))), table.dtype
        )
        for name, table in made.tables.items()
    }
    for step in made.steps:
        if isinstance(step, Copy):
            arrays[step.target] = _copied(step, arrays[step.source], made.buffers[step.target])
        else:
            arrays |= _launched(step, arrays, tensors, made.buffers, arch)
    return {
        name.removesuffix(NEW): arrays[name] if name in arrays else _empty(buffer)
        for name, buffer in made.buffers.items()
    }


def device() -> tuple[str, int, str]:
    """Return architecture, multiprocessors and name of the first GPU; sm_90 where there is none."""
    try:
        first = jax.devices("cuda")[0]
    except RuntimeError:
        return archs.DEFAULT, 0, ""
    return f"sm_{first.compute_capability.replace('.', '')}", first.core_count, first.device_kind


def supported_plan(
    call: Call, tensors: Mapping[str, Tensor], arch: str, sms: int = 0, card: str = ""
) -> KernelPlan:
    """Return the default plan of a call, or the first one without what jax-triton does not have."""

    def planned(choice: Choice | None) -> KernelPlan:
        return plan(call, tensors, choice, card, arch=arch, sms=sms)

    default = planned(None)
    if reason := _why_unsupported(default):
        first = next(tasks(Builder(call, tensors), arch=arch, sms=sms))
        plans = map(planned, ranked(first, offered(call, tensors, arch)))
        default = next((one for one in plans if not _why_unsupported(one)), default)
        if _why_unsupported(default):
            raise UnsupportedError(message(f"triton: {call.where}", reason, call))
    return default


def _why_unsupported(made: KernelPlan) -> str:
    """Return what a plan has that jax-triton cannot launch; empty if nothing."""
    for step in made.launches:
        if isinstance(step.kernel, Precompiled):
            return "a kernel is precompiled, which jax-triton cannot launch"
        for value in step.arguments.values():
            if not isinstance(value, Descriptor):
                continue
            if value.every or value.corners:
                return "a kernel reads by a tensor map with steps, which jax-triton cannot make"
            if RELEASE < (3, 8):
                return "a kernel reads by a tensor map, for which jax-triton needs Triton 3.8"
    return ""


def _tensor(call: Call, role: str) -> Tensor:
    """Return an operand as the plan sees it: channels are innermost where windows slide."""
    shape = call.problem.shape(role)
    order = channels_last(len(shape) - 2) if call.op in WINDOWED and len(shape) > 2 else None
    strides = dense(shape, order or tuple(range(len(shape))))
    return Tensor(role, shape, strides, call.dtype_of(role))


def _table_array(table: Table) -> Any:
    numbers = np.frombuffer(table.data, dtypes.numpy_dtype(table.dtype))
    return jnp.asarray(numbers.reshape(table.shape))


def _order(strides: tuple[int, ...]) -> Order:
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))


def _stored(array: Any, strides: tuple[int, ...]) -> Any:
    return jnp.transpose(array, _order(strides))


def _logical(stored: Any, strides: tuple[int, ...]) -> Any:
    order = _order(strides)
    return jnp.transpose(stored, tuple(order.index(axis) for axis in range(len(order))))


def _empty(buffer: Buffer) -> Any:
    return jnp.zeros(buffer.shape, _type(buffer).dtype)


def _copied(step: Copy, source: Any, target: Buffer) -> Any:
    """Return `source` with zeros to the size of `target`, as `interpreted.copy` does."""
    if step.blocks:  # (blocks, groups, filters of a group, channels of a group, ...)
        filters = source.reshape(*step.blocks, -1, *source.shape[1:])[:, :, :, None]
        groups, rest = step.blocks[1], (1,) * (source.ndim - 1)
        own = jnp.eye(groups, dtype=bool).reshape(1, groups, 1, groups, *rest)
        filters = jnp.where(own, filters, jnp.zeros((), source.dtype))
        source = filters.reshape(source.shape[0], -1, *source.shape[2:])
    more = [(0, wide - size) for wide, size in zip(target.shape, source.shape, strict=True)]
    return jnp.pad(source, more) if any(after for _, after in more) else source


def _launched(
    launch: Launch,
    arrays: Arrays,
    tensors: Mapping[str, Tensor],
    buffers: Mapping[str, Buffer],
    arch: str,
) -> dict[str, Any]:
    """Return the buffers that a launch writes: those that no step before has written."""
    strides = {name: each.strides for name, each in (tensors | dict(buffers)).items()}
    given, made = dict[str, Any](), dict[str, str]()
    for name in (p.name for p in launch.kernel.params if p.name in launch.arguments):
        value = launch.arguments[name]
        slot = value.slot if isinstance(value, Descriptor) else value
        if not isinstance(slot, Slot):
            given[name] = value
        elif slot.role not in arrays:
            # The last pointers of a kernel are its results, unless arrays are given to write into.
            made[name], kind = slot.role, _type(buffers[slot.role])
            given[name] = jax.lax.empty(kind.shape, kind.dtype)
        else:
            stored = _stored(arrays[slot.role], strides[slot.role])
            given[name] = _mapped(value, stored) if isinstance(value, Descriptor) else stored
    place = {name: i for i, name in enumerate(given)}
    with warnings.catch_warnings():  # aliases are deprecated in favour of mutable arrays
        warnings.simplefilter("ignore", DeprecationWarning)
        found = jax_triton.triton_call(
            kernel=launch.kernel,
            out_type=[_type(buffers[role]) for role in made.values()],
            input_output_aliases={place[name]: i for i, name in enumerate(made)},
            grid=launch.grid,
            num_warps=launch.warps,
            num_stages=launch.stages,
            compute_capability=int(arch.removeprefix("sm_")),
            backend_options={"enable_fp_fusion": True},
            **given,
            **launch.constants,
        )
    return {role: _logical(a, strides[role]) for role, a in zip(made.values(), found)}


def _mapped(value: Descriptor, stored: Any) -> Any:
    from jax_triton.triton_lib import TensorDescriptor

    return TensorDescriptor(stored, value.shape, value.strides, value.block)


def _type(buffer: Buffer) -> Any:
    """Return the array of a buffer; without x64, JAX has no 64-bit types."""
    shape = tuple(buffer.shape[axis] for axis in _order(buffer.strides))
    dtype = jax.dtypes.canonicalize_dtype(dtypes.numpy_dtype(buffer.dtype))
    return jax.ShapeDtypeStruct(shape, dtype)
