"""The committed part of a GPU run: the last of each record, short numbers, one file a card."""

import json
import re
from pathlib import Path
from typing import Any

from .. import records
from ..records import Record
from .runner import card_of

# Kinds of records that are kept, and the fields that identify a record of that kind.
KEPT: dict[str, tuple[str, ...]] = {
    "machine": (),
    "peaks": (),
    "accumulator": ("by", "dtype", "n"),
    "properties": ("backend", "chunk"),
    "marked-file": ("file",),
    "training": ("network", "size", "batch", "dtype", "arm"),
    "step": ("step",),
    "point": ("line", "arm"),
    "kernels": ("line", "arm"),
    "refused": ("line", "arm", "configuration"),
    "tuning": ("backend",),
    "tuned": ("line", "arm", "configuration"),
}
# Fields that are left out, by kind of record: how a time was measured, and the output of tests.
_TIMED = (
    "backend",
    "calls",
    "cold",
    "copies",
    "flags",
    "how",
    "key",
    "noise",
    "samples",
    "sources",
)
DROPPED = {"point": _TIMED, "tuned": _TIMED, "marked-file": ("said",)}
DIGITS = 5


def distil(rows: list[Record]) -> dict[str, list[Record]]:
    """Return the records to keep by card: of equal ones the last, absent steps left out."""
    found: dict[str, dict[str, Record]] = {}
    for row in rows:
        if row.get("what") not in KEPT or row.get("status") == "absent":
            continue
        card = card_of(str(row.get("key", ""))).partition(",")[0] or "unknown"
        name = json.dumps([row["what"], *(row.get(field) for field in KEPT[row["what"]])])
        found.setdefault(card, {}).pop(name, None)  # the last one takes the last place
        dropped = DROPPED.get(row["what"], ())
        kept = {field: value for field, value in row.items() if field not in dropped}
        found[card][name] = {field: _short(value) for field, value in kept.items()}
    return {card: list(kept.values()) for card, kept in found.items()}


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(inner) for name, inner in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def main(
    records_: Path = records.RESULTS / "gpu" / "gpu.jsonl",
    *,
    folder: Path = records.RESULTS / "cards",
) -> int:
    """Write a file per card into `folder`, its former content replaced; print their names."""
    rows, broken = records.read(records_)
    if broken:
        print(f"{records_.name}: lines {broken} are not JSON and are left out")
    folder.mkdir(parents=True, exist_ok=True)
    for card, kept in distil(rows).items():
        slug = re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-")
        path = folder / f"{slug}.jsonl"
        lines = (json.dumps(row, separators=(",", ":"), sort_keys=True) for row in kept)
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        print(f"{path}: {len(kept)} records")
    return 0
