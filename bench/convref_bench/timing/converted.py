"""What `convert` costs on the CPU: networks of torch.nn and converted, in one process.

Both sides call the same kernels; their first results must be equal. Samples are taken in turns, on
the clock of the thread, which stops while another process runs; the figure is the median of the
ratios of neighbouring samples, so that whatever slows both sides cancels.
"""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from statistics import median, quantiles
from typing import Any

import torch

from convref.errors import invalid, needs_one

from .. import options
from .training import NETWORKS, network

MARK = 0.98  # of torch.nn's images a second
MODES = {"inference": False, "training": True}


def work(model: torch.nn.Module, images: torch.Tensor, training: bool) -> Callable[[], Any]:
    """Return what computes the outputs, after a step of SGD in training."""
    model.train(training)
    descent = torch.optim.SGD(model.parameters(), lr=1e-4)

    def run() -> tuple[torch.Tensor, ...]:
        with torch.set_grad_enabled(training):
            found = model(images)
            outputs = (found,) if isinstance(found, torch.Tensor) else tuple(found)
            if training:
                descent.zero_grad()
                torch.stack([y.square().mean() for y in outputs]).sum().backward()
                descent.step()
        return outputs

    return run


def pairs(
    sides: tuple[Callable[[], Any], Callable[[], Any]], seconds: float
) -> Iterator[tuple[float, float]]:
    """Yield the times of both sides in seconds, in the order A B, B A, A B, ..."""
    end, order = time.monotonic() + seconds, [0, 1]
    while True:
        took = [0.0, 0.0]
        for side in order:
            start = time.thread_time()
            sides[side]()
            took[side] = time.thread_time() - start
        yield took[0], took[1]
        order.reverse()
        if time.monotonic() > end:
            return


def row(name: str, mode: str, size: int, batch: int, seconds: float, compiler: str) -> list[str]:
    """Return a row of the table: images a second of torch.nn, and the ratios to them."""
    from convref.integrations.torch import convert

    torch.manual_seed(0)
    plain, images = network(name)(), torch.randn(batch, 3, size, size)
    ours = deepcopy(plain)
    convert(ours)
    models = [torch.compile(m, backend=compiler) if compiler else m for m in (plain, ours)]
    sides = work(models[0], images, MODES[mode]), work(models[1], images, MODES[mode])
    if not (compiler or all(map(torch.equal, sides[0](), sides[1]()))):
        raise invalid("bench", f"{name} converted computes other results")
    for _ in range(2):
        next(pairs(sides, 0.0))
    found = [*pairs(sides, seconds)]
    ratios = [a / b for a, b in found]
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    rate = batch / median(a for a, _ in found)
    spread = f"{low:.3f} to {high:.3f}"
    return [name, mode, f"{rate:.1f}", f"{middle:.3f}", spread, str(len(found))]


def main(
    *,
    network: str = ",".join(NETWORKS),
    size: int = 64,
    batch: int = 2,
    seconds: float = 10.0,
    compiler: str = "",
) -> None:
    """Time networks of torch.nn and converted, on one thread of the CPU.

    --seconds is the duration of each row, --compiler a backend of torch.compile, as inductor.
    """
    from convref.cli.output import print_table

    chosen = options.words(network)
    if unknown := sorted({*chosen} - {*NETWORKS}):
        raise invalid("bench", f"network is {unknown[0]!r}, {needs_one(unknown[0], NETWORKS)}")
    torch.set_num_threads(1)
    rows = [row(n, mode, size, batch, seconds, compiler) for n in chosen for mode in MODES]
    title = f"{compiler or 'eager'}, {batch} images of {size} x {size}; mark: {MARK}"
    heads = ["network", "mode", "torch.nn, images/s", "convref", "quartiles", "samples"]
    print_table(heads, rows, title)
