"""The summary of campaigns, and the sum of the logs of a campaign's shards."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import invalid
from ..campaign import Outcome
from ..causes import Failure, severity
from ..examine import HARMLESS, PASSED_OVER, VERDICTS, Finding
from ..log import MALFORMED, MAX_TEXT, Key, Part, add_report, failure_of, read_log, text_of


def count(n: int, noun: str) -> str:
    """Return a number and its noun: 1 log, 1,200 logs."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@dataclass
class Summary:
    """The results of campaigns, as the page shows them."""

    backend: str = ""
    axes: dict[str, Any] = field(default_factory=dict)  # the axes of the campaign, with the seed
    counts: Counter[Key] = field(default_factory=Counter)  # keyed (op, pass, dtype, verdict, tier)
    failures: list[Failure] = field(default_factory=list)  # shrunk, each cause once
    findings: list[Finding] = field(default_factory=list)  # every case that did not pass, as drawn
    fingerprint: dict[str, str] = field(default_factory=dict)
    elapsed: float = 0.0  # seconds of all campaigns together
    chunks: set[int] = field(default_factory=set)  # chunks that are complete
    sources: int = 0  # logs that were read; 0 is a campaign of this process
    dropped: int = 0  # events of the logs that were malformed
    # the chunks of the logs by number, `counts` in pieces
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def examples(self) -> int:
        """Return how many examples were judged or refused."""
        return sum(self.counts.values())

    @property
    def good(self) -> bool:
        """Return whether no verdict is worse than a refusal."""
        return all(key[3] in HARMLESS for key in self.counts)

    @property
    def word(self) -> tuple[str, str]:
        """Return the title of the campaign, and the verdict that gives its colour."""
        if not self.good:
            return "failures", "wrong"
        judged = any(n and key[3] not in PASSED_OVER for key, n in self.counts.items())
        return ("all right", "pass") if judged else ("nothing judged", "vacuous")

    def lines(self) -> tuple[str, ...]:
        """Return the line of each failure, then of each finding that was no pass."""
        found = [failure.line for failure in self.failures]
        found += [finding.line for finding in self.findings]
        return tuple(dict.fromkeys(found))

    def by_verdict(self) -> dict[str, int]:
        """Return the count of each verdict that was seen, worst last."""
        sums = Counter(dict.fromkeys(VERDICTS, 0))
        for key, n in self.counts.items():
            sums[key[3]] += n
        return {v: sums[v] for v in VERDICTS if sums[v]}


def summary(outcome: Outcome) -> Summary:
    """Return the Summary of a campaign that ran in this process."""
    tally, settings = outcome.tally, outcome.settings
    return Summary(
        settings.backend,
        dict(vars(settings.axes)),
        Counter(tally.counts),
        list(outcome.failures),
        list(tally.findings),
        dict(tally.fingerprint),
        outcome.elapsed,
        set(tally.chunks),
    )


def merge(paths: Sequence[Path]) -> Summary:
    """Return the sum of the logs of one campaign's shards; a chunk counts once.

    All must be of the same backend, seed and axes.
    """
    total = Summary()
    for path in paths:
        _add_log(total, path)
    for number, part in total.parts.items():
        total.counts.update(part.counts)
        total.findings += part.findings
        if part.done:
            total.chunks.add(number)
    unique = {(f.verdict, f.line): f for f in total.failures}
    total.failures = sorted(unique.values(), key=lambda f: severity(f.kind))
    return total


def save(found: Summary, path: Path) -> None:
    """Write merged logs as one log, which can be merged, shown, replayed and resumed again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start = {"event": "start", "backend": found.backend, "axes": found.axes, "shard": [0, 1]}
    parts = sorted(found.parts.items())
    events = [
        start,
        *({"event": "report", **part.event(number)} for number, part in parts),
        *({"event": "failure", **asdict(failure)} for failure in found.failures),
        {"event": "end", "elapsed": found.elapsed, "fingerprint": found.fingerprint},
    ]
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")


def _add_log(total: Summary, path: Path) -> None:
    parts: dict[int, Part] = {}
    started = False
    for event in read_log(path):
        if event.get("event") == "start":
            started = True
            _check_campaign(total, event, path)
            # a chunk that was cut off is run again, whole
            parts = {number: part for number, part in parts.items() if part.done}
            continue
        try:
            _add_event(total, parts, event)
        except MALFORMED:
            total.dropped += 1
    if not started:
        raise invalid("report", f"{path} is not a log of convref check")
    for number, part in parts.items():  # two shards never share a chunk; the same log twice does
        held = total.parts.setdefault(number, part)
        if not held.done and (part.done or part.counts.total() > held.counts.total()):
            total.parts[number] = part
    total.sources += 1


def _add_event(total: Summary, parts: dict[int, Part], event: dict[str, Any]) -> None:
    match event["event"]:
        case "report":
            add_report(parts, event)
        case "failure":
            total.failures.append(failure_of(event))
        case "end":
            total.elapsed += max(0.0, float(event["elapsed"]))
            found = {text_of(k, 60): text_of(v, 200) for k, v in event["fingerprint"].items()}
            total.fingerprint |= dict(list(found.items())[:50])
        case other:
            raise ValueError(other)


def _check_campaign(total: Summary, event: dict[str, Any], path: Path) -> None:
    backend, axes = str(event.get("backend"))[:200], event.get("axes")
    if not isinstance(axes, dict) or len(json.dumps(axes)) > MAX_TEXT:
        raise invalid("report", f"{path} is not a log of convref check")
    if total.sources and (backend, axes) != (total.backend, total.axes):
        what = f"{path} belongs to another campaign"
        raise invalid("report", f"{what}, needs logs of one backend, seed and choice of cases")
    total.backend, total.axes = backend, axes
