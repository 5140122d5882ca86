"""The Mojo kernels as a backend: convolutions, pools and batch norm on the CPU."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from convref import dtypes
from convref.arrays import facts, like, to_numpy
from convref.backends import PLAIN, Arm
from convref.case import Call, argument, check_count, check_operand, check_positions
from convref.errors import UnsupportedError, message
from convref.judge import Numerics
from convref.ops import BASE_ROLE

from . import build, library, passes
from .strides import Array, Strides

CALLS = 1024  # in the cache
LAYOUTS = 64  # of the operands of a call in the cache
Facts = tuple[tuple[int, ...], Strides, np.dtype[Any]]  # of an array: shape, strides, type


class ArraySpec(NamedTuple):
    """An array of a call; `model` is the operand whose memory layout a result takes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    model: str | None = None


class CallSpec(NamedTuple):
    """The arrays of a call by role, None if absent or not requested; computed once per call."""

    operands: dict[str, ArraySpec | None]
    results: dict[str, ArraySpec | None]


class NumpyPlan(NamedTuple):
    """How a call is computed on arrays of some shapes, strides and types.

    For each result, `makers` has the function that makes its array, or None, and the arguments.
    Results after the first `asked` are not those of the call, but a later pass of it reads them.
    """

    makers: tuple[tuple[Callable[..., Array] | None, tuple[Any, ...]], ...]
    asked: int
    natives: tuple[passes.NumpyCall, ...]


