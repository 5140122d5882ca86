"""Records: appended JSON lines that survive a killed process, and their reader."""

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

Record = dict[str, Any]
RESULTS = Path(__file__).resolve().parents[1] / "results"


def append(path: Path, record: Record) -> None:
    """Append one record and wait until it is on the disk.

    A line that a killed process left unfinished is closed first.
    """
    line = json.dumps(record, allow_nan=False, separators=(",", ":"), sort_keys=True) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if file.tell() and not _ends_a_line(path):
            line = "\n" + line
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def read(path: Path) -> tuple[list[Record], list[int]]:
    """Return the records of a file, none if it is missing, and the numbers of broken lines."""
    records: list[Record] = []
    broken: list[int] = []
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            broken.append(number)
    return records, broken


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
