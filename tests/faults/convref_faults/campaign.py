"""How soon the court finds each fault: ``python -m convref_faults.campaign [NAME ...]``.

A campaign is run in this process, on the examples that ``convref check`` draws. Time is counted in
examples, so that a busy machine does not change the outcome: 40,000 are what 60 seconds give for
convolutions on two processors that do nothing else.
"""

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from convref.case import Case, parse
from convref.conformance.examine import HARMLESS, Finding, examine
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.shrink import reproducible, shrink, weight
from convref.conformance.surroundings import surrounded
from convref.conformance.worker import REPEAT_EVERY
from convref.ops import GROUPS

from . import FAULTS
from .base import Fault

MINUTE = 40_000


@dataclass(frozen=True)
class Found:
    """The first finding of a fault: its example's number, and the seconds until then."""

    finding: Finding
    examples: int
    seconds: float


def axes(fault: Fault, seed: int) -> Axes:
    """Return what a user would ask for: the family of the fault's first op."""
    ops = next((group for group in GROUPS.values() if fault.ops[0] in group), fault.ops[:1])
    asked = () if fault.ops[0] == "conv" else ops
    return Axes(seed, ops=asked, dtypes=fault.dtypes, large=True)


@cache
def chunk(of: Axes, number: int) -> list[Case]:
    return chunk_cases(of, number)


def stream(fault: Fault, seed: int, examples: int) -> Iterator[tuple[int, Case]]:
    """Yield the number and the case of each example that the fault touches."""
    of = axes(fault, seed)
    for number in range(-(-examples // of.size)):
        for i, drawn in enumerate(chunk(of, number)):
            if fault.reaches(drawn.call):
                yield number * of.size + i, surrounded(drawn, i, fault)


def first(fault: Fault, seed: int, examples: int = MINUTE) -> Found | None:
    """Return the first finding of a campaign, None if there is none."""
    began = time.monotonic()
    getattr(fault, "kept", {}).clear()
    for number, drawn in stream(fault, seed, examples):
        case = drawn
        if "pages" in case.around:
            if getattr(fault, "ends_process", False):
                line = str(case)
                return Found(Finding(line, "crash"), number + 1, time.monotonic() - began)
            case = replace(case, around=())  # a write would end this process
        finding = examine(case, fault, repeat=number % REPEAT_EVERY == 0)
        if finding.verdict not in HARMLESS:
            return Found(finding, number + 1, time.monotonic() - began)
    return None


def shrunk(fault: Fault, finding: Finding) -> Case:
    """Return the shrunk case of a finding."""

    def fails(cases: list[Case]) -> list[bool]:
        verdicts = []
        for case in cases:
            getattr(fault, "kept", {}).clear()
            verdicts.append(examine(case, fault, repeat=True).verdict)
        return [verdict == finding.verdict for verdict in verdicts]

    start = parse(finding.line)
    return shrink(reproducible(start, fails) or start, fails, batch=1).case


def is_minimal(case: Case, fault: Fault) -> bool:
    """Return whether a case is no larger than the smallest one known, whatever its seed."""
    return weight(case)[:-1] <= weight(parse(fault.minimal))[:-1]


def report(fault: Fault, seeds: int, examples: int) -> bool:
    """Print a row of the table; return whether every seed found the fault."""
    found = [f for seed in range(seeds) if (f := first(fault, seed, examples))]
    row = f"{fault.name:40} {len(found):2}/{seeds}"
    if found:
        count = statistics.median(f.examples for f in found)
        seconds = statistics.median(f.seconds for f in found)
        row += f" {count:9,.0f} {seconds:7.1f} s"
        if getattr(fault, "ends_process", False):
            row += f"  {found[0].finding.line}"
        else:
            case = shrunk(fault, random.Random(0).choice(found).finding)
            row += f"  {case}{'' if is_minimal(case, fault) else '  NOT MINIMAL'}"
    print(row, flush=True)
    return len(found) == seeds


def main() -> None:
    """Run the campaigns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--examples", type=int, default=MINUTE)
    given = parser.parse_args()
    print(f"{'fault':40} found  median examples, seconds to the first, its shrunk line")
    every = [report(FAULTS[name], given.seeds, given.examples) for name in given.names or FAULTS]
    print(f"{sum(every)} of {len(every)} faults are found by every seed")


if __name__ == "__main__":
    main()
