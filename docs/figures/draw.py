"""Draw the figures of the pages: python docs/figures/draw.py [folder]."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np

from convref import Numerics
from convref.case import parse
from convref.judge import bound, reference
from convref.ops import (
    AdaptiveAxis,
    AvgPoolProblem,
    BatchNormProblem,
    ConvProblem,
    GeluProblem,
    GroupNormProblem,
    LayerNormProblem,
    ResizeProblem,
)
from convref.ops.resize_axis import reads
from convref.oracle.activation import POINTWISE

INK, REAL, PAD, LEFT, RIGHT = "#333333", "#9ecae1", "#eeeeee", "#d95f0e", "#1b7837"
STYLE = {
    **{"svg.fonttype": "none", "svg.hashsalt": "convref", "font.size": 9},
    **{"font.family": "sans-serif", "axes.edgecolor": INK, "text.color": INK},
}


def cells(ax: Any, y: float, labels: list[str], colors: list[str], x: float = 0.0) -> None:
    """Draw one row of unit cells at height y, from x on."""
    for i, (label, color) in enumerate(zip(labels, colors, strict=True)):
        ax.add_patch(plt.Rectangle((x + i - 0.5, y - 0.4), 1, 0.8, fc=color, ec=INK, lw=0.8))
        ax.text(x + i, y, label, ha="center", va="center")


def plain(ax: Any) -> None:
    """Leave nothing of the axes but what is drawn."""
    ax.set_aspect("equal")
    ax.autoscale_view()
    ax.axis("off")


def windows() -> Any:
    """Show which position each tap of each window reads, with stride, dilation and padding."""
    problem = ConvProblem(
        n=1, c=1, k=1, input=(7,), filter=(3,), stride=2, dilation=2, padding=((2, 1),)
    )
    (axis,) = problem.axes
    fig, ax = plt.subplots(figsize=(6.4, 3.0))
    positions = range(-axis.lo, axis.big + axis.hi)
    inside = [0 <= at < axis.big for at in positions]
    labels = [f"$x_{{{at}}}$" if real else "0" for at, real in zip(positions, inside, strict=True)]
    cells(ax, 0, labels, [REAL if real else PAD for real in inside], -axis.lo)
    for p in range(axis.small):
        y = -1.2 - p
        reads = [p * axis.stride + r * axis.dilation - axis.lo for r in range(axis.taps)]
        ax.plot([reads[0], reads[-1]], [y, y], color=INK, lw=0.8, zorder=0)
        for r, at in enumerate(reads):
            cells(ax, y, [f"$w_{r}$"], [REAL if 0 <= at < axis.big else PAD], at)
        ax.text(-axis.lo - 1, y, f"$p={p}$", ha="right", va="center")
    ax.text(-axis.lo - 1, 0, r"$\hat x$", ha="right", va="center")
    plain(ax)
    return fig


def gather_and_scatter() -> Any:
    """Show the same nine products added up per output, and per input."""
    problem = ConvProblem(n=1, c=1, k=1, input=(7,), filter=(3,), stride=2)
    (axis,) = problem.axes
    fig, both = plt.subplots(1, 2, figsize=(7.4, 2.3))
    rows = (
        ("gather (C.1): one window into each y", "x", "y", RIGHT, "-|>"),
        ("scatter (C.2): each dy onto one window", "dx", "dy", LEFT, "<|-"),
    )
    for ax, (title, top, bottom, color, arrow) in zip(both, rows, strict=True):
        cells(ax, 2, [f"${top}_{i}$" for i in range(axis.big)], [REAL] * axis.big)
        for p in range(axis.small):
            at = p * axis.stride + 1
            cells(ax, 0, [f"${bottom}_{p}$"], [PAD], at)
            for r in range(axis.taps):
                ends = (p * axis.stride + r, 1.58), (at, 0.42)
                style = {"arrowstyle": arrow, "color": color, "lw": 1, "shrinkA": 0, "shrinkB": 0}
                ax.annotate("", xy=ends[1], xytext=ends[0], arrowprops=style)
        ax.set_title(title, fontsize=9)
        plain(ax)
    fig.tight_layout()
    return fig


def sums_in_float32(products: Any, chain: Any) -> Any:
    """Return the sums over the last axis, left to right in float32 (`chain`) or pairwise."""
    if chain:
        return np.add.accumulate(products, axis=-1, dtype=np.float32)[..., -1]
    while products.shape[-1] > 1:
        half = products.shape[-1] // 2
        rest = products[..., 2 * half :]
        products = np.concatenate([products[..., :half] + products[..., half : 2 * half], rest], -1)
    return products[..., 0]


def bound_and_error() -> Any:
    """Show errors of float32 sums in units of u S, under the proven and the likely bound."""
    fig, ax = plt.subplots(figsize=(5.6, 3.4))
    rng, lengths = np.random.default_rng(1), [2**i for i in range(2, 15)]
    fills = {
        ("constant 0.1, left to right", True, "s"): lambda shape: np.full(shape, 0.1),
        ("normal, left to right", True, "o"): rng.standard_normal,
        ("normal, pairwise", False, "^"): rng.standard_normal,
    }
    limits = []
    for (label, chain, marker), fill in fills.items():
        points = []
        for n in lengths:
            call = parse(f"conv.fprop:n1c{n}k1_i16_f1:bias=0").call
            x = np.asarray(fill((1, n, 16)), np.float32)
            w = np.ones((1, n, 1), np.float32)
            ref = reference(call, (x, w, None))
            y = sums_in_float32(x[0].T, chain)
            points.append(np.max(np.abs(y - ref.values[0][0, 0]) / ref.sums[0][0, 0]) * 2**24)
            if marker == "s":
                full = bound(call, "y", ref.values[0], ref.sums[0], Numerics("rn32"))
                limits.append(np.max(full / ref.sums[0]) * 2**24)
        ax.loglog(lengths, points, marker, ms=4, label=label)
    ax.loglog(lengths, limits, color=INK, label="proven bound")
    spread = [np.sqrt(2 * np.log(2 * 16 * n / 1e-9) * n) for n in lengths]
    ax.loglog(lengths, spread, "--", color=INK, label=r"likely bound $\lambda\sqrt{n}$")
    ax.set_xlabel("products n")
    ax.set_ylabel("error / (u S)")
    ax.legend(fontsize=8, frameon=False)
    fig.tight_layout()
    return fig


def pool_windows() -> Any:
    """Show which windows ceil_mode adds and keeps, and what the divisor of each counts."""
    fig, both = plt.subplots(1, 2, figsize=(7.6, 2.7))
    for ax, ceil in zip(both, (False, True), strict=True):
        problem = AvgPoolProblem(n=1, c=1, input=(6,), filter=(3,), stride=2, padding=1, ceil=ceil)
        (axis,) = problem.axes
        last = (axis.small - 1) * axis.stride + axis.taps - axis.lo
        positions = range(-axis.lo, max(axis.big + axis.hi, last))
        real = [0 <= at < axis.big for at in positions]
        names = [f"$x_{at}$" if ok else "" for at, ok in zip(positions, real, strict=True)]
        cells(ax, 0, names, [REAL if ok else PAD for ok in real], -axis.lo)
        ax.plot([axis.big + axis.hi - 0.5] * 2, [0.6, -1.2 - axis.small], ":", color=INK, lw=0.8)
        for p in range(axis.small):
            for r in range(axis.taps):
                at = p * axis.stride + r - axis.lo
                beyond = at >= axis.big + axis.hi
                color = REAL if 0 <= at < axis.big else ("white" if beyond else PAD)
                cells(ax, -1.2 - p, [""], [color], at)
            ax.text(positions[-1] + 1, -1.2 - p, f"/ {problem.counts[0][p]}", va="center")
        ax.set_title(f"ceil_mode={ceil}", fontsize=9)
        plain(ax)
    return fig


def adaptive_windows() -> Any:
    """Show the windows of adaptive pools where the sizes do not divide."""
    fig, both = plt.subplots(1, 2, figsize=(7.6, 2.6))
    for ax, (big, small) in zip(both, ((7, 3), (3, 5)), strict=True):
        cells(ax, 0, [f"$x_{i}$" for i in range(big)], [REAL] * big)
        axis = AdaptiveAxis(big, small)
        for p in range(small):
            start, stop = axis.bounds(p)
            cells(ax, -1.1 - 0.9 * p, [""] * (stop - start), [REAL] * (stop - start), start)
            ax.text(big, -1.1 - 0.9 * p, f"$y_{p}$", va="center")
        ax.set_title(f"{big} into {small}", fontsize=9)
        plain(ax)
    return fig


def resize_positions() -> Any:
    """Show where the outputs of three coordinates sample four inputs."""
    fig, rows = plt.subplots(3, 2, figsize=(8.4, 4.6))
    coords = ("half_pixel", "align_corners", "asymmetric")
    for row, coord in zip(rows, coords, strict=True):
        for ax, out in zip(row, (8, 3), strict=True):
            (axis,) = ResizeProblem(n=1, c=1, input=(4,), output=(out,), coord=coord).axes
            cells(ax, 0, [f"$x_{i}$" for i in range(4)], [REAL] * 4)
            for p in range(out):
                x = float(axis.position(p))
                ax.plot([x, x], [-1.05, -0.45], color=LEFT, lw=1.2, marker="o", ms=3)
                ax.text(x, -1.25, f"$y_{p}$", ha="center", va="top", fontsize=8)
            ax.set_title(f"{coord}, 4 to {out}", fontsize=9)
            plain(ax)
    fig.tight_layout()
    return fig


def resize_kernels() -> Any:
    """Show the kernels, plain and stretched by antialias, over the inputs that they weigh."""
    fig, both = plt.subplots(1, 2, figsize=(7.6, 2.6))
    rules = (("plain", False, LEFT), ("antialias, 12 to 4", True, RIGHT))
    for ax, mode in zip(both, ("linear", "cubic"), strict=True):
        for label, antialias, color in rules:
            (axis,) = ResizeProblem(
                n=1, c=1, input=(12,), output=(4,), mode=mode, antialias=antialias
            ).axes
            centre, far = axis.position(1), axis.radius * axis.stretch
            grid = [centre + far * Fraction(k, 100) for k in range(-100, 101)]
            values = [float(axis.kernel((t - centre) / axis.stretch) / axis.stretch) for t in grid]
            ax.plot([float(t) for t in grid], values, color=color, label=label)
            near = [(float(j), float(w)) for j, w in reads(axis)[1]]
            ax.plot(*zip(*near, strict=True), "o", ms=3, color=color)
        ax.set_title(f"{mode}: what $y_1$ reads", fontsize=9)
        ax.legend(fontsize=8, frameon=False)
        ax.set_xlabel("input")
    fig.tight_layout()
    return fig


def norm_blocks() -> Any:
    """Show which elements of two images of four channels share a mean with the first one."""
    problems = (
        ("batch norm", BatchNormProblem(n=2, c=4, input=(3,))),
        ("group norm, 2 groups", GroupNormProblem(n=2, c=4, input=(3,), groups=2)),
        ("layer norm", LayerNormProblem(n=2, c=4, input=(3,))),
    )
    fig, panels = plt.subplots(1, 3, figsize=(8.4, 2.2))
    for ax, (title, problem) in zip(panels, problems, strict=True):
        view, over = problem.blocks.image, problem.blocks.statistics
        shared = np.zeros(view, bool)
        shared[tuple(slice(None) if axis in over else 0 for axis in range(4))] = True
        shared = shared.reshape(problem.shape("x"))
        for n in range(problem.n):
            for c in range(problem.c):
                colors = [REAL if hit else PAD for hit in shared[n, c]]
                cells(ax, -c, [""] * 3, colors, 4.0 * n)
            ax.text(4.0 * n + 1, 0.8, f"$n={n}$", ha="center")
        for c in range(problem.c):
            ax.text(-0.8, -c, f"$c={c}$", ha="right", va="center")
        ax.set_title(title, fontsize=9)
        plain(ax)
    fig.tight_layout()
    return fig


def activation_curves() -> Any:
    """Show the smooth activations with their first two derivatives."""
    x = np.linspace(-5, 5, 401)
    ops = ("sigmoid", "tanh", "silu", "gelu", "hardswish")
    fig, panels = plt.subplots(1, 3, figsize=(8.4, 2.6), sharex=True)
    problem = GeluProblem(n=1, c=1, input=(x.size,))
    for order, (ax, title) in enumerate(zip(panels, ("f", "f′", "f″"), strict=True)):
        for op in ops:
            ax.plot(x, POINTWISE[op][order](x, problem), lw=1, label=op)
        ax.set_title(title, fontsize=9)
    panels[0].set_ylim(-1.2, 3)
    panels[0].legend(fontsize=7, frameon=False)
    fig.tight_layout()
    return fig


MUTATIONS = {
    "zeros": "zeros",
    "a constant": "their mean",
    "without": "an operation left out",
    "last term": "last term of sums dropped",
    "first term": "first term of sums twice",
    "not written": "last slice not written",
    "repeats": "last channel repeated",
    "in float16": "sums in float16",
}


def accepted_mutations() -> Any:
    """Show which share of KernelBench's mutants each rule accepts, by kind of mutation."""
    counts = json.loads(Path(__file__).with_name("kernelbench.json").read_text("utf-8"))
    rules = [("tolerance 1e-2", REAL), ("tolerance 1e-4", LEFT), ("convref", RIGHT)]
    fig, ax = plt.subplots(figsize=(6.4, 3.6))
    for row, kind in enumerate(reversed(MUTATIONS)):
        total, own, loose, judge = counts[kind]
        for place, (value, (label, color)) in enumerate(zip((loose, own, judge), rules)):
            y = row + 0.27 * (1 - place)
            ax.barh(y, 100 * value / total, 0.25, color=color, label=label if row == 0 else None)
            ax.text(100 * value / total + 1, y, f"{value}", va="center", fontsize=6)
    labels = [f"{text} ({counts[kind][0]})" for kind, text in reversed(MUTATIONS.items())]
    ax.set_yticks(range(len(labels)), labels, fontsize=8)
    ax.set_xlabel("% accepted")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=7, frameon=False, loc="center right")
    fig.tight_layout()
    return fig


