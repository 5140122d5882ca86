"""BackendBench: an operator of PyTorch and its arguments in a trace; `{op__overload}_kernel_impl`.

A trace is the text of BackendBench's suite of models, with one operator:

    Operator: aten.add.Tensor
    cnt: 1, ((T([128, 64], f32), T([64], f32)), {})
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..errors import invalid
from .problem import TEST, Solution, Trial, in_file
from .sizes import Sizes, Source, grading_sizes

_DTYPES = {"bf16": torch.bfloat16, "b8": torch.bool, "u8": torch.uint8}
_DTYPES |= {f"f{n}": getattr(torch, f"float{n}") for n in (16, 32, 64)}
_DTYPES |= {f"i{n}": getattr(torch, f"int{n}") for n in (8, 16, 32, 64)}
_INTEGERS = 4  # integers are below it, so that they are indices too


class BackendBench:
    """An operator and the arguments that a trace has."""

    pattern = "*.txt"
    tolerance = 1e-2

    def __init__(self, path: Path) -> None:
        text = path.read_text("utf-8")
        operators = set(re.findall(r"^Operator: (\S+)", text, re.M))
        lines = re.findall(r"^cnt: \d+, (.*)", text, re.M)
        if len(operators) != 1 or not lines:
            raise invalid("grade", f"{path} has {len(operators)} operators, needs one and its cnt")
        self.name = operators.pop().removeprefix("aten.")
        self._operator: Any = torch.ops.aten
        for part in self.name.split("."):
            self._operator = getattr(self._operator, part, None)
        if not isinstance(self._operator, torch._ops.OpOverload):
            raise invalid("grade", f"{path}: PyTorch has no overload aten.{self.name}")
        self._tests = [
            Source(f"def call():\n    return {line}", str(path), ("call",), _NAMES)
            for line in lines
        ]

    def sizes(self) -> Iterator[Sizes]:
        """Yield the sizes of each test at which it is affordable."""
        for number, test in enumerate(self._tests):
            for sizes in grading_sizes(test, self._built):
                yield {TEST: number} | sizes

    def trial(self, sizes: Sizes, seed: int) -> Trial:
        """Return one test, with another seed."""
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            args, named = self._tests[sizes.get(TEST, 0)].run(sizes)["call"]()

        def reference(inputs: list[Any], named: dict[str, Any]) -> Any:
            return self._operator(*inputs, **named)

        return Trial(reference, list(args), named)

    def solution(self, path: Path) -> Solution:
        """Return the solution in a file."""
        return in_file(path, f"{self.name.replace('.', '__')}_kernel_impl")

    def _built(self, names: dict[str, Any]) -> tuple[Any, Any]:
        args, named = names["call"]()
        return (lambda *args: self._operator(*args, **named)), args


def _tensor(shape: list[int], dtype: Any, stride: Any = None) -> Any:
    """Return a drawn tensor; its strides are those of a new one, as in the solution's process."""
    if dtype.is_floating_point:
        return torch.rand(shape, dtype=dtype)
    return torch.randint(0, 2 if dtype == torch.bool else _INTEGERS, shape).to(dtype)


_NAMES = {"T": _tensor, "inf": math.inf, "nan": math.nan, "torch": torch, "th": torch, **_DTYPES}
