"""PyTorch as a backend: ATen's convolution as it is, or with convref's edge rules around it.

`backend` is what users get: it settles empty extents itself, where ATen differs from the rules
(docs/conv.md). `backend.raw` is what the court judges: ATen and nothing else.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from threading import RLock
from typing import Any

from ...arrays import kind_of, like, to_torch, torch_dtype
from ...case import Call
from ...errors import missing_extra
from ...judge import Numerics
from .. import PLAIN, Arm

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
except ImportError as error:
    raise missing_extra("torch", error) from None

from . import (
    activation as _torch_activation,
)
from . import (
    norm as _torch_norm,
)
from . import (
    pool as _torch_pool,
)
from . import (
    resize as _torch_resize,
)
from .direct import direct

# Ops other than convolution, each with the module that computes it with torch.
FAMILIES: dict[str, Any] = {
    op: module
    for module in (_torch_pool, _torch_resize, _torch_norm, _torch_activation)
    for op in module.OPS
}
MATH = {"ieee": "ieee", "tf32": "tf32"}
# oneDNN reads its variable once; where the CPU has less, a cap changes nothing.
ISA = "ONEDNN_MAX_CPU_ISA"
CAPS = {"sse41": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE", "bf16": "AVX512_CORE_BF16"}
_REAL = ("f16", "bf16", "f32", "f64")
_NARROW = ("i8", "i16", "i32", "u8")


class TorchBackend:
    """Computes calls with ATen on the operands' device.

    Parameters
    ----------
    name : str
    rules : bool
        Whether convref's edge rules are applied before ATen is called.
    onednn : bool
        Whether oneDNN and NNPACK may compute on the CPU; else ATen's own loops do.
    arms : tuple of Arm
        Over which the court spreads its chunks.
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
    def raw(self) -> TorchBackend:
        """Return the same backend without convref's edge rules."""
        return TorchBackend(self.name, rules=False, onednn=self.onednn)

    def supports(self, call: Call) -> str | None:
        """Return None, or why ATen has no kernel for the call."""
        if torch_dtype(call.dtype) is None:
            return f"torch has no dtype for {call.dtype}"
        if call.math not in MATH:
            return f"torch has no math={call.math}"
        if any(spec.device == "cuda" for spec in call.specs) and not torch.cuda.is_available():
            return "torch sees no CUDA device"
        if call.op in FAMILIES:
            return FAMILIES[call.op].supports(call, self.rules)
        if call.op != "conv":
            return f"{call.op} is not called here"
        if call.pass_ != "fprop" and call.dtype not in _REAL:
            return f"ATen has no {call.pass_} kernel for {call.dtype}"
        if call.dtype in _NARROW and (call.conv.transposed or set(call.conv.dilation) != {1}):
            return f"ATen has no transposed or dilated kernel for {call.dtype}"
        return None

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role."""
        template = next(a for a in operands if a is not None)
        tensors = tuple(None if a is None else to_torch(a) for a in operands)
        if call.specs[0].device == "cuda" and kind_of(template) == "numpy":
            tensors = tuple(None if t is None else t.cuda() for t in tensors)
        with torch.no_grad(), _flags(call.math, self.onednn):
            if call.op in FAMILIES:
                results = FAMILIES[call.op].run(call, self.rules, *tensors)
            else:
                passes = _PASSES if self.rules else _RAW
                run = _empty if self.rules and _is_empty(call) else passes[call.pass_]
                results = run(call, *tensors)
        return tuple(None if r is None else like(r, template) for r in results)

    def bind(self, call: Call) -> Callable[..., tuple[Any, ...]]:
        """Return the function of tensors that computes the call and records nothing.

        Operands are tensors on the call's device that autograd does not follow.
        """
        run = direct(call) if self.rules and self.onednn else None
        if run is None:
            return partial(self.run, call)
        if call.op != "conv" or (call.dtype != "f32" and call.specs[0].device == "cpu"):
            return run  # the flags do not affect these
        math, onednn = call.math, self.onednn
        usual = _usual(call)

        def guarded(*operands: Tensor | None) -> tuple[Any, ...]:
            if usual():
                return run(*operands)
            with _flags(math, onednn):
                return run(*operands)

        return guarded

    def numerics(self, call: Call) -> Numerics:
        """Return the declared model: docs/judge.md says where each number comes from."""
        if call.dtype in ("i8", "i16", "i32", "i64", "u8"):
            return Numerics("exact")
        if call.dtype in ("c64", "c128"):
            return Numerics("rn32" if call.dtype == "c64" else "rn64", growth=4.0)
        if call.dtype == "f64":
            return Numerics("rn64")
        if call.op in FAMILIES:
            sixteen = call.dtype in ("f16", "bf16")
            module = FAMILIES[call.op]
            flushes = call.dtype in getattr(module, "FLUSHES", ())
            kept = module.weights(call) if hasattr(module, "weights") else 0.0
            stages = module.stages(call) if sixteen else 0
            return Numerics("rn32", stages=stages, ftz=flushes, weights=kept)
        if call.specs[0].device == "cuda":
            return Numerics("mma32", tf32=call.math == "tf32", splits=64, stages=_stages(call))
        # vdpbf16ps, which oneDNN uses where the CPU has it, flushes subnormals by design
        flushes = self.onednn and call.dtype == "bf16"
        return Numerics("rn32", tf32=call.math == "tf32", stages=_stages(call), ftz=flushes)

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


def _stages(call: Call) -> int:
    """Return how often 16-bit values are rounded before the last rounding, at most.

    Without oneDNN a scatter rounds its columns and then each tap it adds; a filter gradient
    rounds the sum after each sample; a JVP rounds both of its terms; a bias is added last.
    """
    if call.dtype not in ("f16", "bf16"):
        return 0
    problem = call.conv
    scattered = 1 + prod(axis.windows_per_position for axis in problem.axes)
    y, dx = (scattered, 0) if problem.transposed else (0, scattered)
    by_role = {
        "y": y + 1,
        "dx": dx,
        "dw": problem.n,
        "db": 0,
        "y_dot": 2 * y + 3,
        "ddy": 2 * y + 3,
    }
    return max((by_role[role] for role in call.wanted), default=0)


def _usual(call: Call) -> Callable[[], bool]:
    """Return a cheap test of whether the process's flags already are those of the call."""
    read = torch._C._get_fp32_precision_getter
    wanted = MATH[call.math]
    if call.specs[0].device == "cpu":
        fine = (wanted, "none") if wanted == "ieee" else (wanted,)  # nothing said: nothing lost
        return lambda: read("mkldnn", "conv") in fine and read("mkldnn", "matmul") in fine
    matmul = torch.backends.cuda.matmul
    return lambda: (
        read("cuda", "conv") == read("cuda", "matmul") == wanted
        and not matmul.allow_fp16_reduced_precision_reduction
        and not matmul.allow_bf16_reduced_precision_reduction
    )


