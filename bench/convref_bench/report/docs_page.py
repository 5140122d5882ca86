"""The kept records of cards as sections of two pages in docs/: tables and plots."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from convref.case import parse

from .. import records
from ..gpu import fit
from ..records import Record
from ..timing.measure import geometric_mean
from ..timing.point import PLAIN
from . import plots
from .summary import MEANS, kind, latest_per_point, means, roof_of, spread, type_name

DOCS = Path(__file__).resolve().parents[3] / "docs"
BEGIN, END = "<!-- `convref bench page` writes what follows -->", "<!-- up to here -->"
PASSES = ("fprop", "dgrad", "wgrad")
WORST = 20  # lines that are listed where the reference was faster
NOTHING = "not measured"
HIDDEN = ("what", "key", "card", "l2_bytes", "memory_bytes")  # not listed of a machine
Rows = list[Record]
Lines = list[str]


class Card(NamedTuple):
    name: str
    rows: Rows
    best: Rows  # per line our fastest record, with the reference of the same run

    def records_of(self, what: str) -> Rows:
        return [row for row in self.rows if row.get("what") == what]


def read(path: Path) -> Card:
    rows, _ = records.read(path)
    names = [row["card"] for row in rows if "card" in row]
    return Card(names[-1] if names else path.stem, rows, _best_rows(rows))


def _best_rows(rows: Rows) -> Rows:
    found: dict[str, Record] = {}
    for row in rows:
        ours = row.get("arm", "auto") != "auto"
        if ours and "ratio" in row and row.get("against") in PLAIN:
            least = found.get(row["line"], row)
            found[row["line"]] = min(row, least, key=lambda one: one["median_ms"])
    return list(found.values())


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Lines:
    """Return a table, nothing without rows.

    >>> table(["a", "b"], [[1, "x"]])
    ['| a | b |', '|---|---|', '| 1 | x |', '']
    """
    if not rows:
        return []
    made = [f"| {' | '.join(map(str, row))} |" for row in (columns, *rows)]
    return [made[0], "|" + "---|" * len(columns), *made[1:], ""]


def _cell(row: Record | None) -> str:
    if row is None:
        return ""
    shown = f"{row['ratio']:.2f}"
    return {"faster": f"**{shown}**", "slower": shown}.get(row["verdict"], f"{shown} ?")


def _machine(card: Card) -> Lines:
    lines = []
    for row in card.records_of("machine")[-1:]:
        plain = {name: value for name, value in row.items() if not isinstance(value, dict)}
        listed = (f"{name} {value}" for name, value in plain.items() if name not in HIDDEN)
        lines.append(f"{', '.join(listed)}.")
    for peaks in card.records_of("peaks")[-1:]:
        rates = "; ".join(
            f"{type_name(name)} {rate / 1e12:.3g}" for name, rate in peaks["flops"].items()
        )
        lines.append(f"Peaks in TFLOP/s: {rates}. A copy moves {peaks['bytes_s'] / 1e12:.3g} TB/s.")
    return [*lines, ""] if lines else []


def _correctness(card: Card) -> Lines:
    chunks = card.records_of("properties")
    rows: list[list[Any]] = []
    for backend in dict.fromkeys(row["backend"] for row in chunks):
        some = [row for row in chunks if row["backend"] == backend]
        counts = sum((Counter(row["counts"]) for row in some), Counter())
        judged = counts.total() - counts["unsupported"]
        wrong = sum(len(row["findings"]) for row in some)
        rows.append([f"property list, {backend}", judged, wrong])
    files = sorted(card.records_of("marked-file"), key=lambda row: row["file"])
    rows += [[f"`{row['file']}`", "", len(row["failed"])] for row in files]
    timed = [
        row for row in card.records_of("refused") if "bound" in row["why"] or "right" in row["why"]
    ]
    lines = table(["compared with the oracle", "cases", "wrong"], rows)
    note = [f"{len(timed)} timed results were wrong, and are not counted.", ""] if timed else []
    return [*lines, *note]


def _networks(card: Card) -> Lines:
    groups: dict[tuple[str, str, str], Rows] = {}
    for row in card.best:
        groups.setdefault((row["suite"], *kind(row["line"])), []).append(row)
    rows = []
    for key, some in sorted(groups.items()):
        mean = geometric_mean((row["ratio"] for row in some), [row.get("times", 1) for row in some])
        verdicts = [row["verdict"] for row in some]
        counts = [verdicts.count(word) for word in ("faster", "slower", "ambiguous")]
        rows.append([*key, f"{mean:.2f}", *counts])
    lines = table(["network", "pass", "type", "mean", "faster", "slower", "open"], rows)
    note = (
        "Time of cuDNN over that of our fastest kernel, in one run; above 1 ours is faster. Open: "
        "the spreads of both overlap."
    )
    return [note, "", *lines] if lines else []


def _layers(card: Card) -> Lines:
    found: Lines = []
    for suite in sorted({row["suite"] for row in card.best}):
        layers: dict[tuple[str, str], dict[str, Record]] = {}
        for row in card.best:
            pass_, dtype = kind(row["line"])
            if row["suite"] == suite and dtype == "bf16":
                layers.setdefault((row["layer"], row["times"]), {})[pass_] = row
        rows = [
            [*layer, *(_cell(passes.get(one)) for one in PASSES), _kernels(passes)]
            for layer, passes in layers.items()
        ]
        found += table([f"{suite}, bf16", "times", *PASSES, "our kernels"], rows)
    note = "Bold where ours is faster beyond the spread of both, with `?` where neither is."
    return [note, "", *found] if found else []


def _kernels(passes: dict[str, Record]) -> str:
    names = (_kernel(passes[one]) for one in PASSES if one in passes)
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def _kernel(row: Record) -> str:
    found = row.get("configuration")
    return found["kernel"] if isinstance(found, dict) and "kernel" in found else row["arm"]


def _losses(card: Card) -> Lines:
    slower = [row for row in card.best if row["verdict"] == "slower"]
    launched = {
        (row["line"], row["arm"]): row["kernels"]
        for row in card.records_of("kernels")
        if "kernels" in row
    }
    rows = []
    for row in sorted(slower, key=lambda row: row["ratio"])[:WORST]:
        theirs = launched.get((row["line"], row["against"]), [])
        shown = f"`{theirs[0][:60]}`" if theirs else row["against"]
        size = "x".join(map(str, row.get("configuration", {}).get("tile", "")[:3]))
        line = f"`{row['line'].partition(':dt=')[0]}`"
        ours = f"{_kernel(row)} {size}"
        rows.append([line, f"{row['ratio']:.2f}", ours, shown, *_reason(row, card)])
    columns = ["line", "ratio", "ours", "theirs", "of the roof", "ours waits for"]
    note = (
        f"Where cuDNN was faster, the {WORST} worst of {len(slower)}. What ours waits for is the "
        "longest term of the estimate of time, not a profile."
    )
    return [note, "", *table(columns, rows)] if rows else []


def _reason(row: Record, card: Card) -> tuple[str, str]:
    """Return (share of the roof, longest term of the estimate), empty where unknown."""
    call, roof = parse(row["line"]).call, roof_of(card.rows)
    share = f"{roof.seconds(call, cold=True) / row['median_ms'] * 1e3:.0%}" if roof else ""
    try:
        found = fit.timed_configurations([row | {"what": "tuned"}])
    except ImportError:
        return share, ""
    return share, fit.longest_part(found[0]) if found else ""


def _fused(card: Card) -> Lines:
    timed = latest_per_point([row for row in card.rows if "median_ms" in row])
    rows = [
        [arm, against, dtype, f"{value:.2f}", count]
        for arm, against, _, dtype, value, count in means(timed)
        if "+" in arm
    ]
    return table(["fused", "against", "type", "mean", "lines"], rows)


def _accumulated(card: Card) -> Lines:
    rows = [
        [row["by"], type_name(row["dtype"]), row["n"], f"{row['mean']:.3g}", f"{row['worst']:.3g}"]
        for row in card.records_of("accumulator") if "mean" in row
    ]  # fmt: skip
    return table(["sums by", "type", "terms", "mean error over u S", "worst"], rows)


def _training(card: Card) -> Lines:
    rows = [
        [f"{row['network']} {row['size']}", row["batch"], row["arm"], f"{row['images_s']:.0f}",
         f"{row['ratio']:.2f}"]
        for row in card.records_of("training") if "images_s" in row
    ]  # fmt: skip
    return table(["training", "batch", "arm", "images a second", "of torch.nn"], rows)


def _estimate(card: Card) -> Lines:
    try:
        found = fit.timed_configurations(card.records_of("tuned"))
        sms = next((row["sms"] for row in card.rows if "sms" in row), 0)
        return table(fit.COLUMNS, fit.losses(found, sms, card.rows)[0]) if found else []
    except ImportError:
        return []


# The tables of a card in this order; the keys are the rows of the list of missing measurements.
Parts = dict[str, Callable[[Card], Lines]]
SUMMARY: Parts = {
    "kernels compared with the oracle on a card": _correctness,
    "our kernels against cuDNN, by network": _networks,
    "fused epilogues against cuDNN's": _fused,
    "training steps": _training,
}
BY_LINE: Parts = {
    "by layer": _layers,
    "where cuDNN was faster, and why": _losses,
    "truncation of tensor-core sums": _accumulated,
    "what the order of the estimate loses": _estimate,
}
PAGES = {"performance.md": SUMMARY, "triton/speed.md": BY_LINE}


def section(card: Card, parts: Parts) -> Lines:
    lines, missing = [], []
    for name, part in parts.items():
        found = part(card)
        lines += [f"#### {name[0].upper()}{name[1:]}", "", *found] if found else []
        missing += [] if found else [name]
    return [*lines, f"Not measured on this card: {'; '.join(missing)}.", ""] if missing else lines


def _plots(card: Card, figures: Path) -> Lines:
    """Draw our fastest kernel of each line next to the reference of that run."""
    theirs = [
        {"line": row["line"], "arm": row["against"], "median_ms": row["ratio"] * row["median_ms"]}
        for row in card.best
    ]
    ours = [row | {"arm": "ours"} for row in card.best]
    named = [row | {"arm": row["suite"]} for row in card.best]
    slug, lines = card.name.lower().replace(" ", "_"), []
    roofline, ratios = (figures / f"{slug}_{kind}.png" for kind in ("roofline", "ratios"))
    if plots.roofline_plot([*ours, *theirs], roof_of(card.rows), roofline):
        lines += [f"![Rates over intensity on {card.name}](figures/{roofline.name})", ""]
    if plots.ratios_plot([*named, *theirs], ratios):
        lines += [f"![cuDNN's time over ours on {card.name}](figures/{ratios.name})", ""]
    return lines


def section_lines(cards: Sequence[Card], parts: Parts, figures: Path) -> Lines:
    """Return the section of a page; the summary also has the machine and the plots."""
    if not cards:
        return table(["what", "number"], [[name, NOTHING] for name in parts])
    lines = []
    for card in cards:
        top = [*_machine(card), *_plots(card, figures)] if parts is SUMMARY else []
        lines += [f"### {card.name}", "", *top, *section(card, parts)]
    return lines


def report(records_: Path, folder: Path) -> None:
    """Write the tables and plots of a file of records into `folder`, as ``report.md``."""
    rows, broken = records.read(records_)
    timed = latest_per_point([row for row in rows if "median_ms" in row])
    refused = [row for row in rows if row.get("what") == "refused"]
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    lines = [
        *section_lines([read(records_)], SUMMARY, folder / "figures"),
        *section(read(records_), BY_LINE),
        *table(MEANS, [[*key, f"{mean:.2f}", count] for *key, mean, count in means(timed)]),
        *table(["refused", "arm", "why"], [[r["line"], r["arm"], r["why"]] for r in refused]),
        *table(
            ["line", "arm", "ms: median [fastest, third quartile]", "of the roof", "verdict"],
            [
                [r["line"], r["arm"], spread(r), f"{r['roof']:.0%}" if "roof" in r else "",
                 r.get("verdict", "")]
                for r in timed
            ],
        ),
        *([f"{len(broken)} lines could not be read."] if broken else []),
    ]  # fmt: skip
    path = folder / "report.md"
    path.write_text("\n".join(lines), "utf-8")
    print(path)


def main(folder: Path = records.RESULTS / "cards", *, docs: Path = DOCS) -> int:
    """Write the cards of `folder` into the pages; exit status 2 if BEGIN or END is missing."""
    cards = [read(path) for path in sorted(folder.glob("*.jsonl"))]
    for name, parts in PAGES.items():
        text = (docs / name).read_text("utf-8")
        before, begun, rest = text.partition(BEGIN)
        _, ended, after = rest.partition(END)
        if not (begun and ended):
            print(f"{name} has no line {BEGIN} before a line {END}")
            return 2
        lines = section_lines(cards, parts, docs / "figures")
        made = "\n".join([f"{before}{BEGIN}", "", *lines, f"{END}{after}"])
        (docs / name).write_text(made, "utf-8")
    print(f"{', '.join(PAGES)}: {', '.join(card.name for card in cards) or NOTHING}")
    return 0
