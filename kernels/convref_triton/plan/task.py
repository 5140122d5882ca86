"""A task: one result of a call, with its kind of sum, its operands and its destination."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

from convref.ops import BASE_ROLE, ConvProblem

from ..common.geometry import ITEMSIZE, Four, Geometry, Tensor
from . import archs
from .builder import Builder, channels_last, is_channels_last, vector
from .launch import Copy, Launch

Pairs = tuple[tuple[Tensor, Tensor], ...]


class Fusion(NamedTuple):
    """The epilogue of a forward convolution, after the bias; vectors are per channel."""

    # Names of operands; empty for none. The residual has the result's shape.
    scale: str = ""
    shift: str = ""
    residual: str = ""
    activation: str = ""  # one of `convref_triton.common.epilogue.ACTIVATIONS`


UNFUSED = Fusion()


class Epilogue(NamedTuple):
    """The tensors of an epilogue: per-channel vectors, a residual of y's strides."""

    bias: Tensor | None = None
    scale: Tensor | None = None
    shift: Tensor | None = None
    residual: Tensor | None = None
    activation: str = ""

    @property
    def tensors(self) -> dict[str, Tensor | None]:
        return dict(zip(self._fields, self[:-1]))


PLAIN = Epilogue()


@dataclass(frozen=True)
class Task:
    builder: Builder  # collects the buffers, copies and launches
    geometry: Geometry  # None of an op without windows
    role: str  # the result
    fusion: Fusion = UNFUSED
    arch: str = archs.DEFAULT  # architecture of the device
    sms: int = 0  # multiprocessors of the device; 0 where there is none
    # Number and bytes of copies, by what they depend on; `KernelSpec.copies` keeps them here.
    copied: dict[tuple[str, int, int], tuple[int, float, float]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def programs(self) -> int:
        """Return how many programs run at a time if each occupies a multiprocessor."""
        return self.sms or archs.SMS

    @property
    def kind(self) -> str:
        """Return the kind of the task, one of those that a `KernelSpec` serves.

        "gather", "scatter", "correlate" (dw) and "total" (db) of convolutions, else the op, or its
        adjoint of "unfold" and "fold".
        """
        base, problem = BASE_ROLE[self.role], self.builder.call.problem
        if self.builder.call.op in ("unfold", "fold"):
            return "unfold" if base == "cols" else "fold"
        if self.builder.call.op != "conv":
            return self.builder.call.op
        assert isinstance(problem, ConvProblem)
        transposed = problem.transposed
        if base in "xy":
            return "scatter" if (base == "y") == transposed else "gather"
        return {"w": "correlate", "b": "total"}[base]

    @property
    def dtype(self) -> str:
        return self.builder.call.dtype

    @property
    def math(self) -> str:
        """Return the math of float32 products."""
        return self.builder.call.math

    @property
    def numbers(self) -> str:
        """Return the type of the products: a 16-bit dtype, or the math of float32."""
        return self.math if self.dtype == "f32" else self.dtype

    @cached_property
    def pairs(self) -> Pairs:
        named = self.builder.call.terms(self.role).products
        return tuple((self.builder.tensors[a], self.builder.tensors[b]) for a, b in named)

    @cached_property
    def added(self) -> Tensor | None:
        """Return the operand that is added unchanged, a bias, contiguous."""
        names = self.builder.call.terms(self.role).added
        return self.vector(names[0]) if names else None

    def vector(self, name: str) -> Tensor | None:
        if not name:
            return None
        found = self.builder.tensors[name]
        if len(found.shape) > 1 or found.strides == (1,) or found.shape == (1,):
            return found
        return self.builder.copied(found, (0,))

    def epilogue(self, stored: Tensor) -> Epilogue:
        """Return the epilogue of a kernel that writes to `stored`."""
        scale, shift, name, activation = self.fusion
        residual = self.builder.tensors[name] if name else None
        if residual is not None and residual.steps != stored.steps:
            order = sorted(range(len(stored.shape)), key=lambda axis: -stored.strides[axis])
            residual = self.builder.copied(residual, tuple(order))
        return Epilogue(self.added, self.vector(scale), self.vector(shift), residual, activation)

    @property
    def rows(self) -> int:
        """Return the most pixels that one class of the result has."""
        apart = self.geometry.stride if self.scatters else (1, 1, 1)
        images, *sizes = self.written
        return images * prod(-(-size // s) for size, s in zip(sizes, apart))

    @property
    def written(self) -> Four:
        return (self.geometry.n, *self.geometry.big) if self.scatters else self.geometry.pixels

    @property
    def scatters(self) -> bool:
        """Return whether the result is the big side, made of classes of pixels."""
        return self.kind in ("scatter", "fold")

    @property
    def classes(self) -> int:
        return prod(self.geometry.stride) if self.scatters else 1

    @property
    def copies(self) -> int:
        """Return how many products of the same size there are: groups times classes."""
        return self.geometry.groups * self.classes

    @property
    def channels(self) -> tuple[int, int]:
        """Return (reduced, resulting) channels per group of a gather or scatter."""
        big, small = self.geometry.big_channels, self.geometry.small_channels
        return (small, big) if self.kind == "scatter" else (big, small)

    @property
    def width(self) -> int:
        """Return the bytes of the widest vector that channels of both sides divide into."""
        return vector(self.dtype, *self.channels) * ITEMSIZE[self.dtype]

    @property
    def load_width(self) -> int:
        """Return the bytes of the widest vector of reduced channels: `aligned_pairs` has these."""
        return vector(self.dtype, self.channels[0]) * ITEMSIZE[self.dtype]

    def aligned_pairs(self) -> Pairs:
        """Return the pairs in the layout that a matrix product reads best."""
        xs, ws = (self.one_order([pair[side] for pair in self.pairs]) for side in (0, 1))
        if self.kind == "scatter" and self.load_width > self.width:  # few result channels
            k, *taps, c = channels_last(self.geometry.rank)
            ws = [self.builder.in_order(w, (c, *taps, k)) for w in ws]
        return tuple(zip(xs, ws))

    def one_order(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return tensors of one side in the layout that a matrix product reads best."""
        differ = len({tensor.steps for tensor in tensors}) > 1
        if not (differ or any(map(self._gains, tensors))):
            return tensors
        order = channels_last(len(tensors[0].shape) - 2)
        return [self.builder.copied(tensor, order) for tensor in tensors]

    def _gains(self, tensor: Tensor) -> bool:
        """Return whether only a copy with channels innermost moves 16 bytes at a time.

        Each element is read many times, and copied once.
        """
        return vector(self.dtype, tensor.shape[1]) * ITEMSIZE[self.dtype] == 16 and not (
            1 in tensor.steps[:2] if BASE_ROLE[tensor.role] == "w" else tensor.steps[1] == 1
        )

    def stored(self, y: Tensor) -> Tensor:
        """Return where a kernel stores the result y.

        It is another tensor, which `finish` copies, where that makes stores 16 bytes wide.
        """
        if not self._gains(y):
            return y
        order = channels_last(len(y.shape) - 2)
        return self.builder.new(f"{y.role}.last", y.shape, order, y.dtype)

    def compute(self, launch: Callable[[Tensor, Epilogue], Launch]) -> None:
        """Add the launch that stores the result after its epilogue, and a copy where needed."""
        y = self.result()
        stored = self.stored(y)
        self.builder.steps.append(launch(stored, self.epilogue(stored)))
        self.finish(stored, y)

    def finish(self, stored: Tensor, y: Tensor) -> None:
        if stored is not y:
            self.builder.steps.append(Copy(stored.role, y.role))

    @property
    def is_last(self) -> bool:
        """Return whether the result has channels innermost, as all tensors of pixels it reads."""
        given = self.builder.tensors.items()
        pixels = [tensor for name, tensor in given if BASE_ROLE.get(name, "w") in "xy"]
        like = [pair[0] for pair in self.pairs] or pixels
        return len(self.builder.call.problem.shape(self.role)) > 2 and all(
            map(is_channels_last, like)
        )

    def result(self) -> Tensor:
        call = self.builder.call
        shape = call.problem.shape(self.role)
        order = channels_last(len(shape) - 2) if self.is_last else tuple(range(len(shape)))
        return self.builder.new(self.role, shape, order, call.dtype_of(self.role))
