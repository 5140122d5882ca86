"""The host cost of a call from PyTorch, compared with torch's own call.

Operands are so small that host overhead dominates; on the CPU both sides call the same ATen
kernel. A row is the best of many short runs, taken in turns.
"""

from functools import partial
from math import inf

import torch

from .cpu import Cpu
from .measure import Stop, Work, measure

MARK_US = 15.0  # of a convolution without gradient
STOP = Stop(samples=300, noise=inf, timeout_s=inf, batch_s=1e-3)
OURS, THEIRS = "convref", "torch"


def works(grad: bool) -> dict[str, dict[str, Work]]:
    """Return the calls to time by name and side; with gradients, forward and both directions."""
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
    found: dict[str, dict[str, Work]] = {}
    for name, call in forward.items():
        leaves = (x, w, b) if name == "conv2d" else (x,)
        for side, F in sides.items():
            run = partial(call, F)
            found.setdefault(f"{name}, {'recorded' if grad else 'alone'}", {})[side] = run
            if grad:
                both = partial(_gradient, run, leaves)
                found.setdefault(f"{name}, forward and backward", {})[side] = both
    return found


def _gradient(run: Work, leaves: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(run().sum(), leaves)


def measured(stop: Stop = STOP) -> dict[str, dict[str, float]]:
    """Return the cost of each call in us, by name and side."""
    timed = {
        name: measure(sides, Cpu(0.0), stop)
        for name, sides in {**works(False), **works(True)}.items()
    }
    return {
        name: {side: 1e3 * timing.low_ms for side, timing in sides.items()}
        for name, sides in timed.items()
    }


def main() -> None:
    from convref.cli.output import print_table

    torch.set_num_threads(1)
    rows = [
        [name, f"{best[THEIRS]:.2f}", f"{best[OURS]:.2f}", f"{best[OURS] - best[THEIRS]:.2f}"]
        for name, best in measured().items()
    ]
    title = f"us a call; mark: conv2d alone costs {MARK_US:.0f} more"
    print_table(["call", THEIRS, OURS, "more"], rows, title)
