"""Other sizes of a problem: whole numbers of its source are replaced while its reference runs."""

import ast
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_NONE: Mapping[str, Any] = MappingProxyType({})
Sizes = dict[int, int]  # by the number in the source, that which replaces it

SMALLEST = 16  # smaller numbers are widths of windows, strides, axes
_LEAST = 4
BUDGET = 2.0**17  # elements of all results, and multiplications / FLOP
_FLOP = 2**7
_HUGE = 2.0**50
_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Pow)


class Source:
    """The source of a problem.

    Parameters
    ----------
    text : str
    functions : tuple of str
        The functions and methods whose numbers may be sizes, besides those of the module's own
        variables.
    given : dict
        Names that the source uses and does not define.
    """

    def __init__(
        self, text: str, name: str, functions: Collection[str], given: Mapping[str, Any] = _NONE
    ) -> None:
        self.name, self.functions, self._given = name, functions, given
        self._text = text
        self.numbers: set[int] = set()
        self._compiled({})

    def run(self, sizes: Mapping[int, int]) -> dict[str, Any]:
        """Return the names that the source defines, at these sizes."""
        module = ModuleType("problem")
        module.__dict__.update(self._given)
        exec(self._compiled(sizes), module.__dict__)
        return module.__dict__

    def _compiled(self, sizes: Mapping[int, int]) -> Any:
        tree = ast.parse(self._text, self.name)
        replace = _Replace(sizes, self.numbers)
        for node in tree.body:
            for statement in node.body if isinstance(node, ast.ClassDef) else [node]:
                named = isinstance(statement, ast.FunctionDef) and statement.name in self.functions
                if named or (statement is node and isinstance(node, (ast.Assign, ast.AnnAssign))):
                    replace.visit(statement)
        return compile(ast.fix_missing_locations(tree), self.name, "exec")


class _Replace(ast.NodeTransformer):
    """Replaces whole numbers, and products of them, and notes which there were."""

    def __init__(self, sizes: Mapping[int, int], seen: set[int]) -> None:
        self.sizes, self.seen = sizes, seen

    def generic_visit(self, node: ast.AST) -> ast.AST:
        found = _number(node)
        if found is None or found < SMALLEST:
            return super().generic_visit(node)
        self.seen.add(found)
        return ast.copy_location(ast.Constant(self.sizes.get(found, found)), node)


def _number(node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, _OPERATIONS):
        return None
    if None in (_number(node.left), _number(node.right)):
        return None
    value = eval(compile(ast.fix_missing_locations(ast.Expression(node)), "", "eval"))
    return value if type(value) is int and value < _HUGE else None


def grading_sizes(source: Source, build: Callable[[dict[str, Any]], Any]) -> Iterator[Sizes]:
    """Yield sizes at which the problem is affordable: reduced alike, then each number alone large.

    `build` returns the reference and its arguments, of what the source defines. The numbers of the
    others are odd, where the reference runs with odd ones.
    """
    known: dict[frozenset[tuple[int, int]], float] = {}

    def cost(sizes: Sizes) -> float:
        key = frozenset(sizes.items())
        if key not in known:
            known[key] = _cost(source, build, sizes)
        return known[key]

    small = _reduced({}, cost, source.numbers)
    yield small
    least = _reduced(small, cost, source.numbers, budget=0)
    for number in sorted(source.numbers, key=lambda n: -n)[:2]:
        long = dict(least)
        while 2 * long[number] < number and cost(long | {number: 2 * long[number]}) <= BUDGET:
            long[number] *= 2
        if (found := _with_odd_sizes(long, cost)) != small:
            yield found


def _reduced(
    sizes: Sizes, cost: Callable[[Sizes], float], numbers: set[int], budget: float = BUDGET
) -> Sizes:
    """Halve the largest numbers until the cost is below the budget, or none can be halved.

    Where one alone cannot, since the reference needs another to be its multiple, all are.
    """
    found = {number: sizes.get(number, number) for number in numbers}
    open_ = set(numbers)
    while open_ and cost(found) > budget:
        number = max(open_, key=lambda n: found[n])
        all_ = {n: max(_LEAST, size // 2) for n, size in found.items()}
        alone = found | {number: all_[number]}
        smaller = [new for new in (alone, all_) if new != found and not math.isinf(cost(new))]
        if smaller and found[number] > _LEAST:
            found = smaller[0]
        else:
            open_.discard(number)
    return found


def _with_odd_sizes(sizes: Sizes, cost: Callable[[Sizes], float]) -> Sizes:
    """Return the sizes with as many odd numbers as the reference allows."""
    found = dict(sizes)
    for number, size in sizes.items():
        if size % 2 == 0 and cost(found | {number: size + 1}) <= 2 * BUDGET:
            found[number] = size + 1
    return found


class _Counter(TorchDispatchMode):  # type: ignore[misc]
    """Counts the elements of results, and the operations of products."""

    count = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count += sum(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))
        if (flops := flop_registry.get(func.overloadpacket)) is not None:
            self.count += flops(*args, **(kwargs or {}), out_val=out) / _FLOP
        return out


def _cost(source: Source, build: Callable[[dict[str, Any]], Any], sizes: Sizes) -> float:
    """Return what a run costs, without memory for its tensors; infinite if it fails."""
    counter = _Counter()
    try:
        with torch.random.fork_rng([]), torch.no_grad(), torch.device("meta"), counter:
            reference, args = build(source.run(sizes))
            out = [t for t in tree_leaves(reference(*args)) if isinstance(t, torch.Tensor)]
    except Exception:  # whatever a reference raises at sizes that it cannot have
        return math.inf
    return counter.count if out and all(t.numel() for t in out) else math.inf
