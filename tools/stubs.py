"""Write the stubs of modules whose functions are generated, and the list of public functions.

Usage: python tools/stubs.py [--check]. A type checker sees nothing of a generated function, so
its signature is written down: `convref/__init__.pyi` and those of `MODULES`. `import convref`
generates no function, so their names are written down too: `convref/api/functions.py`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEAD = '"""Signatures; made by tools/stubs.py."""\n\n# fmt: off\n'
NAMES = "convref.api.functions"

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


def names() -> str:
    """Return the list of public functions by module."""
    rows = []
    for path in sorted((ROOT / "convref" / "api").glob("[a-z]*.py")):
        public = getattr(importlib.import_module(f"convref.api.{path.stem}"), "__all__", ())
        listed = textwrap.fill(", ".join(f'"{name}"' for name in public), 92)
        text = listed.replace("\n", "\n        ")
        rows += [f'    "{path.stem}": (\n        {text},\n    ),\n'] if public else []
    head = '"""Names of the public functions by module; made by tools/stubs.py."""\n\n# fmt: off\n'
    return f"{head}FUNCTIONS: dict[str, tuple[str, ...]] = {{\n{''.join(rows)}}}\n"


def text_of(name: str) -> str:
    """Return what the generated file of a module must contain."""
    return names() if name == NAMES else stub(name)


def path_of(name: str) -> Path:
    """Return the generated file of a module."""
    path = Path(importlib.import_module(name).__file__ or "")
    return path if name == NAMES else path.with_suffix(".pyi")


def is_stale(name: str) -> bool:
    """Return whether the generated file of a module is out of date."""
    path = path_of(name)
    return not path.exists() or path.read_text("utf-8") != text_of(name)


def main(check: bool) -> int:
    """Write the files that are out of date, or only list them; return the exit status."""
    if not check and is_stale(NAMES):
        path_of(NAMES).write_text(names(), "utf-8")
        os.execv(sys.executable, [sys.executable, *sys.argv])  # stubs have the new names too
    stale = [name for name in (NAMES, *MODULES) if is_stale(name)]
    for name in () if check else stale:
        path_of(name).write_text(text_of(name), "utf-8")
    print(*(f"{path_of(name).relative_to(ROOT)} is out of date" for name in stale), sep="\n")
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
