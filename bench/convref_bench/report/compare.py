"""Two files of records side by side: the same line on the same arm, then and now."""

from pathlib import Path

from .. import records
from ..timing.measure import Timing, geometric_mean, verdict


def pairs(a: Path, b: Path) -> list[tuple[str, str, Timing, Timing]]:
    """Return (line, arm, timing in a, timing in b) for points in both files, the latest of each."""
    old, new = (
        {(r["line"], r["arm"]): Timing.of(r) for r in records.read(path)[0] if "median_ms" in r}
        for path in (a, b)
    )
    return [(*key, old[key], new[key]) for key in old if key in new]


def main(a: Path, b: Path) -> int:
    """Print each pair with the verdict on b; exit status 1 if something became slower."""
    from convref.cli.output import print_table

    from .summary import spread

    found = pairs(a, b)
    verdicts = [verdict(new, old) for _, _, old, new in found]
    ratios = [old.median_ms / new.median_ms for _, _, old, new in found]
    rows = [
        [line, arm, *(spread(one.record()) for one in both), f"{ratio:.3f}", word]
        for (line, arm, *both), ratio, word in zip(found, ratios, verdicts)
    ]
    print_table(["line", "arm", "a", "b", "a / b", ""], rows, f"{a} -> {b}, ms")
    slower = verdicts.count("slower")
    if ratios:
        print(f"geometric mean a / b: {geometric_mean(ratios):.3f}, {slower} slower")
    return int(slower > 0)
