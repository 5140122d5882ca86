"""The Mojo kernels as a backend: convolutions, pools and batch norm on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from convref import dtypes
from convref.arrays import like, to_numpy
from convref.backends import PLAIN, Arm
from convref.case import Call
from convref.errors import ConvrefError, UnsupportedError, message
from convref.judge import Numerics
from convref.problem import BASE_ROLE

from . import build, conv, library, norm, pool

Array = np.ndarray[Any, Any]
ALONE = 10**7  # products up to which one thread is done before a second one has started
CALLS = 1024  # calls of which the size is remembered


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
        given = self._given(call, operands)
        outputs = [
            result(call, role, given) if role in call.wanted else None
            for role in call.signature.results
        ]
        self._compute(call, given, outputs)
        template = next(a for a in operands if a is not None)
        return tuple(None if r is None else like(r, template) for r in outputs)

    def _given(self, call: Call, operands: tuple[Any, ...]) -> dict[str, Array | None]:
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        return {role: checked(call, role, a) for role, a in zip(call.roles, operands)}

    def _compute(
        self,
        call: Call,
        given: dict[str, Array | None],
        outputs: tuple[Array | None, ...] | list[Array | None],
    ) -> None:
        alone = _is_small(call) and not self.always
        results = {r: out for r, out in zip(call.signature.results, outputs) if out is not None}
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
def _is_small(call: Call) -> bool:
    """Return whether a call is too small for threads."""
    return call.problem.work() < ALONE


def checked(call: Call, role: str, operand: Any) -> Array | None:
    """Return an operand as an array that the kernels can read, strides kept where possible."""
    array = None if operand is None else to_numpy(operand)
    need = (call.problem.shape(role), call.dtype_of(role)) if call.is_present(role) else None
    got = None if array is None else (array.shape, dtypes.code_of(array.dtype))
    if got != need:
        where = f"{call.op}.{call.pass_}"
        raise ConvrefError(message(where, f"{role} is {got}, needs {need}", call))
    if array is None:
        return None
    whole = all(stride % array.itemsize == 0 for stride in array.strides)
    if whole and array.dtype.isnative and array.flags.aligned:
        return array
    return array.astype(array.dtype.newbyteorder("="), order="C")


def result(call: Call, role: str, given: dict[str, Array | None]) -> Array:
    """Return memory for a result, its axes ordered as those of the operand it belongs to."""
    base, shape = BASE_ROLE[role], call.problem.shape(role)
    dtype = dtypes.numpy_dtype(call.dtype_of(role))
    same = [a for r, a in given.items() if a is not None and BASE_ROLE[r] == base]
    images = [a for r, a in given.items() if a is not None and BASE_ROLE[r] in "xy"]
    models = [a for a in (*same, *images) if a.ndim == len(shape)]
    if not models:
        return np.empty(shape, dtype)
    return np.empty_like(models[0], dtype, order="K", shape=shape, subok=False)


class IntoBackend(MojoBackend):
    """The same, for a court that looks at the memory around the results too.

    It hands out contiguous outputs; those of `run` lie as the operands do.
    """

    def run_into(self, call: Call, outputs: tuple[Array | None, ...], *operands: Any) -> None:
        """Write the results into the arrays `outputs`, by role, None where masked off."""
        self._compute(call, self._given(call, operands), outputs)


FAMILIES = {
    "conv": conv.compute,
    **dict.fromkeys(pool.OPS, pool.compute),
    **dict.fromkeys(norm.OPS, norm.compute),
}

backend = MojoBackend(arms=(PLAIN, Arm("into", backend=f"{__name__}:into")))
into = IntoBackend()
single = MojoBackend("mojo.single", 1)
