"""The backend "triton": our kernels on CUDA tensors, and interpreted, strictly, on the CPU.

`backend` does not choose kernels in Gluon that no card has run, unless ``CONVREF_UNPROVEN=1`` is
set in the environment. `unproven`, which ``convref.plan(..., unproven=True)`` uses, may choose
them.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from convref.arrays import like, to_torch, why_no_device
from convref.backends import Inspected
from convref.case import Call, check_operand, first_array
from convref.dtypes import EIGHT
from convref.errors import UnsupportedError, invalid, message, missing_extra, shorten
from convref.judge import Numerics

try:
    import torch
    import triton
except ImportError as error:
    raise missing_extra("triton", error) from None

from .common.epilogue import ACTIVATIONS
from .common.geometry import Tensor, operands
from .compile import aot, inspection
from .conv import scaled
from .hopper.precompiled import assembler, assembler_version
from .norm import norm
from .plan import archs
from .plan.builder import NEW, Builder
from .plan.choose import WINDOWED, Choice, offered, plan, ranked, refusal, tasks
from .plan.launch import KernelPlan
from .plan.measured import AT_MOST, is_fastest
from .plan.task import UNFUSED, Fusion
from .run import gpu, interpreted, traced

_PLANS = 4096


class TritonBackend:
    """Computes convolutions, pools, norms and resizing with hand-written kernels."""

    checked_by_dispatch = True
    serial = True  # the interpreter has state of its own
    chunk = 64  # the interpreter needs seconds for some examples
    large = False  # and minutes for thousands of programs
    with_unproven = f"{__name__}:unproven"

    def __init__(self, name: str = "triton", unproven: bool = False) -> None:
        self.name, self._unproven = name, unproven

    def supports(self, call: Call) -> str | None:
        if reason := why_no_device(call.specs[0].device):
            return reason
        device = _current(call)
        return refusal(call, device.arch if device else archs.DEFAULT)

    def run(self, call: Call, *arrays: Any, configuration: Choice | None = None) -> tuple[Any, ...]:
        """Return the results by role, as the caller's kind of array.

        A `configuration` is one of `configurations(call)`, instead of the table's choice.
        """
        template = first_array(call, arrays)
        given = {role: array for role, array in zip(call.roles, arrays) if array is not None}
        return results_of(call, template, self._run(call, given, configuration, UNFUSED))

    def traced(self, call: Call, *tensors: Any) -> tuple[Any, ...] | None:
        """Return the results on CUDA tensors without data, whose graph then has the kernels.

        None if the plan has steps that PyTorch's compiler cannot take as kernels.
        """
        given = {role: tensor for role, tensor in zip(call.roles, tensors) if tensor is not None}
        device = _device_of(call, given)
        facts = tuple(
            Tensor(role, tuple(tensor.shape), tensor.stride(), call.dtype_of(role))
            for role, tensor in given.items()
        )
        made = cached_plan(call, facts, None, UNFUSED, device, self._unproven)
        if traced.refusal(made):
            return None
        found = {n.removesuffix(NEW): tensor for n, tensor in traced.run(made, given).items()}
        return tuple(found.get(role) for role in call.signature.results)

    def fused(self, call: Call, epilogue: str) -> Callable[..., Any] | None:
        """Return a function of the operands (and a residual z), None for an unknown epilogue.

        The call is fprop of a convolution, not transposed, with a bias; or of a norm, of which the
        function returns y alone, and to which no residual is added. The epilogue is an activation
        of `common.epilogue.ACTIVATIONS`; with "add_" before it, z is added first.
        """
        added = epilogue.startswith("add_")
        fusion = Fusion(residual="z" if added else "", activation=epilogue.removeprefix("add_"))
        known = ("conv",) if added else ("conv", *norm.SPEC.serves)
        fits = call.op in known and call.pass_ == "fprop"
        if fusion.activation not in ACTIVATIONS or not fits:
            return None

        def run(*arrays: Any) -> Any:
            named = zip((*call.roles, "z") if added else call.roles, arrays)
            given = {role: array for role, array in named if array is not None}
            found = self._run(call, given, None, fusion)
            return like(_results(found)["y"], arrays[0])

        return run

    def _run(
        self, call: Call, arrays: dict[str, Any], choice: Choice | None, fusion: Fusion
    ) -> dict[str, torch.Tensor]:
        tensors = {role: to_torch(array) for role, array in arrays.items()}
        device = None
        if call.specs[0].device == "cuda":
            device = _device_of(call, tensors)
            tensors = {role: tensor.to(device.place) for role, tensor in tensors.items()}
        made = cached_plan(call, facts_of(call, tensors), choice, fusion, device, self._unproven)
        return gpu.run(made, tensors) if device else self.interpret(made, tensors)

    def interpret(
        self, made: KernelPlan, tensors: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        return interpreted.run(made, tensors)

    def compile_all(self, arch: str, jobs: int, calls: Iterable[Call]) -> str:
        able = ((call, [None]) for call in calls if self.supports(call) is None)
        return self.compile_some(arch, jobs, able)

    def compile_some(
        self, arch: str, jobs: int, wanted: Iterable[tuple[Call, Sequence[Choice | None]]]
    ) -> str:
        """Compile, in `jobs` processes, configurations of calls; None is the default."""
        plans = (
            plan(call, operands(call), choice, arch=arch)
            for call, choices in wanted
            for choice in choices
        )
        every = {made.key: made for each in plans for made in gpu.specializations(each)}
        results = aot.compile_all(every.values(), arch, jobs)
        refused = [result for result in results if isinstance(result, Exception)]
        return "; ".join((f"{len(every)} binaries, {len(refused)} refused", *map(str, refused)))

    def passed_over(self, call: Call) -> str | None:
        """Return why "auto" leaves a call to others; None if we were faster on this card, twice."""
        if call.specs[0].device != "cuda":
            return "the interpreter is for tests"
        card = torch.cuda.get_device_name()
        slower = f"not measured at most {AT_MOST} of the best other time on {card}, twice"
        return None if is_fastest(call, card) else slower

    def prepare(self, call: Call) -> None:
        """Compile and load the kernels of a call on the current CUDA device; else do nothing."""
        if call.specs[0].device == "cuda":
            facts, device = tuple(operands(call).values()), gpu.cuda(torch.cuda.current_device())
            gpu.prepare(cached_plan(call, facts, None, UNFUSED, device, self._unproven), device)

    def inspect(self, call: Call, arch: str, kernel: str = "") -> list[Inspected]:
        """Return each kernel of a call on a card, compiled for an architecture such as "sm_90".

        The first choice whose name begins with `kernel` is used instead of the default.
        """
        there = replace(call, specs=tuple(replace(s, device="cuda") for s in call.specs))
        return inspection.inspect_plan(self.plan_for(there, arch, kernel), arch)

    def plan_for(self, call: Call, arch: str, kernel: str = "", sms: int = 0) -> KernelPlan:
        """Return the plan of a call for an architecture, on a `kernel` as in `inspect`."""
        if reason := refusal(call, arch):
            raise UnsupportedError(message(call.where, reason, call))
        known = {str(choice): choice for choice in offered(call, operands(call), arch)}
        taken = next((known[name] for name in known if kernel and name.startswith(kernel)), None)
        if kernel and taken is None:
            names = ", ".join(dict.fromkeys(choice.kernel for choice in known.values()))
            what = f"{shorten(repr(kernel))} begins no choice, needs one of {names}"
            what += f", with a tile or without, as in {next(iter(known))}"
            raise invalid(call.where, what, call)
        tensors = operands(call)
        return plan(call, tensors, taken, arch=arch, sms=sms, unproven=self._unproven)

    def configurations(self, call: Call) -> list[Choice]:
        """Return the kernels and tiles that `run` accepts, the one expected to be fastest first."""
        device = _current(call)
        return list(ranked_configurations(call, *(device.arch, device.sms) if device else ()))

    def describe(self, call: Call) -> str:
        facts = tuple(operands(call).values())
        device = _current(call)
        reason = cached_plan(call, facts, None, UNFUSED, device, self._unproven).reason
        version = assembler_version(assembler(device.arch if device else archs.DEFAULT))
        return f"{reason}\n    compiled by Triton {triton.__version__} and ptxas {version}"

    def cuda_results(self, call: Call, operands: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results in a JAX program for CUDA, which jax-triton launches kernels in."""
        from .run import jax

        there = replace(call, specs=tuple(replace(s, device="cuda") for s in call.specs))
        return jax.results(there, operands)

    def numerics(self, call: Call) -> Numerics:
        """Return the declared model: float32 sums, which tensor cores may truncate.

        Those of 8-bit floats have fewer bits, but are promoted after each step of a sum.
        """
        if call.op not in WINDOWED:
            return Numerics("rn32")
        cut = {call.math: True} if call.math != "ieee" else {}
        if call.specs[0].device == "cpu" or (call.dtype == "f32" and not cut):
            return Numerics("rn32", **cut)
        if call.dtype in EIGHT:
            return Numerics("mma32", bits=scaled.BITS, promoted=scaled.DEEPEST)
        return Numerics("mma32", splits=64, **cut)

    def fingerprint(self) -> dict[str, str]:
        found = {"triton": triton.__version__, "torch": torch.__version__}
        cuda = torch.cuda.is_available()
        return found | {"device": torch.cuda.get_device_name() if cuda else "interpreter"}


