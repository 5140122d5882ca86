"""The passes of the library as stateless C calls, for hosts that cannot plan in Python.

One C function computes every pass, on C-contiguous arrays of rank 1 to 3:

    int64_t convref_pass(int64_t which, int64_t dtype, void **arrays, int64_t *sizes,
                         int64_t *attributes, void *scratch)

- `which` is the index of a pass in `PASSES`, `dtype` that of a number type in `library.DTYPES`.
- `arrays` has ten addresses: operands, then results, in the order of `NATIVE`, 0 for absent ones.
- `sizes` has 13 words: n, c, k, groups, and z, y, x of input, filter and output, 1 along axes that
  the rank does not have. `attributes` has 23 words, the struct of cpu/passes/sizes.mojo.
- `scratch` has as many bytes as the function returns for `arrays` 0, which computes nothing. If it
  is 0, the function allocates them.

At most `threads` threads compute, the caller's included; the others live as long as the process,
and serve one call at a time. The function checks nothing: values of `indices` have to be positions
of the input, or -1. `native_passes` returns the words of a call.

`convref_numpy` takes the same words and the strides of the arrays in one record; see
cpu/passes/numpy.mojo. `NumpyCall` is a call of it.

Examples
--------
>>> import numpy as np
>>> from convref import parse
>>> from convref_mojo import library, passes
>>> (conv,) = passes.native_passes(parse("conv.fprop:n1c1k2_i4x4_f3x3_p1:bias=0").call)
>>> conv.name, conv.operands, conv.results
('conv_fprop', ('x', 'w', None), ('y',))
>>> conv.sizes
(1, 1, 2, 1, 1, 4, 4, 1, 3, 3, 1, 4, 4)
>>> x, w = np.ones((1, 1, 4, 4), np.float32), np.ones((2, 1, 3, 3), np.float32)
>>> y = np.empty((1, 2, 4, 4), np.float32)
>>> arrays = np.array([x.ctypes.data, w.ctypes.data, 0, y.ctypes.data] + 6 * [0])
>>> sizes, attributes = np.array(conv.sizes), np.array(conv.attributes)
>>> words = (a.ctypes.data for a in (arrays, sizes, attributes))
>>> bytes_of_scratch = library.loaded().convref_pass(conv.which, conv.dtype, *words, 0)
>>> y[0, 0, 1]
array([6., 9., 9., 6.], dtype=float32)
"""

import ctypes
import itertools
import struct as packing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from convref.case import Call
from convref.ops import BASE_ROLE

from . import library
from .strides import Array, Strides, channel, elements, spatial
from .structs import table

PASSES = table("cpu/passes/run.mojo", "PASSES")
ARRAYS = 10  # of a pass, at most
STRIDES = 5  # of an array
UNALIGNED, POSITION, OTHER = -1, -2, -3  # what a pass on NumPy arrays may return
CALLS = 4096  # in the cache

_MAX_POOL = {
    "fprop": (("max_pool_fprop", "x", "y indices"),),
    "backward": (("max_pool_backward", "dy indices", "dx"),),
    "jvp": (
        ("max_pool_fprop", "x", "y indices"),
        ("max_pool_select", "x_dot indices", "y_dot"),
    ),
    "double_backward": (("max_pool_select", "ddx indices", "ddy"),),
}
_AVG_POOL = {
    "fprop": (("avg_pool_fprop", "x", "y"),),
    "backward": (("avg_pool_backward", "dy", "dx"),),
    "jvp": (("avg_pool_fprop", "x_dot", "y_dot"),),
    "double_backward": (("avg_pool_fprop", "ddx", "ddy"),),
}
# By op and pass of a call: name, operands and results of each native pass that computes it.
NATIVE: dict[str, dict[str, tuple[tuple[str, str, str], ...]]] = {
    "conv": {
        "fprop": (("conv_fprop", "x w b", "y"),),
        "backward": (
            ("conv_dgrad", "dy w", "dx"),
            ("conv_wgrad", "dy x", "dw"),
            ("conv_bgrad", "dy", "db"),
        ),
        "jvp": (("conv_fprop", "x w b", "y"), ("conv_jvp", "x w x_dot w_dot b_dot", "y_dot")),
        "double_backward": (
            ("conv_jvp", "x w ddx ddw ddb", "ddy"),
            ("conv_dgrad", "dy ddw", "dx"),
            ("conv_wgrad", "dy ddx", "dw"),
        ),
    },
    "max_pool": _MAX_POOL,
    "adaptive_max_pool": _MAX_POOL,
    "avg_pool": _AVG_POOL,
    "adaptive_avg_pool": _AVG_POOL,
    "batch_norm": {
        "fprop": (("batch_norm_fprop", "x w b rmean rvar", "y mean rstd rmean rvar"),),
        "backward": (("batch_norm_backward", "dy x w mean rstd", "dx dw db"),),
        "jvp": (("batch_norm_jvp", "x w b rmean rvar x_dot w_dot b_dot", "y y_dot"),),
    },
    "batch_norm_eval": {
        "fprop": (("batch_norm_fprop", "x w b rmean rvar", "y"),),
        "backward": (("batch_norm_backward", "dy x w rmean rvar", "dx dw db"),),
        "jvp": (("batch_norm_jvp", "x w b rmean rvar x_dot w_dot b_dot", "y y_dot"),),
    },
}


