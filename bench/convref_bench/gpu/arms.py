"""The arms on a CUDA device: registered backends, and the alternatives of PyTorch users.

An arm is called NAME or, with an epilogue fused into a forward convolution, NAME+EPILOGUE.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from convref import dispatch
from convref.arrays import torch_dtype
from convref.backends.torch.direct import direct
from convref.backends.torch.flags import flags as torch_flags
from convref.case import Call
from convref.errors import invalid
from convref.judge import Numerics

from ..timing.point import configured, layout_of
from .sums import ACTIVATIONS

COMPILE_S = 45.0  # torch.compile may take so long for one call
# act(conv + bias), and after "add_" act(conv + bias + residual).
EPILOGUES = ("relu", "add_relu", "silu", "add_silu")
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda one: one,
    "nchw": lambda one: one.contiguous(),
    "nhwc": lambda one: one.contiguous(memory_format=LAST.get(one.ndim, torch.contiguous_format)),
}
# Arms of the backend "torch": memory layout, and whether algorithms are deterministic.
TORCH = {
    "torch": ("", False),
    "torch.nchw": ("nchw", False),
    "torch.nhwc": ("nhwc", False),
    "torch.deterministic": ("", True),
}


Results = Tensor | tuple[Tensor, ...]


class Absent(Exception):
    """An arm cannot do a call; the text is the reason."""


@dataclass(frozen=True)
class Arm:
    """A function that is timed.

    It takes the present operands in signature order, then a residual if the epilogue adds one, and
    returns the wanted results, a single one as a tensor.
    """

    run: Callable[..., Results]
    numerics: Numerics
    flags: dict[str, Any]  # written into its record
    layout: str = ""  # of its operands, a key of LAYOUTS; overrides the line
    epilogue: str = ""  # one of EPILOGUES

    def set_flags(self) -> AbstractContextManager[None]:
        """Return a context in which the flags of this row are set, outside the timed calls."""
        return flags(self.flags["math"], self.flags.get("deterministic", False))

    def place(self, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(map(LAYOUTS[self.layout], operands))


def arm(name: str, call: Call) -> Arm:
    """Return the arm called `name` for a call; raise Absent with the reason if it cannot do it."""
    base, plus, epilogue = name.partition("+")
    if plus:
        return _fused(base, epilogue, call)
    layout, deterministic = TORCH.get(base, ("", False))
    if layout and layout == layout_of(call):
        raise Absent("the line has this layout already")
    if layout == "nhwc" and call.problem.rank == 1:
        raise Absent("torch has no channels-last form of three axes")
    backend, options = configured("torch" if base in TORCH else base, call)
    if (reason := backend.supports(call)) is not None:
        raise Absent(reason)
    shown = {"math": call.math, "deterministic": deterministic, "benchmark_limit": 0}
    run = direct(call) if base in TORCH else None
    run = run or partial(backend.run, call, **options)
    return Arm(results_of(run, call), backend.numerics(call), shown, layout)


def results_of(compute: Callable[..., Any], call: Call) -> Callable[..., Results]:
    """Return a function of the present operands that returns the wanted results.

    `compute` takes all operands by role and returns all results.
    """
    slots = [call.signature.results.index(role) for role in call.wanted]
    places = [i for i, role in enumerate(call.roles) if call.is_present(role)]
    count = len(call.roles)

    def run(*given: Tensor) -> Results:
        operands: list[Tensor | None] = [None] * count
        for place, tensor in zip(places, given):
            operands[place] = tensor
        found = compute(*operands)
        return found[slots[0]] if len(slots) == 1 else tuple(found[slot] for slot in slots)

    return run


Geometry = tuple[list[int], list[int], list[int], int]


def geometry(call: Call) -> Geometry:
    problem = call.conv
    padding = [lo for lo, _ in problem.padding]
    return list(problem.stride), padding, list(problem.dilation), problem.groups


def is_symmetric(call: Call) -> bool:
    """Return whether ATen takes the padding of a convolution."""
    return all(lo == hi >= 0 for lo, hi in call.conv.padding) and not call.conv.flip


@contextmanager
def flags(math: str, deterministic: bool) -> Iterator[None]:
    """Let cuDNN try all of its plans (a limit of 0 is none); use TF32 only if `math` is "tf32"."""
    cudnn = torch.backends.cudnn
    wanted = {"benchmark": True, "benchmark_limit": 0, "deterministic": deterministic}
    wanted = wanted if cudnn.is_available() else {}
    before = {name: getattr(cudnn, name) for name in wanted}
    with torch.no_grad(), torch_flags("tf32" if math == "tf32" else "ieee", onednn=True):
        try:
            for name, value in wanted.items():
                setattr(cudnn, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(cudnn, name, value)


def _fused(base: str, epilogue: str, call: Call) -> Arm:
    if epilogue not in EPILOGUES:
        raise invalid("bench", f"epilogue is {epilogue!r}, needs one of {', '.join(EPILOGUES)}")
    if call.pass_ != "fprop" or not call.conv.bias or call.conv.transposed:
        raise Absent("an epilogue needs a forward convolution with bias")
    if base in FUSED:
        if not is_symmetric(call):
            raise Absent("padding is asymmetric")
        numerics = dispatch.load("torch").numerics(call)
        run = FUSED[base](epilogue, geometry(call))
    else:
        backend = dispatch.load(base)
        make = getattr(backend, "fused", None)
        run = make(call, epilogue) if make else None
        if run is None:
            raise Absent(f"{base} fuses no {epilogue} here")
        numerics = backend.numerics(call)
    numerics = replace(numerics, stages=numerics.stages + 2)  # bias and residual round too
    shown = {"math": call.math, "deterministic": False, "benchmark_limit": 0}
    return Arm(run, numerics, shown, "", epilogue)


def _eager(epilogue: str, where: Geometry) -> Callable[..., Tensor]:
    stride, padding, dilation, groups = where
    activation = ACTIVATIONS[epilogue.removeprefix("add_")].run

    def run(x: Tensor, w: Tensor, b: Tensor, z: Tensor | None = None) -> Tensor:
        y = torch.convolution(x, w, b, stride, padding, dilation, False, [0] * len(stride), groups)
        return activation(y if z is None else y + z)

    return run


def _cudnn(epilogue: str, where: Geometry) -> Callable[..., Tensor]:
    if epilogue.endswith("silu"):
        raise Absent("cuDNN is reached through torch with relu only")
    if epilogue == "relu":
        return lambda x, w, b: torch.cudnn_convolution_relu(x, w, b, *where)
    return lambda x, w, b, z: torch.cudnn_convolution_add_relu(x, w, z, 1.0, b, *where)


def _compiled(epilogue: str, where: Geometry) -> Callable[..., Tensor]:
    ready: list[Callable[..., Tensor]] = []

    def run(*given: Tensor) -> Tensor:
        if ready:
            return ready[0](*given)
        try:
            with timebox(COMPILE_S):
                compiled = torch.compile(_eager(epilogue, where), dynamic=False)
                result = compiled(*given)
        except Exception as error:  # a compiler may raise anything
            raise Absent(f"torch.compile: {type(error).__name__}: {error}"[:300]) from error
        ready.append(compiled)
        return result

    return run


FUSED: dict[str, Callable[[str, Geometry], Callable[..., Tensor]]] = {
    "eager": _eager,
    "cudnn": _cudnn,
    "compile": _compiled,
}


@contextmanager
def timebox(seconds: float) -> Iterator[None]:
    """Raise Absent in this, the main, thread when `seconds` are over."""

    def expire(number: int, frame: object) -> None:
        raise Absent(f"not ready after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def residual(call: Call, where: str, seed: int) -> Tensor:
    """Return a normal tensor of the output's shape, in the memory order of the input."""
    generator = torch.Generator(where).manual_seed(seed)
    drawn = torch.randn(call.problem.shape("y"), generator=generator, device=where)
    return LAYOUTS[layout_of(call)](drawn.to(torch_dtype(call.dtype)))
