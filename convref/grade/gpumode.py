"""GPU MODE: `reference.py` with `generate_input`, `ref_kernel`; a solution defines `custom_kernel`.

`task.yml` beside it has the arguments of `generate_input`, one set a test.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ..errors import invalid
from .problem import Trial
from .sizes import Sizes

_SET = re.compile(r"-\s*\{([^}]*)\}")
_PAIR = re.compile(r"[\"']?(\w+)[\"']?\s*:\s*(-?\d+)\s*(?:,|$)")
_BESIDE = ("task", "utils")  # modules that a reference imports


class GpuMode:
    """A problem of GPU MODE's reference kernels; the path is that of its reference.py."""

    entry = "custom_kernel"
    tolerance = 1e-3

    def __init__(self, path: Path) -> None:
        self.name = path.absolute().parent.name
        task = path.parent / "task.yml"
        self._names = _run(path)
        missing = [n for n in ("generate_input", "ref_kernel") if n not in self._names]
        if missing or not task.is_file():
            raise invalid("grade", f"{path} needs {', '.join(missing) or 'a task.yml beside it'}")
        text = task.read_text("utf-8").partition("\ntests:")[2].partition("\nbenchmarks:")[0]
        self._tests = [_numbers(path, found) for found in _SET.findall(text)]

    def sizes(self) -> Iterator[Sizes]:
        """Yield the number of each test; its sizes are the problem's own."""
        yield from ({0: number} for number in range(len(self._tests)))

    def trial(self, sizes: Sizes, seed: int) -> Trial:
        """Return one test, with another seed."""
        spec = dict(self._tests[sizes.get(0, 0)])
        data = self._names["generate_input"](**spec | ({"seed": seed} if "seed" in spec else {}))

        def reference(inputs: list[Any], named: dict[str, Any]) -> Any:
            copies = tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, inputs)
            return self._names["ref_kernel"](copies[0])

        return Trial(reference, [data], {})


def _numbers(path: Path, text: str) -> dict[str, int]:
    found = {key: int(value) for key, value in _PAIR.findall(text.strip())}
    if len(found) != text.count(":"):
        raise invalid("grade", f"{path}: {{{text}}} of task.yml has other than whole numbers")
    return found


def _run(path: Path) -> dict[str, Any]:
    """Return the names of a reference, which computes on the CPU."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == "cuda":
            node.value = "cpu"
    names: dict[str, Any] = {"__name__": "reference"}
    kept = list(sys.path), {name: sys.modules.pop(name, None) for name in _BESIDE}
    sys.path[:0] = [str(path.parent), str(path.parent.parent)]
    try:
        exec(compile(tree, str(path), "exec"), names)
    finally:
        sys.path[:] = kept[0]
        for name, module in kept[1].items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
    return names
