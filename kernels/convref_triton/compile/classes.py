"""Lines that stand for the classes of binaries: what static tests compile, and on which tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from convref.case import Call, parse

from ..common.epilogue import ACTIVATIONS
from ..common.geometry import Tensor, operands
from ..plan.archs import DEFAULT as ARCH
from ..plan.builder import channels_last, dense
from ..plan.choose import Choice, offered, plan, refusal
from ..plan.kernels import KERNELS
from ..plan.launch import Launch
from ..plan.lines import FAR, SIZES
from ..plan.task import UNFUSED, Fusion
from .specialise import Specialisation, specialise

SHAPES = {name: line for spec in KERNELS for name, line in spec.lines.items()}
# What follows the sums of a forward convolution: everything that may be added, and an activation.
EPILOGUES = {
    f"fprop_{activation or 'added'}": Fusion("scale", "shift", "z", activation)
    for activation in ACTIVATIONS
}
GLUON = {spec.name: spec for spec in KERNELS if spec.measured_only and spec.kernels}
RACED = tuple({name: "" for spec in GLUON.values() for name in spec.lines})
NUMBERS = {
    "bf16": "dt=bf16",
    "f16": "dt=f16",
    "f32": "",
    "tf32": "math=tf32",
    "tf32x3": "math=tf32x3",
}


class Specimen(NamedTuple):
    """A launch of one choice, on an architecture, for a line that stands for its class."""

    name: str
    line: str
    choice: Choice
    launch: Launch
    arch: str

    @property
    def specialisation(self) -> Specialisation:
        """Return what has to be compiled."""
        return specialise(self.launch)


def lines(
    sizes: Iterable[str] = SIZES, numbers: Iterable[str] = NUMBERS
) -> Iterator[tuple[str, str]]:
    """Yield (name, line) of every shape and kind of groups in these sizes and types."""
    for size, (shape, (line, kinds)), number in product(sizes, SHAPES.items(), numbers):
        if "math" in NUMBERS[number] and "conv" not in line:
            continue  # nothing is multiplied
        keys = "".join(f":{key}" for key in (NUMBERS[number], "mem=nhwc") if key)
        for kind, table in kinds.items():
            if size in table:
                yield f"{kind}{shape} {size} {number}", line.format(table[size]) + keys


def specimens(
    named: Iterable[tuple[str, str]], *, every: bool, arch: str = ARCH
) -> Iterator[Specimen]:
    """Yield the launches of lines, of the table's choice or of every choice that there is.

    Lines that the architecture refuses are passed over.
    """
    for name, line in named:
        call = parse(line).call
        if refusal(call, arch):
            continue
        for choice in choices_of(call, arch) if every else (None,):
            made = plan(call, operands(call), choice, arch=arch)
            for step in made.steps:
                if isinstance(step, Launch):
                    yield Specimen(name, line, choice, step, arch)


def raced(
    sizes: Iterable[str] = ("by_16", "by_8", "wide"),
    numbers: Iterable[str] = ("bf16", "f16"),
    arch: str = ARCH,
) -> Iterator[Specimen]:
    """Yield the launches of every choice in Gluon, with all that may follow a forward one's sums.

    They are offered where operands lie on a card.
    """
    for size, number in product(sizes, numbers):
        for shape, line, fusion in _raced(size):
            text = f"{line}:{NUMBERS[number]}:mem=nhwc"
            call = parse(f"{text}:dev=cuda").call
            known = _extended(call, fusion)
            for choice in offered(call, known, arch):
                if choice.kernel not in GLUON:
                    continue
                for step in plan(call, known, choice, fusion=fusion, arch=arch).steps:
                    if isinstance(step, Launch) and step.kernel.__name__ in GLUON:
                        yield Specimen(f"{shape} {size} {number}", text, choice, step, arch)


def _raced(size: str) -> Iterator[tuple[str, str, Fusion]]:
    """Yield (name, line, what follows the sums) of what kernels in Gluon compute."""
    for shape in RACED:
        yield shape, SHAPES[shape].text.format((FAR if shape == "wgrad" else SIZES)[size]), UNFUSED
    for name, fusion in EPILOGUES.items():
        yield name, SHAPES["fprop"].text.format(SIZES[size]), fusion


def _extended(call: Call, fusion: Fusion) -> Mapping[str, Tensor]:
    """Return the operands of a call, and what a fusion names."""
    known = operands(call)
    if fusion != UNFUSED:
        y = call.problem.shape("y")
        strides = dense(y, channels_last(len(y) - 2))
        known["z"] = Tensor("z", y, strides, call.dtype)
        known |= {name: Tensor(name, y[1:2], (1,), call.dtype) for name in ("scale", "shift")}
    return known


def choices_of(call: Call, arch: str = ARCH) -> list[Choice]:
    """Return every choice for a call whose operands lie as its line says."""
    return offered(call, operands(call), arch)
