"""Which binary of a kernel a launch needs: used for launching, compiling and inspecting alike.

The rules are those of Triton's own launcher for CUDA: an integer of 1 and None become constants,
multiples of 16 and aligned pointers are marked so, an integer is as wide as its value needs. Items
of a tuple follow the same rules, even if `do_not_specialize` lists the parameter. (Triton's AMD
backend also marks tensors below 2 GiB; without that mark a kernel is correct, but slower.)
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import triton.language as tl
from triton.runtime.jit import JITFunction

from convref.errors import ConvrefError, a_kind, invalid, shorten

from ..hopper.precompiled import Precompiled
from ..plan.launch import Descriptor, Launch, Slot, is_group, map_arguments, regroup

# A type of `convref.dtypes`, as Triton calls it.
TRITON_TYPES = {
    "bf16": "bf16",
    "f16": "fp16",
    "f32": "fp32",
    "f64": "fp64",
    "e4m3": "fp8e4nv",
    "e5m2": "fp8e5",
    **{code: code for code in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")},
}
WIDTHS = ((-(2**31), 2**31, "i32"), (-(2**63), 2**63, "i64"), (0, 2**64, "u64"))
ALIGNED = [["tt.divisibility", 16]]
COMPILED_IN = (type(None), tl.constexpr, JITFunction)
Path = tuple[int, ...]


@dataclass(frozen=True)
class Specialization:
    """A kernel with everything that its binary depends on, except the target.

    A path is a parameter's position, followed by an index per level of a nested tuple.
    """

    kernel: Any
    signature: Mapping[str, Any]  # Triton's type of each parameter, in order
    attributes: Mapping[Path, list[list[Any]]]  # divisibility of pointers and integers
    constants: Mapping[Path, Any]  # values that are compiled in
    options: Mapping[str, int]  # ``num_warps`` and ``num_stages``

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Return the identity of this specialization; True, 1 and 1.0 are different constants."""
        parts = (self.signature, self.attributes, self.constants, self.options)
        return (self.kernel, *(repr(list(part.items())) for part in parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """Send kernels by name: worker processes import them."""
        constants = {p: map_arguments(_by_name, value) for p, value in self.constants.items()}
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
) -> Specialization:
    constants = {path: map_arguments(_from_name, value) for path, value in constants.items()}
    return Specialization(_from_name(kernel), signature, attributes, constants, options)


def specialize(launch: Launch) -> Specialization:
    """Return the Specialization that `launch` needs; raise ConvrefError for wrong arguments."""
    kernel = launch.kernel
    if isinstance(kernel, Precompiled):  # specialized where it was compiled
        if differ := set(kernel.signature) ^ {*launch.arguments, *launch.constants}:
            what = f"{', '.join(sorted(differ))}: parameters of the launch or of the kernel only"
            raise invalid(kernel.name, what)
        return Specialization(kernel, kernel.signature, {}, {}, {})
    if not isinstance(kernel, JITFunction):
        what = f"is {a_kind(kernel)}, needs a kernel made by triton.jit (not interpreted)"
        raise invalid(getattr(kernel, "__name__", "kernel"), what)
    given = {**launch.constants, **launch.arguments}
    values = {p.name: _value(kernel, p, given) for p in kernel.params}
    if unknown := sorted(set(given) - set(values)):
        raise invalid(kernel.__name__, f"has no parameter {', '.join(unknown)}")
    types = _Types(kernel)
    signature = {
        p.name: types.of((position,), p.name, values[p.name], _rules(p))
        for position, p in enumerate(kernel.params)
    }
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    return Specialization(kernel, signature, types.attributes, types.constants, options)


def _value(kernel: Any, parameter: Any, given: Mapping[str, Any]) -> Any:
    if parameter.name in given:
        return given[parameter.name]
    if parameter.has_default:
        return parameter.default
    raise invalid(kernel.__name__, f"{parameter.name} is missing")


class _Rules(NamedTuple):
    """How the value of a parameter may be specialized; the defaults are those of tuple items."""

    constexpr: bool = False
    const: bool = False
    ones: bool = True  # an integer of 1 is compiled in
    alignment: bool = True
    annotation: str = ""


_ITEM = _Rules()


def _rules(parameter: Any) -> _Rules:
    ones = not parameter.do_not_specialize
    alignment = ones and not parameter.do_not_specialize_on_alignment
    annotation = parameter.annotation_type or ""
    return _Rules(parameter.is_constexpr, parameter.is_const, ones, alignment, annotation)


class _Types:
    """Triton's types of the arguments of one kernel; collects attributes and constants by path."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.attributes: dict[Path, list[list[Any]]] = {}
        self.constants: dict[Path, Any] = {}

    def of(self, path: Path, name: str, value: Any, rules: _Rules) -> Any:
        if is_group(value) and not rules.constexpr:
            if rules.annotation:
                raise self._error(f"{name} is a tuple, needs {rules.annotation}")
            names = getattr(value, "_fields", range(len(value)))
            items = (
                self.of((*path, i), f"{name}.{field}", item, _ITEM)
                for i, (field, item) in enumerate(zip(names, value))
            )
            return regroup(value, list(items))
        kind, marked = self._single(name, value, rules)
        if kind == "constexpr":
            self.constants[path] = value
        elif marked:
            self.attributes[path] = ALIGNED
        return kind

    def _single(self, name: str, value: Any, rules: _Rules) -> tuple[str, bool]:
        """Return (type, whether it is marked as divisible by 16)."""
        if rules.constexpr:
            return "constexpr", False
        kind, marked = self._from_value(name, value, rules)
        if not rules.annotation:
            return kind, marked
        # An annotated parameter stays a run-time argument for every value.
        return rules.annotation, marked and not rules.annotation.startswith(("fp", "bf", "u1"))

    def _from_value(self, name: str, value: Any, rules: _Rules) -> tuple[str, bool]:
        if isinstance(value, COMPILED_IN):
            return "constexpr", False
        if isinstance(value, bool):
            return "u1", False
        if isinstance(value, float):
            return "fp32", False
        if isinstance(value, Descriptor):
            block = ", ".join(map(str, value.block))
            layout = f",{_layout(value)!r}" if self._kernel.is_gluon() else ""
            return f"tensordesc<{self._element(name, value.slot)}[{block}]{layout}>", False
        if isinstance(value, Slot):
            kind = ("*k" if rules.const else "*") + self._element(name, value)
            return kind, rules.alignment and value.aligned
        if not isinstance(value, int):
            what = f"{name} is {a_kind(value)}, needs a Slot, a number, None or a tuple"
            raise self._error(what)
        if value == 1 and rules.ones:
            return "constexpr", False
        return self._integer(name, value), rules.alignment and value % 16 == 0

    def _element(self, name: str, slot: Slot) -> str:
        if slot.dtype not in TRITON_TYPES:
            raise self._error(f"{name} has dtype {slot.dtype}, needs {', '.join(TRITON_TYPES)}")
        return TRITON_TYPES[slot.dtype]

    def _integer(self, name: str, value: int) -> str:
        for low, high, kind in WIDTHS:
            if low <= value < high:
                return kind
        raise self._error(f"{name} is {shorten(value)}, needs an integer of at most 64 bits")

    def _error(self, what: str) -> ConvrefError:
        return invalid(self._kernel.__name__, what)


def _layout(box: Descriptor) -> Any:
    """Return the shared-memory layout of a box, which Triton infers but Gluon takes explicitly."""
    from triton.experimental.gluon import language as gl

    element = gl.dtype(TRITON_TYPES[box.slot.dtype])
    return gl.NVMMASharedLayout.get_default_for(list(box.block), element)
