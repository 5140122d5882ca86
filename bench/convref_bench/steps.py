"""The steps of `make gpu`, each run in a child: they append what they measure as they go."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from convref import dispatch
from convref.case import Call

from . import records, suite
from .gpu import PARTIAL, ours
from .roofline import Roof, RoofError
from .timing import Stop, measure, verdict

POINT = Stop(samples=7, noise=0.01, timeout_s=0.25)  # at most about 60 ms of GPU time an arm
BATCHES = {"resnet50": 32, "yolo11n": 8, "mobilenet_v3_large": 32, "efficientnet_b0": 32}
BATCHES |= {"convnext_tiny": 32, "sd_unet": 2, "stress": 16, "wavenet": 4}
KEYS = ("dt=bf16:mem=nhwc", "dt=f16:mem=nhwc", "math=tf32:mem=nhwc", "mem=nhwc")
ANCHORS = 6


class OutOfTime(Exception):
    """The step's time is up; what is missing is left to the next run."""


class Step:
    """What a step is given: its file, what the file already holds, and its deadline."""

    def __init__(self, out: Path, seconds: float, key: str = "") -> None:
        self.out, self.end, self.key = out, time.monotonic() + seconds, key
        self.before = [row for row in records.read(out)[0] if row.get("key") == key]
        self.seen = {(r["line"], r["arm"]) for r in self.before if r.get("what") == "point"}

    def add(self, what: str, **fields: Any) -> None:
        """Append a record."""
        records.append(self.out, {"what": what, "key": self.key, **fields})

    def check_time(self) -> None:
        """Raise when the deadline has passed."""
        if time.monotonic() > self.end:
            raise OutOfTime

    def roof(self) -> Roof | None:
        """Return the peaks that the probes measured last, None if they did not."""
        peaks = [row for row in self.before if row.get("what") == "peaks"]
        return Roof(peaks[-1]["flops"], peaks[-1]["bytes_s"]) if peaks else None


def versions(step: Step) -> None:
    """Record what everything else depends on."""
    import torch

    card = torch.cuda.get_device_properties(0)
    step.add(
        "machine",
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        triton=_version("triton"),
        card=card.name,
        sms=card.multi_processor_count,
        l2_bytes=card.L2_cache_size,
        memory_bytes=card.total_memory,
    )


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def probes(step: Step) -> None:
    """Measure the peaks, and how a tensor core rounds its sums."""
    import torch

    from .cuda import Cuda

    device, flops = Cuda(), {}
    bytes_s = _copy_rate(device)
    for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("tf32", None)):
        flops[name] = _product_rate(device, name, dtype or torch.float32)
    flops["f32"] = _product_rate(device, "f32", torch.float32)
    step.add("peaks", flops=flops, bytes_s=bytes_s, card=device.name)
    step.add("accumulator", **_accumulator())


def _copy_rate(device: Any) -> float:
    import torch

    source = torch.empty(2**28, device="cuda").normal_()  # 1 GiB
    target = torch.empty_like(source)
    took = measure({"copy": lambda: target.copy_(source)}, device, POINT)["copy"]
    return 2 * source.nbytes / (took.low_ms / 1e3)


def _product_rate(device: Any, name: str, dtype: Any) -> float:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    size = 4096 if name == "f32" else 8192
    a, b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    took = measure({"mm": lambda: torch.mm(a, b, out=out)}, device, POINT)["mm"]
    return 2 * size**3 / (took.low_ms / 1e3)


def _accumulator() -> dict[str, Any]:
    """Return 1 + 1.5 ulp/2 as the tensor core sums it: to nearest gives 1 + ulp, truncation 1."""
    import torch

    a = torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16)
    b = torch.zeros_like(a)
    a[:, 0], b[0, :] = 1, 1
    a[:, 1], b[1, :] = 2.0**-12, 1.5 * 2.0**-12  # 0.75 ulp of 1.0 in float32
    out = torch.mm(a, b, out_dtype=torch.float32)
    excess = (out[0, 0].double().item() - 1) * 2**23
    return {"added_ulp": 0.75, "got_ulp": excess, "truncates": excess == 0}


