"""Suites: the layers of real networks as data files, one problem line a layer.

    conv:nNc64k64_i56x56_f3x3_p1:bias=0  *3  layer1.0.conv2

It is a problem line with the letter N for the batch, or N*49 for 49 per image (the positions of a
layer norm); then the number of such layers, then the name of the first. `#` begins a comment.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from convref.case import Call, parse, parse_problem
from convref.errors import ConvrefError, invalid, shorten
from convref.ops import FAMILY, Problem

# Passes of a convolution, with one result each; the backward of other ops has all results.
CONV = ("fprop", "dgrad", "wgrad")
OTHERS = ("fprop", "backward")
PASSES = tuple(dict.fromkeys(CONV + OTHERS))
ALL_PASSES = ",".join(PASSES)


@dataclass(frozen=True)
class Layer:
    template: str  # a problem line with N for the batch
    times: int  # the number of such layers in the network
    name: str  # of the first of them

    @property
    def op(self) -> str:
        return self.template.partition(":")[0]

    def passes(self, chosen: Sequence[str] = PASSES) -> list[str]:
        """Return the chosen passes in which its op is timed.

        >>> Layer("max_pool:nNc1_i4_f2", 1, "").passes(("fprop", "dgrad", "backward"))
        ['fprop', 'backward']
        """
        return [one for one in (CONV if self.op == "conv" else OTHERS) if one in chosen]

    def line(self, batch: int) -> str:
        """Return the problem line at a batch.

        >>> Layer("conv:nNc1k1_i3_f1", 1, "").line(8)
        'conv:n8c1k1_i3_f1'
        >>> Layer("layer_norm:nN*49c2_i1", 1, "").line(2)
        'layer_norm:n98c2_i1'
        """
        return re.sub(r":nN(?:\*(\d+))?", lambda m: f":n{batch * int(m[1] or 1)}", self.template)

    def problem(self, batch: int) -> Problem:
        return parse_problem(self.line(batch))

    def keys(self, keys: str) -> str:
        """Return the keys of a line, ``mem=nhwc`` left out where the rank has other axes.

        >>> Layer("conv:nNc1k1_i3_f1", 1, "").keys("dt=bf16:mem=nhwc:dev=cuda")
        'dt=bf16:dev=cuda'
        """
        if self.problem(1).rank == 2:  # the others have no order of that name
            return keys
        return ":".join(key for key in keys.split(":") if key != "mem=nhwc")

    def call(self, pass_: str, batch: int, keys: str = "") -> Call:
        """Return the call of a pass; `keys` are those of the line, like ``dt=bf16:mem=nhwc``."""
        op, _, shape = self.line(batch).partition(":")
        return parse(":".join(filter(None, (f"{op}.{pass_}", shape, keys)))).call


@cache
def names() -> tuple[str, ...]:
    found = (item.name for item in files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(".txt") for name in found if name.endswith(".txt")))


@cache
def load(name: str, ops: tuple[str, ...] = ("conv",)) -> tuple[Layer, ...]:
    """Return the layers of a suite of some ops, in the order of the network.

    >>> layers = load("resnet50")
    >>> len(layers), sum(layer.times for layer in layers)
    (23, 53)
    """
    if name not in names():
        raise invalid("suite", f"{shorten(repr(name))} is unknown, needs {', '.join(names())}")
    text = files(__package__).joinpath(f"{name}.txt").read_text("utf-8")
    return tuple(layer for layer in read(text, name) if layer.op in ops)


def read(text: str, where: str) -> tuple[Layer, ...]:
    layers: dict[str, Layer] = {}
    for number, row in enumerate(text.splitlines(), 1):
        if not row.strip() or row.startswith("#"):
            continue
        here = f"suite {where}, line {number}"
        match = re.fullmatch(r"(\w+:nN\S+) +\*([1-9]\d*) +(\S.*?) *", row)
        if not match:
            raise invalid(here, f"{shorten(row)!r} needs LINE *TIMES NAME")
        layer = Layer(match[1], int(match[2]), match[3])
        try:
            layer.problem(1)
        except ConvrefError as error:
            raise invalid(here, str(error)) from None
        if layer.template in layers:
            raise invalid(here, f"repeats {layers[layer.template].name}")
        layers[layer.template] = layer
    return tuple(layers.values())


def main() -> None:
    for name in names():
        for op in FAMILY:
            if layers := load(name, (op,)):
                count = sum(layer.times for layer in layers)
                print(f"{name}: {len(layers)} shapes, {count} layers of {op}")


# Operations and bytes a second of an H100, about: enough to order the layers.
FLOP_S, BYTES_S = 8e14, 3e12


def by_weight(layers: tuple[Layer, ...], batch: int = 1) -> list[Layer]:
    """Return the layers, first those with the most time at the roof.

    >>> wide, depthwise = "conv:nNc64k64_i56x56_f1x1", "conv:nNc96k96g96_i56x56_f7x7_p3"
    >>> order = by_weight((Layer(wide, 1, "wide"), Layer(depthwise, 1, "depthwise")))
    >>> [layer.name for layer in order]  # fewer operations, but more bytes
    ['depthwise', 'wide']
    """

    def weight(layer: Layer) -> float:
        call = layer.call("fprop", batch, "dt=bf16")
        return layer.times * max(call.flop() / FLOP_S, call.bytes_moved() / BYTES_S)

    return sorted(layers, key=lambda layer: -weight(layer))