class NativePass(NamedTuple):
    """The words of a call of `convref_pass`; arrays are given by role, None for an absent one."""

    name: str
    which: int
    dtype: int
    operands: tuple[str | None, ...]
    results: tuple[str | None, ...]
    sizes: tuple[int, ...]
    attributes: tuple[int, ...]

    def xla_words(self) -> tuple[int, ...]:
        """Return the attribute of a call of the C function `convref_xla`, which XLA calls.

        Its operands and results are those that are not None.
        """
        operands, results = itertools.count(1), itertools.count(-1, -1)
        places = [0 if role is None else next(operands) for role in self.operands]
        places += [0 if role is None else next(results) for role in self.results]
        rest = (0,) * (ARRAYS - len(places))
        return self.which, self.dtype, *places, *rest, *self.sizes, *self.attributes


@lru_cache(CALLS)
def native_passes(
    call: Call, channels_last: bool = False, threads: int = 1, always: bool = False
) -> tuple[NativePass, ...]:
    """Return the native passes of a call, in the order in which they are computed.

    Max pools compute `indices` where a later pass reads them, even if the call does not have them.
    With `channels_last`, images are N...C and filters ...IO (of transposed convolutions ...OI).
    Small calls use one thread unless `always`.
    """
    found = []
    words = attributes(call.problem, channels_last, threads, always)
    sizes = _sizes(call.problem)
    wanted = {*call.wanted, *(("indices",) if call.pass_ == "jvp" else ())}
    for name, operands, results in NATIVE[call.op][call.pass_]:
        given = (r == "indices" or call.is_present(r) for r in operands.split())
        read = tuple(r if on else None for r, on in zip(operands.split(), given))
        written = tuple(role if role in wanted else None for role in results.split())
        if any(written):
            which, dtype = PASSES.index(name), library.DTYPES.index(call.dtype)
            found.append(NativePass(name, which, dtype, read, written, sizes, words))
    return tuple(found)


def _triple(values: Any, missing: int) -> tuple[int, ...]:
    return (missing,) * (3 - len(values)) + tuple(values)


def _sizes(problem: Any) -> tuple[int, ...]:
    ones = (1,) * problem.rank
    extents = problem.input, getattr(problem, "filter", ones), getattr(problem, "output", ones)
    sizes = (size for extent in extents for size in _triple(extent, 1))
    k, groups = getattr(problem, "k", problem.c), getattr(problem, "groups", 1)
    return problem.n, problem.c, k, groups, *sizes


def attributes(
    problem: Any, channels_last: bool = False, threads: int = 1, always: bool = False
) -> tuple[int, ...]:
    """Return the words of the struct `Attributes`."""

    def read(name: str, missing: Any = 0) -> Any:
        return getattr(problem, name, missing)

    ones, pads = (1,) * problem.rank, read("padding", ((0, 0),) * problem.rank)
    extents = (
        *_triple(read("stride", ones), 1),
        *_triple(read("dilation", ones), 1),
        *_triple([low for low, _ in pads], 0),
        *_triple([high for _, high in pads], 0),
    )
    flags = read("transposed"), read("flip"), channels_last, read("adaptive"), read("include_pad")
    floats = packing.pack("dd", read("eps", 0.0), read("momentum", 0.0))
    words = (
        *extents,
        *flags,
        read("divisor"),
        threads,
        always,
        read("frozen"),
        *packing.unpack("qq", floats),
    )
    return tuple(map(int, words))


