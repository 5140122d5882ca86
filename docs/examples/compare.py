"""A model on convref beside the same model on torch.nn: each layer held to the oracle, both ways.

Errors of a deep network grow from layer to layer, and no useful bound of the whole is known. So
both models' layers are run alone, on the inputs and cotangents that the whole run brings to them,
and the judge says for each result whether rounding explains how far it is from the oracle's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from convref import dispatch
from convref.integrations.torch import convert
from convref.integrations.torch.recording import Calls, Seen
from convref.judge import bound

GRADIENTS = {"weight": "dw", "bias": "db"}


@dataclass
class Visit:
    """One call of a layer during a run: what came in, and the cotangent that came back."""

    name: str
    ours: nn.Module
    theirs: nn.Module
    inputs: tuple[Tensor, ...]
    dy: Tensor | None = None


@dataclass(frozen=True)
class Row:
    """One pass of one layer: errors of both as fractions of their bounds, and are they the same?

    `loss` is how far the errors that the bound allows can move the loss, to first order.
    """

    name: str
    line: str
    backend: str
    ours: float
    theirs: float
    same: bool
    loss: float


def visits(ours: nn.Module, theirs: nn.Module, run: Callable[[nn.Module], Any]) -> list[Visit]:
    """Return every call of a layer of ours that is not torch.nn's, during `run(ours)`."""
    found: list[Visit] = []
    hooks = []

    def watch(name: str, mine: nn.Module, its: nn.Module) -> None:
        def hook(_: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            visit = Visit(name, mine, its, tuple(t.detach() for t in inputs))
            found.append(visit)
            output.register_hook(lambda dy: setattr(visit, "dy", dy.detach()))

        hooks.append(mine.register_forward_hook(hook))

    for (name, mine), its in zip(ours.named_modules(), theirs.modules(), strict=True):
        if type(mine) is not type(its):
            watch(name, mine, its)
    run(ours)
    for one in hooks:
        one.remove()
    return found


def first_of_each(found: Sequence[Visit]) -> list[Visit]:
    """Return the first call of each kind of layer on each size of input."""
    kinds = {(str(one.ours), *(t.shape for t in one.inputs)): one for one in reversed(found)}
    return list(reversed(kinds.values()))


def alone(layer: nn.Module, visit: Visit) -> dict[str, Tensor]:
    """Return y, dx, dw and db of one layer; a copy of it, for its statistics change."""
    layer = deepcopy(layer)
    x, *rest = visit.inputs
    x = x.clone().requires_grad_()
    y = layer(x, *rest)
    named = {"dx": x} | {GRADIENTS[name]: p for name, p in layer.named_parameters()}
    return {"y": y, **dict(zip(named, torch.autograd.grad(y, list(named.values()), visit.dy)))}


def rows(found: Sequence[Visit]) -> Iterator[Row]:
    """Yield a row for each pass of each layer; raise AssertionError where a result is wrong."""
    for visit in found:
        with Calls() as calls:
            alone(visit.ours, visit)
        other = alone(visit.theirs, visit)
        for seen in calls.seen:
            yield _row(visit, seen, other)


def _row(visit: Visit, seen: Seen, other: dict[str, Tensor]) -> Row:
    roles = seen.call.signature.results
    given = {role: tensor.detach().numpy() for role, tensor in other.items()}
    theirs = tuple(
        given[role].reshape(mine.shape) if mine is not None and role in given else mine
        for role, mine in zip(roles, seen.results)
    )
    if dispatch.load("torch").supports(seen.call):
        theirs = seen.results  # PyTorch's own result is known to be inexact: not judged
    verdicts = seen.verdict(), seen.verdict(theirs, "torch")
    for who, verdict in zip(("convref", "torch.nn"), verdicts):
        assert verdict, f"{visit.name} of {who}: {verdict.reason}\n  {seen.call}"
    same = all(a is None or bool((a == b).all()) for a, b in zip(seen.results, theirs))
    first, second = (verdict.worst for verdict in verdicts)
    return Row(visit.name, str(seen.call), seen.backend, first, second, same, _moved(visit, seen))


def _moved(visit: Visit, seen: Seen) -> float:
    """Return the sum of |dy| B over the elements of y, each of which may be off by B."""
    sums = seen.reference.sums[0]
    if seen.call.pass_ != "fprop" or sums is None:  # copies are exact
        return 0.0
    numerics = dispatch.load(seen.backend).numerics(seen.call)
    value, largest = seen.reference.values[0], seen.reference.largest
    allowed = bound(seen.call, "y", value, sums, numerics, largest)
    return float((visit.dy.abs().numpy().reshape(allowed.shape) * allowed).sum())


def backward(model: nn.Module, x: Tensor) -> None:
    """Run a model and its derivatives from random cotangents, the same ones for each model."""
    y = model(x)
    outputs = y if isinstance(y, list) else [y]
    made = torch.Generator().manual_seed(1)
    torch.autograd.backward(
        outputs, [torch.randn(one.shape, generator=made, dtype=one.dtype) for one in outputs]
    )


def distance(ours: nn.Module, theirs: nn.Module) -> float:
    """Return how far the gradients by all parameters are apart, as a fraction of their length."""
    a, b = (torch.cat([p.grad.flatten() for p in one.parameters()]) for one in (ours, theirs))
    return float((a - b).norm() / b.norm())


def beside(
    model: nn.Module, x: Tensor, backend: str, console: Console, once: bool = False
) -> tuple[list[Row], float]:
    """Return the rows of a model that `convert` changed, and how far both are apart in the end."""
    theirs, ours = model, deepcopy(model)
    report = convert(ours, backend)
    found = visits(ours, theirs, lambda one: backward(one, x))
    backward(theirs, x)
    found = first_of_each(found) if once else found
    console.print(f"{len(report.changed)} layers by {backend}, {len(found)} calls", markup=False)
    with Progress(console=console, transient=True) as progress:
        checked = list(progress.track(rows(found), total=2 * len(found), description="the judge"))
    return checked, distance(ours, theirs)


def plot(checked: Sequence[Row], path: Path, title: str) -> None:
    """Draw the errors of all passes, in the order of the run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot(yscale="log", xlabel="pass", ylabel="error / bound", title=title)
    for name, marker, values in (
        ("convref", ".", [row.ours for row in checked]),
        ("torch.nn", "x", [row.theirs for row in checked]),
    ):
        axes.plot([value or None for value in values], marker, label=name, markersize=4)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.legend()
    figure.savefig(path)


def main(make: Callable[[], nn.Module], text: str, argv: Sequence[str] | None = None) -> list[Row]:
    """Compare a network on random images and write the figure; the command line of an example."""
    parser = argparse.ArgumentParser(description=text.partition("\n")[0])
    parser.add_argument("--size", type=int, default=64, help="height and width of the images")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--backend", default="numpy", help="by default the oracle itself")
    parser.add_argument("--once", action="store_true", help="judge layers that are alike once")
    parser.add_argument("--out", type=Path, help="folder for layers.svg")
    given = parser.parse_args(argv)
    console = Console(highlight=False)
    torch.manual_seed(0)
    x = torch.randn(given.batch, 3, given.size, given.size, dtype=torch.float64)
    checked, apart = beside(make().double(), x, given.backend, console, given.once)
    worst = max(checked, key=lambda row: max(row.ours, row.theirs))
    reached = max(worst.ours, worst.theirs)
    console.print(f"{len(checked)} passes within their bounds; nearest to it, at {reached:.3f}:")
    console.print(f"  {worst.name}: {worst.line}", markup=False, soft_wrap=True)
    console.print(f"{sum(row.same for row in checked)} are torch.nn's bit for bit")
    console.print(f"the gradients of the whole networks are {apart:.1e} of their length apart")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        plot(checked, given.out / "layers.svg", make.__name__)
    return checked
