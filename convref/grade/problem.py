"""What a format gives to the grader: references, arguments and how a solution is called."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves

from ..errors import UnsupportedError, a_kind, invalid, shorten
from .sizes import Sizes

TEST = 0  # among sizes, the number of the test or workload that a file lists
_TRITON = re.compile(rb"^\s*(import|from)\b.*\btriton\b", re.M)
_CUDA = re.compile(rb"cuda_sources|CUDAExtension|\.cu\b")
_INSIDE = "is no path inside of a folder, needs one such as src/kernel.py"
_NAME = re.compile(r"[^/\\:\x00-\x1f]+(/[^/\\:\x00-\x1f]+)*")


@dataclass(frozen=True)
class Trial:
    """A reference at some sizes, with arguments of which the values may be changed.

    Parameters
    ----------
    reference : callable
        Takes inputs and named: a list, and a dict of parameters or keyword arguments.
    inputs, named
        Arguments as the problem draws them.
    request : dict
        What the process of the solution needs besides: {"init", "seed"} of a module, "outputs"
        of a function that writes its results, "results" of one that may return them as a dict.
    call : callable, optional
        Returns the request of inputs and named, by default {"inputs", "named"}.
    """

    reference: Callable[[list[Any], dict[str, Any]], Any]
    inputs: list[Any]
    named: dict[str, Any]
    request: dict[str, Any] = field(default_factory=dict)
    call: Callable[[list[Any], dict[str, Any]], dict[str, Any]] | None = None

    def request_of(self, inputs: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        """Return what the process of a solution gets for these arguments."""
        found = self.call(inputs, named) if self.call else {"inputs": inputs, "named": named}
        return self.request | found


@dataclass(frozen=True)
class Solution:
    """The files of a solution.

    Parameters
    ----------
    files : dict
        Contents by path in the folder of the solution.
    main, entry : str
        The file to load, and the function or class in it; "" where requests have the function.
    request : dict
        Replaces parts of the requests of the problem.
    """

    files: Mapping[str, bytes]
    main: str
    entry: str
    request: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.files:  # the grader writes them: they must not leave their folder
            if not _NAME.fullmatch(name) or ".." in name.split("/"):
                raise invalid("grade", f"{shorten(name, 60)!r} {_INSIDE}")
        if self.main not in self.files:
            what = f"{shorten(self.main, 60)!r} is none of the solution's files"
            raise invalid("grade", f"{what}, needs one of {shorten(', '.join(self.files))}")
        if not self.main.endswith(".py"):
            raise UnsupportedError(f"grade: {self.main} is not Python, which is not supported")
        if self.entry and not self.entry.isidentifier():
            what = f"entry is {shorten(self.entry, 60)!r}"
            raise invalid("grade", f"{what}, needs the name of a function or class")
        if any(_CUDA.search(data) for name, data in self.files.items() if name.endswith(".py")):
            needs = {"nvcc": shutil.which("nvcc"), "a CUDA device": torch.cuda.is_available()}
            for what in (what for what, found in needs.items() if not found):
                why = f"is CUDA C++, which needs {what}: not found"
                raise UnsupportedError(f"grade: the solution {why}")

    @property
    def uses_triton(self) -> bool:
        """Return whether a file imports Triton."""
        return any(_TRITON.search(data) for data in self.files.values())


class BenchmarkProblem(Protocol):
    """A problem of a benchmark."""

    name: str
    pattern: str  # of the names of the files of problems
    tolerance: float  # of the own rule of the benchmark, relative and absolute

    def sizes(self) -> Iterator[Sizes]:
        """Yield the sizes to grade at; {} are those of the problem."""

    def trial(self, sizes: Sizes, seed: int) -> Trial:
        """Return the problem at these sizes."""

    def solution(self, path: Path) -> Solution:
        """Return the solution in a file or folder."""


def in_file(path: Path, entry: str) -> Solution:
    """Return the solution that is a file with this function or class."""
    if not path.is_file():
        raise invalid("grade", f"{path} is no file")
    return Solution({"solution.py": path.read_bytes()}, "solution.py", entry)


def wrong_form(result: Any) -> str:
    """Return why a result is not a tree of tensors; empty if it is one."""
    leaves = (t for t in tree_leaves(result) if not isinstance(t, (torch.Tensor, type(None))))
    return next((f"it returns {a_kind(leaf)}, needs a tensor" for leaf in leaves), "")


@contextlib.contextmanager
def importing(modules: Mapping[str, ModuleType | None], *folders: Path) -> Iterator[None]:
    """Import modules from these folders first, and given ones under their names.

    Names of None are imported anew. Afterwards `sys.path` and these names are as before.
    """
    path, before = list(sys.path), {name: sys.modules.pop(name, None) for name in modules}
    sys.path[:0] = map(str, folders)
    sys.modules.update({name: module for name, module in modules.items() if module is not None})
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
