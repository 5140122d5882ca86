"""Records in the terminal, ratios to a reference, geometric means."""

from functools import cache

from convref.case import MATHS, parse

from ..records import Record
from ..timing.measure import geometric_mean
from ..timing.point import PLAIN
from ..timing.roofline import Roof

Mean = tuple[str, str, str, str, float, int]  # as in MEANS
MEANS = ["arm", "against", "pass", "type", "geometric mean", "lines"]


def spread(row: Record) -> str:
    """Return ``median [fastest, third quartile]`` of a record, in milliseconds.

    >>> spread({"median_ms": 1.5, "low_ms": 1.25, "q3_ms": 2.0})
    '1.5 [1.25, 2]'
    """
    return f"{row['median_ms']:.3g} [{row['low_ms']:.3g}, {row['q3_ms']:.3g}]"


@cache
def kind(line: str) -> tuple[str, str]:
    """Return the pass and the number type of a line.

    >>> kind("conv.dgrad:n1c1k1_i3_f1:math=tf32"), kind("conv.fprop:n1c1k1_i3_f1")
    (('dgrad', 'f32 math=tf32'), ('fprop', 'f32'))
    """
    call = parse(line).call
    pass_ = line.partition(":")[0].partition(".")[2]
    return pass_, call.dtype if call.math == "ieee" else type_name(call.math)


def type_name(name: str) -> str:
    """Return how a number type of a record is shown: records name f32 with a math by the math.

    >>> type_name("bf16"), type_name("tf32")
    ('bf16', 'f32 math=tf32')
    """
    return f"f32 math={name}" if name in MATHS else name


def latest_per_point(rows: list[Record]) -> list[Record]:
    return list({(row["line"], row["arm"]): row for row in rows}.values())


def roof_of(rows: list[Record]) -> Roof | None:
    peaks = [row for row in rows if row.get("what") == "peaks"]
    return Roof(peaks[-1]["flops"], peaks[-1]["bytes_s"]) if peaks else None


def ratios(rows: list[Record]) -> list[tuple[Record, Record]]:
    """Return (row, the row it is compared with) wherever both were measured."""
    timed = [row for row in rows if "median_ms" in row]
    by = {(row["line"], row["arm"]): row for row in timed}
    found = []
    for row in timed:
        if "+" in row["arm"] and "against" not in row:
            continue  # eager operations are compared with nothing
        names = [row["against"]] if "against" in row else [] if row["arm"] in PLAIN else PLAIN
        there = [by[row["line"], name] for name in names if (row["line"], name) in by]
        found += [(row, other) for other in there[:1]]
    return found


def means(rows: list[Record]) -> list[Mean]:
    """Return geometric means, weighted by how often a network has each layer.

    Torch counts as one reference whatever the memory layout.
    """
    groups: dict[tuple[str, str, str, str], list[tuple[float, int]]] = {}
    for row, other in ratios(rows):
        reference = "torch" if other["arm"] in PLAIN else other["arm"]
        ratio = other["median_ms"] / row["median_ms"]
        key = (row["arm"], reference, *kind(row["line"]))
        groups.setdefault(key, []).append((ratio, row.get("times", 1)))
    return [
        (*key, geometric_mean(*zip(*found)), len(found)) for key, found in sorted(groups.items())
    ]


def print_record(row: Record) -> None:
    """Print a record: median [fastest, third quartile] in ms, or why it was not timed."""
    text = spread(row) if "median_ms" in row else f"{row['what']}: {row['why']}"
    if word := row.get("verdict", ""):
        text += f" {row['ratio']:.2f} {word} vs {row['against']}"
    print(f"{row['line']:<60} {row['arm']:<18} {text}", flush=True)


def print_means(title: str, found: list[Record]) -> None:
    rows = [[*key, f"{mean:.3f}", count] for *key, mean, count in means(found)]
    if rows:
        from convref.cli.output import print_table

        print_table(MEANS, rows, f"{title}: reference / arm")
