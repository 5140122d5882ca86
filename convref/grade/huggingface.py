"""Hugging Face kernels: a benchmark script with `verify_*` methods; a solution is the kernel.

The solution is a file or a package of Python. Each `benchmark_*` method calls one of its functions,
and the `verify_*` method of the same name returns what that has to write to `self.out`.
"""

import ast
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..errors import invalid
from .problem import TEST, Solution, Trial, importing, in_file
from .sizes import Sizes, Source, grading_sizes


class Benchmark:
    """The base class of benchmarks, as `kernels.benchmark` has it."""

    seed: int | None = None
    device = "cpu"
    kernel: Any = None
    out: Any = None

    def setup(self) -> None:
        """Make tensors as attributes."""


class HuggingFace:
    """The workloads of a benchmark script."""

    pattern = "benchmark*.py"
    tolerance = 1e-2

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        text = path.read_text("utf-8")
        methods = {
            node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
        }
        self._source = _Script(text, str(path), {n for n in methods if n.startswith("setup")})
        self._workloads = sorted(self._workload_names(self._source.run({})))
        if not self._workloads:
            raise invalid("grade", f"{path} has no class with benchmark_X and verify_X methods")

    def sizes(self) -> Iterator[Sizes]:
        """Yield the sizes of each workload at which it is affordable."""
        for number in range(len(self._workloads)):

            def build(names: dict[str, Any], number: int = number) -> tuple[Any, Any]:
                benchmark, name = self._set_up(names, number)
                return lambda: _verified(benchmark, name), ()

            for sizes in grading_sizes(self._source, build):
                yield {TEST: number} | sizes

    def trial(self, sizes: Sizes, seed: int) -> Trial:
        """Return a workload, with another seed; its inputs are the tensors of the benchmark."""
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            benchmark, name = self._set_up(self._source.run(sizes), sizes.get(TEST, 0))
        names = [n for n, value in vars(benchmark).items() if n not in ("out", "kernel")]
        inputs = [getattr(benchmark, n) for n in names]

        def reference(inputs: list[Any], named: dict[str, Any]) -> Any:
            vars(benchmark).update(zip(names, inputs))
            return [_verified(benchmark, name)]

        def call(inputs: list[Any], named: dict[str, Any]) -> dict[str, Any]:
            vars(benchmark).update(zip(names, inputs))
            benchmark.kernel = kernel = _Recorder(benchmark.out)
            getattr(benchmark, f"benchmark_{name}")()
            return kernel.request()

        return Trial(reference, inputs, {}, call=call)

    def solution(self, path: Path) -> Solution:
        """Return the kernel in a file, or in a folder with `__init__.py`."""
        if not (path / "__init__.py").is_file():
            return in_file(path, "")
        files = {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}
        return Solution(files, "__init__.py", "")

    def _workload_names(self, names: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the class and the name of each workload."""
        for name, value in names.items():
            if isinstance(value, type) and hasattr(value, "setup"):
                for method in dir(value):
                    workload = method.removeprefix("verify_")
                    if workload != method and hasattr(value, f"benchmark_{workload}"):
                        yield name, workload

    def _set_up(self, names: dict[str, Any], number: int) -> tuple[Any, str]:
        """Return the benchmark of a workload after its setup, and the name of the workload."""
        kind, name = self._workloads[number]
        benchmark = names[kind]()
        getattr(benchmark, f"setup_{name}", benchmark.setup)()
        return benchmark, name


def _verified(benchmark: Any, name: str) -> Any:
    found, out = getattr(benchmark, f"verify_{name}")(), benchmark.out
    if out is not None and found.shape != out.shape:
        what = f"verify_{name} returns shape {list(found.shape)}"
        raise invalid("grade", f"{what}, needs {list(out.shape)}, the shape of out")
    return found


class _Script(Source):
    """The source of a benchmark, which finds a base class where `kernels` is not installed."""

    def run(self, sizes: Mapping[int, int]) -> dict[str, Any]:
        """Return the names that the script defines, at these sizes."""
        stands = {name: ModuleType(name) for name in ("kernels", "kernels.benchmark")}
        vars(stands["kernels.benchmark"])["Benchmark"] = Benchmark
        installed = getattr(find_spec("kernels"), "origin", None)
        with importing({} if installed else stands):
            return super().run(sizes)


class _Recorder:
    """Stands for the kernel: it notes which function is called, and with what."""

    def __init__(self, out: Any) -> None:
        self._out, self._calls = out, []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        def function(*args: Any, **named: Any) -> Any:
            self._calls.append((name, args, named))
            return self._out

        return function

    def request(self) -> dict[str, Any]:
        """Return the request of the last call; where it has no `out`, that is what it returns."""
        if not self._calls:
            raise invalid("grade", "the benchmark calls no function of its kernel")
        name, args, named = self._calls[-1]
        places = [*enumerate(args), *named.items()]
        form = [list(self._out.shape), self._out.dtype] if self._out is not None else []
        return {
            "entry": name,
            "inputs": [value for value in args if value is not self._out],
            "named": {key: value for key, value in named.items() if value is not self._out},
            "outputs": [[place, *form] for place, value in places if value is self._out],
            "results": ["out"],
        }
