"""One self-contained page of a file of records, with its plots."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from math import log
from pathlib import Path
from typing import Any

from .. import records
from ..records import Record
from .plots import ratios_plot, roofline_plot
from .summary import latest, means, roof_of, spread

PAGE = "report.html"  # the template in this folder


def main(records_: Path, folder: Path) -> None:
    print(write(records_, folder))


def write(source: Path, folder: Path) -> Path:
    """Write ``roofline.png``, ``ratios.png`` and ``report.html`` of a file of records.

    Return the path of the page, which needs no other file and no network.
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
        roofline=roofline_plot(timed, roof_of(rows), folder / "roofline.png"),
        accumulator=[row for row in rows if row.get("what") == "accumulator" and "mean" in row],
        steps=list({r["step"]: r for r in rows if r.get("what") == "step"}.values()),
        refused=[row for row in rows if row.get("what") == "refused"],
        rows=[{"verdict": "", "noise": 0.0, **row, "spread": spread(row)} for row in timed],
    )
    path = folder / PAGE
    path.write_text(text, "utf-8")
    return path


def machine(rows: list[Record]) -> dict[str, str]:
    """Return the fields that the times depend on, flattened."""
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
    counts = Counter(row["verdict"] for row in timed if row.get("verdict"))
    found = [("lines", len({row["line"] for row in timed}), "")]
    found += [(word, counts[word], word) for word in ("faster", "slower", "ambiguous")]
    return [*found, ("refused", sum(row.get("what") == "refused" for row in rows), "slower")]


def _bar(ratio: float) -> dict[str, Any]:
    """Return the bar from 1 to `ratio` on a logarithmic scale of 1/4 to 4, in percent."""
    end = 50 + 25 * max(-2.0, min(2.0, log(ratio) / log(2)))
    return {"left": min(50.0, end), "width": abs(end - 50), "good": ratio >= 1}
