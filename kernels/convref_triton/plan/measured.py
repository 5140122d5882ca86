"""The fastest configurations on a card, for lines that a tuner has timed: `measured/*.json`.

A row names the kernel, the tile and a hash of the kernel's source. A row of another source, or of
another card, is ignored. `python -m convref_triton.plan.measured RESULTS.jsonl` makes a file
for a card from the records of `convref bench tune`. Under "timed_as" a file names the source that
was timed where a later one has the same PTX, grid and arguments on all timed lines.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from convref.case import Call, parse
from convref.ops import ConvProblem, WindowProblem

from ..common.geometry import geometry

FOLDER = Path(__file__).parent / "measured"
# "auto" chooses this backend if its time was at most this share of the best other, in RUNS runs.
AT_MOST, RUNS = 0.97, 2
Row = Mapping[str, Any]


def line_of(call: Call, role: str) -> str:
    """Return the line under which one result of a call is tuned: alone, and without a bias."""
    problem = call.problem
    if call.op != "conv":
        return str(call)
    assert isinstance(problem, ConvProblem)
    if call.signature.maskable:
        return str(replace(call, mask=tuple(name == role for name in call.signature.results)))
    bare = replace(problem, bias=False)
    return str(replace(call, problem=bare, tangents=call.tangents.replace("b", "")))


def class_of(line: str) -> str:
    """Return the class of a line: everything but its sizes, and the power of two of each size.

    A line of an op without windows is a class of its own.
    """
    call = parse(line).call
    if not isinstance(call.problem, WindowProblem):
        return line
    problem, shape = call.windows, geometry(call.windows)
    conv = isinstance(problem, ConvProblem)
    channels = (shape.big_channels, shape.small_channels) if conv else (shape.groups,)
    sizes = (problem.n, *channels, *problem.output)
    role, transposed = "".join(call.wanted), conv and problem.transposed
    kind = (call.op, call.pass_, role, call.dtype, call.math, transposed, call.specs[0].order)
    taps = (problem.filter, problem.stride, problem.dilation, conv and shape.groups > 1)
    return repr((*kind, *taps, tuple(size.bit_length() for size in sizes)))


@cache
def table(card: str) -> dict[str, Row]:
    path = FOLDER / f"{slug(card)}.json"
    if not path.exists():
        return {}
    return json.loads(path.read_text("utf-8"))["rows"]


def slug(card: str) -> str:
    """Return a card's name as a file's.

    >>> slug("NVIDIA H200")
    'nvidia_h200'
    """
    return "".join(c if c.isalnum() else "_" for c in card.lower()).strip("_")


def look_up(call: Call, role: str, card: str) -> tuple[Row, str] | None:
    """Return the row for one result of a call, and its kind of match; None if there is none."""
    rows = table(card)
    if not rows:
        return None
    line = line_of(call, role)
    for key, name in ((line, "measured"), (class_of(line), "measured on its class")):
        if key in rows:
            return rows[key], name
    return None


def is_fastest(call: Call, card: str) -> bool:
    """Return whether, for every result of a call, we were faster than all others on a card."""
    rows = (table(card).get(line_of(call, role), {}) for role in call.wanted)
    ratios = [row.get("ratios", []) for row in rows]
    return all(len(found) >= RUNS and max(found) <= AT_MOST for found in ratios)


def rows_of(runs: Iterable[Iterable[Row]]) -> dict[str, Row]:
    """Return the fastest configuration of each line of a tuner's runs, and of each class.

    A line's row has the ratio of our best time to the best other one, by run. The row of a
    class is the configuration whose time, as a multiple of each line's best, is least in the worst
    case.
    """
    times: dict[str, dict[str, float]] = {}
    ratios: dict[str, list[float]] = {}
    for records in runs:
        best: dict[str, tuple[float, float]] = {}
        for record in records:
            if record.get("what") != "tuned":
                continue
            line, ms = record["line"], record["median_ms"]
            ours, others = best.get(line, (inf, inf))
            if "configuration" in record:
                name = json.dumps(record["configuration"], sort_keys=True)
                known = times.setdefault(line, {})
                known[name] = max(ms, known.get(name, 0.0))  # the slower of two runs is the safer
                best[line] = min(ours, ms), others
            else:
                best[line] = ours, min(others, ms)
        for line, (ours, others) in best.items():
            if max(ours, others) < inf:
                ratios.setdefault(line, []).append(round(ours / others, 4))
    rows = {line: _row(ms, ratios.get(line, [])) for line, ms in times.items()}
    return rows | _classes(times)


def _row(ms: Mapping[str, float], ratios: list[float]) -> Row:
    return json.loads(min(ms, key=lambda name: ms[name])) | {"ratios": ratios}


def _classes(times: Mapping[str, Mapping[str, float]]) -> dict[str, Row]:
    lines: dict[str, list[dict[str, float]]] = {}
    for line, ms in times.items():
        least = min(ms.values())
        lines.setdefault(class_of(line), []).append({name: t / least for name, t in ms.items()})
    rows = {}
    for name, relative in lines.items():
        common = set.intersection(*map(set, relative)) or set(relative[0])
        worst = {c: max(line.get(c, inf) for line in relative) for c in sorted(common)}
        rows[name] = json.loads(min(worst, key=lambda c: worst[c]))
    return rows


def main(paths: list[str]) -> int:
    """Write one file per card from tuners' records, one path per run; exit status 0."""
    runs: dict[str, list[list[Row]]] = {}
    for path in paths:
        records = [json.loads(text) for text in Path(path).read_text("utf-8").splitlines()]
        cards = {record["card"] for record in records if record.get("what") == "tuning"}
        for card in cards:
            runs.setdefault(card, []).append(records)
    FOLDER.mkdir(exist_ok=True)
    for card, found in runs.items():
        rows = rows_of(found)
        text = json.dumps({"card": card, "rows": rows}, indent=1, sort_keys=True)
        (FOLDER / f"{slug(card)}.json").write_text(text + "\n", "utf-8")
        print(f"{card}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