_ONE_AT_A_TIME = RLock()  # the flags belong to the process


@contextmanager
def _flags(math: str, onednn: bool) -> Iterator[None]:
    """Set what float32 products and 16-bit sums may do, and put it back afterwards."""
    with _ONE_AT_A_TIME:
        yield from _set_flags(math, onednn)


def _legacy_flag() -> bool | None:
    """Return cuDNN's one flag of older programs, None where the new ones contradict it already."""
    try:
        found: bool = torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        return None
    return found


def _set_flags(math: str, onednn: bool) -> Iterator[None]:
    backends = torch.backends
    wanted: list[tuple[Any, str, Any]] = [
        (part, "fp32_precision", MATH[math])
        for part in (
            backends.cudnn.conv,
            backends.cudnn.rnn,  # torch reads one flag for both, and raises where they differ
            backends.cuda.matmul,
            backends.mkldnn.conv,
            backends.mkldnn.matmul,
        )
    ]
    if torch.cuda.is_available():
        wanted.append((backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False))
        wanted.append((backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False))
    legacy = _legacy_flag()
    before = [(part, name, getattr(part, name)) for part, name, _ in wanted]
    was_on = torch._C._get_mkldnn_enabled()
    nnpack = torch._C._get_nnpack_enabled()
    try:
        if legacy is not None:
            torch._C._set_cudnn_allow_tf32(MATH[math] == "tf32")
        for part, name, value in wanted:
            setattr(part, name, value)
        torch._C._set_mkldnn_enabled(onednn and was_on)
        torch._C._set_nnpack_enabled(onednn and nnpack)
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_on)
        torch._C._set_nnpack_enabled(nnpack)
        if legacy is not None:
            torch._C._set_cudnn_allow_tf32(legacy)
        for part, name, value in before:
            if name == "fp32_precision":
                part.fp32_precision = "none"  # a value that was inherited stays so
            if getattr(part, name) != value:
                setattr(part, name, value)


