"""Plots of a file of records, and one page that holds everything it shows."""

from __future__ import annotations

import base64
from importlib.resources import files
from math import exp, log
from pathlib import Path
from typing import Any

from convref.line import parse

from . import records
from .records import Record
from .roofline import Roof
from .tables import spread

PAGE = "report.html"  # the template beside this file
REFERENCES = ("torch",)  # arms that the others are compared with


def write(source: Path, folder: Path) -> Path:
    """Write ``roofline.png``, ``ratios.png`` and ``report.html`` of a file of records.

    Parameters
    ----------
    source : Path
        JSON lines of `cpu` or `gpu`.
    folder : Path
        Made if it is missing.

    Returns
    -------
    Path
        The page; it needs no other file and no network.
    """
    from jinja2 import Environment

    rows, broken = records.read(source)
    timed = [row for row in rows if "median_ms" in row]
    folder.mkdir(parents=True, exist_ok=True)
    plots = [
        ("Time of the reference over time of the arm", ratios_plot(timed, folder / "ratios.png")),
        ("Roofline", roofline_plot(timed, _roof(rows), folder / "roofline.png")),
    ]
    template = files(__package__).joinpath(PAGE).read_text("utf-8")
    page = Environment(autoescape=True).from_string(template)
    machine = [row for row in rows if row.get("what") in ("machine", "peaks")]
    shown = {k: v for row in machine for k, v in row.items() if k not in ("what", "key")}
    text = page.render(
        source=source.name,
        broken=len(broken),
        machine=sorted(shown.items()),
        means=means(timed),
        plots=plots,
        rows=[{"verdict": "", **row, "spread": spread(row)} for row in timed],
    )
    path = folder / "report.html"
    path.write_text(text, "utf-8")
    return path


def ratios(rows: list[Record]) -> list[tuple[str, str, float, int]]:
    """Return (arm, line, reference over arm, times) wherever both were measured."""
    latest = {(row["line"], row["arm"]): row for row in rows}
    found = []
    for (line, arm), row in latest.items():
        reference = next((latest[line, r] for r in REFERENCES if (line, r) in latest), None)
        if reference is not None and arm not in REFERENCES:
            found.append(
                (arm, line, reference["median_ms"] / row["median_ms"], row.get("times", 1))
            )
    return found


def means(rows: list[Record]) -> list[tuple[str, str, float, int]]:
    """Return (arm, pass, geometric mean weighted by multiplicity, lines)."""
    groups: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for arm, line, ratio, times in ratios(rows):
        pass_ = line.partition(":")[0].partition(".")[2]
        groups.setdefault((arm, pass_), []).append((log(ratio), times))
    return [
        (*key, exp(sum(v * n for v, n in found) / sum(n for _, n in found)), len(found))
        for key, found in sorted(groups.items())
    ]


def _roof(rows: list[Record]) -> Roof | None:
    peaks = [row for row in rows if row.get("what") == "peaks"]
    return Roof(peaks[-1]["flops"], peaks[-1]["bytes_s"]) if peaks else None


def _axes(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _saved(figure: Any, path: Path) -> str:
    figure.savefig(path, dpi=110)
    return base64.b64encode(path.read_bytes()).decode()


def ratios_plot(rows: list[Record], path: Path) -> str:
    """Draw a bar per line and arm around 1; return the image in base64, empty if there is none."""
    found = sorted(ratios(rows), key=lambda item: item[1:3])
    if not found:
        return ""
    figure, axes = _axes(10, 1 + 0.2 * len(found))
    labels = [f"{line.partition(':dt=')[0]}  {arm}" for arm, line, _, _ in found]
    colours = ["#2a7d4f" if ratio >= 1 else "#b3523b" for _, _, ratio, _ in found]
    # bars grow from 1 on a logarithmic axis, so that 2 and 1/2 are equally long
    axes.barh(labels, [r - 1 for _, _, r, _ in found], left=1, color=colours, height=0.7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("times faster than the reference")
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.tick_params(labelsize=7)
    return _saved(figure, path)


def roofline_plot(rows: list[Record], roof: Roof | None, path: Path) -> str:
    """Draw achieved rates over intensity; return the image in base64, empty without records."""
    found = [row for row in rows if row["line"].startswith("conv.") and row.get("what") != "host"]
    if not found:
        return ""
    figure, axes = _axes(9, 5.5)
    arms: dict[str, list[tuple[float, float]]] = {}
    for row in found:
        call = parse(row["line"]).call
        rate = call.flop() / (row["median_ms"] / 1e3)
        arms.setdefault(row["arm"], []).append((call.flop() / call.bytes_moved(), rate / 1e9))
    for arm, points in arms.items():
        axes.plot(*zip(*points), "o", markersize=4, alpha=0.7, label=arm)
    low, high = axes.get_xlim()
    for kind, peak in roof.flops.items() if roof else ():
        knee = peak / roof.bytes_s if roof else 0.0
        x = [min(low, knee / 10), knee, max(high, knee * 4)]
        y = [x[0] * roof.bytes_s / 1e9 if roof else 0.0, peak / 1e9, peak / 1e9]
        axes.plot(x, y, "-", linewidth=1, label=f"roof {kind}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("flop per compulsory byte")
    axes.set_ylabel("GFLOP/s")
    axes.legend()
    axes.grid(alpha=0.3)
    return _saved(figure, path)
