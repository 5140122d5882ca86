"""What a call from PyTorch costs the host beside torch's own.

Operands are so small that little is left but the way to the kernel, which on the CPU is ATen's for
both. Rows are the best of many short runs, taken in turns.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import torch

MARK_US = 15.0  # of a convolution without gradient
OURS, THEIRS = "convref", "torch"

Work = Callable[[], Any]


def works(grad: bool) -> dict[str, dict[str, Work]]:
    """Return the calls to time by name, each by both; with gradient, forward and both ways."""
    from convref.integrations.torch import functional

    sides = {OURS: functional, THEIRS: torch.nn.functional}
    x = torch.randn(1, 4, 6, 6, requires_grad=grad)
    w, b = torch.randn(4, 4, 3, 3, requires_grad=grad), torch.randn(4, requires_grad=grad)
    mean, var = torch.zeros(4), torch.ones(4)
    forward = {
        "conv2d": lambda F: F.conv2d(x, w, b, padding=1),
        "max_pool2d": lambda F: F.max_pool2d(x, 2),
        "batch_norm": lambda F: F.batch_norm(x, mean, var, b, b),
        "silu": lambda F: F.silu(x),
    }
    made: dict[str, dict[str, Work]] = {}
    for name, call in forward.items():
        kept = "recorded" if grad else "alone"
        made[f"{name}, {kept}"] = {
            side: lambda call=call, F=F: call(F) for side, F in sides.items()
        }
        if grad:
            leaves = (x, w, b) if name == "conv2d" else (x,)
            made[f"{name}, forward and backward"] = {
                side: lambda call=call, F=F, leaves=leaves: torch.autograd.grad(
                    call(F).sum(), leaves
                )
                for side, F in sides.items()
            }
    return made


def measured(repeat: int = 300, number: int = 100) -> dict[str, dict[str, float]]:
    """Return the cost of each call in us, by name and side."""
    found = {}
    for name, sides in {**works(False), **works(True)}.items():
        best = dict.fromkeys(sides, float("inf"))
        for work in sides.values():
            work()
        for _ in range(repeat):
            for side, work in sides.items():
                best[side] = min(best[side], timeit.timeit(work, number=number) / number * 1e6)
        found[name] = best
    return found


def main() -> None:
    """Print the table."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    torch.set_num_threads(1)
    table = Table(title=f"us a call; mark: conv2d alone costs {MARK_US:.0f} more", box=SIMPLE)
    for column in ("call", THEIRS, OURS, "more"):
        table.add_column(column, justify="left" if column == "call" else "right")
    for name, best in measured().items():
        ours, theirs = best[OURS], best[THEIRS]
        table.add_row(name, f"{theirs:.2f}", f"{ours:.2f}", f"{ours - theirs:.2f}")
    Console().print(table)