def results_of(call: Call, template: Any, buffers: Mapping[str, torch.Tensor]) -> tuple[Any, ...]:
    """Return the results by role of the buffers of a plan, as the kind of array of an operand."""
    found = _results(buffers)
    return tuple(
        like(found[role], template) if role in found else None for role in call.signature.results
    )


def _results(buffers: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removesuffix(NEW): tensor for name, tensor in buffers.items()}


def facts_of(call: Call, tensors: Mapping[str, torch.Tensor]) -> tuple[Tensor, ...]:
    """Return what a plan needs to know of operands."""
    return tuple(_facts(call, role, tensor) for role, tensor in tensors.items())


def _facts(call: Call, role: str, tensor: torch.Tensor) -> Tensor:
    shape, strides = tuple(tensor.shape), tensor.stride()
    return Tensor(role, shape, strides, call.dtype_of(role), tensor.data_ptr() % 16 == 0)


def _current(call: Call) -> gpu.Device | None:
    """Return the current CUDA device; None of a call that is interpreted."""
    return gpu.cuda(torch.cuda.current_device()) if call.specs[0].device == "cuda" else None


def _device_of(call: Call, tensors: Mapping[str, torch.Tensor]) -> gpu.Device:
    """Return the device of the operands, the current one if they are on the CPU."""
    found = {tensor.device: role for role, tensor in tensors.items() if tensor.is_cuda}
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        what = f"{first} is on {one} and {second} on {other}, needs one device"
        raise invalid("triton", what, call)
    index = next(iter(found)).index if found else torch.cuda.current_device()
    return gpu.cuda(index)


