"""The log of a campaign: JSON lines, appended at once, read back by a resumed campaign or a report.

A log is untrusted input, and its last line may be cut off. Nothing in it names a file or is
executed; counts, verdicts and case lines are checked, and sizes are limited.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..case import parse
from ..errors import invalid, shorten
from .causes import KINDS, Failure
from .examine import VERDICTS, Finding

MAX_LOG = 1 << 30  # bytes of one log
MAX_EVENT = 4 << 20  # bytes of one of its lines
MAX_TEXT = 2_000  # characters of one text
MAX_FINDINGS = 100_000  # kept of one log

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)  # of an event

Key = tuple[str, ...]  # op, pass, dtype, verdict, tier


class Log:
    """Appends events; a full disk ends the log, not the campaign."""

    def __init__(self, path: Path | None) -> None:
        self.file: Any = None
        self.error = ""
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self.file = path.open("a", encoding="utf-8")
            except OSError as error:
                raise invalid("log", f"{path}: {error.strerror}") from None
            self._lock(path)

    def _lock(self, path: Path) -> None:
        """Refuse a file that another campaign writes: chunks would be counted twice."""
        import fcntl

        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise invalid(
                "log", f"{path} is in use by another check, needs a file of its own"
            ) from None
        except OSError:  # a file system without locks
            return

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        if self.file is None:
            return
        try:
            self.file.write(json.dumps({"event": event, **fields}) + "\n")
            self.file.flush()
        except OSError as error:
            self.error = f"the log ended early: {error.strerror}"
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            with contextlib.suppress(OSError):  # what is still buffered may not fit either
                self.file.close()
        self.file = None


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a log; a line that is cut off, malformed or giant is an empty event."""
    try:
        size = 0
        with path.open("rb") as file:
            while text := file.readline(MAX_EVENT):
                size += len(text)
                if size > MAX_LOG:
                    raise invalid("report", f"{path} has more than {MAX_LOG >> 20} MiB")
                if text.strip():
                    yield _event(text)
    except OSError as error:
        raise invalid("report", f"{path}: {error.strerror}") from None


def _event(text: bytes) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


@dataclass
class Part:
    """The report of one chunk: counts, findings, the arm, and whether it is complete."""

    counts: Counter[Key] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    done: bool = False
    arm: str = "plain"

    def event(self, chunk: int) -> dict[str, Any]:
        """Return the fields of a report event."""
        return {
            "chunk": chunk,
            "counts": [[list(key), n] for key, n in self.counts.items()],
            "findings": [finding.as_dict() for finding in self.findings],
            "done": self.done,
            "arm": self.arm,
        }


def add_report(parts: dict[int, Part], event: dict[str, Any]) -> None:
    """Add a report event to its chunk, unless that is complete; one of `MALFORMED` is raised."""
    new = Part(done=bool(event["done"]), arm=text_of(event.get("arm", "plain"), 200))
    for key, n in event["counts"]:
        op, pass_, dtype, verdict, tier = (text_of(part, 200) for part in key)
        if verdict not in VERDICTS or not 0 <= int(n) <= 10**9:
            raise ValueError(f"{n} of {verdict}")
        new.counts[op, pass_, dtype, verdict, tier] += int(n)
    room = MAX_FINDINGS - sum(len(part.findings) for part in parts.values())
    new.findings = [_finding(found) for found in event["findings"][:room]]
    held = parts.setdefault(int(event["chunk"]), Part(arm=new.arm))
    if not held.done:
        held.counts.update(new.counts)
        held.findings += new.findings
        held.done = new.done


def _finding(event: dict[str, Any]) -> Finding:
    _check(event, "line")
    return Finding(
        event["line"],
        event["verdict"],
        text_of(event.get("tier", ""), 200),
        text_of(event.get("reason", ""), MAX_TEXT),
        text_of(event.get("role", ""), 200),
        tuple(int(i) for i in event.get("index", ())[:8]),
        float(event.get("worst", 0.0)),
        text_of(event.get("arm", "plain"), 200),
    )


def failure_of(event: dict[str, Any]) -> Failure:
    """Return the failure of an event, without its command: that is for a shell."""
    _check(event, "line", *(["first"] if event["first"] else []))
    return Failure(
        event["line"],
        event["verdict"],
        text_of(event["reason"], MAX_TEXT),
        tuple(text_of(need, 80) for need in event["needs"][:40]),
        tuple(text_of(name, 80) for name in event["independent"][:40]),
        int(event["seen"]),
        event["first"],
        text_of(event.get("arm", "plain"), 200),
        kind=_kind(event.get("kind", "")),
        also=tuple(text_of(where, 4096) for where in event.get("also", ())[:100]),
    )


def _kind(name: Any) -> str:
    if name not in (*KINDS, ""):
        raise ValueError(f"kind is {name!r}")
    return str(name)


def _check(event: dict[str, Any], *lines: str) -> None:
    if event["verdict"] not in VERDICTS:
        raise ValueError(f"verdict is {event['verdict']!r}")
    for name in lines:
        parse(text_of(event[name], 4096))


def text_of(value: Any, limit: int) -> str:
    """Return a text cut to `limit` characters; anything else is a TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text is needed")
    return shorten(value, limit)
