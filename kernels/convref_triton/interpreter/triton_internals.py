"""The private names of Triton that the interpreter uses; no other module imports any.

Triton's own interpreter requires an environment variable, which decides at import whether
`triton.jit` makes functions to compile or to interpret. Its parts are used directly here, so that
one function can be both.
"""

import types
from collections import Counter
from typing import Any

import triton
import triton.language as tl

from convref.errors import message

__all__ = [
    "ALL_NAN",
    "JITTED",
    "LANGUAGE",
    "NO_NAN",
    "TF32",
    "TF32X3",
    "InterpreterBuilder",
    "InterpreterOptions",
    "TensorDescHandle",
    "TensorHandle",
    "TritonSemantic",
    "cached_types",
    "fast_paths",
    "language_patches",
    "numpy_dtype",
]
NEEDS = "3.6 to 3.9"
LANGUAGE = "triton.language"

try:
    from triton._C.libtriton import ir
    from triton.language.core import is_builtin
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter as _interpreter
    from triton.runtime.interpreter import (
        InterpretedFunction,
        InterpreterBuilder,
        InterpreterOptions,
        TensorDescHandle,
        TensorHandle,
        _get_np_dtype,
        _patch_lang,
    )
    from triton.runtime.jit import JITFunction
except ImportError as error:
    raise ImportError(
        message("interpreter", f"Triton {triton.__version__} lacks {error.name}, needs {NEEDS}")
    ) from error

JITTED = (JITFunction, InterpretedFunction)
NO_NAN, ALL_NAN = ir.PROPAGATE_NAN.NONE, ir.PROPAGATE_NAN.ALL
TF32, TF32X3 = ir.INPUT_PRECISION.TF32, ir.INPUT_PRECISION.TF32x3


_numbers: dict[str, Any] = {}


def numpy_dtype(type: Any) -> Any:
    if type.name not in _numbers:
        _numbers[type.name] = _get_np_dtype(type)
    return _numbers[type.name]


def language_patches(builder: Any, semantic: Any) -> dict[tuple[Any, str], Any]:
    """Return the attributes that Triton replaces in order to interpret, by (owner, name).

    They are recorded while Triton patches itself with our builder, so that they suit its version.
    Builtins are bound directly, which saves the search through their keywords.
    """
    names = {"interpreter_builder": builder, "interpreter_semantic": semantic}
    kept = {name: getattr(_interpreter, name) for name in names}
    anchor = types.FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})
    vars(_interpreter).update(names)
    try:
        scope = _patch_lang(anchor)
        changes = list(scope._changes)
        values = {(o, name): getattr(o, name) for o, name, _ in changes}
        scope.restore()
    finally:
        vars(_interpreter).update(kept)
    times = Counter((o, name) for o, name, _ in changes)
    for owner, name, before in changes:
        if times[owner, name] == 1 and is_builtin(before):
            values[owner, name] = _bound(before, semantic)
        _drop_copy(owner, name)
    return values


def cached_types() -> dict[tuple[Any, str], Any]:
    """Return constructors with a cache by (owner, name): they halve the time of a kernel.

    Types of blocks and shapes of tensors are immutable, but Triton builds them again for each
    operand of each operation.
    """
    block, tensor = tl.core.block_type, tl.core.tensor
    make_block, make_tensor = block.__init__, tensor.__init__
    blocks: dict[Any, dict[str, Any]] = {}
    tensors: dict[str, dict[str, Any]] = {}

    def block_init(self: Any, element_ty: Any, shape: Any) -> None:
        key = (element_ty.name, *(getattr(size, "value", size) for size in shape))
        if key not in blocks:
            make_block(self, element_ty, shape)
            blocks[key] = dict(vars(self))
        vars(self).update(blocks[key])

    def tensor_init(self: Any, handle: Any, type: Any) -> None:
        if type.name not in tensors:
            make_tensor(self, handle, type)
            tensors[type.name] = dict(vars(self))
        vars(self).update(tensors[type.name], handle=handle)

    return {
        (block, "__init__"): block_init,
        (tensor, "__init__"): tensor_init,
        (_interpreter, "_get_np_dtype"): numpy_dtype,
    }


# Types that no operation on two of them promotes, and the numbers that become signed ones.
SIGNED = {f"int{bits}": range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)}
KEPT = {*SIGNED, *(f"u{name}" for name in SIGNED), "int1", "fp32"}


def fast_paths() -> dict[tuple[Any, str], Any]:
    """Return conversions that return early for operands that need none, by (owner, name)."""
    tensor, owner = tl.core.tensor, TritonSemantic
    check, broadcast = owner.binary_op_type_checking_impl, owner.broadcast_impl_value
    cast = owner.cast

    def checked(
        self: Any, lhs: Any, rhs: Any, allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True, div_or_mod: bool = False,
    ) -> Any:  # fmt: skip
        if type(lhs) is tensor:
            kind = lhs.type.scalar
            if type(rhs) is tensor:
                if kind.name in KEPT and kind.name == rhs.type.scalar.name:
                    return spread(self, lhs, rhs)
            elif type(rhs) is int and arithmetic_check and rhs in SIGNED.get(kind.name, ()):
                return spread(self, lhs, self.scalar_constant(rhs, kind))
        return check(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    def spread(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if left.is_block() is right.is_block():
            if not left.is_block() or left.shape == right.shape:
                return lhs, rhs
        elif left.scalar.name == right.name:
            return lhs, self.tensor(self.builder.create_splat(left, rhs.handle), left)
        return broadcast(self, lhs, rhs)

    def converted(self: Any, input: Any, dst_ty: Any, *rest: Any, **more: Any) -> Any:
        if input.type.scalar is dst_ty.scalar:
            return input
        return cast(self, input, dst_ty, *rest, **more)

    return {
        (owner, "binary_op_type_checking_impl"): checked,
        (owner, "broadcast_impl_value"): spread,
        (owner, "cast"): converted,
    }


def _drop_copy(owner: Any, name: str) -> None:
    """Delete the copy of an inherited attribute that Triton's restoration leaves on the class."""
    bases = owner.__mro__[1:] if isinstance(owner, type) and name in vars(owner) else ()
    if any(vars(base).get(name) is vars(owner)[name] for base in bases):
        delattr(owner, name)


def _bound(builtin: Any, semantic: Any) -> Any:
    inner = getattr(builtin, "__wrapped__", builtin)

    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        return inner(*args, _semantic=semantic, **kwargs)

    return call
