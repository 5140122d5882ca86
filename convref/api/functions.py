"""Every public function by name, and every definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import activation, conv, norm, pool, resize, unfold

FAMILIES = (conv, unfold, pool, resize, norm, activation)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function for family in FAMILIES for name, function in family.FUNCTIONS.items()
}
DEFINITIONS = (*pool.DEFINITIONS, *resize.DEFINITIONS, *norm.DEFINITIONS, *activation.DEFINITIONS)
