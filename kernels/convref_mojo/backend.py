"""The Mojo kernels as a backend: convolutions, pools and batch norm on the CPU."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from convref import dtypes
from convref.arrays import facts, like, to_numpy
from convref.backends import PLAIN, Arm
from convref.case import Call, argument, check_operand
from convref.errors import UnsupportedError, message
from convref.judge import Numerics
from convref.ops import BASE_ROLE

from . import build, library, passes
from .cpu import conv, norm, pool

Array = np.ndarray[Any, Any]
ONE_THREAD = 10**7  # products of a call that one thread computes before a second has started
CALLS = 1024  # in the cache


class ArraySpec(NamedTuple):
    """An array of a call; `model` is the operand whose memory layout a result takes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    model: str | None = None


class CallSpec(NamedTuple):
    """The arrays of a call by role, None if absent or not requested; computed once per call."""

    operands: dict[str, ArraySpec | None]
    results: dict[str, ArraySpec | None]
    small: bool  # too small for threads


class MojoBackend:
    """Computes convolutions, pools and batch norm with Mojo kernels on the CPU.

    At most `count` threads work on a call, by default as many as there are cores. `arms` are the
    variants of it that the court runs.
    """

    def __init__(
        self, name: str = "mojo", count: int | None = None, arms: tuple[Arm, ...] = ()
    ) -> None:
        self.name = name
        self.arms = arms or (PLAIN,)
        self.count = count
        self.always = False  # all threads, for small calls too

    def supports(self, call: Call) -> str | None:
        if call.op not in FAMILIES:
            return f"no {call.op} kernel"
        if call.op in norm.OPS and call.pass_ not in norm.PASSES:
            return f"no {call.where} kernel"
        return unsupported(call, "cpu") or build.missing()

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role, each with the memory layout of the operand of its own role.

        Raise ConvrefError if an operand disagrees with the call, UnsupportedError if `supports`
        gives a reason.
        """
        spec = spec_of(call)
        given = self._given(call, spec, operands)
        outputs = {role: need and empty(need, given) for role, need in spec.results.items()}
        self._compute(call, spec, given, outputs)
        template = next(a for a in operands if a is not None)
        return tuple(None if r is None else like(r, template) for r in outputs.values())

    def native(self, call: Call) -> tuple[passes.NativePass, ...]:
        """Return the words of the calls of `entry` that compute a call on C-contiguous arrays."""
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        return passes.native_passes(call, threads=self.count or library.cores())

    @property
    def entry(self) -> Callable[..., int]:
        """The C function that `convref_mojo.passes` describes."""
        return library.loaded().convref_pass

    def _given(
        self, call: Call, spec: CallSpec, operands: tuple[Any, ...]
    ) -> dict[str, Array | None]:
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        return {
            role: checked(call, role, a, need)
            for (role, need), a in zip(spec.operands.items(), operands)
        }

    def _compute(
        self,
        call: Call,
        spec: CallSpec,
        given: dict[str, Array | None],
        outputs: dict[str, Array | None],
    ) -> None:
        one = spec.small and not self.always
        results = {r: out for r, out in outputs.items() if out is not None}
        FAMILIES[call.op](call, given, results, 1 if one else self.count or library.cores())

    def xla_calls(self, call: Call) -> tuple[Callable[[], Any], list[Any]]:
        """Return the function that XLA calls, and operands, results and words of each call."""
        natives = passes.native_passes(call, threads=self.count or library.cores())
        calls = [
            (*([r for r in roles if r] for roles in (n.operands, n.results)), n.xla_words())
            for n in natives
        ]
        return _xla_function, calls

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Compute on `count` threads within a block, for small calls too."""
        before = self.count, self.always
        self.count, self.always = count, True
        try:
            yield
        finally:
            self.count, self.always = before

    def numerics(self, call: Call) -> Numerics:
        """Return the accuracy model: sums in float32, for float64 in float64, rounded once."""
        return Numerics("rn64" if call.dtype == "f64" else "rn32")

    def fingerprint(self) -> dict[str, str]:
        if (reason := build.missing()) is not None:
            return {"missing": reason}
        library.loaded()
        found = build.compiler()
        return {
            "isa": build.variant_of().name,
            "sources": build.source_hash(),
            "compiler": found[1] if found else "",
            "threads": str(self.count or library.cores()),
        }


