"""What was fastest on a card, for lines that a tuner has timed: `measured/*.json`.

A row names the kernel, the tile and a hash of the kernel's source. A row of another source, or of
another card, is ignored. `python -m convref_triton.measured RESULTS.jsonl` writes a card's file
from the records of `convref tune`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from convref.case import Call
from convref.line import parse

FOLDER = Path(__file__).parent / "measured"
Row = Mapping[str, Any]


def line_of(call: Call, role: str) -> str:
    """Return the line under which one result of a call is tuned: alone, and without a bias."""
    problem = call.conv
    if call.signature.maskable:
        return str(replace(call, mask=tuple(name == role for name in call.signature.results)))
    return str(replace(call, problem=replace(problem, bias=False), specs=call.specs))


def class_of(line: str) -> str:
    """Return the class of a line: what it computes with what, and each size's power of two."""
    call = parse(line).call
    problem = call.conv
    sizes = (problem.n, problem.c // problem.groups, problem.k // problem.groups, *problem.output)
    role = "".join(call.wanted)
    kind = (call.pass_, role, call.dtype, call.math, problem.transposed, call.specs[0].order)
    taps = (problem.filter, problem.stride, problem.dilation, problem.groups > 1)
    return repr((*kind, *taps, tuple(size.bit_length() for size in sizes)))


@cache
def table(card: str) -> dict[str, Row]:
    """Return the rows of a card by line and by class; none for a card that nobody has measured."""
    path = FOLDER / f"{slug(card)}.json"
    if not path.exists():
        return {}
    rows: dict[str, Row] = json.loads(path.read_text("utf-8"))["rows"]
    return rows


def slug(card: str) -> str:
    """Return a card's name as a file's.

    >>> slug("NVIDIA H200")
    'nvidia_h200'
    """
    return "".join(c if c.isalnum() else "_" for c in card.lower()).strip("_")


def look_up(call: Call, role: str, card: str) -> tuple[Row, str] | None:
    """Return the row for one result of a call, and where it was found; None if there is none."""
    rows = table(card)
    if not rows:
        return None
    line = line_of(call, role)
    for key, name in ((line, "measured"), (class_of(line), "measured on its class")):
        if key in rows:
            return rows[key], name
    return None


def rows_of(records: Iterable[Row]) -> dict[str, Row]:
    """Return the fastest configuration of each line of a tuner's records, and of each class.

    A class takes the configuration whose time, as a multiple of each line's best, is least in the
    worst case.
    """
    times: dict[str, dict[str, float]] = {}
    for record in records:
        if record.get("what") == "tuned" and "configuration" in record:
            name = json.dumps(record["configuration"], sort_keys=True)
            times.setdefault(record["line"], {})[name] = record["median_ms"]
    rows = {line: json.loads(min(ms, key=lambda name: ms[name])) for line, ms in times.items()}
    classes: dict[str, list[dict[str, float]]] = {}
    for line, ms in times.items():
        least = min(ms.values())
        classes.setdefault(class_of(line), []).append({n: t / least for n, t in ms.items()})
    for name, lines in classes.items():
        common = set.intersection(*map(set, lines)) or set(lines[0])
        best = min(sorted(common), key=lambda n: max(line.get(n, 1e9) for line in lines))
        rows[name] = json.loads(best)
    return rows


def main(paths: list[str]) -> int:
    """Write one file a card from tuners' records; exit status 0."""
    by_card: dict[str, list[Row]] = {}
    for path in paths:
        card = ""
        for text in Path(path).read_text("utf-8").splitlines():
            record = json.loads(text)
            card = record.get("card", card) if record.get("what") == "tuning" else card
            by_card.setdefault(card, []).append(record)
    FOLDER.mkdir(exist_ok=True)
    for card, records in by_card.items():
        rows = rows_of(records)
        text = json.dumps({"card": card, "rows": rows}, indent=1, sort_keys=True)
        (FOLDER / f"{slug(card)}.json").write_text(text + "\n", "utf-8")
        print(f"{card}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
