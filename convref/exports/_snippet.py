"""What the programs of both frameworks share: data, header, answers, the names of things."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod
from typing import Any

from .. import dtypes
from ..case import Call, Case
from ..errors import UnsupportedError, message
from ..ops import BASE_ROLE
from ._data import LITERAL, UNPACK, array_text, widest

NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
NAMES |= {"c64": "complex64", "c128": "complex128", "u8": "uint8"}
NAMES |= {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}


class Snippet:
    """A program in the making: the data of a case as text, its header and its answers."""

    def __init__(self, case: Case, framework: str) -> None:
        from ..conformance.operands import operands

        self.case, self.call = case, case.call
        roles = self.call.roles
        self.arrays = dict(zip(roles, operands(case), strict=True))
        present = {role: a for role, a in self.arrays.items() if a is not None}
        self.texts = {role: array_text(role, a) for role, a in present.items()}
        self.exact = all(text.exact for text in self.texts.values())
        self.framework = framework

    def assemble(self, imports: list[str], body: list[str], show: list[str]) -> str:
        """Return the whole snippet."""
        text = "\n".join((*(line for t in self.texts.values() for line in t.before), *body))
        if "unpacked(" in text:
            imports = ["from base64 import b85decode", "from zlib import decompress", *imports]
            body = [*UNPACK.splitlines(), "", *body]
        if re.search(r"\b(np|rng)\.|unpacked\(", text):
            imports = ["import numpy as np", *imports]
        if re.search(r"\b(nan|inf)\b", text):
            imports = ["from math import inf, nan", *imports]
        if "rng." in text:
            imports = [*imports, "", f"rng = np.random.default_rng({self.case.seed})"]
        note = "" if self.exact else "\n# Some arrays are large: drawn here, not the case's own."
        head = f"# {self.case}\n# in plain {self.framework}{note}"
        return "\n".join((head, *imports, "", *body, "", *show, *self._answers(), ""))

    def _answers(self) -> list[str]:
        """Return the reference's results as comments, where the data and they are small."""
        from ..oracle import evaluate

        small = all(a is None or a.size <= 4096 for a in self.arrays.values())
        counts = [prod(self.call.problem.shape(role)) for role in self.call.wanted]
        if not (self.exact and small and sum(counts) <= LITERAL):
            return []
        results = evaluate(self.call, *self.arrays.values())
        named = zip(self.call.signature.results, results)
        return [
            f"# convref: {role} = {r.astype(widest(r)).tolist()}"
            for role, r in named
            if r is not None
        ]


def prints(call: Call) -> list[str]:
    """Return the lines that print each wanted result, whole when it is small."""
    lines = []
    for role in call.wanted:
        if prod(call.problem.shape(role)) <= LITERAL:
            lines.append(f'print("{role} =", {role}.tolist())')
        else:
            lines.append(f'print("{role}", {role}.shape, "sum", {role}.sum().item(), {role})')
    return lines


def refuse(framework: str, call: Call, names: dict[str, str]) -> None:
    """Raise UnsupportedError where no program can say the call."""
    reason = None
    if call.op not in ("conv", "unfold", "fold"):
        reason = f"no snippet for {call.op} yet"
    elif call.dtype not in names:
        reason = f"{framework} has no convolution of {call.dtype}"
    elif call.op == "conv" and call.pass_ != "fprop" and call.dtype in dtypes.INTEGERS:
        reason = f"{framework} differentiates no integers"
    elif call.math == "tf32x3":
        reason = f"{framework} has no tf32x3"
    elif call.signature.maskable and not call.wanted:
        reason = "the mask requests no result"
    if reason is not None:
        raise UnsupportedError(message(f"snippet in {framework}", reason, call))


def nondefault(**values: tuple[Any, Any]) -> str:
    """Return ``, name=value`` for each (value, default) that differs."""
    return "".join(f", {name}={v}" for name, (v, default) in values.items() if v != default)


def differentiated(call: Call) -> list[str]:
    """Return the inputs of the forward function that a backward pass differentiates by."""
    if call.pass_ == "backward":
        return [BASE_ROLE[role] for role in call.wanted]
    return list(call.carried)


def listed(names: Iterable[str]) -> str:
    """Return the names as a Python tuple."""
    names = list(names)
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def arguments(call: Call) -> str:
    """Return the arguments of conv in this pass."""
    with_bias = call.is_present("b") and "b" in call.roles
    return "x, w, b" if with_bias or "b" in differentiated(call) else "x, w"


def window_pass(call: Call) -> tuple[bool, str, str]:
    """Return whether this pass of unfold or fold unfolds, its operand and its result."""
    unfolds = (call.op == "unfold") != (call.pass_ == "backward")
    return unfolds, call.signature.operands[0], call.signature.results[0]
