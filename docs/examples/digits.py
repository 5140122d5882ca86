"""Train a CNN on the handwritten digits of scikit-learn; convref computes every layer.

    python docs/examples/digits.py --out build/digits

1,797 images of 8 x 8, a quarter of them for the test. Two figures: the course of the training, and
the digits that were misread.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from convref.integrations.torch import nn, use_backend

Sets = tuple[Tensor, Tensor, Tensor, Tensor]  # training images, labels; test images, labels


def digits(seed: int = 0) -> Sets:
    """Return images (N, 1, 8, 8) of mean 0 and variance 1, and labels, always split alike."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit(
            "digits: scikit-learn is missing: pip install 'convref[examples]'"
        ) from None
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None]
    images = (images - images.mean()) / images.std()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    x, labels = images[order], torch.tensor(found.target)[order]
    count = len(x) // 4
    return x[count:], labels[count:], x[:count], labels[:count]


def network(width: int = 32) -> torch.nn.Sequential:
    """Return the CNN: from (N, 1, 8, 8) to logits (N, 10)."""
    layers: list[torch.nn.Module] = []
    for c, k in ((1, width), (width, width), (width, 2 * width), (2 * width, 2 * width)):
        layers += [nn.Conv2d(c, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU()]
        if c == k:
            layers.append(nn.MaxPool2d(2))
    return torch.nn.Sequential(*layers, nn.Conv2d(2 * width, 10, 2), torch.nn.Flatten())


def shifted(images: Tensor) -> Tensor:
    """Return the images moved by a pixel or none, all of a batch alike."""
    dy, dx = torch.randint(-1, 2, (2,)).tolist()
    return images.roll((dy, dx), (2, 3))


def accuracy(model: torch.nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the part of the images that are read right."""
    model.eval()
    with torch.no_grad():
        found = model(images).argmax(1)
    model.train()
    return float((found == labels).float().mean())


def train(
    model: torch.nn.Module, data: Sets, epochs: int, batch: int, console: Console
) -> list[tuple[float, float]]:
    """Train with momentum, a rate that falls to 0; return loss and test accuracy of each epoch."""
    x, labels, test, wanted = data
    criterion = nn.CrossEntropyLoss()
    steps = epochs * (len(x) // batch)
    descent = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    rate = torch.optim.lr_scheduler.OneCycleLR(descent, 0.1, total_steps=steps)
    course = []
    with Progress(console=console, transient=True) as progress:
        for _ in progress.track(range(epochs), description="training"):
            losses = []
            for part in torch.randperm(len(x)).split(batch)[: len(x) // batch]:
                descent.zero_grad()
                loss = criterion(model(shifted(x[part])), labels[part])
                loss.backward()
                descent.step()
                rate.step()
                losses.append(loss.detach())
            course.append((float(torch.stack(losses).mean()), accuracy(model, test, wanted)))
    return course


def plot_course(course: Sequence[tuple[float, float]], path: Path) -> None:
    """Draw loss and error over the epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="epoch", yscale="log")
    epochs = range(1, len(course) + 1)
    axes.plot(epochs, [loss for loss, _ in course], label="loss in training")
    axes.plot(epochs, [1 - right or None for _, right in course], label="misread in the test")
    axes.legend()
    figure.savefig(path)


def plot_misread(model: torch.nn.Module, images: Tensor, labels: Tensor, path: Path) -> None:
    """Draw the first eight digits that are misread, under what is read in them."""
    from matplotlib.figure import Figure

    model.eval()
    with torch.no_grad():
        found = model(images).argmax(1)
    wrong = (found != labels).nonzero().flatten()[:8].tolist()
    figure = Figure(figsize=(8, 1.6), layout="constrained")
    for at, axes in zip(wrong, figure.subplots(1, 8)):
        axes.imshow(images[at, 0].numpy(), cmap="gray_r")
        axes.set_title(f"{found[at]}, not {labels[at]}", fontsize=8)
    for axes in figure.axes:
        axes.set_axis_off()
    figure.savefig(path)


def main(argv: Sequence[str] | None = None) -> float:
    """Train, draw, and return the test accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--out", type=Path, help="folder for course.svg and misread.svg")
    given = parser.parse_args(argv)
    console = Console(highlight=False)
    torch.manual_seed(0)
    model, data = network(), digits()
    with use_backend(given.backend):
        course = train(model, data, given.epochs, given.batch, console)
        reached = course[-1][1]
        console.print(f"{reached:.2%} of {len(data[2])} test images read right")
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
            plot_course(course, given.out / "course.svg")
            plot_misread(model, *data[2:], given.out / "misread.svg")
    return reached


if __name__ == "__main__":
    main()
