"""How soon the court finds each fault: ``python -m convref_faults.campaign [NAME ...]``.

Campaigns run without worker processes, on the examples that ``convref check`` draws. Those that
draw the same examples are one: every example is given to each fault that was not found yet. Time is
counted in examples, so that a busy machine does not change the outcome: 40,000 are what 60 seconds
give for convolutions on two processors that do nothing else.
"""

import argparse
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from convref.case import Case, parse
from convref.conformance.examine import HARMLESS, Finding, examine
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.shrink import reproducible, shrink, weight
from convref.conformance.surroundings import with_surroundings
from convref.conformance.workers.engine import available_jobs
from convref.conformance.workers.worker import REPEAT_EVERY
from convref.ops import GROUPS

from . import FAULTS
from .base import Fault

MINUTE = 40_000


class Found(NamedTuple):
    """The first finding of a fault, and its example's number."""

    finding: Finding
    examples: int


def axes(fault: Fault, seed: int) -> Axes:
    """Return what a user would ask for: the family of the fault's first op."""
    ops = next((group for group in GROUPS.values() if fault.ops[0] in group), fault.ops[:1])
    asked = () if fault.ops[0] == "conv" else ops
    return Axes(seed, ops=asked, dtypes=fault.dtypes, large=True)


def search(names: Sequence[str], seed: int, examples: int = MINUTE) -> dict[str, Found]:
    """Return the first finding of each fault in a campaign of this seed; all have the same axes."""
    missing, found = [FAULTS[name] for name in names], dict[str, Found]()
    for fault in missing:
        getattr(fault, "kept", {}).clear()
    (of,) = {axes(fault, seed) for fault in missing}
    for number in range(-(-examples // of.size)):
        for i, case in enumerate(chunk_cases(of, number)):
            for fault in [fault for fault in missing if fault.reaches(case.call)]:
                finding = _finding(fault, with_surroundings(case, i, fault), i)
                if finding.verdict not in HARMLESS:
                    found[fault.name] = Found(finding, number * of.size + i + 1)
                    missing.remove(fault)
        if not missing:
            break
    return found


def _finding(fault: Fault, case: Case, index: int) -> Finding:
    if "pages" in case.around:  # a write to a protected page would end this process
        if getattr(fault, "ends_process", False):
            return Finding(str(case), "crash")
        case = replace(case, around=())
    return examine(case, fault, repeat=index % REPEAT_EVERY == 0)


def shrunk(name: str, finding: Finding) -> Case:
    """Return the shrunk case of a finding."""
    fault = FAULTS[name]

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


def searches(
    pool: Executor, names: Sequence[str], seeds: int, examples: int
) -> dict[str, list[Found]]:
    """Return what the campaigns of all seeds find, by name; `pool` runs them."""
    together = defaultdict(list)
    for name in names:
        together[axes(FAULTS[name], 0)].append(name)
    tasks = [
        pool.submit(search, group, seed, examples)
        for seed in range(seeds)
        for group in together.values()
    ]
    found: dict[str, list[Found]] = {name: [] for name in names}
    for task in tasks:
        for name, one in task.result().items():
            found[name].append(one)
    return found


def report(pool: Executor, found: dict[str, list[Found]], seeds: int) -> Iterator[str]:
    """Yield a row for each fault, and one for all."""
    ends = {name for name in found if getattr(FAULTS[name], "ends_process", False)}
    chosen = {name: random.Random(0).choice(all_).finding for name, all_ in found.items() if all_}
    tasks = {n: pool.submit(shrunk, n, finding) for n, finding in chosen.items() if n not in ends}
    yield f"{'fault':40} found  examples: median, most; shrunk line"
    larger = 0
    for name, all_ in found.items():
        row = f"{name:40} {len(all_):2}/{seeds}"
        if all_:
            counts = [one.examples for one in all_]
            row += f" {statistics.median(counts):9,.0f} {max(counts):7,}  {chosen[name].line}"
        if name in tasks:
            case = tasks[name].result()
            known = is_minimal(case, FAULTS[name])
            larger += not known
            row = row.replace(chosen[name].line, str(case)) + "  LARGER THAN KNOWN" * (not known)
        yield row
    every = [one.examples for all_ in found.values() for one in all_]
    full = sum(len(all_) == seeds for all_ in found.values())
    yield (
        f"{full} of {len(found)} faults are found by every seed, {len(every)} of "
        f"{len(found) * seeds} searches find their fault; median {statistics.median(every):,.0f} "
        f"examples; {larger} of {len(tasks)} shrunk lines are larger than the smallest known"
    )


def main() -> None:
    """Run the campaigns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--examples", type=int, default=MINUTE)
    parser.add_argument("--jobs", type=int, default=available_jobs())
    given = parser.parse_args()
    with ProcessPoolExecutor(given.jobs) as pool:
        found = searches(pool, given.names or list(FAULTS), given.seeds, given.examples)
        for row in report(pool, found, given.seeds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
