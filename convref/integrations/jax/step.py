"""One pass of an op as JAX sees it: static, hashable, computed by XLA, in C or by a callback."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ... import dispatch
from ...backends import protocol
from ...backends.jax import JaxBackend
from ...backends.jax.ops import run as run_by_xla
from ...case import Call, Spec
from ...dtypes import numpy_dtype
from ...errors import missing_extra
from ...ops import BASE_ROLE, SIGNATURE, Problem
from . import ffi

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise missing_extra("jax", error) from None

MAX_PROGRAMS = 4096  # compiled ones, for calls outside of jit


def is_direction(role: str) -> bool:
    """Return whether a role is a tangent, or the cotangent of a gradient."""
    return role.endswith("_dot") or role.startswith("dd")


@dataclass(frozen=True)
class Step:
    """A pass with the roles that are arrays; results that are not in `wanted` are not computed."""

    op: str
    pass_: str
    problem: Problem
    dtype: str
    math: str
    backend: str  # as the user named it
    roles: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    conjugate: bool = False  # the last operand, which the pass conjugates

    @property
    def output(self) -> str:
        """The role of the first result of the op."""
        return SIGNATURE[self.op, "fprop"].results[0]

    def is_image(self, role: str) -> bool:
        """Return whether the first axis of an array is N."""
        return bool(self.problem.letters(role)[0] == "n")

    @cached_property
    def call(self) -> Call:
        """The call; operands that it needs and the step does not read are among its roles."""
        form = SIGNATURE[self.op, self.pass_]
        mask = tuple(r in self.wanted for r in form.results) if form.maskable else ()
        carried = None
        if self.problem.tangents(self.pass_):
            carried = "".join(
                BASE_ROLE[r] for r in self.roles if r.endswith("_dot") or r[:2] == "dd"
            )
        spec = (Spec(self.dtype),)
        return Call(self.op, self.pass_, self.problem, mask, carried, spec, self.math)

    @cached_property
    def results(self) -> list[jax.ShapeDtypeStruct]:
        """Shapes and dtypes of the wanted results; without x64, JAX has no 64-bit types."""
        return [
            jax.ShapeDtypeStruct(
                self.call.problem.shape(role),
                jax.dtypes.canonicalize_dtype(numpy_dtype(self.call.dtype_of(role))),
            )
            for role in self.wanted
        ]

    @cached_property
    def by_xla(self) -> bool:
        """Whether XLA computes the pass; else the backend does, on NumPy arrays."""
        return isinstance(self._backend, JaxBackend)

    @cached_property
    def _backend(self) -> Any:
        return dispatch.choose(self.call, self.backend, "jax").backend

    @cached_property
    def _c_calls(self) -> ffi.Calls | None:
        return ffi.calls_of(self._backend, self.call)

    def _operands(self, arrays: Sequence[Any], zeros: Callable[..., Any]) -> list[Any]:
        """Return the operands of the call by role, zeros where no wanted result reads one."""
        given = dict(zip(self.roles, arrays, strict=True))
        shape, call = self.problem.shape, self.call
        return [
            given.get(r)
            if r in given or not call.is_present(r)
            else zeros(shape(r), numpy_dtype(call.dtype_of(r)))
            for r in call.roles
        ]

    def evaluate(self, *arrays: Any) -> list[Any]:
        """Return the wanted results of arrays or tracers."""
        if self.conjugate:
            arrays = (*arrays[:-1], jnp.conj(arrays[-1]))
        if self.by_xla:
            found = run_by_xla(self.call, True, *self._operands(arrays, jnp.zeros))
            return [a.astype(like.dtype) for a, like in zip(self._wanted(found), self.results)]
        if (calls := self._c_calls) is not None:
            given = dict(zip(self.call.roles, self._operands(arrays, jnp.zeros)))
            computed = ffi.evaluate(self.call, calls, given)
            return [computed[role] for role in self.wanted]
        called = jax.pure_callback(self.on_host, self.results, *arrays, vmap_method="sequential")
        return list(called)

    def evaluate_on_cuda(self, *arrays: Any) -> list[Any]:
        """Return the wanted results in a program for CUDA."""
        computed = getattr(self._backend, "cuda_results", None)
        if computed is None:
            return self.evaluate(*arrays)
        zeros = self._operands(arrays, jnp.zeros)
        given = {role: a for role, a in zip(self.call.roles, zeros) if a is not None}
        found = computed(self.call, given)
        return [found[role].astype(like.dtype) for role, like in zip(self.wanted, self.results)]

    def on_host(self, *arrays: Any) -> list[Any]:
        """Return the wanted results as NumPy arrays."""
        operands = [
            None if a is None else np.asarray(a, numpy_dtype(self.call.dtype_of(r)))
            for r, a in zip(self.call.roles, self._operands(arrays, _zeros))
        ]
        found = self._wanted(protocol.run_checked(self._backend, self.call, "numpy", operands))
        return [np.asarray(a, like.dtype) for a, like in zip(found, self.results)]

    def _wanted(self, found: Sequence[Any]) -> list[Any]:
        named = dict(zip(self.call.signature.results, found))
        return [named[role] for role in self.wanted]


def evaluated(*arrays: Any, step: Step) -> list[Any]:
    """Return the wanted results of concrete arrays."""
    if step.by_xla or step.conjugate:
        return list(_program(step)(*arrays))
    return [jnp.asarray(a) for a in step.on_host(*arrays)]


def _zeros(shape: Sequence[int], dtype: Any) -> Any:
    return np.broadcast_to(np.zeros((), dtype), shape)  # takes no memory


@lru_cache(MAX_PROGRAMS)
def _program(step: Step) -> Any:
    return jax.jit(step.evaluate)
