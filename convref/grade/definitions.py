"""SOL-ExecBench and FlashInfer-Bench: a definition in JSON, with workloads in JSON lines.

The workloads are in `workload.jsonl` beside the definition, or in a folder `workloads` where its
path has `definitions`. A solution is JSON with its sources, or a file of Python with `run`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..errors import UnsupportedError, a_kind, invalid, shorten
from .problem import TEST, Solution, Trial, in_file
from .sizes import Sizes, Source, grading_sizes

_WORKLOADS = 3  # of a problem that are graded: others have the same inputs at other sizes
_INTEGERS = 16  # integers are below it
_EXPRESSION = re.compile(r"[\w\s+\-*/%().]+")


class Definition:
    """A definition and its workloads."""

    pattern = "*.json"
    tolerance = 1e-2

    def __init__(self, path: Path) -> None:
        self._path, facts = path, _read(path)
        missing = [n for n in ("axes", "inputs", "outputs", "reference") if n not in facts]
        if missing:
            raise invalid("grade", f"{path} has no {', '.join(missing)}")
        self.name, self._axes = str(facts.get("name", path.stem)), facts["axes"]
        self._inputs, self._outputs = facts["inputs"], facts["outputs"]
        self._reference = Source(facts["reference"], f"{path}: reference", ()).run({})
        self._custom = facts.get("custom_inputs_entrypoint")
        self._workloads = _workloads(path)
        self._sources = [
            Source(f"def axes():\n    return {w['axes']!r}", str(path), ("axes",))
            for w in self._workloads
        ]

    def sizes(self) -> Iterator[Sizes]:
        """Yield variable axes of some workloads, smaller ones where all inputs can be drawn."""
        for number, workload in enumerate(self._workloads[:_WORKLOADS]):

            def build(names: dict[str, Any], number: int = number) -> tuple[Any, Any]:
                return self._reference["run"], self._arguments(number, names["axes"]())

            drawn = {given["type"] for given in workload["inputs"].values()} <= {"random", "scalar"}
            for sizes in grading_sizes(self._sources[number], build) if drawn else ({},):
                yield {TEST: number} | sizes

    def trial(self, sizes: Sizes, seed: int) -> Trial:
        """Return a workload, with another seed."""
        number = sizes.get(TEST, 0)
        axes = self._sources[number].run(sizes)["axes"]()
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            inputs = self._arguments(number, axes)
        names = list(self._outputs)

        def reference(inputs: list[Any], named: dict[str, Any]) -> Any:
            found = self._reference["run"](*inputs)
            if isinstance(found, dict):
                return [found[name] for name in names]
            return list(found) if isinstance(found, (list, tuple)) else [found]

        outputs = [
            [len(inputs) + place, self._shape(self._outputs[name], axes), self._dtype(name)]
            for place, name in enumerate(names)
        ]
        return Trial(reference, inputs, {}, {"outputs": outputs, "results": names})

    def solution(self, path: Path) -> Solution:
        """Return the solution in a file of JSON or Python."""
        if path.suffix != ".json":
            return in_file(path, "run")
        facts = _read(path)
        try:
            main, _, entry = facts["spec"]["entry_point"].partition("::")
            writes = facts["spec"].get("destination_passing_style", True)
            files = {str(s["path"]): s["content"].encode() for s in facts["sources"]}
        except (LookupError, TypeError, AttributeError, UnicodeError) as error:
            what = f"{path} needs spec.entry_point, and sources with path and content"
            raise invalid("grade", what) from error
        return Solution(files, main, entry, {} if writes else {"outputs": []})

    def _arguments(self, number: int, axes: dict[str, int]) -> list[Any]:
        given = self._workloads[number]["inputs"]
        made = {name: g["value"] for name, g in given.items() if g["type"] == "scalar"}
        if self._custom is not None:
            known = {name: self._size(name, axes) for name in self._axes}
            made |= self._reference[self._custom](known | made, torch.device("cpu"))
        return [made[n] if n in made else self._input(n, given[n], axes) for n in self._inputs]

    def _input(self, name: str, given: dict[str, Any], axes: dict[str, int]) -> Any:
        if given["type"] == "safetensors":
            return _stored(self._path, given)
        shape, dtype = self._shape(self._inputs[name], axes), self._dtype(name)
        if dtype.is_floating_point:
            return torch.randn(shape, dtype=dtype)
        return torch.randint(0, 2 if dtype == torch.bool else _INTEGERS, shape).to(dtype)

    def _dtype(self, name: str) -> Any:
        text = (self._inputs | self._outputs)[name]["dtype"]
        if text.startswith("float8") or not isinstance(
            dtype := getattr(torch, text, 0), torch.dtype
        ):
            raise UnsupportedError(f"grade: {name} of {self._path} is {text}, which has no rules")
        return dtype

    def _shape(self, spec: dict[str, Any], axes: dict[str, int]) -> list[int]:
        return [self._size(axis, axes) for axis in spec["shape"] or ()]

    def _size(self, axis: str, axes: dict[str, int]) -> int:
        """Return the size of an axis, given those of the workload."""
        spec = self._axes[axis]
        if spec["type"] != "expr":
            return int(spec["value"] if spec["type"] == "const" else axes[axis])
        if not _EXPRESSION.fullmatch(spec["expression"]):
            what = f"axis {axis} of {self._path} is {shorten(repr(spec['expression']), 60)}"
            raise invalid("grade", f"{what}, needs arithmetic on numbers and names of axes")
        others = set(re.findall(r"[A-Za-z_]\w*", spec["expression"]))
        return int(eval(spec["expression"], {name: self._size(name, axes) for name in others}))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise invalid("grade", f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise invalid("grade", f"{path} is {a_kind(found)}, needs an object")
    return found


def _workloads(path: Path) -> list[dict[str, Any]]:
    """Return the workloads of a definition; each may be part of a trace."""
    moved = Path(
        *("workloads" if part == "definitions" else part for part in path.absolute().parts)
    )
    places = (path.with_name("workload.jsonl"), moved.with_suffix(".jsonl"))
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise invalid("grade", f"{path} needs {' or '.join(map(str, places))}")
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    if not lines:
        raise invalid("grade", f"{file} is empty")
    return [line.get("workload", line) for line in lines]


def _stored(path: Path, given: dict[str, Any]) -> Any:
    """Return a tensor of a file whose path is relative to a folder above the definition."""
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise invalid("grade", f"{given['path']} needs safetensors installed ({error})") from None
    for folder in path.absolute().parents:
        if (file := folder / given["path"]).is_file():
            return load_file(file)[given["tensor_key"]]
    raise invalid("grade", f"{given['path']} is in no folder above {path}")