def program_bounds() -> Any:
    """Show the table of docs/programs.md: bound over true error, by length of the reduction."""
    page = (Path(__file__).resolve().parents[1] / "programs.md").read_text("utf-8")
    header, _, *rows = page.partition("| operation | 2^4")[2].partition("\n\n")[0].splitlines()
    lengths = [2.0**4, *(2.0 ** float(cell.partition("^")[2]) for cell in header.split("|")[1:-1])]
    fig, ax = plt.subplots(figsize=(5.6, 3.8))
    for row in rows:
        name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        median, high = zip(*((float(x) for x in cell.split(",")) for cell in cells))
        (line,) = ax.loglog(lengths, median, label=name)
        ax.loglog(lengths, high, ".", color=line.get_color())
    ax.loglog(lengths, lengths, ":", color=INK)
    ax.set_xlabel("terms of a sum")
    ax.set_ylabel("bound / true error")
    ax.legend(fontsize=8, frameon=False, ncols=2)
    fig.tight_layout()
    return fig


def root_causes_found() -> Any:
    """Show how many root causes `convref check` has met, by minutes of a processor."""
    fig, ax = plt.subplots(figsize=(5.6, 3.4))
    for path in sorted(Path(__file__).with_name("how_soon").glob("*.json")):
        found = json.loads(path.read_text("utf-8"))
        times = [seconds / 60 for seconds in found["causes"].values()]
        ends = [*times, found["seconds"] / 60]
        ax.step(ends, [*range(1, len(ends)), len(times)], where="post", label=path.stem)
    ax.set_xscale("log")
    ax.set_xlabel("minutes of one processor")
    ax.set_ylabel("root causes found")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False)
    fig.tight_layout()
    return fig


FIGURES = {
    "conv_windows": windows,
    "conv_gather_scatter": gather_and_scatter,
    "judge_bounds": bound_and_error,
    "pool_windows": pool_windows,
    "pool_adaptive": adaptive_windows,
    "resize_positions": resize_positions,
    "resize_kernels": resize_kernels,
    "norm_blocks": norm_blocks,
    "activation_curves": activation_curves,
    "grading_mutations": accepted_mutations,
    "program_bounds": program_bounds,
    "how_soon": root_causes_found,
}


def main(folder: Path) -> None:
    """Write each figure as SVG into `folder`, the same bytes every time."""
    with plt.rc_context(STYLE):
        for name, draw in FIGURES.items():
            draw().savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