@lru_cache(_PLANS)
def cached_plan(
    call: Call,
    tensors: tuple[Tensor, ...],
    choice: Choice | None,
    fusion: Fusion,
    device: gpu.Device | None,  # None if the plan is interpreted
    unproven: bool,
) -> KernelPlan:
    known = {tensor.role: tensor for tensor in tensors}
    for role in filter(call.is_present, call.roles):
        if role not in known:
            check_operand(call, role, None)
    if device is None:
        return plan(call, known, choice, fusion=fusion, unproven=unproven)
    where = device.arch, device.sms
    return plan(call, known, choice, device.name, fusion, *where, unproven)


@lru_cache(_PLANS)
def ranked_configurations(
    call: Call, arch: str = archs.DEFAULT, sms: int = 0
) -> tuple[Choice, ...]:
    """Return what may compute a call, that expected to be the fastest first where it is ranked."""
    tensors = operands(call)
    found = offered(call, tensors, arch)
    if call.op != "conv" or len(call.wanted) > 1:
        return tuple(found)
    (task,) = tasks(Builder(call, tensors), arch=arch, sms=sms)
    return tuple(ranked(task, found))


backend = TritonBackend(unproven=os.environ.get("CONVREF_UNPROVEN") == "1")
unproven = TritonBackend(unproven=True)
