"""The Mojo kernels as a backend: convolutions on the CPU in float32, float64 and bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from convref import dtypes
from convref.arrays import like, to_numpy
from convref.case import Call
from convref.errors import ConvrefError, UnsupportedError, message
from convref.judge import Numerics
from convref.problem import BASE_ROLE

from . import build, conv, library

Array = np.ndarray[Any, Any]
ALONE = 10**7  # products up to which one thread is done before a second one has started


class MojoBackend:
    """Computes convolutions with kernels that are built from Mojo sources.

    Parameters
    ----------
    name : str
    threads : int, optional
        How many may work on a call; by default as many as there are cores.
    """

    def __init__(self, name: str = "mojo", threads: int | None = None) -> None:
        self.name = name
        self.threads = threads

    def supports(self, call: Call) -> str | None:
        """Return None, or what is missing: a kernel, a dtype, a device or the library."""
        if call.op != "conv":
            return f"no {call.op} kernel"
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
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        given = {role: _checked(call, role, a) for role, a in zip(call.roles, operands)}
        threads = 1 if call.conv.macs("y") < ALONE else self.threads or library.cores()
        results = (
            _computed(call, role, given, threads) if role in call.wanted else None
            for role in call.signature.results
        )
        template = next(a for a in operands if a is not None)
        return tuple(None if r is None else like(r, template) for r in results)

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
            "threads": str(self.threads or library.cores()),
        }


def _checked(call: Call, role: str, operand: Any) -> Array | None:
    """Return an operand as an array that the kernels can read, strides kept where possible."""
    array = None if operand is None else to_numpy(operand)
    need = (call.problem.shape(role), call.dtype) if call.is_present(role) else None
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


def _computed(call: Call, role: str, given: dict[str, Array | None], threads: int) -> Array:
    """Return one result, from what `Call.terms` says it is made of."""
    terms, problem = call.terms(role), call.conv
    out = _result(call, role, given)
    base = BASE_ROLE[role]
    if base == "b":
        conv.total(call.dtype, _there(given, terms.added[0]), out, threads)
    elif base == "w":
        if not terms.products:
            out[...] = 0
        for pair in terms.products:
            small, big = pair if not problem.transposed else pair[::-1]
            conv.correlate(
                problem, call.dtype, _there(given, big), _there(given, small), out, threads
            )
    else:
        scatter = problem.transposed == (base == "y")
        pairs = [(_there(given, a), _there(given, w)) for a, w in terms.products]
        bias = _there(given, terms.added[0]) if terms.added else None
        conv.sum_over_windows(problem, scatter, call.dtype, pairs, bias, out, threads)
    return out


def _there(given: dict[str, Array | None], role: str) -> Array:
    array = given[role]
    assert array is not None
    return array


def _result(call: Call, role: str, given: dict[str, Array | None]) -> Array:
    """Return memory for a result, its axes ordered as those of the operand it belongs to."""
    base, shape = BASE_ROLE[role], call.problem.shape(role)
    dtype = dtypes.numpy_dtype(call.dtype)
    same = [a for r, a in given.items() if a is not None and BASE_ROLE[r] == base]
    images = [a for r, a in given.items() if a is not None and BASE_ROLE[r] in "xy"]
    models = [a for a in (*same, *images) if a.ndim == len(shape)]
    if not models:
        return np.empty(shape, dtype)
    return np.empty_like(models[0], dtype, order="K", shape=shape, subok=False)


backend = MojoBackend()
single = MojoBackend("mojo.single", threads=1)
