"""One run of a step of `make gpu`: its records, its deadline, and how it may end."""

import time
from pathlib import Path
from typing import Any

from .. import records
from ..timing.roofline import Roof
from ..timing.watch import is_fatal
from .runner import card_of


class NothingToDo(Exception):
    """A step has nothing to do here; the text is the reason."""


class OutOfTime(Exception):
    """The step reached its time limit; the next run continues it."""


class StepRun:
    def __init__(self, out: Path, seconds: float, key: str = "") -> None:
        self.out, self.end, self.key = out, time.monotonic() + seconds, key
        self.rows = records.read(out)[0]
        self.before = [row for row in self.rows if row.get("key") == key]
        known = [row for row in self.before if row.get("what") in ("point", "absent", "refused")]
        self.seen = {(row["line"], row["arm"]) for row in known}
        self.lost = {(row["line"], row["arm"]) for row in known if is_fatal(row)}

    def records_of(self, what: str) -> list[records.Record]:
        return [row for row in self.before if row.get("what") == what]

    def add(self, what: str, **fields: Any) -> None:
        records.append(self.out, {"what": what, "key": self.key, **fields})

    def check_time(self) -> None:
        if time.monotonic() > self.end:
            raise OutOfTime

    def refuse(self, line: str, arm: str, why: str) -> None:
        self.add("refused", line=line, arm=arm, why=why)

    def is_lost(self) -> bool:
        """Return whether the last record names an arm that lost the device."""
        return any(map(is_fatal, records.read(self.out)[0][-1:]))

    def roof(self) -> Roof | None:
        card = card_of(self.key)
        rows = (row for row in self.rows if row.get("what") == "peaks")
        peaks = [row for row in rows if card_of(row.get("key", "")) == card]
        return Roof(peaks[-1]["flops"], peaks[-1]["bytes_s"]) if peaks else None
