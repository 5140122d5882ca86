"""The marks of speed on a CPU, measured one after the other: a regression is a row that misses.

The machine has to be quiet. Every row is a ratio measured side by side, or a rate or duration of
this machine (two processors, as these marks were set on).
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from subprocess import CalledProcessError

from convref.dispatch import load
from convref.errors import ConvrefError, UnsupportedError, invalid, needs_one, shorten

from . import cpu
from .marked import (
    VERDICT,
    Measure,
    activations,
    backend_cost,
    call_cost,
    converted,
    court,
    first_finding,
    flatness,
    layers,
    make,
)

FAMILIES = ("conv", "pool", "norm", "resize")


@dataclass(frozen=True)
class Mark:
    """What has to hold of each value that `measure` yields.

    A mark that needs an instruction of the CPU is none where the CPU lacks it. `threads` are those
    of torch, BLAS and `backend`, if it has threads.
    """

    unit: str
    measure: Measure
    least: float | None = None
    most: float | None = None
    threads: int = 2
    backend: str = ""
    instruction: str = ""

    @property
    def applies(self) -> bool:
        return self.instruction in ("", *instructions())

    def holds(self, value: float) -> bool | None:
        """Return whether a value reaches the mark; None where there is none."""
        if not self.applies:
            return None
        if self.least is not None:
            return value >= self.least
        return None if self.most is None else value <= self.most

    def __str__(self) -> str:
        if not self.applies:
            return f"- without {self.instruction}"
        if self.least is not None:
            return f">= {self.least:g}"
        return "-" if self.most is None else f"<= {self.most:g}"


def instructions() -> tuple[str, ...]:
    """Return the names of instructions that marks are conditional on and this CPU has."""
    import torch

    return ("vdpbf16ps",) if torch.cpu._is_avx512_bf16_supported() else ()


NHWC = "mem=nhwc"  # the fast path of the Mojo kernels
EXAMPLES, TORCH, ONEDNN = "judged a second", "of torch", "of oneDNN"
MARKS: dict[str, Mark] = {
    "court": Mark(EXAMPLES, court("numpy"), least=2000),
    "court-torch": Mark(EXAMPLES, court("torch"), least=900),
    "court-triton": Mark(EXAMPLES, court("triton"), least=60),
    # three times the 2,065 of docs/mojo.md in twice 240 seconds
    "court-ptx": Mark(
        EXAMPLES,
        court("convref_triton.emulated:backend", FAMILIES, ("f32", "bf16", "f16")),
        least=13,
    ),
    "court-flat": Mark("last tenth over first", flatness, least=0.95),
    "first-finding": Mark("s", first_finding, most=15),
    "converted": Mark("of torch.nn", converted(""), least=0.98, threads=1),
    "converted-inductor": Mark("of torch.nn", converted("inductor"), least=0.98, threads=1),
    "call-recorded": Mark("us more", call_cost("conv2d, recorded"), most=5, threads=1),
    "call-backward": Mark("us more", call_cost("conv2d, forward and backward"), most=15, threads=1),
    "oracle-stem": Mark(TORCH, layers("numpy", "dt=f64", 2, batch=4, stem=True), least=1.0),
    "oracle-activations": Mark("times torch's time", activations, most=2.0, threads=1),
    "mojo": Mark(ONEDNN, layers("mojo", NHWC, 2), least=1.0, backend="mojo"),
    "mojo-bf16": Mark(
        ONEDNN,
        layers("mojo", f"dt=bf16:{NHWC}", 1),
        least=0.9,
        threads=1,
        backend="mojo",
        instruction="vdpbf16ps",
    ),
    "mojo-stem": Mark(
        ONEDNN,
        layers("mojo", NHWC, 1, networks=("resnet50", "yolo11n"), stem=True),
        least=0.7,
        threads=1,
        backend="mojo",
    ),
    "mojo-others": Mark(
        TORCH,
        layers("mojo", NHWC, 1, networks=("resnet50", "yolo11n"), ops=("pool", "batch_norm")),
        least=1.0,
        threads=1,
        backend="mojo",
    ),
    "mojo-call": Mark("us a call", backend_cost("mojo"), most=5, threads=1),
    "check": Mark("s", make("check"), most=240),
    "check-first": Mark("s until a verdict", make("check", VERDICT), most=20),
    "test": Mark("s", make("test"), most=300),
}


def rows(names: tuple[str, ...], seconds: float) -> Iterator[list[str]]:
    """Yield a row of the table for each value; a mark without any is "not measured"."""
    for name in names:
        mark = MARKS[name]
        reason = "it yields no value"
        try:
            with ExitStack() as stack:
                with_threads = [load(mark.backend)] if mark.backend else []
                stack.enter_context(cpu.threads(mark.threads, *with_threads))
                for what, value in mark.measure(seconds):
                    word = {True: "yes", False: "no", None: "-"}[mark.holds(value)]
                    yield [name, what, f"{value:.3g}", mark.unit, str(mark), word]
                    reason = ""
        except (ConvrefError, UnsupportedError, ImportError, CalledProcessError) as error:
            reason = shorten(str(error))
        if reason:
            yield [name, reason, "-", mark.unit, str(mark), "not measured"]


def main(*names: str, seconds: float = 10.0) -> int:
    """Measure every mark, or those that are named.

    --seconds is the time that a rate or a network takes; all marks take more than an hour. The
    status is 1 where one is missed or not measured.
    """
    from convref.cli.output import print_table

    if unknown := sorted({*names} - {*MARKS}):
        raise invalid("bench", f"mark is {unknown[0]!r}, {needs_one(unknown[0], MARKS)}")
    found = []
    for row in rows(names or tuple(MARKS), seconds):
        print(*row, sep="  ", flush=True)
        found.append(row)
    heads = ["mark", "of", "value", "unit", "needed", "reached"]
    print_table(heads, found, "speed targets on this CPU")
    return int(any(row[-1] in ("no", "not measured") for row in found))
