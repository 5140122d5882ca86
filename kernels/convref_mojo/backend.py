"""The Mojo kernels as a backend: convolutions, pools and batch norm on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from convref import dtypes
from convref.arrays import like, to_numpy
from convref.backends import PLAIN, Arm
from convref.case import Call
from convref.errors import ConvrefError, UnsupportedError, message
from convref.judge import Numerics
from convref.ops import BASE_ROLE

from . import build, library
from .cpu import conv, norm, pool

Array = np.ndarray[Any, Any]
ALONE = 10**7  # products up to which one thread is done before a second one has started
CALLS = 1024  # calls of which the facts are remembered


class Need(NamedTuple):
    """An array of a call: its shape and type, and of a result the operand that it lies like."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    model: str | None = None


class Facts(NamedTuple):
    """What is the same whenever a call is made.

    Parameters
    ----------
    operands, results : dict of str to Need or None
        By role; None where there is none, or none is wanted.
    small : bool
        Whether the call is too small for threads.
    """

    operands: dict[str, Need | None]
    results: dict[str, Need | None]
    small: bool


class MojoBackend:
    """Computes convolutions, pools and batch norm with kernels that are built from Mojo sources.

    Parameters
    ----------
    name : str
    count : int, optional
        How many threads may work on a call; by default as many as there are cores.
    arms : tuple of Arm, optional
        The ways in which the court shall run it.
    """

    def __init__(
        self, name: str = "mojo", count: int | None = None, arms: tuple[Arm, ...] = ()
    ) -> None:
        self.name = name
        self.arms = arms or (PLAIN,)
        self.count = count
        self.always = False  # all threads for small calls too

    def supports(self, call: Call) -> str | None:
        """Return None, or what is missing: a kernel, a dtype, a device or the library."""
        if call.op not in FAMILIES:
            return f"no {call.op} kernel"
        if call.op in norm.OPS and call.pass_ not in norm.PASSES:
            return f"no {call.op}.{call.pass_} kernel"
        if call.dtype not in library.DTYPES:
            return f"no kernel for {call.dtype}, only for {', '.join(library.DTYPES)}"
        if call.math != "ieee":
            return f"no math={call.math}, products are exact"
        if any(spec.device != "cpu" for spec in call.specs):
            return "only the CPU is served"
        return build.missing()

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role, each lying in memory as the operand of its own role does.

        Raises
        ------
        ConvrefError
            If an operand's presence, shape or dtype disagrees with the call.
        UnsupportedError
            If `supports` gives a reason.
        """
        facts = _facts(call)
        given = self._given(call, facts, operands)
        outputs = {role: need and _made(need, given) for role, need in facts.results.items()}
        self._compute(call, facts, given, outputs)
        template = next(a for a in operands if a is not None)
        return tuple(None if r is None else like(r, template) for r in outputs.values())

    def _given(
        self, call: Call, facts: Facts, operands: tuple[Any, ...]
    ) -> dict[str, Array | None]:
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        return {
            role: _checked(call, role, a, need)
            for (role, need), a in zip(facts.operands.items(), operands)
        }

    def _compute(
        self,
        call: Call,
        facts: Facts,
        given: dict[str, Array | None],
        outputs: dict[str, Array | None],
    ) -> None:
        alone = facts.small and not self.always
        results = {r: out for r, out in outputs.items() if out is not None}
        FAMILIES[call.op](call, given, results, 1 if alone else self.count or library.cores())

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Let `count` threads compute, also where fewer would be faster."""
        before = self.count, self.always
        self.count, self.always = count, True
        try:
            yield
        finally:
            self.count, self.always = before

    def numerics(self, call: Call) -> Numerics:
        """Return the model: sums in float32, or float64 for float64, rounded once at the end."""
        return Numerics("rn64" if call.dtype == "f64" else "rn32")

    def fingerprint(self) -> dict[str, str]:
        """Return the variant of the library, its sources and the compiler, or what is missing."""
        if (reason := build.missing()) is not None:
            return {"missing": reason}
        library.loaded()
        found = build.compiler()
        return {
            "isa": build.chosen().name,
            "sources": build.source_hash(),
            "compiler": found[1] if found else "",
            "threads": str(self.count or library.cores()),
        }


@lru_cache(CALLS)
def _facts(call: Call) -> Facts:
    present = {role: call.is_present(role) for role in call.roles}
    operands = {role: _need(call, role) if here else None for role, here in present.items()}
    results = {
        role: _need(call, role, _model(call, role, operands)) if role in call.wanted else None
        for role in call.signature.results
    }
    return Facts(operands, results, call.problem.work() < ALONE)


def _need(call: Call, role: str, model: str | None = None) -> Need:
    return Need(call.problem.shape(role), dtypes.numpy_dtype(call.dtype_of(role)), model)


def _model(call: Call, role: str, operands: dict[str, Need | None]) -> str | None:
    """Return the operand whose order of axes a result has: one of the same kind, or an image."""
    rank = len(call.problem.shape(role))
    fitting = [r for r, need in operands.items() if need and len(need.shape) == rank]
    same = [r for r in fitting if BASE_ROLE[r] == BASE_ROLE[role]]
    images = [r for r in fitting if BASE_ROLE[r] in "xy"]
    return next(iter(same + images), None)


def checked(call: Call, role: str, operand: Any) -> Array | None:
    """Return an operand as an array that the kernels can read, strides kept where possible."""
    return _checked(call, role, operand, _facts(call).operands[role])


def _checked(call: Call, role: str, operand: Any, need: Need | None) -> Array | None:
    array = None if operand is None else to_numpy(operand)
    if array is None and need is None:
        return None
    if array is not None and need is not None and array.shape == need.shape:
        if array.dtype == need.dtype and array.flags.aligned:  # strides are whole numbers then
            return array
        if dtypes.code_of(array.dtype) == dtypes.code_of(need.dtype):
            return array.astype(need.dtype, order="C")
    got = None if array is None else (array.shape, dtypes.code_of(array.dtype))
    wanted = None if need is None else (need.shape, dtypes.code_of(need.dtype))
    where = f"{call.op}.{call.pass_}"
    raise ConvrefError(message(where, f"{role} is {got}, needs {wanted}", call))


def result(call: Call, role: str, given: dict[str, Array]) -> Array:
    """Return memory for a result, its axes ordered as those of the operand it belongs to."""
    need = _facts(call).results[role]
    assert need is not None
    return _made(need, given)


def _made(need: Need, given: Mapping[str, Array | None]) -> Array:
    if need.model is None:
        return np.empty(need.shape, need.dtype)
    model = given[need.model]
    return np.empty_like(model, need.dtype, order="K", shape=need.shape, subok=False)


class IntoBackend(MojoBackend):
    """The same, for a court that looks at the memory around the results too.

    It hands out contiguous outputs; those of `run` lie as the operands do.
    """

    def run_into(self, call: Call, outputs: tuple[Array | None, ...], *operands: Any) -> None:
        """Write the results into the arrays `outputs`, by role, None where masked off."""
        facts = _facts(call)
        given = self._given(call, facts, operands)
        self._compute(call, facts, given, dict(zip(facts.results, outputs)))


FAMILIES = {
    "conv": conv.compute,
    **dict.fromkeys(pool.OPS, pool.compute),
    **dict.fromkeys(norm.OPS, norm.compute),
}

backend = MojoBackend(arms=(PLAIN, Arm("into", backend=f"{__name__}:into")))
into = IntoBackend()
single = MojoBackend("mojo.single", 1)
