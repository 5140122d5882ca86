"""GPU MODE: `reference.py` with `generate_input`, `ref_kernel`; a solution defines `custom_kernel`.

`task.yml` beside it has the arguments of `generate_input`, one set a test.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ..errors import invalid
from ..judge import Numerics
from ..judge.programs import Program, judge_results
from .problem import TEST, Solution, Trial, importing, in_file, wrong_form
from .sizes import Sizes

_SET = re.compile(r"-\s*\{([^}]*)\}")
_BARE = re.compile(r"(?<![\w\"'.])[A-Za-z_]\w*(?![\w\"'])")  # a word of YAML without quotes
_CONSTANTS = {"true": "True", "false": "False", "null": "None"}
_BESIDE = ("task", "utils")  # modules that a reference imports


class GpuMode:
    """A problem of GPU MODE's reference kernels; the path is that of its reference.py."""

    pattern = "reference.py"
    tolerance = 1e-3

    def __init__(self, path: Path) -> None:
        self.name = path.absolute().parent.name
        task = path.parent / "task.yml"
        self._names = _run(path)
        missing = [n for n in ("generate_input", "ref_kernel") if n not in self._names]
        if missing or not task.is_file():
            raise invalid("grade", f"{path} needs {', '.join(missing) or 'a task.yml beside it'}")
        text = f"\n{task.read_text('utf-8')}".partition("\ntests:")[2].partition("\nbenchmarks:")[0]
        self._tests = [_arguments(path, found) for found in _SET.findall(text)]
        if not self._tests:
            raise invalid("grade", f"{task} has no tests, needs lines as - {{n: 64, seed: 1}}")

    def sizes(self) -> Iterator[Sizes]:
        """Yield the number of each test; its sizes are the problem's own."""
        yield from ({TEST: number} for number in range(len(self._tests)))

    def trial(self, sizes: Sizes, seed: int) -> Trial:
        """Return one test, with another seed."""
        spec = dict(self._tests[sizes.get(TEST, 0)])
        data = self._names["generate_input"](**spec | ({"seed": seed} if "seed" in spec else {}))

        def reference(inputs: list[Any], named: dict[str, Any]) -> Any:
            return self._names["ref_kernel"](_copied(inputs[0]))

        return Trial(reference, [data], {})

    def solution(self, path: Path) -> Solution:
        """Return the solution in a file."""
        return in_file(path, "custom_kernel")


def check_implementation(
    reference: Callable[[Any], Any], data: Any, output: Any, arithmetic: Numerics | str = "rn32"
) -> tuple[bool, str]:
    """Judge what a kernel returned, as `check_implementation` of a reference.py does.

    Parameters
    ----------
    reference : callable
        The `ref_kernel` of the problem.
    data, output
        What the kernel was given, before it ran, and what it returned.
    arithmetic : Numerics or str
        As in `assert_close`.

    Returns
    -------
    tuple of bool and str
        Whether the output is right, and why not.

    Examples
    --------
    In a reference.py:

    >>> import functools
    >>> import torch
    >>> from convref.grade import check_implementation
    >>> def ref_kernel(data):
    ...     return data.sum(1)
    >>> check = functools.partial(check_implementation, ref_kernel)
    >>> check(torch.ones(1, 9), torch.tensor([9.0]))
    (True, '')
    >>> check(torch.ones(1, 9), torch.tensor([8.0]))[1]
    'output[0] is 8.0, needs exactly 9.0; error 1, bound 0 (1 of 1 elements)'
    """
    if reason := wrong_form(output):
        return False, reason
    numerics = Numerics(arithmetic) if isinstance(arithmetic, str) else arithmetic
    program = Program(lambda given: reference(_copied(given)), (data,), {}, numerics)
    report = judge_results(program, output)
    return bool(report), "" if report else report.verdict.reason or report.verdict.kind


def _copied(tree: Any) -> Any:
    """Return copies: a reference may write into its arguments."""
    return tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, tree)


def _arguments(path: Path, text: str) -> dict[str, Any]:
    """Return what a mapping of YAML on one line has."""

    def quoted(found: re.Match[str]) -> str:
        word = _CONSTANTS.get(found[0].lower(), found[0])
        return word if word in _CONSTANTS.values() else repr(word)

    try:
        return dict(ast.literal_eval("{" + _BARE.sub(quoted, text) + "}"))
    except (ValueError, SyntaxError) as error:
        raise invalid("grade", f"{path}: {{{text}}} of task.yml cannot be read ({error})") from None


def _run(path: Path) -> dict[str, Any]:
    """Return the names of a reference, which computes on the CPU."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == "cuda":
            node.value = "cpu"
    names: dict[str, Any] = {"__name__": "reference"}
    with importing(dict.fromkeys(_BESIDE), path.parent, path.parent.parent):
        exec(compile(tree, str(path), "exec"), names)
    return names
