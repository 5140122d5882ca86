"""Docstrings of the public functions: a short text each, completed from one entry per parameter.

A text is numpydoc. It describes only the parameters that are its own; all others come from the
forward function or from `COMMON`. `Raises` is added, and the heading of examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import Parameter, cleandoc
from typing import NamedTuple

from ...ops import FILTER_AXES, OUTPUT_AXES, RANKS


class Entry(NamedTuple):
    """The description of one or more parameters: names, type and indented lines."""

    names: tuple[str, ...]
    type: str
    lines: str


Entries = Mapping[str, Entry]


def entries(text: str) -> dict[str, Entry]:
    """Return the entries of a section `Parameters`, by the name of each parameter."""
    found: dict[str, Entry] = {}
    for heading, lines in re.findall(r"(?m)^(\S.*)\n((?:[ ]+\S.*\n?)*)", f"{text}\n"):
        listed, _, type_ = heading.partition(" : ")
        names = tuple(listed.split(", "))
        found |= dict.fromkeys(names, Entry(names, type_, lines.rstrip()))
    return found


COMMON = entries(
    cleandoc("""
    input : (N, C, *spatial) array, or without N
        NumPy array, torch tensor (any strides) or JAX array.
    weight, bias : (C,) array, optional
    grad_output : array
        Cotangent of the output.
    grad_grad_input, grad_grad_weight, grad_grad_bias : array, optional
        Cotangents of the results of the backward pass.
    primals, tangents : tuple of arrays
        Values and directions of the operands; None where absent.
    kernel_size, stride, dilation : int or tuple of int
        In elements, at least 1; the stride is the kernel size unless given.
    padding : int, tuple of int, (lo, hi) pairs or str
        As in `conv2d`; may exceed the kernel.
    ceil_mode : bool
        Round the output size up; the last window starts inside the input or the low padding.
    output_size : int or tuple of (int or None)
        Spatial sizes of the output; None keeps the input's.
    indices : array of int64
        As the forward pass returned them; computed again if None.
    mean, rstd : array, optional
        As the forward pass returned them; computed again if None.
    eps : float
        Added to the variance.
    dim : int
        The axis; negative counts from the end.
    return_indices : bool
        Return (output, indices): flat positions in the image of a channel, int64.
    return_statistics : bool
        Return (output, mean, rstd).
    output_mask : tuple of bool
        Which of the results to compute; the others are None.
    layout : str, optional
        Axis order of input and output: N, C first, or C last ("NHWC").
    dtype : dtype, optional
        The operands are cast to it first; gradients have the types of their operands.
    backend : str
        A name, "package.module:object", or "auto".
    """)
)
ANY_SHAPE = entries("input : array\n    Any shape.")
SHAPE_ONLY = entries("input : array\n    Only its shape is used.")

_RAISES = """\
ConvrefError
    If an argument is wrong; the text names it, what it is and what it needs.
UnsupportedError
    If the named backend cannot do this call; with its reason.
"""


def sections(text: str) -> dict[str, str]:
    """Return the sections of a docstring by heading; "" is all before the first one."""
    text = cleandoc(text)
    if "Examples\n---" not in text:
        text = re.sub(r"(?m)^>>> ", "Examples\n--------\n>>> ", text, count=1)
    before, *rest = re.split(r"(?m)^(\w+)\n-+\n", text)
    return {"": before, **dict(zip(rest[::2], rest[1::2]))}


def docstring(
    text: str, name: str, parameters: Iterable[Parameter], rank: int = 0, known: Entries = COMMON
) -> str:
    """Return the complete docstring of a function from the numpydoc `text` for rank 2.

    Only examples that call the function are kept, or all if none does. `known` has the entries
    of parameters that the text does not describe.
    """
    found = sections(text)
    shown = found.pop("Examples", "").strip("\n")
    own = {**COMMON, **known, **entries(found.pop("Parameters", ""))}
    summary, returns, notes = (found.get(part, "") for part in ("", "Returns", "Notes"))
    listed = "".join(_listed([*parameters], own))
    parts = {"Parameters": listed, "Returns": returns, "Raises": _RAISES, "Notes": notes}
    blocks = [summary.strip("\n")]
    blocks += [f"{n}\n{'-' * len(n)}\n{body.rstrip()}" for n, body in parts.items() if body]
    prose = "\n\n".join(blocks)
    for words, others in _words(rank) if rank else ():
        prose = prose.replace(words, others)
    prose = re.sub(r"(?<![A-Z0-9])2d(?![A-Za-z0-9])", f"{rank}d", prose) if rank else prose
    examples = shown.split("\n\n") if shown else []
    examples = [block for block in examples if f"{name}(" in block] or examples
    shown = "\n\n".join(examples)
    return f"{prose}\n\nExamples\n--------\n{shown}\n" if shown else f"{prose}\n"


def _listed(parameters: list[Parameter], known: Entries) -> Iterable[str]:
    """Yield the text of each parameter; those that share an entry are listed together."""
    done: set[str] = set()
    names = [p.name for p in parameters]
    for p in parameters:
        entry = known.get(p.name, Entry((p.name,), str(p.annotation), ""))
        if p.name in done:
            continue
        together = [n for n in entry.names if n in names and known.get(n, entry) is entry]
        done.update(together)
        type_ = f" : {entry.type}" if entry.type not in ("", "Any") else ""
        yield f"{', '.join(together)}{type_}\n{entry.lines}\n".replace("\n\n", "\n")


# Words of a docstring that depend on the rank, for rank 2.
_SIZES = {"H, W": RANKS, "P, Q": OUTPUT_AXES, "R, S": FILTER_AXES}
_LAYOUTS = {"NCHW": "NC{}", "NHWC": "N{}C", "OIHW": "OI{}", "HWIO": "{}IO", "HWOI": "{}OI"}


@cache
def _words(rank: int) -> list[tuple[str, str]]:
    """Return pairs of words that depend on the rank: for rank 2, and for this one."""
    last = "," if rank == 1 else ""
    ints, pairs = ", ".join(["int"] * rank), ", ".join(["(lo, hi)"] * rank)
    return [
        *((form, ", ".join(letters[rank])) for form, letters in _SIZES.items()),
        *((form, blank.format(RANKS[rank])) for form, blank in _LAYOUTS.items()),
        ("((lo, hi), (lo, hi))", f"({pairs}{last})"),
        ("(int, int)", f"({ints}{last})"),
    ]
