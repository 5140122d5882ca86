"""Every public function by name, and every definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import activation, adaptive, conv, norm, pool, resize, unfold

FAMILIES = (conv, unfold, pool, adaptive, resize, norm, activation)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function for family in FAMILIES for name, function in family.FUNCTIONS.items()
}
DEFINITIONS = tuple(
    definition for family in FAMILIES for definition in getattr(family, "DEFINITIONS", ())
)
