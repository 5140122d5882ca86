"""Arrays of other libraries: their kind, and conversion to NumPy and back.

A library is looked at only if it is already imported: its arrays cannot exist before.
"""

import sys
from collections.abc import Sequence
from numbers import Complex
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from . import dtypes
from .errors import ConvrefError, a_kind, invalid, shorten

Array = np.ndarray[Any, Any]
Sliced_co = TypeVar("Sliced_co", covariant=True)


class AnyArray(Protocol[Sliced_co]):
    """The type of a NumPy array, torch tensor or JAX array, for annotations.

    Results have the type that slicing gives: the library and dtype of the array, with any shape.
    """

    @property
    def shape(self) -> Sequence[int]:
        """The size of each axis."""

    @property
    def ndim(self) -> int:
        """The number of axes."""

    def __getitem__(self, key: slice, /) -> Sliced_co: ...


class Facts(NamedTuple):
    """The facts of an array that a plan depends on; strides are in elements."""

    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str


def kind_of(array: Any) -> str:
    """Return "numpy", "torch" or "jax", or an empty text for anything else.

    Masked arrays and np.matrix are neither: a mask would be ignored, a matrix always has two axes.
    """
    if type(array) is np.ndarray:  # to name np.ma imports it, 0.1 s
        return "numpy"
    if isinstance(array, np.ndarray):
        return "" if isinstance(array, (np.ma.MaskedArray, np.matrix)) else "numpy"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    jax = sys.modules.get("jax")
    return "jax" if jax is not None and isinstance(array, jax.Array) else ""


def has_values(array: Any) -> bool:
    """Return whether an array holds numbers; a tracer of JAX has a shape and a dtype alone."""
    return kind_of(array) != "jax" or not isinstance(array, sys.modules["jax"].core.Tracer)


def is_followed(kind: str, arrays: Sequence[Any]) -> bool:
    """Return whether the library of these arrays records or transforms what is computed on them."""
    if kind != "torch":
        return kind == "jax"
    torch = sys.modules["torch"]
    if torch.is_grad_enabled():
        for array in arrays:
            if getattr(array, "requires_grad", False):
                return True
    forward: bool = torch.autograd.forward_ad._current_level >= 0
    return forward or torch._C._functorch.peek_interpreter_stack() is not None


