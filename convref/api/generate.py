"""Functions from text: the public names with their own signatures and docstrings.

A function that forwards ``*args`` would need `inspect.Signature.bind` at each call, and its errors
would name another function. So the source of each is written and executed once, as dataclasses do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature
from itertools import groupby
from typing import Any

from .docs import COMMON, Entries, docstring

POSITIONAL, KEYWORD = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
BACKEND = Parameter("backend", KEYWORD, default="auto", annotation="str")
DTYPE = Parameter("dtype", KEYWORD, default=None, annotation="Any")
LAYOUT = Parameter("layout", KEYWORD, default=None, annotation="str | None")
ANNOTATIONS = {
    **dict.fromkeys(("transposed", "flip", "training"), "bool"),
    **dict.fromkeys(("math", "backend"), "str"),
    **{"weight_layout": "str | None", "groups": "int", "num_batches_tracked": "int | None"},
    **{"eps": "float", "momentum": "float | None"},
}


def function(
    name: str,
    parameters: Sequence[Parameter],
    call: str,
    body: Callable[..., Any],
    *,
    doc: str,
    returns: str,
    module: dict[str, Any],
) -> Callable[..., Any]:
    """Return a function of these parameters that returns ``body(<call>)``.

    `call` is the arguments of `body` as text, `returns` an annotation; parameters with a default
    come after those without. `module` is the globals of the module that the function belongs to.
    """
    listed = []
    for kind, several in groupby(parameters, lambda p: p.kind):
        listed += ["*"] if kind is KEYWORD else []
        listed += [f"{p.name}{'' if p.default is p.empty else '=None'}" for p in several]
    text = f"def make(body):\n  def {name}({', '.join(listed)}):\n    return body({call})\n"
    made: dict[str, Any] = {}
    exec(compile(f"{text}  return {name}", f"<convref.{name}>", "exec"), module, made)
    found: Any = made["make"](body)
    defaults = [p for p in parameters if p.default is not p.empty]
    found.__defaults__ = tuple(p.default for p in defaults if p.kind is POSITIONAL)
    found.__kwdefaults__ = {p.name: p.default for p in defaults if p.kind is KEYWORD}
    found.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": returns}
    found.__qualname__, found.__doc__ = name, doc
    return found


def parameters(text: str) -> list[Parameter]:
    """Return the parameters that a signature, written as text, has."""
    made = eval(f"lambda {text}: None")  # the text is this package's own
    found = []
    for p in signature(made).parameters.values():
        annotation = "str | None" if p.default is None else "str"
        annotation = ANNOTATIONS.get(p.name, annotation if p.name == "layout" else "Any")
        found.append(p.replace(annotation=annotation))
    return found


def documented(*functions: Callable[..., Any], known: Entries = COMMON) -> list[Any]:
    """Return functions that are written by hand, their docstrings completed."""
    for made in functions:
        listed = signature(made).parameters.values()
        made.__doc__ = docstring(made.__doc__ or "", made.__name__, listed, known=known)
    return [*functions]


def names(functions: Iterable[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return functions by name."""
    return {made.__name__: made for made in functions}
