"""Plots of a file of records, and one page that holds everything it shows."""

from __future__ import annotations

import base64
from collections import Counter
from functools import cache
from importlib.resources import files
from math import exp, log
from pathlib import Path
from typing import Any

from convref.case import parse

from .. import records
from ..records import Record
from ..timing.point import PLAIN
from ..timing.roofline import Roof
from .tables import spread

PAGE = "report.html"  # the template beside this file
INK, FAINT, GRID = "#1f2933", "#66727f", "#e3e8ed"
FASTER, SLOWER, EVEN = "#1a7f4b", "#b3402a", "#8a8f98"
ARMS = ("#2457a6", "#c46a16", "#2e8b6f", "#8b4fa8", "#b0306a", "#4a5568", "#7a8b1f", "#167d9a")
FEW = 30  # lines that a chart names one by one


def write(source: Path, folder: Path) -> Path:
    """Write ``roofline.png``, ``ratios.png`` and ``report.html`` of a file of records.

    Parameters
    ----------
    source : Path
        JSON lines of `run`, `cpu`, `gpu` or `tune`.
    folder : Path
        Made if it is missing.

    Returns
    -------
    Path
        The page; it needs no other file and no network.
    """
    from jinja2 import Environment

    rows, broken = records.read(source)
    timed = latest([row for row in rows if "median_ms" in row])
    folder.mkdir(parents=True, exist_ok=True)
    template = files(__package__).joinpath(PAGE).read_text("utf-8")
    page = Environment(autoescape=True, trim_blocks=True).from_string(template)
    text = page.render(
        source=source.name,
        broken=len(broken),
        machine=sorted(machine(rows).items()),
        tiles=tiles(rows, timed),
        means=[(*row, _bar(row[-2])) for row in means(timed)],
        ratios=ratios_plot(timed, folder / "ratios.png"),
        roofline=roofline_plot(timed, _roof(rows), folder / "roofline.png"),
        accumulator=[row for row in rows if row.get("what") == "accumulator" and "mean" in row],
        steps=list({r["step"]: r for r in rows if r.get("what") == "step"}.values()),
        refused=[row for row in rows if row.get("what") == "refused"],
        rows=[{"verdict": "", "noise": 0.0, **row, "spread": spread(row)} for row in timed],
    )
    path = folder / "report.html"
    path.write_text(text, "utf-8")
    return path


def main(source: Path, folder: Path) -> None:
    """Write the page and print its path."""
    print(write(source, folder))


def latest(rows: list[Record]) -> list[Record]:
    """Return the last row of each line and arm, configurations of a tuner apart."""
    return list({(row["line"], row["arm"]): row for row in rows}.values())


def machine(rows: list[Record]) -> dict[str, Any]:
    """Return what the times depend on, one level deep."""
    shown: dict[str, Any] = {}
    for row in rows:
        if row.get("what") in ("machine", "peaks", "tuning"):
            shown |= {k: v for k, v in row.items() if k not in ("what", "key")}
    return {name: _short(value) for name, value in shown.items()}


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(inner)}" for name, inner in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def tiles(rows: list[Record], timed: list[Record]) -> list[tuple[str, int, str]]:
    """Return (word, count, class) of what a reader wants to know first."""
    says = Counter(row["verdict"] for row in timed if row.get("verdict"))
    found = [("lines", len({row["line"] for row in timed}), "")]
    found += [(word, says[word], word) for word in ("faster", "slower", "ambiguous")]
    return [*found, ("refused", sum(row.get("what") == "refused" for row in rows), "slower")]


def ratios(rows: list[Record]) -> list[tuple[Record, Record]]:
    """Return (row, the row it is compared with) wherever both were measured."""
    by = {(row["line"], row["arm"]): row for row in rows}
    found = []
    for row in rows:
        names = [row["against"]] if "against" in row else [] if row["arm"] in PLAIN else PLAIN
        if "+" in row["arm"] and "against" not in row:
            continue  # eager operations are compared with nothing
        there = [by[row["line"], name] for name in names if (row["line"], name) in by]
        if there:
            found.append((row, there[0]))
    return found


