"""The plug-ins for PyTensor, JAX and MAX, beside a bare call or the system's own convolution.

Arms take turns, and each ratio is that of the smallest samples. The clock `process` adds the time
of all threads, which on a shared machine varies less than the wall clock.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any

import numpy as np

import convref

from ..suites import suite
from .cpu import Cpu
from .measure import Stop, Work, geometric_mean, measure

CLOCKS = {"wall": time.perf_counter, "process": time.process_time}
LINKERS = {"auto": ("CVM", "JAX"), "mojo": ("CVM", "NUMBA")}  # by backend
MAX_SHAPES = (1, 56), (8, 56), (1, 8)  # batch, height and width
Rows = Iterator[list[str]]
Times = Callable[[Mapping[str, Work]], dict[str, float]]  # seconds of each arm


def arrays(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[Any]:
    draws = np.random.default_rng(0)
    return [draws.normal(size=shape).astype(dtype) for shape in shapes]


def ratios(name: str, found: list[float]) -> list[str]:
    """Return a row: the geometric mean, the smallest and the largest ratio."""
    return [name, *(f"{value:.2f}" for value in (geometric_mean(found), min(found), max(found)))]


def of_pytensor(times: Times, batch: int) -> Rows:
    """Time a tiny convolution by each linker, and a step of YOLO11n with Mojo's kernels."""
    import pytensor
    import pytensor.tensor as pt

    from convref.integrations import pytensor as cp

    given = arrays((1, 1, 4, 4), (1, 1, 3, 3), dtype=np.float64)
    variables = pt.tensor4("x", dtype="float64"), pt.tensor4("w", dtype="float64")
    works: dict[str, Work] = {}
    for name, modes in LINKERS.items():
        works[name] = partial(convref.conv2d, *given, backend=name)
        for mode in modes:
            compiled = pytensor.function(variables, cp.conv2d(*variables, backend=name), mode=mode)
            works[f"{mode}, {name}"] = partial(compiled, *given)
    took = times(works)
    for name, seconds in took.items():
        over = seconds - took[name.split()[-1]]  # the bare call of the same backend
        yield [name, f"{1e6 * seconds:.1f} us", f"{1e6 * over:+.1f} us", ""]

    from .training import EXAMPLES

    sys.path.insert(0, str(EXAMPLES))
    import yolo11n_pytensor as example

    images, maps = example.examples(batch, 64, "float32")
    steps = {}
    for name in ("numpy", "mojo"):
        made = example.Detector(images, maps, name)
        steps[name] = partial(made.step("CVM", 0.01), images)
    took = times(steps)
    yield ratios("step of YOLO11n, CVM: mojo / numpy", [took["mojo"] / took["numpy"]])


def of_jax(times: Times, batch: int) -> Rows:
    """Time Mojo's kernels beside `jax.lax`: the convolutions of ResNet-50, and a tiny one."""
    import jax

    def by_mojo(problem: Any, x: Any, w: Any) -> Any:
        padding = [low for low, _ in problem.padding]  # the same on both sides
        return convref.conv2d(x, w, stride=problem.stride, padding=padding, backend="mojo")

    def by_lax(problem: Any, x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, problem.stride, problem.padding)

    found: dict[str, list[float]] = {}
    tiny = suite.Layer("conv:nNc1k1_i4x4_f3x3", 1, "tiny")
    for layer in (tiny, *suite.load("resnet50")):
        problem = layer.problem(1 if layer is tiny else batch)
        x, w, dy = map(jax.numpy.asarray, arrays(*(problem.shape(r) for r in ("x", "w", "y"))))
        forward: dict[str, Work] = {}
        gradients: dict[str, Work] = {}
        for side, function in (("mojo", by_mojo), ("lax", by_lax)):
            of = partial(function, problem)
            both = jax.jit(lambda x, w, dy, of=of: jax.vjp(of, x, w)[1](dy))
            forward[side] = partial(_ready, jax.jit(of), x, w)
            gradients[side] = partial(_ready, both, x, w, dy)
        names = {"forward": forward, "both gradients": gradients}
        for name, works in names.items():
            took = times(works)
            ratio = took["mojo"] / took["lax"]
            found.setdefault(f"{name}, 1x1x4x4" if layer is tiny else name, []).append(ratio)
            if name == "both gradients" and problem.filter == (1, 1):
                found.setdefault("both gradients of 1x1 layers", []).append(ratio)
    for name, values in found.items():
        yield ratios(f"{name}: mojo / lax", values)


def _ready(run: Callable[..., Any], *given: Any) -> None:
    import jax

    jax.block_until_ready(run(*given))


def of_max(times: Times, batch: int) -> Rows:
    """Time a convolution in MAX beside `ops.conv2d`; each is one graph for all shapes."""
    from max.driver import CPU
    from max.dtype import DType
    from max.engine import InferenceSession
    from max.graph import DeviceRef, Graph, TensorType, ops

    from convref_mojo.max import graph as ours

    (w,) = arrays((64, 64, 3, 3))
    models = {}
    for name, sizes in (("convref", ("n", 64, "h", "w")), ("ops.conv2d", ("n", "h", "w", 64))):
        image = TensorType(DType.float32, sizes, DeviceRef.CPU())
        with Graph("net", input_types=[image], custom_extensions=[ours.OPS]) as graph:
            x = graph.inputs[0].tensor
            laid_out = w if name == "convref" else w.transpose(2, 3, 1, 0).copy()
            filters = ops.constant(laid_out, DType.float32, DeviceRef.CPU())
            if name == "convref":
                graph.output(ours.conv(x, filters, padding=1))
            else:
                graph.output(ops.conv2d(x, filters, padding=(1, 1, 1, 1)))
        models[name] = InferenceSession(devices=[CPU()]).load(graph)
    for n, size in MAX_SHAPES:
        (x,) = arrays((n, 64, size, size))
        given = {"convref": x, "ops.conv2d": x.transpose(0, 2, 3, 1).copy()}
        took = times({name: partial(models[name].execute, given[name]) for name in models})
        found = [took["convref"] / took["ops.conv2d"]]
        yield ratios(f"{n}x64x{size}x{size}, 3x3: convref / ops.conv2d", found)


SYSTEMS = {"pytensor": of_pytensor, "jax": of_jax, "max": of_max}


def main(system: str, *, batch: int = 1, samples: int = 10, clock: str = "wall") -> None:
    """Time the plug-in for a system: pytensor, jax or max.

    --batch is that of the layers and images, --clock is wall or process.
    """
    from convref.cli.output import print_table

    for what, value, known in (("system", system, SYSTEMS), ("clock", clock, CLOCKS)):
        if value not in known:
            raise convref.errors.invalid(what, f"{value!r} is unknown, needs {', '.join(known)}")
    stop = Stop(samples=samples, noise=inf, timeout_s=inf, batch_s=1e-3)
    device = Cpu(0.0, CLOCKS[clock])

    def times(works: Mapping[str, Work]) -> dict[str, float]:
        return {name: t.low_ms / 1e3 for name, t in measure(works, device, stop).items()}

    rows = [*SYSTEMS[system](times, batch)]
    print_table(["", "time or ratio", "smallest", "largest"], rows, f"{system}, {clock} clock")
