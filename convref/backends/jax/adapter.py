"""JAX as a backend: `lax.conv_general_dilated` on the CPU, its derivatives by JAX's own rules.

Pools, norms, activations and resizing are in `_jax_ops`.

JAX arrays have no strides, so the memory order of an operand is not part of what is called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from typing import Any

import numpy as np

from ...arrays import like
from ...case import Call
from ...dtypes import COMPLEX, INTEGERS
from ...errors import missing_extra
from ...judge import Numerics
from .. import PLAIN, Arm
from .._operands import contiguous

try:
    import jax
    import jax.numpy as jnp
    from jax import lax
except ImportError as error:
    raise missing_extra("jax", error) from None

from . import ops as _ops

DTYPES = ("f16", "bf16", "f32", "f64", "c64", "c128", *INTEGERS)
CACHED = 256  # compiled programs that are kept; each is some hundred kilobytes


# What XLA does to the loops around a convolution takes longer than all else; without it a program
# compiles four times faster, and its convolution is computed by the same code.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


class JaxBackend:
    """Computes calls with XLA on the CPU, each as one compiled program.

    Parameters
    ----------
    name : str
    options : dict
        Options of XLA's compiler; those that the installed one does not know are left out.
    arms : tuple of Arm
        Over which the court spreads its chunks.
    rules : bool
        Whether the gradient of a maximum goes to the indices that are given; else to JAX's own.
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
        """Return the same backend with JAX's own gradient of a maximum."""
        return JaxBackend(self.name, self.options, rules=False)

    def supports(self, call: Call) -> str | None:
        """Return None, or why JAX has no such convolution."""
        if call.dtype not in DTYPES:
            return f"JAX has no dtype for {call.dtype}"
        if call.math != "ieee":
            return f"the CPU has no math={call.math}"
        if {spec.device for spec in call.specs} != {"cpu"}:
            return "only the CPU is called here"
        if call.op != "conv":
            return _ops.supports(call)
        if call.pass_ == "fprop":
            return None
        if call.dtype in INTEGERS:
            return f"JAX differentiates no {call.dtype}"
        if call.dtype in COMPLEX and call.pass_ != "jvp":
            return "JAX's complex cotangents are not conjugated"
        return None

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        (results,) = self.run_many([call], [operands])
        return results

    def run_many(
        self, calls: Sequence[Call], operands: Sequence[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        """Return the results of several calls, which are compiled as one program."""
        templates = [next(a for a in given if a is not None) for given in operands]
        arrays = list(map(contiguous, calls, operands))
        with _wide_types(), jax.default_device(jax.devices("cpu")[0]):
            results = self._program(tuple(calls))(arrays)
        return [
            tuple(None if r is None else like(np.asarray(r), template) for r in found)
            for found, template in zip(results, templates)
        ]

    def _program(self, calls: tuple[Call, ...]) -> Any:
        """Return the program of some calls; what runs twice in a row is compiled once."""
        if self._last is None or self._last[0] != calls:
            self._compiled += len(calls)
            if self._compiled % CACHED < len(calls):
                jax.clear_caches()

            def compute(arrays: list[list[Any]]) -> list[tuple[Any, ...]]:
                return [_compute(call, self.rules, *given) for call, given in zip(calls, arrays)]

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
        if call.op != "conv":
            return _ops.numerics(call)
        if call.dtype in COMPLEX:  # three real convolutions of sums
            return Numerics("rn32" if call.dtype == "c64" else "rn64", growth=4.0, ftz=True)
        model = "rn64" if call.dtype == "f64" else "rn32"
        # XLA on the CPU flushes subnormals of float32, in which it sums; those of float16 are none
        return Numerics(model, stages=_stages(call), ftz=call.dtype != "f16")

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


def _stages(call: Call) -> int:
    """Return how often 16-bit values are rounded before the last rounding, at most.

    A bias, and each further term of a derivative, is added to a sum that was rounded; the
    gradient of a bias is summed in the 16-bit type.
    """
    if call.dtype not in ("f16", "bf16"):
        return 0
    if call.pass_ == "backward":
        return call.products("db") if "db" in call.wanted else 0
    return {"fprop": 1, "jvp": 3, "double_backward": 3}[call.pass_]


def _convolve(call: Call, x: Any, w: Any, b: Any = None) -> Any:
    """Return the convolution; a transposed one gathers from an input with zeros between."""
    problem = call.conv
    rank, groups, ones = problem.rank, problem.groups, (1,) * problem.rank
    padding = list(problem.padding)
    if problem.transposed:
        k, c = problem.k // groups, problem.c // groups
        w = w.reshape(groups, c, k, *problem.filter).swapaxes(1, 2)
        w = w.reshape(problem.k, c, *problem.filter)
        reach = [d * (taps - 1) for d, taps in zip(problem.dilation, problem.filter)]
        rows = zip(reach, problem.padding, problem.output_padding)
        padding = [(r - lo, r - hi + extra) for r, (lo, hi), extra in rows]
    if problem.flip != problem.transposed:
        w = lax.rev(w, tuple(range(2, 2 + rank)))
    y = lax.conv_general_dilated(
        x,
        w,
        ones if problem.transposed else problem.stride,
        padding,
        lhs_dilation=problem.stride if problem.transposed else ones,
        rhs_dilation=problem.dilation,
        feature_group_count=groups,
        precision=lax.Precision.HIGHEST,
    )
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


def _fprop(call: Call, x: Any, w: Any, b: Any) -> tuple[Any, ...]:
    return (_convolve(call, x, w, b),)


def _pulled(call: Call, dy: Any, x: Any, w: Any) -> tuple[Any, ...]:
    bias = jnp.zeros(call.conv.k, dy.dtype)
    pulled: tuple[Any, ...] = jax.vjp(partial(_convolve, call), x, w, bias)[1](dy)
    return pulled


def _backward(call: Call, dy: Any, x: Any, w: Any) -> tuple[Any, ...]:
    results = _pulled(call, dy, x, w)
    return tuple(r if on else None for r, on in zip(results, call.mask))


def _jvp(call: Call, x: Any, w: Any, b: Any, *dots: Any) -> tuple[Any, ...]:
    carried = [i for i, dot in enumerate(dots) if dot is not None]
    primals = [x, w, b]
    if not carried:
        y = _convolve(call, x, w, b)
        return y, jnp.zeros_like(y)

    def compute(*varied: Any) -> Any:
        given = dict(enumerate(primals)) | dict(zip(carried, varied))
        return _convolve(call, *given.values())

    result: tuple[Any, ...] = jax.jvp(
        compute, tuple(primals[i] for i in carried), tuple(dots[i] for i in carried)
    )
    return result


def _double_backward(call: Call, *operands: Any) -> tuple[Any, ...]:
    outer, point = operands[:3], operands[3:]
    carried = [i for i, cotangent in enumerate(outer) if cotangent is not None]

    def first(*varied: Any) -> tuple[Any, ...]:
        gradients = _pulled(call, *varied)
        return tuple(gradients[i] for i in carried)  # zeros for the others would be products too

    results = tuple(map(jnp.zeros_like, point))
    if carried:
        results = jax.vjp(first, *point)[1](tuple(outer[i] for i in carried))
    return tuple(r if on else None for r, on in zip(results, call.mask))


def _compute(call: Call, rules: bool, *operands: Any) -> tuple[Any, ...]:
    if call.op == "conv":
        return _PASSES[call.pass_](call, *operands)
    return _ops.run(call, rules, *operands)


_PASSES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "fprop": _fprop,
    "backward": _backward,
    "jvp": _jvp,
    "double_backward": _double_backward,
}

# A plain program takes eight times as long: half of the time goes to each arm, the quick one first.
backend = JaxBackend(arms=(Arm("quick", backend="convref.backends.jax:quick", share=8), PLAIN))
quick = JaxBackend("jax-quick", QUICK)
