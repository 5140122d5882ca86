"""The programs of a launch as one vector.

The first axis of every array is that of programs, before the axes of its block; its length is 1
where all programs have the same values. So an operation runs once for many programs. Where control
flow needs a number in which programs differ, `Split` divides them, and each part starts again.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl

from .triton_internals import InterpreterBuilder, TensorDescHandle, TensorHandle, numpy_dtype

Array = np.ndarray[Any, Any]
MOST_ELEMENTS = 2**18  # of a block times programs, about what fits into a cache

# Methods of Triton's builder that ignore the axes of their operands, and call no method that does.
_ANY_AXES = {"create_fabs", "create_erf", "create_rsqrt", "create_bitcast", "create_int_to_ptr",
             "create_ptr_to_int", "create_idiv", "create_ashr", "create_fp_to_fp", "create_addptr",
             "create_split", "create_assert", "create_barrier", "create_get_num_programs",
             "create_dot", "create_descriptor_load", "create_descriptor_store"}  # fmt: skip
_ELEMENTWISE = {
    "binary_op",
    "unary_op",
    "ternary_op",
    "cast_impl",
    "create_idiv",
}  # what methods that work element by element call first


ALONE = "alone"  # in a path, instead of a value: these programs run one by one


class Split(Exception):
    """Programs cannot run together: those with equal `values` can; without values, none can."""

    def __init__(self, values: Array | None = None) -> None:
        super().__init__()
        self.values = values

    def parts(self, programs: Array) -> list[tuple[tuple[Any, ...], Array]]:
        """Return programs that can run together, with their values."""
        kinds, number = np.unique([] if self.values is None else self.values, return_inverse=True)
        if len(kinds) < 2:
            return [((ALONE,), programs)]
        return [((kind,), programs[number == n]) for n, kind in enumerate(kinds.tolist())]


class TooMany(Split):
    """The blocks of so many programs do not fit into a cache: fewer have to run together."""

    def parts(self, programs: Array) -> list[tuple[tuple[Any, ...], Array]]:
        return [((), programs)]


def uniform_value(values: Array) -> Any:
    """Return the number that all programs have; raise Split if they differ."""
    if values.size > 1 and (values != values.flat[0]).any():
        raise Split(values.ravel())
    return values.flat[0].item()


class ProgramsBuilder(InterpreterBuilder):  # type: ignore[misc]
    """The operations of Triton's builder that depend on the axes of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.programs = 1
        self.elements = 1  # of the largest block so far that is not the same in all programs
        for name, method in vars(InterpreterBuilder).items():
            mine = getattr(type(self), name)
            if name.startswith("create_") and mine is method and _depends_on_axes(name, method):
                setattr(self, name, one_program_at_a_time(self, getattr(self, name)))

    def start(self, programs: Array, grid: tuple[int, ...]) -> None:
        """Let the following operations be those of some programs of a grid."""
        self.programs, self.grid_dim = len(programs), grid
        places = [np.asarray(i, np.int32) for i in np.unravel_index(programs, grid)]
        self.grid_idx = tuple(int(i[0]) for i in places)
        self._places = [i[:1] if (i == i[0]).all() else i for i in places]

    def check_size(self, data: Array, shape: Sequence[int]) -> None:
        """Raise TooMany if so many blocks of a shape do not fit into a cache."""
        if len(data) == 1 or self.programs == 1:
            return
        self.elements = max(self.elements, math.prod(map(int, shape)))
        if self.most_programs() < self.programs:
            raise TooMany

    def most_programs(self) -> int:
        return max(1, MOST_ELEMENTS // self.elements)

    def create_get_program_id(self, axis: int) -> Any:
        return TensorHandle(self._places[axis], tl.int32)

    def create_make_range(self, ret_ty: Any, start: int, stop: int) -> Any:
        return TensorHandle(np.arange(start, stop, dtype=np.int32)[None], tl.int32)

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        shape = ret_ty.shape
        data = arg.data.reshape(-1, *(1,) * len(shape))
        self.check_size(data, shape)
        data = np.full((len(data), *shape), data, numpy_dtype(arg.dtype))
        return TensorHandle(data, arg.dtype.scalar)

    def create_unsplat(self, arg: Any) -> Any:
        return TensorHandle(arg.data.reshape(-1), arg.dtype.scalar)

    def create_expand_dims(self, arg: Any, axis: int) -> Any:
        return TensorHandle(np.expand_dims(arg.data, axis + 1), arg.dtype.scalar)

    def create_broadcast(self, arg: Any, shape: Sequence[int]) -> Any:
        self.check_size(arg.data, shape)
        return TensorHandle(np.broadcast_to(arg.data, (len(arg.data), *shape)), arg.dtype.scalar)

    def create_reshape(self, arg: Any, shape: Sequence[int], allow_reorder: bool) -> Any:
        return TensorHandle(arg.data.reshape(len(arg.data), *shape), arg.dtype.scalar)

    def create_trans(self, arg: Any, perm: Sequence[int]) -> Any:
        return TensorHandle(arg.data.transpose(0, *(int(n) + 1 for n in perm)), arg.dtype.scalar)

    def create_join(self, lhs: Any, rhs: Any) -> Any:
        data = np.stack(np.broadcast_arrays(lhs.data, rhs.data), axis=-1)
        return TensorHandle(data, lhs.dtype.scalar)

    def create_make_tensor_descriptor(
        self, base: Any, shape: Sequence[Any], strides: Sequence[Any], *rest: Any, **more: Any
    ) -> Any:
        if any(len(handle.data) > 1 for handle in (base, *shape, *strides)):
            raise Split  # a box has no axis of programs
        box = object.__new__(_Box)
        made = super().create_make_tensor_descriptor(base, shape, strides, *rest, **more)
        vars(box).update(vars(made))
        return box


class _Box(TensorDescHandle):  # type: ignore[misc]
    """A descriptor that all programs share; their offsets into it may differ."""

    def materialize_pointers(self, offsets: Sequence[Any]) -> tuple[Any, Array]:
        itemsize = self.base.dtype.element_ty.primitive_bitwidth // 8
        assert not (offsets[-1].data * itemsize % 16).any(), (
            "block offset start must be 16-byte aligned"
        )
        addresses, masks = self.base.data, np.ones(1, bool)
        for axis, size in enumerate(self.block_shape):
            along = [-1, *(1,) * len(self.block_shape)]
            place = offsets[axis].data.reshape(along)
            along[0], along[axis + 1] = 1, size
            place = place + np.arange(size).reshape(along)
            addresses = addresses + (itemsize * place * self.strides[axis].data).astype(np.uint64)
            masks = masks & (place >= 0) & (place < self.shape[axis].data)
        return TensorHandle(addresses, self.base.dtype.scalar), masks


def _depends_on_axes(name: str, method: Any) -> bool:
    """Return whether a method of Triton's builder may depend on the axes of its operands."""
    return name not in _ANY_AXES and method.__code__.co_names[0] not in _ELEMENTWISE


def one_program_at_a_time(
    builder: ProgramsBuilder, function: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function of blocks as one that takes an axis of programs, of length 1."""

    def run(*arguments: Any, **more: Any) -> Any:
        if builder.programs > 1:
            raise Split
        return _mapped(
            lambda data: data[None],
            function(
                *(_mapped(_first, value) for value in arguments),
                **{name: _mapped(_first, value) for name, value in more.items()},
            ),
        )

    return run


def _first(data: Array) -> Array:
    return data[0] if data.ndim > 1 else data


def _mapped(change: Callable[[Array], Array], value: Any) -> Any:
    """Return a value with another array in each handle, and in each tensor."""
    if isinstance(value, TensorHandle):
        return TensorHandle(change(value.data), value.dtype)
    if isinstance(value, tl.tensor):
        return tl.tensor(_mapped(change, value.handle), value.type)
    if isinstance(value, list | tuple):
        return type(value)(_mapped(change, each) for each in value)
    return value
