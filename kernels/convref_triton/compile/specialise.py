"""Which binary of a kernel a launch needs: decided once, for launching, compiling and inspecting.

The rules are those of Triton's own launcher for CUDA: an integer of 1 and None become constants,
multiples of 16 and aligned pointers are marked so, an integer is as wide as its value needs. (Its
AMD backend also marks tensors below 2 GiB; without that mark a kernel is right, if slower.)
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from triton.runtime.jit import JITFunction

from convref.errors import ConvrefError, message, shorten

from ..hopper.carried import Carried
from ..plan.launch import Descriptor, Launch, Slot

# A type of `convref.dtypes`, as Triton calls it.
TRITON_TYPES = {
    "bf16": "bf16",
    "f16": "fp16",
    "f32": "fp32",
    "f64": "fp64",
    **{code: code for code in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")},
}
WIDTHS = ((-(2**31), 2**31, "i32"), (-(2**63), 2**63, "i64"), (0, 2**64, "u64"))
ALIGNED = [["tt.divisibility", 16]]


@dataclass(frozen=True)
class Specialisation:
    """A kernel with everything that its binary depends on, but the target.

    Parameters
    ----------
    kernel : triton.runtime.JITFunction or Carried
    signature : mapping of str to str
        Triton's type of each parameter, in order.
    attributes : mapping of (int,) to list
        What is promised of a parameter, by its position.
    constants : mapping of str to Any
        Parameters that are compiled in.
    options : mapping of str to int
        ``num_warps`` and ``num_stages``.
    """

    kernel: Any
    signature: Mapping[str, str]
    attributes: Mapping[tuple[int], list[list[Any]]]
    constants: Mapping[str, Any]
    options: Mapping[str, int]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Return what tells this specialisation from others; True is not 1, nor 1 1.0."""
        parts = (self.signature, self.attributes, self.constants, self.options)
        return (self.kernel, *(repr(list(part.items())) for part in parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """Send kernels by name: worker processes import them."""
        constants = {name: _by_name(value) for name, value in self.constants.items()}
        rest = (self.signature, self.attributes, constants, self.options)
        return _rebuild, (_by_name(self.kernel), *rest)


@dataclass(frozen=True)
class _Name:
    module: str
    qualname: str


def _by_name(value: Any) -> Any:
    return _Name(value.module, value.__qualname__) if isinstance(value, JITFunction) else value


def _from_name(value: Any) -> Any:
    if not isinstance(value, _Name):
        return value
    found = importlib.import_module(value.module)
    for part in value.qualname.split("."):
        found = getattr(found, part)
    return found


def _rebuild(
    kernel: Any, signature: Any, attributes: Any, constants: Any, options: Any
) -> Specialisation:
    constants = {name: _from_name(value) for name, value in constants.items()}
    return Specialisation(_from_name(kernel), signature, attributes, constants, options)


def specialise(launch: Launch) -> Specialisation:
    """Return the Specialisation that `launch` needs.

    Raises
    ------
    ConvrefError
        If an argument is missing, unknown or of a type that no kernel takes.
    """
    kernel = launch.kernel
    if isinstance(kernel, Carried):  # it has been decided where it was compiled
        if differ := set(kernel.signature) ^ {*launch.arguments, *launch.constants}:
            what = f"{', '.join(sorted(differ))} is of the launch alone, or of the kernel alone"
            raise ConvrefError(message(kernel.name, what))
        return Specialisation(kernel, kernel.signature, {}, {}, {})
    if not isinstance(kernel, JITFunction):
        what = f"is a {type(kernel).__name__}, needs a kernel made by triton.jit (not interpreted)"
        raise ConvrefError(message(getattr(kernel, "__name__", "kernel"), what))
    given = {**launch.constants, **launch.arguments}
    values = {p.name: _value(kernel, p, given) for p in kernel.params}
    if unknown := sorted(set(given) - set(values)):
        raise ConvrefError(message(kernel.__name__, f"has no parameter {', '.join(unknown)}"))
    signature, attributes, constants = {}, {}, {}
    for position, parameter in enumerate(kernel.params):
        value = values[parameter.name]
        kind, marked = _of(kernel, parameter, value)
        signature[parameter.name] = kind
        if kind == "constexpr":
            constants[parameter.name] = value
        elif marked:
            attributes[position,] = ALIGNED
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    return Specialisation(kernel, signature, attributes, constants, options)


def _value(kernel: Any, parameter: Any, given: Mapping[str, Any]) -> Any:
    if parameter.name in given:
        return given[parameter.name]
    if parameter.has_default:
        return parameter.default
    raise ConvrefError(message(kernel.__name__, f"{parameter.name} is missing"))


def _of(kernel: Any, parameter: Any, value: Any) -> tuple[str, bool]:
    """Return (type, whether it is marked as divisible by 16) of an argument."""
    if parameter.is_constexpr:
        return "constexpr", False
    kind, marked = _of_value(kernel, parameter, value)
    if not parameter.annotation_type:
        return kind, marked
    # An annotated type stays a run-time argument, even of a value that would be compiled in.
    number = parameter.annotation_type.startswith(("fp", "bf", "u1"))
    return parameter.annotation_type, marked and not number


def _of_value(kernel: Any, parameter: Any, value: Any) -> tuple[str, bool]:
    free = parameter.do_not_specialize
    marks = not (free or parameter.do_not_specialize_on_alignment)
    if value is None:
        return "constexpr", False
    if isinstance(value, bool):
        return "u1", False
    if isinstance(value, float):
        return "fp32", False
    if isinstance(value, Descriptor):
        block = ", ".join(map(str, value.block))
        layout = f",{_layout(value)!r}" if kernel.is_gluon() else ""
        return f"tensordesc<{_type(kernel, parameter, value.slot)}[{block}]{layout}>", False
    if isinstance(value, Slot):
        kind = ("*k" if parameter.is_const else "*") + _type(kernel, parameter, value)
        return kind, marks and value.aligned
    if not isinstance(value, int):
        what = f"{parameter.name} is a {type(value).__name__}, needs a Slot, a number or None"
        raise ConvrefError(message(kernel.__name__, what))
    if value == 1 and not free:
        return "constexpr", False
    return _width(kernel, parameter, value), marks and value % 16 == 0


def _layout(box: Descriptor) -> Any:
    """Return how a box lies in shared memory: what Triton finds by itself, and Gluon is told."""
    from triton.experimental.gluon import language as gl

    kind = gl.dtype(TRITON_TYPES[box.slot.dtype])
    return gl.NVMMASharedLayout.get_default_for(list(box.block), kind)


def _type(kernel: Any, parameter: Any, slot: Slot) -> str:
    if slot.dtype not in TRITON_TYPES:
        what = f"{parameter.name} has dtype {slot.dtype}, needs {', '.join(TRITON_TYPES)}"
        raise ConvrefError(message(kernel.__name__, what))
    return TRITON_TYPES[slot.dtype]


def _width(kernel: Any, parameter: Any, value: int) -> str:
    for low, high, kind in WIDTHS:
        if low <= value < high:
            return kind
    what = f"{parameter.name} is {shorten(value)}, needs an integer of at most 64 bits"
    raise ConvrefError(message(kernel.__name__, what))
