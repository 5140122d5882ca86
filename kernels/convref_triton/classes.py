"""Lines that stand for the classes of binaries: what static tests compile, and on which tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from convref.case import Call
from convref.line import parse

from .geometry import operands
from .launch import Launch
from .plan import Choice, offered, plan
from .specialise import Specialisation, specialise
from .task import ARCH

# By how sizes divide: by 16, by 8 only, by nothing, all equal to 1, and offsets beyond 32 bits.
SIZES = {
    "by_16": "n8c128k128_i28x28",
    "by_8": "n8c72k104_i28x28",
    "odd": "n3c67k35_i29x13",
    "ones": "n1c1k1_i1x1",
    "wide": "n2c128k128_i6000x6000",
}
SHAPES = {
    "fprop": ("fprop", "f3x3_p1"),
    "fprop_1x1": ("fprop", "f1x1"),
    "jvp": ("jvp", "f3x3_p1"),
    "dgrad": ("dgrad", "f3x3_p1"),
    "dgrad_s2": ("dgrad", "f3x3_s2_p1"),
    "wgrad": ("wgrad", "f3x3_p1"),
    "bgrad": ("bgrad", "f1x1"),
}
GROUPED = {"by_16": "n8c128k128g128_i28x28", "by_8": "n8c72k72g72_i28x28"}
FOURS = {"by_16": "n8c128k128g32_i28x28", "by_8": "n8c72k72g18_i28x28"}
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
    for size in sizes:
        for shape, (pass_, geometry) in SHAPES.items():
            for kind, table in (("", SIZES), ("depthwise ", GROUPED), ("grouped ", FOURS)):
                if size in table:
                    for number in numbers:
                        keys = ":".join(filter(None, (NUMBERS[number], "mem=nhwc")))
                        line = f"conv.{pass_}:{table[size]}_{geometry}:{keys}"
                        yield f"{kind}{shape} {size} {number}", line


def specimens(
    named: Iterable[tuple[str, str]], *, every: bool, arch: str = ARCH
) -> Iterator[Specimen]:
    """Yield the launches of lines, of the table's choice or of every choice that there is."""
    for name, line in named:
        call = parse(line).call
        for choice in choices_of(call, arch) if every else (None,):
            made = plan(call, operands(call), choice, arch=arch)
            for step in made.steps:
                if isinstance(step, Launch):
                    yield Specimen(name, line, choice, step, arch)


def choices_of(call: Call, arch: str = ARCH) -> list[Choice]:
    """Return every choice for a call whose operands lie as its line says."""
    return offered(call, operands(call), arch)
