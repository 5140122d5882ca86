"""Functions from text: the public names with their own signatures and docstrings.

A function that forwards ``*args`` would need `inspect.Signature.bind` at each call, and its errors
would name another function. So the source of each is written and executed once, as dataclasses do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from inspect import Parameter, cleandoc, getdoc, signature
from itertools import groupby
from typing import Any

from ..ops import FILTER_AXES, OUTPUT_AXES, RANKS

POSITIONAL, KEYWORD = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
BACKEND = Parameter("backend", KEYWORD, default="auto", annotation="str")
LAYOUT = Parameter("layout", KEYWORD, default=None, annotation="str | None")


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

    Parameters
    ----------
    name : str
    parameters : sequence of Parameter
        Those with a default after those without one.
    call : str
        The arguments of `body`, as text that names the parameters.
    body : callable
    doc, returns : str
        Docstring and annotation of what is returned.
    module : dict
        Globals of the module that the function belongs to.
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


def ranked(*templates: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return ``template(rank, ...)`` for ranks 1, 2 and 3 as functions of their own, by name.

    The name of a template has ``Nd`` in it; its docstring and the default of its `layout` are
    those of rank 2.
    """
    return names(_of_rank(template, rank) for template in templates for rank in RANKS)


def _of_rank(template: Any, rank: int) -> Callable[..., Any]:
    name = template.__name__.strip("_").replace("Nd", f"{rank}d")
    parameters = [
        p.replace(default=p.default.replace("HW", RANKS[rank])) if p.name == "layout" else p
        for p in list(signature(template).parameters.values())[1:]
    ]
    given = (p.name if p.kind is POSITIONAL else f"{p.name}={p.name}" for p in parameters)
    return function(
        name,
        parameters,
        f"{rank}, {', '.join(given)}",
        template,
        doc=docstring(getdoc(template) or "", name, rank),
        returns=template.__annotations__["return"],
        module=template.__globals__,
    )


# Words of a docstring that depend on the rank, for rank 2.
_SIZES = {"H, W": RANKS, "P, Q": OUTPUT_AXES, "R, S": FILTER_AXES}
_LAYOUTS = {"NCHW": "NC{}", "NHWC": "N{}C", "OIHW": "OI{}", "HWIO": "{}IO", "HWOI": "{}OI"}


def examples(text: str) -> Callable[[Any], Any]:
    """Return the decorator that adds examples to a docstring."""

    def decorate(template: Any) -> Any:
        prose = cleandoc(template.__doc__ or "")
        template.__doc__ = f"{prose}\n\nExamples\n--------\n{cleandoc(text)}\n"
        return template

    return decorate


_RAISES = """\
Raises
------
ConvrefError
    If an argument is wrong; the text names it, what it is and what it needs.
UnsupportedError
    If the named backend cannot do this call; with its reason.

"""


def docstring(text: str, name: str, rank: int) -> str:
    """Return the docstring of the function `name` from that of rank 2.

    Of the examples, it keeps those that call the function, or all if none does.
    """
    prose, heading, shown = text.partition("Examples\n--------\n")
    if "Returns\n-------\n" in prose:
        start, notes, end = f"{prose.rstrip()}\n\n".partition("Notes\n-----\n")
        prose = f"{start}{_RAISES}{notes}{end}"
    if rank not in (0, 2):
        for words, others in _words(rank):
            prose = prose.replace(words, others)
        prose = re.sub(r"(?<![A-Z0-9])2d\b", f"{rank}d", prose)
    blocks = shown.strip("\n").split("\n\n") if shown else []
    own = [block for block in blocks if f"{name}(" in block]
    body = "\n\n".join(own or blocks)
    return f"{prose}{heading}{body}\n" if body else f"{prose.rstrip()}\n"


@cache
def _words(rank: int) -> list[tuple[str, str]]:
    """Return pairs of words that depend on the rank: for rank 2, and for this one."""
    last = "," if rank == 1 else ""
    ints, pairs = ", ".join(["int"] * rank), ", ".join(["(lo, hi)"] * rank)
    return [
        *((form, ", ".join(letters[rank])) for form, letters in _SIZES.items()),
        *((form, blank.format(RANKS[rank])) for form, blank in _LAYOUTS.items()),
        ("((lo, hi), (lo, hi))", f"({pairs}{last})"),
        ("(int, int)", f"({ints}{last})"),
    ]


def names(functions: Iterable[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return functions by name."""
    return {made.__name__: made for made in functions}