class NumpyCall:
    """A pass on NumPy arrays; `given` and `made` have shape, strides and type by role, in order.

    `run` takes a tuple of these arrays, operands first. It returns UNALIGNED if an operand is not
    aligned to its item size, POSITION if an index is not a position of the input and, if it is the
    `first` pass on them, OTHER if the operands are not those of `given`.
    """

    def __init__(
        self,
        native: NativePass,
        given: Mapping[str, Any],
        made: Mapping[str, Any],
        first: bool = True,
    ) -> None:
        before = {role: place for place, role in enumerate(given)}
        after = {role: place for place, role in enumerate(made, len(given))}
        operands = [(role, {**after, **before}, {**made, **given}) for role in native.operands]
        arrays = operands + [(role, after, made) for role in native.results]
        arrays += [(None, before, given)] * (ARRAYS - len(arrays))
        words = [native.which, native.dtype, tuple.__basicsize__, object.__basicsize__]
        words += [*native.sizes, *native.attributes]
        words += [-1 if role is None else places[role] for role, places, _ in arrays]
        sizes = [1 if r is None else known[r][2].itemsize for r, _, known in operands]
        words += [*sizes, *[1] * (ARRAYS - len(sizes))]
        for role, _, known in arrays:
            words += (0,) * STRIDES if role is None else _strides(role, *known[role])
        words += [len(given) if first else 0, len(given) + len(made)]
        words += [word for known in given.values() for word in _identity(known)]
        self._types = [known[2] for known in given.values() if known]  # kept, as they are compared
        self._words = (library.Word * len(words))(*words)
        self._address = ctypes.addressof(self._words)
        self._function = library.loaded().convref_numpy
        self._bytes = self._function(self._address, 0, 0)

    def run(self, arrays: tuple[Array | None, ...]) -> int:
        scratch, _owner = library.scratch(self._bytes)
        status: int = self._function(self._address, id(arrays), scratch)
        return status


def _identity(known: Any) -> list[int]:
    """Return what the fields of an object have to be: those of None, or of an array."""
    if known is None:
        return [id(None), -1] + [0] * (1 + 2 * STRIDES)
    shape, strides, dtype = known
    rest = [0] * (STRIDES - len(shape))
    return [id(np.ndarray), len(shape), id(dtype), *shape, *rest, *strides, *rest]


def _strides(role: str, shape: tuple[int, ...], strides: Strides, dtype: np.dtype[Any]) -> Strides:
    """Return the strides of an array in elements: of two axes, and of z, y and x."""
    found = elements(shape, strides, dtype.itemsize)
    if len(shape) < 2:
        return channel((0, *found), *shape), 0, 0, 0, 0
    second = found[1] if BASE_ROLE[role] == "w" else channel(found, shape[1])
    return found[0], second, *spatial(found)


def run(native: NativePass, given: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Compute a pass on NumPy arrays by role."""
    arrays = [role and given[role] for role in native.operands]
    arrays += [role and outputs[role] for role in native.results]
    addresses = np.zeros(ARRAYS, np.int64)
    addresses[: len(arrays)] = [0 if a is None else a.ctypes.data for a in arrays]
    words = addresses, np.array(native.sizes), np.array(native.attributes)
    call = library.loaded().convref_pass
    call(native.which, native.dtype, *(w.ctypes.data for w in words), 0)


def compute(call: Call, given: Mapping[str, Any], outputs: Mapping[str, Any], threads: int) -> None:
    """Compute a call on NumPy arrays of any strides, by contiguous copies of them.

    Images are copied channels last if the first operand is not C-contiguous.
    """
    last = not next(a for a in given.values() if a is not None).flags.c_contiguous
    dense = {r: a if a is None else _ordered(r, a, last, copy=True) for r, a in given.items()}
    made = {r: np.empty_like(_ordered(r, a, last), order="C") for r, a in outputs.items()}
    natives = native_passes(call, last, threads)
    if any("indices" in native.results for native in natives) and "indices" not in made:
        made["indices"] = np.empty(made["y"].shape, np.int64)
    for native in natives:
        run(native, {**made, **dense}, made)
    for role, out in outputs.items():
        _ordered(role, out, last)[...] = made[role]


def _ordered(role: str, array: Any, channels_last: bool, copy: bool = False) -> Any:
    """Return an array with its axes in the order in which a pass stores them."""
    if channels_last and array.ndim > 2:
        filter_ = BASE_ROLE.get(role) == "w"
        array = np.moveaxis(array, *(((0, 1), (-1, -2)) if filter_ else (1, -1)))
    return np.ascontiguousarray(array) if copy else array
