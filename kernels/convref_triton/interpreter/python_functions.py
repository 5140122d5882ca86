"""`triton.jit` functions as Python functions; the originals can still be compiled.

A Python function has the same source with globals of its own: jitted helpers are replaced by their
Python functions; `range`, `min` and `max` by those of the kernel language. `triton.language` is
patched while one runs, and restored afterwards.
"""

import ast
import functools
import inspect
import math
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import triton.language as tl

from convref.errors import message

from ..plan.launch import is_group, map_arguments
from .fixes import index_of, loop, reduction
from .operators import Operators
from .programs import one_program_at_a_time, uniform_value
from .triton_internals import (
    JITTED,
    LANGUAGE,
    TritonSemantic,
    cached_types,
    fast_paths,
    language_patches,
)

_LANGUAGES = (tl, tl.core, tl.math, tl.standard, tl.random, tl.core.tensor)
_MISSING = object()


class _Rewriter(ast.NodeTransformer):
    """Rewrite assignments, conditions and `and` to have the compiler's semantics."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = _call("_as_tensor", self.visit(node.value))
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._with_test(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._with_test(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._with_test(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return self._with_test(node)

    def _with_test(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.test = _call("_truth", node.test)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call("_negation", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "_all" if isinstance(node.op, ast.And) else "_any"
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return _call(name, *(ast.Lambda(args=nothing, body=value) for value in node.values))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) > 1:
            raise SyntaxError(
                message(f"line {node.lineno}", "a < b < c cannot compile, needs (a < b) & (b < c)")
            )
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=list(arguments), keywords=[])


def _truth(value: Any) -> bool:
    if not isinstance(value, tl.tensor):
        return bool(value)
    if math.prod(map(int, value.shape)) != 1:
        raise TypeError(message("if", f"the condition is a block {value.shape}, needs a scalar"))
    return bool(uniform_value(value.handle.data != 0))


def _negation(value: Any) -> Any:
    return value.__not__() if isinstance(value, tl.tensor) else not value


def _all(*values: Callable[[], Any]) -> Any:
    return _chain(values, "logical_and", stop=False)


def _any(*values: Callable[[], Any]) -> Any:
    return _chain(values, "logical_or", stop=True)


def _chain(values: tuple[Callable[[], Any], ...], method: str, stop: bool) -> Any:
    """Combine values: Python values short-circuit or drop out, all tensors are evaluated."""
    tensors = []
    for evaluate in values:
        value = evaluate()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is stop:
            return value
    if not tensors:
        return value
    result = tensors[-1]
    for tensor in reversed(tensors[:-1]):
        result = getattr(tensor, method)(result)
    return result


class PythonFunctions:
    """The Python functions of all kernels interpreted so far, bound to one builder.

    `patches` are more replacements of names in `triton.language` while functions run.
    """

    def __init__(self, builder: Any, patches: dict[str, Any]) -> None:
        self._lock = threading.RLock()
        self._functions: dict[Any, Any] = {}
        self._bodies: dict[Any, tuple[Any, dict[str, Any]]] = {}
        self._fresh: set[Any] = set()  # functions whose global names are up to date
        self.semantic = TritonSemantic(builder)
        self._names = {
            "range": loop,
            "_as_tensor": self._as_tensor,
            **{f.__name__: f for f in (_truth, _negation, _all, _any)},
        }
        own = {"range": loop, "reduce": reduction(self.semantic), **patches}
        theirs = language_patches(builder, self.semantic) | cached_types() | fast_paths()
        tensor = tl.core.tensor
        named = {name: value for (owner, name), value in theirs.items() if owner is tensor}
        ours = Operators(builder, named).methods()
        theirs |= {(tensor, name): method for name, method in ours.items()}
        scan = one_program_at_a_time(builder, theirs[tl.core, "associative_scan"])
        self._patches = self._all_patches(theirs, own | {"associative_scan": scan})

    def _all_patches(
        self, places: dict[tuple[Any, str], Any], own: dict[str, Any]
    ) -> list[tuple[Any, str, Any, Any]]:
        for owner in _LANGUAGES:
            for name, value in vars(owner).items():
                if isinstance(value, JITTED):
                    places[owner, name] = self.of(value)
        for owner in (tl, tl.core):
            places.update({(owner, name): value for name, value in own.items()})
        for name in ("reduce", "associative_scan"):
            places[tl.core.tensor, name] = places[tl.core, name]
        places[tl.core.tensor, "__index__"] = index_of
        places[tl.core.tensor, "T"] = property(lambda tensor: self.semantic.permute(tensor, (1, 0)))
        places.pop((tl.core.tensor, "__bool__"), None)  # library code tests for presence
        self._names.update(min=places[tl.core, "builtin_min"], max=places[tl.core, "builtin_max"])
        return [(o, n, vars(o).get(n, _MISSING), value) for (o, n), value in places.items()]

    @contextmanager
    def language(self) -> Iterator[None]:
        """Patch `triton.language` while functions run; one thread at a time."""
        with self._lock:
            for owner, name, _, value in self._patches:
                setattr(owner, name, value)
            try:
                yield
            finally:
                for owner, name, before, _ in self._patches:
                    if before is _MISSING:
                        delattr(owner, name)
                    else:
                        setattr(owner, name, before)

    def of(self, jitted: Any) -> Any:
        function = jitted.fn
        if function not in self._functions:

            def python_function(*args: Any, **kwargs: Any) -> Any:
                return self._compiled(function)(*args, **kwargs)

            python_function.__name__ = function.__name__
            python_function.fn = python_function  # Triton's scans call `combine_fn.fn`
            python_function.original = function
            self._functions[function] = python_function
        return self._functions[function]

    def refresh(self) -> None:
        """Let functions look up global names again: a helper may have been replaced since."""
        self._fresh = {f for f in self._fresh if f.__module__.startswith(LANGUAGE)}

    def _look_up(self, body: Any, function: Any, outer: dict[str, Any]) -> None:
        for name in _global_names(function.__code__) & outer.keys():
            body.__globals__[name] = self.interpreted(outer[name])
        self._fresh.add(function)

    def interpreted(self, value: Any) -> Any:
        """Return the replacement of a kernel's global value or constant in its Python function."""
        if isinstance(value, JITTED):
            return self.of(value)
        if isinstance(value, types.ModuleType) and not value.__name__.startswith(LANGUAGE):
            return _Module(self, value)
        if is_group(value):
            return map_arguments(self.interpreted, value)
        return value

    def _as_tensor(self, value: Any) -> Any:
        return self.semantic.to_tensor(value) if isinstance(value, int | float) else value

    def _compiled(self, function: Any) -> Any:
        if function not in self._bodies:
            closure = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
            body = _recompiled(function, {**function.__globals__, **closure})
            names = {n: v for n, v in self._names.items() if n not in function.__globals__}
            body.__globals__.update(names)
            outer = function.__globals__ if not function.__closure__ else body.__globals__.copy()
            self._bodies[function] = body, outer
        body, outer = self._bodies[function]
        if function not in self._fresh:
            self._look_up(body, function, outer)
        return body


class _Module:
    """A module whose jitted functions are replaced by Python functions."""

    def __init__(self, functions: PythonFunctions, module: types.ModuleType) -> None:
        self._functions, self._module = functions, module

    def __getattr__(self, name: str) -> Any:
        return self._functions.interpreted(getattr(self._module, name))


@functools.cache
def _global_names(code: types.CodeType) -> set[str]:
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names) | set(code.co_freevars) | {n for c in inner for n in _global_names(c)}


def _recompiled(function: Any, names: dict[str, Any]) -> Any:
    """Return `function` compiled from its rewritten source, with `names` as its globals."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    (node,) = tree.body
    assert isinstance(node, ast.FunctionDef)
    node.decorator_list, node.returns = [], None
    for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
        argument.annotation = None
    node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
    node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
    ast.increment_lineno(tree, first - 1)
    tree = ast.fix_missing_locations(_Rewriter().visit(tree))
    scope: dict[str, Any] = {}
    exec(compile(tree, function.__code__.co_filename, "exec", dont_inherit=True), names, scope)
    body = scope[function.__name__]
    body.__defaults__, body.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return body
