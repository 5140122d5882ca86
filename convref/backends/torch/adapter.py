"""PyTorch as a backend: ATen's convolution as it is, or with convref's edge rules around it.

`backend` is for users: it computes empty extents itself, where ATen differs from the rules
(docs/conv.md). `backend.raw`, which the court judges, is ATen alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ...arrays import kind_of, like, to_torch, torch_dtype, why_no_device
from ...case import Call, first_array
from ...dtypes import REAL, SIXTEEN
from ...errors import missing_extra
from ...judge import Numerics
from ...ops import OPS
from .. import PLAIN, Arm

# The package imports this module before all others, which therefore need no message of their own.
try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise missing_extra("torch", error) from None

from . import activation, conv, matmul, norm, pool, quantized, resize, sample
from .direct import direct
from .flags import MATH, are_set, flags

# Ops other than convolution, each with the module that computes it with torch.
FAMILIES: dict[str, Any] = {
    op: module
    for module in (pool, resize, norm, activation, sample, quantized, matmul)
    for op in module.OPS
}
# oneDNN reads its variable once; where the CPU has less, a cap changes nothing.
ISA = "ONEDNN_MAX_CPU_ISA"
CAPS = {"sse41": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE", "bf16": "AVX512_CORE_BF16"}
_FAR = 10_000  # steps of a view whose tangent, with the same strides, would take gigabytes
_NARROW = ("i8", "i16", "i32", "u8")


class TorchBackend:
    """Computes calls with ATen on the operands' device.

    With `rules`, convref's edge rules are applied before ATen is called. With `onednn`, oneDNN and
    NNPACK may compute on the CPU, else ATen's own loops do.
    """

    def __init__(
        self,
        name: str = "torch",
        *,
        rules: bool = True,
        onednn: bool = True,
        arms: tuple[Arm, ...] = (),
    ) -> None:
        self.name = name
        self.rules = rules
        self.onednn = onednn
        self.arms = arms

    @property
    def serial(self) -> bool:
        """Return whether a call sets flags that are those of all threads."""
        return not self.onednn

    @property
    def raw(self) -> TorchBackend:
        """Return the same backend without convref's edge rules."""
        return TorchBackend(self.name, rules=False, onednn=self.onednn)

    def supports(self, call: Call) -> str | None:
        """Return None, or why ATen has no kernel for the call."""
        if torch_dtype(call.dtype) is None:
            return f"torch has no dtype for {call.dtype}"
        if call.math not in MATH:
            return f"torch does not support math={call.math}"
        if reason := why_no_device(call.specs[0].device):
            return reason
        if call.pass_ in ("jvp", "double_backward") and any(
            abs(k) > _FAR for spec in call.specs for _, k in spec.step
        ):
            return "forward mode fills the tangent of an operand that is stored far apart"
        if call.op in FAMILIES:
            return FAMILIES[call.op].supports(call, self.rules)
        if call.op != "conv":
            return f"the adapter has no {call.op}"
        if call.pass_ != "fprop" and call.dtype not in REAL:
            return f"ATen has no {call.pass_} kernel for {call.dtype}"
        if call.dtype in _NARROW and (call.conv.transposed or set(call.conv.dilation) != {1}):
            return f"ATen has no transposed or dilated kernel for {call.dtype}"
        return None

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        template = first_array(call, operands)
        tensors = tuple(None if a is None else to_torch(a) for a in operands)
        if call.specs[0].device == "cuda" and kind_of(template) == "numpy":
            tensors = tuple(None if t is None else t.cuda() for t in tensors)
        with torch.no_grad(), flags(call.math, self.onednn):
            if call.op in FAMILIES:
                results = FAMILIES[call.op].run(call, self.rules, *tensors)
            else:
                results = conv.run(call, self.rules, *tensors)
        return tuple(None if r is None else like(r, template) for r in results)

    def bind(self, call: Call) -> Callable[..., tuple[Any, ...]]:
        """Return the function of tensors that computes the call and records nothing.

        Operands are tensors on the call's device that autograd does not follow.
        """
        run = direct(call) if self.rules and self.onednn else None
        if run is None:
            return self._unguarded(call) if self.onednn else partial(self.run, call)
        if call.op != "conv" or (call.dtype != "f32" and call.specs[0].device == "cpu"):
            return run  # the flags do not affect these
        math, onednn = call.math, self.onednn
        usual = are_set(call)

        def guarded(*operands: Tensor | None) -> tuple[Any, ...]:
            if usual():
                return run(*operands)
            with flags(math, onednn):
                return run(*operands)

        return guarded

    def _unguarded(self, call: Call) -> Callable[..., tuple[Any, ...]]:
        family = FAMILIES.get(call.op)
        if family is None or OPS[call.op].multiplies:
            return partial(self.run, call)
        return torch.no_grad()(partial(family.run, call, self.rules))

    def numerics(self, call: Call) -> Numerics:
        """Return the declared model: docs/judge.md says where each number comes from."""
        if call.dtype in ("i8", "i16", "i32", "i64", "u8"):
            return Numerics("exact")
        if call.dtype in ("c64", "c128"):
            return Numerics("rn32" if call.dtype == "c64" else "rn64", growth=4.0)
        if call.dtype == "f64":
            return Numerics("rn64")
        module = FAMILIES.get(call.op, conv)
        if not OPS[call.op].multiplies:  # no flags affect it
            sixteen = call.dtype in SIXTEEN
            flushes = call.dtype in getattr(module, "FLUSHES", ())
            kept = module.weights(call) if hasattr(module, "weights") else 0.0
            stages = module.stages(call) if sixteen else 0
            return Numerics("rn32", stages=stages, ftz=flushes, weights=kept)
        stages = module.stages(call) if call.dtype in SIXTEEN else 0
        if call.specs[0].device == "cuda":
            # cuDNN's kernels flush subnormals of the accumulator, which float16 products are not
            flushes = call.op == "conv" and call.dtype != "f16"
            cut = call.math == "tf32"
            return Numerics("mma32", tf32=cut, splits=64, stages=stages, ftz=flushes)
        # vdpbf16ps, which oneDNN uses where the CPU has it, flushes subnormals by design
        flushes = self.onednn and call.dtype == "bf16"
        return Numerics("rn32", tf32=call.math == "tf32", stages=stages, ftz=flushes)

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Let `count` threads compute."""
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def fingerprint(self) -> dict[str, str]:
        """Return the versions and the instruction set that oneDNN may use."""
        found = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
        found["threads"] = str(torch.get_num_threads())
        found["onednn"] = "on" if self.onednn and torch.backends.mkldnn.is_available() else "off"
        if self.onednn and ISA in os.environ:
            found["onednn_max_isa"] = os.environ[ISA]
        if torch.cuda.is_available():
            found["cuda"] = torch.cuda.get_device_name()
            found["cudnn"] = str(torch.backends.cudnn.version())
        return found


backend = TorchBackend(
    arms=(
        replace(PLAIN, share=2 * len(CAPS)),
        Arm("native", backend="convref.backends.torch:without_onednn", share=2),
        *(Arm(name, ((ISA, cap),)) for name, cap in CAPS.items()),
    )
)
without_onednn = TorchBackend("torch-native", onednn=False)
