"""Rules on pieces of the operands, so that intermediate results stay in the processor's caches.

Operations of elements are cut anywhere; others along the first axis, if its rows are independent.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import torch

from .pair import Pair, SumTerms, Tensor

PIECE = 1 << 17  # elements: a few intermediate results in float64 fit into the caches
LARGE = 1 << 21  # of operations that compute more than they move: only memory is bounded

_ELEMENTS = """
    add sub subtract rsub mul multiply div divide true_divide reciprocal neg addcmul addcdiv lerp
    pow exp exp2 expm1 log log2 log10 log1p sigmoid tanh erf erfc atan asinh sinh cosh abs gelu silu
    mish softplus elu hardswish hardsigmoid leaky_relu softshrink hardshrink sign floor ceil trunc
    sqrt rsqrt sin cos relu maximum minimum clamp hardtanh clamp_min clamp_max eq ne lt le gt ge
    logical_and logical_or logical_not where masked_fill threshold_backward _to_copy
"""
_AT_1 = "sum mean amax amin _softmax _log_softmax logsumexp cumsum"
_OF_IMAGES = "max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d"


def _named(names: str) -> set[Any]:
    return {getattr(torch.ops.aten, name) for name in names.split()}


ELEMENTWISE, _REDUCING, _IMAGES = map(_named, (_ELEMENTS, _AT_1, _OF_IMAGES))
_PRODUCTS = _named("mm convolution")
_ATTENTION = _named("_scaled_dot_product_flash_attention_for_cpu")

Box = tuple[slice, ...]


def boxes(packet: Any, args: tuple[Any, ...], result: Tensor) -> list[Box]:
    """Return the parts of a result that are evaluated one after the other; none to cut nothing."""
    shape = tuple(result.shape)
    if packet in ELEMENTWISE:
        return parts(shape) if result.numel() > 2 * PIECE else []
    if packet in _ATTENTION:
        return _by_head(shape, args[0].shape[-2] * args[1].shape[-2])
    first = args[0] if args and isinstance(args[0], torch.Tensor) else None
    if first is None or first.ndim < 2 or not shape or shape[0] != first.shape[0]:
        return []
    row = max(first[0].numel(), result[0].numel()) if shape[0] else 0
    size = LARGE if packet in _PRODUCTS else PIECE
    if row * shape[0] <= 2 * size or not _has_free_rows(packet, args, first.ndim):
        return []
    step = max(1, size // row)
    return [(slice(at, at + step),) for at in range(0, shape[0], step)]


def _by_head(shape: tuple[int, ...], scores: int) -> list[Box]:
    """Return boxes of some heads of one element of a batch."""
    batch, heads = shape[:2]
    if batch * heads * scores <= 2 * PIECE:
        return []
    step = max(1, PIECE // scores)
    starts = product(range(batch), range(0, heads, step))
    return [(slice(i, i + 1), slice(j, j + step)) for i, j in starts]


def parts(shape: tuple[int, ...]) -> list[Box]:
    """Return boxes of about PIECE elements that cover a tensor."""
    if not shape:
        return [()]
    axis = next(a for a in range(len(shape)) if math.prod(shape[a + 1 :]) <= PIECE)
    step = max(1, PIECE // max(1, math.prod(shape[axis + 1 :])))
    outer = [[slice(i, i + 1) for i in range(n)] for n in shape[:axis]]
    return list(product(*outer, [slice(i, i + step) for i in range(0, shape[axis], step)]))


def _has_free_rows(packet: Any, args: tuple[Any, ...], ndim: int) -> bool:
    if packet in _PRODUCTS or (packet in _IMAGES and ndim > 3):
        return True
    if packet is torch.ops.aten.native_layer_norm:
        return ndim > len(args[1])
    axes: Any = args[1] if packet in _REDUCING and len(args) > 1 else None
    axes = (axes,) if isinstance(axes, int) else axes or ()
    return len(axes) > 0 and all(axis % ndim for axis in axes)


def operand_part(pair: Pair, box: Box, shape: tuple[int, ...]) -> Pair:
    """Return the part of an operand that a part of the result of this shape needs."""

    def part(t: Tensor) -> Tensor:
        behind = len(shape) - t.ndim
        places = [box[behind + a] if behind + a < len(box) else slice(None) for a in range(t.ndim)]
        return t[tuple(p if n > 1 else slice(None) for p, n in zip(places, t.shape))]

    return pair.map(part)


class InPieces:
    """The results of a rule, evaluated part by part when they are read.

    Parameters
    ----------
    evaluate : callable
        Applies the rule to operands, each of which a function of its place selects from. Its second
        argument says whether other operations read the results.
    packet, cuts, shape
        The operation, the parts of its first result and that result's shape.
    """

    def __init__(
        self,
        evaluate: Callable[[Callable[[int, Pair], Pair], bool], tuple[Pair, ...]],
        packet: Any,
        cuts: list[Box],
        shape: tuple[int, ...],
    ) -> None:
        self._evaluate, self._packet, self.cuts, self._shape = evaluate, packet, cuts, shape
        self.found: tuple[Pair, ...] = ()

    def part(self, box: Box, is_read: bool = False) -> tuple[Pair, ...]:
        """Return one part of each result."""

        def select(place: int, pair: Pair) -> Pair:
            if self._packet in ELEMENTWISE or self._packet in _ATTENTION:
                return operand_part(pair, box, self._shape)
            return pair if place else operand_part(pair, box, tuple(pair.value.shape))

        return self._evaluate(select, is_read)

    def evaluate(self) -> tuple[Pair, ...]:
        """Return the results; the operands are not needed any more."""
        wholes: list[_Whole] = []
        for box in () if self.found else self.cuts:
            parts = self.part(box, True)
            wholes = wholes or [_Whole(p, self._shape, len(box)) for p in parts]
            for whole, part in zip(wholes, parts):
                whole.write(box, part)
        if wholes:
            self.found = tuple(whole.pair for whole in wholes)
            del self._evaluate
        return self.found


class Later(NamedTuple):
    """One result of a rule that is evaluated in pieces."""

    pieces: InPieces
    place: int


def evaluated(pair: Pair | Later) -> Pair:
    """Return a pair that may have to be evaluated."""
    return pair.pieces.evaluate()[pair.place] if isinstance(pair, Later) else pair


def by_part(pair: Pair | Later, shape: tuple[int, ...]) -> Iterator[tuple[Box, Pair]]:
    """Yield the parts of a pair that no operation reads."""
    if isinstance(pair, Later) and not pair.pieces.found:
        yield from ((box, pair.pieces.part(box)[pair.place]) for box in pair.pieces.cuts)
        return
    pair = evaluated(pair)._replace(terms=None)
    yield from ((box, operand_part(pair, box, shape)) for box in parts(shape))


class _Whole:
    """A pair that is put together from pieces."""

    def __init__(self, piece: Pair, shape: tuple[int, ...], cut_axes: int) -> None:
        """Take the first axes from the whole, the others from a piece."""
        self._shape = (*shape[:cut_axes], *piece.value.shape[cut_axes:])
        self._value = piece.value.new_empty(self._shape)
        self._error: Tensor | None = None
        self._exact: list[Box] = []
        self._terms: SumTerms | None = None
        self._is_stored = True

    def write(self, box: Box, piece: Pair) -> None:
        self._value[box] = piece.value
        self._is_stored &= piece.stored
        if piece.error is None:
            self._exact.append(box)
        else:
            if self._error is None:
                self._error = self._value.new_empty(self._shape, dtype=torch.float64)
            self._error[box] = piece.error
        if (new := piece.terms) is not None:
            old = self._terms
            if old is None:
                old = new._replace(size=self._value.new_empty(self._shape, dtype=torch.float64))
            old.size[box] = new.size
            self._terms = SumTerms(
                old.size,
                max(old.n, new.n),
                max(old.owed, new.owed),
                min(old.step, new.step),
                max(old.products, new.products),
            )

    @property
    def pair(self) -> Pair:
        if self._error is not None:
            for box in self._exact:
                self._error[box] = 0.0
        return Pair(self._value, self._error, self._is_stored, self._terms)
