"""The table of rules, by operation."""

from collections.abc import Callable
from typing import Any

import torch

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
aten = torch.ops.aten


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule for operations of ATen that exist in this version of PyTorch."""

    def enter(function: Rule) -> Rule:
        RULES.update({getattr(aten, name): function for name in names if hasattr(aten, name)})
        return function

    return enter
