"""The public functions: arrays in, arrays of the same kind, dtype and device out.

Each function builds a Call once, caches it by the raw shapes, strides and arguments, and passes
the arrays to the backend that `convref.dispatch` planned for it. The functions of an op come from
its definition (`convref.api.definition`); a type checker reads their signatures in `__init__.pyi`.
Importing a module of this package generates its functions, so `convref` imports it at the first use
of one of them; `convref.api.functions` lists their names.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .functions import FUNCTIONS

if TYPE_CHECKING:
    from .definition import Definition

_HOME = {name: module for module, names in FUNCTIONS.items() for name in names}
__all__ = [*_HOME]


def function(name: str) -> Callable[..., Any]:
    """Return the public function of this name."""
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def definitions() -> tuple[Definition, ...]:
    """Return every definition but that of conv, whose functions have signatures of their own."""
    modules = (import_module(f"{__name__}.{module}") for module in FUNCTIONS)
    return tuple(made for module in modules for made in getattr(module, "DEFINITIONS", ()))