@cache
def kind(line: str) -> tuple[str, str]:
    """Return pass and number type of a line.

    >>> kind("conv.dgrad:n1c1k1_i3_f1:math=tf32"), kind("conv.fprop:n1c1k1_i3_f1")
    (('dgrad', 'tf32'), ('fprop', 'f32'))
    """
    call = parse(line).call
    words = line.partition(":")[0].partition(".")[2]
    return words, call.dtype if call.math == "ieee" else call.math


def means(rows: list[Record]) -> list[tuple[str, str, str, str, float, int]]:
    """Return (arm, reference, pass, type, geometric mean weighted by multiplicity, lines)."""
    groups: dict[tuple[str, str, str, str], list[tuple[float, int]]] = {}
    for row, other in ratios(rows):
        key = (row["arm"], reference(row, other), *kind(row["line"]))
        ratio = other["median_ms"] / row["median_ms"]
        groups.setdefault(key, []).append((log(ratio), row.get("times", 1)))
    return [
        (*key, exp(sum(v * n for v, n in found) / sum(n for _, n in found)), len(found))
        for key, found in sorted(groups.items())
    ]


def reference(row: Record, other: Record) -> str:
    """Return what a group of rows is compared with: torch in its best layout is one thing."""
    return "torch" if other["arm"] in PLAIN else other["arm"]


def _bar(ratio: float) -> dict[str, Any]:
    """Return where a bar from 1 to `ratio` lies on a logarithmic scale of 1/4 to 4, in percent."""
    end = 50 + 25 * max(-2.0, min(2.0, log(ratio) / log(2)))
    return {"left": min(50.0, end), "width": abs(end - 50), "good": ratio >= 1}


def _roof(rows: list[Record]) -> Roof | None:
    peaks = [row for row in rows if row.get("what") == "peaks"]
    return Roof(peaks[-1]["flops"], peaks[-1]["bytes_s"]) if peaks else None


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


def _saved(figure: Any, path: Path) -> str:
    figure.savefig(path, dpi=150)
    return base64.b64encode(path.read_bytes()).decode()


def ratios_plot(rows: list[Record], path: Path) -> str:
    """Draw how much faster than its reference each arm is; return the image in base64.

    Few lines get a bar and a name each; many become one row of points per arm, pass and type.
    """
    found = ratios(rows)
    if not found:
        return ""
    if len(found) <= FEW:
        return _bars(sorted(found, key=lambda pair: pair[0]["line"]), path)
    return _strips(found, path)


def _bars(found: list[tuple[Record, Record]], path: Path) -> str:
    figure, axes = _axes(10, 1 + 0.28 * len(found))
    values = [other["median_ms"] / row["median_ms"] for row, other in found]
    labels = [f"{row['line'].partition(':dt=')[0]}  {row['arm']}" for row, _ in found]
    colours = [FASTER if value >= 1 else SLOWER for value in values]
    # bars grow from 1 on a logarithmic axis, so that 2 and 1/2 are equally long
    axes.barh(labels, [v - 1 for v in values], left=1, color=colours, height=0.62)
    for y, value in enumerate(values):
        side = "left" if value >= 1 else "right"
        axes.annotate(
            f"{value:.2f}",
            (value, y),
            (4 if value >= 1 else -4, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=7,
            color=FAINT,
        )
    return _ratio_axis(figure, axes, path, values)


def _strips(found: list[tuple[Record, Record]], path: Path) -> str:
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
        mean = exp(sum(map(log, values)) / len(values))
        axes.plot([mean, mean], [y - 0.34, y + 0.34], color=INK, linewidth=2)
        place = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 9}
        axes.annotate(f"{mean:.2f}", (1.01, y), color=INK, annotation_clip=False, **place)
    axes.set_yticks(range(len(groups)), list(groups))
    return _ratio_axis(figure, axes, path, [v for values in groups.values() for v in values])


def _ratio_axis(figure: Any, axes: Any, path: Path, values: list[float]) -> str:
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
    return _saved(figure, path)


def roofline_plot(rows: list[Record], roof: Roof | None, path: Path) -> str:
    """Draw achieved rates over intensity; return the image in base64, empty without records."""
    found = [row for row in rows if row["line"].startswith("conv.") and row.get("what") != "host"]
    if not found:
        return ""
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
    return _saved(figure, path)


def _roofs(axes: Any, roof: Roof | None, intensities: list[float]) -> None:
    """Draw the memory slope once and a ceiling per number type, named at its right end."""
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