def _is_empty(call: Call) -> bool:
    problem = call.conv
    return not (problem.n and problem.c and problem.k and prod(problem.input))


def _empty(call: Call, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the results where every sum of products is empty: zeros, and the bias or its sum."""
    given = dict(zip(call.roles, tensors))
    template = next(t for t in tensors if t is not None)
    results: list[Tensor | None] = []
    for role in call.signature.results:
        result = template.new_zeros(call.problem.shape(role)) if role in call.wanted else None
        added = given.get({"y": "b", "y_dot": "b_dot", "ddy": "ddb"}.get(role, ""))
        if result is not None and added is not None:
            result += added.reshape(-1, *(1,) * call.problem.rank)
        if role == "db" and result is not None:
            dy = given["dy"]
            assert dy is not None
            result = dy.sum(dim=(0, *range(2, dy.ndim)))
        results.append(result)
    return tuple(results)


class _Geometry:
    """A call's geometry in ATen's terms: symmetric padding inside, the rest by F.pad outside."""

    def __init__(self, call: Call) -> None:
        problem = call.conv
        self.call, self.transposed = call, problem.transposed
        symmetric = all(lo == hi >= 0 for lo, hi in problem.padding)
        self.padding = [lo if symmetric else 0 for lo, _ in problem.padding]
        self.extra = list(problem.output_padding) if symmetric else [0] * problem.rank
        edges = [
            (lo, hi - extra) for (lo, hi), extra in zip(problem.padding, problem.output_padding)
        ]
        outside = [] if symmetric else [size for edge in reversed(edges) for size in edge]
        self.outside = outside
        self.flips = tuple(range(2, 2 + problem.rank)) if problem.flip else ()

    def arguments(self) -> tuple[Any, ...]:
        """Return stride ... groups in ATen's order."""
        problem = self.call.conv
        stride, dilation = list(problem.stride), list(problem.dilation)
        return stride, self.padding, dilation, self.transposed, self.extra, problem.groups

    def filter(self, w: Tensor) -> Tensor:
        """Return the filter as cross-correlation takes it; its own inverse."""
        return torch.flip(w, self.flips) if self.flips else w

    def wide(self, big: Tensor) -> Tensor:
        """Return the padded side (x, or y when transposed) with the outside padding put on."""
        return _padded(big, self.outside)

    def narrow(self, big: Tensor) -> Tensor:
        """Return the padded side with the outside padding taken off."""
        return _padded(big, [-size for size in self.outside])

    def enter(self, x: Tensor) -> Tensor:
        """Return the input as ATen gets it."""
        return x if self.transposed else self.wide(x)

    def leave(self, x: Tensor) -> Tensor:
        """Return an input cotangent as the caller gets it."""
        return x if self.transposed else self.narrow(x)

    def output(self, y: Tensor) -> Tensor:
        """Return the output as the caller gets it."""
        return self.narrow(y) if self.transposed else y

    def cotangent(self, dy: Tensor) -> Tensor:
        """Return an output cotangent as ATen gets it."""
        return self.wide(dy) if self.transposed else dy


def _padded(big: Tensor, edges: list[int]) -> Tensor:
    """Return `big` padded, then cropped: F.pad itself crops first and may run out of elements."""
    grown = F.pad(big, [max(0, size) for size in edges]) if any(e > 0 for e in edges) else big
    return F.pad(grown, [min(0, size) for size in edges]) if any(e < 0 for e in edges) else grown


def _convolution(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    extra: list[int],
    groups: int,
) -> Tensor:
    """Return aten::convolution, or for complex numbers what torch has only above it."""
    if not x.is_complex():
        return torch.convolution(x, w, b, stride, padding, dilation, transposed, extra, groups)
    rank = x.ndim - 2
    if transposed:
        scatter = getattr(F, f"conv_transpose{rank}d")
        return scatter(x, w, b, stride, padding, extra, groups, dilation)
    return getattr(F, f"conv{rank}d")(x, w, b, stride, padding, dilation, groups)


def _forward(geometry: _Geometry, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    x, w, arguments = geometry.enter(x), geometry.filter(w), geometry.arguments()
    if not (geometry.transposed and geometry.outside):
        return _convolution(x, w, b, *arguments)
    y = geometry.output(_convolution(x, w, None, *arguments))
    return y if b is None else y + b.reshape(-1, *(1,) * (y.ndim - 2))  # outside padding has bias


def _fprop(call: Call, x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor | None, ...]:
    return (_forward(_Geometry(call), x, w, b),)


def _backward(call: Call, dy: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
    geometry, mask = _Geometry(call), call.mask
    dx, dw, db = torch.ops.aten.convolution_backward(
        geometry.cotangent(dy),
        geometry.enter(x),
        geometry.filter(w),
        [call.conv.k],
        *geometry.arguments(),
        [*mask[:2], False],
    )
    if mask[2]:
        db = dy.sum(dim=(0, *range(2, dy.ndim)))
    return (
        geometry.leave(dx) if mask[0] else None,
        geometry.filter(dw) if mask[1] else None,
        db if mask[2] else None,
    )


def _jvp(call: Call, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    geometry = _Geometry(call)
    x, w, b, x_dot, w_dot, b_dot = tensors
    assert x is not None
    assert w is not None
    y = _forward(geometry, x, w, b)
    terms = []
    if x_dot is not None:
        terms.append(_forward(geometry, x_dot, w, None))
    if w_dot is not None:
        terms.append(_forward(geometry, x, w_dot, None))
    if b_dot is not None:
        terms.append(torch.zeros_like(y) + b_dot.reshape(-1, *(1,) * call.conv.rank))
    return y, sum(terms[1:], terms[0]) if terms else torch.zeros_like(y)


def _forward_ad(call: Call, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return (y, y_dot) by PyTorch's own forward mode, which is what the court judges."""
    geometry, primals, tangents = _Geometry(call), tensors[:3], tensors[3:]
    carried = [i for i, tangent in enumerate(tangents) if tangent is not None]

    def forward(*moved: Tensor) -> Tensor:
        given = list(primals)
        for i, tensor in zip(carried, moved):
            given[i] = tensor
        x, w, b = given
        assert x is not None
        assert w is not None
        return _forward(geometry, x, w, b)

    if not carried:
        return _jvp(call, *tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch scripts its own rules
        y, y_dot = torch.func.jvp(
            forward, tuple(primals[i] for i in carried), tuple(tangents[i] for i in carried)
        )
    return y, y_dot


def _double_backward(call: Call, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    geometry, mask = _Geometry(call), call.mask
    ddx, ddw, ddb, dy, x, w = tensors
    assert dy is not None
    assert x is not None
    assert w is not None
    ddy, dx, dw = torch.ops.aten._convolution_double_backward(
        None if ddx is None else geometry.enter(ddx),
        None if ddw is None else geometry.filter(ddw),
        None if geometry.outside else ddb,  # outside padding has bias too
        geometry.cotangent(dy),
        geometry.filter(w),
        geometry.enter(x),
        *geometry.arguments(),
        list(mask),
    )
    zeros = torch.zeros_like
    if mask[0]:
        ddy = zeros(dy) if ddy is None else geometry.output(ddy)
        if ddb is not None and geometry.outside:
            ddy = ddy + ddb.reshape(-1, *(1,) * (dy.ndim - 2))
    return (
        ddy if mask[0] else None,
        (zeros(x) if dx is None else geometry.leave(dx)) if mask[1] else None,
        (zeros(w) if dw is None else geometry.filter(dw)) if mask[2] else None,
    )


_PASSES: dict[str, Callable[..., tuple[Tensor | None, ...]]] = {
    "fprop": _fprop,
    "backward": _backward,
    "jvp": _jvp,
    "double_backward": _double_backward,
}
_RAW = {**_PASSES, "jvp": _forward_ad}

backend = TorchBackend(
    arms=(
        replace(PLAIN, share=2 * len(CAPS)),
        Arm("native", backend="convref.backends.torch:without_onednn", share=2),
        *(Arm(name, ((ISA, cap),)) for name, cap in CAPS.items()),
    )
)
without_onednn = TorchBackend("torch-native", onednn=False)
