"""YOLO11n in PyTensor: the network of yolo11n_layers.py with the weights of yolo11n.py.

    python docs/examples/yolo11n_pytensor.py --mode JAX --steps 30

The images are rectangles on noise: the colour is the class. Each pass of the gradient, forward and
backward, is judged on the operands that reach it in the compiled function. The outputs and all
gradients are compared with those of the torch module. Then the network trains.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import torch
from pytensor.graph.traversal import applys_between
from torch import nn
from torch.nn import functional
from yolo11n import YOLO11n
from yolo11n_layers import Parameters, yolo11n

from convref import dispatch
from convref.integrations import pytensor as cp
from convref.judge import judge

CLASSES, BINS, STRIDES = 3, 16, (8, 16, 32)


def examples(batch: int, size: int, dtype: str, seed: int = 0) -> tuple[Any, list[Any]]:
    """Return images with a rectangle each, and for each map the labels and the box's sides.

    A map's target is (labels, sides), (N, classes, H, W) and (N, 4, bins, H, W). In the cell of a
    rectangle's centre, the distance to each side is a mean of two bins; elsewhere all are zero.
    """
    draws = np.random.default_rng(seed)
    images = draws.normal(0, 0.1, (batch, 3, size, size)).astype(dtype)
    maps = [
        [np.zeros((batch, *a, size // s, size // s), dtype) for a in ((CLASSES,), (4, BINS))]
        for s in STRIDES
    ]
    for n in range(batch):
        side, label = draws.uniform(size / 4, size / 2, 2), draws.integers(CLASSES)
        low = draws.uniform(0, size - side)
        (top, left), (bottom, right) = low.astype(int), (low + side).astype(int)
        images[n, label, top:bottom, left:right] += 1
        level = int(side.max() > size / 3)
        labels, sides = maps[level]
        i, j = cell = tuple(((low + side / 2) // STRIDES[level]).astype(int))
        labels[n, label, i, j] = 1
        centre = (np.array(cell) + 0.5) * STRIDES[level]
        for k, distance in enumerate((*(centre - low), *(low + side - centre))):
            least, rest = divmod(float(np.clip(distance / STRIDES[level], 0, BINS - 1.01)), 1)
            sides[n, k, int(least) : int(least) + 2, i, j] = 1 - rest, rest
    return images, maps


def detection_loss(found: Sequence[Any], maps: Sequence[Any], library: Any = cp) -> Any:
    """Return the loss per image: of the labels in all cells, of the sides where a centre is."""
    terms = []
    for y, (labels, sides) in zip(found, maps, strict=True):
        logits, boxes = y[:, 4 * BINS :], y[:, : 4 * BINS].reshape(sides.shape)
        terms.append((library.softplus(logits) - labels * logits).sum())
        terms.append(-(sides * library.log_softmax(boxes, 2)).sum())
    return sum(terms) / np.float32(len(maps[0][0]))


class Detector:
    """YOLO11n as a graph on images of one shape, its detection loss, and the loss's gradients."""

    def __init__(self, images: Any, maps: Sequence[Any], backend: str = "auto") -> None:
        torch.manual_seed(0)
        self.model = YOLO11n(CLASSES).to(getattr(torch, str(images.dtype)))
        self.x = pt.tensor("x", dtype=str(images.dtype), shape=images.shape)
        arrays = {name: t.numpy().copy() for name, t in self.model.state_dict().items()}
        self.net = Parameters(arrays, backend)
        self.weights = {name: self.net[name] for name, _ in self.model.named_parameters()}
        self.outputs = yolo11n(self.x, self.net)
        self.loss = detection_loss(self.outputs, maps)
        self.gradients = pytensor.grad(self.loss, list(self.weights.values()))

    def step(self, mode: str, rate: float) -> Any:
        """Return the function that takes a step of descent on images, and returns the loss."""
        of = zip(self.weights.values(), self.gradients)
        updates = [(w, w - np.float32(rate) * g) for w, g in of]
        return pytensor.function([self.x], self.loss, updates=updates + self.net.updates, mode=mode)


def judged(outputs: Sequence[Any], x: Any, image: Any, mode: str) -> tuple[int, list[Any]]:
    """Return how many passes of a graph are right, and the outputs; raise where one is wrong."""
    nodes = [n for n in applys_between([x], outputs) if isinstance(n.op, cp.ConvrefOp)]
    passes = (v for n in nodes for v in (*n.inputs, *n.outputs))
    variables = list(dict.fromkeys((*outputs, *passes)))
    values = pytensor.function([x], variables, mode=mode)(image)
    named = dict(zip(variables, map(np.asarray, values), strict=True))
    for node in nodes:
        op, inputs = node.op, [named[v] for v in node.inputs]
        call = (prepared := op.prepared(*inputs)).call
        given = dict(zip(op.roles, inputs))
        found = dict(zip(op.wanted, (named[v] for v in node.outputs)))
        plan = dispatch.plan(call, "auto", "jax" if mode == "JAX" else "numpy")
        operands = [prepared.operand(r, given.get(r)) for r in call.roles]
        results = [
            prepared.operand(r, found[r]) if r in call.wanted else None
            for r in call.signature.results
        ]
        verdict = judge(call, operands, results, plan.backend.numerics(call))
        assert verdict, f"{op}: {verdict.reason}\n  {call}"
    return len(nodes), [named[v] for v in outputs]


def distance(
    found: Sequence[Any], model: nn.Module, names: Sequence[str], images: Any, maps: Any
) -> float:
    """Return how far outputs, loss and gradients are from torch's, in distances of its float32.

    The distance of each array is its largest difference from the results of torch in float64.
    """
    results = []
    for dtype in (torch.float64, torch.float32):
        network = copy.deepcopy(model).to(dtype)
        outputs = network(torch.from_numpy(images).to(dtype))
        targets = [[torch.from_numpy(a).to(dtype) for a in pair] for pair in maps]
        loss = detection_loss(outputs, targets, functional)
        gradients = torch.autograd.grad(loss, [network.get_parameter(name) for name in names])
        results.append([t.detach().double().numpy() for t in (*outputs, loss, *gradients)])
    each = zip(found, *results, strict=True)
    return max(float(np.abs(a - e).max() / np.abs(c - e).max()) for a, e, c in each)


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Judge the gradient, then train; the losses of the steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mode", default="CVM", help="CVM (the default), JAX, or another linker")
    parser.add_argument("--size", type=int, default=64, help="height and width of the images")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--backend", default="auto", help="of convolutions, pools and norms")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--unjudged", action="store_true", help="train alone")
    given = parser.parse_args(argv)
    images, maps = examples(given.batch, given.size, given.dtype)
    net = Detector(images, maps, given.backend)
    if not given.unjudged:
        wanted = [*net.outputs, net.loss, *net.gradients]
        count, results = judged(wanted, net.x, images, given.mode)
        print(f"{count} passes are within their bounds")
        far = distance(results, net.model, list(net.weights), images, maps)
        print(f"outputs and gradients differ from torch's by {far:.1e} of its float32's error")
        assert given.dtype != "float64" or far < 1
    start, processor = time.perf_counter(), time.process_time()
    step = net.step(given.mode, given.rate)
    losses = [float(step(images))]
    took = time.perf_counter() - start, time.process_time() - processor
    print("compiled, with the first step, in {:.1f} s, {:.1f} s of processors".format(*took))
    start = time.perf_counter()
    losses += [float(step(images)) for _ in range(given.steps)]
    print(f"{(time.perf_counter() - start) / given.steps:.3f} s a step")
    print(f"loss {losses[0]:.3f}, after {given.steps} steps {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
