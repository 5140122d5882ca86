"""Arguments of public functions: flags, masks, layouts, running statistics, windows, padding."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import facts, like, zeros_like
from ..case import SPATIAL, role_dtype
from ..dtypes import numpy_dtype
from ..errors import a_kind, hint, invalid, needs_one, shorten
from ..ops import SIGNATURE, Pads, Sizes, integer, integers, items, pads


def axes_of(where: str, rank: int, layout: Any) -> tuple[int, ...]:
    """Return, for N, C and space, the user's axes; None is the layout N, C first."""
    space = SPATIAL[rank].upper()
    first, last = "NC" + space, "N" + space + "C"
    name = first if layout is None else layout
    if name not in (first, last):
        wanted = f"needs {first!r} or {last!r}{hint(layout, (first, last))}"
        raise invalid(where, f"layout is {shorten(repr(layout))}, {wanted}")
    return tuple(name.index(a) for a in first)


def mask_of(where: str, op: str, pass_: str, mask: Any) -> tuple[bool, ...]:
    """Return the bits of an output_mask, one for each result; none where the pass has no mask."""
    form = SIGNATURE[op, pass_]
    if not form.maskable:
        return ()
    bits, count = items(mask), len(form.results)
    if bits is None or len(bits) != count or not all(map(is_bool, bits)):
        raise invalid(where, f"output_mask is {shorten(repr(mask))}, needs {count} bools")
    return tuple(map(bool, bits))


def flag(where: str, name: str, value: Any) -> bool:
    """Return a user's bool, or raise."""
    if not is_bool(value):
        raise invalid(where, f"{name} is {shorten(repr(value))}, needs a bool")
    return bool(value)


def is_bool(bit: Any) -> bool:
    """Return whether a value is a bool of Python or NumPy."""
    return isinstance(bit, (bool, int, np.bool_)) and bit in (True, False)


def pair_of(where: str, primals: Any, tangents: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return primals and then tangents; of several, a tangent that is None becomes zeros."""
    values, dots = (
        _tuple_of(where, name, given, names)
        for name, given in (("primals", primals), ("tangents", tangents))
    )
    filled = []
    for name, value, dot in zip(names, values, dots):
        if value is None and dot is not None:
            raise invalid(where, f"{name} tangent is given, needs a {name}")
        zero = dot is None and value is not None and len(names) > 1
        filled.append(zeros_like(value) if zero else dot)
    return *values, *filled


def form_of(given: object) -> str:
    """Return what a message says of a value that should be a tuple of another length."""
    if isinstance(given, (tuple, list)):
        return f"has {len(given)} entries"
    return f"is {a_kind(given)}"


def _tuple_of(where: str, name: str, given: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(given, (tuple, list)) or len(given) != len(names):
        needs = f"({', '.join(names)}{',' * (len(names) == 1)})"
        raise invalid(where, f"{name} {form_of(given)}, needs a tuple {needs}")
    return tuple(given)


def channels_of(where: str, input: Any, layout: Any) -> int:
    """Return C, the second axis, or the last one where `layout` ends in C."""
    shape = facts(where, "input", input).shape
    if tuple(shape) == (0,):
        return 0
    if len(shape) < 2:
        raise invalid(where, f"input has {len(shape)} axes, needs 2 to 5")
    last = isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")
    return shape[-1 if last else 1]


def running_of(where: str, input: Any, mean: Any, var: Any, layout: Any) -> tuple[Any, Any]:
    """Return running statistics, zeros where there are none: a training pass updates some."""
    if (mean is None) != (var is None):
        missing = "running_mean" if mean is None else "running_var"
        raise invalid(where, f"{missing} is None, needs an array as the other has")
    if mean is not None:
        return mean, var
    dtype = role_dtype("rmean", facts(where, "input", input).dtype)
    zeros = np.zeros(channels_of(where, input, layout), numpy_dtype(dtype))
    return like(zeros, input), like(zeros, input)


def momentum_of(where: str, momentum: Any, batches: Any) -> Any:
    """Return the share of a new batch: that of a cumulative mean where there is no momentum."""
    if momentum is not None:
        return momentum
    if batches is None:
        raise invalid(where, "momentum is None, needs num_batches_tracked: batches seen so far")
    count = integer(where, "num_batches_tracked", batches)
    if count < 0:
        raise invalid(where, f"num_batches_tracked is {count}, needs at least 0")
    return 1 / (count + 1)


def per_axis(where: str, rank: int, **given: Any) -> tuple[Sizes, ...]:
    """Return the sizes along each axis, at least 1, of an argument such as `stride`."""
    found = {name: integers(where, name, value, rank) for name, value in given.items()}
    for name, sizes in found.items():
        if min(sizes) < 1:
            raise invalid(where, f"{name} is {sizes}, needs at least 1")
    return tuple(found.values())


def windows(
    where: str, input: Sizes, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> dict[str, Any]:
    """Return the geometry of windows on an image."""
    sizes = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    names = "filter", "stride", "dilation"
    geometry = dict(zip(names, per_axis(where, len(input), **sizes)))
    pads = padding_of(where, padding, input=input, transposed=False, **geometry)
    return {**geometry, "padding": pads}


def padding_of(
    where: str,
    value: Any,
    *,
    input: Sequence[int],
    filter: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
) -> Pads:
    """Return padding as ((lo, hi), ...) from any of the forms that the public API takes."""
    if not isinstance(value, str):
        return pads(where, "padding", value, len(input))
    words = ("valid",) if transposed else _WORDS
    if value not in words:
        what = f"padding is {shorten(repr(value))}, {needs_one(value, words, 'numbers or one of ')}"
        raise invalid(where, what)
    if value == "same" and set(stride) != {1}:
        what = f"padding is 'same' with stride {tuple(stride)}, needs stride 1 "
        raise invalid(where, f"{what}(same_upper and same_lower take any)")
    spans = (d * (taps - 1) for taps, d in zip(filter, dilation))
    return tuple(_pair(value, *sizes) for sizes in zip(input, stride, spans))


_WORDS = ("valid", "same", "same_upper", "same_lower", "half", "full")


def _pair(word: str, size: int, stride: int, span: int) -> tuple[int, int]:
    """Return the padding of an axis; `span` is the reach of the filter's last tap."""
    if word.startswith("same"):  # ceil(size / stride) windows fit, with the odd zero at the end
        total = max(0, (-(-size // stride) - 1) * stride + span + 1 - size)
        lo, hi = total // 2, total - total // 2
        return (hi, lo) if word == "same_lower" else (lo, hi)
    both = {"valid": 0, "half": (span + 1) // 2, "full": span}[word]
    return both, both
