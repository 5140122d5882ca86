"""JAX as a backend on the CPU.

JAX arrays have no strides, so the memory order of an operand is not part of the call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from ...arrays import like
from ...case import Call, first_array
from ...dtypes import INTEGERS, REAL
from ...errors import missing_extra
from ...judge import Numerics
from .. import PLAIN, Arm
from .._operands import contiguous

try:
    import jax
except ImportError as error:
    raise missing_extra("jax", error) from None

from . import ops as _ops

DTYPES = (*REAL, "c64", "c128", *INTEGERS)
CACHED = 256  # compiled programs that are kept; each is some hundred kilobytes


# XLA spends most of its compile time on the loops around a convolution; without these passes a
# program compiles four times faster, and the convolution itself runs the same code.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


class JaxBackend:
    """Computes calls with XLA on the CPU, each as one compiled program.

    Of the `options` of XLA's compiler, those unknown to the installed version are dropped. With
    `rules`, the gradient of a maximum goes to the indices that are given, else to JAX's own.
    """

    chunk = 64  # each example is a program to compile
    batch = 16

    def __init__(
        self,
        name: str = "jax",
        options: dict[str, int | bool] | None = None,
        arms: tuple[Arm, ...] = (),
        rules: bool = True,
    ) -> None:
        self.name = name
        self.options = options or {}
        self.arms = arms
        self.rules = rules
        self._compiled = 0
        self._last: tuple[tuple[Call, ...], Any] | None = None

    @property
    def raw(self) -> JaxBackend:
        """Return the same backend with JAX's own maximum and its gradient."""
        return JaxBackend(self.name, self.options, rules=False)

    def supports(self, call: Call) -> str | None:
        """Return None, or why JAX has no such function."""
        if call.dtype not in DTYPES:
            return f"JAX has no dtype for {call.dtype}"
        if call.math != "ieee":
            return f"math={call.math} is not supported on the CPU"
        if {spec.device for spec in call.specs} != {"cpu"}:
            return "the adapter supports only the CPU"
        return _ops.supports(call, self.rules)

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        (results,) = self.run_many([call], [operands])
        return results

    def run_many(
        self, calls: Sequence[Call], operands: Sequence[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        """Return the results of several calls, which are compiled as one program."""
        templates = list(map(first_array, calls, operands))
        arrays = list(map(contiguous, calls, operands))
        with _wide_types(), jax.default_device(jax.devices("cpu")[0]):
            results = self._program(tuple(calls))(arrays)
        return [
            tuple(None if r is None else like(np.asarray(r), template) for r in found)
            for found, template in zip(results, templates)
        ]

    def _program(self, calls: tuple[Call, ...]) -> Any:
        """Return the program of some calls; two equal requests in a row compile once."""
        if self._last is None or self._last[0] != calls:
            self._compiled += len(calls)
            if self._compiled % CACHED < len(calls):
                jax.clear_caches()

            def compute(arrays: list[list[Any]]) -> list[tuple[Any, ...]]:
                return [_ops.run(call, self.rules, *given) for call, given in zip(calls, arrays)]

            self._last = calls, jax.jit(compute, compiler_options=self._accepted)
        return self._last[1]

    @cached_property
    def _accepted(self) -> dict[str, int | bool]:
        """The options that this version of XLA accepts."""
        found = {}
        for name, value in self.options.items():
            with contextlib.suppress(Exception):  # its kind changes between releases
                jax.jit(lambda: 0, compiler_options={name: value})()
                found[name] = value
        return found

    def numerics(self, call: Call) -> Numerics:
        """Return the declared model: docs/judge.md says where each number comes from."""
        if call.dtype in INTEGERS:
            return Numerics("exact")
        return _ops.numerics(call)

    def fingerprint(self) -> dict[str, str]:
        """Return the versions, and the platform that computes."""
        platform = jax.devices("cpu")[0].client.platform_version
        found = {"jax": jax.__version__, "jaxlib": version("jaxlib"), "platform": platform}
        return found | {name: str(value) for name, value in self._accepted.items()}


def _wide_types() -> Any:
    """Return a context in which 64-bit numbers stay so."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64()


# A plain program takes eight times as long: half of the time goes to each arm, the quick one first.
backend = JaxBackend(arms=(Arm("quick", backend="convref.backends.jax:quick", share=8), PLAIN))
quick = JaxBackend("jax-quick", QUICK)