def facts(where: str, name: str, array: Any) -> Facts:
    """Return the facts of the argument `name`, or raise if its library is unsupported."""
    kind = kind_of(array)
    if kind == "numpy":
        code = _numpy_code(where, name, array)
        size = array.dtype.itemsize
        strides = tuple(s // size for s in array.strides)
        return Facts(kind, array.shape, strides, code, "cpu")
    if kind == "torch":
        code = _torch_code(where, name, array)
        return Facts(kind, tuple(array.shape), array.stride(), code, array.device.type)
    if kind == "jax":
        return _jax_facts(where, name, array)
    needs = "a NumPy array, torch tensor or JAX array"
    raise invalid(where, f"{name} is {a_kind(array)}, needs {needs}")


def _jax_facts(where: str, name: str, array: Any) -> Facts:
    """Return the facts of an array that has no strides, and as a tracer no device either."""
    shape, strides, dense = tuple(array.shape), list[int](), 1
    for size in reversed(shape):
        strides, dense = [dense, *strides], dense * size
    platform = next(iter(array.devices())).platform if has_values(array) else "cpu"
    device = {"gpu": "cuda"}.get(platform, platform)
    return Facts("jax", shape, tuple(strides), _numpy_code(where, name, array), device)


def _numpy_code(where: str, name: str, array: Array) -> str:
    try:
        code = dtypes.code_of(array.dtype)
    except ConvrefError:
        text = f"{name} has dtype {shorten(array.dtype)}, needs a float, complex or integer type"
        raise invalid(where, text) from None
    if code == "obj":
        for value in array.flat:
            if not isinstance(value, Complex):  # a Decimal is none: it has no sum with a float
                raise invalid(where, f"{name} holds {a_kind(value)}, needs numbers")
    return code


_TORCH_NAMES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
# Types that NumPy has from ml_dtypes, and the integers that torch shares their memory as.
_AS_BITS = {"bfloat16": "int16", "float8_e4m3fn": "int8", "float8_e5m2": "int8"}


def _torch_code(where: str, name: str, tensor: Any) -> str:
    if tensor.is_nested:
        raise invalid(where, f"{name} is a nested tensor, needs one with a shape")
    short = _torch_name(tensor.dtype)
    if short not in _TORCH_NAMES:
        known = ", ".join(_TORCH_NAMES)
        raise invalid(where, f"{name} has dtype {short}, needs one of {known}")
    if str(tensor.layout) != "torch.strided":
        layout = str(tensor.layout).removeprefix("torch.")
        raise invalid(where, f"{name} has layout {layout}, needs strided")
    return _TORCH_NAMES[short]


def short_name(dtype: Any) -> Any:
    """Return the short name of a dtype of any library, or of its name; all else as it is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return dtypes.short_name(_torch_name(dtype))
    name = getattr(dtype, "name", getattr(dtype, "__name__", dtype))
    return dtypes.short_name(name) if isinstance(name, str) else dtype


def _torch_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def torch_dtype(code: str) -> Any:
    """Return the torch dtype called `code`, or None if torch has none."""
    import torch

    names = {short: name for name, short in _TORCH_NAMES.items()}
    return getattr(torch, names[code]) if code in names else None


def why_no_device(device: str) -> str | None:
    """Return why torch cannot compute on a device of this type here, or None."""
    if device != "cuda":
        return None
    import torch

    return None if torch.cuda.is_available() else "torch finds no CUDA device"


def to_numpy(array: Any) -> Array:
    """Return `array` as a NumPy array that shares its memory if that is on the CPU."""
    if isinstance(array, np.ndarray):
        return array
    if kind_of(array) == "jax":
        return np.asarray(array)
    name = _torch_name(array.dtype)
    if name in _AS_BITS:
        import torch

        whole = getattr(torch, _AS_BITS[name])
        bits: Array = array.detach().resolve_neg().view(whole).numpy(force=True)
        return bits.view(dtypes.numpy_dtype(_TORCH_NAMES[name]))
    return array.numpy(force=True)


def imported(where: str, array: Any) -> Any:
    """Return an array of another library as NumPy's, through DLPack; all else as it is."""
    if isinstance(array, np.ndarray) or kind_of(array) or not hasattr(array, "__dlpack__"):
        return array
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # on a GPU, or bf16
        name = f"{type(array).__module__}.{type(array).__name__}"
        what = f"{name} does not export to NumPy ({error}), needs a NumPy array"
        raise invalid(where, what) from None


def to_torch(array: Any) -> Any:
    """Return `array` as a torch tensor that shares its memory, strides kept.

    Read-only arrays are shared too: no backend may write to an operand.
    """
    import torch

    if not isinstance(array, np.ndarray):
        return array
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # NumPy counts a flipped axis of one element as contiguous.
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = array.copy()  # torch has neither negative strides nor fractions of an element
    bare = array.dtype.kind == "V" or array.itemsize == 1  # computing the name is slow
    name = array.dtype.name if bare else ""
    plain = array.view(_AS_BITS[name]) if name in _AS_BITS else array
    if not plain.flags.writeable:
        plain = _writeable_alias(plain)
    tensor = torch.from_numpy(plain)
    return tensor.view(getattr(torch, name)) if name in _AS_BITS else tensor


def _writeable_alias(array: Array) -> Array:
    """Return a view that torch takes without its warning about read-only memory."""
    address, _ = array.__array_interface__["data"]
    interface = dict(array.__array_interface__, data=(address, False), strides=array.strides)
    holder = type("Alias", (), {"__array_interface__": interface, "owner": array})()
    return np.asarray(holder)


def zeros_like(array: Any) -> Any:
    """Return zeros like `array`, of its kind and device; return what is not an array unchanged."""
    kind = kind_of(array)
    if kind == "torch":
        return array.new_zeros(array.shape)
    if kind == "jax":
        return sys.modules["jax"].numpy.zeros_like(array)
    return np.zeros_like(array) if kind else array


def concatenate(arrays: Sequence[Any], axis: int) -> Any:
    """Return arrays of one kind, one after another along an axis."""
    kind = kind_of(arrays[0])
    if kind == "torch":
        return sys.modules["torch"].cat(arrays, axis)
    return (sys.modules["jax"].numpy if kind == "jax" else np).concatenate(arrays, axis)


def like(array: Any, template: Any) -> Any:
    """Return `array` as the kind of array that `template` is, on its device."""
    if kind_of(template) == "torch":
        tensor = to_torch(array)
        return tensor if template.device.type == "cpu" else tensor.to(template.device)
    if kind_of(template) == "jax":
        return sys.modules["jax"].numpy.asarray(to_numpy(array))
    return to_numpy(array)


def converted(where: str, name: str, array: Any, dtype: Any) -> Any:
    """Return an array in the type given as the argument `name`; anything else as it is."""
    kind = kind_of(array)
    try:
        if kind == "torch":
            import torch

            if not isinstance(dtype, torch.dtype):
                raise TypeError
            return array.to(dtype)
        return array.astype(np.dtype(dtype), copy=False) if kind else array
    except (TypeError, ValueError, RuntimeError, OverflowError, SyntaxError):
        what = f"{name} is {shorten(repr(dtype))}, needs a dtype of the kind of array"
        raise invalid(where, what) from None