def points(names: tuple[str, ...], keys: tuple[str, ...]) -> Iterator[tuple[str, Call]]:
    """Yield every (layer name, call) of the suites once, bf16 first, most weighted first."""
    seen: set[Call] = set()
    for key in keys:
        for name in names:
            layers = suite.by_weight(suite.load(name))
            for layer in layers:
                if ":t=1" in layer.template:
                    continue  # the reference of sums.py has no transposed form
                for pass_ in suite.PASSES:
                    extra = _key(layer, f"{key}:dev=cuda")
                    call = _without_bias(layer.call(pass_, BATCHES.get(name, 1), extra))
                    if call not in seen:
                        seen.add(call)
                        yield f"{name} {layer.name}", call


def _key(layer: suite.Layer, key: str) -> str:
    """Return the keys without a memory order that this rank does not have."""
    rank = layer.problem(1).rank
    return key if rank == 2 else key.replace("mem=nhwc", "").replace("::", ":").strip(":")


def _without_bias(call: Call) -> Call:
    if call.pass_ != "fprop":
        return call
    return replace(call, problem=replace(call.conv, bias=False))


def time_point(step: Step, layer: str, call: Call, names: tuple[str, ...]) -> None:
    """Judge, time and record one call on the backends of `names`; "torch" is cuDNN."""
    from . import cuda, sums

    missing = [name for name in names if (str(call), name) not in step.seen]
    if not missing:
        return
    step.check_time()
    works, judged = {}, {}
    sets = [cuda.operands(call, seed) for seed in range(cuda.copies(call))]
    for name in names:
        backend = dispatch.load(name)
        if (reason := backend.supports(call)) is not None:
            step.add("point", line=str(call), arm=name, layer=layer, absent=reason)
            continue
        run = _runner(backend, call)
        judged[name] = sums.judge(call, backend.numerics(call), sets[0], run(*sets[0]))
        works[name] = cuda.rotation(run, sets)
    if works:
        _record(step, layer, call, works, judged)


def _runner(backend: Any, call: Call) -> Callable[..., Any]:
    slot = call.signature.results.index(call.wanted[0])
    absent = (None,) * sum(not call.is_present(role) for role in call.roles)
    return lambda *given: backend.run(call, *given, *absent)[slot]


def _record(
    step: Step, layer: str, call: Call, works: dict[str, Any], judged: dict[str, float]
) -> None:
    from .cuda import Cuda, is_cold

    device = Cuda()
    cold = is_cold(call, next(iter(works.values())).copies)
    found = measure(works, device, POINT, cold=True)
    roof = step.roof()
    for name, timing in found.items():
        row = {"line": str(call), "arm": name, "layer": layer, "how": works[name].how}
        row |= {"copies": works[name].copies, "judged": judged[name], "cold": cold}
        if "torch" in found and name != "torch":
            row["verdict"] = verdict(timing, found["torch"])
        try:
            if roof is not None:
                row["roof"] = roof.fraction(call, timing.low_ms / 1e3, cold=cold)
        except RoofError as error:
            step.add("refused", why=str(error), **row)
            continue
        step.add("point", **row, **timing.record())


def _all(step: Step, calls: Iterator[tuple[str, Call]], names: tuple[str, ...]) -> None:
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0
    for layer, call in calls:
        try:
            time_point(step, layer, call, names)
        except (ArithmeticError, torch.cuda.OutOfMemoryError) as error:
            step.add("refused", line=str(call), layer=layer, why=str(error)[:300])
            torch.cuda.empty_cache()


def cudnn(step: Step) -> None:
    """Time cuDNN through torch on every suite."""
    _all(step, points(suite.names(), KEYS), ("torch",))


def canary(step: Step) -> None:
    """Run each kernel once on one small layer, judged."""
    _all(step, iter(list(points(("stress",), KEYS[:1]))[:3]), ours())


def anchors(step: Step) -> None:
    """Time every kernel against cuDNN on the heaviest layers of ResNet-50."""
    calls = list(points(("resnet50",), KEYS[:1]))[: ANCHORS * len(suite.PASSES)]
    _all(step, iter(calls), (*ours(), "torch"))


def suites(step: Step) -> None:
    """Time every kernel against cuDNN on all suites."""
    _all(step, points(suite.names(), KEYS), (*ours(), "torch"))


STEPS: dict[str, Callable[[Step], None]] = {
    "versions": versions,
    "probes": probes,
    "cudnn": cudnn,
    "canary": canary,
    "anchors": anchors,
    "suites": suites,
}


def main(name: str, out: Path, seconds: float, key: str) -> int:
    """Run a step; exit status 0 done, 3 out of time."""
    try:
        STEPS[name](Step(out, seconds, key))
    except OutOfTime:
        print(f"{name}: time is up")
        return PARTIAL
    return 0