class Plans:
    """The plans of a call by the facts of operands and outputs, and the last one without outputs.

    The call is kept, so that no other one has its identity.
    """

    __slots__ = ("by_facts", "call", "last")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.by_facts: dict[Any, NumpyPlan | None] = {}
        self.last: NumpyPlan | None = None


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
        # By identity of the call, as hashing it takes as long as computing a small one.
        self._plans: dict[int, Plans] = {}

    def supports(self, call: Call) -> str | None:
        if (native := passes.NATIVE.get(call.op)) is None:
            return f"no {call.op} kernel"
        if call.pass_ not in native:
            return f"no {call.where} kernel"
        return unsupported(call, "cpu") or build.why_missing()

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role, each with the memory layout of the operand of its own role.

        Raise ConvrefError if an operand disagrees with the call, UnsupportedError if `supports`
        gives a reason.
        """
        plans = self._plans.get(id(call))
        if plans is not None and (plan := plans.last) is not None:
            made = tuple([make and make(*words) for make, words in plan.makers])
            arrays = operands + made  # a small call takes as long as these lines
            for native in plan.natives:
                if native.run(arrays) < 0:  # perhaps these operands need another plan
                    break
            else:
                return made[: plan.asked]
        for operand in operands:
            if type(operand) is not np.ndarray and operand is not None:
                results = self._run(call, self._converted(call, operands))
                template = next(a for a in operands if a is not None)
                return tuple(None if r is None else like(r, template) for r in results)
        return self._run(call, operands)

    def _run(self, call: Call, operands: tuple[Array | None, ...]) -> tuple[Array | None, ...]:
        """Return the results on NumPy arrays."""
        known = tuple(None if a is None else _facts(a) for a in operands)
        plan = self._plan(call, known)
        if plan is None:  # an operand has another shape or type
            operands = self._converted(call, operands)
            plan = self._plan(call, tuple(None if a is None else _facts(a) for a in operands))
            assert plan is not None
        if (plans := self._plans.get(id(call))) is not None:  # not cleared by another thread
            plans.last = plan
        made = tuple(make and make(*words) for make, words in plan.makers)
        _compute(call, plan, operands, made)
        return made[: plan.asked]

    def _plan(
        self,
        call: Call,
        known: tuple[Facts | None, ...],
        outputs: tuple[Facts | None, ...] | None = None,
    ) -> NumpyPlan | None:
        """Return the plan for operands of these facts, None if they do not fit.

        Without the facts of `outputs`, results have the memory layout of the operands.
        """
        try:
            return self._plans[id(call)].by_facts[known, outputs]
        except KeyError:
            pass
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        check_count(call, known)
        if len(self._plans) >= CALLS:
            self._plans.clear()
        made = _plan(call, known, outputs, self.count or library.cores(), self.always)
        plans = self._plans.setdefault(id(call), Plans(call)).by_facts
        if len(plans) >= LAYOUTS:
            plans.clear()
        plans[known, outputs] = made
        return made

    def native(self, call: Call) -> tuple[passes.NativePass, ...]:
        """Return the words of the calls of `entry` that compute a call on C-contiguous arrays."""
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        return passes.native_passes(call, threads=self.count or library.cores())

    @property
    def entry(self) -> Callable[..., int]:
        """The C function that `convref_mojo.passes` describes."""
        return library.loaded().convref_pass

    def _converted(self, call: Call, operands: tuple[Any, ...]) -> tuple[Array | None, ...]:
        """Return the operands as arrays that the kernels can read."""
        if (reason := self.supports(call)) is not None:
            raise UnsupportedError(message(self.name, reason, call))
        check_count(call, operands)
        needs = spec_of(call).operands
        return tuple(checked(call, role, a, needs[role]) for role, a in zip(needs, operands))

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
        before = self.count, self.always, self._plans
        self.count, self.always, self._plans = count, True, {}
        try:
            yield
        finally:
            self.count, self.always, self._plans = before

    def numerics(self, call: Call) -> Numerics:
        """Return the accuracy model: sums in float32, for float64 in float64, rounded once."""
        return Numerics("rn64" if call.dtype == "f64" else "rn32")

    def fingerprint(self) -> dict[str, str]:
        if (reason := build.why_missing()) is not None:
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
    return CallSpec(operands, results)


def _model(call: Call, role: str, operands: dict[str, ArraySpec | None]) -> str | None:
    rank = len(call.problem.shape(role))
    fitting = [r for r, need in operands.items() if need and len(need.shape) == rank]
    same = [r for r in fitting if BASE_ROLE[r] == BASE_ROLE[role]]
    images = [r for r in fitting if BASE_ROLE[r] in "xy"]
    return next(iter(same + images), None)


def _compute(
    call: Call, plan: NumpyPlan, operands: tuple[Array | None, ...], made: tuple[Array | None, ...]
) -> None:
    arrays = operands + made
    for native in plan.natives:
        if (status := native.run(arrays)) == passes.POSITION:
            for role, operand in zip(call.roles, operands):
                check_positions(call, role, operand)
        elif status == passes.UNALIGNED:
            aligned = [a if a is None or a.flags.aligned else a.copy() for a in operands]
            _compute(call, plan, tuple(aligned), made)
            return


def _plan(
    call: Call,
    known: tuple[Facts | None, ...],
    outputs: tuple[Facts | None, ...] | None,
    threads: int,
    always: bool,
) -> NumpyPlan | None:
    spec = spec_of(call)
    given = dict(zip(spec.operands, known))
    if len(known) != len(given) or not all(map(fits, spec.operands.values(), known)):
        return None
    if outputs is None:
        outputs = tuple(need and _laid_out(need, given) for need in spec.results.values())
    made = dict(zip(spec.results, outputs))
    natives = passes.native_passes(call, threads=threads, always=always)
    if made.get("indices") is None and any("indices" in each.results for each in natives):
        made["indices"] = _facts(np.empty(call.problem.shape("indices"), np.int64))
    return NumpyPlan(
        tuple((None, ()) if one is None else _maker(*one) for one in made.values()),
        len(outputs),
        tuple(passes.NumpyCall(each, given, made, not i) for i, each in enumerate(natives)),
    )


def _maker(
    shape: tuple[int, ...], strides: Strides, dtype: np.dtype[Any]
) -> tuple[Callable[..., Array], tuple[Any, ...]]:
    if strides == np.empty(shape, dtype).strides:
        return np.empty, (shape, dtype)
    return np.ndarray, (shape, dtype, None, 0, strides)


def _facts(array: Array) -> Facts:
    return array.shape, array.strides, array.dtype


def fits(need: ArraySpec | None, known: Facts | None) -> bool:
    """Return whether an array is one that a call needs, with strides of whole elements."""
    if need is None or known is None:
        return need is None and known is None
    shape, strides, dtype = known
    if (shape, dtype) != need[:2]:
        return False
    return all(n < 2 or stride % dtype.itemsize == 0 for n, stride in zip(shape, strides))


def _laid_out(need: ArraySpec, given: Mapping[str, Facts | None]) -> Facts:
    """Return the facts of a result, with the axis order of the operand that is its model."""
    known = given[need.model] if need.model else None
    model = known and as_strided(np.empty(1, known[2]), *known[:2])
    return _facts(empty(need, {need.model or "": model}))


def checked(call: Call, role: str, operand: Any, need: ArraySpec | None) -> Array | None:
    """Return an operand as an array that the kernels can read, with its strides if possible."""
    if operand is None and need is None:
        return None
    array = None if operand is None else np.asarray(to_numpy(operand))
    if array is not None and fits(need, _facts(array)) and array.flags.aligned:
        return array
    found = None if array is None else facts(call.where, argument(role), array)
    check_operand(call, role, found)
    assert array is not None
    assert need is not None
    return array.astype(need.dtype, order="C")


def empty(need: ArraySpec, given: Mapping[str, Array | None]) -> Array:
    """Return memory for a result, with the axis order of the operand that is its model."""
    model = given[need.model] if need.model else None
    if model is None:
        return np.empty(need.shape, need.dtype)
    return np.empty_like(model, need.dtype, order="K", shape=need.shape, subok=False)


class IntoBackend(MojoBackend):
    """The same kernels writing to the caller's outputs, so that the court can check around them.

    Those outputs are contiguous; the results of `run` have the operands' layout.
    """

    def run_into(self, call: Call, outputs: tuple[Array | None, ...], *operands: Any) -> None:
        """Write the results to the arrays `outputs`, by role, None where masked off."""
        given = self._converted(call, operands)
        known = tuple(a if a is None else _facts(a) for a in given)
        made = tuple(a if a is None else _facts(a) for a in outputs)
        plan = self._plan(call, known, made)
        assert plan is not None
        rest = (make and make(*words) for make, words in plan.makers[len(outputs) :])
        _compute(call, plan, given, (*outputs, *rest))


class PassesBackend(MojoBackend):
    """The same kernels by the stateless C function, which other hosts call."""

    def _run(self, call: Call, operands: tuple[Array | None, ...]) -> tuple[Array | None, ...]:
        operands = self._converted(call, operands)
        spec = spec_of(call)
        given = dict(zip(spec.operands, operands))
        made = {role: need and empty(need, given) for role, need in spec.results.items()}
        results = {role: a for role, a in made.items() if a is not None}
        passes.compute(call, given, results, self.count or library.cores())
        return tuple(made.values())


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