def _xla_function() -> Any:
    return library.loaded().convref_xla


def unsupported(call: Call, device: str) -> str | None:
    if call.dtype not in library.DTYPES:
        return f"no kernel for {call.dtype}, only for {', '.join(library.DTYPES)}"
    if call.math != "ieee":
        return f"no math={call.math}, products are exact"
    if call.problem.line_value("par"):
        return f"no kernel for par={call.problem.line_value('par')}"
    if any(spec.device != device for spec in call.specs):
        return f"only the device {device} is served"
    return None


@lru_cache(CALLS)
def spec_of(call: Call) -> CallSpec:
    def need(role: str, model: str | None = None) -> ArraySpec:
        dtype = dtypes.numpy_dtype(call.dtype_of(role))
        return ArraySpec(call.problem.shape(role), dtype, model)

    operands = {role: need(role) if call.is_present(role) else None for role in call.roles}
    results = {
        role: need(role, _model(call, role, operands)) if role in call.wanted else None
        for role in call.signature.results
    }
    return CallSpec(operands, results, call.problem.work() < ONE_THREAD)


def _model(call: Call, role: str, operands: dict[str, ArraySpec | None]) -> str | None:
    rank = len(call.problem.shape(role))
    fitting = [r for r, need in operands.items() if need and len(need.shape) == rank]
    same = [r for r in fitting if BASE_ROLE[r] == BASE_ROLE[role]]
    images = [r for r in fitting if BASE_ROLE[r] in "xy"]
    return next(iter(same + images), None)


def checked(call: Call, role: str, operand: Any, need: ArraySpec | None) -> Array | None:
    """Return an operand as an array that the kernels can read, with its strides if possible."""
    if operand is None and need is None:
        return None
    array = None if operand is None else to_numpy(operand)
    fits = array is not None and need is not None and array.shape == need.shape
    if fits and array.dtype == need.dtype and array.flags.aligned:  # strides are whole elements
        return array
    found = None if array is None else facts(call.where, argument(role), array)
    check_operand(call, role, found)
    assert array is not None
    assert need is not None
    return array.astype(need.dtype, order="C")


def empty(need: ArraySpec, given: Mapping[str, Array | None]) -> Array:
    """Return memory for a result, with the axis order of the operand that is its model."""
    if need.model is None:
        return np.empty(need.shape, need.dtype)
    model = given[need.model]
    return np.empty_like(model, need.dtype, order="K", shape=need.shape, subok=False)


class IntoBackend(MojoBackend):
    """The same kernels writing to the caller's outputs, so that the court can check around them.

    Those outputs are contiguous; the results of `run` have the operands' layout.
    """

    def run_into(self, call: Call, outputs: tuple[Array | None, ...], *operands: Any) -> None:
        """Write the results to the arrays `outputs`, by role, None where masked off."""
        spec = spec_of(call)
        given = self._given(call, spec, operands)
        self._compute(call, spec, given, dict(zip(spec.results, outputs)))


class PassesBackend(MojoBackend):
    """The same kernels by the stateless C function, which other hosts call."""

    def _compute(
        self,
        call: Call,
        spec: CallSpec,
        given: dict[str, Array | None],
        outputs: dict[str, Array | None],
    ) -> None:
        results = {r: out for r, out in outputs.items() if out is not None}
        passes.compute(call, given, results, self.count or library.cores())


FAMILIES = {
    "conv": conv.compute,
    **dict.fromkeys(pool.OPS, pool.compute),
    **dict.fromkeys(norm.OPS, norm.compute),
}

into = IntoBackend()
stateless = PassesBackend()
backend = MojoBackend(
    arms=(
        PLAIN,
        Arm("into", backend=f"{__name__}:into"),
        Arm("stateless", backend=f"{__name__}:stateless"),
    )
)
single = MojoBackend("mojo.single", 1)
