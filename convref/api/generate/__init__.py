"""Functions from text: the public names with their own signatures and docstrings.

A function that forwards ``*args`` would need `inspect.Signature.bind` at each call, and its errors
would name another function. So the source of each is written and executed once, as dataclasses do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from itertools import groupby
from typing import Any

from ...errors import ConvrefError, UnsupportedError, closest_word
from ...ops import FAMILY
from .. import __all__ as NAMES
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


# A public function. Python's own error of a wrong call would not say which argument is meant.
PUBLIC = """\
def make(body, missing, refused, renamed, errors):
  def {name}({parameters}, **others):
    if {absent}more or others:
      raise refused(({required}), more, others)
    try:
      return body({call})
    except errors as error:
      renamed(error)
      raise
  return {name}
"""
# A method of a module, whose parameters torch.fx reads from its code.
METHOD = """\
def make(body, *_):
  def {name}({parameters}):
    return body({call})
  return {name}
"""
_ERRORS = ConvrefError, UnsupportedError


def function(
    name: str,
    parameters: Sequence[Parameter],
    call: str,
    body: Callable[..., Any],
    *,
    doc: str,
    returns: str,
    module: dict[str, Any],
    source: str = PUBLIC,
) -> Callable[..., Any]:
    """Return a function of these parameters that returns ``body(<call>)``.

    `call` is the arguments of `body` as text, `returns` an annotation; parameters with a default
    come after those without. `module` is the globals of the module that the function belongs to.
    """
    form = Signature(parameters, return_annotation=returns)
    required = [p.name for p in parameters if p.default is p.empty]
    star, absent = ("*more", "=...") if source is PUBLIC else ("*", "")
    listed = []
    for kind, several in groupby(parameters, lambda p: p.kind):
        listed += [star] if kind is KEYWORD else []
        listed += [f"{p.name}{absent if p.name in required else '=...'}" for p in several]
    texts = {"name": name, "parameters": ", ".join(listed), "call": call}
    texts["absent"] = "".join(f"{n} is missing or " for n in required)
    texts["required"] = "".join(f"{n}, " for n in required)
    made: dict[str, Any] = {}
    exec(compile(source.format(**texts), f"<convref.{name}>", "exec"), module, made)
    checks = partial(_refused, form, name), partial(_renamed, name), _ERRORS
    found: Any = made["make"](body, Parameter.empty, *checks)
    defaults = [p for p in parameters if p.default is not p.empty]
    missing = (Parameter.empty,) * (len(required) if absent else 0)
    found.__defaults__ = *missing, *(p.default for p in defaults if p.kind is POSITIONAL)
    found.__kwdefaults__ = {p.name: p.default for p in defaults if p.kind is KEYWORD}
    found.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": returns}
    found.__signature__ = form
    found.__qualname__, found.__doc__ = name, doc
    return found


def _refused(
    form: Signature, name: str, given: Sequence[Any], more: Sequence[Any], others: dict[str, Any]
) -> TypeError:
    """Return the error of a call with other arguments, or without a required one."""
    known = form.parameters
    required = [p.name for p in known.values() if p.default is p.empty]
    most = sum(p.kind is POSITIONAL for p in known.values())
    if others:
        other = next(iter(others))
        meant = closest_word(other, known)
        hint = f". Did you mean {meant!r}?" if meant else ""
        what = f"got an unexpected keyword argument {other!r}{hint}"
    elif more:
        takes = f"from {len(required)} to {most}" if len(required) < most else f"{most}"
        plural = "s" * (most > 1)
        what = f"takes {takes} positional argument{plural} but {most + len(more)} were given"
    else:
        absent = [repr(n) for n, value in zip(required, given) if value is Parameter.empty]
        listed = " and ".join(filter(None, (", ".join(absent[:-1]), absent[-1])))
        plural = "s" * (len(absent) > 1)
        what = f"missing {len(absent)} required positional argument{plural}: {listed}"
    return TypeError(f"{name}() {what}")


def _renamed(name: str, error: Exception) -> None:
    """Let the text of an error begin with a function, not with the pass or part that failed."""
    where, _, what = str(error).partition(": ")
    of_op = where in NAMES or where.partition(".")[0] in FAMILY
    error.args = (f"{name}: {what}" if of_op else f"{name}: {where} {what}",)


def parameters(text: str) -> list[Parameter]:
    """Return the parameters that a signature, written as text, has."""
    made = eval(f"lambda {text}: None")  # the text is this package's own
    found = []
    for p in signature(made).parameters.values():
        annotation = "str | None" if p.default is None else "str"
        annotation = ANNOTATIONS.get(p.name, annotation if p.name == "layout" else "Any")
        found.append(p.replace(annotation=annotation))
    return found


def documented(*functions: Any, known: Entries = COMMON) -> list[Any]:
    """Return functions that are written by hand, with complete docstrings and named errors."""
    found = []
    for made in functions:
        form, name = signature(made), made.__name__
        listed = [*form.parameters.values()]
        doc = docstring(made.__doc__ or "", name, listed, known=known)
        call = ", ".join(f"{p.name}={p.name}" for p in listed)
        returns, module = form.return_annotation, made.__globals__
        found.append(function(name, listed, call, made, doc=doc, returns=returns, module=module))
    return found


def names(functions: Iterable[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return functions by name."""
    return {made.__name__: made for made in functions}
