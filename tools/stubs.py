"""Write the stubs of modules whose functions are made when they are imported.

Usage: python tools/stubs.py [--check]. A type checker sees nothing of a function that is made, so
its signature is written down: `convref/__init__.pyi` and those of `MODULES`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEAD = '"""Signatures; made by tools/stubs.py."""\n\n# fmt: off\n'

# Each module, and the lines of its stub for names that are not such functions.
MODULES = {
    "convref": """\
from typing import Any

from . import api as api
from . import ops as ops
from .api.testing import assert_correct as assert_correct
from .api.testing import case_of as case_of
from .case import Call as Call
from .case import Case as Case
from .case import Spec as Spec
from .case import parse as parse
from .case import parse_problem as parse_problem
from .dispatch import explain as explain
from .dispatch import plan as plan
from .dispatch import run as run
from .errors import ConvrefError as ConvrefError
from .errors import UnsupportedError as UnsupportedError
from .judge import Numerics as Numerics
from .judge import Verdict as Verdict
from .judge import judge as judge
from .ops import SIGNATURE as SIGNATURE

__version__: str
""",
    "convref.integrations.torch.functional": """\
from typing import Any

import torch
from torch import Tensor

from ...api.definition import Definition
from ._kernels import PassConfig

OF_TORCH: list[Definition]
def conv_config(
    rank: int, input: Tensor, weight: Tensor, backend: str | None, *geometry: Any
) -> PassConfig: ...
""",
}


def stub(name: str) -> str:
    """Return the stub of a module."""
    module = importlib.import_module(name)
    public = module.__all__
    written = MODULES[name]
    listed = [n for n in sorted(public) if f" {n}\n" not in written and f"def {n}(" not in written]
    lines = [line_of(n, getattr(module, n)) for n in listed]
    first: dict[tuple[str, str], str] = {}  # one of those that differ by rank alone
    for place, (n, line) in enumerate(zip(listed, lines)):
        key = re.sub(r"[123]d", "Nd", n), line.replace(n, "")
        if first.setdefault(key, n) != n:
            lines[place] = f"{n} = {first[key]}\n"
    ordered = sorted(public, key=lambda n: (not n.isupper(), n[0].islower(), n))
    names = textwrap.fill(", ".join(f'"{n}"' for n in ordered), 96)
    everything = "\n    ".join(names.splitlines())
    return f"{HEAD}{written}\n__all__ = [\n    {everything}\n]\n\n" + "".join(lines)


def line_of(name: str, function: Any) -> str:
    """Return a function's signature, on as many lines as it takes."""
    form = inspect.signature(function)
    listed, starred = [], False
    for p in form.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not starred:
            listed, starred = [*listed, "*"], True
        default = "" if p.default is p.empty else f" = {p.default!r}".replace("'", '"')
        listed.append(f"{p.name}: {p.annotation}{default}")
    text = f"def {name}({', '.join(listed)}) -> {form.return_annotation}: ..."
    if len(text) <= 100:
        return f"{text}\n"
    words = ", ".join(p.replace(" ", "\0") for p in listed)
    folded = textwrap.fill(words, 96).replace("\0", " ").replace("\n", "\n    ")
    return f"def {name}(\n    {folded}\n) -> {form.return_annotation}: ...\n"


def path_of(name: str) -> Path:
    """Return where the stub of a module is."""
    path = Path(importlib.import_module(name).__file__ or "")
    return path.with_suffix(".pyi")


def is_stale(name: str) -> bool:
    """Return whether the stub of a module is out of date."""
    path = path_of(name)
    return not path.exists() or path.read_text("utf-8") != stub(name)


if __name__ == "__main__":
    stale = [
        name
        for name in MODULES
        if not path_of(name).exists() or path_of(name).read_text("utf-8") != stub(name)
    ]
    for name in () if "--check" in sys.argv else stale:
        path_of(name).write_text(stub(name), "utf-8")
    print(*(f"{path_of(name).relative_to(ROOT)} is out of date" for name in stale), sep="\n")
    sys.exit(bool(stale) and "--check" in sys.argv)
