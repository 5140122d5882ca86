"""Lines that stand for the classes of binaries: what static tests compile, and on which tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from convref.case import Call, parse

from ..common.epilogue import ACTIVATIONS
from ..common.geometry import Tensor, operands
from ..conv.task import ARCH, UNFUSED, Fusion
from ..hopper import race
from ..plan.builder import channels_last, dense
from ..plan.choose import Choice, offered, plan, refusal
from ..plan.launch import Launch
from .specialise import Specialisation, specialise

# By how sizes divide: by 16, by 8 only, by nothing, all equal to 1, and offsets beyond 32 bits.
SIZES = {
    "by_16": "n8c128k128_i28x28",
    "by_8": "n8c72k104_i28x28",
    "odd": "n3c67k35_i29x13",
    "ones": "n1c1k1_i1x1",
    "wide": "n2c128k128_i6000x6000",
}
GROUPED = {"by_16": "n8c128k128g128_i28x28", "by_8": "n8c72k72g72_i28x28"}
FOURS = {"by_16": "n8c128k128g32_i28x28", "by_8": "n8c72k72g18_i28x28"}
KINDS = {"": SIZES, "depthwise ": GROUPED, "grouped ": FOURS}
DEEP = {  # few results, each of a long sum, which is cut into parts
    "by_16": "n1c2048k128_i7x7",
    "by_8": "n1c2040k104_i7x7",
    "odd": "n1c2047k35_i7x7",
    "wide": "n1c262144k1024_i7x7",
}
COLUMNS = {size: text.replace("k128", "").replace("k104", "") for size, text in SIZES.items()}
COLUMNS |= {"odd": "n3c67_i29x13", "ones": "n1c1_i1x1"}
# By name: the sizes of each kind of groups, and a line.
SHAPES = {
    "fprop": (KINDS, "conv.fprop:{}_f3x3_p1"),
    "fprop_1x1": (KINDS, "conv.fprop:{}_f1x1"),
    "fprop_deep": ({"": DEEP}, "conv.fprop:{}_f3x3_p1"),
    "jvp": (KINDS, "conv.jvp:{}_f3x3_p1"),
    "dgrad": (KINDS, "conv.dgrad:{}_f3x3_p1"),
    "dgrad_s2": (KINDS, "conv.dgrad:{}_f3x3_s2_p1"),
    "wgrad": (KINDS, "conv.wgrad:{}_f3x3_p1"),
    "bgrad": (KINDS, "conv.bgrad:{}_f1x1"),
    "unfold": ({"": COLUMNS}, "unfold.fprop:{}_f3x3_p1"),
    "fold": ({"": COLUMNS}, "fold.fprop:{}_f3x3_s2_p1"),
}
# What follows the sums of a forward convolution: everything that may be added, and an activation.
EPILOGUES = {
    f"fprop_{activation or 'added'}": Fusion("scale", "shift", "z", activation)
    for activation in ACTIVATIONS
}
FAR = SIZES | {"wide": "n1c32768k32776_i8x8"}  # where offsets into the filter take 64 bits
RACED = ("fprop", "fprop_1x1", "jvp", "dgrad", "dgrad_s2", "wgrad")  # shapes of kernels in Gluon
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
    for size, (shape, (kinds, line)), number in product(sizes, SHAPES.items(), numbers):
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
    kernels = {
        module.__name__.rpartition(".")[2] for row in race.KERNELS.values() for module in row
    }
    for size, number in product(sizes, numbers):
        for shape, line, fusion in _raced(size):
            text = f"{line}:{NUMBERS[number]}:mem=nhwc"
            call = parse(f"{text}:dev=cuda").call
            known = _extended(call, fusion)
            for choice in offered(call, known, arch):
                if choice.kernel not in kernels:
                    continue
                for step in plan(call, known, choice, fusion=fusion, arch=arch).steps:
                    if isinstance(step, Launch) and step.kernel.__name__ in kernels:
                        yield Specimen(f"{shape} {size} {number}", text, choice, step, arch)


def _raced(size: str) -> Iterator[tuple[str, str, Fusion]]:
    """Yield (name, line, what follows the sums) of what kernels in Gluon compute."""
    for shape in RACED:
        yield shape, SHAPES[shape][1].format((FAR if shape == "wgrad" else SIZES)[size]), UNFUSED
    for name, fusion in EPILOGUES.items():
        yield name, SHAPES["fprop"][1].format(SIZES[size]), fusion


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
