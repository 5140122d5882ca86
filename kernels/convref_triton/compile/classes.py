"""The launches that static tests compile: an example per class of binaries, on every tile."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from convref.case import Call, parse
from convref.dtypes import EIGHT

from ..common.epilogue import ACTIVATIONS
from ..common.geometry import ITEMSIZE, Tensor, operands
from ..hopper import gluon
from ..plan.archs import DEFAULT as ARCH
from ..plan.builder import channels_last, dense
from ..plan.choose import Choice, offered, plan, refusal
from ..plan.kernels import KERNELS
from ..plan.launch import Launch
from ..plan.lines import FAR, SIZES
from ..plan.task import UNFUSED, Fusion
from .specialize import Specialization, specialize

SHAPES = {name: line for spec in KERNELS for name, line in spec.lines.items()}
# Epilogues of a forward convolution: everything that may be added, and an activation.
EPILOGUES = {
    f"fprop_{activation or 'added'}": Fusion("scale", "shift", "z", activation)
    for activation in ACTIVATIONS
}
GLUON = {spec.name: spec for spec in gluon.KERNELS}
NUMBERS = {
    "bf16": "dt=bf16",
    "f16": "dt=f16",
    "f32": "",
    "tf32": "math=tf32",
    "tf32x3": "math=tf32x3",
    **{code: f"dt={code}" for code in EIGHT},
}


class Example(NamedTuple):
    """A line that represents a class of binaries, and the words that name the class."""

    groups: str  # "", "depthwise" or "grouped"
    shape: str
    size: str
    number: str
    line: str

    def __str__(self) -> str:
        return " ".join(word for word in self[:-1] if word)


class Specimen(NamedTuple):
    """A launch for an example on an architecture, and the choice that was asked for."""

    example: Example
    choice: Choice | None
    launch: Launch
    arch: str

    def __str__(self) -> str:
        return f"{self.example}, {self.choice or 'default'}: {self.kernel} for {self.arch}"

    @property
    def kernel(self) -> str:
        return self.launch.kernel.__name__

    @property
    def itemsize(self) -> int:
        return ITEMSIZE.get(self.example.number, 4)

    @property
    def specialization(self) -> Specialization:
        return specialize(self.launch)


def examples(sizes: Iterable[str] = SIZES, numbers: Iterable[str] = NUMBERS) -> Iterator[Example]:
    """Yield an example of every shape and kind of groups in these sizes and types."""
    for size, (shape, line), number in product(sizes, SHAPES.items(), numbers):
        text, kinds, known, memory = line
        if number not in known or ("math" in NUMBERS[number] and "conv" not in text):
            continue  # no such type, or nothing is multiplied
        keys = "".join(f":{key}" for key in (NUMBERS[number], f"mem={memory}") if key)
        for groups, table in kinds.items():
            if size in table:
                yield Example(groups, shape, size, number, text.format(table[size]) + keys)


def specimens(given: Iterable[Example], *, every: bool, arch: str = ARCH) -> Iterator[Specimen]:
    """Yield the launches of examples: of the table's choice, or of every choice that there is.

    Examples that the architecture does not support are left out.
    """
    for example in given:
        call = parse(example.line).call
        if refusal(call, arch):
            continue
        known = operands(call)
        for choice in offered(call, known, arch) if every else (None,):
            for launch in plan(call, known, choice, arch=arch).launches:
                yield Specimen(example, choice, launch, arch)


def gluon_specimens(arch: str) -> Iterator[Specimen]:
    """Yield the launches of every choice in Gluon, with every epilogue of a forward convolution.

    Such choices are offered for operands on a card.
    """
    for size, number in product(("by_16", "by_8", "wide"), ("bf16", "f16")):
        for shape, text, fusion in _gluon_lines(size):
            example = Example("", shape, size, number, f"{text}:{NUMBERS[number]}:mem=nhwc")
            call = parse(f"{example.line}:dev=cuda").call
            known = _with_epilogue_operands(call, fusion)
            for choice in offered(call, known, arch):
                if choice.kernel not in GLUON:
                    continue
                for launch in plan(call, known, choice, fusion=fusion, arch=arch).launches:
                    if launch.kernel.__name__ in GLUON:
                        yield Specimen(example, choice, launch, arch)


def all_specimens(arch: str) -> Iterator[Specimen]:
    yield from specimens(examples(), every=True, arch=arch)
    yield from gluon_specimens(arch)


def _gluon_lines(size: str) -> Iterator[tuple[str, str, Fusion]]:
    """Yield (shape, line, epilogue) of the examples that kernels in Gluon compute."""
    for shape in dict.fromkeys(name for spec in GLUON.values() for name in spec.lines):
        yield shape, SHAPES[shape].text.format((FAR if shape == "wgrad" else SIZES)[size]), UNFUSED
    if GLUON:
        for name, fusion in EPILOGUES.items():
            yield name, SHAPES["fprop"].text.format(SIZES[size]), fusion


def _with_epilogue_operands(call: Call, fusion: Fusion) -> Mapping[str, Tensor]:
    known = operands(call)
    if fusion != UNFUSED:
        y = call.problem.shape("y")
        strides = dense(y, channels_last(len(y) - 2))
        known["z"] = Tensor("z", y, strides, call.dtype)
        known |= {name: Tensor(name, y[1:2], (1,), call.dtype) for name in ("scale", "shift")}
    return known
