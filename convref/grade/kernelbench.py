"""KernelBench: `Model`, `get_inputs` and `get_init_inputs`; a solution defines `ModelNew`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..errors import invalid
from .problem import Solution, Trial, in_file
from .sizes import Sizes, Source, grading_sizes

_FUNCTIONS = ("get_inputs", "get_init_inputs")


class KernelBench:
    """A problem of KernelBench, which is a file of Python."""

    pattern = "*.py"
    tolerance = 1e-4  # of its rule, for float32

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._source = Source(path.read_text("utf-8"), str(path), _FUNCTIONS)
        missing = [name for name in ("Model", *_FUNCTIONS) if name not in self._source.run({})]
        if missing:
            raise invalid("grade", f"{path} has no {', '.join(missing)}")

    def sizes(self) -> Iterator[Sizes]:
        """Yield sizes at which the problem is affordable."""
        return grading_sizes(self._source, _built)

    def trial(self, sizes: Sizes, seed: int) -> Trial:
        """Return the problem with weights and inputs of this seed; weights are `named`."""
        names = self._source.run(sizes)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            model = names["Model"](*names["get_init_inputs"]())
            inputs = list(names["get_inputs"]())

        def reference(inputs: list[Any], named: dict[str, Any]) -> Any:
            return torch.func.functional_call(model, named, tuple(inputs))

        named = {name: p.detach() for name, p in model.named_parameters()}
        request = {"init": list(names["get_init_inputs"]()), "seed": seed}
        return Trial(reference, inputs, named, request)

    def solution(self, path: Path) -> Solution:
        """Return the solution in a file."""
        return in_file(path, "ModelNew")


def _built(names: dict[str, Any]) -> tuple[Any, Any]:
    return names["Model"](*names["get_init_inputs"]()), names["get_inputs"]()
