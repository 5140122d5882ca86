"""How soon the court finds the bugs of a library.

Usage: python tools/how_soon.py NAME [--minutes M] [--known-bugs FILE], or without a name to render
docs/how-soon.md. NAME is a backend as `convref check` takes it. All ops are drawn, known bugs
included; a failing case in the region of a known bug shows the root cause of that bug. Minutes are
of the processor, of this process and its workers, because other work does not change them. The
data is docs/figures/how_soon/LIBRARY.json; where build/how_soon has the log, the next run
continues it.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import bugs
import psutil

from convref import knownbugs
from convref.conformance import campaign
from convref.conformance.examine import HARMLESS
from convref.conformance.generate import CHUNK, Axes
from convref.conformance.workers.engine import preload
from convref.dispatch import load
from convref.ops import FAMILY

ROOT = Path(__file__).resolve().parent.parent
DATA, LOGS = ROOT / "docs" / "figures" / "how_soon", ROOT / "build" / "how_soon"
PAGE = ROOT / "docs" / "how-soon.md"
MINUTES = (1, 10, 60)
EVERY_SECONDS = 0.2  # between two looks at the processes; what one of them spends last is lost
KEPT_SECONDS = 30.0  # the data is written that often

Found = dict[str, Any]


class Processor:
    """The processor time of this process and of all that it has started, in seconds."""

    def __init__(self) -> None:
        self.me = psutil.Process()
        self.spent: dict[tuple[int, float], float] = {}  # by process id and start
        self.looked = 0.0

    def seconds(self) -> float:
        """Return the time; processes that have ended count with what they had spent when seen."""
        if time.monotonic() - self.looked > EVERY_SECONDS:
            self.looked = time.monotonic()
            for one in (self.me, *self.me.children(recursive=True)):
                try:
                    used = one.cpu_times()
                    self.spent[one.pid, one.create_time()] = used.user + used.system
                except psutil.Error:
                    continue
        return sum(self.spent.values())


def causes(library: str) -> dict[str, str]:
    """Return the root cause, a bug's id, of each region of a library; conventions have none."""
    every = [bug for bug in bugs.load() if bug["file"] == library]
    first = bugs.root_causes(every)
    return {
        region: first[bugs.cause(bug)]["id"]
        for bug in every
        if bug["severity"] != "convention"
        for region in bug["regions"]
    }


class Recorder:
    """Watches a campaign, and keeps the data of a library up to date."""

    def __init__(self, library: str, minutes: float) -> None:
        self.library, self.limit, self.processor = library, 60 * minutes, Processor()
        self.path, self.log = DATA / f"{library}.json", LOGS / f"{library}.jsonl"
        self.found: Found = {"seconds": 0.0, "first": {}}
        if self.path.exists() and self.log.exists():
            self.found = json.loads(self.path.read_text("utf-8"))
        self.before = self.written = self.found["seconds"]

    def watch(self, outcome: campaign.Outcome, note: str) -> None:
        """Add the regions that have a failing case now; end the campaign at the limit."""
        found, tally = self.found, outcome.tally
        seconds = self.before + self.processor.seconds()
        found |= {"seconds": round(seconds, 1), "examples": tally.examples}
        found["others"] = sum(one.verdict not in HARMLESS for one in tally.findings)
        failed = {tier for *_, verdict, tier in tally.counts if verdict == "known"}
        for region in failed - found["first"].keys():
            found["first"][region] = [found["seconds"], tally.examples]
        if seconds > self.limit:
            raise KeyboardInterrupt
        if seconds > self.written + KEPT_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the data."""
        self.written = self.found["seconds"]
        self.found["causes"] = curve(self.library, self.found["first"])
        DATA.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.found, indent=1) + "\n", "utf-8")


def run(name: str, minutes: float, known: Path | None) -> Found:
    """Run a campaign until `minutes` are spent; write and return what it found, and when."""
    backend = load(name)
    recorder = Recorder(backend.name, minutes)
    more = knownbugs.parse_regions(known.read_text("utf-8"), known.name) if known else ()
    size, large = getattr(backend, "chunk", CHUNK), getattr(backend, "large", True)
    settings = campaign.Settings(
        name,
        Axes(ops=tuple(FAMILY), size=size, large=large),
        jobs=1,
        log=recorder.log,
        shrinks=False,
        known=knownbugs.regions_of(name, more),
        retest=True,
    )
    preload([name])
    outcome = campaign.run(settings, recorder.watch)
    recorder.found["versions"] = outcome.tally.fingerprint
    recorder.write()
    return recorder.found


def curve(library: str, first: dict[str, list[float]]) -> dict[str, float]:
    """Return after how many seconds each root cause was found, the first one first."""
    of, found = causes(library), {}
    for region, (seconds, _) in sorted(first.items(), key=lambda one: one[1]):
        if region in of:
            found.setdefault(of[region], seconds)
    return found


def counts(found: Found) -> list[str]:
    """Return how many root causes were found within each of `MINUTES`."""
    return [
        str(sum(seconds <= 60 * minutes for seconds in found["causes"].values()))
        if found["seconds"] >= 60 * minutes
        else "not measured"
        for minutes in MINUTES
    ]


def page() -> str:
    """Return the page."""
    rows = []
    for path in sorted(DATA.glob("*.json")):
        found = json.loads(path.read_text("utf-8"))
        of = {*causes(path.stem).values()}
        versions = found["versions"]
        name = f"{path.stem} {versions.get(path.stem, '')}".strip()
        rate = f"{found['examples'] / found['seconds']:.0f}"
        rows.append(" | ".join([name, str(len(of)), *counts(found), rate]))
    minutes = " | ".join(f"{m} min" for m in MINUTES)
    table = f"| library | registered | {minutes} | examples a second |\n| --- |{' --- |' * 5}\n"
    return HEAD + table + "".join(f"| {row} |\n" for row in rows) + TAIL


HEAD = """<!-- made by tools/how_soon.py from docs/figures/how_soon -->
# How soon bugs are found

How many distinct root causes of [the bugs](bugs-found.md) `convref check` finds within some
minutes of one processor, over all ops and with one seed, known bugs not skipped. A failing case in
the region of a known bug counts for the root cause of that bug; failing cases outside all regions,
and conventions, are not counted. *Registered* are the root causes that have a region, those that
got one after the campaign too. Minutes are of processor time (of the workers and of the process
that runs them, imports included), since other work on the machine does not change them.

The first finding on PyTorch 2.13 comes after 0.9 seconds: the median of ten seeds, over
convolutions, with two workers (`convref bench marks first-finding`).

"""
TAIL = """
```{figure} figures/how_soon.svg
Root causes found, by minutes of one processor (logarithmic).
```

`python tools/how_soon.py NAME --minutes 10` repeats a line of the table, for a library whose
adapter is in docs/examples with its regions: `PYTHONPATH=docs/examples python tools/how_soon.py
openvino_backend:backend --known-bugs docs/examples/known_bugs.txt`. Without a name it writes this
page; `python docs/figures/draw.py` draws the figure.
"""


def main(words: list[str]) -> int:
    """Run a campaign, or render the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--minutes", type=float, default=MINUTES[-1])
    parser.add_argument("--known-bugs", type=Path)
    given = parser.parse_args(words)
    if not given.name:
        PAGE.write_text(page(), "utf-8")
        return 0
    found = run(given.name, given.minutes, given.known_bugs)
    print(dict(zip(MINUTES, counts(found))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
