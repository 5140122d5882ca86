"""Plots of records: ratios to the reference, and rates under the roof."""

from pathlib import Path
from typing import Any

from convref.case import parse

from ..records import Record
from ..timing.measure import geometric_mean
from ..timing.roofline import Roof
from .summary import kind, ratios

INK, FAINT, GRID = "#1f2933", "#66727f", "#e3e8ed"
FASTER, SLOWER = "#1a7f4b", "#b3402a"
ARMS = ("#2457a6", "#c46a16", "#2e8b6f", "#8b4fa8", "#b0306a", "#4a5568", "#7a8b1f", "#167d9a")


def _axes(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=FAINT, labelcolor=INK, length=0)
    axes.set_axisbelow(True)
    return figure, axes


def ratios_plot(rows: list[Record], path: Path) -> bool:
    """Draw the ratio to the reference, a row of points per arm, pass and type, if there is any."""
    found = ratios(rows)
    if not found:
        return False
    groups: dict[str, list[float]] = {}
    for row, other in sorted(found, key=lambda pair: (pair[0]["arm"], kind(pair[0]["line"]))):
        name = "  ".join((row["arm"], *kind(row["line"])))
        groups.setdefault(name, []).append(other["median_ms"] / row["median_ms"])
    figure, axes = _axes(10, 1.2 + 0.42 * len(groups))
    for y, values in enumerate(groups.values()):
        colours = [FASTER if value >= 1 else SLOWER for value in values]
        # a fixed scatter of heights: points of equal ratio stay apart, pictures stay the same
        heights = [y + 0.22 * ((37 * i) % 11 - 5) / 5 for i in range(len(values))]
        axes.scatter(values, heights, s=14, c=colours, alpha=0.55, linewidths=0)
        mean = geometric_mean(values)
        axes.plot([mean, mean], [y - 0.34, y + 0.34], color=INK, linewidth=2)
        place = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 9}
        axes.annotate(f"{mean:.2f}", (1.01, y), color=INK, annotation_clip=False, **place)
    axes.set_yticks(range(len(groups)), list(groups))
    _ratio_axis(axes, [v for values in groups.values() for v in values])
    figure.savefig(path, dpi=150)
    return True


def _ratio_axis(axes: Any, values: list[float]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xscale("log", base=2)
    low, high = min(*values, 0.5) / 1.25, max(*values, 2.0) * 1.25
    ticks = [2.0**i for i in range(-12, 13) if low <= 2.0**i <= high]
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick:g}" for tick in ticks])
    axes.set_xlabel("reference time / its time (right of 1 is faster)", color=INK)
    axes.grid(axis="x", color=GRID)
    axes.invert_yaxis()
    axes.margins(y=0.02)
    axes.tick_params(axis="y", labelsize=8)


def roofline_plot(rows: list[Record], roof: Roof | None, path: Path) -> bool:
    """Draw the achieved rates of convolutions over intensity, if there is any."""
    found = [row for row in rows if row["line"].startswith("conv.") and row.get("what") != "host"]
    if not found:
        return False
    figure, axes = _axes(10, 5.6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    arms: dict[str, list[tuple[float, float]]] = {}
    for row in found:
        call = parse(row["line"]).call
        if call.flop() and row["median_ms"] > 0:
            rate = call.flop() / row["median_ms"] / 1e6
            name = row["arm"].partition("@")[0]
            arms.setdefault(name, []).append((call.flop() / call.bytes_moved(), rate))
    for index, (arm, points) in enumerate(arms.items()):
        colour = ARMS[index % len(ARMS)]
        axes.scatter(*zip(*points), s=16, alpha=0.6, color=colour, linewidths=0, label=arm)
    _roofs(axes, roof, [x for points in arms.values() for x, _ in points])
    axes.set_xlabel("flop per compulsory byte", color=INK)
    axes.set_ylabel("GFLOP/s", color=INK)
    axes.legend(frameon=False, fontsize=8, loc="lower right", markerscale=1.6)
    axes.grid(color=GRID)
    figure.savefig(path, dpi=150)
    return True


def _roofs(axes: Any, roof: Roof | None, intensities: list[float]) -> None:
    if roof is None or not intensities:
        return
    highest, knees = max(roof.flops.values()), [f / roof.bytes_s for f in roof.flops.values()]
    low, right = min(*intensities, *knees) / 1.5, max(*intensities, *knees) * 2
    x = [low, highest / roof.bytes_s]
    axes.plot(x, [at * roof.bytes_s / 1e9 for at in x], color=INK, linewidth=1.2)
    named: list[tuple[float, str]] = []
    for name, peak in sorted(roof.flops.items(), key=lambda item: -item[1]):
        axes.plot([peak / roof.bytes_s, right], [peak / 1e9] * 2, color=INK, linewidth=1.2)
        if named and peak > 0.8 * named[-1][0]:
            named[-1] = (named[-1][0], f"{named[-1][1]}, {name}")  # one text above two lines
        else:
            named.append((peak, f"{peak / 1e12:.3g} TFLOP/s {name}"))
    for peak, text in named:
        axes.annotate(
            text,
            (right, peak / 1e9),
            (0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=INK,
        )
